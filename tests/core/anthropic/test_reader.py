"""The reader of Anthropic Messages: deviations of compatible servers, usage, errors, and ends of streams."""

import json
from typing import Any

import pytest

from penstock import (
    BlockStart,
    Event,
    Extra,
    OpaquePart,
    ReasoningPart,
    Repair,
    StreamWriter,
    TextPart,
    ToolCall,
)
from penstock.core.dialects.dialect import AnswerFacts
from penstock.core.dialects.registry import upstream_dialect
from penstock.core.hub.usage import Tokens
from tests.legal import violations
from tests.messages import (
    DIALECT,
    HEALTHY,
    PING,
    STOPS,
    Json,
    answer,
    begins,
    calls,
    calls_all,
    closes,
    completion,
    delta,
    error,
    events_of,
    finishes,
    fold,
    opens,
    passes,
    says,
    says_all,
    signs,
    thinks,
    wire,
)
from tests.streams import repairs

FACTS = AnswerFacts(call_id="req_1", model="m", created=0)


def codes(*data: bytes) -> dict[str, int]:
    return repairs(events_of(*data))


def without_repairs(events: list[Event]) -> list[Event]:
    return [event for event in events if not isinstance(event, Repair)]


def bill(start: Json | None = None, *deltas: Json) -> Tokens | None:
    """What is booked for reports in `message_start` and in each `message_delta`."""
    ends = [finishes(usage=report) for report in deltas] or [finishes(usage={})]
    usage = completion(wire(begins(usage=start or {}), *says_all("Hi"), *ends, STOPS)).usage
    return Tokens.of(usage) if usage is not None else None


# Healthy streams.


@pytest.mark.parametrize("data", HEALTHY.values(), ids=HEALTHY)
def test_a_healthy_stream_has_no_defect_and_is_the_same_when_written_and_read_again(data: bytes) -> None:
    events = events_of(data)
    assert violations(events) == []
    assert repairs(events) == {}
    writer = StreamWriter.for_call(DIALECT, FACTS)
    assert events_of(writer.write(events)) == events
    assert writer.losses == []


@pytest.mark.parametrize("data", HEALTHY.values(), ids=HEALTHY)
def test_a_healthy_answer_is_the_same_as_a_body(data: bytes) -> None:
    whole = completion(data)
    again = completion(StreamWriter.for_call(DIALECT, FACTS).write_body(whole))
    assert (again.id, again.model, again.ending, again.repairs) == (whole.id, whole.model, "completed", ())
    (mine,), (theirs,) = again.choices, whole.choices
    assert (mine.parts, mine.native_finish_reason) == (theirs.parts, theirs.native_finish_reason)
    assert (mine.stop_sequence, mine.finish_details) == (theirs.stop_sequence, theirs.finish_details)
    assert again.usage == whole.usage


def test_parts_keep_their_order() -> None:
    (choice,) = completion(HEALTHY["search"]).choices
    assert [type(part) for part in choice.parts] == [TextPart, ToolCall, OpaquePart, TextPart]
    call, result, text = choice.parts[1:]
    assert isinstance(call, ToolCall)
    assert (call.server, call.arguments, call.extras) == (True, '{"query":"tides"}', {"caller": {"type": "direct"}})
    assert choice.tool_calls == ()
    assert isinstance(result, OpaquePart)
    assert (result.dialect, result.type) == (DIALECT, "web_search_tool_result")
    assert isinstance(text, TextPart)
    assert [citation.url for citation in text.citations] == ["https://tides.example"]


def test_a_redacted_block_is_a_seal_without_text() -> None:
    part = completion(HEALTHY["redacted"]).choices[0].parts[0]
    assert isinstance(part, ReasoningPart)
    assert (part.text, [(seal.value, seal.redacted) for seal in part.seals]) == ("", [("b3BhcXVl", True)])


def test_thinking_may_have_nothing_but_a_signature() -> None:
    data = answer(opens(0, "thinking"), signs("c2VhbA=="), closes(), *says_all("Noon.", index=1))
    part = completion(data).choices[0].parts[0]
    assert isinstance(part, ReasoningPart)
    assert (part.text, part.seals[0].value) == ("", "c2VhbA==")
    assert codes(data) == {}


@pytest.mark.parametrize(
    ("native", "reason"),
    {
        "end_turn": "stop",
        "stop_sequence": "stop",
        "max_tokens": "length",
        "model_context_window_exceeded": "length",
        "refusal": "content_filter",
        "pause_turn": "pause",
        "compaction": "pause",
        "tool_use": "tool_calls",
    }.items(),
)
def test_stop_reasons(native: str, reason: str) -> None:
    data = answer(*(calls_all() if native == "tool_use" else says_all("Hi")), finish=finishes(native))
    (choice,) = completion(data).choices
    assert (choice.finish_reason, choice.native_finish_reason) == (reason, native)
    assert codes(data) == {}


# Ends.


@pytest.mark.parametrize("data", HEALTHY.values(), ids=HEALTHY)
def test_a_stream_is_completed_from_its_stop_reason_on(data: bytes) -> None:
    events = [event + b"\n\n" for event in data.split(b"\n\n")[:-1]]
    endings = [completion(b"".join(events[:count])).ending for count in range(1, len(events) + 1)]
    assert endings == [*["truncated"] * (len(events) - 2), "completed", "completed"]


def test_bytes_that_stop_in_an_event_are_truncated_unless_all_was_sent_text() -> None:
    data = answer(*says_all("Hi"))
    assert completion(data[: data.index(b"end_turn")]).ending == "truncated"
    assert completion(data + b'event: ping\ndata: {"ty').ending == "completed"
    end = data.index(b"event: message_stop")
    for cut in (data[:end], data[: end + 10], data[: end + 30]):
        assert completion(cut).ending == "completed"
        assert codes(cut) == {"no-done": 1}


def test_a_cut_call_is_not_closed() -> None:
    (call,) = completion(wire(begins(), calls(), passes('{"port": '))).choices[0].tool_calls
    assert call.arguments == '{"port": '
    assert completion(wire(begins(), calls(), passes('{"port": '))).ending == "truncated"


@pytest.mark.parametrize(
    ("failing", "words"),
    {
        "named": (wire(error()), "Overloaded"),
        "without a name": (b'data: {"type":"error","error":{"type":"api_error","message":"No"}}\n\n', "No"),
        "without a type": (b'event: error\ndata: {"error":{"message":"No"}}\n\n', "No"),
        "flat": (b'event: error\ndata: {"message":"No","code":529}\n\n', "No"),
        "text": (b"event: error\ndata: upstream died\n\n", "upstream died"),
        "in a field": (b'error: {"message":"No"}\n\n', "No"),
        "a string": (b'data: {"error":"No"}\n\n', "No"),
        "of FastAPI": (b'data: {"detail":"No"}\n\n', "No"),
    }.values(),
)
def test_errors_in_a_stream_are_failures(failing: bytes, words: str) -> None:
    reported = completion(wire(begins(), opens(), says("So far")) + failing)
    assert (reported.ending, reported.text, reported.choices[0].finish_reason) == ("failed", "So far", None)
    assert reported.fault is not None
    assert (reported.fault.code, reported.fault.message) == ("provider-error", words)
    assert reported.usage is not None
    assert (reported.usage.input, reported.usage.output) == (7, None)
    first = completion(failing)
    assert (first.ending, first.fault and first.fault.message) == ("failed", words)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b'{"type":"error","error":{"type":"rate_limit_error","message":"Slow down"},"request_id":"r"}', "Slow down"),
        (b'{"error":{"message":"Slow down","code":429}}', "Slow down"),
        (b'{"error":"Slow down"}', "Slow down"),
        (b'{"detail":"Slow down"}', "Slow down"),
        (b'{"message":"Slow down"}', "Slow down"),
        (b"[]", ""),
    ],
)
def test_bodies_of_errors_are_read(body: bytes, words: str) -> None:
    error = upstream_dialect(DIALECT).read_error(body)
    assert error.message == words
    assert (error.envelope == body) == (b'"type":"error"' in body)


# Deviations of compatible servers.


def test_usage_that_starts_with_zeros_is_taken_from_the_end() -> None:
    assert bill({"input_tokens": 0, "output_tokens": 0}, {"input_tokens": 12, "output_tokens": 3}) == Tokens(
        input=12, output=3
    )


@pytest.mark.parametrize(
    ("start", "pieces", "text", "found"),
    [
        ("Said", ["Said", " once."], "Said once.", {"block-text-repeated": 1}),
        ("Said", ["Sa", "id", " once."], "Said once.", {"block-text-repeated": 1}),
        ("Said", ["Said once."], "Said once.", {"block-text-repeated": 1}),
        ("Said", [" once."], "Said once.", {}),
        ("Said", ["Sa", "lt"], "SaidSalt", {}),
        ("Said", ["Sa"], "SaidSa", {}),
        ("Said", [], "Said", {}),
    ],
)
def test_text_in_a_start_counts_unless_the_deltas_repeat_it(
    start: str, pieces: list[str], text: str, found: dict[str, int]
) -> None:
    data = answer(opens(text=start), *map(says, pieces), closes())
    assert completion(data).text == text
    assert codes(data) == found


def test_a_signature_belongs_to_the_block_with_its_index() -> None:
    thinking = [opens(0, "thinking"), thinks("Two"), closes(0), opens(1, "thinking"), thinks("Three", 1), closes(1)]
    parts = completion(answer(*thinking, opens(2), says("Five", 2), signs("first", 0), closes(2))).choices[0].parts
    assert [part.seals for part in parts if isinstance(part, ReasoningPart)][1] == ()
    assert isinstance(parts[0], ReasoningPart)
    assert parts[0].seals[0].value == "first"


def test_a_call_that_starts_again_for_each_piece_is_one_call() -> None:
    pieces = ['{"port":', '"Br', 'est"}']
    events = [
        event for index, piece in enumerate(pieces) for event in (calls(index), passes(piece, index), closes(index))
    ]
    data = answer(*events, finish=finishes("tool_use"))
    assert [call.arguments for call in completion(data).choices[0].tool_calls] == ['{"port":"Brest"}']
    assert codes(data) == {"tool-id-repeated": 2}
    assert violations(events_of(data)) == []


def test_calls_of_one_id_that_are_whole_are_two_calls() -> None:
    data = answer(*calls_all(), *calls_all(index=1), finish=finishes("tool_use"))
    assert len(completion(data).choices[0].tool_calls) == 2


STARTED_AGAIN = {
    "with its input": (closes(), calls(1, input={"port": "Brest"}), closes(1)),
    "while it is open": (calls(1), passes(':"Brest"}', 1), closes(1), closes()),
}


def test_an_incomplete_call_is_ambiguous_if_another_one_started_before_its_arguments() -> None:
    other = (calls(1), passes('{"port":"Brest"}', 1), closes(1))
    reported = completion(answer(calls(), *other, passes('{"port"'), closes()))
    assert (reported.ending, reported.fault and reported.fault.code) == ("failed", "tool-call-ambiguous")


@pytest.mark.parametrize("again", STARTED_AGAIN.values(), ids=STARTED_AGAIN)
def test_an_incomplete_call_that_starts_again_is_ambiguous(again: tuple[Json, ...]) -> None:
    reported = completion(answer(calls(), passes('{"port"'), *again))
    assert (reported.ending, reported.fault and reported.fault.code) == ("failed", "tool-call-ambiguous")


def test_the_type_of_a_delta_counts_and_not_that_of_its_block() -> None:
    data = answer(opens(), says("So"), thinks("hm"), says(" be it."), closes())
    (choice,) = completion(data).choices
    assert (choice.text, choice.reasoning) == ("So be it.", "hm")
    assert [type(part) for part in choice.parts] == [TextPart, ReasoningPart, TextPart]
    assert codes(data) == {"delta-in-wrong-block": 2}


def test_text_then_thinking_under_one_index() -> None:
    data = answer(opens(), says("Noon."), opens(0, "thinking"), thinks("Sure?"), closes())
    assert [type(part) for part in completion(data).choices[0].parts] == [TextPart, ReasoningPart]
    assert codes(data) == {"block-restarted": 1}


def test_events_are_known_by_their_types_without_names_and_by_their_names_without_types() -> None:
    healthy = answer(PING, *says_all("No", " names"))
    nameless = b"".join(line + b"\n\n" for line in healthy.split(b"\n") if line.startswith(b"data:"))
    assert completion(nameless).text == "No names"
    assert codes(nameless) == {"event-name-missing": 1}
    typeless = healthy.replace(b'{"type":"content_block_start",', b"{").replace(b'{"type":"ping"}', b"{}")
    assert completion(typeless).text == "No names"


@pytest.mark.parametrize(
    ("start", "pieces", "arguments"),
    [
        ({}, [], "{}"),
        ({}, ["", '{"a"', ":1}"], '{"a":1}'),
        ({"a": 1}, [], '{"a":1}'),
        ({"a": 1}, ['{"b":2}'], '{"b":2}'),
        ({}, ['{"a": "cut'], '{"a": "cut'),
    ],
)
def test_arguments(start: Json, pieces: list[str], arguments: str) -> None:
    data = answer(calls(input=start), *map(passes, pieces), closes(), finish=finishes("tool_use"))
    (call,) = completion(data).choices[0].tool_calls
    assert call.arguments == arguments


def test_characters_that_are_split_over_two_deltas_are_joined() -> None:
    halves = [r'"text":"A \ud83d"', r'"text":"\udea2 ahoy"', r'"text":" again"']
    deltas = [
        "event: content_block_delta\n"
        f'data: {{"type":"content_block_delta","index":0,"delta":{{"type":"text_delta",{half}}}}}'
        for half in halves
    ]
    data = wire(begins(), opens()) + "\n\n".join([*deltas, ""]).encode() + wire(closes(), finishes(), STOPS)
    assert completion(data).text == "A \N{SHIP} ahoy again"
    assert codes(data) == {"split-surrogate": 1}


@pytest.mark.parametrize("value", [42, ["a"], {"a": 1}, True])
def test_text_that_is_no_text_is_a_fault(value: object) -> None:
    for event in (delta(0, "text_delta", text=value), delta(0, "thinking_delta", thinking=value)):
        reported = completion(answer(opens(), event))
        assert reported.fault is not None
        assert reported.fault.code == "bad-shape"


def test_a_block_that_is_no_object_is_a_fault() -> None:
    reported = completion(answer({"type": "content_block_start", "index": 0, "content_block": 3}))
    assert reported.fault is not None
    assert reported.fault.code == "bad-shape"


# What is not known.


def test_events_blocks_and_deltas_of_unknown_types_are_kept_for_the_same_dialect() -> None:
    unknown: list[Json] = [
        {"type": "tide_report", "level": 3},
        opens(0, "tide_chart", levels=[1]),
        delta(0, "chart_delta", note="High "),
        delta(0, "chart_delta", note="noon"),
        closes(0),
        opens(1),
        says("See", 1),
        delta(1, "mood_delta", mood="calm"),
        closes(1),
    ]
    events = events_of(answer(*unknown))
    chart: dict[str, object] = {"type": "tide_chart", "levels": [1], "note": "High noon"}
    assert BlockStart(0, 0, "opaque", type="tide_chart", data=chart) in events
    assert Extra("event", unknown[0]) in events
    assert Extra("event", unknown[7], 0, block=1) in events
    written = StreamWriter.for_call(DIALECT, FACTS).write(events)
    assert without_repairs(events_of(written)) == without_repairs(events)
    for word in (b"tide_report", b"High noon", b"mood_delta"):
        assert word in written
    other = StreamWriter.for_call(DIALECT, AnswerFacts(call_id="", model="m", created=0, same_dialect=False))
    hidden = other.write(events)
    assert b"tide" not in hidden
    assert b"mood" not in hidden
    assert fold(events_of(hidden)).text == "See"
    assert [(loss.code, loss.detail) for loss in other.losses] == [
        ("field-dropped", "event.tide_report"),
        ("field-dropped", "delta.mood_delta"),
        ("server-activity-hidden", "tide_chart"),
    ]


def test_an_unknown_event_cannot_write_another_one() -> None:
    trick = {"type": "x\ndata: {}\n\nevent: error", "error": None}
    events = events_of(answer(f"data: {json.dumps(trick)}\n\n", *says_all("Hi")))
    assert repairs(events) == {"event-unknown": 1}
    assert not any(isinstance(event, Extra) and event.fields.get("type") == trick["type"] for event in events)
    assert b"error" not in StreamWriter.for_call(DIALECT, FACTS).write(events)


def test_extras_are_written_where_they_came_from() -> None:
    events = events_of(
        answer(
            *says_all("Hi"),
            begin=begins(input_transformations=[{"type": "x"}]),
            finish=finishes(container={"id": "c1"}) | {"context_management": {"applied_edits": []}},
        )
    )
    written = StreamWriter.for_call(DIALECT, FACTS).write(events)
    reported: dict[str, Any] = {
        event.split(b"\n")[0].decode()[7:]: json.loads(event.split(b"data: ")[1])
        for event in written.split(b"\n\n")[:-1]
    }
    assert reported["message_start"]["message"]["input_transformations"] == [{"type": "x"}]
    assert reported["message_delta"]["delta"]["container"] == {"id": "c1"}
    assert reported["message_delta"]["context_management"] == {"applied_edits": []}
    assert "container" not in reported["message_start"]["message"]


# Usage.


@pytest.mark.parametrize(
    ("start", "deltas", "tokens"),
    [
        ({"input_tokens": 7, "output_tokens": 1}, [{"output_tokens": 4}], Tokens(input=7, output=4)),
        ({"input_tokens": 7, "output_tokens": 1}, [], Tokens(input=7)),
        ({"input_tokens": 7}, [{"output_tokens": 2}, {"output_tokens": 4}], Tokens(input=7, output=4)),
        ({"input_tokens": 7}, [{"input_tokens": 9, "output_tokens": 4}], Tokens(input=9, output=4)),
        ({"input_tokens": 7}, [{"input_tokens": 0, "output_tokens": 4}], Tokens(input=7, output=4)),
        ({"input_tokens": 7}, [{"input_tokens": None, "output_tokens": 4}], Tokens(input=7, output=4)),
        (
            {"input_tokens": 7, "cache_read_input_tokens": 100, "cache_creation_input_tokens": 20},
            [{"output_tokens": 4}],
            Tokens(input=127, output=4, cached=100, cache_write=20),
        ),
        (
            {
                "input_tokens": 7,
                "cache_creation_input_tokens": 20,
                "cache_creation": {"ephemeral_5m_input_tokens": 5, "ephemeral_1h_input_tokens": 15},
            },
            [{"output_tokens": 4}],
            Tokens(input=27, output=4, cache_write=20, cache_write_1h=15),
        ),
        (
            {"input_tokens": 7},
            [{"output_tokens": 9, "output_tokens_details": {"thinking_tokens": 5}}],
            Tokens(input=7, output=9, reasoning=5),
        ),
    ],
)
def test_reports_are_merged_by_field(start: Json, deltas: list[Json], tokens: Tokens) -> None:
    assert bill(start, *deltas) == tokens


def test_iterations_are_the_bill_where_there_are_such() -> None:
    compacted = {
        "input_tokens": 612,
        "output_tokens": 2_819,
        "iterations": [
            {"type": "compaction", "input_tokens": 60_385, "output_tokens": 522},
            {"type": "message", "input_tokens": 612, "output_tokens": 2_819},
        ],
    }
    assert bill({}, compacted) == Tokens(input=60_997, output=3_341)


def test_iterations_of_other_models_are_apart() -> None:
    report = {
        "input_tokens": 10,
        "output_tokens": 20,
        "iterations": [
            {"type": "message", "input_tokens": 4, "output_tokens": 8},
            {"type": "advisor_message", "model": "weir-9", "input_tokens": 2_728, "output_tokens": 3_880},
            {"type": "message", "input_tokens": 6, "output_tokens": 12},
        ],
    }
    usage = completion(answer(*says_all("Hi"), begin=begins(usage={}), finish=finishes(usage=report))).usage
    assert usage is not None
    assert (usage.input, usage.output) == (10, 20)
    assert [(other.model, other.usage.input, other.usage.output) for other in usage.others] == [
        ("weir-9", 2_728, 3_880)
    ]


def test_a_fallback_names_the_model_that_answered() -> None:
    report = {
        "input_tokens": 5,
        "output_tokens": 6,
        "iterations": [{"type": "fallback_message", "model": "weir-2", "input_tokens": 5, "output_tokens": 6}],
    }
    usage = completion(answer(*says_all("Hi"), begin=begins(usage={}), finish=finishes(usage=report))).usage
    assert usage is not None
    assert (usage.input, usage.output, usage.others) == (5, 6, ())


FALLBACK = {"from": {"model": "weir-3"}, "to": {"model": "weir-2"}, "trigger": {"type": "refusal", "category": None}}


@pytest.mark.parametrize("named", [True, False])
def test_each_hop_of_a_fallback_is_of_its_model(named: bool) -> None:
    declined = {"type": "message", "input_tokens": 5, "output_tokens": 2} | ({"model": "weir-3"} if named else {})
    served = {"type": "fallback_message", "model": "weir-2", "input_tokens": 9, "output_tokens": 6}
    report = {"input_tokens": 9, "output_tokens": 6, "iterations": [declined, served]}
    blocks = [opens(0), says("Hi"), closes(0), opens(1, "fallback", **FALLBACK), closes(1), opens(2), closes(2)]
    usage = completion(answer(*blocks, begin=begins(usage={}), finish=finishes(usage=report))).usage
    assert usage is not None
    assert (usage.model, usage.input, usage.output) == ("weir-2", 9, 6)
    assert [(other.model, other.usage.input, other.usage.output) for other in usage.others] == [("weir-3", 5, 2)]


def test_a_fallback_without_iterations_has_used_the_tokens() -> None:
    blocks = [opens(0, "fallback", **FALLBACK), closes(0), opens(1), says("Hi", 1), closes(1)]
    usage = completion(answer(*blocks)).usage
    assert usage is not None
    assert (usage.model, usage.others) == ("weir-2", ())


def test_tools_that_are_billed_apiece_and_the_tier_are_reported() -> None:
    start = {"input_tokens": 7, "service_tier": "priority"}
    end = {"output_tokens": 3, "server_tool_use": {"web_search_requests": 2, "web_fetch_requests": 0}}
    usage = completion(answer(*says_all("Hi"), begin=begins(usage=start), finish=finishes(usage=end))).usage
    assert usage is not None
    assert (usage.tool_requests, usage.tier) == ({"web_search": 2}, "priority")
