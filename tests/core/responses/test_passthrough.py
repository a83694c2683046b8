"""The fast path of Responses gives the same events as the slow path, and a client gets the same JSON on both.

A delta is forwarded only if its number, item and part are what the writer would write. The cases below break each.
"""

from collections.abc import Callable
from random import Random

import pytest

from penstock import StreamReader
from tests.corpus import CORPUS, captures
from tests.invariants import (
    CountingReader,
    SlowReader,
    broken_promises,
    read_in_chunks,
    relayed,
    relayed_in_chunks,
    take,
    without_padding,
)
from tests.mutation import mutated
from tests.responses import (
    DIALECT,
    HEALTHY,
    WORDS,
    Json,
    added,
    answer,
    begins,
    completes,
    done,
    events_of,
    items_of,
    message,
    named,
    numbered,
    of_item,
    part,
    reasoning,
    says,
    says_all,
    wire,
)
from tests.streams import by_event, read

RECORDED = [capture for capture in captures("responses") if capture.status == 200][::8]
PART = of_item("content_part.added", 0, "msg_1", content_index=0, part=part())
START = (*begins(), added(0, message(status="in_progress")), PART)
BEGUN = wire(*START, says("a"))
NUMBER = len(START) + 1


def renumbered(change: dict[int, int]) -> bytes:
    """A stream in which the events at these places, and those after them, have numbers that are greater by this."""
    events = [*begins(), *says_all(*WORDS), completes(message(part("".join(WORDS))))]
    shift, out = 0, []
    for place, event in enumerate(numbered(events)):
        assert isinstance(event, dict)
        shift += change.get(place, 0)
        out.append(named(event | {"sequence_number": place + shift}))
    return b"".join(out)


def with_deltas(change: Callable[[int, Json], Json]) -> bytes:
    """An answer whose deltas are changed. The function gets the place of each."""
    return answer(*(change(place, event) if "delta" in event else event for place, event in enumerate(MESSAGE)))


def whole(text: str) -> Json:
    """The end of a message with this text."""
    return done(0, message(part(text)))


WORD_COUNT = len(WORDS)
TEXT = "".join(WORDS)
MESSAGE = says_all(*WORDS)
SUMMARY: Json = {"type": "summary_text", "text": ""}
LOGPROBS = [{"token": "x", "logprob": -1.0}]
# Streams, and how many of their deltas are forwarded: of each text, the first one is read.
STREAMS: dict[str, tuple[bytes, int]] = {
    "text": (HEALTHY["text"], WORD_COUNT - 1),
    "padding": (HEALTHY["obfuscated text"], WORD_COUNT - 1),
    "the number at the end": (
        b"".join(
            named(event | {"sequence_number": number})
            for number, event in enumerate([*begins(), *MESSAGE, completes(*items_of(MESSAGE))])
        ),
        WORD_COUNT - 1,
    ),
    "summaries": (HEALTHY["summary"], 3 + 4 + 1),
    "two items": (answer(*MESSAGE, *says_all(*WORDS, index=1, id="msg_2")), 2 * (WORD_COUNT - 1)),
    "a text with an escape": (answer(*says_all("a", "b", "\n", '"', "c", "d")), 5),
    "a number is skipped": (renumbered({7: 1}), 2),
    "a number is repeated": (renumbered({7: -1}), 2),
    "numbers start at one": (renumbered({0: 1}), 0),
    "numbers skip twice, and agree again": (renumbered({6: 1, 9: -1}), 4),
    "no numbers": (b"".join(map(named, [*begins(), *MESSAGE, completes(*items_of(MESSAGE))])), 0),
    "another item id": (with_deltas(lambda place, event: event | ({"item_id": "msg_9"} if place == 5 else {})), 6),
    "item ids that rotate": (with_deltas(lambda place, event: event | {"item_id": f"msg_{place}"}), 0),
    "deltas with an id of their own": (with_deltas(lambda _, event: event | {"item_id": "msg_9"}), 0),
    "another index of the items": (answer(*says_all(*WORDS, index=4)), 0),
    "a delta after its end": (answer(*MESSAGE[:-2], says("x"), says("y"), says("z"), *MESSAGE[-2:]), WORD_COUNT - 1),
    "a delta after its item": (answer(*MESSAGE, says("x"), says("y"), says("z")), WORD_COUNT - 1),
    "a delta after the response": (HEALTHY["text"] + wire(says("x"), says("y")), WORD_COUNT - 1),
    "log probabilities": (with_deltas(lambda place, event: event | ({"logprobs": LOGPROBS} if place == 5 else {})), 6),
    "no log probabilities": (
        with_deltas(lambda _, event: {name: event[name] for name in event if name != "logprobs"}),
        0,
    ),
    "a member that is new": (with_deltas(lambda _, event: event | {"mood": "calm"}), 0),
    "a number as a boolean": (with_deltas(lambda _, event: event | {"content_index": False}), 0),
    "an unknown event": (answer(*MESSAGE[:5], {"type": "response.tide", "level": 3}, *MESSAGE[5:]), WORD_COUNT - 2),
    "a heartbeat of the provider": (answer(*MESSAGE[:5], begins()[1], *MESSAGE[5:]), 2),
    "no names": (HEALTHY["text"].replace(b"event: response.output_text.delta\n", b""), 0),
    "reasoning": (
        answer(*(of_item("reasoning_text.delta", 0, "rs_1", content_index=0, delta=word) for word in WORDS)),
        0,  # the provider has not announced the item, so its numbers are lower
    ),
    "summaries that take turns": (
        answer(
            added(0, reasoning()),
            of_item("reasoning_summary_part.added", 0, "rs_1", summary_index=0, part=SUMMARY),
            *(
                of_item("reasoning_summary_text.delta", 0, "rs_1", summary_index=place // 3 % 2, delta=word)
                for place, word in enumerate(WORDS)
            ),
            done(0, reasoning("".join(WORDS[:3] + WORDS[6:]), "".join(WORDS[3:6]))),
        ),
        2,
    ),
    "the whole text has more": (answer(*MESSAGE[:-3], whole(TEXT + "!")), WORD_COUNT - 1),
    "the whole text is another": (answer(*MESSAGE[:-1], whole("other")), WORD_COUNT - 1),
}


@pytest.mark.parametrize(("data", "forwarded"), STREAMS.values(), ids=STREAMS)
def test_both_paths_give_a_client_the_same_events(data: bytes, forwarded: int) -> None:
    assert broken_promises(data, Random(1), DIALECT) == []
    slow = without_padding(relayed(by_event(data), SlowReader(DIALECT))[0])
    for relay in (relayed, relayed_in_chunks):
        out, untouched = relay(by_event(data), StreamReader(DIALECT))
        assert without_padding(out) == slow
        assert untouched == forwarded


@pytest.mark.parametrize("name", ["text", "padding", "summaries"])
def test_what_is_forwarded_is_what_came(name: str) -> None:
    data, forwarded = STREAMS[name]
    out = relayed_in_chunks(by_event(data), StreamReader(DIALECT))[0]
    deltas = [event for event in by_event(data) if b'.delta"' in event]
    assert sum(event in out for event in deltas) >= forwarded


def test_a_heartbeat_ends_the_pass_through() -> None:
    data = by_event(HEALTHY["text"])
    for place in range(len(data)):
        slow = without_padding(relayed(data, SlowReader(DIALECT), place)[0])
        for relay in (relayed, relayed_in_chunks):
            out, untouched = relay(data, StreamReader(DIALECT), place)
            assert without_padding(out) == slow
            # The one before the first delta takes the place of `response.in_progress`, so the numbers stay the same.
            assert untouched == (WORD_COUNT - 1 if place < 5 else min(place - 5, WORD_COUNT - 1))


@pytest.mark.slow
def test_the_same_events_for_every_split_and_every_cut() -> None:
    data = answer(*says_all("a", "b", "c"))
    slow = without_padding(relayed([data], SlowReader(DIALECT))[0])
    begun, texts = (b"".join(by_event(data)[:count]) for count in (5, 8))
    for place in range(len(begun), len(texts)):
        pieces = [*by_event(begun), data[len(begun) : place], data[place:]]
        assert without_padding(relayed(pieces, StreamReader(DIALECT))[0]) == slow
        cut = pieces[:-1]
        expected = without_padding(relayed(cut, SlowReader(DIALECT))[0])
        for relay in (relayed, relayed_in_chunks):
            assert without_padding(relay(cut, StreamReader(DIALECT))[0]) == expected


@pytest.mark.parametrize("data", HEALTHY.values(), ids=HEALTHY)
def test_both_paths_give_the_same_events(data: bytes) -> None:
    assert broken_promises(data, Random(1), DIALECT) == []
    assert read_in_chunks(by_event(data), StreamReader(DIALECT)) == events_of(data)


def test_deltas_take_the_fast_path_for_a_client_of_another_dialect_too() -> None:
    for name in ("text", "padding", "numbers start at one", "no numbers"):
        reader = CountingReader(DIALECT)
        read(*by_event(STREAMS[name][0]), reader=reader)
        assert reader.frames - reader.slow_frames == WORD_COUNT - 1


def fed(*events: Json) -> list[int]:
    """How many characters the fast path finds in these events after a stream."""
    reader = StreamReader(DIALECT)
    for event in by_event(BEGUN)[:-1]:
        reader.feed(event)
    data = [named({"sequence_number": NUMBER + place} | event) for place, event in enumerate(events)]
    return [take(reader, event) for event in data]


@pytest.mark.parametrize(
    ("events", "chars"),
    {
        "text": ([says("Hello"), says("!")], [5, 1]),
        "a number that stands still": ([says("x"), says("x", sequence_number=NUMBER)], [1, 0]),
        "a number with a gap": ([says("x", sequence_number=NUMBER + 1)], [0]),
        "an escape": ([says("\n"), says("!")], [1, 1]),
        "an empty text": ([says("")], [0]),
        "another item": ([says("x", 1, "msg_2")], [0]),
        "another part": ([says("x", content_index=1)], [0]),
        "log probabilities": ([says("x", logprobs=[{}])], [0]),
        "padding that was not there": ([says("x", obfuscation="y")], [0]),
    }.values(),
)
def test_only_what_matches_is_taken(events: list[Json], chars: list[int]) -> None:
    assert fed(*events) == chars


def test_a_template_is_learned_of_the_last_event_of_a_read() -> None:
    """On a busy machine an answer opens, and its text begins, in one read."""
    data = by_event(HEALTHY["text"])
    pieces = [b"".join(data[:7]), *data[7:]]
    slow = without_padding(relayed(pieces, SlowReader(DIALECT))[0])
    for relay in (relayed, relayed_in_chunks):
        out, untouched = relay(pieces, StreamReader(DIALECT))
        assert (without_padding(out), untouched) == (slow, WORD_COUNT - 3)


def test_ids_that_rotate_are_not_learned_of_every_event() -> None:
    reader = StreamReader(DIALECT)
    texts = [says("x", id=f"msg_{place}") for place in range(80)]
    learned = set()
    for event in by_event(wire(*START, *texts)):
        reader.feed(event)
        learned.add(reader.matcher)
    assert len(learned) < 20


@pytest.mark.slow
def test_a_client_gets_the_same_events_of_a_broken_stream_on_both_paths() -> None:
    streams = [*HEALTHY.values(), *(data for data, _ in STREAMS.values())]
    for seed in range(60):  # `scripts/fuzz` tries more
        random = Random(seed)
        data = mutated(random.choice(streams), random.choice(streams), random)
        assert broken_promises(data, random, DIALECT) == []


@pytest.mark.slow
@pytest.mark.skipif(not RECORDED, reason=f"there is no corpus in {CORPUS}; PENSTOCK_CORPUS may name another")
def test_a_client_gets_the_same_events_of_recorded_streams_on_both_paths() -> None:
    total = 0
    for capture in RECORDED:
        slow = without_padding(relayed(by_event(capture.data), SlowReader(DIALECT))[0])
        for relay in (relayed, relayed_in_chunks):
            out, untouched = relay(by_event(capture.data), StreamReader(DIALECT))
            assert without_padding(out) == slow
            total += untouched
    assert total > 1_000
