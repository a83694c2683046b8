"""`POST /v1beta/models/{model}:streamGenerateContent` and its related paths, on real sockets."""

import json

import pytest

from tests import streams as chat
from tests.faults.client import CLIENT_KEY
from tests.faults.gateway import PROVIDER_KEY
from tests.faults.upstream import JSON, Op, chunk, fin, head, last_chunk, status
from tests.gemini import answer, calls, finishes, message, says, thinks, wire
from tests.gemini_api.support import (
    ANSWER,
    CHAT_ANSWER,
    HI,
    KEY,
    TEXT,
    GeminiGateway,
    error,
    messages,
    parts,
    text,
)

pytestmark = pytest.mark.slow

STREAM, ARRAY, WHOLE = "streamGenerateContent?alt=sse", "streamGenerateContent", "generateContent"


def streams(*data: bytes) -> list[Op]:
    return [head(), *map(chunk, data), last_chunk()]


def sent(gateway: GeminiGateway, model: str) -> tuple[str, dict[str, str], bytes]:
    """What the provider received for a model: path, headers, body."""
    raw, _, body = gateway.upstream.requests(model)[-1].partition(b"\r\n\r\n")
    line, *lines = raw.decode("latin-1").split("\r\n")
    return line.split(" ")[1], dict(header.split(": ", 1) for header in lines), body


@pytest.mark.parametrize("method", [STREAM, ARRAY, WHOLE], ids=["events", "an array", "whole"])
@pytest.mark.parametrize("provider", ["main", "gem"], ids=["chat", "gemini"])
def test_a_client_gets_the_form_that_it_asks_for(gateway: GeminiGateway, provider: str, method: str) -> None:
    model = gateway.upstream.play(streams(CHAT_ANSWER if provider == "main" else ANSWER))
    response = gateway.generate(f"{provider}/{model}", method=method)
    assert (response.status, text(response)) == (200, TEXT)
    *first, last = messages(response)
    assert last["candidates"][0]["finishReason"] == "STOP"
    assert not any("finishReason" in each["candidates"][0] for each in first)
    usage = last["usageMetadata"]
    assert (usage["promptTokenCount"], usage["candidatesTokenCount"], usage["totalTokenCount"]) == (7, 4, 11)
    kind = {STREAM: "text/event-stream"}.get(method, "application/json")
    assert response.headers["content-type"].startswith(kind)


def test_a_provider_of_gemini_gets_the_clients_bytes_and_its_own_key(gateway: GeminiGateway) -> None:
    model = gateway.upstream.play(streams(ANSWER))
    response = gateway.generate(f"gem/{model}", safetySettings=[{"category": "C", "threshold": "T"}], new={"a": 1.5})
    assert response.status == 200
    path, headers, body = sent(gateway, model)
    assert path == f"/v1/models/{model}:streamGenerateContent?alt=sse"
    assert headers["x-goog-api-key"] == PROVIDER_KEY
    assert "authorization" not in headers
    assert json.loads(body) == {
        "contents": HI,
        "safetySettings": [{"category": "C", "threshold": "T"}],
        "new": {"a": 1.5},
    }
    assert CLIENT_KEY not in path + str(headers)


def test_a_tool_runs_on_a_chat_provider(gateway: GeminiGateway) -> None:
    called = chat.sse(
        chat.begins(),
        chat.calls(chat.piece(0, "call_7", "get_tide", '{"port":"Brest"}')),
        chat.finishes("tool_calls"),
        chat.DONE,
    )
    model = gateway.upstream.play(streams(called))
    declared = {"functionDeclarations": [{"name": "get_tide", "parameters": {"type": "OBJECT"}}]}
    response = gateway.generate(f"main/{model}", tools=[declared])
    call = {"name": "get_tide", "args": {"port": "Brest"}, "id": "call_7"}
    assert parts(response) == [{"functionCall": call}]
    gateway.upstream.play(streams(CHAT_ANSWER), model)
    result = {"functionResponse": {"id": "call_7", "name": "get_tide", "response": {"output": "low"}}}
    turns = [*HI, {"role": "model", "parts": [{"functionCall": call}]}, {"role": "user", "parts": [result]}]
    assert text(gateway.generate(f"main/{model}", contents=turns, tools=[declared])) == TEXT
    body = json.loads(sent(gateway, model)[2])
    assert body["messages"][2] == {"role": "tool", "tool_call_id": "call_7", "content": "low"}
    assert body["tools"][0]["function"]["parameters"] == {"type": "object"}


def test_thoughts_and_signatures_of_a_gemini_provider(gateway: GeminiGateway) -> None:
    sent_parts = [{"text": "Hm.", "thought": True}, calls(thoughtSignature="c2VhbA==")]
    model = gateway.upstream.play(streams(answer(thinks("Hm."), message(sent_parts[1]))))
    assert parts(gateway.generate(f"gem/{model}")) == sent_parts


@pytest.mark.parametrize("prefix", ["/v1beta", "/v1", "/gemini/v1beta"])
def test_paths(gateway: GeminiGateway, prefix: str) -> None:
    gateway.upstream.play(streams(CHAT_ANSWER), "any-model")
    assert text(gateway.generate("any", prefix=prefix)) == TEXT


# Errors.


def test_refusals_are_in_googles_envelope(gateway: GeminiGateway) -> None:
    wrong = gateway.generate("any", headers=KEY | {"x-goog-api-key": "no"}, calls=0)
    assert error(wrong) == (401, "UNAUTHENTICATED", "invalid_api_key")
    unknown = gateway.generate("nobody/none", method=WHOLE)
    assert error(unknown) == (404, "NOT_FOUND", "model_not_found")
    empty = gateway.generate("any", contents=None, calls=0)
    assert error(empty) == (400, "INVALID_ARGUMENT", "invalid_request")


def test_the_error_of_a_gemini_provider_is_passed_on(gateway: GeminiGateway) -> None:
    body = {"error": {"code": 400, "message": "Unknown name", "status": "INVALID_ARGUMENT"}}
    model = gateway.upstream.play([status(400, JSON, json.dumps(body).encode())])
    response = gateway.generate(f"gem/{model}")
    assert (response.status, response.json) == (400, body)


def test_a_wrong_key_of_the_gateway_is_not_the_clients_fault(gateway: GeminiGateway) -> None:
    details = [{"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "API_KEY_INVALID"}]
    body = {"error": {"code": 400, "message": "API key not valid.", "details": details}}
    model = gateway.upstream.play([status(400, JSON, json.dumps(body).encode())])
    assert error(gateway.generate(f"gem/{model}")) == (502, "INTERNAL", "upstream_auth")


@pytest.mark.parametrize("method", [STREAM, ARRAY], ids=["events", "an array"])
def test_a_stream_that_is_cut_ends_with_an_error_and_without_a_finish_reason(
    gateway: GeminiGateway, method: str
) -> None:
    model = gateway.upstream.play([head(), chunk(wire(says("Hello"))), fin()])
    response = gateway.generate(f"gem/{model}", method=method)
    *_, last = messages(response)
    assert text(response) == "Hello"
    assert set(last) == {"error"}
    assert b"finishReason" not in response.body


def test_a_blocked_prompt_stays_one(gateway: GeminiGateway) -> None:
    blocked = {"promptFeedback": {"blockReason": "SAFETY"}, "usageMetadata": {"promptTokenCount": 7}}
    model = gateway.upstream.play(streams(wire(blocked)))
    response = gateway.generate(f"gem/{model}", method=WHOLE)
    assert response.status == 200
    assert response.json["promptFeedback"] == {"blockReason": "SAFETY"}
    assert "candidates" not in response.json
    model = gateway.upstream.play(streams(wire(says("I"), finishes("SAFETY"))))
    assert messages(gateway.generate(f"gem/{model}"))[-1]["candidates"][0]["finishReason"] == "SAFETY"


# Models and token counts.


def test_models_are_listed(gateway: GeminiGateway) -> None:
    listed = gateway.models()["models"]
    assert "models/any" in [each["name"] for each in listed]
    one = gateway.models("/any")
    assert (one["name"], one["supportedGenerationMethods"]) == ("models/any", ["generateContent", "countTokens"])


def test_tokens_are_counted_by_the_provider_or_estimated(gateway: GeminiGateway) -> None:
    model = gateway.upstream.play([status(200, JSON, b'{"totalTokens": 31}')])
    whole = {"model": f"models/gem/{model}", "contents": HI}
    counted = gateway.count(f"gem/{model}", generateContentRequest=whole)
    assert counted.json == {"totalTokens": 31}
    path, headers, body = sent(gateway, model)
    assert (path, headers["x-goog-api-key"]) == (f"/v1/models/{model}:countTokens", PROVIDER_KEY)
    assert json.loads(body)["generateContentRequest"]["model"] == f"models/{model}"
    estimated = gateway.count("any", contents=HI)
    assert (estimated.json["totalTokens"] > 3, estimated.headers["x-penstock-estimated"]) == (True, "true")


def test_an_unknown_method_is_not_found(gateway: GeminiGateway) -> None:
    for method in ("predict", "embedContent", "batchEmbedContents"):
        response = gateway.generate("any", method=method, calls=0)
        assert error(response) == (404, "NOT_FOUND", "not_found")
        assert f"/v1beta/models/any:{method}" in response.json["error"]["message"]
