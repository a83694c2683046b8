"""Events that are cast in one mould, and those that only look so."""

import pytest

from penstock import Fault, ReasoningDelta, StreamReader, TextDelta
from penstock.core.wire.frame import Framed
from tests.invariants import LongWay
from tests.streams import DONE, Json, begins, bill, by_event, choice, chunk, counts, delta, finishes, read, says, sse

STEADY = [begins(), *(says(f"word{number} ") for number in range(12))]
ENDING: list[Json | str] = [finishes(), bill(**counts(3, 12)), DONE]


class Counting(StreamReader):
    """A reader that counts the frames which its framer gives."""

    framed = 0

    def _read(self, items: list[Framed]) -> None:
        self.framed += len(items)
        super()._read(items)


def cast(wire: bytes) -> int:
    """How many events are read by their bytes alone, when each comes in a read of its own."""
    reader = Counting()
    for event in by_event(wire):
        reader.feed(event)
    return reader.frames - reader.framed


def test_a_steady_stream_is_cast_in_one_mould() -> None:
    assert cast(sse(*STEADY)) == 11  # all but the role, and the first word, of which the mould was made


def test_text_with_escapes_is_left_to_the_decoder_and_the_mould_is_kept() -> None:
    wire = sse(*STEADY, says("\n"), says('"'), says("more"))
    assert cast(wire) == 12
    assert read(*by_event(wire)) == read(wire, reader=LongWay())


def test_reasoning_has_a_mould_of_its_own() -> None:
    wire = sse(begins(), *(delta({"reasoning": f"thought{number}"}) for number in range(20)), *STEADY[1:])
    events = read(*by_event(wire))
    assert events == read(wire, reader=LongWay())
    assert ReasoningDelta(0, "thought19", "reasoning") in events
    assert cast(wire) > 20


def test_several_events_in_one_read() -> None:
    words = [says(f"word{number}") for number in range(6)]
    reader = Counting()
    reader.feed(sse(begins()))
    reader.feed(sse(says("one")))
    assert reader.feed(sse(*words)) == [TextDelta(0, f"word{number}") for number in range(6)]
    assert reader.untouched
    assert (reader.frames, reader.framed) == (8, 2)


ODD: dict[str, Json | str] = {
    "a word that is also a key": says("content"),
    "a word that is also a value": says("sluice-1"),
    "the sign between two keys": says(","),
    "an empty text": says(""),
    "two texts": delta({"content": "a", "reasoning": "b"}),
    "another choice": chunk(choice({"content": "x"}, index=1)),
    "a finish": finishes(),
    "another model": says("x", model="sluice-2"),
    "a new field": says("x", padding="y"),
    "a fingerprint": says("x", system_fingerprint="fp"),
    "usage beside text": says("x", usage=counts(1, 2)),
    "a line end to some": says("a\u2028b"),
    "another script": says("Ünï 水 🌊"),
    "an error": '{"error":{"message":"boom"}}',
    "an escape": '{"id":"chatcmpl-1","object":"chat.completion.chunk","created":1700000000,"model":"sluice-1",'
    '"choices":[{"index":0,"delta":{"content":"\\u0068\\ud83d\\ude00"},"finish_reason":null}]}',
    "half an escape": '{"id":"chatcmpl-1","object":"chat.completion.chunk","created":1700000000,"model":"sluice-1",'
    '"choices":[{"index":0,"delta":{"content":"x\\"},"finish_reason":null}]}',
    "a text twice": '{"id":"chatcmpl-1","object":"chat.completion.chunk","created":1700000000,"model":"sluice-1",'
    '"choices":[{"index":0,"delta":{"content":"a","content":"b"},"finish_reason":null}]}',
}


@pytest.mark.parametrize("odd", ODD.values(), ids=ODD)
@pytest.mark.parametrize("times", [1, 9])
def test_what_does_not_fit_is_read_as_ever(odd: Json | str, times: int) -> None:
    wire = sse(*STEADY, *[odd] * times, *STEADY[1:], *ENDING)
    assert read(*by_event(wire)) == read(wire, reader=LongWay())
    first = sse(begins(), *[odd] * times, *STEADY[1:], *ENDING)
    assert read(*by_event(first)) == read(first, reader=LongWay())


@pytest.mark.parametrize("byte", [b"\xff", b"\xc3", b"\xed\xa0\x80", b"\x00", b"\x1f", b"\x7f", b"\r", b"\n", b"\t"])
def test_a_byte_that_no_text_holds(byte: bytes) -> None:
    wire = sse(*STEADY, says("#")).replace(b"#", byte) + sse(*STEADY[1:], *ENDING)
    assert read(*by_event(wire)) == read(wire, reader=LongWay())


@pytest.mark.parametrize(
    "paddings", [("x", "yy", "zzz"), ("x", "x", "y"), ("", "x", "ü"), ('"', "\\", "x"), (1, None, "x")]
)
def test_padding_is_told_when_it_changes(paddings: tuple[object, ...]) -> None:
    padded = [says(f"word{number}", obfuscation=paddings[number % 3]) for number in range(30)]
    wire = sse(begins(), *padded, *ENDING)
    events = read(wire, reader=LongWay())
    assert read(*by_event(wire)) == events
    pairs = by_event(wire)
    assert read(*(b"".join(pairs[place : place + 3]) for place in range(0, len(pairs), 3))) == events


def test_padded_events_are_cast_too() -> None:
    assert cast(sse(begins(), *(says("word", obfuscation="x" * number) for number in range(1, 20)))) == 18


def test_places_are_counted_on() -> None:
    broken = sse(*STEADY) + b"data: {\n\n"
    for wire in (broken, sse(*STEADY), sse(*STEADY, "[DONE]", says("x"))):
        assert read(*by_event(wire)) == read(wire, reader=LongWay())
    reader = StreamReader()
    for event in by_event(sse(*STEADY)):
        reader.feed(event)
    assert reader.frames == len(STEADY)


def test_an_event_may_not_exceed_the_cap() -> None:
    long = sse(begins(), says("a"), says("b" * 2_000))
    events = read(*by_event(long), max_event=1_000)
    assert events == read(long, max_event=1_000)
    assert "event-too-large" in [event.code for event in events if isinstance(event, Fault)]
