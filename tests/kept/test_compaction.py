"""`POST /v1/responses/compact`: at a provider that has it, and by a summary at every other one; and the next turn."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import messages, responses
from tests.faults.client import AUTHORIZED, Response, get, post
from tests.faults.dialects import CHAT, MESSAGES, PROVIDERS, RESPONSES, Provider
from tests.faults.gateway import PROVIDER_KEY, settings
from tests.faults.upstream import EVENT_STREAM, JSON, Upstream, status
from tests.serve.in_process import InProcessGateway
from tests.serve.support import AdminClient

SUMMARY = "Ada wants a red river; the file is river.py."
PROOF = "gAAAA-of-the-provider"
USAGE = {"input_tokens": 50, "output_tokens": 7, "total_tokens": 57}
TURNS = [
    {"type": "message", "role": "user", "content": "I am Ada. Draw a river."},
    {"type": "message", "role": "assistant", "content": "Which colour?"},
    {"type": "message", "role": "user", "content": "Red."},
]
NEXT = {"type": "message", "role": "user", "content": "Go on."}
RED = {"type": "input_text", "text": "Red."}
COMPACTED = {
    "id": "resp_of_the_provider",
    "object": "response.compaction",
    "created_at": 1_700_000_000,
    "output": [
        {"type": "message", "role": "user", "id": "msg_1", "status": "completed", "content": [RED]},
        {"type": "compaction", "id": "cmp_1", "encrypted_content": PROOF},
    ],
    "usage": USAGE,
}


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InProcessGateway]:
    folder = tmp_path_factory.mktemp("gateway")
    with Upstream() as upstream, InProcessGateway(folder, upstream, configuration(upstream)) as gateway:
        yield gateway


def configuration(upstream: Upstream, **tables: Any) -> str:
    tables |= {"admin": {"listen": "127.0.0.1:0"}}
    for name in ("compacting", "other"):
        provider = {"base_url": upstream.url, "dialect": "openai_responses", "api_key": f"{PROVIDER_KEY}-{name}"}
        tables |= {f"providers.{name}": provider, f"providers.{name}.settings": {"compaction": True}}
        tables[f'prices."{name}/*"'] = {"input": 1.0, "output": 2.0}
    claude = {"base_url": upstream.url, "dialect": "anthropic_messages", "api_key": f"{PROVIDER_KEY}-claude"}
    tables |= {"providers.claude": claude, "providers.claude.settings": {"compaction": True}}
    return settings(upstream.url, 1, PROVIDERS.values(), **tables)


def send(running: InProcessGateway, path: str, headers: dict[str, str] | None = None, **fields: Any) -> Response:
    return running.send(post(json.dumps(fields).encode(), headers, path))


def compact(
    running: InProcessGateway,
    provider: Provider = CHAT,
    text: str = SUMMARY,
    headers: dict[str, str] | None = None,
    **fields: Any,
) -> tuple[Response, Any]:
    """The answer, and the request that the provider got."""
    model = running.upstream.play([status(200, JSON, provider.body(text))])
    asked = {"model": f"main{provider.suffix}/{model}", "input": TURNS} | fields
    answer = send(running, "/v1/responses/compact", headers, **asked)
    return answer, requested(running, model)


def requested(running: InProcessGateway, model: str) -> Any:
    """The last request that a provider got, with its path as the member `path`; None if it got none."""
    if not (requests := running.upstream.requests(model)):
        return None
    head, _, content = requests[-1].partition(b"\r\n\r\n")
    return json.loads(content) | {"path": head.split()[1].decode()}


def ask_next(running: InProcessGateway, output: Any, provider: Provider, headers: dict[str, str] | None = None) -> Any:
    model = running.upstream.play([status(200, JSON, provider.body("Done."))])
    answer = send(
        running, "/v1/responses", headers, model=f"main{provider.suffix}/{model}", input=[*output, NEXT], store=False
    )
    return answer, requested(running, model)


@pytest.mark.parametrize("provider", PROVIDERS.values(), ids=PROVIDERS)
def test_a_conversation_becomes_a_summary_at_any_provider(running: InProcessGateway, provider: Provider) -> None:
    answer, asked = compact(running, provider, instructions="Be brief.")
    assert answer.status == 200, answer.body
    assert (answer.json["object"], answer.json["usage"]["input_tokens"]) == ("response.compaction", 5)
    assert answer.headers["x-penstock-cost"] == "0.000011"
    (item,) = answer.json["output"]
    assert (item["type"], item["id"]) == ("compaction", f"cmp_{answer.request_id}")
    assert SUMMARY not in item["encrypted_content"]
    text = json.dumps(asked)
    assert all(part in text for part in ("I am Ada.", "Which colour?", "Red.", "Be brief.", "Write a summary"))
    line = running.call(answer)
    assert (line["surface"], line["ending"], line["input"], line["output"]) == ("compact", "completed", 5, 3)


@pytest.mark.parametrize("provider", PROVIDERS.values(), ids=PROVIDERS)
def test_the_next_turn_has_the_summary_at_any_provider(running: InProcessGateway, provider: Provider) -> None:
    output = compact(running)[0].json["output"]
    answer, asked = ask_next(running, output, provider)
    assert answer.status == 200, answer.body
    text = json.dumps(asked)
    assert (SUMMARY in text, "Go on." in text, "Which colour?" in text) == (True, True, False)
    assert "penstock-summary1" not in text
    assert "x-penstock-losses" not in answer.headers or "content-dropped" not in answer.headers["x-penstock-losses"]


def test_a_summary_is_summarised_again(running: InProcessGateway) -> None:
    output = compact(running)[0].json["output"]
    answer, asked = compact(running, MESSAGES, "Shorter.", input=[*output, NEXT])
    assert SUMMARY in json.dumps(asked)
    assert "Shorter." in json.dumps(ask_next(running, answer.json["output"], CHAT)[1])


def test_tools_stay_defined_and_are_not_called(running: InProcessGateway) -> None:
    tool = {"type": "function", "name": "draw", "parameters": {"type": "object", "properties": {}}}
    call = {"type": "function_call", "call_id": "c1", "name": "draw", "arguments": "{}"}
    result = {"type": "function_call_output", "call_id": "c1", "output": "drawn"}
    given: dict[str, Any] = {
        "tools": [tool, {"type": "web_search"}],
        "tool_choice": "required",
        "input": [*TURNS, call, result],
    }
    for provider in (CHAT, MESSAGES, RESPONSES):
        answer, asked = compact(running, provider, **given)
        assert answer.status == 200, answer.body
        assert "server-tool-dropped" not in answer.headers.get("x-penstock-losses", "")
        assert len(asked["tools"]) == 1
        assert asked["tool_choice"] in ("none", {"type": "none"})


def test_a_kept_response_is_compacted_by_its_id(running: InProcessGateway) -> None:
    model = running.upstream.play([status(200, JSON, CHAT.body("A kept answer."))])
    first = send(running, "/v1/responses", model=f"main/{model}", input="I am Grace.").json
    answer, asked = compact(running, input=None, previous_response_id=first["id"])
    assert answer.status == 200, answer.body
    assert all(part in json.dumps(asked) for part in ("I am Grace.", "A kept answer.", "Write a summary"))


def test_a_summary_of_another_key_or_a_changed_one_is_refused(running: InProcessGateway) -> None:
    (item,) = compact(running)[0].json["output"]
    admin = AdminClient(running)
    running.upstream.play(CHAT.unstreamed(), "river-1")
    secret, _ = admin.make(name="another")
    admin.until_known(secret)
    refused, asked = ask_next(running, [item], CHAT, {"Authorization": f"Bearer {secret}"})
    assert (refused.status, refused.error["param"], asked) == (400, "input", None)
    proof = item["encrypted_content"]
    for changed in (proof[:-8] + "AAAA" + proof[-4:], proof[:60], proof + "=", "penstock-summary1.", proof + "?"):
        refused, asked = ask_next(running, [item | {"encrypted_content": changed}], CHAT)
        assert (refused.status, refused.error["param"], asked) == (400, "input", None), changed
    assert ask_next(running, [item], CHAT)[0].status == 200


def test_tokens_of_a_summary_are_counted(running: InProcessGateway) -> None:
    output = compact(running, text="word " * 500)[0].json["output"]
    counted = send(running, "/v1/responses/input_tokens", model="main/any", input=[*output, NEXT])
    assert 450 <= counted.json["input_tokens"] <= 800


def test_a_provider_that_has_the_endpoint_is_asked_there(running: InProcessGateway) -> None:
    model = running.upstream.play([status(200, JSON, json.dumps(COMPACTED).encode())])
    fields: dict[str, Any] = {"model": f"compacting/{model}", "input": TURNS, "prompt_cache_key": "k1"}
    answer = send(running, "/v1/responses/compact", **fields)
    assert answer.status == 200, answer.body
    assert requested(running, model) == fields | {"model": model, "path": "/v1/responses/compact"}
    message, item = answer.json["output"]
    assert message == COMPACTED["output"][0]  # type: ignore[index]
    assert (item["type"], item["id"]) == ("compaction", "cmp_1")
    assert item["encrypted_content"].startswith("penstock1.openai.")
    assert (answer.json["id"], answer.json["created_at"]) == ("resp_of_the_provider", 1_700_000_000)
    assert answer.headers["x-penstock-cost"] == "0.000064"
    assert (running.call(answer)["input"], running.call(answer)["output"]) == (50, 7)


def test_what_a_provider_compacted_goes_back_to_it_only(running: InProcessGateway) -> None:
    model = running.upstream.play([status(200, JSON, json.dumps(COMPACTED).encode())])
    output = send(running, "/v1/responses/compact", model=f"compacting/{model}", input=TURNS).json["output"]
    own = running.upstream.play(RESPONSES.unstreamed())
    answer = send(running, "/v1/responses", model=f"compacting/{own}", input=[*output, NEXT])
    assert answer.status == 200
    assert requested(running, own)["input"][1]["encrypted_content"] == PROOF
    for name in ("other", "main", "main-messages", "main-responses"):
        elsewhere = running.upstream.play(RESPONSES.unstreamed())
        for path in ("/v1/responses", "/v1/responses/compact"):
            refused = send(running, path, model=f"{name}/{elsewhere}", input=[*output, NEXT])
            assert (refused.status, requested(running, elsewhere)) == (400, None), name
            assert "a provider compacted" in refused.error["message"]


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
def test_a_compaction_in_an_answer_names_its_issuer(running: InProcessGateway, *, stream: bool) -> None:
    item = {"type": "compaction", "id": "cmp_2", "encrypted_content": PROOF}
    text = responses.message(responses.part("Hello world."))
    body = responses.response("completed", item, text, usage=responses.USAGE)
    events = [
        *responses.begins(),
        {"type": "response.output_item.added", "output_index": 0, "item": item},
        {"type": "response.output_item.done", "output_index": 0, "item": item},
        {"type": "response.completed", "response": body},
    ]
    wire = b"".join(map(responses.named, events))
    script = [status(200, {"content-type": "text/event-stream"}, wire) if stream else status(200, JSON, dumped(body))]
    model = running.upstream.play(script)
    fields: dict[str, Any] = {
        "context_management": [{"type": "compaction", "compact_threshold": 1_000}],
        "stream": stream,
    }
    answer = send(running, "/v1/responses", model=f"compacting/{model}", input=TURNS, **fields)
    assert answer.status == 200, answer.body
    assert requested(running, model)["context_management"] == fields["context_management"]
    assert f'"{PROOF}"' not in answer.body.decode()
    assert answer.body.count(b'"penstock1.openai.') == (3 if stream else 1)


def dumped(body: object) -> bytes:
    return json.dumps(body).encode()


TRIGGER = {"type": "compaction_trigger"}


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
@pytest.mark.parametrize("provider", PROVIDERS.values(), ids=PROVIDERS)
def test_a_request_for_a_response_can_trigger_a_compaction(
    running: InProcessGateway, provider: Provider, *, stream: bool
) -> None:
    model = running.upstream.play([status(200, JSON, provider.body(SUMMARY))])
    fields: dict[str, Any] = {"model": f"main{provider.suffix}/{model}", "include": ["reasoning.encrypted_content"]}
    answer = send(running, "/v1/responses", input=[*TURNS, TRIGGER], stream=stream, store=False, **fields)
    assert answer.status == 200, answer.body
    response, items = read_triggered(answer, stream=stream)
    assert [item["type"] for item in items] == ["compaction"]
    assert (response["object"], response["status"], response["usage"]["input_tokens"]) == ("response", "completed", 5)
    assert "compaction_trigger" not in json.dumps(requested(running, model))
    assert running.call(answer)["surface"] == "compact"
    assert SUMMARY in json.dumps(ask_next(running, items, CHAT)[1])


def read_triggered(answer: Response, *, stream: bool) -> tuple[Any, Any]:
    """The response, and the items that a client of it gets."""
    if not stream:
        return answer.json, answer.json["output"]
    *blocks, end = answer.body.removesuffix(b"\n\n").split(b"\n\n")
    assert end == b"data: [DONE]"
    events = [json.loads(block.partition(b"data: ")[2]) for block in blocks]
    assert [block.splitlines()[0] for block in blocks] == [f"event: {each['type']}".encode() for each in events]
    assert [event["sequence_number"] for event in events] == [*range(len(events))]
    done = [event["item"] for event in events if event["type"] == "response.output_item.done"]
    assert (events[0]["type"], events[0]["response"]["output"]) == ("response.created", [])
    assert (events[-1]["type"], events[-1]["response"]["output"]) == ("response.completed", done)
    return events[-1]["response"], done


def test_a_trigger_is_for_the_endpoint_of_a_provider_that_has_one(running: InProcessGateway) -> None:
    model = running.upstream.play([status(200, JSON, dumped(COMPACTED))])
    fields: dict[str, Any] = {"model": f"compacting/{model}", "client_metadata": {"a": "b"}, "prompt_cache_key": "k"}
    answer = send(running, "/v1/responses", input=[*TURNS, TRIGGER], stream=True, store=False, **fields)
    _, (item,) = read_triggered(answer, stream=True)
    assert item["encrypted_content"].startswith("penstock1.openai.")
    asked = {"model": model, "input": TURNS, "prompt_cache_key": "k", "path": "/v1/responses/compact"}
    assert requested(running, model) == asked


def test_words_about_a_trigger_do_not_trigger(running: InProcessGateway) -> None:
    model = running.upstream.play([status(200, JSON, CHAT.body("Hello."))])
    given = [TRIGGER, {"role": "user", "content": "What is a compaction_trigger?"}]
    answer = send(running, "/v1/responses", model=f"main/{model}", input=given)
    assert (answer.status, answer.json["output"][0]["type"]) == (200, "message")
    broken = running.send(post(b'{"input": [{"type": "compaction_trigger"', path="/v1/responses"))
    assert (broken.status, broken.error["code"]) == (400, "invalid_json")
    empty = send(running, "/v1/responses", model="main/any", input=[TRIGGER], stream=True)
    assert (empty.status, empty.error["param"]) == (400, "input")


@pytest.mark.parametrize("path", ["/v1/responses", "/v1/responses/input_tokens"])
def test_words_about_a_summary_are_a_text(running: InProcessGateway, path: str) -> None:
    model = running.upstream.play([status(200, JSON, CHAT.body("Hello."))])
    words = 'What is {"type": "compaction", "encrypted_content": "penstock-summary1.AAAA"}?'
    assert send(running, path, model=f"main/{model}", input=words).status == 200
    refused = send(running, path, model=f"main/{model}", input={"text": words})
    assert (refused.status, refused.error["param"]) == (400, "input")


def claude_answer(*, stream: bool) -> Any:
    """Claude's answer after it has compacted the conversation."""
    block = {"type": "compaction", "content": SUMMARY}
    if not stream:
        body = json.loads(MESSAGES.body("Hello world."))
        return [status(200, JSON, dumped(body | {"content": [block, *body["content"]]}))]
    opened: Any = {"type": "content_block_start", "index": 0, "content_block": block | {"content": ""}}
    delta: Any = {
        "type": "content_block_delta",
        "index": 0,
        "delta": {"type": "compaction_delta", "content": SUMMARY},
    }
    closed: Any = {"type": "content_block_stop", "index": 0}
    begins = messages.begins(usage={"input_tokens": 5, "output_tokens": 1})
    text: list[Any] = [messages.opens(index=1), messages.says("Hello world.", index=1), messages.closes(index=1)]
    ends = [messages.finishes(usage={"output_tokens": 3}), messages.STOPS]
    return [status(200, EVENT_STREAM, messages.wire(begins, opened, delta, closed, *text, *ends))]


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
def test_claude_compacts_when_the_client_asks_for_it(running: InProcessGateway, *, stream: bool) -> None:
    given = [{"type": "compaction", "compact_threshold": 60_000}]
    model = running.upstream.play(claude_answer(stream=stream))
    fields: dict[str, Any] = {"model": f"claude/{model}", "input": TURNS, "context_management": given}
    answer = send(running, "/v1/responses", stream=stream, **fields)
    assert answer.status == 200, answer.body
    assert requested(running, model)["context_management"] == {
        "edits": [{"type": "compact_20260112", "trigger": {"type": "input_tokens", "value": 60_000}}]
    }
    assert b"anthropic-beta: compact-2026-01-12" in running.upstream.requests(model)[-1].lower()
    losses = answer.headers.get("x-penstock-losses", "")
    assert "field-dropped" not in losses
    assert "server-activity-hidden" not in losses
    if stream:
        (last,) = [line for line in answer.body.splitlines() if line.startswith(b'data: {"type":"response.completed"')]
        output = json.loads(last[len("data: ") :])["response"]["output"]
    else:
        output = answer.json["output"]
    assert [item["type"] for item in output] == ["compaction", "message"]
    for provider in (CHAT, MESSAGES, RESPONSES):
        _, asked = ask_next(running, [*TURNS, *output], provider)
        text = json.dumps(asked)
        assert [part in text for part in (SUMMARY, "Hello world.", "Go on.", "Which colour?")] == [True] * 3 + [False]


def test_claude_compacts_no_conversation_below_its_least(running: InProcessGateway) -> None:
    model = running.upstream.play(claude_answer(stream=False))
    given = [{"type": "compaction", "compact_threshold": 1_000}]
    answer = send(running, "/v1/responses", model=f"claude/{model}", input=TURNS, context_management=given)
    assert requested(running, model)["context_management"]["edits"][0]["trigger"]["value"] == 50_000
    assert "field-dropped=1" in answer.headers["x-penstock-losses"]


def test_what_claude_compacted_is_text_to_other_providers(running: InProcessGateway) -> None:
    model = running.upstream.play([status(200, JSON, CHAT.body("Done."))])
    turns = [
        {"role": "assistant", "content": [{"type": "compaction", "content": SUMMARY}, {"type": "text", "text": "Hi."}]},
        {"role": "user", "content": "Go on."},
    ]
    answer = send(running, "/v1/messages", model=f"main/{model}", messages=turns, max_tokens=100)
    assert (answer.status, "x-penstock-losses" in answer.headers) == (200, False)
    assert SUMMARY in json.dumps(requested(running, model))


def test_context_management_is_a_declared_loss_elsewhere(running: InProcessGateway) -> None:
    for provider in (CHAT, MESSAGES):
        model = running.upstream.play([status(200, JSON, provider.body("Hello."))])
        given = [{"type": "compaction", "compact_threshold": 1_000}]
        answer = send(
            running, "/v1/responses", model=f"main{provider.suffix}/{model}", input=TURNS, context_management=given
        )
        assert (answer.status, "field-dropped" in answer.headers["x-penstock-losses"]) == (200, True)


def test_bad_requests_and_answers_without_a_summary(running: InProcessGateway) -> None:
    path = "/v1/responses/compact"
    assert (send(running, path, input=TURNS).status, send(running, path, model="main/any").status) == (400, 400)
    assert send(running, path, model="main/any", input=TURNS, stream=True).error["param"] == "stream"
    assert running.send(get(path)).status == 405
    assert running.send(post(b"{}", {"Authorization": "Bearer none"}, path)).status == 401
    empty, _ = compact(running, text="")
    assert empty.status == 502, empty.body
    line = running.call(empty)
    assert (line["ending"], line["code"], line["output"]) == ("failed", "upstream_bad_response", 3)
    failing = running.upstream.play([status(500, JSON, b'{"error":{"message":"no"}}')])
    assert send(running, path, model=f"main/{failing}", input=TURNS).status >= 500


def test_a_summary_outlives_the_gateway(tmp_path: Path) -> None:
    with Upstream() as upstream:
        text = configuration(upstream)
        with InProcessGateway(tmp_path, upstream, text) as gateway:
            output = compact(gateway)[0].json["output"]
        with InProcessGateway(tmp_path, upstream, text) as gateway:
            assert SUMMARY in json.dumps(ask_next(gateway, output, MESSAGES)[1])


def test_it_works_without_a_ledger_and_kept_responses(tmp_path: Path) -> None:
    with Upstream() as upstream:
        tables = {"ledger": {"enabled": False}, "responses": {"memory": 0}}
        with InProcessGateway(tmp_path, upstream, configuration(upstream, **tables)) as gateway:
            output = compact(gateway, headers=AUTHORIZED)[0].json["output"]
            assert SUMMARY in json.dumps(ask_next(gateway, output, CHAT)[1])
