"""Transcript: the last text of an answer in progress, for an operator who opens the call on the admin page.

It exists only if the configuration allows that page to show texts.

It is written while the answer is counted, which must cost next to nothing. `StringIO.write` returns the number of
characters written, so writing replaces counting. Each choice's text is kept in blocks of one kind, in the order of
their starts. The last `MAX_CHARS` characters are kept: after every `TRIM_EVERY` characters the relay calls `trim`
(`AttemptControl.check_at`).
"""

from collections.abc import Callable
from io import StringIO
from typing import Literal, TypeAlias

from msgspec import Struct

from penstock.core.hub.events import Event, Extra, ReasoningDelta, RefusalDelta, TextDelta, ToolCallDelta, ToolCallStart

MAX_CHARS = 65_536
TRIM_EVERY = 8_192
# More blocks come of a stream that changes its kind with every word. Then the older half is dropped.
_MAX_BLOCKS = 256

_TEXT_DELTAS = (TextDelta, ReasoningDelta, RefusalDelta)
# The field of each event that has the text. Transcripts of audio are in an `Extra`.
_TEXT_FIELDS: dict[type[Event], str] = {
    TextDelta: "text",
    ReasoningDelta: "text",
    RefusalDelta: "text",
    ToolCallStart: "name",
    ToolCallDelta: "arguments",
}
TEXT_EVENTS = frozenset((*_TEXT_FIELDS, Extra))
"""The events that may have text."""

Kind: TypeAlias = Literal["text", "reasoning", "tool"]


class TranscriptPart(Struct, frozen=True):
    """A text of one kind in one choice."""

    text: str
    kind: Kind
    choice: int


def part_of(event: Event) -> TranscriptPart | None:
    """The text of an event, or None if it has none."""
    match event:
        case TextDelta(choice=choice, text=text) | RefusalDelta(choice=choice, text=text):
            return TranscriptPart(text, "text", choice)
        case ReasoningDelta(choice=choice, text=text):
            return TranscriptPart(text, "reasoning", choice)
        case ToolCallStart(choice=choice, name=text) | ToolCallDelta(choice=choice, arguments=text):
            return TranscriptPart(text, "tool", choice)
        case Extra("delta", {"audio": {"transcript": str(text)}}, int(choice)) if text:
            return TranscriptPart(text, "text", choice)  # the transcript of spoken audio
        case _:
            return None


def count_chars(events: list[Event]) -> int:
    """The number of characters of text in these events."""
    size = 0
    for event in events:
        name = _TEXT_FIELDS.get(type(event))
        if name is not None:
            size += len(getattr(event, name))
        elif type(event) is Extra and event.place == "delta" and (part := part_of(event)) is not None:
            size += len(part.text)
    return size


class Transcript:
    """The transcript of one attempt."""

    __slots__ = ("_blocks", "_choice", "_open", "_type", "_write")

    def __init__(self) -> None:
        self._blocks: list[_TranscriptBlock] = []
        self._open: dict[int, _TranscriptBlock] = {}  # by choice
        # Type and choice of the last event, and the `write` method for the next event of that type and choice.
        self._type: type[Event] | None = None
        self._choice = 0
        self._write: Callable[[str], int] = len

    def append(self, events: list[Event]) -> int:
        """Append the text of these events; return its number of characters."""
        size = 0
        for event in events:
            if type(event) is self._type and isinstance(event, _TEXT_DELTAS) and event.choice == self._choice:
                size += self._write(event.text)  # nearly always
            elif (part := part_of(event)) is not None:
                size += self.writer(event)(part.text)
        return size

    def writer(self, event: Event) -> Callable[[str], int]:
        """The function that appends texts of this event's kind and choice and returns their length.

        It is valid until the next call of `writer`, `trim` or `clear`.
        """
        part = part_of(event)
        if part is None:
            return len
        block = self._open.get(part.choice)
        if block is None or block.kind != part.kind:
            if len(self._blocks) >= _MAX_BLOCKS:
                self.trim()
                del self._blocks[: _MAX_BLOCKS // 2]
            if block is not None:
                block.close()
            block = self._open[part.choice] = _TranscriptBlock(part.kind, part.choice)
            self._blocks.append(block)
        assert block.buffer is not None
        self._type, self._choice, self._write = type(event), part.choice, block.buffer.write
        return self._write

    def trim(self) -> None:
        """Drop the oldest characters beyond `MAX_CHARS`. Writers become invalid."""
        blocks = self._blocks
        for block in self._open.values():
            block.close()
        self._open.clear()
        self._type = None
        excess = sum(len(block.text) for block in blocks) - MAX_CHARS
        while excess > 0:
            excess -= len(blocks[0].text)
            if excess >= 0:
                del blocks[0]
            else:
                blocks[0].text = blocks[0].text[excess:]

    def clear(self) -> None:
        """Drop everything. Writers become invalid."""
        self._blocks.clear()
        self._open.clear()
        self._type = None

    def parts(self) -> list[TranscriptPart]:
        """The text that is kept, in order."""
        return [TranscriptPart(block.content, block.kind, block.choice) for block in self._blocks]


class _TranscriptBlock:
    """Consecutive text of one kind in one choice. It is in the buffer while it may grow, then in `text`."""

    __slots__ = ("buffer", "choice", "kind", "text")

    def __init__(self, kind: Kind, choice: int) -> None:
        self.kind = kind
        self.choice = choice
        self.text = ""
        self.buffer: StringIO | None = StringIO()

    @property
    def content(self) -> str:
        """All of its text."""
        return self.text if self.buffer is None else self.buffer.getvalue()

    def close(self) -> None:
        """Move the text out of the buffer: no more is appended."""
        self.text, self.buffer = self.content, None
