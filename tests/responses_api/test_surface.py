"""`POST /v1/responses` and what belongs to it, on real sockets: answers, tools, errors at every stage, heartbeats."""

import json
from pathlib import Path

import pytest

from tests import messages as ant
from tests import responses as res
from tests import streams as chat
from tests.anthropic.support import ANSWER, CHAT_ANSWER, MESSAGE, TEXT, answers, provider_error, sent, streams
from tests.faults.client import Response, get, post
from tests.faults.gateway import PROVIDER_KEY
from tests.faults.scripts import plain
from tests.faults.upstream import Gate, Op, Upstream, chunk, fin, hang, head, last_chunk, rst, sleep
from tests.responses_api.support import (
    COUNT,
    PATH,
    Json,
    ResponsesGateway,
    error,
    events,
    names,
    request_body,
    start,
    text,
    whole,
)

pytestmark = pytest.mark.slow

WHOLE = [
    "created",
    "in_progress",
    "output_item.added",
    "content_part.added",
    "output_text.delta",
    "output_text.delta",
    "output_text.done",
    "content_part.done",
    "output_item.done",
    "completed",
]
FUNCTION = {"type": "function", "name": "f", "parameters": {"type": "object"}}
BEAT = b"event: response.in_progress\n"


def chat_pieces() -> list[bytes]:
    return [event + b"\n\n" for event in CHAT_ANSWER.split(b"\n\n")[:-1]]


def waits(gateway: ResponsesGateway, model: str, *gates: tuple[Gate, int]) -> Response:
    """Ask for a model, and open each gate when so many events `in_progress` have come; returns the answer."""
    with gateway.start_response(model) as client:
        for gate, beats in gates:
            client.read_until(BEAT, beats)
            gate.open()
        return gateway.keep(client.response())


# Answers.


def test_a_chat_provider_answers_a_client_of_responses(gateway: ResponsesGateway) -> None:
    model = gateway.upstream.play(streams(*chat_pieces()))
    response = gateway.respond(f"main/{model}", temperature=0.5, metadata={"team": "weir"})
    assert (response.status, names(response), text(response)) == (200, WHOLE, TEXT)
    answer = whole(response)
    assert (answer["id"][:5], answer["store"]) == ("resp_", True)
    assert (answer["temperature"], answer["metadata"]) == (0.5, {"team": "weir"})
    assert (answer["usage"]["input_tokens"], answer["usage"]["output_tokens"]) == (7, 4)
    path, headers, body = sent(gateway, model)
    assert (path, headers["authorization"]) == ("/v1/chat/completions", f"Bearer {PROVIDER_KEY}")
    assert json.loads(body)["messages"] == [{"role": "user", "content": "Say hello."}]
    entry = gateway.book.entry(response.request_id)
    assert (entry.surface, entry.outcome, entry.tags) == ("responses", "completed", {"team": "weir"})


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
@pytest.mark.parametrize("provider_streams", [True, False], ids=["by a stream", "by a body"])
@pytest.mark.parametrize("provider", ["claude", "main"])
def test_a_client_gets_the_form_that_it_asks_for(
    gateway: ResponsesGateway, provider: str, provider_streams: bool, stream: bool
) -> None:
    wire, body = (ANSWER, MESSAGE) if provider == "claude" else (CHAT_ANSWER, plain())
    model = gateway.upstream.play(streams(wire) if provider_streams else answers(body))
    response = gateway.respond(f"{provider}/{model}", stream=stream)
    assert (response.status, text(response), whole(response)["status"]) == (200, TEXT, "completed")
    assert response.headers["content-type"].startswith("text/event-stream" if stream else "application/json")


# A provider of the same API.


def test_between_a_client_and_a_provider_of_responses_everything_stays(gateway: ResponsesGateway) -> None:
    wire = res.answer(*res.SEARCHES, *res.says_all("Hello", ", world", index=1, id="msg_2", phase="final_answer"))
    model = gateway.upstream.play(streams(*(event + b"\n\n" for event in wire.split(b"\n\n")[:-1])))
    response = gateway.respond(f"openai/{model}", tools=[{"type": "web_search"}], new={"b": 1})
    assert text(response) == TEXT
    sent_events = [json.loads(event.split(b"data: ")[1]) for event in wire.split(b"\n\n")[:-1]]
    assert [event for event in events(response) if "response" not in event] == [
        event for event in sent_events if "response" not in event
    ]
    assert (whole(response)["id"][:5], whole(response)["store"]) == ("resp_", True)
    path, _, body = sent(gateway, model)
    assert (path, json.loads(body)["new"], json.loads(body)["store"]) == ("/v1/responses", {"b": 1}, False)
    assert gateway.call(response)["losses"] == {}


def test_a_heartbeat_in_a_stream_of_the_same_api_shifts_the_numbers(tmp_path: Path) -> None:
    pieces = [event + b"\n\n" for event in res.answer(*res.says_all("Hello", ", world")).split(b"\n\n")[:-1]]
    with Upstream() as upstream, start(tmp_path, upstream, server={"heartbeat_s": 0.1}) as gateway:
        gate = Gate()
        script: list[Op] = [head(), *map(chunk, pieces[:5]), gate, *map(chunk, pieces[5:]), last_chunk()]
        response = waits(gateway, f"openai/{upstream.play(script)}", (gate, 3))
        found = names(response)
        beats = found.count("in_progress") - 1
        assert beats >= 2
        assert found == [*WHOLE[:5], *["in_progress"] * beats, *WHOLE[5:]]
        assert text(response) == TEXT
        gateway.quiet()


def test_text_of_the_same_api_is_forwarded_until_a_heartbeat(tmp_path: Path) -> None:
    """Deltas that are forwarded have the provider's padding. The last event has all of the text on both paths."""
    words = [f"word{number} " for number in range(9)]
    message_events = [
        event | {"obfuscation": "x" * (place % 5 + 1)} if "delta" in event else event
        for place, event in enumerate(res.says_all(*words))
    ]
    pieces = [event + b"\n\n" for event in res.answer(*message_events).split(b"\n\n")[:-1]]
    slowly = [each for piece in pieces for each in (chunk(piece), sleep(0.01))]
    with Upstream() as upstream, start(tmp_path, upstream, server={"heartbeat_s": 0.5}) as gateway:

        def padded(script: list[Op]) -> list[bool]:
            response = gateway.respond(f"openai/{upstream.play([head(), *script, last_chunk()])}")
            assert text(response) == "".join(words)
            assert gateway.call(response)["repairs"] == {}
            return ["obfuscation" in event for event in events(response) if event["type"].endswith("text.delta")]

        def is_forwarded(script: list[Op], expected: list[bool]) -> bool:
            """On a busy machine several events may arrive in one read, which takes the slow path."""
            return any(padded(script) == expected for _ in range(10))

        assert is_forwarded(slowly, [False] + [True] * 8)
        assert is_forwarded([*slowly[:18], sleep(0.7), *slowly[18:]], [False] + [True] * 4 + [False] * 4)
        gateway.quiet()


# Tools.


def calls(provider: str, name: str, arguments: str) -> bytes:
    """A provider's answer: one call, whose arguments come in two pieces."""
    first, second = arguments[: len(arguments) // 2], arguments[len(arguments) // 2 :]
    if provider == "claude":
        pieces = [ant.calls(0, name=name), ant.passes(first), ant.passes(second), ant.closes(0)]
        return ant.answer(*pieces, finish=ant.finishes("tool_use"))
    begun = chat.calls(chat.piece(0, "toolu_1", name, first) | {"type": "function"})
    rest = chat.calls(chat.piece(0, arguments=second))
    return chat.sse(chat.begins(), begun, rest, chat.finishes("tool_calls"), chat.bill(**chat.counts(7, 4)), chat.DONE)


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
@pytest.mark.parametrize("provider", ["claude", "main"])
def test_a_namespace_is_apart_from_the_name_again(gateway: ResponsesGateway, provider: str, stream: bool) -> None:
    """Codex refuses a call of `agents__f`."""
    model = gateway.upstream.play(streams(calls(provider, "agents__f", '{"a":"b"}')))
    tools = [{"type": "namespace", "name": "agents", "tools": [FUNCTION]}]
    (item,) = whole(gateway.respond(f"{provider}/{model}", stream=stream, tools=tools))["output"]
    assert (item["type"], item["namespace"], item["name"]) == ("function_call", "agents", "f")
    assert (json.loads(item["arguments"]), item["call_id"]) == ({"a": "b"}, "toolu_1")
    tool = json.loads(sent(gateway, model)[2])["tools"][0]
    assert (tool.get("function") or tool)["name"] == "agents__f"


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
@pytest.mark.parametrize("provider", ["claude", "main"])
def test_a_custom_tool_gets_its_text(gateway: ResponsesGateway, provider: str, stream: bool) -> None:
    patch = '*** Begin Patch\n+say "hi" \\ 😀\n'
    model = gateway.upstream.play(streams(calls(provider, "apply_patch", json.dumps({"input": patch}))))
    response = gateway.respond(f"{provider}/{model}", stream=stream, tools=[{"type": "custom", "name": "apply_patch"}])
    (item,) = whole(response)["output"]
    assert (item["type"], item["name"], item["input"]) == ("custom_tool_call", "apply_patch", patch)
    if stream:
        deltas = [event["delta"] for event in events(response) if "custom_tool_call_input.delta" in event["type"]]
        assert (len(deltas), "".join(deltas)) == (2, patch)


def test_a_hosted_tool_is_a_declared_loss(gateway: ResponsesGateway) -> None:
    model = gateway.upstream.play(streams(CHAT_ANSWER))
    response = gateway.respond(f"main/{model}", tools=[{"type": "web_search"}])
    assert (response.status, response.headers["x-penstock-losses"]) == (200, "server-tool-dropped=1")
    forced = gateway.respond("main/x", tools=[{"type": "web_search"}], tool_choice={"type": "web_search"})
    assert error(forced) == (400, "invalid_request")


# Errors.


PROVIDER_ERRORS = {
    401: (502, "upstream_auth"),
    429: (429, "rate_limit_exceeded"),
    500: (502, "upstream_error"),
    503: (503, "server_is_overloaded"),
    529: (503, "server_is_overloaded"),
}


@pytest.mark.parametrize(("code", "expected"), PROVIDER_ERRORS.items(), ids=map(str, PROVIDER_ERRORS))
def test_errors_of_a_provider(gateway: ResponsesGateway, code: int, expected: tuple[int, str]) -> None:
    script = answers(provider_error("overloaded_error", "Slow down"), code, retry_after="7")
    assert error(gateway.respond(f"claude/{gateway.upstream.play(script)}")) == expected


TOO_LONG = {
    "main": b'{"error":{"message":"Too much.","type":"invalid_request_error","code":"context_length_exceeded"}}',
    "claude": provider_error("invalid_request_error", "prompt is too long: 210000 tokens > 200000 maximum"),
}


@pytest.mark.parametrize("provider", TOO_LONG)
def test_a_request_that_is_too_long(gateway: ResponsesGateway, provider: str) -> None:
    """Codex accepts a stream only, and reads `response.failed`; SDKs accept JSON, and read the status."""
    model = gateway.upstream.play(answers(TOO_LONG[provider], 400))
    assert error(gateway.respond(f"{provider}/{model}")) == (400, "context_length_exceeded")
    response = gateway.respond(f"{provider}/{model}", headers={"Accept": "text/event-stream"})
    assert (response.status, names(response)) == (200, ["created", "in_progress", "error", "failed"])
    assert whole(response)["error"]["code"] == "context_length_exceeded"
    line = gateway.call(response)
    assert (line["ending"], line["code"]) == ("failed", "context_length_exceeded")
    unstreamed = gateway.respond(f"{provider}/{model}", stream=False, headers={"Accept": "text/event-stream"})
    assert error(unstreamed) == (400, "context_length_exceeded")


# What SDKs get for a provider's status. Never a 401: the client's key is right.
FINAL: dict[int, tuple[int, str]] = {
    401: (502, "upstream_auth"),
    403: (502, "upstream_auth"),
    402: (402, "upstream_no_credit"),
}


@pytest.mark.parametrize(("code", "expected"), FINAL.items(), ids=map(str, FINAL))
def test_a_failure_of_the_providers_account_is_final(
    gateway: ResponsesGateway, code: int, expected: tuple[int, str]
) -> None:
    """Codex repeats a request that gets another status than 400 for minutes. It ends at `invalid_prompt`."""
    model = gateway.upstream.play(answers(provider_error("authentication_error", "No."), code))
    refused = gateway.respond(f"claude/{model}")
    assert (error(refused), refused.headers["x-should-retry"]) == (expected, "false")
    response = gateway.respond(f"claude/{model}", headers={"Accept": "text/event-stream"})
    assert (response.status, names(response)) == (200, ["created", "in_progress", "error", "failed"])
    assert whole(response)["error"]["code"] == "invalid_prompt"
    assert expected[1] in whole(response)["error"]["message"]
    line = gateway.call(response)
    assert (line["ending"], line["code"]) == ("failed", expected[1])


REFUSED: dict[str, tuple[dict[str, str], Json, tuple[int, str]]] = {
    "a wrong key": ({"Authorization": "Bearer nonsense-of-some-length"}, {}, (401, "invalid_api_key")),
    "no such model": ({}, {"model": "nothing"}, (404, "model_not_found")),
    "no input": ({}, {"input": None}, (400, "invalid_request")),
    "in the background, and not stored": ({}, {"background": True, "store": False}, (400, "invalid_request")),
}


@pytest.mark.parametrize(("headers", "fields", "expected"), REFUSED.values(), ids=REFUSED)
def test_requests_that_are_refused(
    gateway: ResponsesGateway, headers: dict[str, str], fields: Json, expected: tuple[int, str]
) -> None:
    body = json.dumps({"model": "main/x", "input": "Hi"} | fields).encode()
    response = gateway.send(post(body, headers, PATH), calls=fields.get("model") == "nothing")
    assert error(response) == expected


@pytest.mark.parametrize("path", [PATH, COUNT])
def test_a_method_that_is_not_allowed(gateway: ResponsesGateway, path: str) -> None:
    response = gateway.send(get(path))
    assert (error(response), response.headers["allow"]) == ((405, "method_not_allowed"), "POST")


def test_a_websocket_is_refused_with_the_status_after_which_codex_uses_http(gateway: ResponsesGateway) -> None:
    offer = {
        "Connection": "Upgrade",
        "Upgrade": "websocket",
        "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": "AA==",
    }
    response = gateway.send(get(PATH, offer))
    assert (error(response), response.headers["upgrade"]) == ((426, "upgrade_not_supported"), "HTTP/1.1")


# Streams that break.


BEGUN = ant.wire(ant.begins(), ant.opens(0), ant.says("Half"))
CHAT_BEGUN = chat.sse(chat.begins(), chat.says("Half"))
BROKEN: dict[str, tuple[list[Op], str]] = {
    "an error event": ([chunk(ant.wire(ant.error())), last_chunk()], "slow_down"),
    "a clean end without a stop reason": ([last_chunk()], "server_error"),
    "a connection that is closed": ([fin()], "server_error"),
    "a connection that is reset": ([rst()], "server_error"),
    "silence": ([hang()], "server_error"),
}


@pytest.mark.parametrize(("ops", "code"), BROKEN.values(), ids=BROKEN)
@pytest.mark.parametrize("provider", ["hasty-gap-claude", "hasty-gap"])
def test_a_stream_that_breaks_ends_with_a_failed_response(
    gateway: ResponsesGateway, provider: str, ops: list[Op], code: str
) -> None:
    begun = BEGUN if provider == "hasty-gap-claude" else CHAT_BEGUN
    if provider == "hasty-gap" and code == "slow_down":
        ops, code = [chunk(chat.sse({"error": {"message": "Overloaded"}})), last_chunk()], "server_error"
    model = gateway.upstream.play([head(), chunk(begun), *ops])
    response = gateway.respond(f"{provider}/{model}")
    assert response.status == 200
    assert response.complete
    assert names(response)[-2:] == ["error", "failed"]
    failed, last = events(response)[-2:]
    assert failed["error"]["request_id"] == response.request_id
    assert (last["response"]["status"], last["response"]["error"]["code"]) == ("failed", code)
    line = gateway.call(response)
    assert line["ending"] in ("failed", "truncated", "timed_out")


# Heartbeats.


def test_a_client_that_waits_gets_events(tmp_path: Path) -> None:
    """Codex counts events only, and every SDK expects `created` first."""
    with Upstream() as upstream, start(tmp_path, upstream, server={"heartbeat_s": 0.1}) as gateway:
        for provider, wire in (("claude", ANSWER), ("main", CHAT_ANSWER)):
            gate = Gate()
            model = upstream.play([gate, head(), chunk(wire), last_chunk()])
            response = waits(gateway, f"{provider}/{model}", (gate, 3))
            found = names(response)
            beats = found.count("in_progress")
            assert beats >= 3
            assert found == ["created", *["in_progress"] * beats, *WHOLE[2:]]
            assert text(response) == TEXT
        gate = Gate()
        model = upstream.play([gate, *answers(provider_error("invalid_request_error", "No"), 400)])
        response = waits(gateway, f"claude/{model}", (gate, 2))
        assert (response.status, names(response)[-2:]) == (200, ["error", "failed"])
        assert len({event["response"]["id"] for event in events(response) if "response" in event}) == 1
        gateway.quiet()


def test_heartbeats_go_on_with_the_next_target(tmp_path: Path) -> None:
    route = '[routes.either]\ntargets = ["claude/either-a", "main/either-b"]\n'
    with Upstream() as upstream, start(tmp_path, upstream, route, server={"heartbeat_s": 0.1}) as gateway:
        overloaded = answers(provider_error("overloaded_error", "Overloaded"), 529)
        first, second = Gate(), Gate()
        upstream.play([first, *overloaded], "either-a")
        upstream.play([second, *streams(CHAT_ANSWER)], "either-b")
        response = waits(gateway, "either", (first, 2), (second, 5))
        found = names(response)
        beats = found.count("in_progress")
        assert beats >= 5
        assert found == ["created", *["in_progress"] * beats, *WHOLE[2:]]
        assert len({event["response"]["id"] for event in events(response) if "response" in event}) == 1
        gateway.quiet()


@pytest.mark.parametrize(
    ("code", "expected"),
    {"server_is_overloaded": 503, "slow_down": 503, "rate_limit_exceeded": 429, "server_error": 502}.items(),
)
def test_an_overload_that_a_stream_reports_first_has_its_status(
    gateway: ResponsesGateway, code: str, expected: int
) -> None:
    wire = res.wire(*res.begins(), res.fails("Not now", code))
    response = gateway.respond(f"openai/{gateway.upstream.play(streams(wire))}")
    assert (response.status, response.json["error"]["message"]) == (expected, "Not now")
    if expected == 503:
        gateway.upstream.play(streams(wire), "busy-a")
        gateway.upstream.play(streams(CHAT_ANSWER), "busy-b")
        assert text(gateway.respond("busy")) == TEXT


def test_another_target_may_speak_another_dialect(gateway: ResponsesGateway) -> None:
    gateway.upstream.play(answers(provider_error("overloaded_error", "Overloaded"), 529), "either-a")
    gateway.upstream.play(streams(CHAT_ANSWER), "either-b")
    response = gateway.respond("either")
    assert (text(response), response.headers["x-penstock-provider"]) == (TEXT, "main")


# Token counts.


def test_a_count_is_estimated_where_no_provider_counts(gateway: ResponsesGateway) -> None:
    response = gateway.count("main/x", input="Hello, world", instructions="Be brief.")
    assert response.json["object"] == "response.input_tokens"
    assert response.json["input_tokens"] > 0
    assert response.headers["x-penstock-estimated"] == "true"


def test_a_large_request_is_parsed_too(gateway: ResponsesGateway) -> None:
    model = gateway.upstream.play(streams(CHAT_ANSWER))
    response = gateway.respond(f"main/{model}", input="x" * 280_000)
    assert text(response) == TEXT
    assert len(request_body("m", stream=True)) < 262_144
