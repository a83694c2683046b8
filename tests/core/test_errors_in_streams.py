"""Errors in streams: in any shape and at any time, they become a fault with the provider's own message."""

import json

import pytest

from penstock import Fault, StreamReader, StreamWriter
from tests.event_streams import message
from tests.streams import (
    DONE,
    Json,
    begins,
    bill,
    bytewise,
    choice,
    chunk,
    completion,
    counts,
    finishes,
    read,
    repairs,
    says,
    sse,
)

WORDS = "The model is overloaded."

# Bodies and events, by who sends them: section 5 of the survey of quirks.
SHAPES: dict[str, Json] = {
    "OpenAI": {"error": {"message": WORDS, "type": "server_error", "param": None, "code": None}},
    "an integer code": {"error": {"code": 502, "message": WORDS, "metadata": {"raw": "…"}}, "user_id": "user_1"},
    "Google": {"error": {"code": 503, "message": WORDS, "status": "UNAVAILABLE", "details": []}},
    "Anthropic": {"type": "error", "error": {"type": "overloaded_error", "message": WORDS}, "request_id": "req_1"},
    "a code and a string": {"code": "unavailable", "error": WORDS},
    "a string": {"error": WORDS},
    "flat": {"object": "error", "message": WORDS, "type": "server_error", "param": None, "code": 503},
    "flat, by its type": {"type": "error", "message": WORDS},
    "detail": {"detail": WORDS},
    "a list of details": {"detail": [{"loc": ["body", "model"], "msg": WORDS, "type": "value_error"}]},
    "message": {"message": WORDS},
    "message with an id": {"id": "1f2e", "message": WORDS},
    "message with a request's id": {"message": WORDS, "request_id": "1f2e"},
    "an id beside the error": {"id": "1f2e", "error": {"message": WORDS, "type": "server_error"}},
    "base_resp": {"id": "1f2e", "choices": None, "base_resp": {"status_code": 1008, "status_msg": WORDS}},
    "true beside a message": {"error": True, "message": WORDS},
    "error_msg": {"error_code": 17, "error_msg": WORDS},
    "a list of errors": {"result": None, "success": False, "errors": [{"code": 10000, "message": WORDS}]},
    "code and msg": {"code": 401, "msg": WORDS},
    "message in capitals": {"Message": WORDS},
    "deep": {"error": {"error": {"message": WORDS}}},
}  # fmt: skip


@pytest.mark.parametrize("body", SHAPES.values(), ids=SHAPES)
def test_an_error_body_is_a_fault_in_the_providers_words(body: Json) -> None:
    for wire in (json.dumps(body).encode(), json.dumps(body, indent=2).encode() + b"\n", sse(body), sse(body, DONE)):
        answer = completion(wire)
        assert answer.fault is not None
        assert (answer.ending, answer.fault.code, answer.fault.message) == ("failed", "provider-error", WORDS)
        assert read(*bytewise(wire)) == read(wire)


@pytest.mark.parametrize("body", SHAPES.values(), ids=SHAPES)
def test_an_error_event_fails_the_stream_and_keeps_the_text(body: Json) -> None:
    answer = completion(sse(begins(), says("Hi"), body, DONE))
    assert answer.fault is not None
    assert (answer.ending, answer.fault.message, answer.text) == ("failed", WORDS, "Hi")


@pytest.mark.parametrize("body", SHAPES.values(), ids=SHAPES)
def test_an_error_event_outweighs_a_finish(body: Json) -> None:
    assert completion(sse(begins(), says("Hi"), finishes(), body, DONE)).ending == "failed"


ERROR: Json = {"error": {"message": WORDS}}

PLACES: dict[str, tuple[bytes, str]] = {
    "the very first event": (sse(ERROR), ""),
    "only comments before it": (b": PROCESSING\n\n: PROCESSING\n\n" + sse(ERROR), ""),
    "between texts": (sse(begins(), says("Hi"), ERROR, says("!"), finishes(), DONE), "Hi"),
    "event: error": (sse(begins(), says("Hi")) + b"event: error\n" + sse(ERROR), "Hi"),
    "event: error, data flat": (sse(begins(), says("Hi")) + b"event: error\n" + sse({"message": WORDS}), "Hi"),
    "event: error, data words": (sse(begins(), says("Hi")) + b"event: error\n" + sse(WORDS), "Hi"),
    "event: error, data a string": (sse(begins(), says("Hi")) + b"event: error\n" + sse(json.dumps(WORDS)), "Hi"),
    "event: error without blank lines": (
        sse(begins(), says("Hi"), end="\n") + b"event: error\n" + sse({"message": WORDS}, end="\n"),
        "Hi",
    ),
    "event behind the data": (sse(begins(), says("Hi")) + sse({"message": WORDS}, end="\nevent: error\n\n"), "Hi"),
    "event: error on a chunk": (sse(begins(), says("Hi")) + b"event: error\n" + sse(chunk(message=WORDS)), "Hi"),
    "a field of its own": (sse(begins(), says("Hi")) + sse({"code": 500, "message": WORDS}, prefix="error: "), "Hi"),
    "a field of its own, words": (sse(begins(), says("Hi")) + sse(WORDS, prefix="error: "), "Hi"),
    "a line of its own": (sse(begins(), says("Hi")) + json.dumps(ERROR).encode(), "Hi"),
    "in a chunk with choices": (sse(begins(), says("Hi"), chunk(choice({}), **ERROR), DONE), "Hi"),
    "in a chunk that finishes": (sse(begins(), says("Hi"), finishes() | ERROR, DONE), "Hi"),
    "in a choice": (sse(begins(), says("Hi"), chunk(choice({}, **ERROR)), DONE), "Hi"),
    "in a choice that finishes": (sse(begins(), says("Hi"), chunk(choice({}, finish="error", **ERROR)), DONE), "Hi"),
    "in x_groq": (sse(begins(), says("Hi"), finishes(x_groq={"id": "req_1", "error": WORDS}), DONE), "Hi"),
    "behind [DONE]": (sse(begins(), says("Hi"), finishes(), DONE, ERROR), "Hi"),
    "in JSON lines": (sse(begins(), says("Hi"), ERROR, prefix="", end="\n"), "Hi"),
    "in a JSON array": (json.dumps([begins(), says("Hi"), ERROR]).encode(), "Hi"),
}  # fmt: skip


@pytest.mark.parametrize(("wire", "text"), PLACES.values(), ids=PLACES)
def test_an_error_is_found_wherever_it_stands(wire: bytes, text: str) -> None:
    answer = completion(wire)
    assert answer.fault is not None
    assert (answer.ending, answer.fault.code, answer.fault.message) == ("failed", "provider-error", WORDS)
    assert answer.text == text
    assert read(*bytewise(wire)) == read(wire)


WORDLESS: dict[str, bytes] = {
    "event: error, no data": b"event: error\n\n",
    "event: error, empty data": b"event: error\ndata:\n\n",
    "error: and nothing": b"error:\n\n",
    "event: error, data null": b"event: error\ndata: null\n\n",
    "event: error, data an empty object": b"event: error\ndata: {}\n\n",
    "an error with nothing known in it": sse({"error": {"reason": 7}}),
    "a finish that says error": sse(finishes("error")),
    "a finish that says the network failed": sse(finishes("network_error")),
    "a finish that says the system is short": sse(finishes("insufficient_system_resource")),
}


@pytest.mark.parametrize("last", WORDLESS.values(), ids=WORDLESS)
def test_an_error_without_words_is_an_error(last: bytes) -> None:
    answer = completion(sse(begins(), says("Hi"), finishes()) + last)
    assert answer.fault is not None
    assert (answer.ending, answer.fault.code) == ("failed", "provider-error")


NO_ERROR: dict[str, Json] = {
    "null": says("Hi", error=None),
    "an empty string": says("Hi", error=""),
    "an empty object": says("Hi", error={}),
    "false": says("Hi", error=False),
    "null in the choice": chunk(choice({"content": "Hi"}, error=None)),
    "a status of zero": says("Hi", base_resp={"status_code": 0, "status_msg": ""}),
    "an event with error null": {"error": None},
}


@pytest.mark.parametrize("payload", NO_ERROR.values(), ids=NO_ERROR)
def test_an_error_with_nothing_in_it_is_none(payload: Json) -> None:
    sent_text = [] if "choices" in payload else [says("Hi")]
    answer = completion(sse(begins(), payload, *sent_text, finishes(), DONE))
    assert (answer.ending, answer.text, answer.fault) == ("completed", "Hi", None)


def test_a_fault_keeps_the_providers_object() -> None:
    error: Json = {"message": WORDS, "type": "server_error", "code": 529, "metadata": {"provider": "Weir"}}
    assert Fault("provider-error", WORDS, 0, 1, error) in read(sse({"error": error}))


def test_only_the_first_fault_is_reported() -> None:
    events = read(sse(begins(), ERROR, {"error": {"message": "another"}}, "not JSON"))
    assert [event.message for event in events if isinstance(event, Fault)] == [WORDS]


def test_after_a_fault_only_the_usage_is_read() -> None:
    wire = sse(begins(), says("Hi"), ERROR, says("!"), finishes(), bill(**counts(8, 18)), DONE)
    answer = completion(wire)
    assert (answer.text, answer.choices[0].finish_reason) == ("Hi", None)
    assert answer.usage is not None
    assert answer.usage.total == 26
    assert repairs(read(wire)) == {"ignored-after-fault": 2}


OTHER_DIALECTS: dict[str, tuple[list[Json], str]] = {
    "Anthropic": (
        [
            {"type": "message_start", "message": {"id": "msg_1", "role": "assistant", "content": []}},
            {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Hi"}},
        ],
        "Anthropic",
    ),
    "Responses": ([{"type": "response.created", "response": {"id": "resp_1"}, "sequence_number": 0}], "Responses"),
    "Gemini": ([{"candidates": [{"content": {"parts": [{"text": "Hi"}]}}], "usageMetadata": {}}], "Gemini"),
    "Cohere": ([{"type": "message-start", "id": "1", "delta": {"message": {"role": "assistant"}}}], "Cohere"),
    "Ollama": (
        [{"model": "m", "created_at": "2026-01-01T00:00:00Z", "message": {"content": "Hi"}, "done": False}],
        "Ollama",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("payloads", "name"), OTHER_DIALECTS.values(), ids=OTHER_DIALECTS)
def test_another_dialect_is_named(payloads: list[Json], name: str) -> None:
    for wire in (sse(*payloads), sse(*payloads, prefix="", end="\n"), json.dumps(payloads).encode()):
        answer = completion(wire)
        assert answer.fault is not None
        assert (answer.ending, answer.fault.code) == ("failed", "other-dialect")
        assert name in answer.fault.message


def test_a_heartbeat_with_a_time_is_no_other_dialect() -> None:
    answer = completion(sse(begins(), says("Hi"), {"type": "heartbeat", "created_at": 1}, finishes(), DONE))
    assert (answer.ending, answer.text) == ("completed", "Hi")


def test_plain_text_with_a_colon_keeps_its_words() -> None:
    answer = completion(b"Unauthorized: your key has expired\n")
    assert answer.fault is not None
    assert "your key has expired" in answer.fault.message


# In an error, a text that the next event could continue, and half of a surrogate pair at its end.
HALVES: dict[str, bytes] = {
    "ollama": rb'{"error": "no \ud83d", "message": {"content": "\ud83d"}}',
    "cohere": b"event: error\ndata: "
    rb'{"message": "no \ud83d", "delta": {"message": {"content": {"text": "\ud83d"}}}}',
    "bedrock_converse": message(rb'{"message": "no \ud83d", "delta": {"text": "\ud83d"}}', event_type="error"),
}


@pytest.mark.parametrize("dialect", HALVES)
def test_an_error_with_half_a_character_can_be_written(dialect: str) -> None:
    events = read(HALVES[dialect], reader=StreamReader(dialect))
    (fault,) = [event for event in events if isinstance(event, Fault)]
    assert (fault.code, fault.message) == ("provider-error", "no \ufffd")
    assert b"no \xef\xbf\xbd" in StreamWriter().write(events)


def test_a_message_that_quotes_half_a_character_can_be_written() -> None:
    wire = message(rb'{"delta": {"toolUse": {"input": "\udf0d"}}}', event_type="contentBlockDelta")
    written = StreamWriter().write(read(wire, reader=StreamReader("bedrock_converse")))
    assert rb"that was not started: \"?\"" in written
