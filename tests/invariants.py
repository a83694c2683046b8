"""What must hold for any bytes whatever; the properties and the fuzzer both ask it."""

from collections.abc import Callable
from random import Random

from msgspec import structs

from penstock import Completion, StreamReader, StreamWriter
from penstock.core.events import Event, Extra, ReasoningDelta, TextDelta
from penstock.core.stream import MAX_EVENT
from penstock.core.templates import OpeningTemplate
from tests.legal import violations
from tests.mutation import split
from tests.streams import by_event, fold, read


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
        """The slow path gets to know of frames by reading them, or all at once of those that the fast path has read."""
        fast, before, slow = self.passthrough, self._known(), self.slow_frames
        assert fast is not None
        read_fast = fast.frames + (fast.opening is not None)
        events = read()
        new = self._known() - before
        self.slow_frames = slow + (new - read_fast if new else 0)
        return events

    def _known(self) -> int:
        """How many frames the slow path knows of."""
        fast, trailer = self.passthrough, self.trailer
        assert fast is not None
        return self.frames - fast.frames - (fast.opening is not None) - (trailer.frames if trailer else 0)


def sent_text(completion: Completion) -> list[object]:
    """What the choices say, in a form to compare; ids that only a writer would mint are left out."""
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


def broken_promises(data: bytes, random: Random) -> list[str]:
    """Every promise that the reader and the writer break on these bytes."""
    return examine(data, random)[0]


def opening_of(*streams: bytes, together: int = 1) -> OpeningTemplate:
    """The opening that is learned from these streams, read one after another, the first events of each together."""
    opening = OpeningTemplate()
    for stream in streams:
        events = by_event(stream)
        read(b"".join(events[:together]), *events[together:], reader=StreamReader(opening=opening))
    return opening


def read_in_chunks(pieces: list[bytes], reader: StreamReader) -> list[Event]:
    """The events of a stream whose reads come as HTTP chunks, of which those that can be are taken without the parser.

    So does the relay. Nobody is told of the padding of those, and of the first words nothing but how long they are.
    """
    pieces = [piece for piece in pieces if piece]
    events: list[Event] = []
    fast = reader.passthrough
    assert fast is not None
    opening = fast.feed_opening(*pieces[:2]) if len(pieces) > 1 else None
    if opening is not None:
        assert fast.template is not None
        events = [*opening.events, fast.template.make_event("x" * opening.chars)]
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
    """The events without padding; and without the first words of the stream, but for their length."""
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


def examine(data: bytes, random: Random, before: bytes = b"") -> tuple[list[str], tuple[str, str]]:
    """Every promise that is broken; and how the stream ended, with the code of its fault, for counting.

    `before` is another stream, from which an opening may have been learned.
    """
    events = read(data)
    broken = violations(events)
    if read(*split(data, random)) != events:
        broken.append("another split gives other events")
    if read(*by_event(data)) != events:
        broken.append("read event by event, it gives other events")
    if read(data, reader=SlowReader()) != events:
        broken.append("the fast path gives other events")
    for opening in (opening_of(data, together=random.randint(1, 3)), opening_of(before or data)):
        pieces = random.choice((by_event, lambda data: split(data, random)))(data)
        if read(*pieces, reader=StreamReader(opening=opening)) != events:
            broken.append("with a known opening, it gives other events")
        in_chunks = read_in_chunks(by_event(data), StreamReader(opening=opening))
        if unpadded(in_chunks) != unpadded(events):
            broken.append("read in chunks, it gives other events")
    completion = fold(events)
    include_usage = random.random() < 0.8
    writer = StreamWriter(include_usage=include_usage)
    again = read(writer.write(events))
    broken += [f"written in its own dialect, it loses something: {loss.code}" for loss in writer.losses]
    broken += [f"rewritten: {violation}" for violation in violations(again)]
    broken += _differences(completion, fold(again), include_usage=include_usage)
    return broken, (completion.ending or "", completion.fault.code if completion.fault else "")


def _differences(first: Completion, again: Completion, *, include_usage: bool) -> list[str]:
    """Where a completion, written and read again, is not the same."""
    found = []
    if sent_text(first) != sent_text(again):
        found.append("written and read again, the answer differs")
    if (first.ending == "completed") != (again.ending == "completed"):
        found.append(f"{first.ending} became {again.ending}")
    if first.ending == "completed":
        finishes = [[choice.finish_reason for choice in completion.choices] for completion in (first, again)]
        if finishes[0] != finishes[1]:
            found.append("written and read again, the finish reasons differ")
        mistyped = any(
            repair.code == "usage-mistyped" for repair in first.repairs
        )  # its raw object does not say the same
        if include_usage and not mistyped and _counts(first) != _counts(again):
            found.append("written and read again, the usage differs")
    return found


def _counts(completion: Completion) -> tuple[int | None, ...] | None:
    return completion.usage.counts() if completion.usage else None
