"""Borders between blocks are added to chat streams, which have none; and answers of ordered parts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from penstock import (
    Accumulator,
    Annotation,
    BlockEnd,
    BlockStart,
    ChoiceStart,
    Citation,
    End,
    Event,
    Extra,
    Finish,
    MediaDelta,
    MediaPart,
    OpaquePart,
    ReasoningDelta,
    ReasoningPart,
    ReasoningSeal,
    RefusalDelta,
    Seal,
    Start,
    StreamReader,
    StreamWriter,
    TextDelta,
    TextPart,
    ToolCall,
    ToolCallDelta,
    ToolCallStart,
)
from penstock.core.hub.blocks import Blocks
from penstock.core.hub.grammar import Grammar
from penstock.core.hub.losses import Loss
from penstock.core.hub.sink import Sink
from tests.cpu import calls_of
from tests.legal import overlaps

BEGIN: list[Event] = [Start("id", "model", 1), ChoiceStart(0, "assistant")]
CUSTOM = ToolCallStart(0, 0, "call_0", "sh", "custom")
FINISH: list[Event] = [Finish(0, "stop"), End("completed")]


def call(number: int, name: str = "f") -> ToolCallStart:
    return ToolCallStart(0, number, f"call_{number}", name)


def arguments(number: int, text: str) -> ToolCallDelta:
    return ToolCallDelta(0, number, text)


def start(block: int, kind: str) -> BlockStart:
    return BlockStart(0, block, kind)  # type: ignore[arg-type]


def in_block(event: ToolCallStart, block: int) -> ToolCallStart:
    return ToolCallStart(event.choice, event.call, event.id, event.name, block=block)


def named(events: list[Event]) -> list[Event]:
    """The events of blocks that come one after the other: each delta, and each extra of a call, names its block."""
    result: list[Event] = []
    block = None
    for event in events:
        match event:
            case BlockStart() | ToolCallStart():
                block = event.block
            case TextDelta() | ReasoningDelta() | RefusalDelta() | ToolCallDelta() | Extra("tool"):
                event = structs.replace(event, block=block)
            case _:
                pass
        result.append(event)
    return result


def ordered(*events: Event) -> list[Event]:
    return [event for event in Blocks([]).order([*events, Finish(0, "stop")]) if not isinstance(event, Finish)]


CASES: dict[str, tuple[list[Event], list[Event]]] = {
    "text": (
        [TextDelta(0, "a"), TextDelta(0, "b")],
        [start(0, "text"), TextDelta(0, "a"), TextDelta(0, "b"), BlockEnd(0, 0)],
    ),
    "reasoning, then text": (
        [ReasoningDelta(0, "hm"), TextDelta(0, "a")],
        [
            *(start(0, "reasoning"), ReasoningDelta(0, "hm"), BlockEnd(0, 0)),
            *(start(1, "text"), TextDelta(0, "a"), BlockEnd(0, 1)),
        ],
    ),
    "text around a call": (
        [TextDelta(0, "a"), call(0), arguments(0, "{}"), TextDelta(0, "b")],
        [
            *(start(0, "text"), TextDelta(0, "a"), BlockEnd(0, 0)),
            *(in_block(call(0), 1), arguments(0, "{}"), BlockEnd(0, 1)),
            *(start(2, "text"), TextDelta(0, "b"), BlockEnd(0, 2)),
        ],
    ),
    "two calls, one after the other": (
        [call(0), arguments(0, '{"a":'), arguments(0, "1}"), call(1), arguments(1, "{}")],
        [
            *(in_block(call(0), 0), arguments(0, '{"a":'), arguments(0, "1}"), BlockEnd(0, 0)),
            *(in_block(call(1), 1), arguments(1, "{}"), BlockEnd(0, 1)),
        ],
    ),
    "a call without arguments ends with its choice": (
        [call(0), call(1), arguments(1, "{}")],
        [in_block(call(0), 0), BlockEnd(0, 0), in_block(call(1), 1), arguments(1, "{}"), BlockEnd(0, 1)],
    ),
    "heads before arguments": (
        [call(0), call(1), call(2), arguments(2, "{"), arguments(1, "{}"), arguments(0, "[1]"), arguments(2, "}")],
        [
            *(in_block(call(0), 0), arguments(0, "[1]"), BlockEnd(0, 0)),
            *(in_block(call(1), 1), arguments(1, "{}"), BlockEnd(0, 1)),
            *(in_block(call(2), 2), arguments(2, "{"), arguments(2, "}"), BlockEnd(0, 2)),
        ],
    ),
    "arguments whose end cannot be recognised": (
        [call(0), arguments(0, "1"), call(1), arguments(1, "{}"), arguments(0, "2")],
        [
            *(in_block(call(0), 0), arguments(0, "1"), arguments(0, "2"), BlockEnd(0, 0)),
            *(in_block(call(1), 1), arguments(1, "{}"), BlockEnd(0, 1)),
        ],
    ),
    "the free-form input of a custom tool": (
        [CUSTOM, arguments(0, "{}"), call(1), arguments(1, "{}"), arguments(0, "{}")],
        [
            *(structs.replace(CUSTOM, block=0), arguments(0, "{}"), arguments(0, "{}"), BlockEnd(0, 0)),
            *(in_block(call(1), 1), arguments(1, "{}"), BlockEnd(0, 1)),
        ],
    ),
    "extras of a call that waits": (
        [call(0), call(1), Extra("tool", {"a": 1}, 0, 1), Extra("chunk", {"b": 2}), arguments(0, "{}")],
        [
            *(in_block(call(0), 0), Extra("chunk", {"b": 2}), arguments(0, "{}"), BlockEnd(0, 0)),
            *(in_block(call(1), 1), Extra("tool", {"a": 1}, 0, 1), BlockEnd(0, 1)),
        ],
    ),
    "interleaved calls come one after the other": (
        [call(0), arguments(0, '{"a":'), call(1), arguments(1, "{"), arguments(0, "1}"), arguments(1, "}")],
        [
            *(in_block(call(0), 0), arguments(0, '{"a":'), arguments(0, "1}"), BlockEnd(0, 0)),
            *(in_block(call(1), 1), arguments(1, "{"), arguments(1, "}"), BlockEnd(0, 1)),
        ],
    ),
    "a call that is never whole ends with its choice": (
        [call(0), arguments(0, '{"a":'), TextDelta(0, "b")],
        [
            *(in_block(call(0), 0), arguments(0, '{"a":'), BlockEnd(0, 0)),
            *(start(1, "text"), TextDelta(0, "b"), BlockEnd(0, 1)),
        ],
    ),
    "a refusal": (
        [RefusalDelta(0, "no")],
        [start(0, "refusal"), RefusalDelta(0, "no"), BlockEnd(0, 0)],
    ),
    "what has borders already": (
        [start(3, "text"), TextDelta(0, "a"), BlockEnd(0, 3)],
        [start(3, "text"), TextDelta(0, "a"), BlockEnd(0, 3)],
    ),
    "calls with borders that interleave": (
        [
            *(in_block(call(0), 0), in_block(call(1), 1), arguments(1, "{}"), arguments(0, "{")),
            *(BlockEnd(0, 1), start(2, "text"), TextDelta(0, "a"), arguments(0, "}"), BlockEnd(0, 0, {"b": 1})),
            *(Extra("event", {"c": 2}, 0, block=2), BlockEnd(0, 2), Seal(0, 0, "issuer", "late")),
        ],
        [
            *(in_block(call(0), 0), arguments(0, "{"), arguments(0, "}"), BlockEnd(0, 0, {"b": 1})),
            *(in_block(call(1), 1), arguments(1, "{}"), BlockEnd(0, 1)),
            *(start(2, "text"), TextDelta(0, "a"), Extra("event", {"c": 2}, 0, block=2), BlockEnd(0, 2)),
            Seal(0, 0, "issuer", "late"),
        ],
    ),
}


@pytest.mark.parametrize(("events", "expected"), CASES.values(), ids=CASES)
def test_borders(events: list[Event], expected: list[Event]) -> None:
    assert ordered(*events) == named(expected)


def test_calls_that_come_one_after_the_other_stream_as_they_arrive() -> None:
    blocks = Blocks([])
    assert blocks.order([call(0), arguments(0, "{}")]) == named([in_block(call(0), 0), arguments(0, "{}")])
    assert blocks.order([call(1)]) == [BlockEnd(0, 0), in_block(call(1), 1)]
    assert blocks.order([arguments(1, "{")]) == [ToolCallDelta(0, 1, "{", 1)]


def test_deltas_that_wait_are_joined() -> None:
    waiting: list[Event] = [call(0), call(1), *[arguments(1, "x")] * 20_000]
    emitted = Blocks([]).order([*waiting, *FINISH])
    joined = [event.arguments for event in emitted if isinstance(event, ToolCallDelta)]
    assert "".join(joined) == "x" * 20_000
    assert len(joined) < 10
    assert overlaps(emitted) == []


def test_a_second_value_of_a_call_that_has_ended_is_a_loss() -> None:
    losses: list[Loss] = []
    events: list[Event] = [call(0), arguments(0, "{}"), TextDelta(0, "a"), arguments(0, " \n"), arguments(0, '{"b":1}')]
    assert overlaps(Blocks(losses).order([*events, *FINISH])) == []
    assert losses == [Loss("arguments-dropped")]


@pytest.mark.parametrize("opening", [" ", "{"], ids=["no arguments", "incomplete arguments"])
def test_twice_the_waiting_blocks_take_twice_the_work(opening: str) -> None:
    def work(count: int) -> int:
        begun: list[Event] = [event for number in range(count) for event in (call(number), arguments(number, opening))]
        pieces = [arguments(number % count, "1") for number in range(10 * count)]
        return calls_of(lambda: Blocks([]).order([*begun, *pieces, *FINISH]))

    assert work(200) < 2.1 * work(100)


SENT_TEXT = st.one_of(
    st.builds(TextDelta, st.just(0), st.text(max_size=3)),
    st.builds(ReasoningDelta, st.just(0), st.text(max_size=3)),
    st.builds(RefusalDelta, st.just(0), st.text(max_size=3)),
    st.builds(arguments, st.integers(0, 2), st.sampled_from(['{"a":', "1}", "{}", '"', "x"])),
)


@given(st.lists(SENT_TEXT, max_size=12))
def test_borders_change_no_answer(sent_text: list[Event]) -> None:
    begun: set[int] = set()
    events: list[Event] = list(BEGIN)
    for event in sent_text:
        if isinstance(event, ToolCallDelta) and event.call not in begun:
            begun.add(event.call)
            events.append(call(event.call))
        events.append(event)
    events += FINISH
    plain, bordered, losses = Accumulator(), Accumulator(), list[Loss]()
    blocks = Blocks(losses)
    plain.extend(events)
    with_borders = [emitted for event in events for emitted in blocks.order([event])]
    bordered.extend(with_borders)
    assert overlaps(with_borders) == []
    before, after = plain.completion.choices[0], bordered.completion.choices[0]
    names = ["text", "reasoning", "refusal", "finish_reason", *([] if losses else ["tool_calls"])]
    assert {name: getattr(before, name) for name in names} == {name: getattr(after, name) for name in names}


def folded(*events: Event) -> tuple[object, ...]:
    answer = Accumulator("test")
    answer.extend([*BEGIN, *events])
    return answer.completion.choices[0].parts


def test_an_answer_is_its_parts_in_order() -> None:
    parts = folded(
        *(start(0, "reasoning"), ReasoningDelta(0, "hm"), BlockEnd(0, 0)),
        *(start(1, "text"), TextDelta(0, "a"), Annotation(0, 1, "http://b", "B"), BlockEnd(0, 1)),
        *(in_block(call(0), 2), arguments(0, "{}"), BlockEnd(0, 2)),
        Seal(0, 0, "issuer", "proof"),
        *(start(3, "text"), TextDelta(0, "c"), BlockEnd(0, 3)),
        *(start(4, "text"), TextDelta(0, "d"), BlockEnd(0, 4)),
        *(start(5, "media"), MediaDelta(0, 5, "image/png", "AA"), MediaDelta(0, 5, "image/png", "BB")),
        BlockStart(0, 6, "result", type="search_result", data={"hits": 1}),
    )
    assert parts == (
        ReasoningPart("hm", seals=(ReasoningSeal("issuer", "proof"),), field="reasoning_content"),
        TextPart("a", (Citation("http://b", "B"),)),
        ToolCall("call_0", "f", "{}"),
        TextPart("c"),
        TextPart("d"),
        MediaPart(kind="image", mime="image/png", data="AABB"),
        OpaquePart("test", "search_result", {"hits": 1}),
    )


def test_a_summary_of_reasoning_is_the_reasoning_where_there_is_no_other() -> None:
    answer = Accumulator()
    answer.extend(
        [*BEGIN, ReasoningDelta(0, "a", part=0), ReasoningDelta(0, "b", part=1), ReasoningDelta(0, "c", part=1)]
    )
    choice = answer.completion.choices[0]
    assert choice.parts == (ReasoningPart(summary=("a", "bc"), field="reasoning_content"),)
    assert choice.reasoning == "a\n\nbc"


def test_a_call_that_the_provider_executes_is_no_call_for_the_client() -> None:
    answer = Accumulator()
    answer.extend([*BEGIN, ToolCallStart(0, 0, "s", "web_search", server=True, block=0), arguments(0, "{}")])
    choice = answer.completion.choices[0]
    assert choice.tool_calls == ()
    assert [part.name for part in choice.parts if isinstance(part, ToolCall)] == ["web_search"]


def test_the_grammar_ends_blocks_that_a_provider_left_open() -> None:
    grammar, sink = Grammar(), Sink()
    seen: list[Event] = [
        *BEGIN,
        *(start(0, "text"), TextDelta(0, "a")),
        *(start(1, "reasoning"), ReasoningDelta(0, "b")),
        *(in_block(call(0), 2), in_block(call(1), 3), BlockEnd(0, 2), BlockEnd(0, 2)),
        Finish(0, "tool_calls"),
    ]
    grammar.order(seen, sink)
    grammar.close(sink, cut=False)
    assert sink.take() == [
        *BEGIN,
        *(start(0, "text"), TextDelta(0, "a"), BlockEnd(0, 0)),
        *(start(1, "reasoning"), ReasoningDelta(0, "b"), BlockEnd(0, 1)),
        *(in_block(call(0), 2), in_block(call(1), 3), BlockEnd(0, 2), BlockEnd(0, 3)),
        Finish(0, "tool_calls"),
        End("completed"),
    ]


MISPLACED: dict[str, list[Event]] = {
    "text before everything": [TextDelta(0, "x")],
    "text of a choice that has not begun": [*BEGIN, TextDelta(1, "x")],
    "a call of a choice that has not begun": [*BEGIN, ToolCallStart(1, 0, "c", "f")],
    "the finish of a choice that has not begun": [*BEGIN, Finish(1, "stop")],
    "arguments of a call that has not begun": [*BEGIN, arguments(0, "{}")],
    "text after the end of its block": [*BEGIN, start(0, "text"), BlockEnd(0, 0), TextDelta(0, "x")],
    "text in a block of another kind": [*BEGIN, start(0, "reasoning"), TextDelta(0, "x")],
    "arguments after the end of their call": [*BEGIN, in_block(call(0), 0), BlockEnd(0, 0), arguments(0, "{}")],
    "media of no block": [*BEGIN, MediaDelta(0, 7, "image/png", "AA")],
    "text after a finish": [*BEGIN, Finish(0, "stop"), TextDelta(1, "x")],
}


@pytest.mark.parametrize("seen", MISPLACED.values(), ids=MISPLACED)
def test_content_without_a_place_is_a_fault(seen: list[Event]) -> None:
    grammar, sink = Grammar(), Sink()
    grammar.order(seen, sink)
    grammar.close(sink, cut=False)
    events = sink.take()
    assert seen[-1] not in events
    assert isinstance(events[-1], End)
    assert events[-1].ending == "failed"


def test_a_chat_stream_is_written_without_blocks_and_says_what_it_lost() -> None:
    writer = StreamWriter(id="id", model="model", created=1)
    wire = writer.write(
        [
            *BEGIN,
            *(start(0, "reasoning"), ReasoningDelta(0, "a", part=0), ReasoningDelta(0, "b", part=1)),
            *(Seal(0, 0, "issuer", "proof"), BlockEnd(0, 0)),
            *(ToolCallStart(0, 0, "s", "web_search", server=True, block=1), arguments(0, "{}"), BlockEnd(0, 1)),
            *(start(2, "text"), TextDelta(0, "c"), Annotation(0, 2, "http://d", "D"), BlockEnd(0, 2)),
            *(BlockStart(0, 3, "media", type="image"), MediaDelta(0, 3, "image/png", "AA"), BlockEnd(0, 3)),
            *FINISH,
        ]
    )
    assert [(loss.code, loss.detail) for loss in writer.losses] == [
        ("server-activity-hidden", "web_search"),
        ("media-dropped", "image"),
    ]
    reader, answer = StreamReader(), Accumulator()
    answer.extend([*reader.feed(wire), *reader.close()])
    choice = answer.completion.choices[0]
    assert (choice.reasoning, choice.text, choice.tool_calls) == ("a\n\nb", "c", ())
    cited: dict[str, object] = {"type": "url_citation", "url_citation": {"url": "http://d", "title": "D"}}
    sealed = {"type": "reasoning.encrypted", "data": "penstock1.issuer..cHJvb2Y", "length": 4, "index": 0}
    assert choice.message_extras == {"reasoning_details": [sealed]}
    (text,) = (part for part in choice.parts if isinstance(part, TextPart))
    assert text.citations == (Citation("http://d", "D", data=cited),)
