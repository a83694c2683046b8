"""Transcript: what a model has said so far, for whoever begins to read along. Only where that is allowed is there one.

It is written as the answer is counted, which must cost next to nothing: to write into a buffer says how much was
written, and so takes the place of counting. What each choice says is kept in blocks of one kind, in the order in which
they were begun. Of all that was said the last `MOST` characters are kept: each time when `TURN` more were said, the
relay has them turned (`AttemptControl.check_at`), and what is too much is dropped.
"""

from collections.abc import Callable
from io import StringIO
from typing import Literal, TypeAlias

from msgspec import Struct

from penstock.core.events import Event, Extra, ReasoningDelta, RefusalDelta, TextDelta, ToolCallDelta, ToolCallStart

MOST = 65_536
TURN = 8_192
# More blocks are a stream that changes its mind with every word. Then half of them go.
_MOST_BLOCKS = 256

_SPOKEN = (TextDelta, ReasoningDelta, RefusalDelta)
# Where in an event it stands what the model says. What is said aloud is an extra.
_TEXT_FIELDS: dict[type[Event], str] = {
    TextDelta: "text",
    ReasoningDelta: "text",
    RefusalDelta: "text",
    ToolCallStart: "name",
    ToolCallDelta: "arguments",
}
SPOKEN = frozenset((*_TEXT_FIELDS, Extra))
"""The events in which the model may say something."""

Kind: TypeAlias = Literal["text", "reasoning", "tool"]


class TranscriptPart(Struct, frozen=True):
    """Something that the model says."""

    text: str
    kind: Kind
    choice: int


def piece_of(event: Event) -> TranscriptPart | None:
    """What the model says in this event, if it does."""
    match event:
        case TextDelta(choice=choice, text=text) | RefusalDelta(choice=choice, text=text):
            return TranscriptPart(text, "text", choice)
        case ReasoningDelta(choice=choice, text=text):
            return TranscriptPart(text, "reasoning", choice)
        case ToolCallStart(choice=choice, name=text) | ToolCallDelta(choice=choice, arguments=text):
            return TranscriptPart(text, "tool", choice)
        case Extra("delta", {"audio": {"transcript": str(text)}}, int(choice)) if text:
            return TranscriptPart(text, "text", choice)  # what is heard
        case _:
            return None


def size_of(events: list[Event]) -> int:
    """How many characters the model says in these events."""
    size = 0
    for event in events:
        name = _TEXT_FIELDS.get(type(event))
        if name is not None:
            size += len(getattr(event, name))
        elif type(event) is Extra and (piece := piece_of(event)) is not None:
            size += len(piece.text)
    return size


class Transcript:
    """Of one attempt."""

    __slots__ = ("_blocks", "_choice", "_open", "_type", "_write")

    def __init__(self) -> None:
        self._blocks: list[_TranscriptBlock] = []
        self._open: dict[int, _TranscriptBlock] = {}  # by choice
        # What the last event was, and where the next one of its like goes.
        self._type: type[Event] | None = None
        self._choice = 0
        self._write: Callable[[str], int] = len

    def hear(self, events: list[Event]) -> int:
        """Take down what the model says in these events; returns how many characters that are."""
        size = 0
        for event in events:
            if type(event) is self._type and isinstance(event, _SPOKEN) and event.choice == self._choice:
                size += self._write(event.text)  # nearly always
            elif (piece := piece_of(event)) is not None:
                size += self.writer(event)(piece.text)
        return size

    def writer(self, event: Event) -> Callable[[str], int]:
        """What takes down texts like that of this event, until another is asked for. It returns their length."""
        piece = piece_of(event)
        if piece is None:
            return len
        block = self._open.get(piece.choice)
        if block is None or block.kind != piece.kind:
            if len(self._blocks) >= _MOST_BLOCKS:
                self.turn()
                del self._blocks[: _MOST_BLOCKS // 2]
            if block is not None:
                block.close()
            block = self._open[piece.choice] = _TranscriptBlock(piece.kind, piece.choice)
            self._blocks.append(block)
        assert block.buffer is not None
        self._type, self._choice, self._write = type(event), piece.choice, block.buffer.write
        return self._write

    def turn(self) -> None:
        """Drop what is too much. Who has a writer must ask for another one."""
        blocks = self._blocks
        for block in self._open.values():
            block.close()
        self._open.clear()
        self._type = None
        excess = sum(len(block.text) for block in blocks) - MOST
        while excess > 0:
            excess -= len(blocks[0].text)
            if excess >= 0:
                del blocks[0]
            else:
                blocks[0].text = blocks[0].text[excess:]

    def clear(self) -> None:
        """Drop everything. Who has a writer must ask for another one."""
        self._blocks.clear()
        self._open.clear()
        self._type = None

    def told(self) -> list[TranscriptPart]:
        """What is kept."""
        return [TranscriptPart(block.said, block.kind, block.choice) for block in self._blocks]


class _TranscriptBlock:
    """What one choice says of one kind: in the buffer while it may go on."""

    __slots__ = ("buffer", "choice", "kind", "text")

    def __init__(self, kind: Kind, choice: int) -> None:
        self.kind = kind
        self.choice = choice
        self.text = ""
        self.buffer: StringIO | None = StringIO()

    @property
    def said(self) -> str:
        """All of it."""
        return self.text if self.buffer is None else self.buffer.getvalue()

    def close(self) -> None:
        """It does not go on."""
        self.text, self.buffer = self.said, None
