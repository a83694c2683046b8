"""Routes with `repair_tool_arguments`: clients of every API get corrected calls."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from penstock import Completion, StreamReader
from tests import messages
from tests.faults.client import AUTHORIZED, Response, post
from tests.faults.dialects import MESSAGES, PROVIDERS
from tests.faults.gateway import settings
from tests.faults.upstream import JSON, Upstream, chunk, hang, head, last_chunk, rst, sleep, status, until_read
from tests.serve.in_process import InProcessGateway
from tests.sockets import Socket
from tests.streams import DONE, begins, by_event, calls, finishes, fold, piece, says, sse

SCHEMA = {
    "type": "object",
    "properties": {"port": {"type": "string"}, "days": {"type": "array", "items": {"type": "integer"}}},
    "required": ["port"],
    "additionalProperties": False,
}
PROMPT = [{"role": "user", "content": "When is high water at Brest?"}]
BROKEN = "{'port': 'Brest-canary', 'days': [1, 2,]"
CORRECT = {"port": "Brest-canary", "days": [1, 2]}
WRITTEN = f'<tool_call>{{"name": "get_tide", "arguments": {BROKEN}}}}}</tool_call>'
# By client API: the path, and what a request has besides the model.
ASKED: dict[str, tuple[str, dict[str, Any]]] = {
    "openai_chat": (
        "/v1/chat/completions",
        {"messages": PROMPT, "tools": [{"type": "function", "function": {"name": "get_tide", "parameters": SCHEMA}}]},
    ),
    "anthropic_messages": (
        "/v1/messages",
        {"messages": PROMPT, "max_tokens": 100, "tools": [{"name": "get_tide", "input_schema": SCHEMA}]},
    ),
    "openai_responses": (
        "/v1/responses",
        {"input": PROMPT, "tools": [{"type": "function", "name": "get_tide", "parameters": SCHEMA}]},
    ),
    "gemini": (
        "/v1beta/models/{model}:{method}",
        {
            "contents": [{"role": "user", "parts": [{"text": "When?"}]}],
            "tools": [{"functionDeclarations": [{"name": "get_tide", "parametersJsonSchema": SCHEMA}]}],
        },
    ),
    "cohere": (
        "/v2/chat",
        {"messages": PROMPT, "tools": [{"type": "function", "function": {"name": "get_tide", "parameters": SCHEMA}}]},
    ),
    "bedrock_converse": (
        "/model/{model}/{method}",
        {
            "messages": [{"role": "user", "content": [{"text": "When?"}]}],
            "toolConfig": {"tools": [{"toolSpec": {"name": "get_tide", "inputSchema": {"json": SCHEMA}}}]},
        },
    ),
}
# By client API whose path has the model: the methods, streamed and not.
METHODS = {
    "gemini": ("streamGenerateContent?alt=sse", "generateContent"),
    "bedrock_converse": ("converse-stream", "converse"),
}


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InProcessGateway]:
    routes = {
        'routes."mended/*"': {"targets": ["main/*"], "repair_tool_arguments": True},
        'routes."mended-messages/*"': {"targets": [f"main{MESSAGES.suffix}/*"], "repair_tool_arguments": True},
        'routes."hasty-mended/*"': {"targets": ["hasty-gap/*"], "repair_tool_arguments": True},
    }
    with Upstream() as upstream:
        tables: dict[str, Any] = {"server": {"heartbeat_s": 0.1}, "admin": {"listen": "127.0.0.1:0"}} | routes
        text = settings(upstream.url, 1, [*PROVIDERS.values()], **tables)
        with InProcessGateway(tmp_path_factory.mktemp("gateway"), upstream, text) as gateway:
            yield gateway


def asked(running: InProcessGateway, model: str, dialect: str, *, stream: bool, **more: object) -> Response:
    path, fields = ASKED[dialect]
    if dialect in METHODS:
        method = METHODS[dialect][0 if stream else 1]
        path = path.format(model=quote(model, safe=""), method=method)
        return running.send(post(json.dumps(fields).encode(), AUTHORIZED, path))
    body = {"model": model, "stream": stream} | fields | more
    return running.send(post(json.dumps(body).encode(), AUTHORIZED, path))


def read(response: Response, dialect: str) -> Completion:
    assert response.status == 200, response.body
    reader = StreamReader(dialect)
    return fold([*reader.feed(response.body), *reader.close()])


def chat_calls(arguments: str) -> bytes:
    pieces = [piece(0, "call_1", "get_tide", arguments[:9]), piece(0, arguments=arguments[9:])]
    return sse(begins(), *map(calls, pieces), finishes("tool_calls"), DONE)


def chat_body(message: dict[str, object]) -> bytes:
    choice = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": "stop"}
    whole = {"id": "c1", "object": "chat.completion", "created": 1, "model": "weir", "choices": [choice]}
    return json.dumps(whole).encode()


def called(arguments: str) -> dict[str, object]:
    call = {"id": "call_1", "type": "function", "function": {"name": "get_tide", "arguments": arguments}}
    return {"content": None, "tool_calls": [call]}


ARRIVING = [piece(0, "call_1", "get_tide", BROKEN[0]), *(piece(0, arguments=each) for each in BROKEN[1:])]
CHAT = {
    ("call", True): chat_calls(BROKEN),
    ("call", False): chat_body(called(BROKEN)),
    ("text", True): sse(begins(), *map(says, [WRITTEN[:5], WRITTEN[5:40], WRITTEN[40:]]), finishes(), DONE),
    ("text", False): chat_body({"content": WRITTEN}),
}


def reads(wire: bytes) -> list[bytes]:
    """Each event, to be sent alone. (An empty chunk would end the body.)"""
    return [event for event in by_event(wire) if event]


def scripted(wire: bytes, *, stream: bool) -> list[Any]:
    return [head(), *map(chunk, reads(wire)), last_chunk()] if stream else [status(200, JSON, wire)]


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("form", ["call", "text"])
@pytest.mark.parametrize("dialect", ASKED)
def test_a_client_gets_the_corrected_call(running: InProcessGateway, dialect: str, form: str, stream: bool) -> None:
    model = running.upstream.play(scripted(CHAT[form, stream], stream=stream))
    response = asked(running, f"mended/{model}", dialect, stream=stream)
    answer = read(response, dialect)
    (call,) = answer.choices[0].tool_calls
    assert (call.name, json.loads(call.arguments)) == ("get_tide", CORRECT)
    assert answer.choices[0].text == ""
    assert answer.ending == "completed"
    assert dialect == "gemini" or answer.choices[0].finish_reason == "tool_calls"
    line = running.call(response)
    codes = {"model-json-python", "model-json-commas", "model-json-unclosed"}
    assert codes - {"model-json-unclosed"} <= line["repairs"].keys()
    assert "model-call-tagged" in line["repairs"] or form == "call"
    assert "tool-arguments-broken" not in line["findings"]
    assert stream or "model-json-python=1" in response.headers["x-penstock-repairs"]


@pytest.mark.parametrize("dialect", ASKED)
def test_an_anthropic_provider_is_repaired_too(running: InProcessGateway, dialect: str) -> None:
    for wire in (
        messages.answer(*messages.calls_all(BROKEN), finish=messages.finishes("tool_use")),
        messages.answer(*messages.says_all("", *WRITTEN)),
    ):
        model = running.upstream.play(scripted(wire, stream=True))
        answer = read(asked(running, f"mended-messages/{model}", dialect, stream=True), dialect)
        (call,) = answer.choices[0].tool_calls
        assert (call.name, json.loads(call.arguments), answer.choices[0].text) == ("get_tide", CORRECT, "")


@pytest.mark.parametrize("form", ["call", "text"])
def test_a_client_on_a_websocket_gets_the_corrected_call(running: InProcessGateway, form: str) -> None:
    model = running.upstream.play(scripted(CHAT[form, True], stream=True))
    with Socket(running.port) as client:
        running.expected += 1
        messages = client.respond(f"mended/{model}", **ASKED["openai_responses"][1])
    (item,) = messages[-1]["response"]["output"]
    assert (item["type"], item["name"], json.loads(item["arguments"])) == ("function_call", "get_tide", CORRECT)
    deltas = [each["delta"] for each in messages if each["type"] == "response.function_call_arguments.delta"]
    assert json.loads("".join(deltas)) == CORRECT
    assert not any(each["type"] == "response.output_text.delta" for each in messages)


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("form", ["call", "text"])
def test_without_the_option_nothing_changes(running: InProcessGateway, form: str, stream: bool) -> None:
    wire = CHAT[form, stream]
    model = running.upstream.play(scripted(wire, stream=stream))
    response = asked(running, f"main/{model}", "openai_chat", stream=stream)
    assert read(response, "openai_chat").choices == read(Response(200, {}, wire), "openai_chat").choices
    assert not any(code.startswith("model-") for code in running.call(response)["repairs"])


def test_structured_output_is_corrected(running: InProcessGateway) -> None:
    wire = sse(begins(), *map(says, ["```json\n", json.dumps(CORRECT), "\n```"]), finishes(), DONE)
    format = {"type": "json_schema", "json_schema": {"name": "tide", "schema": SCHEMA}}
    for stream in (True, False):
        body = wire if stream else chat_body({"content": "".join(["```json\n", json.dumps(CORRECT), "\n```"])})
        model = running.upstream.play(scripted(body, stream=stream))
        response = asked(running, f"mended/{model}", "openai_chat", stream=stream, response_format=format, tools=[])
        assert json.loads(read(response, "openai_chat").choices[0].text) == CORRECT


def test_arguments_reach_no_log_and_no_ledger(running: InProcessGateway) -> None:
    model = running.upstream.play(scripted(CHAT["call", True], stream=True))
    running.call(asked(running, f"mended/{model}", "openai_chat", stream=True))
    assert not any("Brest-canary" in line for line in running.output)
    state = Path(running.file).parent / "state"
    running.until(lambda: any(model.encode() in path.read_bytes() for path in state.rglob("*") if path.is_file()))
    assert not any(b"Brest-canary" in path.read_bytes() for path in state.rglob("*") if path.is_file())


@pytest.mark.slow
def test_heartbeats_go_on_while_something_waits(running: InProcessGateway) -> None:
    events = reads(sse(begins(), *(calls(each) for each in ARRIVING), finishes("tool_calls"), DONE))
    slowly = [op for event in events for op in (chunk(event), sleep(0.06))]
    model = running.upstream.play([head(), *slowly, last_chunk()])
    response = asked(running, f"mended/{model}", "openai_chat", stream=True)
    between = response.body.partition(b'"get_tide"')[2].partition(b"Brest")[0]
    assert between.count(b": penstock\n\n") >= 3
    (call,) = read(response, "openai_chat").choices[0].tool_calls
    assert json.loads(call.arguments) == CORRECT


@pytest.mark.slow
def test_a_call_that_is_cut_off_goes_out_as_it_came(running: InProcessGateway) -> None:
    begun = reads(CHAT["call", True])[:3]
    for end, code in ((rst(), "upstream_reset"), (hang(), "upstream_timeout_idle")):
        model = running.upstream.play([head(), *map(chunk, begun), until_read(), end])
        response = asked(running, f"hasty-mended/{model}", "openai_chat", stream=True)
        assert response.status == 200, response.body
        pieces = [
            call["function"].get("arguments", "")
            for each in response.chunks
            for choice in each.get("choices", ())
            for call in choice["delta"].get("tool_calls", ())
        ]
        assert "".join(pieces) == BROKEN
        assert not response.done
        assert response.error["code"] == code
        assert running.call(response)["ending"] == ("timed_out" if code.startswith("upstream_timeout") else "truncated")
