"""The usual opening and ending of Messages take the fast path, and give the events and the tokens of the slow path."""

import pytest

from penstock import Start, StreamReader
from penstock.core.hub.events import Event, UsageReport
from penstock.core.hub.usage import Tokens
from tests.invariants import CountingReader, SlowReader, opening_of, relayed, sent_text
from tests.messages import (
    DIALECT,
    PING,
    STOPS,
    Json,
    answer,
    begins,
    calls,
    calls_all,
    closes,
    completion,
    finishes,
    opens,
    padded,
    says,
    says_all,
    thinks,
    wire,
)
from tests.streams import by_event, read

CACHED = {"input_tokens": 3, "cache_read_input_tokens": 40, "cache_creation_input_tokens": 9, "output_tokens": 2}
LIFETIMES = CACHED | {"cache_creation": {"ephemeral_5m_input_tokens": 4, "ephemeral_1h_input_tokens": 5}}
OTHER_LIFETIMES = {
    "input_tokens": 11,
    "cache_read_input_tokens": 0,
    "cache_creation_input_tokens": 700,
    "output_tokens": 12,
    "cache_creation": {"ephemeral_5m_input_tokens": 0, "ephemeral_1h_input_tokens": 700},
}


def reads(*opening: Json, finish: Json | None = None, ending: tuple[Json, ...] | None = None) -> list[bytes]:
    """The reads of an answer: its opening, one for each of three words, its ending."""
    word = thinks if any(event.get("content_block", {}).get("type") == "thinking" for event in opening) else says
    words = [wire(word(text)) for text in ("High", " at", " noon.")]
    return [wire(*opening), *words, wire(*(ending or (closes(), finish or finishes(), STOPS)))]


def slow_frames(known: list[bytes], pieces: list[bytes]) -> int:
    """How many events of an answer the slow path reads after another answer. The events are the same in any case."""
    opening = opening_of(b"".join(known), together=known[0].count(b"\n\n"), dialect=DIALECT)
    reader = CountingReader(DIALECT, opening_template=opening)
    assert read(*pieces, reader=reader) == read(b"".join(pieces), reader=SlowReader(DIALECT))
    return reader.slow_frames


@pytest.mark.parametrize(
    ("known", "opening"),
    {
        "another id": ((begins(), opens()), (begins("msg_2"), opens())),
        "other counts": (
            (begins(usage=CACHED), opens()),
            (begins(usage=dict.fromkeys(CACHED, 0) | {"input_tokens": 123_456}), opens()),
        ),
        "other lifetimes": ((begins(usage=LIFETIMES), opens()), (begins("msg_2", usage=OTHER_LIFETIMES), opens())),
        "a ping": ((begins(), opens(), PING), (begins("msg_2"), opens(), PING)),
        "thinking": ((begins(), opens(0, "thinking")), (begins("msg_2"), opens(0, "thinking"))),
        "an unknown member": (
            (begins(container={"id": "c"}), opens()),
            (begins("msg_2", container={"id": "c"}), opens()),
        ),
        "a service tier": (
            (begins(usage=CACHED | {"service_tier": "priority"}), opens()),
            (begins("msg_2", usage=CACHED | {"service_tier": "priority"}), opens()),
        ),
    }.values(),
)
def test_the_second_answer_takes_the_fast_path_as_a_whole(known: tuple[Json, ...], opening: tuple[Json, ...]) -> None:
    first, second = reads(*known), reads(*opening)
    assert slow_frames(first, second) == 0
    assert slow_frames(first, [second[0] + second[1], *second[2:]]) == 0  # the opening comes with the first word
    assert slow_frames(first, list(map(padded, second))) == 0


def test_the_events_have_the_values_of_their_own_answer() -> None:
    opening = opening_of(b"".join(reads(begins(), opens())), together=2, dialect=DIALECT)
    pieces = reads(begins("msg_2", usage={"input_tokens": 8, "output_tokens": 3}), opens())
    events = read(*pieces, reader=StreamReader(DIALECT, opening_template=opening))
    assert events[0] == Start("msg_2", "weir-3", None)
    assert getattr(events[1], "fields", None) == {
        "type": "message_start",
        "usage": {"input_tokens": 8, "output_tokens": 3},
    }
    assert tokens_of(events) == Tokens(input=8, output=4)


@pytest.mark.parametrize(
    "opening",
    {
        "another model": (begins(model="weir-4"), opens()),
        "an empty id": (begins(""), opens()),
        "no input": (begins(usage={"input_tokens": 0, "output_tokens": 1}), opens()),
        "a count that is not one": (begins(usage={"input_tokens": 7.0, "output_tokens": 1}), opens()),
        "a negative count": (begins(usage={"input_tokens": -7, "output_tokens": 1}), opens()),
        "a count too many": (begins(usage={"input_tokens": 7, "output_tokens": 1, "iterations": []}), opens()),
        "no usage": (begins(usage={}), opens()),
        "text in the block": (begins(), opens(text="High")),
        "a block with another number": (begins(), opens(1)),
        "another kind of block": (begins(), opens(0, "thinking")),
        "a call": (begins(), calls()),
        "no block": (begins(),),
        "a ping more": (begins(), opens(), PING),
        "the start again": (begins(), begins(), opens()),
        "words before the ping": (begins(), opens(), says("So:"), PING),
    }.values(),
)
def test_another_opening_takes_the_slow_path(opening: tuple[Json, ...]) -> None:
    first, second = reads(begins(), opens()), reads(*opening)
    assert slow_frames(first, second) > 0
    slow_frames(second, first)  # asserts that the events are right, whatever was learned
    slow_frames(second, [piece.replace(b"msg_w1", b"msg_2") for piece in second])


def tokens_of(events: list[Event]) -> Tokens:
    (usage,) = (event.usage for event in events if isinstance(event, UsageReport))
    return Tokens.of(usage)


STARTED = (begins(usage=LIFETIMES | {"service_tier": "standard"}), opens())


@pytest.mark.parametrize("after_slow_text", [False, True])
@pytest.mark.parametrize(
    ("opening", "finish"),
    {
        "output only": (STARTED, finishes()),
        "all counts": (STARTED, finishes(usage=CACHED | {"output_tokens": 88})),
        "zeros": (STARTED, finishes(usage=dict.fromkeys(CACHED, 0) | {"output_tokens": 5})),
        "nulls": (STARTED, finishes(usage=dict.fromkeys(CACHED) | {"output_tokens": 5})),
        "a stop sequence": (STARTED, finishes("stop_sequence", stop_sequence="###")),
        "the maximum": (STARTED, finishes("max_tokens")),
        "thinking tokens": (
            STARTED,
            finishes(usage={"output_tokens": 9, "output_tokens_details": {"thinking_tokens": 4}}),
        ),
        "another lifetime": (
            STARTED,
            finishes(usage={"output_tokens": 9, "cache_creation": {"ephemeral_1h_input_tokens": 6}}),
        ),
        "members without a value": (STARTED, finishes(container=None)),
    }.values(),
)
def test_the_usual_ending_has_the_tokens_of_the_slow_path(
    opening: tuple[Json, ...], finish: Json, after_slow_text: bool
) -> None:
    pieces = reads(*opening, finish=finish)
    if after_slow_text:
        pieces[2] = wire(says('"\n'))
    template = opening_of(b"".join(reads(*opening)), together=2, dialect=DIALECT)
    reader, slow = StreamReader(DIALECT, opening_template=template), SlowReader(DIALECT)
    for piece in pieces:
        reader.feed(piece)
    trailer = reader.trailer
    assert trailer is not None
    assert trailer.done
    expected = read(*pieces, reader=slow)
    assert trailer.tokens == tokens_of(expected)
    (usage,) = (event.usage for event in expected if isinstance(event, UsageReport))
    assert trailer.tier == usage.tier == "standard"
    assert trailer.write(include_usage=False) == pieces[-1]
    assert reader.close() == expected[-4:]


UNUSUAL: dict[str, tuple[Json, ...]] = {
    "no output": (closes(), finishes(usage={"output_tokens": 0}), STOPS),
    "no usage": (closes(), finishes(usage={}), STOPS),
    "an odd count": (closes(), finishes(usage={"output_tokens": "4"}), STOPS),
    "an absurd count": (closes(), finishes(usage={"output_tokens": 10**12}), STOPS),
    "another model": (
        closes(),
        finishes(usage={"output_tokens": 4, "iterations": [{"type": "compaction", "model": "m", "output_tokens": 9}]}),
        STOPS,
    ),
    "requests of tools": (
        closes(),
        finishes(usage={"output_tokens": 4, "server_tool_use": {"web_search_requests": 1}}),
        STOPS,
    ),
    "a tool call as the reason": (closes(), finishes("tool_use"), STOPS),
    "an unknown reason": (closes(), finishes("tired"), STOPS),
    "no reason": (closes(), finishes(None), STOPS),
    "an unknown member": (closes(), finishes(mood="calm"), STOPS),
    "another block stops": (closes(1), finishes(), STOPS),
    "the block stays open": (finishes(), STOPS),
    "two finishes": (closes(), finishes(), finishes(), STOPS),
    "an error": (closes(), finishes(), {"type": "error", "error": {"type": "api_error", "message": "no"}}),
    "text after the finish": (closes(), finishes(), says("more"), STOPS),
    "another block": (closes(), opens(1), says("more", 1), closes(1), finishes(), STOPS),
    "a call": (closes(), *calls_all(index=1), finishes("tool_use"), STOPS),
    "no end": (closes(), finishes()),
    "the end twice": (closes(), finishes(), STOPS, STOPS),
    "data after the end": (closes(), finishes(), STOPS, says("more")),
}


@pytest.mark.parametrize("ending", UNUSUAL.values(), ids=UNUSUAL)
def test_an_unusual_ending_takes_the_slow_path(ending: tuple[Json, ...]) -> None:
    known = reads(begins(), opens())
    together = reads(begins("msg_2"), opens(), ending=ending)
    assert slow_frames(known, together) > 0
    slow_frames(known, [*together[:-1], *map(wire, ending)])  # asserts that the events are right
    slow_frames(known, [*together[:-1], wire(*ending[:2]), wire(*ending[2:])])


def test_a_block_that_stops_alone_is_reported_at_once() -> None:
    pieces = reads(begins(), opens())
    reader = StreamReader(DIALECT, opening_template=opening_of(b"".join(pieces), together=2, dialect=DIALECT))
    for piece in pieces[:-1]:
        reader.feed(piece)
    assert len(reader.feed(wire(closes()))) == 1


@pytest.mark.parametrize(
    "rest",
    {
        "an escape": (says('"\n'), says("x"), closes(), finishes(), STOPS),
        "another block": (closes(), *says_all("more", index=1), finishes(), STOPS),
        "a call": (closes(), *calls_all(index=1), finishes("tool_use"), STOPS),
        "an error": ({"type": "error", "error": {"type": "overloaded_error", "message": "no"}},),
        "nothing": (),
    }.values(),
)
def test_a_client_gets_the_same_answer_after_a_forwarded_opening(rest: tuple[Json, ...]) -> None:
    known, data = answer(*says_all("a", "b")), wire(begins("msg_2"), opens(), says("High"), says(" at"), *rest)
    events = [event for event in by_event(data) if event]
    pieces = [b"".join(events[:2]), *events[2:]]
    reader = StreamReader(DIALECT, opening_template=opening_of(known, together=2, dialect=DIALECT))
    forwarded, untouched = relayed(pieces, reader)
    written, _ = relayed(pieces, SlowReader(DIALECT))
    assert untouched >= 3
    assert forwarded.startswith(pieces[0])
    fast, slow = completion(forwarded), completion(written)
    assert sent_text(fast) == sent_text(slow)
    assert (fast.ending, fast.usage, fast.id) == (slow.ending, slow.usage, slow.id)
    assert [repair.code for repair in fast.repairs] == [repair.code for repair in slow.repairs]
