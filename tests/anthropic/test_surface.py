"""`POST /v1/messages` and its related paths, on real sockets: answers, errors at every stage, headers, heartbeats."""

import json
from pathlib import Path

import pytest

from tests import messages as ant
from tests import streams as chat
from tests.anthropic.support import (
    ANSWER,
    CHAT_ANSWER,
    COUNT,
    HI,
    KEY,
    MESSAGE,
    PATH,
    TEXT,
    VERSION,
    MessagesGateway,
    answers,
    error,
    events,
    message_body,
    names,
    provider_error,
    sent,
    start,
    streams,
    text,
)
from tests.faults.client import CLIENT_KEY, get, post
from tests.faults.gateway import PROVIDER_KEY
from tests.faults.scripts import plain
from tests.faults.upstream import Gate, Op, Upstream, chunk, fin, hang, head, last_chunk, rst

pytestmark = pytest.mark.slow

WHOLE = [
    "message_start",
    "content_block_start",
    "content_block_delta",
    "content_block_delta",
    "content_block_stop",
    "message_delta",
    "message_stop",
]
PING = b"event: ping\n"


# Answers.


def test_a_chat_provider_answers_a_client_of_messages(gateway: MessagesGateway) -> None:
    model = gateway.upstream.play(streams(*chat_pieces()))
    response = gateway.message(f"main/{model}")
    assert (response.status, names(response), text(response)) == (200, WHOLE, TEXT)
    assert response.headers["request-id"] == response.request_id
    found = dict(events(response))
    assert found["message_start"]["message"]["usage"]["input_tokens"] > 0
    assert found["message_delta"]["delta"] == {"stop_reason": "end_turn", "stop_sequence": None}
    usage = found["message_delta"]["usage"]
    assert (usage["input_tokens"], usage["output_tokens"]) == (7, 4)
    path, headers, body = sent(gateway, model)
    assert (path, headers["authorization"]) == ("/v1/chat/completions", f"Bearer {PROVIDER_KEY}")
    assert json.loads(body)["messages"] == HI


def chat_pieces() -> list[bytes]:
    return [event + b"\n\n" for event in CHAT_ANSWER.split(b"\n\n")[:-1]]


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
@pytest.mark.parametrize("provider_streams", [True, False], ids=["by a stream", "by a body"])
@pytest.mark.parametrize("provider", ["claude", "main"])
def test_a_client_gets_the_form_that_it_asks_for(
    gateway: MessagesGateway, provider: str, provider_streams: bool, stream: bool
) -> None:
    wire, body = (ANSWER, MESSAGE) if provider == "claude" else (CHAT_ANSWER, plain())
    model = gateway.upstream.play(streams(wire) if provider_streams else answers(body))
    response = gateway.message(f"{provider}/{model}", stream=stream)
    assert (response.status, text(response)) == (200, TEXT)
    assert response.headers["content-type"].startswith("text/event-stream" if stream else "application/json")
    assert response.headers["request-id"] == response.request_id


@pytest.mark.parametrize("headers", [KEY, {"Authorization": "", "x-api-key": CLIENT_KEY}], ids=["bearer", "x-api-key"])
def test_a_key_may_come_in_either_header(gateway: MessagesGateway, headers: dict[str, str]) -> None:
    model = gateway.upstream.play(streams(ANSWER))
    assert gateway.message(f"claude/{model}", headers=headers).status == 200


@pytest.mark.parametrize("path", [PATH, f"{PATH}?beta=true", "/anthropic/v1/messages", "/anthropic/messages"])
def test_paths(gateway: MessagesGateway, path: str) -> None:
    model = gateway.upstream.play(streams(ANSWER))
    assert gateway.message(f"claude/{model}", path=path).status == 200


def test_one_pattern_covers_every_model(gateway: MessagesGateway) -> None:
    gateway.upstream.play(streams(CHAT_ANSWER), "claude-any-opus-5-5")
    assert text(gateway.message("claude-any-opus-5-5")) == TEXT


# Forwarding.


def test_between_a_client_and_a_provider_of_messages_bytes_stay(gateway: MessagesGateway) -> None:
    thinking = [ant.opens(0, "thinking"), ant.thinks("Hm"), ant.signs("EqQB"), ant.closes(0)]
    new = {"type": "content_block_start", "index": 1, "content_block": {"type": "hologram", "depth": 3}}
    wire = ant.answer(*thinking, new, ant.closes(1), *ant.says_all("Hello", index=2))
    model = gateway.upstream.play(streams(wire))
    body = (
        b'{ "model":"claude/%b" ,"max_tokens": 9, "stream":true,"new": {"b":1.50,"a":"\\u0041"},'
        b'"messages":[{"role":"user","content":"Hi"}] }' % model.encode()
    )
    betas = "claude-code-20250219,interleaved-thinking-2025-05-14,of-tomorrow-2099-01-01"
    headers = {
        **VERSION,
        "anthropic-beta": betas,
        "X-Claude-Code-Session-Id": "session-1",
        "X-Stainless-OS": "Linux",
        "Accept-Encoding": "gzip, deflate, br, zstd",
        "Cookie": "c=1",
    }
    response = gateway.send(post(body, headers, f"{PATH}?beta=true"), calls=1)
    assert b"".join(unlike(response.body, wire)) == b""
    path, got, forwarded = sent(gateway, model)
    assert path == "/v1/messages"
    assert forwarded == body.replace(b"claude/", b"")
    assert got["x-api-key"] == PROVIDER_KEY
    assert got["anthropic-beta"] == betas
    assert (got["anthropic-version"], got["x-claude-code-session-id"]) == ("2023-06-01", "session-1")
    assert got["x-stainless-os"] == "Linux"
    assert "authorization" not in got
    assert "cookie" not in got
    assert got["accept-encoding"] == "identity"
    line = gateway.call(response)
    assert (line["losses"], line["ending"]) == ({}, "completed")
    assert gateway.book.entry(response.request_id).tags == {"session": "session-1"}


def unlike(body: bytes, wire: bytes) -> list[bytes]:
    """The events that differ. `message_delta` may: the client gets all counts of the usage, of both reports."""
    pairs = zip(body.split(b"\n\n"), wire.split(b"\n\n"), strict=True)
    return [ours for ours, theirs in pairs if ours != theirs and not ours.startswith(b"event: message_delta")]


def test_a_provider_may_take_its_key_as_a_bearer_token(gateway: MessagesGateway) -> None:
    model = gateway.upstream.play(streams(ANSWER))
    gateway.message(f"bearer/{model}", headers={"x-api-key": CLIENT_KEY})
    _, headers, _ = sent(gateway, model)
    assert headers["authorization"] == f"Bearer {PROVIDER_KEY}"
    assert "x-api-key" not in headers


@pytest.mark.parametrize("counts", [False, True], ids=["a call", "a count"])
def test_a_header_of_the_provider_s_configuration_is_sent_instead_of_the_client_s(
    gateway: MessagesGateway, counts: bool
) -> None:
    model = gateway.upstream.play(answers(b'{"input_tokens": 5}') if counts else streams(ANSWER))
    betas = {"anthropic-beta": "of-the-client"}
    asked = gateway.count if counts else gateway.message
    assert asked(f"fixed-claude/{model}", headers=betas).status == 200
    raw = gateway.upstream.requests(model)[-1].partition(b"\r\n\r\n")[0].lower()
    assert raw.count(b"anthropic-beta:") == 1
    assert b"anthropic-beta: of-the-operator" in raw


def test_a_field_that_the_provider_refuses_leaves_with_its_beta(gateway: MessagesGateway) -> None:
    model = gateway.upstream.play(streams(ANSWER))
    betas = {"anthropic-beta": "claude-code-20250219,context-management-2025-06-27"}
    messages = [*HI, {"role": "system", "content": "Be brief."}]
    response = gateway.message(
        f"strict-claude/{model}", headers=betas, context_management={"edits": []}, messages=messages
    )
    _, headers, body = sent(gateway, model)
    assert headers["anthropic-beta"] == "claude-code-20250219"
    assert "context_management" not in json.loads(body)
    assert [message["role"] for message in json.loads(body)["messages"]] == ["user"]
    assert response.headers["x-penstock-losses"] == "option-refused-by-provider=1,system-moved=1"


# Errors.


@pytest.mark.parametrize("stream", [True, False])
def test_vertex_has_the_model_in_its_path_and_always_streams(gateway: MessagesGateway, stream: bool) -> None:
    model = gateway.upstream.play(streams(ANSWER), "claude-sonnet%4020250514")  # as it is in the path
    response = gateway.message("raw-predict/claude-sonnet@20250514", stream=stream)
    assert (response.status, text(response)) == (200, TEXT)
    path, _, body = sent(gateway, model)
    assert path == "/v1/publishers/anthropic/models/claude-sonnet%4020250514:streamRawPredict"
    asked = {"anthropic_version": "vertex-2023-10-16", "max_tokens": 100, "stream": True, "messages": HI}
    assert json.loads(body) == asked


def test_a_provider_s_4xx_is_the_client_s_as_it_is(gateway: MessagesGateway) -> None:
    """Claude Code adapts its requests by the wording."""
    body = provider_error(
        "invalid_request_error", "context_management: Extra inputs are not permitted", request_id="req_of_theirs"
    )
    model = gateway.upstream.play(answers(body, 400))
    response = gateway.message(f"claude/{model}")
    assert (response.status, response.body) == (400, body)
    assert response.headers["x-should-retry"] == "false"


def test_a_secret_in_a_provider_s_error_is_masked(gateway: MessagesGateway) -> None:
    model = gateway.upstream.play(answers(provider_error("invalid_request_error", f"bad key {PROVIDER_KEY}!"), 400))
    response = gateway.message(f"claude/{model}")
    assert response.status == 400
    assert PROVIDER_KEY not in response.body.decode()
    assert response.json["error"]["type"] == "invalid_request_error"


def test_a_chat_provider_s_4xx_is_in_anthropic_s_envelope(gateway: MessagesGateway) -> None:
    body = b'{"error":{"message":"max_tokens is too large","type":"invalid_request_error","param":"max_tokens"}}'
    model = gateway.upstream.play(answers(body, 400))
    status, type, message = error(gateway.message(f"main/{model}"))
    assert (status, type) == (400, "invalid_request_error")
    assert message.startswith("max_tokens is too large")


def test_a_chat_provider_s_limit_is_in_the_words_that_claude_code_reads(gateway: MessagesGateway) -> None:
    words = "This model's maximum context length is 128000 tokens. However, your messages resulted in 130001 tokens."
    body = json.dumps({"error": {"message": words, "code": "context_length_exceeded"}}).encode()
    status, _, message = error(gateway.message(f"main/{gateway.upstream.play(answers(body, 400))}"))
    assert status == 400
    assert message.startswith("prompt is too long: 130001 tokens > 128000 maximum")


PROVIDER_ERRORS = {
    401: (502, "api_error", "upstream_auth"),
    403: (502, "api_error", "upstream_auth"),
    429: (429, "rate_limit_error", "Slow down"),
    500: (502, "api_error", "Slow down"),
    503: (503, "overloaded_error", "Slow down"),
    504: (504, "timeout_error", "Slow down"),
    529: (529, "overloaded_error", "Slow down"),
}


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
@pytest.mark.parametrize(("code", "expected"), PROVIDER_ERRORS.items(), ids=map(str, PROVIDER_ERRORS))
def test_errors_of_a_provider(
    gateway: MessagesGateway, code: int, expected: tuple[int, str, str], stream: bool
) -> None:
    script = answers(provider_error("overloaded_error", "Slow down"), code, retry_after="7")
    response = gateway.message(f"claude/{gateway.upstream.play(script)}", stream=stream)
    status, type, message = error(response)
    assert (status, type) == expected[:2]
    assert expected[2] in message
    if code in (429, 503, 529):
        assert response.headers["retry-after"] == "7"
    line = gateway.call(response)
    assert line["status"] == status


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
def test_an_error_in_place_of_an_answer(gateway: MessagesGateway, stream: bool) -> None:
    model = gateway.upstream.play(streams(ant.wire(ant.begins(), ant.error())))
    status, type, message = error(gateway.message(f"claude/{model}", stream=stream))
    assert (status, type) == (529, "overloaded_error")
    assert message.startswith("Overloaded")


def test_a_provider_that_cannot_be_reached(gateway: MessagesGateway) -> None:
    model = gateway.upstream.play([rst()])
    status, type, _ = error(gateway.message(f"claude/{model}"))
    assert (status, type) == (502, "api_error")


def test_a_provider_that_says_nothing(gateway: MessagesGateway) -> None:
    model = gateway.upstream.play([hang()])
    status, type, message = error(gateway.message(f"hasty-claude/{model}"))
    assert (status, type) == (504, "timeout_error")
    assert "upstream_timeout" in message


REFUSED = {
    "no key": (get_key := {"Authorization": ""}, {}, (401, "authentication_error")),
    "a wrong key": ({"Authorization": "Bearer nonsense-of-some-length"}, {}, (401, "authentication_error")),
    "no such model": ({}, {"model": "claude-nothing"}, (404, "not_found_error")),
    "no messages": ({}, {"messages": "Hi"}, (400, "invalid_request_error")),
    "no max_tokens": ({}, {"max_tokens": None}, (400, "invalid_request_error")),
    "a model that is a number": ({}, {"model": 7}, (400, "invalid_request_error")),
}


@pytest.mark.parametrize(("headers", "fields", "expected"), REFUSED.values(), ids=REFUSED)
def test_requests_that_are_refused(
    gateway: MessagesGateway, headers: dict[str, str], fields: dict[str, object], expected: tuple[int, str]
) -> None:
    body = json.dumps({"model": "claude/x", "max_tokens": 9, "messages": HI} | fields).encode()
    response = gateway.send(post(body, {**VERSION, **headers}, PATH), calls=fields.get("model") == "claude-nothing")
    status, type, message = error(response)
    assert (status, type) == expected
    assert message


def test_a_body_that_is_not_json(gateway: MessagesGateway) -> None:
    status, type, _ = error(gateway.send(post(b"{", VERSION, PATH)))
    assert (status, type) == (400, "invalid_request_error")


@pytest.mark.parametrize("path", [PATH, COUNT])
def test_a_method_that_is_not_allowed(gateway: MessagesGateway, path: str) -> None:
    response = gateway.send(get(path, VERSION))
    status, type, _ = error(response)
    assert (status, type, response.headers["allow"]) == (405, "invalid_request_error", "POST")


def test_a_path_that_is_not_there(gateway: MessagesGateway) -> None:
    status, type, _ = error(gateway.send(post(b"{}", VERSION, "/v1/messages/batches")))
    assert (status, type) == (404, "not_found_error")


@pytest.mark.parametrize("path", [PATH, f"{COUNT}?beta=true"])
def test_a_body_that_is_too_large(gateway: MessagesGateway, path: str) -> None:
    response = gateway.send(post(b" " * 300_001, VERSION, path))
    status, type, _ = error(response)
    assert (status, type) == (413, "request_too_large")


def test_chat_clients_keep_their_envelope_where_a_body_is_too_large(gateway: MessagesGateway) -> None:
    response = gateway.send(post(b" " * 300_001))
    assert (response.status, response.json["error"]["code"]) == (413, "body_too_large")
    assert "request-id" not in response.headers


# Streams that break.


BEGUN = ant.wire(ant.begins(), ant.opens(0), ant.says("Half"))
CHAT_BEGUN = chat.sse(chat.begins(), chat.says("Half"))
BROKEN = {
    "an error event": ([chunk(ant.wire(ant.error())), last_chunk()], "overloaded_error"),
    "a clean end without a stop reason": ([last_chunk()], "api_error"),
    "a connection that is closed": ([fin()], "api_error"),
    "a connection that is reset": ([rst()], "api_error"),
    "silence": ([hang()], "timeout_error"),
}


@pytest.mark.parametrize(("ops", "type"), BROKEN.values(), ids=BROKEN)
@pytest.mark.parametrize("provider", ["hasty-gap-claude", "hasty-gap"])
def test_a_stream_that_breaks_ends_with_one_error_event(
    gateway: MessagesGateway, provider: str, ops: list[Op], type: str
) -> None:
    begun = BEGUN if provider == "hasty-gap-claude" else CHAT_BEGUN
    if provider == "hasty-gap" and type == "overloaded_error":
        ops, type = [chunk(chat.sse({"error": {"message": "Overloaded"}})), last_chunk()], "api_error"
    model = gateway.upstream.play([head(), chunk(begun), *ops])
    response = gateway.message(f"{provider}/{model}")
    assert response.status == 200
    assert response.complete
    assert text(response) == "Half"
    found = events(response)
    assert [name for name, _ in found].count("error") == 1
    name, last = found[-1]
    assert (name, last["error"]["type"]) == ("error", type)
    assert last["request_id"] == response.request_id
    assert not {"message_delta", "message_stop"} & set(names(response))
    line = gateway.call(response)
    assert line["ending"] in ("failed", "truncated", "timed_out")
    entry = gateway.book.entry(response.request_id)
    assert (entry.outcome, entry.surface) == (line["ending"], "messages")


def test_an_unstreamed_answer_of_a_stream_that_breaks_is_an_error(gateway: MessagesGateway) -> None:
    model = gateway.upstream.play([head(), chunk(BEGUN), last_chunk()])
    status, type, _ = error(gateway.message(f"claude/{model}", stream=False))
    assert (status, type) == (502, "api_error")


def test_a_client_that_waits_gets_pings(tmp_path: Path) -> None:
    with Upstream() as upstream, start(tmp_path, upstream, server={"heartbeat_s": 0.1}) as gateway:
        for provider, wire in (("claude", ANSWER), ("main", CHAT_ANSWER)):
            gate = Gate()
            model = upstream.play([gate, head(), chunk(wire), last_chunk()])
            with gateway.start_message(f"{provider}/{model}") as client:
                client.read_until(PING, 2)
                gate.open()
                response = gateway.keep(client.response())
            found = names(response)
            pings = found.count("ping")
            assert pings >= 2
            assert found == ["ping"] * pings + WHOLE
            assert text(response) == TEXT
        gate = Gate()
        model = upstream.play([gate, *answers(provider_error("invalid_request_error", "No"), 400)])
        with gateway.start_message(f"claude/{model}") as client:
            client.read_until(PING)
            gate.open()
            response = gateway.keep(client.response())
        assert response.status == 200
        assert names(response)[-1] == "error"
        gateway.quiet()


# Fallback.


def test_another_target_may_speak_another_dialect(gateway: MessagesGateway) -> None:
    gateway.upstream.play(answers(provider_error("overloaded_error", "Overloaded"), 529), "both-a")
    gateway.upstream.play(streams(CHAT_ANSWER), "both-b")
    response = gateway.message("both")
    assert (text(response), response.headers["x-penstock-provider"]) == (TEXT, "main")
    assert gateway.call(response)["status"] == 200


def test_several_choices_are_refused_for_a_provider_that_has_only_one(gateway: MessagesGateway) -> None:
    response = gateway.ask("claude/x", stream=False, n=2)
    assert (response.status, response.error["code"], response.error["param"]) == (400, "invalid_request", "n")
    assert gateway.call(response)["attempts"] == []


# Other paths.


@pytest.mark.parametrize("method", ["HEAD", "GET"])
def test_claude_code_looks_whether_the_gateway_is_there(gateway: MessagesGateway, method: str) -> None:
    with gateway.client() as client:
        client.send(get("/api/hello", {"Authorization": ""}, method))
        assert client.response(method).status == 200


def test_models_in_the_form_of_anthropic(gateway: MessagesGateway) -> None:
    response = gateway.send(get("/v1/models?limit=1000", VERSION))
    body = response.json
    assert set(body) == {"data", "has_more", "first_id", "last_id"}
    assert all(set(model) == {"type", "id", "display_name", "created_at", "lifecycle"} for model in body["data"])
    assert "both" in [model["id"] for model in body["data"]]
    assert (body["first_id"], body["last_id"]) == (body["data"][0]["id"], body["data"][-1]["id"])
    assert response.headers["request-id"] == response.request_id
    one = gateway.send(get("/v1/models/both", VERSION)).json
    assert (one["type"], one["id"]) == ("model", "both")
    assert gateway.send(get("/v1/models")).json["object"] == "list"


def test_a_model_that_is_not_there(gateway: MessagesGateway) -> None:
    status, type, _ = error(gateway.send(get("/v1/models/nothing", VERSION)))
    assert (status, type) == (404, "not_found_error")


def test_a_large_request_is_parsed_too(gateway: MessagesGateway) -> None:
    model = gateway.upstream.play(streams(ANSWER))
    response = gateway.message(f"claude/{model}", messages=[{"role": "user", "content": "x" * 280_000}])
    assert text(response) == TEXT
    assert len(message_body("m", stream=True)) < 262_144


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
def test_a_long_name_of_a_tool_is_the_client_s_own_again_in_the_answer(gateway: MessagesGateway, stream: bool) -> None:
    name = "mcp__server__" + "x" * 80
    tools = [{"name": name, "input_schema": {"type": "object"}}]
    gate = Gate()
    model = gateway.upstream.play([gate])
    with gateway.start_message(f"main/{model}", stream=stream, tools=tools) as client:
        gateway.upstream.asked(model)
        asked = json.loads(sent(gateway, model)[2])["tools"][0]["function"]["name"]
        assert len(asked) == 64
        begun = chat.calls(chat.piece(0, "call_1", asked, "{}") | {"type": "function"})
        wire = chat.sse(chat.begins(), begun, chat.finishes("tool_calls"), chat.bill(**chat.counts(7, 4)), chat.DONE)
        gateway.upstream.scripts[model][1:] = streams(wire)  # type: ignore[index]
        gate.open()
        response = gateway.keep(client.response())
    assert asked not in response.body.decode()
    assert f'"{name}"' in response.body.decode()


REASONED = chat.sse(
    chat.begins(),
    chat.delta({"reasoning_content": "Hmm."}),
    chat.says("So."),
    chat.finishes(),
    chat.bill(**chat.counts(7, 4)),
    chat.DONE,
)


@pytest.mark.parametrize("shown", [False, True], ids=["hidden", "unasked_thinking"])
def test_thinking_that_was_not_asked_for(tmp_path: Path, shown: bool) -> None:
    asked: ant.Json = {"thinking": {"type": "enabled", "budget_tokens": 1_024}}
    unasked: ant.Json = {}
    with Upstream() as upstream, start(tmp_path, upstream, server={"unasked_thinking": shown}) as gateway:
        model = f"main/{upstream.play(streams(REASONED))}"
        for fields, expected in ((asked, True), (unasked, shown)):
            response = gateway.message(model, stream=False, **fields)
            types = [block["type"] for block in response.json["content"]]
            assert types == (["thinking", "text"] if expected else ["text"])
            assert ("reasoning-hidden=1" in response.headers.get("x-penstock-losses", "")) is not expected
            assert response.json["usage"]["output_tokens"] == 4
            streamed = gateway.message(model, **fields)
            assert (b"Hmm." in streamed.body) is expected
        gateway.quiet()
