"""The fast path of a second dialect works by its description alone: the same events and bytes as the slow path."""

from random import Random

import pytest

from penstock import ReasoningDelta, StreamReader, TextDelta
from penstock.core.hub.events import Event
from tests.dialects.support import OPEN, OVER, Tick, TickerGateway, frames
from tests.dialects.ticker import NAME
from tests.faults.scripts import stream
from tests.faults.upstream import chunk, head, last_chunk, until_read
from tests.invariants import CountingReader, SlowReader, read_in_chunks, take
from tests.mutation import mutated, split
from tests.streams import by_event, read

TEXT: Tick = ("block", {"n": 0, "is": "text"})
SHUT: Tick = ("shut", {"n": 0})


def says(text: str, **fields: object) -> Tick:
    return "more", {"n": 0, "s": text, **fields}


def counted(first: int, *texts: str) -> list[Tick]:
    return [says(text, tick=first + place) for place, text in enumerate(texts)]


def counted_before(first: int, *texts: str) -> list[Tick]:
    """The same, with the counter before the text."""
    return [("more", {"tick": first + place, "n": 0, "s": text}) for place, text in enumerate(texts)]


WORDS = [f"word{number} " for number in range(12)]
STREAMS: dict[str, bytes] = {
    "plain": frames(OPEN, TEXT, *map(says, WORDS), SHUT, OVER),
    "counted": frames(OPEN, TEXT, *counted(5, *WORDS), SHUT, OVER),
    "counted before the text": frames(OPEN, TEXT, *counted_before(5, *WORDS), SHUT, OVER),
    "thoughts": frames(OPEN, ("block", {"n": 0, "is": "thought"}), *map(says, WORDS), SHUT, OVER),
    "two blocks": frames(
        OPEN, TEXT, *map(says, WORDS), SHUT, ("block", {"n": 1, "is": "text"}), ("more", {"n": 1, "s": "x"}), OVER
    ),
}


def slowly(wire: bytes) -> list[Event]:
    return read(wire, reader=SlowReader(NAME))


def in_chunks(wire: bytes) -> list[Event]:
    return read_in_chunks(by_event(wire), StreamReader(NAME))


def same(wire: bytes, random: Random) -> None:
    """Both paths give the same events, however the bytes come."""
    expected = slowly(wire)
    assert read(wire, reader=StreamReader(NAME)) == expected
    assert read(*by_event(wire), reader=StreamReader(NAME)) == expected
    assert read(*split(wire, random), reader=StreamReader(NAME)) == expected
    events = by_event(wire)
    pairs = [b"".join(events[place : place + 2]) for place in range(0, len(events), 2)]
    assert read(*pairs, reader=StreamReader(NAME)) == expected
    assert in_chunks(wire) == expected


@pytest.mark.parametrize("wire", STREAMS.values(), ids=STREAMS)
def test_both_paths_give_the_same_events(wire: bytes) -> None:
    same(wire, Random(1))


@pytest.mark.parametrize("wire", STREAMS.values(), ids=STREAMS)
def test_text_takes_the_fast_path(wire: bytes) -> None:
    reader = CountingReader(NAME)
    read(*by_event(wire), reader=reader)
    assert reader.frames - reader.slow_frames == len(WORDS) - 1  # all but the one that the template was learned of


@pytest.mark.slow
@pytest.mark.parametrize("wire", STREAMS.values(), ids=STREAMS)
def test_both_paths_give_the_same_events_of_any_bytes(wire: bytes) -> None:
    others = list(STREAMS.values())
    for seed in range(200):
        random = Random(seed)
        same(mutated(wire, random.choice(others), random), random)


def fed(wire: bytes, *events: Tick) -> list[int]:
    """How many characters the fast path finds in these events after a stream."""
    reader = StreamReader(NAME)
    for event in filter(None, by_event(wire)):
        reader.feed(event)
    return [take(reader, frames(event)) for event in events]


BEGUN = frames(OPEN, TEXT, says("a"))
COUNTED = frames(OPEN, TEXT, *counted(9, "a"))


@pytest.mark.parametrize(
    ("wire", "events", "chars"),
    {
        "text": (BEGUN, [says("Hello"), says("!")], [5, 1]),
        "a text with an escape": (BEGUN, [says("\n")], [1]),
        "an empty text": (BEGUN, [says("")], [0]),
        "another block": (BEGUN, [("more", {"n": 1, "s": "x"})], [0]),
        "a member that is new": (BEGUN, [says("x", mood="calm")], [0]),
        "another event": (BEGUN, [("mare", {"n": 0, "s": "x"})], [0]),
        "the end of the block": (BEGUN, [SHUT], [0]),
        "a counter": (COUNTED, counted(10, "Hello", "x"), [5, 1]),
        "a counter that stands still": (COUNTED, counted(9, "Hello"), [0]),
        "a counter that stands still later": (COUNTED, [*counted(10, "Hello"), *counted(10, "x")], [5, 0]),
        "a counter with a gap": (COUNTED, counted(11, "Hello"), [0]),
        "a counter with a zero": (COUNTED, [("more", {"n": 0, "s": "x", "tick": "10"})], [0]),
    }.values(),
)
def test_only_what_matches_is_taken(wire: bytes, events: list[Tick], chars: list[int]) -> None:
    assert fed(wire, *events) == chars


def test_text_of_a_block_that_was_never_opened_is_not_learned() -> None:
    """The writer numbers such a block itself: the client would know it by another number."""
    assert fed(frames(OPEN, ("more", {"n": 7, "s": "a"})), ("more", {"n": 7, "s": "b"})) == [0]


def test_what_says_the_text_twice_is_not_learned() -> None:
    twice = frames(OPEN, TEXT) + b'event: more\ndata: {"n": 0, "s": "a", "s": "a"}\n\n'
    assert fed(twice, says("b")) == [0]
    same(twice + frames(says("b"), SHUT, OVER), Random(1))


def test_text_and_thoughts_say_what_they_are() -> None:
    assert TextDelta(0, WORDS[3]) in in_chunks(STREAMS["counted"])
    assert ReasoningDelta(0, WORDS[3]) in in_chunks(STREAMS["thoughts"])


def test_the_gateway_forwards_healthy_text_as_it_came(gateway: TickerGateway) -> None:
    """Members that are not known here reach the client with the text."""
    words = [frames(says(word, mood=f"calm{place % 2}")) for place, word in enumerate(WORDS)]
    ops = [chunk(frames(OPEN)), chunk(frames(TEXT)), *map(chunk, words), chunk(frames(SHUT, OVER)), last_chunk()]
    script = [head(), *(each for op in ops for each in (op, until_read()))]

    def forwarded() -> bool:
        """On a busy machine several events may arrive in one read, which takes the slow path."""
        return b"".join(words) in gateway.tick(f"tape/{gateway.upstream.play(script)}", live=True).body

    assert any(forwarded() for _ in range(10))


def test_a_client_of_another_dialect_gets_a_translation(gateway: TickerGateway) -> None:
    model = gateway.upstream.play(stream(STREAMS["counted"]))
    response = gateway.ask(f"tape/{model}", stream=True)
    assert (response.text, response.finish, response.done) == ("".join(WORDS), "stop", True)
    assert b'"tick"' not in response.body
