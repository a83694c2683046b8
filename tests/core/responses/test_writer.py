"""What the writer of OpenAI Responses writes for answers of any dialect: the shape that its clients rely on."""

import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings

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
    StreamWriter,
    TextDelta,
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
from tests.messages import fold
from tests.open_responses import problems
from tests.properties.answers import answers
from tests.streams import DONE, begins, bill, calls, counts, finishes, piece, read, says, sse

DIALECT = "openai_responses"
Json = dict[str, Any]
OTHER = AnswerFacts(call_id="req_1", model="m", created=5, same_dialect=False, issuer="0badcafe")
OWN = AnswerFacts(call_id="req_1", model="m", created=5)
BEGIN: list[Event] = [Start("id1", "weir-2", 1), ChoiceStart(0, "assistant")]
DONE_WELL: list[Event] = [Finish(0, "stop"), End("completed")]
HI: list[Event] = [*BEGIN, TextDelta(0, "Hi"), *DONE_WELL]
MESSAGE = [
    "response.output_item.added",
    "response.content_part.added",
    "response.output_text.delta",
    "response.output_text.done",
    "response.content_part.done",
    "response.output_item.done",
]
CREATED = ["response.created", "response.in_progress"]


def events_in(data: bytes) -> list[Json]:
    """The JSON of the events. Names and types are the same."""
    found = []
    for event in data.split(b"\n\n")[:-1]:
        name, line = event.split(b"\n")
        found.append(json.loads(line.removeprefix(b"data: ")))
        assert name == b"event: " + found[-1]["type"].encode()
        assert problems(found[-1]) == []
    return found


def written(*events: Event, facts: AnswerFacts = OTHER) -> tuple[list[Json], list[str]]:
    """The events that are written, which are numbered, and the codes of what is lost."""
    writer = StreamWriter.for_call(DIALECT, facts)
    reported = events_in(writer.write(events))
    assert [event["sequence_number"] for event in reported] == list(range(len(reported)))
    return reported, [loss.code for loss in writer.losses]


def body_of(events: Sequence[Event], facts: AnswerFacts = OTHER) -> tuple[Json, list[str]]:
    """The same answer as a body, and the codes of what is lost."""
    losses: list[Any] = []
    body = json.loads(surface_dialect(DIALECT).write_body(fold(list(events)), facts, losses))
    assert problems(body) == []
    return body, [loss.code for loss in losses]


def types(reported: list[Json]) -> list[str]:
    return [event["type"] for event in reported]


def output(*events: Event, facts: AnswerFacts = OTHER) -> list[Json]:
    """The items of a whole answer: the same in the last event, in the ends of the items, and in a body."""
    reported, _ = written(*BEGIN, *events, *DONE_WELL, facts=facts)
    items: list[Json] = reported[-1]["response"]["output"]
    done = [event["item"] for event in reported if event["type"] == "response.output_item.done"]
    assert done == items
    body, _ = body_of([*BEGIN, *events, *DONE_WELL], facts)
    assert body["output"] == items
    return items


def test_a_chat_stream_becomes_items() -> None:
    wire = sse(
        begins(),
        says("Let me see."),
        calls(piece(0, "c1", "get_tide", '{"port":"Brest"}')),
        finishes("tool_calls"),
        bill(**counts(7, 4)),
        DONE,
    )
    reported, losses = written(*read(wire))
    assert types(reported) == [
        *CREATED,
        *MESSAGE,
        "response.output_item.added",
        "response.function_call_arguments.delta",
        "response.function_call_arguments.done",
        "response.output_item.done",
        "response.completed",
    ]
    text = {"type": "output_text", "text": "Let me see.", "annotations": [], "logprobs": []}
    message, call = reported[-1]["response"]["output"]
    assert message == {
        "type": "message",
        "id": "msg_req_1_0",
        "status": "completed",
        "role": "assistant",
        "content": [text],
    }
    assert call == {
        "type": "function_call",
        "id": "fc_req_1_1",
        "status": "completed",
        "call_id": "c1",
        "name": "get_tide",
        "arguments": '{"port":"Brest"}',
    }
    assert reported[2]["item"] == message | {"status": "in_progress", "content": []}
    assert reported[8]["item"] == call | {"status": "in_progress", "arguments": ""}
    place = {"item_id": "msg_req_1_0", "output_index": 0, "content_index": 0}
    delta = {"type": "response.output_text.delta", "sequence_number": 4, "delta": "Let me see.", "logprobs": []}
    assert reported[4] == delta | place
    assert losses == []


def test_the_response_repeats_the_request_and_has_all_fields_that_sdks_read() -> None:
    tools = [{"type": "function", "name": "f", "parameters": {}}]
    facts = AnswerFacts(
        call_id="req_1", model="m", created=5, same_dialect=False, echo={"tools": tools, "temperature": 0.5}
    )
    reported, _ = written(*HI, facts=facts)
    first, last = reported[0]["response"], reported[-1]["response"]
    for response, status in ((first, "in_progress"), (last, "completed")):
        assert response["tools"] == [tools[0] | {"description": None, "strict": None}]
        assert (response["temperature"], response["top_p"], response["tool_choice"]) == (0.5, 1.0, "auto")
        assert (response["object"], response["status"], response["parallel_tool_calls"]) == ("response", status, True)
        assert (response["id"], response["model"], response["created_at"]) == ("resp_req_1", "weir-2", 1)
        assert (response["error"], response["incomplete_details"], response["metadata"]) == (None, None, {})
    assert (first["output"], first["usage"]) == ([], None)


def test_what_the_gateway_decides_of_a_response_replaces_everything_else() -> None:
    facts = AnswerFacts(call_id="req_1", model="m", created=5, overrides={"id": "resp_ours", "store": True})
    reported, _ = written(*HI, facts=facts)
    assert {event["response"]["id"] for event in reported if "response" in event} == {"resp_ours"}
    assert body_of(HI, facts)[0]["store"] is True


def test_usage_has_all_details() -> None:
    usage = Usage(input=127, output=9, cached=100, cache_write=20, reasoning=4)
    reported, _ = written(*BEGIN, TextDelta(0, "Hi"), Finish(0, "stop"), UsageReport(usage), End("completed"))
    expected = {
        "input_tokens": 127,
        "input_tokens_details": {"cached_tokens": 100, "cache_write_tokens": 20},
        "output_tokens": 9,
        "output_tokens_details": {"reasoning_tokens": 4},
        "total_tokens": 136,
    }
    assert reported[-1]["response"]["usage"] == expected
    none = written(*HI)[0][-1]["response"]["usage"]
    assert none == {
        "input_tokens": 0,
        "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
        "output_tokens": 0,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": 0,
    }


ENDS: dict[str, tuple[Finish, str, Json | None, str]] = {
    "stop": (Finish(0, "stop"), "completed", None, "completed"),
    "tool_calls": (Finish(0, "tool_calls"), "completed", None, "completed"),
    "length": (Finish(0, "length"), "incomplete", {"reason": "max_output_tokens"}, "incomplete"),
    "content_filter": (Finish(0, "content_filter"), "incomplete", {"reason": "content_filter"}, "incomplete"),
    "error": (Finish(0, "error"), "failed", None, "completed"),
    "unknown": (Finish(0, "vocabulary"), "incomplete", None, "incomplete"),
}


@pytest.mark.parametrize(("finish", "status", "details", "item"), ENDS.values(), ids=ENDS)
def test_ends(finish: Finish, status: str, details: Json | None, item: str) -> None:
    events = [*BEGIN, TextDelta(0, "Hi"), finish, End("completed")]
    reported, _ = written(*events)
    assert reported[-1]["type"] == f"response.{status}"
    body, _ = body_of(events)
    for response in (reported[-1]["response"], body):
        assert (response["status"], response["incomplete_details"]) == (status, details)
        assert response["output"][0]["status"] == item
        assert (response["error"] is not None) == (status == "failed")


def test_a_pause_is_a_loss() -> None:
    events = [*BEGIN, TextDelta(0, "Hi"), Finish(0, "pause", "pause_turn"), End("completed")]
    reported, losses = written(*events)
    assert (reported[-1]["type"], losses) == ("response.completed", ["pause-unknown"])
    assert body_of(events)[1] == ["pause-unknown"]


def test_a_call_that_is_cut_off_is_incomplete() -> None:
    call: list[Event] = [ToolCallStart(0, 0, "c1", "f"), ToolCallDelta(0, 0, '{"a":')]
    reported, _ = written(*BEGIN, *call, Finish(0, "length"), End("completed"))
    (item,) = reported[-1]["response"]["output"]
    assert (item["arguments"], item["status"]) == ('{"a":', "incomplete")


def test_calls() -> None:
    """Of functions, also without arguments, of custom tools, of a namespace, and without an id."""
    items = output(
        ToolCallStart(0, 0, "c1", "now"),
        ToolCallStart(0, 1, "c2", "exec", "custom"),
        ToolCallDelta(0, 1, "ls -l"),
        ToolCallStart(0, 2, None, "spawn", namespace="agents"),
        ToolCallDelta(0, 2, "{}"),
    )
    called = {"status": "completed"}
    assert items == [
        {"type": "function_call", "id": "fc_req_1_0", "call_id": "c1", "name": "now", "arguments": "{}"} | called,
        {"type": "custom_tool_call", "id": "ctc_req_1_1", "call_id": "c2", "name": "exec", "input": "ls -l"} | called,
        {"type": "function_call", "id": "fc_req_1_2", "call_id": "call_req_1_2", "name": "spawn", "arguments": "{}"}
        | called
        | {"namespace": "agents"},
    ]


def test_the_deltas_of_a_call_are_its_arguments() -> None:
    reported, _ = written(*BEGIN, ToolCallStart(0, 0, "c1", "now"), *DONE_WELL)
    deltas = [event["delta"] for event in reported if event["type"] == "response.function_call_arguments.delta"]
    (done,) = [event for event in reported if event["type"] == "response.function_call_arguments.done"]
    assert ("".join(deltas), done["arguments"], done["name"]) == ("{}", "{}", "now")


@pytest.mark.parametrize("pieces", [1, 2])
def test_long_texts_arguments_and_log_probabilities_are_the_same_in_all_events(pieces: int) -> None:
    """They are encoded once, because an event of a megabyte has 20 ms."""
    text, arguments = 'é"\n' * 30_000, '{"a":"\\n"}' * 10_000
    chance: list[Json] = [{"token": "a", "logprob": -1, "bytes": [97], "top_logprobs": []}]
    words: list[Event] = [Extra("choice", {"logprobs": {"content": chance}}, 0), TextDelta(0, text)]
    asked: list[Event] = [ToolCallStart(0, 0, "c1", "now"), *[ToolCallDelta(0, 0, arguments)] * pieces]
    reported, _ = written(*BEGIN, *words * pieces, *asked, *DONE_WELL)
    ended = {event["type"]: event for event in reported}
    message, called = ended["response.completed"]["response"]["output"]
    part = message["content"][0]
    assert (part["text"], part["logprobs"]) == (text * pieces, chance * pieces)
    assert ended["response.content_part.done"]["part"] == part
    assert ended["response.output_text.done"]["text"] == text * pieces
    assert called["arguments"] == arguments * pieces == ended["response.function_call_arguments.done"]["arguments"]


@pytest.mark.slow
def test_only_so_many_log_probabilities_of_an_event_get_their_bytes() -> None:
    """To look at each of a million would hold the event loop."""
    chances = [{"token": "a", "top_logprobs": [{"token": "b"}]}] * 60_000
    writer = StreamWriter.for_call(DIALECT, OTHER)
    data = writer.write([*BEGIN, Extra("choice", {"logprobs": {"content": chances}}, 0), TextDelta(0, "a")])
    delta = json.loads(data.rpartition(b"data: ")[2])
    assert delta["logprobs"][0] == {"token": "a", "top_logprobs": [{"token": "b", "bytes": [98]}], "bytes": [97]}
    assert (len(delta["logprobs"]), delta["logprobs"][-1]) == (50_000, chances[-1])


def test_reasoning_has_a_summary_or_the_text_itself() -> None:
    """The text itself is a summary where the provider has another API: most clients show nothing else."""
    events = (
        BlockStart(0, 0, "reasoning"),
        ReasoningDelta(0, "First", part=0),
        ReasoningDelta(0, ".", part=0),
        ReasoningDelta(0, "Then.", part=1),
        BlockEnd(0, 0),
        BlockStart(0, 1, "reasoning"),
        ReasoningDelta(0, "H"),
        ReasoningDelta(0, "m."),
        BlockEnd(0, 1),
    )
    parts = [{"type": "summary_text", "text": "First."}, {"type": "summary_text", "text": "Then."}]
    for facts in (OWN, OTHER):
        summarised, raw = output(*events, facts=facts)
        assert summarised == {"type": "reasoning", "id": "rs_req_1_0", "summary": parts}
        if facts is OWN:
            content = [{"type": "reasoning_text", "text": "Hm."}]
            assert raw == {"type": "reasoning", "id": "rs_req_1_1", "summary": [], "content": content}
        else:
            summary = [{"type": "summary_text", "text": "Hm."}]
            assert raw == {"type": "reasoning", "id": "rs_req_1_1", "summary": summary}


def test_the_events_of_a_summary() -> None:
    thoughts = [ReasoningDelta(0, "First.", part=0), ReasoningDelta(0, "Then.", part=1)]
    reported, _ = written(*BEGIN, *thoughts, *DONE_WELL)
    part = [
        "response.reasoning_summary_part.added",
        "response.reasoning_summary_text.delta",
        "response.reasoning_summary_text.done",
        "response.reasoning_summary_part.done",
    ]
    assert types(reported)[3:-2] == [*part, *part]
    assert [event["summary_index"] for event in reported[3:-2]] == [0] * 4 + [1] * 4


def test_a_seal_of_another_api_is_wrapped_with_its_issuer() -> None:
    (item,) = output(
        BlockStart(0, 0, "reasoning", type="redacted_thinking"),
        Seal(0, 0, "anthropic", "abc", redacted=True),
        BlockEnd(0, 0),
    )
    assert item["summary"] == []
    assert unwrap(item["encrypted_content"]) == (ReasoningSeal("anthropic", "abc", redacted=True), "0badcafe")


def test_a_seal_of_this_api_is_wrapped_if_its_issuer_is_known() -> None:
    sealed: list[Event] = [BlockStart(0, 0, "reasoning", "rs_1"), Seal(0, 0, "openai", "gA"), BlockEnd(0, 0)]
    known = AnswerFacts(call_id="req_1", model="m", created=5, issuer="0badcafe")
    assert unwrap(output(*sealed, facts=known)[0]["encrypted_content"]) == (ReasoningSeal("openai", "gA"), "0badcafe")
    assert output(*sealed, facts=OWN)[0]["encrypted_content"] == "gA"


def test_a_seal_may_come_after_its_block() -> None:
    (item, _) = output(
        BlockStart(0, 0, "reasoning"),
        ReasoningDelta(0, "Hm."),
        BlockEnd(0, 0),
        Seal(0, 0, "anthropic", "abc"),
        BlockStart(0, 1, "text"),
        TextDelta(0, "Hi"),
        BlockEnd(0, 1),
    )
    assert unwrap(item["encrypted_content"]) == (ReasoningSeal("anthropic", "abc"), "0badcafe")


def test_several_texts_and_a_refusal_are_parts_of_one_message() -> None:
    (item,) = output(
        BlockStart(0, 0, "text"),
        TextDelta(0, "The tide is high."),
        Annotation(0, 0, url="https://weir.example/", title="Tides"),
        BlockEnd(0, 0),
        BlockStart(0, 1, "refusal"),
        RefusalDelta(0, "No"),
        RefusalDelta(0, " more."),
        BlockEnd(0, 1),
    )
    cited = {"type": "url_citation", "url": "https://weir.example/", "title": "Tides"} | {
        "start_index": 0,
        "end_index": 17,
    }
    assert item["content"] == [
        {"type": "output_text", "text": "The tide is high.", "annotations": [cited], "logprobs": []},
        {"type": "refusal", "refusal": "No more."},
    ]


def test_an_annotation_is_also_an_event() -> None:
    text: list[Event] = [
        BlockStart(0, 0, "text"),
        TextDelta(0, "High."),
        Annotation(0, 0, "https://weir.example/", end=4),
    ]
    reported, _ = written(*BEGIN, *text, BlockEnd(0, 0), *DONE_WELL)
    (event,) = [event for event in reported if event["type"] == "response.output_text.annotation.added"]
    assert (event["annotation_index"], event["annotation"]["end_index"]) == (0, 4)


def test_an_image_is_an_image_generation_call() -> None:
    (item,) = output(
        BlockStart(0, 0, "media", type="image"),
        MediaDelta(0, 0, "image/webp", "abc"),
        MediaDelta(0, 0, "image/webp", "def"),
        BlockEnd(0, 0),
    )
    assert item == {
        "type": "image_generation_call",
        "id": "item_req_1_0",
        "status": "completed",
        "output_format": "webp",
        "result": "abcdef",
    }


def test_what_responses_cannot_express_is_a_loss() -> None:
    events = [
        *BEGIN,
        ChoiceStart(1, "assistant"),
        TextDelta(1, "Another answer"),
        BlockStart(0, 0, "media", type="audio"),
        MediaDelta(0, 0, "audio/wav", "abc"),
        BlockEnd(0, 0),
        BlockStart(0, 1, "opaque", type="web_search_tool_result", data={}),
        BlockEnd(0, 1),
        ToolCallStart(0, 0, "srv", "web_search", server=True, block=2),
        ToolCallDelta(0, 0, "{}"),
        BlockEnd(0, 2),
        BlockStart(0, 3, "text"),
        TextDelta(0, "Hi"),
        Annotation(0, 3, title="A document"),
        BlockEnd(0, 3),
        *DONE_WELL,
    ]
    reported, losses = written(*events)
    expected = ["choices-dropped", "media-dropped", "server-activity-hidden", "server-activity-hidden"]
    assert sorted(losses) == sorted([*expected, "citation-dropped"])
    assert types(reported) == [*CREATED, *MESSAGE, "response.completed"]
    assert sorted(body_of(events)[1]) == sorted(losses)


# A provider of the same dialect.


def test_ids_and_further_fields_of_a_provider_of_responses_stay() -> None:
    events = [
        Start("resp_theirs", "weir-2", 1, "flex"),
        Extra("chunk", {"temperature": 0.7, "safety": "on", "service_tier": "flex"}),
        ChoiceStart(0, "assistant"),
        BlockStart(0, 0, "text", "msg_1", "message", {"phase": "commentary"}),
        TextDelta(0, "Hi"),
        BlockEnd(0, 0),
        BlockStart(0, 1, "text", "msg_2", "message"),
        TextDelta(0, "Bye"),
        BlockEnd(0, 1),
        ToolCallStart(0, 0, "c1", "f", block=2),
        Extra("tool", {"id": "fc_1", "caller": "x"}, 0, 0),
        BlockEnd(0, 2),
        *DONE_WELL,
    ]
    reported, _ = written(*events, facts=OWN)
    for response in (reported[-1]["response"], body_of(events, OWN)[0]):
        assert (response["id"], response["temperature"], response["safety"]) == ("resp_theirs", 0.7, "on")
        assert response["service_tier"] == "flex"
        first, second, call = response["output"]
        assert (first["id"], first["phase"], second["id"]) == ("msg_1", "commentary", "msg_2")
        assert (call["id"], call["call_id"], call["caller"]) == ("fc_1", "c1", "x")


def test_items_and_events_of_unknown_types_are_written_only_for_the_same_dialect() -> None:
    search: dict[str, object] = {
        "type": "web_search_call",
        "id": "ws_1",
        "status": "completed",
        "action": {"query": "tides"},
    }
    events: list[Event] = [
        *BEGIN,
        Extra(
            "event",
            {"type": "response.output_item.added", "output_index": 0, "item": search | {"status": "x"}},
            0,
            block=0,
        ),
        Extra(
            "event", {"type": "response.web_search_call.searching", "output_index": 0, "item_id": "ws_1"}, 0, block=0
        ),
        BlockStart(0, 0, "opaque", "ws_1", "web_search_call", search),
        BlockEnd(0, 0),
        BlockStart(0, 1, "text", "msg_1", "message"),
        TextDelta(0, "Hi"),
        BlockEnd(0, 1),
        *DONE_WELL,
    ]
    reported, losses = written(*events, facts=OWN)
    searched = ["output_item.added", "web_search_call.searching", "output_item.done"]
    assert types(reported) == [*CREATED, *(f"response.{name}" for name in searched), *MESSAGE, "response.completed"]
    assert (reported[4]["item"], losses) == (search, [])
    assert [item["type"] for item in reported[-1]["response"]["output"]] == ["web_search_call", "message"]
    assert body_of(events, OWN)[0]["output"][0] == search
    reported, losses = written(*events)
    assert (types(reported), losses) == ([*CREATED, *MESSAGE, "response.completed"], ["server-activity-hidden"])


def test_a_second_item_with_the_same_id_gets_another_one() -> None:
    """Items may overlap: what follows of an earlier one is another block with its id."""
    texts: list[Event] = []
    for block, id in enumerate(("msg_1", "msg_2", "msg_1")):
        texts += [BlockStart(0, block, "text", id, "message"), TextDelta(0, "Hi"), BlockEnd(0, block)]
    ids = [item["id"] for item in output(*texts, facts=OWN)]
    assert (ids[:2], len(set(ids))) == (["msg_1", "msg_2"], 3)


# Before the first content, and failures.


def test_nothing_is_written_before_the_first_content() -> None:
    writer = StreamWriter.for_call(DIALECT, OTHER)
    assert writer.write([*BEGIN, BlockStart(0, 0, "reasoning"), Seal(0, 0, "anthropic", "abc"), BlockEnd(0, 0)]) == b""
    beat = events_in(writer.heartbeat())
    assert [(event["type"], event["sequence_number"]) for event in beat] == list(zip(CREATED, (0, 1), strict=True))
    rest = events_in(writer.write([BlockStart(0, 1, "text"), TextDelta(0, "Hi")]))
    assert types(rest) == ["response.output_item.added", "response.output_item.done", *MESSAGE[:3]]
    assert [event["sequence_number"] for event in rest] == [2, 3, 4, 5, 6]


def test_heartbeats_are_numbered_events() -> None:
    writer = StreamWriter.for_call(DIALECT, OTHER)
    begun = events_in(writer.write([*BEGIN, TextDelta(0, "Hi")]))
    beats = events_in(writer.heartbeat() + writer.heartbeat())
    rest = events_in(writer.write(DONE_WELL))
    every = [*begun, *beats, *rest]
    assert types(beats) == ["response.in_progress"] * 2
    assert [event["sequence_number"] for event in every] == list(range(len(every)))


def test_heartbeats_of_an_earlier_attempt_count() -> None:
    first = StreamWriter.for_call(DIALECT, OTHER)
    beats = events_in(first.heartbeat() + first.heartbeat())
    facts = AnswerFacts(call_id="req_1", model="m", created=9, heartbeats=2)
    second = StreamWriter.for_call(DIALECT, facts)
    rest = events_in(second.write([Start("resp_theirs", "weir-2", 1), *HI[1:]]))
    every = [*beats, *rest]
    assert types(every) == [*CREATED, "response.in_progress", *MESSAGE, "response.completed"]
    assert [event["sequence_number"] for event in every] == list(range(len(every)))
    assert {event["response"]["id"] for event in every if "response" in event} == {"resp_req_1"}


def test_events_before_the_content_do_not_fill_the_memory() -> None:
    writer = StreamWriter.for_call(DIALECT, OWN)
    large: dict[str, object] = {"type": "web_search_call", "results": ["x" * 1000] * 20}
    pieces = [
        writer.write([BlockStart(0, number, "opaque", f"ws_{number}", "web_search_call", large), BlockEnd(0, number)])
        for number in range(3)
    ]
    assert pieces[0] == b""
    assert len(pieces[1]) > 65_536


FAILURES: dict[str, tuple[Failure, str, str]] = {
    "a reset": (
        Failure(code="upstream_reset", message="the connection was reset"),
        "server_error",
        "the connection was reset (upstream_reset)",
    ),
    "too long": (
        Failure(code="context_length_exceeded", message="Too many tokens."),
        "context_length_exceeded",
        "Too many tokens.",
    ),
    "limited": (
        Failure(code="upstream_rate_limited", message="Slow down.", retry_after="7"),
        "rate_limit_exceeded",
        "Slow down. Please try again in 7s. (upstream_rate_limited)",
    ),
    "overloaded": (
        Failure(code="upstream_error", message="Overloaded", upstream_status=529),
        "slow_down",
        "Overloaded (upstream_error)",
    ),
    "no budget": (Failure(code="budget_exceeded", message="No."), "insufficient_quota", "No. (budget_exceeded)"),
}


@pytest.mark.parametrize(("failure", "code", "message"), FAILURES.values(), ids=FAILURES)
def test_a_failure_is_an_error_and_a_failed_response(failure: Failure, code: str, message: str) -> None:
    writer = StreamWriter.for_call(DIALECT, OTHER)
    begun = events_in(writer.write([*BEGIN, TextDelta(0, "Half")]))
    error, failed = events_in(writer.fail(failure))
    assert [error["sequence_number"], failed["sequence_number"]] == [len(begun), len(begun) + 1]
    assert (error["type"], error["error"]["code"], error["error"]["request_id"]) == ("error", failure.code, "req_1")
    assert (failed["type"], failed["response"]["status"]) == ("response.failed", "failed")
    assert failed["response"]["error"] == {"code": code, "message": message}


def test_a_failure_before_any_content_creates_the_response() -> None:
    writer = StreamWriter.for_call(DIALECT, OTHER)
    assert types(events_in(writer.fail(FAILURES["a reset"][0]))) == [*CREATED, "error", "response.failed"]


def test_a_stream_that_is_not_completed_has_one_failure() -> None:
    fault = Fault("provider-error", "Overloaded", 0, 1, {"type": "overloaded_error"})
    reported, _ = written(*BEGIN, TextDelta(0, "Half"), fault, End("failed"))
    assert types(reported)[-2:] == ["error", "response.failed"]
    assert types(reported).count("response.failed") == 1
    assert reported[-1]["response"]["error"]["code"] == "slow_down"
    cut, _ = written(*BEGIN, TextDelta(0, "Half"), End("truncated"))
    assert types(cut)[-2:] == ["error", "response.failed"]


# Any answer.


@pytest.mark.slow
@settings(max_examples=100)
@given(answers())
def test_every_answer_is_a_whole_response(events: list[Event]) -> None:
    """Every item and part has a start and an end, in order, with one id; the whole is what the pieces are."""
    reported, _ = written(*events)
    ends = [event for event in events if isinstance(event, End)]
    kinds = types(reported)
    if not ends or ends[0].ending != "completed" or "response.failed" in kinds:
        return
    added = {event["output_index"]: event["item"] for event in reported if event["type"].endswith("item.added")}
    done = {event["output_index"]: event["item"] for event in reported if event["type"].endswith("item.done")}
    assert list(added) == list(done) == list(range(len(added)))
    assert reported[-1]["response"]["output"] == list(done.values())
    for event in reported:
        if "item_id" in event:
            assert event["item_id"] == added[event["output_index"]]["id"] == done[event["output_index"]]["id"]
    assert len({item["id"] for item in done.values()}) == len(done)
    for name in ("response.output_text", "response.refusal", "response.reasoning_text"):
        deltas = "".join(event["delta"] for event in reported if event["type"] == f"{name}.delta")
        member = "refusal" if name == "response.refusal" else "text"
        assert deltas == "".join(event[member] for event in reported if event["type"] == f"{name}.done")
    assert kinds.count("response.content_part.added") == kinds.count("response.content_part.done")
    body, _ = body_of(events)
    assert body["status"] == reported[-1]["response"]["status"]
