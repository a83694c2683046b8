"""The usual opening and ending of Responses are read without the slow path, and give its events.

They are written anew, so a client gets the same bytes of them on both paths.
"""

import json
from typing import Any

import pytest

from penstock import StreamReader
from penstock.core.events import Extra, Start, UsageReport
from penstock.core.usage import Tokens
from tests.invariants import CountingReader, SlowReader, opening_of, relayed, without_padding
from tests.responses import (
    DIALECT,
    USAGE,
    Json,
    added,
    begins,
    calls_all,
    completes,
    done,
    fails,
    function,
    message,
    named,
    of_item,
    part,
    reasoning,
    says,
    stops,
    thinks_all,
)
from tests.streams import read

WORDS = ("High", " at", " noon.")
TEXT = "".join(WORDS)
PLACE: Json = {"content_index": 0}
FULL: Json = {"tools": [], "metadata": {"a": "b"}, "temperature": 1.0, "service_tier": "auto"}


def opens(id: str = "msg_1", *, begin: list[Json] | None = None, item: Json | None = None, **fields: Any) -> list[Json]:
    """The opening of an answer that begins with a message."""
    return [
        *(begins() if begin is None else begin),
        added(0, item or message(id=id, status="in_progress")),
        of_item("content_part.added", 0, id, **PLACE, part=part() | fields),
    ]


def closes(
    text: str = TEXT, id: str = "msg_1", *, item: Json | None = None, finish: Json | None = None, **fields: Any
) -> list[Json]:
    """The ending of that answer."""
    whole = message(part(text), id=id)
    return [
        of_item("output_text.done", 0, id, **PLACE, text=text, logprobs=[]),
        of_item("content_part.done", 0, id, **PLACE, part=part(text) | fields),
        done(0, item or whole),
        finish or completes(whole),
    ]


def reads(
    opening: list[Json] | None = None,
    ending: list[Json] | None = None,
    *,
    id: str = "msg_1",
    words: tuple[str, ...] = WORDS,
    index: int = 0,
    last: bool = False,
) -> list[bytes]:
    """The reads of an answer: its opening, one for each word, its ending. With `last`, numbers come last, and padding
    before them."""
    padding = {"obfuscation": "xY7"} if last else {}
    parts = [
        opens(id) if opening is None else opening,
        *([says(word, index, id, **padding)] for word in words),
        closes("".join(words), id) if ending is None else ending,
    ]
    pieces, number = [], 0
    for events in parts:
        numbers = [{"sequence_number": number + place} for place in range(len(events))]
        pieces.append(
            b"".join(named(event | own if last else own | event) for event, own in zip(events, numbers, strict=True))
        )
        number += len(events)
    return pieces


def renamed(pieces: list[bytes]) -> list[bytes]:
    """Another answer of the same kind."""
    changes = {b"resp_w1": b"resp_other:2", b"1767225600": b"1767229999", b"msg_1": b"msg_a.b-c"}
    for old, new in changes.items():
        pieces = [piece.replace(old, new) for piece in pieces]
    return pieces


def slow_frames(known: list[bytes], pieces: list[bytes]) -> int:
    """How many events of an answer the slow path reads after another answer. The events are the same in any case, and
    so is what a client gets."""
    opening = opening_of(b"".join(known), together=known[0].count(b"\n\n"), dialect=DIALECT)
    reader = CountingReader(DIALECT, opening=opening)
    assert read(*pieces, reader=reader) == read(b"".join(pieces), reader=SlowReader(DIALECT))
    for heartbeat in (-1, 1, 3):
        slow = without_padding(relayed(pieces, SlowReader(DIALECT), heartbeat)[0])
        fast = relayed(pieces, StreamReader(DIALECT, opening=opening), heartbeat)[0]
        assert without_padding(fast) == slow
    return reader.slow_frames


@pytest.mark.parametrize(
    "answer",
    {
        "as in tests": reads(),
        "with all members": reads(opens(begin=begins(**FULL)), closes(finish=completes(message(part(TEXT)), **FULL))),
        "numbers at the end": reads(last=True),
        "an item with more members": reads(opens(item=message(status="in_progress", phase="final_answer"))),
        "other words": reads(words=("Ebb", "·", "für 潮")),
    }.values(),
)
def test_the_second_answer_takes_the_fast_path_as_a_whole(answer: list[bytes]) -> None:
    other = renamed(answer)
    assert slow_frames(answer, other) == 0
    opening = opening_of(b"".join(answer), together=4, dialect=DIALECT)
    assert relayed(other, StreamReader(DIALECT, opening=opening))[1] == len(WORDS) - 1  # all words but the first
    assert slow_frames(answer, [other[0] + other[1], *other[2:]]) == 0  # the opening comes with the first word
    assert slow_frames([answer[0] + answer[1], *answer[2:]], other) == 0  # and so did the one that was learned
    assert slow_frames(answer, [*other[:2], other[2] + other[3], other[4]]) == 0


def test_the_events_have_the_values_of_their_own_answer() -> None:
    opening = opening_of(b"".join(reads()), together=4, dialect=DIALECT)
    pieces = renamed(reads(ending=closes(finish=completes(message(part(TEXT)), service_tier="flex"))))
    events = read(*pieces, reader=StreamReader(DIALECT, opening=opening))
    assert events[0] == Start("resp_other:2", "weir-3", 1_767_229_999)
    assert Extra("chunk", {"service_tier": "flex"}) in events
    (usage,) = (event.usage for event in events if isinstance(event, UsageReport))
    assert (Tokens.of(usage), usage.tier) == (Tokens(input=7, output=4), "flex")


@pytest.mark.parametrize(
    "opening",
    {
        "another model": opens(begin=begins(model="weir-4")),
        "an empty id": opens(begin=begins(id="")),
        "an id with an escape": opens(begin=begins(id='a"b')),
        "ids that differ": opens(begin=[begins()[0], begins(id="resp_w2")[1]]),
        "times that differ": opens(begin=[begins()[0], begins(created_at=1_767_225_601)[1]]),
        "a time that is not one": opens(begin=begins(created_at=1_767_225_600.5)),
        "the id as another member": opens(begin=begins(prompt_cache_key="resp_w1")),
        "the item's id as another member": opens(begin=begins(prompt_cache_key="msg_1")),
        "the time in a text": opens(begin=begins(user="1767225600")),
        "no second event": opens(begin=begins()[:1]),
        "an event more": opens(begin=[*begins(), begins()[1]]),
        "text in the part": opens(text="High"),
        "other text in the part": opens(text="Low"),
        "text in the item": opens(item=message(part("High"), status="in_progress")),
        "another item id in the part": [*opens()[:3], opens("msg_2")[3]],
        "reasoning before the message": [*begins(), *thinks_all(["Hm"]), *opens()[2:]],
        "a refusal": [*opens()[:3], opens()[3] | {"part": {"type": "refusal", "refusal": ""}}],
        "no part": opens()[:3],
        "another index": [*begins(), added(1, message(status="in_progress")), opens()[3] | {"output_index": 1}],
        "an index that is none": [*begins(), opens()[2] | {"output_index": False}, opens()[3]],
    }.values(),
)
def test_another_opening_takes_the_slow_path(opening: list[Json]) -> None:
    first, second = reads(), reads(opening)
    assert slow_frames(first, second) > 0
    slow_frames(second, first)  # asserts that the events are right, whatever was learned
    slow_frames(second, renamed(second))
    slow_frames(second, reads(opening, words=("Low", " tide")))


WHOLE = message(part(TEXT))


def completed(**fields: object) -> Json:
    """`response.completed` with these members."""
    whole = completes(WHOLE)
    return whole | {"response": whole["response"] | fields}


UNUSUAL: dict[str, list[Json]] = {
    "more text": closes(TEXT + "!"),
    "less text": closes(TEXT[:-1]),
    "other text": closes("Low at noon."),
    "other text in the part": closes(text="Low at noon."),
    "other text in the item": closes(item=message(part("Low at noon."))),
    "more text in the item": closes(item=message(part(TEXT + "!"))),
    "no text": closes(""),
    "another item id": closes(id="msg_2"),
    "an annotation": closes(annotations=[{"type": "url_citation", "url": "http://a"}]),
    "an annotation in the item": closes(item=message(part(TEXT, annotations=[{"type": "url_citation"}]))),
    "two parts": closes(item=message(part(TEXT), part("more"))),
    "an incomplete item": closes(item=message(part(TEXT), status="incomplete")),
    "an item with another member": closes(item=message(part(TEXT), phase="final_answer")),
    "another item": [*closes()[:3], *thinks_all(["Hm"], index=1), completes(WHOLE, reasoning("Hm"))],
    "a call": [*closes()[:3], *calls_all(index=1), completes(WHOLE, function())],
    "an item without events": [*closes()[:3], completes(WHOLE, message(part("more"), id="msg_2"))],
    "no output": closes(finish=completes()),
    "an output of another type": closes(finish=completes(reasoning("Hm"))),
    "an output that is none": closes(finish=completed(output={})),
    "no usage": closes(finish=completed(usage=None)),
    "an incomplete usage": closes(finish=completes(WHOLE, usage={"input_tokens": 7, "output_tokens": 4})),
    "a usage without output": closes(finish=completes(WHOLE, usage=USAGE | {"output_tokens": 0, "total_tokens": 7})),
    "a usage with another total": closes(finish=completes(WHOLE, usage=USAGE | {"total_tokens": 12})),
    "an odd count": closes(finish=completes(WHOLE, usage=USAGE | {"output_tokens": "4"})),
    "an absurd count": closes(finish=completes(WHOLE, usage=USAGE | {"output_tokens": 10**12})),
    "another id": closes(finish=completes(WHOLE, id="resp_w2")),
    "another model": closes(finish=completes(WHOLE, model="weir-4")),
    "another time": closes(finish=completes(WHOLE, created_at=1_767_225_601)),
    "another status": closes(finish=completed(status="failed")),
    "incomplete": closes(finish=stops("max_output_tokens", WHOLE)),
    "failed": closes(finish=fails()),
    "a member beside the response": closes(finish=completes(WHOLE) | {"mood": "calm"}),
    "deep JSON": closes(finish=completes(WHOLE, metadata=json.loads("[" * 300 + "]" * 300))),
    "no end": closes()[:3],
    "only the end": closes()[3:],
    "without the part": [closes()[0], *closes()[2:]],
    "the end twice": [*closes(), closes()[3]],
    "text after the end": [*closes(), says("more")],
    "a gap in the numbers": [*closes()[:2], *(event | {"sequence_number": 20} for event in closes()[2:])],
    "a number that is missing": [closes()[0] | {"sequence_number": None}, *closes()[1:]],
    "a heartbeat": [begins()[1], *closes()],
}


@pytest.mark.parametrize("after_slow_text", [False, True])
@pytest.mark.parametrize("ending", UNUSUAL.values(), ids=UNUSUAL)
def test_an_unusual_ending_takes_the_slow_path(ending: list[Json], after_slow_text: bool) -> None:
    pieces = renamed(reads(ending=ending))
    if after_slow_text:
        pieces[1] = pieces[1].replace(b'"delta":"High"', b'"delta":"\\u0048igh"')
    assert slow_frames(reads(), pieces) > after_slow_text
    single = [named(event | {"sequence_number": 7 + place} | event) for place, event in enumerate(ending)]
    slow_frames(reads(), [*reads()[:-1], *single])  # asserts that the events are right


def test_the_usual_ending_of_a_text_with_escapes_takes_the_fast_path() -> None:
    words = ("High", '\n"', " at", "\u2028", " noon.")
    assert slow_frames(reads(), reads(words=words)) == 2
    later = [*begins(), *thinks_all(["Hm"]), *opens()[2:]]
    later[-2:] = [added(1, message(status="in_progress")), opens()[3] | {"output_index": 1}]
    output = (reasoning("Hm"), message(part(TEXT)))
    ending = [*(event | {"output_index": 1} for event in closes()[:3]), completes(*output)]
    assert slow_frames(reads(), reads(later, ending, index=1)) == len(later) + 1


def test_what_follows_the_usual_ending_is_read_with_it() -> None:
    for rest in (b"data: [DONE]\n\n", b": bye\n\n", b"\n", b"event: response.tide\ndata: {}\n\n", b"event: resp"):
        slow_frames(reads(), [*reads(), rest])
        slow_frames(reads(), [*reads()[:-1], reads()[-1] + rest])


@pytest.mark.slow
def test_a_cut_in_the_ending_is_not_the_end() -> None:
    *begun, ending = reads()
    for place in range(0, len(ending), 29):
        slow_frames(reads(), [*begun, ending[:place]])
        slow_frames(reads(), [*begun, ending[:place], ending[place:]])
