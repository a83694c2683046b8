"""What must hold for any bytes whatever; the properties and the fuzzer both ask it."""

from random import Random

from msgspec import structs

from penstock import Completion, StreamReader, StreamWriter
from penstock.core.dialects.openai_chat.habit import Habit
from penstock.core.dialects.openai_chat.plain import Taken
from penstock.core.events import Event, Extra, ReasoningDelta, TextDelta
from penstock.core.wire.frame import Frame
from tests.legal import violations
from tests.mutation import split
from tests.streams import by_event, fold, read


class LongWay(StreamReader):
    """A reader without its fast lane."""

    def _read_plain(self, _frame: Frame) -> Taken:
        return Taken.NOT

    def _read_head(self, _frame: Frame) -> bool:
        return False


def said(completion: Completion) -> list[object]:
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


def accustomed(*streams: bytes) -> Habit:
    """The habit of these streams, read one after another."""
    habit = Habit()
    for stream in streams:
        read(*by_event(stream), reader=StreamReader(habit=habit))
    return habit


def read_in_chunks(pieces: list[bytes], reader: StreamReader) -> list[Event]:
    """The events of a stream whose reads come as HTTP chunks, of which those that can be are taken without the parser.

    So does the relay. Nobody is told of the padding of those, and of the first words nothing but how long they are.
    """
    pieces = [piece for piece in pieces if piece]
    events: list[Event] = []
    beginning = reader.begin(pieces[0], in_chunk(pieces[1])) if len(pieces) > 1 else None
    if beginning is not None:
        events = [*beginning.events, beginning.mould.said("x" * beginning.said)]
        pieces = pieces[2:]

    def keep(text: str) -> int:
        assert mould is not None
        events.append(mould.said(text))
        return len(text)

    for piece in pieces:
        mould = reader.mould
        if mould is not None:
            mould.keep = keep
            if reader.tail is None and mould.read_chunk(in_chunk(piece)):
                continue
        if mould is None or reader.hold(piece) is None:
            events += reader.feed(piece)
    return [*events, *reader.close()]


def in_chunk(data: bytes) -> bytes:
    """Bytes as one HTTP chunk."""
    return b"%x\r\n%b\r\n" % (len(data), data)


def unpadded(events: list[Event]) -> list[Event]:
    """The events without padding; and without the first words of the stream, but for their length."""
    told: list[Event] = []
    first_words = True
    for event in events:
        if isinstance(event, Extra) and event.place == "chunk":
            fields = {name: value for name, value in event.fields.items() if name != "obfuscation"}
            told += [Extra("chunk", fields)] if fields else []
        elif first_words and isinstance(event, TextDelta | ReasoningDelta):
            told.append(structs.replace(event, text="x" * len(event.text)))
            first_words = False
        else:
            told.append(event)
    return told


def examine(data: bytes, random: Random, before: bytes = b"") -> tuple[list[str], tuple[str, str]]:
    """Every promise that is broken; and how the stream ended, with the code of its fault, for counting.

    `before` is another stream, that may have left a habit behind.
    """
    events = read(data)
    broken = violations(events)
    if read(*split(data, random)) != events:
        broken.append("another split gives other events")
    if read(*by_event(data)) != events:
        broken.append("read event by event, it gives other events")
    if read(data, reader=LongWay()) != events:
        broken.append("the fast lane gives other events")
    for habit in (accustomed(data), accustomed(before or data)):
        pieces = random.choice((by_event, lambda data: split(data, random)))(data)
        if read(*pieces, reader=StreamReader(habit=habit)) != events:
            broken.append("read by habit, it gives other events")
        in_chunks = read_in_chunks(by_event(data), StreamReader(habit=habit))
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
    if said(first) != said(again):
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
