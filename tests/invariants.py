"""Invariants that hold for any bytes; the property tests and the fuzzer check them."""

from collections.abc import Callable
from random import Random

import msgspec
from msgspec import structs

from penstock import Completion, StreamReader, StreamWriter
from penstock.core.dialects.dialect import AnswerFacts
from penstock.core.dialects.registry import DEFAULT_DIALECT, DIALECTS, find_dialect
from penstock.core.fast.format import TextEvent
from penstock.core.fast.openings import OpeningTemplate
from penstock.core.hub.blocks import Blocks
from penstock.core.hub.events import Event, Extra
from penstock.core.hub.usage import Tokens
from penstock.core.stream import MAX_EVENT
from tests import gemini
from tests.legal import overlaps, violations
from tests.mutation import split
from tests.responses import DIALECT as RESPONSES
from tests.streams import by_event, fold, read

# The most events of an opening that is learned, and one more with text.
_LONGEST_OPENING = 5
_WHOLE = 1_000_000  # more events than any stream has
# What a dialect whose calls are always whole can write of the events of a broken stream, and the loss of it.
_AS_WRITTEN: dict[str, Callable[[list[Event]], list[Event]]] = {gemini.DIALECT: gemini.with_whole_calls}
_OF_BROKEN_CALLS = ("arguments-as-text",)


class SlowReader(StreamReader):
    """A reader without its fast path."""

    def __init__(self, dialect: str = "openai_chat", *, max_event: int = MAX_EVENT) -> None:
        super().__init__(dialect, max_event=max_event)
        self.format = None


class CountingReader(StreamReader):
    """A reader that counts the frames which take its slow path."""

    slow_frames = 0

    def feed(self, data: bytes | bytearray | memoryview) -> list[Event]:
        return self._count(lambda: super(CountingReader, self).feed(data))

    def close(self) -> list[Event]:
        return self._count(super().close)

    def _count(self, read: Callable[[], list[Event]]) -> list[Event]:
        """The slow path learns of frames by reading them, or all at once of those that the fast path has read."""
        before, read_fast, slow = self._read_or_skipped(), self._unknown(), self.slow_frames
        events = read()
        new = self._read_or_skipped() - before
        self.slow_frames = slow + (new - read_fast if new else 0)
        return events

    def _unknown(self) -> int:
        """How many frames the slow path does not know of yet."""
        return (self.matcher.frames if self.matcher else 0) + (self.unseen_opening.frames if self.unseen_opening else 0)

    def _read_or_skipped(self) -> int:
        """How many frames the slow path knows of."""
        return self.frames - self._unknown() - (self.trailer.frames if self.trailer else 0)


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
        read(*first_together(by_event(stream), together), reader=StreamReader(dialect, opening_template=opening))
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

    For such chunks there are no events for padding.
    """
    events: list[Event] = []
    for piece in filter(None, pieces):
        matcher = reader.matcher
        if reader.mode == "fast" and matcher is not None and (text := matcher.take(piece)):
            events.append(matcher.template.make_event(text))
        else:
            events += reader.feed(piece)
    return [*events, *reader.close()]


def take(reader: StreamReader, event: bytes) -> int:
    """How many characters the reader's matcher finds in an event; 0 if it does not match."""
    return len(reader.matcher.take(event)) if reader.matcher is not None else 0


def unpadded(events: list[Event]) -> list[Event]:
    """The events without padding."""
    reported: list[Event] = []
    for event in events:
        if isinstance(event, Extra) and event.place == "chunk":
            fields = {name: value for name, value in event.fields.items() if name != "obfuscation"}
            reported += [Extra("chunk", fields)] if fields else []
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
        return read(*pieces, reader=StreamReader(dialect, opening_template=opening))

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
        pieces = random.choice((by_event(data), together, split(data, random), [data]))
        if events_of(*pieces, opening=opening) != events:
            broken.append("with a known opening, it gives other events")
        in_chunks = read_in_chunks(
            random.choice((by_event(data), together)), StreamReader(dialect, opening_template=opening)
        )
        if unpadded(in_chunks) != unpadded(events):
            broken.append("read in chunks, it gives other events")
    broken += _variants_differ(data, random, dialect, random.choice(openings))
    broken += _translations_differ(data, random, dialect, random.choice(openings))
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
    writer = _own_writer(reader)
    out, forwarded = [], 0
    for place, piece in enumerate(pieces):
        if place == heartbeat and not reader.done:
            out.append(writer.heartbeat())
        events = reader.feed(piece)
        if reader.forwardable == "yes" and _accepts(writer, reader):
            writer.note(events)
            out.append(reader.before_trailer(piece))
            forwarded += 1
        else:
            out.append(writer.write(events))
            _accepts(writer, reader)
    out.append(writer.write(reader.close()))
    return b"".join(out), forwarded


def _accepts(writer: StreamWriter, reader: StreamReader) -> bool:
    """Whether the text that the reader's matcher takes is what the writer would write."""
    assert reader.format is not None or reader.matcher is None
    return reader.format is None or reader.matcher is None or writer.accepts(reader.format, reader.matcher)


def relayed_answers(data: bytes, dialect: str) -> tuple[Completion, Completion, Completion, int]:
    """What a client gets on the fast path and on the slow one, which must say the same; and the provider's own answer.

    The last is the number of reads that were forwarded unchanged.
    """
    forwarded, count = relayed(by_event(data), StreamReader(dialect))
    written, none = relayed(by_event(data), SlowReader(dialect))
    fast, slow, whole = (fold(read(each, reader=StreamReader(dialect))) for each in (forwarded, written, data))
    assert none == 0
    assert sent_text(fast) == sent_text(slow)
    assert fast.ending == slow.ending
    assert (whole.ending == "completed") == (fast.ending == "completed")
    assert whole.ending != "completed" or sent_text(fast) == sent_text(whole)
    return fast, slow, whole, count


def relayed_in_chunks(pieces: list[bytes], reader: StreamReader, heartbeat: int = -1) -> tuple[bytes, int]:
    """The same for a dialect whose writer follows the text: as in the relay, chunks of text bypass the reader."""
    writer = _own_writer(reader)
    assert reader.format is not None
    follow = writer.text_follower(reader.format)
    assert follow is not None
    out, forwarded = [], 0
    for place, piece in enumerate(pieces):
        if place == heartbeat and not reader.done:
            out.append(writer.heartbeat())
        matcher = reader.matcher
        if matcher is not None and _accepts(writer, reader) and (text := matcher.take(piece)):
            follow(text)
            out.append(piece)
            forwarded += 1
        else:
            out.append(writer.write(reader.feed(piece)))
    out.append(writer.write(reader.close()))
    return b"".join(out), forwarded


def _own_writer(reader: StreamReader) -> StreamWriter:
    """A writer of the reader's dialect."""
    facts = AnswerFacts(call_id="1", model="", created=0, include_usage=True)
    return StreamWriter.for_call(reader.dialect, facts)


def translated(
    pieces: list[bytes], reader: StreamReader, writer: StreamWriter, heartbeats: tuple[int, ...] = ()
) -> tuple[bytes, int]:
    """What a client of another dialect gets for these reads, and how many texts were written from a template.

    As in the relay, these skip the reader once a text is written. Heartbeats precede the reads with these numbers.
    """
    out, templated, committed = [], 0, False
    for place, piece in enumerate(pieces):
        if place in heartbeats:
            out.append(writer.heartbeat())
        matcher = reader.matcher if committed and reader.mode == "fast" else None
        write = writer.text_writer(matcher) if matcher is not None else None
        if matcher is not None and write is not None and (text := matcher.take(piece)):
            out.append(write(text))
            templated += 1
        else:
            events = reader.feed(piece)
            committed = committed or any(isinstance(event, TextEvent) for event in events)
            out.append(writer.write(events))
    out.append(writer.write(reader.close()))
    return b"".join(out), templated


def _translations_differ(data: bytes, random: Random, dialect: str, opening: OpeningTemplate | None) -> list[str]:
    """Whether a client of some dialect gets other bytes if texts are written from templates."""
    client = random.choice([name for name, known in DIALECTS.items() if known.surface is not None])
    # Padding is not written from templates, and no client of chat completions gets templates from such a provider.
    if client == dialect == DEFAULT_DIALECT:
        return []
    facts = AnswerFacts(
        call_id="1",
        model="",
        created=0,
        include_usage=random.random() < 0.5,
        same_dialect=client == dialect,
        reasoning=random.choice(("all", "seals", "none")),
        stream_type="application/json" if client == gemini.DIALECT and random.random() < 0.5 else "",
    )
    pieces = random.choice((by_event(data), ends_together(data, random), split(data, random)))
    # None near the end: the reader of the fast path buffers the usual ending, and what precedes the heartbeat with it.
    heartbeats = tuple(random.sample(range(len(pieces)), min(len(pieces) // 2, 2))) if dialect == RESPONSES else ()
    writers = StreamWriter.for_call(client, facts), StreamWriter.for_call(client, facts)
    fast, _ = translated(pieces, StreamReader(dialect, opening_template=opening), writers[0], heartbeats)
    slow, _ = translated(pieces, SlowReader(dialect), writers[1], heartbeats)
    if fast != slow:
        return [f"written from templates, it gives a client of {client} other bytes"]
    return [] if writers[0].losses == writers[1].losses else [f"written from templates for {client}, it loses more"]


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
    format = find_dialect(dialect).text_format
    if format is None or not format.writer_follows:
        return []
    variants = ((by_event(data), None), (split(data, random), opening))
    for pieces, known in (*variants, (ends_together(data, random), opening)):  # each is relayed three times
        heartbeat = random.randint(-1, len(pieces))
        slow = without_padding(relayed(pieces, SlowReader(dialect), heartbeat)[0])
        for relay in (relayed, relayed_in_chunks):
            if without_padding(relay(pieces, StreamReader(dialect, opening_template=known), heartbeat)[0]) != slow:
                return ["forwarded as it is, it gives a client other events"]
    return []


def _openings(data: bytes, before: bytes, random: Random, dialect: str) -> list[OpeningTemplate | None]:
    """Openings that the reader may know; none where the dialect has no such."""
    format = find_dialect(dialect).text_format
    if format is None or format.opening is None:
        return [None]
    return [
        OpeningTemplate(),
        opening_of(data, together=random.choice((*range(1, _LONGEST_OPENING), _WHOLE)), dialect=dialect),
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
