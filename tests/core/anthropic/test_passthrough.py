"""The fast path of Anthropic Messages gives the same events as the slow path, and bytes that clients can rely on."""

from random import Random

import pytest

from penstock import ReasoningDelta, StreamReader, TextDelta
from tests.corpus import CORPUS, captures
from tests.invariants import CountingReader, broken_promises, read_in_chunks, relayed_answers, take
from tests.messages import (
    DIALECT,
    HEALTHY,
    WORDS,
    Json,
    answer,
    begins,
    calls,
    closes,
    delta,
    events_of,
    named,
    opens,
    padded,
    says,
    thinks,
    wire,
)
from tests.mutation import mutated
from tests.streams import by_event, read
from tests.tables import FULL

RECORDED = [capture for capture in captures("anthropic") if capture.status == 200]
BEGUN = wire(begins(), opens(), says("a"))
THINKING = wire(begins(), opens(0, "thinking"), thinks("a"))


@pytest.mark.parametrize("data", HEALTHY.values(), ids=HEALTHY)
def test_both_paths_give_the_same_events(data: bytes) -> None:
    assert broken_promises(data, Random(1), DIALECT) == []
    assert read_in_chunks(by_event(data), StreamReader(DIALECT)) == events_of(data)


@pytest.mark.parametrize("name", ["text", "padded text", "thinking"])
def test_deltas_take_the_fast_path_with_any_number_of_spaces(name: str) -> None:
    reader = CountingReader(DIALECT)
    read(*by_event(HEALTHY[name]), reader=reader)
    learned = 2 if name == "thinking" else 1  # of each block one delta is read slowly, and the others are compared
    assert reader.frames - reader.slow_frames == len(WORDS) + (2 if name == "thinking" else 0) - learned


def fed(data: bytes, *events: Json | bytes) -> list[int]:
    """How many characters the fast path finds in these events after a stream."""
    reader = StreamReader(DIALECT)
    for event in filter(None, by_event(data)):
        reader.feed(event)
    return [take(reader, event if isinstance(event, bytes) else named(event)) for event in events]


@pytest.mark.parametrize(
    ("data", "events", "chars"),
    {
        "text": (BEGUN, [says("Hello"), says("!")], [5, 1]),
        "thinking": (THINKING, [thinks("Hello")], [5]),
        "spaces": (BEGUN, [padded(named(says("Hello"))), named(says("x")).replace(b"}\n", b"   }\n")], [5, 1]),
        "spaces in another place": (BEGUN, [named(says("x")).replace(b"}}\n", b" }}\n")], [0]),
        "a tab": (BEGUN, [named(says("x")).replace(b"}\n", b"\t}\n")], [0]),
        "an escape": (BEGUN, [says("\n"), says('"')], [1, 1]),
        "an escape that is none": (BEGUN, [named(says("x")).replace(b'"x"', b'"\\x"')], [0]),
        "half a surrogate pair": (BEGUN, [named(says("x")).replace(b'"x"', b'"\\ud83c"')], [0]),
        "an empty text": (BEGUN, [says("")], [0]),
        "another block": (BEGUN, [says("x", 1)], [0]),
        "another kind": (BEGUN, [thinks("x")], [0]),
        "a member that is new": (BEGUN, [delta(0, "text_delta", text="x", mood="calm")], [0]),
        "no name": (BEGUN, [named(says("x")).split(b"\n", 1)[1]], [0]),
        "the end of the block": (BEGUN, [closes()], [0]),
        "two events": (BEGUN, [named(says("x")) * 2], [0]),
    }.values(),
)
def test_only_what_matches_is_taken(data: bytes, events: list[Json | bytes], chars: list[int]) -> None:
    assert fed(data, *events) == chars


def forwarded(*events: Json | bytes) -> bool:
    """Whether the last of these reads is forwarded as it is."""
    reader = StreamReader(DIALECT)
    for event in events:
        reader.feed(event if isinstance(event, bytes) else named(event))
    return reader.forwardable == "yes"


def test_only_healthy_text_is_forwarded_as_it_is() -> None:
    started = (begins(), opens())
    assert forwarded(*started, says("x"))
    assert forwarded(*started, says("x") | {"mood": "calm"})
    assert not forwarded(*started)
    assert not forwarded(*started, named(says("x")).split(b"\n", 1)[1])  # SDKs know a delta by the event's name
    assert not forwarded(*started, named(says("x")).replace(b"content_block_delta\n", b"delta\n"))
    assert not forwarded(begins(), opens(3), says("x", 3))  # the client knows the block as the first one
    assert not forwarded(begins(), says("x"))
    assert not forwarded(begins(), opens(text="x"), says("x"))
    assert not forwarded(begins(), opens(text="x"), says("y"))  # both are said now
    assert not forwarded(
        begins(), calls(), thinks("x")
    )  # the block of the call is open, but it is not that of the text
    assert not forwarded(*started, named(says("x")).replace(b"\n\n", b"\r\n\r\n"))
    half = named(says("x")).replace(b'"x"', b'"x\\ud83c"')
    assert not forwarded(*started, half)
    assert not forwarded(*started, says("a"), half, says("b"))


def check(data: bytes) -> int:
    """Both paths give a client the same answer; returns how many reads were forwarded unchanged."""
    fast, slow, whole, untouched = relayed_answers(data, DIALECT)
    assert fast.usage == slow.usage
    if whole.ending == "completed":
        assert [(repair.code, repair.count) for repair in fast.repairs] == [
            (repair.code, repair.count) for repair in slow.repairs
        ]
        assert [part for choice in fast.choices for part in choice.parts] == [
            part for choice in whole.choices for part in choice.parts
        ]
    return untouched


@pytest.mark.parametrize("data", HEALTHY.values(), ids=HEALTHY)
def test_a_client_gets_the_same_answer_on_both_paths(data: bytes) -> None:
    check(data)


def test_text_with_an_escape_is_forwarded_too() -> None:
    assert check(answer(opens(), says("one\n"), says('"two"'), says("three"), closes())) == 3


@pytest.mark.slow
def test_a_client_gets_the_same_answer_of_a_broken_stream_on_both_paths() -> None:
    streams = list(HEALTHY.values())
    for seed in range(3_000 if FULL else 1_000):
        random = Random(seed)
        check(mutated(random.choice(streams), random.choice(streams), random))


@pytest.mark.slow
@pytest.mark.skipif(not RECORDED, reason=f"there is no corpus in {CORPUS}; PENSTOCK_CORPUS may name another")
def test_a_client_gets_the_same_answer_of_recorded_streams_on_both_paths() -> None:
    assert sum(check(capture.data) for capture in RECORDED) > 5_000


def test_text_and_thinking_say_what_they_are() -> None:
    assert TextDelta(0, WORDS[3]) in read_in_chunks(by_event(HEALTHY["padded text"]), StreamReader(DIALECT))
    assert ReasoningDelta(0, WORDS[3]) in read_in_chunks(by_event(HEALTHY["thinking"]), StreamReader(DIALECT))
