"""Openings: answers that begin like an earlier answer, and answers that only look like it."""

import json
from typing import Any

import pytest

from penstock import ReasoningDelta, Start, StreamReader, TextDelta
from penstock.core.fast.format import OpeningFormat
from penstock.core.fast.openings import FirstEvents, OpeningTemplate
from penstock.core.fast.templates import DeltaTemplate
from tests import messages
from tests.invariants import CountingReader, SlowReader, opening_of
from tests.streams import DONE, ENVELOPE, Json, begins, bill, by_event, counts, delta, dumps, finishes, read, says, sse

ENDING: list[Json | str] = [finishes(), bill(**counts(3, 12)), DONE]
WORDS = ["Hello", " there", ", all", " is", " well"]


def answer(number: int, *, padding: str = "", **fields: object) -> bytes:
    """An answer of its own id and second. The fields stand before the choices of each chunk, padding behind them."""
    named: Json = {"id": f"chatcmpl-{number}", "created": 1_700_000_000 + number}
    behind: Json = {"obfuscation": padding} if padding else {}
    spoken = [ENVELOPE | fields | chunk | behind for chunk in (begins(), *map(says, WORDS))]
    return sse(*(chunk if isinstance(chunk, str) else chunk | named for chunk in (*spoken, *ENDING)))


def reads(wire: bytes) -> list[bytes]:
    """The reads of a socket on which every event came alone, and nothing behind them."""
    return [piece for piece in by_event(wire) if piece]


def by_opening(opening: OpeningTemplate, wire: bytes) -> bool:
    """Whether an answer is read without its framer. Its content is the same in any case."""
    reader = CountingReader(opening_template=opening)
    assert read(*reads(wire), reader=reader) == read(wire, reader=SlowReader())
    return reader.slow_frames == 0


OPENINGS: dict[str, dict[str, Any]] = {
    "plain": {},
    "with what made it": {"system_fingerprint": "fp_1"},
    "made by nobody": {"system_fingerprint": None},
    "with a tier": {"service_tier": "default", "system_fingerprint": "fp_1"},
    "with padding": {"padding": "aX3"},
    "with a sign of formats": {"service_tier": "100%b"},
}


@pytest.mark.parametrize("fields", OPENINGS.values(), ids=OPENINGS)
def test_the_second_answer_needs_no_framer(fields: dict[str, Any]) -> None:
    opening = OpeningTemplate()
    assert not by_opening(opening, answer(1, **fields))
    assert by_opening(opening, answer(2, **fields))
    assert by_opening(opening, answer(3, **fields))


def test_another_maker_or_padding_is_no_other_pattern() -> None:
    opening = opening_of(answer(1, system_fingerprint="fp_1", padding="aX3"))
    assert by_opening(opening, answer(2, system_fingerprint="fp_2", padding="b"))
    events = read(
        *reads(answer(3, system_fingerprint="fp_3", padding="cc")), reader=StreamReader(opening_template=opening)
    )
    assert events[0] == Start("chatcmpl-3", "sluice-1", 1_700_000_003)
    assert getattr(events[1], "fields", None) == {"system_fingerprint": "fp_3", "obfuscation": "cc"}


@pytest.mark.parametrize("pieces", [1, 2, 7])
def test_the_beginning_may_come_together_with_words(pieces: int) -> None:
    opening, events = opening_of(answer(1)), reads(answer(2))
    reader = CountingReader(opening_template=opening)
    together = [b"".join(events[:pieces]), *events[pieces:]]
    assert read(*together, reader=reader) == read(answer(2), reader=SlowReader())
    assert reader.slow_frames == 0


@pytest.mark.parametrize("together", [1, 2, 3])
def test_an_opening_is_learned_with_whatever_it_comes(together: int) -> None:
    def padded(number: int) -> list[bytes]:
        named: Json = {"id": f"chatcmpl-{number}", "created": 1_700_000_000 + number}
        chunks = [begins(), *map(says, WORDS)]
        return [sse(chunk | named | {"obfuscation": "x" * (at + 1)}) for at, chunk in enumerate(chunks)]

    opening, events = OpeningTemplate(), padded(1)
    read(b"".join(events[:together]), *events[together:], reader=StreamReader(opening_template=opening))
    reader = CountingReader(opening_template=opening)
    assert read(*padded(2), reader=reader) == read(b"".join(padded(2)), reader=SlowReader())
    assert reader.slow_frames == 0


@pytest.mark.parametrize("together", [ENDING, ENDING[:-1], [finishes(usage=counts(3, 12)), DONE]])
def test_an_opening_is_learned_from_a_whole_answer_in_one_read(together: list[Json | str]) -> None:
    def whole(number: int) -> bytes:
        named: Json = {"id": f"chatcmpl-{number}", "created": 1_700_000_000 + number}
        chunks = [begins(), *map(says, WORDS), *together]
        return sse(*(chunk if isinstance(chunk, str) else chunk | named for chunk in chunks))

    opening = OpeningTemplate()
    assert read(whole(1), reader=StreamReader(opening_template=opening)) == read(whole(1), reader=SlowReader())
    reader = CountingReader(opening_template=opening)
    assert read(whole(2), reader=reader) == read(whole(2), reader=SlowReader())
    assert reader.slow_frames == (0 if together[-1] == DONE else 2)  # without its last event, an ending is none


def test_an_opening_of_messages_is_learned_from_a_whole_answer_in_one_read() -> None:
    opening, wire = OpeningTemplate(), messages.answer(*messages.says_all(*WORDS))
    slow = read(wire, reader=SlowReader(messages.DIALECT))
    assert read(wire, reader=StreamReader(messages.DIALECT, opening_template=opening)) == slow
    reader = CountingReader(messages.DIALECT, opening_template=opening)
    assert read(wire, reader=reader) == slow
    assert reader.slow_frames == 0


def test_whole_answers_that_each_begin_in_their_own_way_are_learned_ever_more_seldom() -> None:
    class Counting(OpeningTemplate):
        learned = 0

        def learn(self, format: OpeningFormat, first: FirstEvents, template: DeltaTemplate) -> None:
            self.learned += 1
            super().learn(format, first, template)

    opening = Counting()
    for number in range(100):
        wire = answer(number, service_tier=f"tier-{number}")
        assert read(wire, reader=StreamReader(opening_template=opening)) == read(wire, reader=SlowReader())
    assert opening.learned == 7  # the 1st, 2nd, 4th, …, 64th


def test_an_answer_of_no_words_at_all() -> None:
    opening = opening_of(answer(1))
    assert by_opening(opening, sse(begins(), finishes(), DONE))
    assert not by_opening(opening, sse(begins(), DONE))


ODD: dict[str, list[Json | str]] = {
    "nothing else": [begins()],
    "another model": [begins() | {"model": "other"}, says("x", model="other"), *ENDING],
    "another model in its words": [begins(), says("x", model="other"), *ENDING],
    "another maker in its words": [begins(), says("x", system_fingerprint="fp_9"), *ENDING],
    "an id with an escape": [begins() | {"id": 'a"b'}, says("x", id='a"b'), *ENDING],
    "an id that is empty": [begins() | {"id": ""}, says("x", id=""), *ENDING],
    "an id beyond ASCII": [begins() | {"id": "é"}, says("x", id="é"), *ENDING],
    "a second that is zero": [begins() | {"created": 0}, says("x", created=0), *ENDING],
    "a second of too many digits": [begins() | {"created": 10**30}, says("x", created=10**30), *ENDING],
    "an error behind its beginning": [begins(), {"error": {"message": "no"}}],
    "a call of a tool": [
        begins(),
        delta({"tool_calls": [{"index": 0, "id": "c", "function": {"name": "f", "arguments": "{}"}}]}),
    ],
    "its thoughts first": [begins(), delta({"reasoning": "hm"}), says("x"), *ENDING],
    "a whole message behind its words": [
        begins(),
        says("x"),
        delta({}) | {"choices": [{"index": 0, "message": {"content": "x and y"}}]},
        *ENDING,
    ],
    "its role again": [begins(), begins(), says("x"), *ENDING],
    "no words, and a bill": [begins(), *ENDING],
    "a second choice": [begins(), begins(1), says("x"), says("y", index=1), *ENDING],
}


@pytest.mark.parametrize("odd", ODD.values(), ids=ODD)
def test_an_answer_that_goes_another_way_is_read_the_long_way(odd: list[Json | str]) -> None:
    wire = sse(*odd)
    for opening in (opening_of(answer(1)), opening_of(wire), opening_of(answer(1), wire), opening_of(wire, answer(1))):
        for pieces in (reads(wire), [wire]):
            assert read(*pieces, reader=StreamReader(opening_template=opening)) == read(wire, reader=SlowReader())


def test_thoughts_are_a_pattern_too() -> None:
    def thinking(number: int) -> bytes:
        named: dict[str, Any] = {"id": f"chatcmpl-{number}"}
        thoughts = [delta({"reasoning_content": f"so {word}"}, **named) for word in WORDS]
        return sse(begins() | named, *thoughts, *(says(word, **named) for word in WORDS), DONE)

    opening = opening_of(thinking(1))
    reader = CountingReader(opening_template=opening)
    events = read(*reads(thinking(2)), reader=reader)
    assert events == read(thinking(2), reader=SlowReader())
    assert ReasoningDelta(0, "so Hello", "reasoning_content") in events
    assert TextDelta(0, "Hello") in events
    assert reader.slow_frames < len(reads(thinking(2))) - len(WORDS)


def test_a_beginning_that_cannot_be_distinguished_is_not_learnt() -> None:
    twice = answer(1, service_tier="chatcmpl-1")  # its id stands in it twice
    opening = opening_of(twice)
    assert not by_opening(opening, answer(2, service_tier="chatcmpl-2"))
    assert not by_opening(opening, answer(3, service_tier="chatcmpl-1"))


def test_a_pattern_that_changes_is_learnt_anew() -> None:
    opening = OpeningTemplate()
    assert [by_opening(opening, answer(number)) for number in range(1, 20)] == [False] + [True] * 18
    changed = [by_opening(opening, answer(number, service_tier="flex")) for number in range(20, 24)]
    assert changed == [False, True, True, True]


def test_where_each_answer_begins_in_its_own_way_that_is_tried_ever_more_seldom() -> None:
    opening, learnt = OpeningTemplate(), []
    for number in range(100):
        wire = answer(number, service_tier=f"tier-{number}")
        by_opening(opening, wire)
        learnt.append(by_opening(opening, wire))
    assert sum(learnt) < 10


def test_an_answer_beyond_its_cap_is_reported_as_ever() -> None:
    head = dumps(begins()).encode()
    opening = opening_of(answer(1))
    for cap in (len(head), len(head) + 5, len(head) + 8, len(head) + 9, len(head) + 100):
        expected = read(*reads(answer(2)), reader=SlowReader(max_event=cap))
        assert read(*reads(answer(2)), reader=StreamReader(max_event=cap, opening_template=opening)) == expected


def test_what_is_reported_does_not_change_later() -> None:
    opening = opening_of(answer(1, padding="abc"))
    reader = StreamReader(opening_template=opening)
    first, *rest = reads(answer(2, padding="xyz"))
    events = reader.feed(first)
    emitted = json.dumps([getattr(event, "fields", None) for event in events])
    for piece in rest:
        reader.feed(piece.replace(b"xyz", b"other"))
    assert json.dumps([getattr(event, "fields", None) for event in events]) == emitted
