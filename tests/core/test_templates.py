"""Templates: events that match one, and events that only look like it."""

from collections.abc import Callable

import pytest

from penstock import Extra, Fault, ReasoningDelta, StreamReader, TextDelta
from tests.invariants import CountingReader, SlowReader, take
from tests.streams import DONE, Json, begins, bill, by_event, choice, chunk, counts, delta, finishes, read, says, sse

REGULAR = [begins(), *(says(f"word{number} ") for number in range(12))]
ENDING: list[Json | str] = [finishes(), bill(**counts(3, 12)), DONE]


def matching(wire: bytes) -> int:
    """How many events are read by their bytes alone, when each comes in a read of its own."""
    reader = CountingReader()
    for event in by_event(wire):
        reader.feed(event)
    return reader.frames - reader.slow_frames


def test_a_regular_stream_matches_one_template() -> None:
    assert matching(sse(*REGULAR)) == 11  # all but the role, and the first word, of which the template was learned


def test_text_with_escapes_matches_too() -> None:
    wire = sse(*REGULAR, says("\n"), says('"'), says("more"))
    assert matching(wire) == 14
    assert read(*by_event(wire)) == read(wire, reader=SlowReader())


@pytest.mark.parametrize("text", ["\u200c", "\u00a0", "\u3000", "\U0001f469\u200d\U0001f4bb"])
def test_text_with_characters_that_are_not_printable_matches_too(text: str) -> None:
    """Such as a joiner or a wide space: no client takes them for the end of a line."""
    wire = sse(*REGULAR, says(text), says("more"))
    assert matching(wire) == 13
    assert read(*by_event(wire)) == read(wire, reader=SlowReader())


def test_reasoning_has_a_template_of_its_own() -> None:
    wire = sse(begins(), *(delta({"reasoning": f"thought{number}"}) for number in range(20)), *REGULAR[1:])
    events = read(*by_event(wire))
    assert events == read(wire, reader=SlowReader())
    assert ReasoningDelta(0, "thought19", "reasoning") in events
    assert matching(wire) > 20


def test_several_events_in_one_read() -> None:
    words = [says(f"word{number}") for number in range(6)]
    reader = CountingReader()
    reader.feed(sse(begins()))
    reader.feed(sse(says("one")))
    assert reader.feed(sse(*words)) == [TextDelta(0, f"word{number}") for number in range(6)]
    assert reader.forwardable == "yes"
    assert (reader.frames, reader.slow_frames) == (8, 2)


def test_a_template_is_learned_again_although_many_matched_nothing() -> None:
    """Whatever number of events the reads have."""
    reader = CountingReader()
    reader.feed(sse(begins()))
    for number in range(8):
        reader.feed(sse(says(f"word{number}"), delta({"reasoning": f"thought{number}"})))
    for number in range(40):
        reader.feed(sse(says(f"word{number}"), says(" and")))
    assert reader.slow_frames < 40


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
    wire = sse(*REGULAR, *[odd] * times, *REGULAR[1:], *ENDING)
    assert read(*by_event(wire)) == read(wire, reader=SlowReader())
    first = sse(begins(), *[odd] * times, *REGULAR[1:], *ENDING)
    assert read(*by_event(first)) == read(first, reader=SlowReader())


@pytest.mark.parametrize("byte", [b"\xff", b"\xc3", b"\xed\xa0\x80", b"\x00", b"\x1f", b"\x7f", b"\r", b"\n", b"\t"])
def test_a_byte_that_no_text_holds(byte: bytes) -> None:
    wire = sse(*REGULAR, says("#")).replace(b"#", byte) + sse(*REGULAR[1:], *ENDING)
    assert read(*by_event(wire)) == read(wire, reader=SlowReader())


@pytest.mark.parametrize(
    "paddings", [("x", "yy", "zzz"), ("x", "x", "y"), ("", "x", "ü"), ('"', "\\", "x"), (1, None, "x")]
)
def test_padding_is_reported_when_it_changes(paddings: tuple[object, ...]) -> None:
    padded = [says(f"word{number}", obfuscation=paddings[number % 3]) for number in range(30)]
    wire = sse(begins(), *padded, *ENDING)
    events = read(wire, reader=SlowReader())
    assert read(*by_event(wire)) == events
    pairs = by_event(wire)
    assert read(*(b"".join(pairs[place : place + 3]) for place in range(0, len(pairs), 3))) == events


def test_padded_events_match_too() -> None:
    assert matching(sse(begins(), *(says("word", obfuscation="x" * number) for number in range(1, 20)))) == 18


def test_places_are_counted_on() -> None:
    broken = sse(*REGULAR) + b"data: {\n\n"
    for wire in (broken, sse(*REGULAR), sse(*REGULAR, "[DONE]", says("x"))):
        assert read(*by_event(wire)) == read(wire, reader=SlowReader())
    reader = StreamReader()
    for event in by_event(sse(*REGULAR)):
        reader.feed(event)
    assert reader.frames == len(REGULAR)


def test_an_event_may_not_exceed_the_cap() -> None:
    long = sse(begins(), says("a"), says("b" * 2_000))
    events = read(*by_event(long), max_event=1_000)
    assert events == read(long, max_event=1_000)
    assert "event-too-large" in [event.code for event in events if isinstance(event, Fault)]


def read_in_chunks(*payloads: Json | str) -> tuple[StreamReader, list[int]]:
    """A reader of a regular stream that gets these events as chunks; and the number of characters in each."""
    reader = StreamReader()
    for event in by_event(sse(*REGULAR))[:-1]:
        reader.feed(event)
    return reader, [take(reader, sse(payload)) for payload in payloads]


@pytest.mark.parametrize("text", ["x", "水", "y" * 60, "y" * 200, "y" * 4_000, "y" * 70_000])
def test_an_event_that_is_a_chunk_is_read_by_its_bytes(text: str) -> None:
    reader, sent_text = read_in_chunks(says(text), says("a"), says(text))
    assert sent_text == [len(text), 1, len(text)]
    assert reader.frames == len(REGULAR) + 3
    rest = sse(says("\n"), *ENDING)
    whole = read(sse(*REGULAR, says(text), says("a"), says(text)) + rest)
    assert [*reader.feed(rest), *reader.close()] == whole[-len(read(sse(begins()) + rest)) + 2 :]


def test_places_are_counted_on_behind_chunks() -> None:
    reader, sent_text = read_in_chunks(says("a"), says("水"), says("b"))
    assert sent_text == [1, 1, 1]
    broken = reader.feed(b"data: {\n\n") + reader.close()
    assert broken == read(sse(*REGULAR, says("a"), says("水"), says("b")) + b"data: {\n\n")[-len(broken) :]


@pytest.mark.parametrize("odd", ODD.values(), ids=ODD)
def test_chunks_of_anything_else_are_left_alone(odd: Json | str) -> None:
    plain = (
        "a word that is also a key",
        "a word that is also a value",
        "the sign between two keys",
        "another script",
        "an escape",
    )
    reader, (sent_text,) = read_in_chunks(odd)
    assert bool(sent_text) == (odd in [ODD[name] for name in plain])
    assert reader.frames == len(REGULAR) + bool(sent_text)


@pytest.mark.parametrize(
    "damage",
    [
        lambda event: event[:-1],
        lambda event: event + b"\n",
        lambda event: b"0" + event,
        lambda event: event.upper(),
        lambda event: event.replace(b"\n", b"\r\n"),
        lambda event: event + event,
        lambda event: event[:40] + b"\xff" + event[41:],
        lambda event: event.replace(b"word", b"w\xffrd"),
        lambda event: event.replace(b"word", b'w"rd'),
        lambda event: event.replace(b"word", b"w\\ord"),
        lambda event: event.replace(b"word", b"word\\"),
        lambda event: event.replace(b"word", b"\\ud83d"),
        lambda event: event.replace(b"word", b"w\nrd"),
        lambda event: event.replace(b"word", b""),
        lambda _: b"",
        lambda _: b"\n\n",
        lambda event: b"\n\n" + event,
    ],
)
def test_spoilt_chunks_are_left_alone(damage: Callable[[bytes], bytes]) -> None:
    reader, _ = read_in_chunks()
    event = sse(says("word"))
    assert take(reader, event) == 4
    assert take(reader, damage(event)) == 0


@pytest.mark.parametrize("padding", ["x", "xx", "xxxx", "z"])
def test_chunks_with_changing_padding(padding: str) -> None:
    padded = [says(f"word{number}", obfuscation="x" * (number % 5 + 1)) for number in range(9)]
    reader = StreamReader()
    for event in by_event(sse(begins(), *padded[:2]))[:-1]:
        reader.feed(event)
    assert [take(reader, sse(payload)) for payload in padded[2:]] == [5] * 7
    rest = sse(says("!", obfuscation=padding), finishes(obfuscation="y"), DONE)
    whole = read(sse(begins(), *padded) + rest)
    emitted = reader.feed(rest) + reader.close()
    assert emitted == whole[-len(emitted) :]
    assert (Extra("chunk", {"obfuscation": padding}) in emitted) == (padding != "xxxx")


def test_text_with_a_line_end_to_some_is_not_forwarded_as_it_came() -> None:
    reader = StreamReader()
    reader.feed(sse(begins()))
    for word, forwarded in (("one", True), ("a\u2028b", False), ("é", True)):
        reader.feed(sse(says(word)))
        assert (reader.forwardable == "yes") == forwarded, word
