"""Answers of the dialects that only providers speak, written and read again; and answers of other dialects in them."""

import json
from typing import Any

import pytest
from botocore.eventstream import EventStreamBuffer

from penstock import (
    Annotation,
    BlockEnd,
    BlockStart,
    ChoiceStart,
    End,
    Event,
    Extra,
    Fault,
    Finish,
    MediaDelta,
    ReasoningDelta,
    RefusalDelta,
    Seal,
    Start,
    TextDelta,
    ToolCallDelta,
    ToolCallStart,
    Usage,
    UsageReport,
)
from penstock.core.dialects.registry import DIALECTS, answer_dialect
from penstock.core.hub.failure import Failure
from penstock.core.hub.losses import Loss
from penstock.core.hub.usage import Tokens
from penstock.core.stream_writer import StreamWriter
from penstock.core.wire.event_stream import payload_of, with_payload, write_message
from tests.provider_streams import HEALTHY
from tests.written_again import (
    OWN,
    TRANSLATED,
    assert_the_same_again,
    content,
    events_of,
    fold,
    streamed,
    unstreamed,
)

STREAMS = {f"{dialect}, {name}": (dialect, data) for dialect, each in HEALTHY.items() for name, data in each.items()}
BEGIN: list[Event] = [Start("id-1", "weir-3", 1_794_902_400), ChoiceStart(0, "assistant")]
USAGE = Usage(input=20, output=5, total=25, cached=8, cache_write=2, reasoning=3)
END: list[Event] = [Finish(0, "stop"), UsageReport(USAGE), End("completed")]
CALL: list[Event] = [
    *BEGIN,
    ReasoningDelta(0, "Tides "),
    ReasoningDelta(0, "turn."),
    TextDelta(0, "Let me "),
    TextDelta(0, "see\u2028."),
    ToolCallStart(0, 0, "call_1", "get_tide"),
    ToolCallDelta(0, 0, '{"port": '),
    ToolCallStart(0, 1, "call_2", "get_wind"),
    ToolCallDelta(0, 0, '"Brest"}'),
    ToolCallDelta(0, 1, "{}"),
    Finish(0, "tool_calls"),
    *END[1:],
]
every_dialect = pytest.mark.parametrize("dialect", HEALTHY)


@pytest.mark.parametrize(("dialect", "data"), STREAMS.values(), ids=STREAMS)
def test_a_healthy_answer_is_the_same_when_it_was_written_and_read_again(dialect: str, data: bytes) -> None:
    assert_the_same_again(dialect, data)


# The counts that an API lacks.
UNCOUNTED = {"ollama": ("cache_write", "reasoning"), "cohere": ("cache_write",), "bedrock_converse": ("reasoning",)}


@every_dialect
@pytest.mark.parametrize("written", [streamed, unstreamed], ids=["streamed", "unstreamed"])
def test_an_answer_of_another_dialect_says_the_same(dialect: str, written: Any) -> None:
    answer = fold("", CALL)
    wire, losses = written(dialect, CALL if written is streamed else answer, TRANSLATED)
    again = fold(dialect, events_of(dialect, wire))
    lost = [Loss("field-dropped", f"usage.{count}") for count in UNCOUNTED[dialect]] if written is streamed else []
    assert (again.ending, again.repairs, losses) == ("completed", (), lost)
    choice = again.choices[0]
    assert (choice.reasoning, choice.text, choice.finish_reason) == ("Tides turn.", "Let me see\u2028.", "tool_calls")
    calls = [(call.id, call.name, json.loads(call.arguments)) for call in choice.tool_calls]
    assert calls == [("call_1", "get_tide", {"port": "Brest"}), ("call_2", "get_wind", {})]
    assert again.usage is not None
    tokens = Tokens.of(again.usage)
    assert (tokens.input, tokens.output) == (20, 5)
    reported = {"ollama": (0, 0, 0), "cohere": (8, 0, 3), "bedrock_converse": (8, 2, 0)}
    assert (tokens.cached, tokens.cache_write, tokens.reasoning) == reported[dialect]


REASONS = {
    "ollama": ("stop", "length", "stop", "stop"),
    "cohere": ("COMPLETE", "MAX_TOKENS", "STOP_SEQUENCE", "COMPLETE"),
    "bedrock_converse": ("end_turn", "max_tokens", "stop_sequence", "content_filtered"),
}


@every_dialect
def test_finish_reasons_are_those_of_the_dialect(dialect: str) -> None:
    finishes = (
        Finish(0, "stop"),
        Finish(0, "length"),
        Finish(0, "stop", stop_sequence="END"),
        Finish(0, "content_filter"),
    )
    found = []
    losses: list[Loss] = []
    for finish in finishes:
        wire, losses = streamed(dialect, [*BEGIN, TextDelta(0, "Hi"), finish, End("completed")], TRANSLATED)
        found.append(fold(dialect, events_of(dialect, wire)).choices[0].native_finish_reason)
    assert tuple(found) == REASONS[dialect]
    lost = [Loss("field-dropped", "finish reason content_filter")]
    assert losses == ([] if dialect == "bedrock_converse" else lost)


OTHERS: list[Event] = [
    *BEGIN,
    BlockStart(0, 0, "reasoning"),
    ReasoningDelta(0, "One.", part=0),
    ReasoningDelta(0, "Two.", part=1),
    Seal(0, 0, "anthropic", "c2ln"),
    BlockEnd(0, 0),
    BlockStart(0, 1, "text"),
    TextDelta(0, "Cited."),
    Annotation(0, 1, "https://tides.example", "Tides", "Cited", 0, 5),
    BlockEnd(0, 1),
    BlockStart(0, 2, "media", type="image"),
    MediaDelta(0, 2, "image/png", "iVBO"),
    BlockEnd(0, 2),
    BlockStart(0, 3, "opaque", type="web_search_result", data={"x": 1}),
    BlockEnd(0, 3),
    ToolCallStart(0, 0, "srv_1", "web_search", server=True, block=4),
    ToolCallDelta(0, 0, "{}"),
    BlockEnd(0, 4),
    ToolCallStart(0, 1, "call_1", "patch", "custom", block=5),
    ToolCallDelta(0, 1, 'say "hi"'),
    BlockEnd(0, 5),
    BlockStart(0, 6, "refusal"),
    RefusalDelta(0, " No."),
    BlockEnd(0, 6),
    ChoiceStart(1, "assistant"),
    TextDelta(1, "Another."),
    Extra("choice", {"logprobs": {"content": [{"token": "a"}]}}, 0),
    Finish(0, "tool_calls"),
    *END[1:],
]
HIDDEN = {"server-activity-hidden", "choices-dropped"}
LOST = {
    "ollama": HIDDEN | {"seal-dropped", "citation-dropped", "media-dropped"},
    "cohere": HIDDEN | {"seal-dropped", "media-dropped"},
    "bedrock_converse": HIDDEN,
}


@every_dialect
@pytest.mark.parametrize("written", [streamed, unstreamed], ids=["streamed", "unstreamed"])
def test_what_the_dialect_cannot_express_is_a_loss(dialect: str, written: Any) -> None:
    wire, losses = written(dialect, OTHERS if written is streamed else fold("", OTHERS), TRANSLATED)
    assert {loss.code for loss in losses} - {"field-dropped"} == LOST[dialect]
    again = fold(dialect, events_of(dialect, wire))
    assert (again.ending, again.repairs, len(again.choices)) == ("completed", (), 1)
    choice = again.choices[0]
    assert (choice.text, choice.reasoning) == ("Cited. No.", "One.\n\nTwo.")
    assert [(call.name, json.loads(call.arguments)) for call in choice.tool_calls] == [("patch", {"input": 'say "hi"'})]


@pytest.mark.parametrize("dialect", DIALECTS)
def test_arguments_that_are_no_object_are_as_they_were_or_as_text(dialect: str) -> None:
    call: list[Event] = [*BEGIN, ToolCallStart(0, 0, "c", "get_tide"), ToolCallDelta(0, 0, '{"port":"Bre')]
    answer = [*call, Finish(0, "length"), End("completed")]
    for wire, losses in (streamed(dialect, answer, TRANSLATED), unstreamed(dialect, fold("", answer), TRANSLATED)):
        (read,) = fold(dialect, events_of(dialect, wire)).choices[0].tool_calls
        whole = Loss("arguments-as-text", "get_tide") in losses
        assert read.arguments == ('{"input":"{\\"port\\":\\"Bre"}' if whole else '{"port":"Bre')
        assert whole or dialect != "ollama"  # whose arguments are objects only


@every_dialect
def test_an_answer_that_is_not_complete_ends_with_an_error(dialect: str) -> None:
    begun: list[Event] = [*BEGIN, TextDelta(0, "High wa")]
    error = Fault("provider-error", "out of memory", 0, 1, {"code": 429})
    endings: dict[str, list[Event]] = {
        "out of memory": [error, End("failed")],
        "the provider's stream ended before the answer was complete": [End("truncated")],
        "the provider took too long": [End("timed_out")],
    }
    for words, ending in endings.items():
        answer = fold(dialect, events_of(dialect, streamed(dialect, [*begun, *ending])[0]))
        assert (answer.ending, answer.text) == ("failed", "High wa")
        assert answer.fault is not None
        assert (answer.fault.code, answer.fault.message) == ("provider-error", words)


@every_dialect
def test_a_failure_ends_a_stream_at_any_point(dialect: str) -> None:
    failure = Failure(code="internal_error", message="The mill burns.")
    for count in range(len(CALL) - 1):
        writer = StreamWriter.for_call(dialect, OWN)
        wire = writer.write(CALL[:count]) + writer.heartbeat() + writer.fail(failure)
        answer = fold(dialect, events_of(dialect, wire))
        assert answer.fault is not None
        assert (answer.ending, answer.fault.message) == ("failed", "The mill burns.")


@every_dialect
def test_an_error_response_is_read_by_the_dialect_itself(dialect: str) -> None:
    body = answer_dialect(dialect).write_error(Failure(code="upstream_error", message="Slow down."), "req_1")
    fault = fold(dialect, events_of(dialect, body)).fault
    assert fault is not None
    code = " (upstream_error)" if dialect == "bedrock_converse" else ""  # which has no member for it
    assert (fault.code, fault.message) == ("provider-error", f"Slow down.{code}")


FAILURES: dict[str, dict[str, object]] = {
    "cohere": {"finish_reason": "TIMEOUT"},
    "bedrock_converse": {"stopReason": "malformed_tool_use"},
}


@pytest.mark.parametrize(("dialect", "provider"), FAILURES.items())
def test_a_reason_that_is_a_failure_is_written_again(dialect: str, provider: dict[str, object]) -> None:
    failed: list[Event] = [Fault("provider-error", "x", 0, 1, provider), End("failed")]
    wire, _ = streamed(dialect, [*BEGIN, TextDelta(0, "Hm"), *failed])
    fault = fold(dialect, events_of(dialect, wire)).fault
    assert fault is not None
    assert fault.provider == provider


def test_a_time_that_is_none_is_the_beginning_of_1970() -> None:
    wire, _ = streamed("ollama", [Start("", "m", 10**18), ChoiceStart(0, "assistant"), TextDelta(0, "Hi"), *END])
    assert json.loads(wire.splitlines()[0])["created_at"] == "1970-01-01T00:00:00Z"


def test_log_probabilities_are_with_the_text_that_follows() -> None:
    entries = [{"token": "Hi", "logprob": -0.5}]
    extra = Extra("choice", {"logprobs": {"content": entries}}, 0)
    events = [*BEGIN, extra, TextDelta(0, "Hi"), TextDelta(0, "!"), *END]
    lines = [json.loads(line) for line in streamed("ollama", events, TRANSLATED)[0].splitlines()]
    assert [line.get("logprobs") for line in lines] == [entries, None, None]
    body, _ = unstreamed("ollama", fold("", events), TRANSLATED)
    assert json.loads(body)["logprobs"] == entries


OTHER = "{größer}".encode()


def test_botocore_reads_messages_as_they_were_written() -> None:
    headers = {":event-type": "messageStart", ":content-type": "application/json", ":message-type": "event"}
    message = write_message(headers, b'{"role": "assistant"}')
    other = with_payload(message, OTHER)
    assert (payload_of(message), payload_of(other)) == (b'{"role": "assistant"}', OTHER)
    buffer = EventStreamBuffer()
    buffer.add_data(message + other)
    assert [(found.headers, found.payload) for found in buffer] == [
        (headers, b'{"role": "assistant"}'),
        (headers, OTHER),
    ]


def test_content_is_compared() -> None:
    first, second = (fold("", [*BEGIN, TextDelta(0, text), *END]) for text in ("a", "b"))
    assert content(first) != content(second)
