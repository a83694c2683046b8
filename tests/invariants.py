"""Invariants that hold for any bytes; the property tests and the fuzzer check them."""

from collections.abc import Callable
from random import Random

import msgspec
from msgspec import structs

from penstock import Completion, StreamReader, StreamWriter
from penstock.core.dialects.dialect import AnswerFacts
from penstock.core.dialects.registry import DEFAULT_DIALECT, DIALECTS, find_dialect
from penstock.core.fast.templates import OpeningTemplate
from penstock.core.hub.blocks import Blocks
from penstock.core.hub.events import Event, Extra, ReasoningDelta, TextDelta
from penstock.core.hub.usage import Tokens
from penstock.core.stream import MAX_EVENT
from tests import gemini
from tests.legal import overlaps, violations
from tests.mutation import split
from tests.streams import by_event, fold, read

# The most events of an opening that is learned, and one more with text.
_LONGEST_OPENING = 5
# What a dialect whose calls are always whole can write of the events of a broken stream, and the loss of it.
_AS_WRITTEN: dict[str, Callable[[list[Event]], list[Event]]] = {gemini.DIALECT: gemini.with_whole_calls}
_OF_BROKEN_CALLS = ("arguments-as-text",)


class SlowReader(StreamReader):
    """A reader without its fast path."""

    def __init__(self, dialect: str = "openai_chat", *, max_event: int = MAX_EVENT) -> None:
        super().__init__(dialect, max_event=max_event)
        self.passthrough = None


class CountingReader(StreamReader):
    """A reader that counts the frames which take its slow path."""

    slow_frames = 0

    def feed(self, data: bytes | bytearray | memoryview) -> list[Event]:
        return self._count(lambda: super(CountingReader, self).feed(data))

    def close(self) -> list[Event]:
        return self._count(super().close)

    def _count(self, read: Callable[[], list[Event]]) -> list[Event]:
        """The slow path learns of frames by reading them, or all at once of those that the fast path has read."""
        fast, before, slow = self.passthrough, self._known(), self.slow_frames
        assert fast is not None
        read_fast = fast.frames + (fast.opening.frames if fast.opening is not None else 0)
        events = read()
        new = self._known() - before
        self.slow_frames = slow + (new - read_fast if new else 0)
        return events

    def _known(self) -> int:
        """How many frames the slow path knows of."""
        fast, trailer = self.passthrough, self.trailer
        assert fast is not None
        opening = fast.opening.frames if fast.opening is not None else 0
        return self.frames - fast.frames - opening - (trailer.frames if trailer else 0)


def sent_text(completion: Completion) -> list[tuple[object, ...]]:
    """The content of the choices in a form that can be compared, without ids that a writer makes up."""
    return [
        (
            choice.index,
            choice.text,
            choice.reasoning,
            choice.refusal,
            [(call.name, call.arguments, call.kind) for call in choice.tool_calls],
        )
        for choice in completion.choices
    ]


def broken_promises(data: bytes, random: Random, dialect: str = DEFAULT_DIALECT) -> list[str]:
    """Every broken promise of the reader and the writer of a dialect on these bytes."""
    return examine(data, random, dialect=dialect)[0]


def opening_of(*streams: bytes, together: int = 1, dialect: str = DEFAULT_DIALECT) -> OpeningTemplate:
    """The opening that is learned from these streams, read one after another, the first events of each together."""
    opening = OpeningTemplate()
    for stream in streams:
        read(*first_together(by_event(stream), together), reader=StreamReader(dialect, opening=opening))
    return opening


def first_together(events: list[bytes], count: int) -> list[bytes]:
    """The first events as one read, then one read for each."""
    return [b"".join(events[:count]), *events[count:]]


def last_together(events: list[bytes], count: int) -> list[bytes]:
    """One read for each event, and the last ones as one read."""
    at = max(len(events) - count, 0)
    return [*events[:at], b"".join(events[at:])]


def ends_together(data: bytes, random: Random) -> list[bytes]:
    """One read for each event, but for the first ones and the last ones."""
    return last_together(first_together(by_event(data), random.randint(1, _LONGEST_OPENING)), random.randint(1, 4))


def read_in_chunks(pieces: list[bytes], reader: StreamReader) -> list[Event]:
    """The events of a stream whose reads are HTTP chunks. As in the relay, chunks bypass the parser where possible.

    For such chunks there are no events for padding, and only the length of the first text is known.
    """
    pieces = [piece for piece in pieces if piece]
    events: list[Event] = []
    fast = reader.passthrough
    if fast is None:
        return read(*pieces, reader=reader)
    opening = fast.feed_opening(*pieces[:2]) if len(pieces) > 1 else None
    if opening is not None:
        assert fast.template is not None
        events = [*opening.events, *([fast.template.make_event("x" * opening.chars)] if opening.chars else [])]
        pieces = pieces[2:]

    def keep(text: str) -> int:
        assert fast is not None
        assert fast.template is not None
        events.append(fast.template.make_event(text))
        return len(text)

    fast.on_text = keep
    for piece in pieces:
        if fast.template is not None and (fast.feed(piece) or fast.feed_trailer(piece) is not None):
            continue
        events += reader.feed(piece)
    return [*events, *reader.close()]


def unpadded(events: list[Event]) -> list[Event]:
    """The events without padding; of the first text of the stream only the length is kept."""
    reported: list[Event] = []
    first_words = True
    for event in events:
        if isinstance(event, Extra) and event.place == "chunk":
            fields = {name: value for name, value in event.fields.items() if name != "obfuscation"}
            reported += [Extra("chunk", fields)] if fields else []
        elif first_words and isinstance(event, TextDelta | ReasoningDelta):
            reported.append(structs.replace(event, text="x" * len(event.text)))
            first_words = False
        else:
            reported.append(event)
    return reported


def examine(
    data: bytes, random: Random, before: bytes = b"", dialect: str = DEFAULT_DIALECT
) -> tuple[list[str], tuple[str, str]]:
    """Every promise that is broken; and how the stream ended, with the code of its fault, for counting.

    `before` is another stream, from which an opening may have been learned.
    """

    def events_of(*pieces: bytes, opening: OpeningTemplate | None = None) -> list[Event]:
        return read(*pieces, reader=StreamReader(dialect, opening=opening))

    events = events_of(data)
    broken = violations(events) + overlaps(Blocks([]).order(events))
    if events_of(*split(data, random)) != events:
        broken.append("another split gives other events")
    if events_of(*by_event(data)) != events:
        broken.append("read event by event, it gives other events")
    if find_dialect(dialect).surface is None:
        completion = fold(events)
        broken += _lost_in_translation(events, completion, dialect)
        broken += _ends_otherwise(events, completion, random)
        return broken, (completion.ending or "", completion.fault.code if completion.fault else "")
    if read(data, reader=SlowReader(dialect)) != events:
        broken.append("the fast path gives other events")
    openings = _openings(data, before, random, dialect)
    for opening in openings:
        together = ends_together(data, random)
        pieces = random.choice((by_event(data), together, split(data, random)))
        if events_of(*pieces, opening=opening) != events:
            broken.append("with a known opening, it gives other events")
        in_chunks = read_in_chunks(random.choice((by_event(data), together)), StreamReader(dialect, opening=opening))
        if unpadded(in_chunks) != unpadded(events):
            broken.append("read in chunks, it gives other events")
    broken += _variants_differ(data, random, dialect, random.choice(openings))
    completion = fold(events)
    include_usage = random.random() < 0.8
    facts = AnswerFacts(call_id="1", model="", created=0, include_usage=include_usage)
    writer = StreamWriter.for_call(dialect, facts)
    again = events_of(writer.write(events))
    lost = [loss.code for loss in writer.losses if loss.code not in _OF_BROKEN_CALLS]
    broken += [f"written in its own dialect, it loses something: {code}" for code in lost]
    broken += [f"rewritten: {violation}" for violation in violations(again)]
    # Of an answer that is cut off, what waits for the end of a block is not written (`core/hub/blocks.py`).
    sent = events if dialect == DEFAULT_DIALECT or completion.ending == "completed" else Blocks([]).order(events)
    written = fold(_AS_WRITTEN[dialect](sent) if dialect in _AS_WRITTEN else sent)
    broken += _differences(written, fold(again), dialect, include_usage=include_usage)
    return broken, (completion.ending or "", completion.fault.code if completion.fault else "")


def _lost_in_translation(events: list[Event], completion: Completion, dialect: str) -> list[str]:
    """What a client of chat completions gets otherwise, of a dialect that only providers speak."""
    facts = AnswerFacts(call_id="1", model="", created=0, include_usage=True, same_dialect=False)
    again = read(StreamWriter.for_call(DEFAULT_DIALECT, facts).write(events))
    broken = [f"rewritten: {violation}" for violation in violations(again)]
    return broken + _differences(completion, fold(again), dialect, include_usage=True)


def _ends_otherwise(events: list[Event], completion: Completion, random: Random) -> list[str]:
    """Whether a client of some API takes a broken answer for a whole one, or a whole one for broken."""
    client = random.choice([name for name, dialect in DIALECTS.items() if dialect.surface is not None])
    facts = AnswerFacts(call_id="1", model="", created=0, include_usage=True, same_dialect=False)
    again = read(StreamWriter.for_call(client, facts).write(events), reader=StreamReader(client))
    broken = [f"rewritten for {client}: {violation}" for violation in violations(again)]
    known = all(repair.code != "finish-unknown" for repair in completion.repairs)  # else Gemini's is `OTHER`: it failed
    if known and (fold(again).ending == "completed") != (completion.ending == "completed"):
        broken.append(f"it ends otherwise for {client}: {fold(again).ending}, not {completion.ending}")
    return broken


def relayed(pieces: list[bytes], reader: StreamReader, heartbeat: int = -1) -> tuple[bytes, int]:
    """What a client of the same dialect gets for these reads, and how many of them were forwarded unchanged.

    A heartbeat is sent after this many reads, unless the provider has sent the end.
    """
    writer, fast = _own_writer(reader), reader.passthrough
    out, untouched = [], 0
    for place, piece in enumerate(pieces):
        if place == heartbeat and not reader.done:
            out.append(_heartbeat(writer, reader))
        events = reader.feed(piece)
        if reader.untouched:
            writer.note(events)
        out.append(piece if reader.untouched else writer.write(events))
        untouched += reader.untouched
        if fast is not None:
            writer.compare(fast)
    out.append(writer.write(reader.close()))
    return b"".join(out), untouched


def relayed_answers(data: bytes, dialect: str) -> tuple[Completion, Completion, Completion, int]:
    """What a client gets on the fast path and on the slow one, which must say the same; and the provider's own answer.

    The last is the number of reads that were forwarded unchanged.
    """
    forwarded, untouched = relayed(by_event(data), StreamReader(dialect))
    written, none = relayed(by_event(data), SlowReader(dialect))
    fast, slow, whole = (fold(read(each, reader=StreamReader(dialect))) for each in (forwarded, written, data))
    assert none == 0
    assert sent_text(fast) == sent_text(slow)
    assert fast.ending == slow.ending
    assert (whole.ending == "completed") == (fast.ending == "completed")
    assert whole.ending != "completed" or sent_text(fast) == sent_text(whole)
    return fast, slow, whole, untouched


def relayed_in_chunks(pieces: list[bytes], reader: StreamReader, heartbeat: int = -1) -> tuple[bytes, int]:
    """As `relayed`, for a dialect with `RepeatedText`: as in the relay, chunks of text bypass the reader."""
    writer, fast = _own_writer(reader), reader.passthrough
    assert fast is not None
    follow = writer.text_follower(fast)
    assert follow is not None
    fast.on_text = follow
    out, untouched = [], 0
    for place, piece in enumerate(pieces):
        if place == heartbeat and not reader.done:
            out.append(_heartbeat(writer, reader))
        if fast.agreed and fast.template is not None and fast.feed(piece):
            out.append(piece)
            untouched += 1
        else:
            out.append(writer.write(reader.feed(piece)))
            writer.compare(fast)
    out.append(writer.write(reader.close()))
    return b"".join(out), untouched


def _own_writer(reader: StreamReader) -> StreamWriter:
    """A writer of the reader's dialect."""
    facts = AnswerFacts(call_id="1", model="", created=0, include_usage=True)
    return StreamWriter.for_call(reader.dialect, facts)


def _heartbeat(writer: StreamWriter, reader: StreamReader) -> bytes:
    """A heartbeat, after which numbers of the provider are not those of the client."""
    if reader.passthrough is not None and reader.passthrough.format.repeated is not None:
        reader.passthrough.agreed = False
    return writer.heartbeat()


def without_padding(data: bytes) -> list[bytes]:
    """The events of a healthy stream, with sorted members and without padding: what a client relies on."""
    events = []
    for event in by_event(data)[:-1]:
        name, _, value = event.partition(b"\ndata:")
        decoded = msgspec.json.decode(value)
        decoded.pop("obfuscation", None)
        events.append(name.replace(b"event: ", b"event:") + msgspec.json.encode(decoded, order="sorted"))
    return events


def _variants_differ(data: bytes, random: Random, dialect: str, opening: OpeningTemplate | None) -> list[str]:
    """Whether a client gets another answer if healthy text is forwarded unchanged. `opening` is one that is known."""
    answers = [
        fold(read(relayed(by_event(data), reader)[0], reader=StreamReader(dialect)))
        for reader in (StreamReader(dialect), SlowReader(dialect))
    ]
    if sent_text(answers[0]) != sent_text(answers[1]) or answers[0].ending != answers[1].ending:
        return ["forwarded as it is, it gives a client another answer"]
    format = find_dialect(dialect).passthrough
    if format is None or format.repeated is None:
        return []
    variants = ((by_event(data), None), (split(data, random), opening))
    for pieces, known in (*variants, (ends_together(data, random), opening)):  # each is relayed three times
        heartbeat = random.randint(-1, len(pieces))
        slow = without_padding(relayed(pieces, SlowReader(dialect), heartbeat)[0])
        for relay in (relayed, relayed_in_chunks):
            if without_padding(relay(pieces, StreamReader(dialect, opening=known), heartbeat)[0]) != slow:
                return ["forwarded as it is, it gives a client other events"]
    return []


def _openings(data: bytes, before: bytes, random: Random, dialect: str) -> list[OpeningTemplate | None]:
    """Openings that the reader may know; none where the dialect has no such."""
    format = find_dialect(dialect).passthrough
    if format is None or format.opening is None:
        return [None]
    return [
        opening_of(data, together=random.randint(1, _LONGEST_OPENING), dialect=dialect),
        opening_of(before or data, together=random.randint(1, _LONGEST_OPENING) if before else 1, dialect=dialect),
    ]


def _differences(first: Completion, again: Completion, dialect: str, *, include_usage: bool) -> list[str]:
    """Where a completion, written and read again, is not the same."""
    found = []
    contents = [sent_text(completion) for completion in (first, again)]
    if first.ending == "failed" or not first.choices:  # some dialects start an answer, in order to let it fail
        contents = [[choice for choice in choices if any(choice[1:])] for choices in contents]
    if contents[0] != contents[1]:
        found.append("written and read again, the answer differs")
    if (first.ending == "completed") != (again.ending == "completed"):
        found.append(f"{first.ending} became {again.ending}")
    if first.ending == "completed":
        finishes = [[choice.finish_reason for choice in completion.choices] for completion in (first, again)]
        unknown = any(repair.code == "finish-unknown" for repair in first.repairs)  # a chat reader may know it
        if finishes[0] != finishes[1] and not (unknown and find_dialect(dialect).surface is None):
            found.append("written and read again, the finish reasons differ")
        # Its raw object does not say the same; or what exceeds is a count that only one of the dialects has.
        mistyped = any(repair.code in ("usage-mistyped", "usage-details-exceed") for repair in first.repairs)
        if include_usage and not mistyped and _counts(first, dialect) != _counts(again, dialect):
            found.append("written and read again, the usage differs")
    return found


def _counts(completion: Completion, dialect: str) -> object:
    """The counts of the usage. Not every dialect can say that one is unknown: then what is booked must be the same."""
    if completion.usage is None:
        return None
    if find_dialect(dialect).surface is None:  # chat completions do not report cache writes
        return structs.replace(Tokens.of(completion.usage), cache_write=0, cache_write_1h=0)
    return completion.usage.counts() if dialect == DEFAULT_DIALECT else Tokens.of(completion.usage)
