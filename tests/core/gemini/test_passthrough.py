"""The fast path of Gemini gives the same events as the slow path, and so the same answer and the same usage."""

import json
from random import Random

import pytest

from penstock import Annotation, StreamReader, TextDelta, UsageReport
from penstock.core.hub.events import Event
from tests.corpus import CORPUS, captures
from tests.gemini import (
    DIALECT,
    GROUNDING,
    HEALTHY,
    LAST,
    USAGE,
    WORDS,
    Json,
    events_of,
    message,
    report,
    reported,
    says,
    thinks,
    wire,
)
from tests.invariants import CountingReader, SlowReader, broken_promises, read_in_chunks, relayed_answers, take
from tests.mutation import mutated
from tests.streams import by_event, read
from tests.tables import FULL

RECORDED = [capture for capture in captures("gemini") if capture.status == 200]
STREAM = HEALTHY["text with usage"]
BEGUN = wire(says("a", usage=report(3)))
NEXT = wire(says("Hello", usage=report(8)))


def slowly(data: bytes) -> list[Event]:
    return read(data, reader=SlowReader(DIALECT))


@pytest.mark.parametrize("data", HEALTHY.values(), ids=HEALTHY)
def test_both_paths_give_the_same_events(data: bytes) -> None:
    assert broken_promises(data, Random(1), DIALECT) == []
    assert read_in_chunks(by_event(data), StreamReader(DIALECT)) == slowly(data)


@pytest.mark.parametrize("data", HEALTHY.values(), ids=HEALTHY)
def test_both_paths_give_the_same_events_byte_by_byte(data: bytes) -> None:
    assert events_of(*(data[place : place + 1] for place in range(len(data)))) == slowly(data)


@pytest.mark.parametrize("name", ["text with usage", "text with usage, lines end with LF"])
def test_text_takes_the_fast_path_whatever_the_counts_are(name: str) -> None:
    reader = CountingReader(DIALECT)
    read(*by_event(HEALTHY[name]), reader=reader)
    assert (reader.frames, reader.slow_frames) == (len(WORDS) + 1, 2)  # the first message, and the last one


def test_text_behind_thoughts_takes_the_fast_path() -> None:
    reader = CountingReader(DIALECT)
    read(*by_event(HEALTHY["thoughts before text with usage"]), reader=reader)
    assert reader.slow_frames == 3  # the thought, the first text, the last message


def test_each_form_of_a_report_is_learned() -> None:
    reader = CountingReader(DIALECT)
    read(*by_event(HEALTHY["usage with members that come and go"]), reader=reader)
    assert reader.slow_frames == 5  # the first of each of four forms, and the last message


@pytest.mark.slow
def test_a_stream_that_stops_anywhere_has_the_usage_so_far() -> None:
    for end in range(len(STREAM)):
        part = STREAM[:end]
        events = read_in_chunks(by_event(part), StreamReader(DIALECT))
        assert events == events_of(*by_event(part)) == slowly(part)
        whole = part.count(b"\r\n\r\n")
        reports = [event.usage.output for event in events if isinstance(event, UsageReport)]
        # An event whose lines have not ended counts if its JSON is whole.
        assert reports in ([5 * whole] if whole else [], [5 * (whole + 1)], [99])


@pytest.mark.parametrize("seed", range(30))
def test_any_reports_give_the_same_usage_on_both_paths(seed: int) -> None:
    """Counts that grow, shrink, are zero, mistyped or absurd, and members that are missing."""
    random = Random(seed)
    values = [0, 1, 7, 8, 10, 99, 100, 123_456_789, 999_999_999, 10**9, 10**12, -1, 1.5, "4", None, True]
    messages = []
    for number in range(30):
        counts: Json = {name: random.choice(values[:9]) for name in USAGE if random.random() < 0.97}
        if random.random() < 0.1:
            counts[random.choice([*USAGE, "thoughtsTokenCount"])] = random.choice(values)
        if random.random() < 0.2:
            counts["promptTokensDetails"] = [{"modality": "AUDIO", "tokenCount": random.choice(values[:9])}]
        messages.append(says(f"w{number} ", usage=counts if random.random() < 0.95 else random.choice([None, {}])))
    data = wire(*messages)
    for end in (*range(0, len(data), 997), len(data)):
        part = data[:end]
        assert read_in_chunks(by_event(part), StreamReader(DIALECT)) == events_of(part) == slowly(part)


def test_citations_are_placed_in_text_that_took_the_fast_path() -> None:
    text, quote = "".join([*WORDS, " Sail."]), "noón"
    start = len(text[: text.index(quote)].encode())
    segment = {"startIndex": start, "endIndex": start + len(quote.encode())}
    supports = [{"segment": segment, "groundingChunkIndices": [0]}]
    grounding = {"groundingMetadata": GROUNDING["groundingMetadata"] | {"groundingSupports": supports}}
    data = wire(*reported(*WORDS), says(" Sail.", finish="STOP", usage=report(99), **grounding))
    events = read(*by_event(data), reader=StreamReader(DIALECT))
    (citation,) = [event for event in events if isinstance(event, Annotation)]
    assert text[citation.start : citation.end] == quote
    assert events == slowly(data)


def fed(data: bytes, *events: Json | bytes) -> list[int]:
    """How many characters the fast path finds in these events after a stream."""
    reader = StreamReader(DIALECT)
    for event in filter(None, by_event(data)):
        reader.feed(event)
    return [take(reader, event if isinstance(event, bytes) else wire(event)) for event in events]


def saying(escaped: bytes) -> bytes:
    """A message in which a text has these bytes."""
    return NEXT.replace(b"Hello", escaped)


def count(value: bytes) -> bytes:
    """A message in which a count has these bytes."""
    return NEXT.replace(b'"candidatesTokenCount": 8', b'"candidatesTokenCount": ' + value)


@pytest.mark.parametrize(
    ("event", "chars"),
    {
        "text": (NEXT, 5),
        "the same counts": (says("Hello", usage=report(3)), 5),
        "fewer tokens": (says("Hello", usage=report(1)), 5),
        "a longer prompt": (says("Hello", usage=report(9, prompt=123)), 5),
        "the largest count": (count(b"999999999"), 5),
        "a count that is too large": (count(b"1000000000"), 0),
        "no tokens": (count(b"0"), 0),
        "a count with a zero before it": (count(b"08"), 0),
        "a negative count": (count(b"-8"), 0),
        "a count with a fraction": (count(b"8.0"), 0),
        "a count with an exponent": (count(b"8e1"), 0),
        "a count as text": (count(b'"8"'), 0),
        "no count": (count(b"null"), 0),
        "digits that are not ASCII": (count("\uff18".encode()), 0),
        "a count that is missing": (says("x", usage=USAGE), 0),
        "a new count": (says("x", usage=report(8, thoughtsTokenCount=1)), 0),
        "no usage": (says("x"), 0),
        "an empty text": (saying(b""), 0),
        "line ends, quotes and backslashes": (saying(rb"a\n\"b\\"), 5),
        "an escape of a character": (saying(rb"\u00e9"), 1),
        "a surrogate pair": (saying(rb"\ud83c\udf0a"), 1),
        "half a surrogate pair": (saying(rb"\ud83c"), 0),
        "an escape that is none": (saying(rb"\x"), 0),
        "a backslash before the quote": (saying(b"\\"), 0),
        "another script": (saying("水 🌊".encode()), 3),
        "bytes that are not UTF-8": (saying(b"\xff"), 0),
        "a line end to some": (saying("a\u2028b".encode()), 0),
        "a control character": (saying(b"a\tb"), 0),
        "a quote": (saying(b'a"b'), 0),
        "another member": (saying(b'a","thought": true,"x": "'), 0),
        "a second part": (saying(b'a"}, {"text": "b'), 0),
        "a thought": (thinks("x", usage=report(8)), 0),
        "a signature": (message({"text": "x", "thoughtSignature": "c2VhbA=="}, usage=report(8)), 0),
        "a finish reason": (says("x", finish="STOP", usage=report(8)), 0),
        "citations": (says("x", usage=report(8), **GROUNDING), 0),
        "another candidate": (says("x", usage=report(8), index=1), 0),
        "another id": (says("x", usage=report(8)) | {"responseId": "gem_w2"}, 0),
        "another model": (says("x", usage=report(8)) | {"modelVersion": "weir-4"}, 0),
        "other line ends": (wire(says("x", usage=report(8)), end="\n\n"), 0),
        "two events": (NEXT * 2, 0),
        "half an event": (NEXT[:-2], 0),
        "a comment": (b": still here\r\n\r\n" + NEXT, 0),
        "no space": (NEXT.replace(b"data: ", b"data:"), 0),
    }.values(),
)
def test_only_what_matches_is_taken(event: Json | bytes, chars: int) -> None:
    assert fed(BEGUN, event) == [chars]
    data = BEGUN + (event if isinstance(event, bytes) else wire(event)) + NEXT
    assert read_in_chunks(by_event(data), StreamReader(DIALECT)) == slowly(data)


def forwarded(*events: Json | bytes) -> bool:
    """Whether the last of these reads is forwarded as it is."""
    reader = StreamReader(DIALECT)
    for event in events:
        reader.feed(event if isinstance(event, bytes) else wire(event))
    return reader.forwardable == "yes"


def test_only_healthy_text_is_forwarded_as_it_is() -> None:
    begun = says("a", usage=report(3))
    assert forwarded(begun)
    assert forwarded(says("a"))
    assert forwarded(wire(begun, begun))
    assert forwarded(begun, says("b") | {"mood": "calm"}) is False  # a member that becomes an event
    assert forwarded(begun, NEXT)
    assert forwarded(wire(begun, end="\n\n"))
    assert not forwarded(thinks("a"))
    assert not forwarded(thinks("a"), begun)  # the writer must know of the new block
    assert forwarded(thinks("a"), begun, begun)
    assert not forwarded(says("a") | {"responseId": ""})
    assert not forwarded(says("a", usage=report(0, prompt=0)))  # it is reported as a placeholder
    assert not forwarded(says("a", "b"))
    # Google's SDK for JavaScript fails on all of these.
    assert not forwarded(begun, b": still here\r\n\r\n" + NEXT)
    assert not forwarded(begun, b"\r\n" + NEXT)
    assert not forwarded(begun, b"event: message\r\n" + NEXT)
    assert not forwarded(begun, NEXT.replace(b"data: ", b"data:"))
    assert not forwarded(begun, NEXT.replace(b"data: ", b"data:  "))
    assert not forwarded(begun, NEXT.replace(b"\r\n", b"\r"))
    assert not forwarded(begun, wire(says("a\u2028b", usage=report(8))))


def test_the_rest_of_a_message_is_not_forwarded_as_a_message() -> None:
    """The text of the message looks like the beginning of one."""
    data = wire(says("data: {x", usage=report(3)))
    at = data.index(b"data: {x")
    assert not forwarded(data[:at], data[at:])
    assert events_of(data[:at], data[at:]) == slowly(data)


def test_what_says_the_text_twice_is_not_learned() -> None:
    twice = BEGUN.replace(b'"text": "a"', b'"text": "a", "text": "a"')
    assert fed(twice, twice.replace(b'"a"', b'"b"')) == [0]


def test_of_two_reports_in_a_message_the_last_one_counts() -> None:
    twice = NEXT.replace(b'"usageMetadata": {', b'"usageMetadata": {"promptTokenCount": 1}, "usageMetadata": {')
    data = BEGUN + twice + twice.replace(b": 1}", b": 2}") + twice.replace(b": 8,", b": 9,")
    assert read_in_chunks(by_event(data), StreamReader(DIALECT)) == slowly(data)


def test_a_large_report_is_not_learned() -> None:
    """Compiling its pattern would take too long."""
    for members in ({"details": [{"modality": "TEXT", "tokenCount": 7}] * 40}, {"details": [7] * 100}):
        large = wire(says("a", usage=report(3, **members)))
        assert fed(large, large) == [0]
    small = wire(says("a", usage=report(3, details=[7] * 20)))
    assert fed(small, small) == [1]


def check(data: bytes) -> int:
    """Both paths give a client the same answer; returns how many reads were forwarded unchanged."""
    fast, slow, whole, untouched = relayed_answers(data, DIALECT)
    assert (fast.id, fast.model) == (slow.id, slow.model)
    if whole.ending == "completed":
        assert (fast.usage, fast.choices) == (slow.usage, slow.choices)
    return untouched


@pytest.mark.parametrize("data", HEALTHY.values(), ids=HEALTHY)
def test_a_client_gets_the_same_answer_on_both_paths(data: bytes) -> None:
    check(data)


def test_the_messages_before_the_last_are_forwarded() -> None:
    assert check(STREAM) == len(WORDS)


def test_a_message_without_usage_is_forwarded_too() -> None:
    assert check(wire(*map(says, WORDS), LAST)) == len(WORDS)


def test_what_is_forwarded_has_the_text_that_is_counted() -> None:
    reader = StreamReader(DIALECT)
    events = [event for piece in by_event(STREAM) for event in reader.feed(piece)]
    assert [event.text for event in events if isinstance(event, TextDelta)] == [*WORDS, " Sail then."]


@pytest.mark.slow
@pytest.mark.parametrize("data", HEALTHY.values(), ids=HEALTHY)
def test_both_paths_give_the_same_events_of_any_bytes(data: bytes) -> None:
    others = list(HEALTHY.values())
    for seed in range(200 if FULL else 40):
        random = Random(seed)
        assert broken_promises(mutated(data, random.choice(others), random), random, DIALECT) == []


@pytest.mark.slow
@pytest.mark.skipif(not RECORDED, reason=f"there is no corpus in {CORPUS}; PENSTOCK_CORPUS may name another")
def test_recorded_streams_give_a_client_the_same_answer() -> None:
    texts = taken = untouched = 0
    for capture in RECORDED:
        untouched += check(capture.data)
        reader = CountingReader(DIALECT)
        for piece in filter(None, by_event(capture.data)):
            before = reader.slow_frames
            events = reader.feed(piece)
            texts += bool(events) and all(isinstance(event, TextDelta) for event in events) and _is_unfinished(piece)
            taken += reader.slow_frames == before
    # Of the messages with text and without a finish reason, that do not open a block.
    assert taken > 200
    assert taken > 0.9 * texts
    assert untouched > 300


def _is_unfinished(event: bytes) -> bool:
    value = json.loads(event.removeprefix(b"data:"))
    assert isinstance(value, dict)
    return not any("finishReason" in candidate for candidate in value["candidates"])
