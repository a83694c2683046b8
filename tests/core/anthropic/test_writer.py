"""The writer of Anthropic Messages: for answers of any dialect it writes the shape that clients rely on."""

import json
from typing import Any

import pytest
from hypothesis import assume, given, settings
from msgspec import structs

from penstock import (
    Annotation,
    BlockEnd,
    BlockStart,
    ChoiceStart,
    End,
    Event,
    Fault,
    Finish,
    MediaDelta,
    ReasoningDelta,
    RefusalDelta,
    RefusalPart,
    Repair,
    Seal,
    Start,
    StreamReader,
    StreamWriter,
    TextDelta,
    TextPart,
    ToolCallDelta,
    ToolCallStart,
    Usage,
    UsageReport,
)
from penstock.core.dialects.dialect import AnswerFacts
from penstock.core.dialects.registry import surface_dialect
from penstock.core.hub.content import ReasoningSeal
from penstock.core.hub.failure import Failure
from penstock.core.hub.seals import unwrap
from tests.legal import violations
from tests.messages import DIALECT, answer, closes, completion, delta, events_of, fold, opens, says_all
from tests.properties.answers import answers
from tests.streams import DONE, begins, calls, finishes, piece, read, says, sse

OTHER = AnswerFacts(call_id="req_1", model="m", created=0, input_estimate=12, same_dialect=False, issuer="0badcafe")
BEGIN: list[Event] = [Start("id1", "weir-2", 1), ChoiceStart(0, "assistant")]
USAGE = Usage(input=127, output=9, cached=100, cache_write=20, cache_write_1h=5, reasoning=4)


def written(*events: Event, facts: AnswerFacts = OTHER) -> tuple[list[dict[str, Any]], list[str]]:
    """The JSON of the events that are written, and the codes of what is lost. Names and types are the same."""
    writer = StreamWriter.for_call(DIALECT, facts)
    reported = []
    for event in writer.write(events).split(b"\n\n")[:-1]:
        name, data = event.split(b"\n")
        reported.append(json.loads(data.removeprefix(b"data: ")))
        assert name == b"event: " + reported[-1]["type"].encode()
    return reported, [loss.code for loss in writer.losses]


def types(reported: list[dict[str, Any]]) -> list[str]:
    return [event["type"].removeprefix("content_") for event in reported]


def test_a_chat_stream_gets_blocks() -> None:
    wire = sse(
        begins(),
        says("Let me see."),
        calls(piece(0, "c1", "get_tide", '{"port":"Brest"}')),
        finishes("tool_calls"),
        DONE,
    )
    reported, losses = written(*read(wire))
    assert types(reported) == [
        "message_start",
        *("block_start", "block_delta", "block_stop"),
        *("block_start", "block_delta", "block_stop"),
        "message_delta",
        "message_stop",
    ]
    assert reported[0]["message"]["usage"]["input_tokens"] == 12
    assert reported[0]["message"]["content"] == []
    assert reported[4]["content_block"] == {"type": "tool_use", "id": "c1", "name": "get_tide", "input": {}}
    assert reported[-2]["delta"] == {"stop_reason": "tool_use", "stop_sequence": None}
    assert losses == []


def test_input_tokens_exclude_the_caches() -> None:
    reported, _ = written(*BEGIN, TextDelta(0, "Hi"), Finish(0, "stop"), UsageReport(USAGE), End("completed"))
    assert reported[-2]["usage"] == {
        "input_tokens": 7,
        "cache_creation_input_tokens": 20,
        "cache_read_input_tokens": 100,
        "output_tokens": 9,
        "cache_creation": {"ephemeral_5m_input_tokens": 15, "ephemeral_1h_input_tokens": 5},
        "output_tokens_details": {"thinking_tokens": 4},
    }


def test_names_of_counts_do_not_tell_the_dialect() -> None:
    """Other APIs have `input_tokens` too, with the cached ones in it."""
    raw: dict[str, object] = {"input_tokens": 127, "output_tokens": 9}
    usage = Usage(input=127, output=9, cached=100, raw=raw)
    reported, _ = written(*BEGIN, TextDelta(0, "Hi"), Finish(0, "stop"), UsageReport(usage), End("completed"))
    assert reported[-2]["usage"]["input_tokens"] == 27


@pytest.mark.parametrize(
    ("finish", "reason"),
    [
        (Finish(0, "stop"), "end_turn"),
        (Finish(0, "stop", stop_sequence="END"), "stop_sequence"),
        (Finish(0, "length"), "max_tokens"),
        (Finish(0, "tool_calls"), "tool_use"),
        (Finish(0, "function_call"), "tool_use"),
        (Finish(0, "content_filter"), "refusal"),
        (Finish(0, "pause"), "pause_turn"),
        (Finish(0, "length", "model_context_window_exceeded"), "model_context_window_exceeded"),
        (Finish(0, "stop", "eos"), "end_turn"),
        (Finish(0, "vocabulary"), "vocabulary"),
    ],
)
def test_stop_reasons(finish: Finish, reason: str) -> None:
    reported, _ = written(*BEGIN, TextDelta(0, "Hi"), finish, End("completed"))
    assert reported[-2]["delta"] == {"stop_reason": reason, "stop_sequence": finish.stop_sequence}


def test_a_seal_of_another_api_is_wrapped_with_its_issuer() -> None:
    sealed: list[Event] = [
        BlockStart(0, 0, "reasoning"),
        ReasoningDelta(0, "Hm."),
        Seal(0, 0, "openai", "abc"),
        BlockEnd(0, 0),
        Finish(0, "stop"),
        End("completed"),
    ]
    reported, _ = written(*BEGIN, *sealed)
    (signature,) = [
        event["delta"]["signature"] for event in reported if event.get("delta", {}).get("type") == "signature_delta"
    ]
    assert unwrap(signature) == (ReasoningSeal("openai", "abc"), "0badcafe")
    body = json.loads(surface_dialect(DIALECT).write_body(fold([*BEGIN, *sealed]), OTHER, []))
    assert body["content"] == [{"type": "thinking", "thinking": "Hm.", "signature": signature}]


def test_what_messages_cannot_express_is_a_loss() -> None:
    reported, losses = written(
        *BEGIN,
        ChoiceStart(1, "assistant"),
        TextDelta(1, "Another answer"),
        BlockStart(0, 0, "media", type="image"),
        MediaDelta(0, 0, "image/png", "abc"),
        BlockEnd(0, 0),
        BlockStart(0, 1, "text"),
        TextDelta(0, "Hi"),
        Annotation(0, 1, title="A book"),
        Annotation(0, 1, url="https://tides.example", title="Tides", quote="High"),
        BlockEnd(0, 1),
        ToolCallStart(0, 0, "s1", "web_search", server=True, block=2),
        ToolCallDelta(0, 0, "{}"),
        BlockEnd(0, 2),
        BlockStart(0, 3, "opaque", type="rs"),
        BlockEnd(0, 3),
        Finish(0, "stop"),
        End("completed"),
    )
    assert losses == [
        "choices-dropped",
        "media-dropped",
        "citation-dropped",
        "server-activity-hidden",
        "server-activity-hidden",
    ]
    assert b"Another" not in json.dumps(reported).encode()
    assert [event["index"] for event in reported if event["type"].startswith("content_block")] == [0, 0, 0, 0]
    (citation,) = [event["delta"]["citation"] for event in reported if "citation" in event.get("delta", {})]
    assert (citation["type"], citation["url"]) == ("web_search_result_location", "https://tides.example")


def test_members_of_deltas_without_a_text_stay_in_their_block() -> None:
    counted = [delta(0, "thinking_delta", thinking="", estimated_tokens=count) for count in (50, 90)]
    data = answer(opens(0, "thinking"), *counted, closes(0), *says_all("Hi", index=1))
    events = [event for event in events_of(data) if not isinstance(event, Repair)]
    writer = StreamWriter.for_call(DIALECT, structs.replace(OTHER, same_dialect=True))
    assert [event for event in events_of(writer.write(events)) if not isinstance(event, Repair)] == events


def test_refusals_and_summaries_are_text_and_thinking() -> None:
    reported, losses = written(
        *BEGIN,
        ReasoningDelta(0, "One.", part=0),
        ReasoningDelta(0, "Two.", part=1),
        RefusalDelta(0, "No."),
        Finish(0, "content_filter"),
        End("completed"),
    )
    deltas = [event["delta"] for event in reported if event["type"] == "content_block_delta"]
    assert deltas == [
        {"type": "thinking_delta", "thinking": "One."},
        {"type": "thinking_delta", "thinking": "\n\nTwo."},
        {"type": "text_delta", "text": "No."},
    ]
    assert losses == []


def test_free_input_of_a_tool_is_one_json_string() -> None:
    reported, _ = written(
        *BEGIN,
        ToolCallStart(0, 0, "c1", "shell", "custom"),
        ToolCallDelta(0, 0, 'say "'),
        ToolCallDelta(0, 0, 'hi"\n'),
        Finish(0, "tool_calls"),
        End("completed"),
    )
    pieces = [event["delta"]["partial_json"] for event in reported if event["type"] == "content_block_delta"]
    assert json.loads("".join(pieces)) == {"input": 'say "hi"\n'}


def test_a_call_without_an_id_gets_one_of_its_call() -> None:
    call: list[Event] = [
        ToolCallStart(0, 0, None, "f"),
        ToolCallDelta(0, 0, "{}"),
        Finish(0, "tool_calls"),
        End("completed"),
    ]
    reported, _ = written(*BEGIN, *call)
    assert reported[1]["content_block"]["id"] == "toolu_req_1_0"
    body = json.loads(surface_dialect(DIALECT).write_body(fold([*BEGIN, *call]), OTHER, []))
    assert body["content"][0]["id"] == "toolu_req_1_0"


@pytest.mark.parametrize(
    ("last", "type"),
    [
        ([Fault("provider-error", "Busy", 0, 1, {"type": "overloaded_error"}), End("failed")], "overloaded_error"),
        ([Fault("provider-error", "Busy", 0, 1, {"type": {}}), End("failed")], "api_error"),
        ([Fault("bad-json", "{", 0, 1), End("failed")], "api_error"),
        ([End("truncated")], "api_error"),
        ([End("timed_out")], "timeout_error"),
    ],
)
def test_a_stream_that_is_not_completed_ends_with_one_error(last: list[Event], type: str) -> None:
    reported, _ = written(*BEGIN, TextDelta(0, "Hi"), *last)
    assert types(reported) == ["message_start", "block_start", "block_delta", "error"]
    assert (reported[-1]["error"]["type"], reported[-1]["request_id"]) == (type, "req_1")


def test_a_failure_of_the_gateway_is_an_error_event_with_its_code() -> None:
    writer = StreamWriter.for_call(DIALECT, OTHER)
    writer.write([*BEGIN, TextDelta(0, "Hi")])
    event = writer.fail(Failure(code="upstream_timeout_idle", message="the provider took too long"))
    assert event.startswith(b"event: error\ndata: {")
    assert b"(upstream_timeout_idle)" in event
    assert writer.heartbeat() == b'event: ping\ndata: {"type":"ping"}\n\n'


def test_a_line_end_in_a_text_is_escaped() -> None:
    writer = StreamWriter.for_call(DIALECT, OTHER)
    assert "\u2028" not in writer.write([*BEGIN, TextDelta(0, "a\u2028b\nc")]).decode()


def test_an_unstreamed_answer_of_another_dialect() -> None:
    wire = sse(begins(), says("Hi"), calls(piece(0, "c1", "f", '{"a":1}')), finishes("tool_calls"), DONE)
    losses: list[Any] = []
    body = surface_dialect(DIALECT).write_body(fold(read(wire, reader=StreamReader())), OTHER, losses)
    again = completion(body)
    assert (again.ending, again.text, again.choices[0].finish_reason) == ("completed", "Hi", "tool_calls")
    assert [(call.id, call.name, call.arguments) for call in again.choices[0].tool_calls] == [("c1", "f", '{"a":1}')]
    assert losses == []


@pytest.mark.slow
@given(answers())
@settings(max_examples=100, deadline=None)
def test_any_answer_is_the_same_for_a_client_of_messages(events: list[Event]) -> None:
    """Everything that a message can express of the first choice, without calls: their arguments are any text here."""
    assume(any(isinstance(event, ChoiceStart) and event.choice == 0 for event in events))
    assume(not any(isinstance(event, ToolCallStart) for event in events))
    again = events_of(StreamWriter.for_call(DIALECT, OTHER).write(events))
    assert violations(again) == []
    whole, reported = fold(events).choices[0], fold(again).choices[0]
    assert reported.text == "".join(part.text for part in whole.parts if isinstance(part, TextPart | RefusalPart))
    assert reported.reasoning == whole.reasoning
