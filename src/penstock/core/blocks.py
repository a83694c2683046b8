"""Blocks: adds `BlockStart` and `BlockEnd` to events that have none.

Chat completions send text, reasoning and tool calls as parallel channels. Other dialects send an ordered list of
blocks, each of which starts, streams and ends. This stage precedes the writers of such dialects:

1. A delta of another kind than the open block ends that block and starts a new one. Blocks are numbered 0, 1, … per
   choice.
2. A tool call is a block, which starts with its `ToolCallStart`. It ends when its arguments are complete JSON and
   another block starts, at the latest with the choice.
3. Calls may interleave: a call may start while the arguments of the previous one are incomplete. Then the events of the
   later call are buffered, so that clients get one block after the other. If more than `MAX_WAITING` characters are
   buffered, they are released, and the blocks overlap.
4. Events that have block borders already pass unchanged.

The result is legal by `core/events.py`, and folds to the same `Completion`.
"""

from collections.abc import Iterable
from typing import TypeAlias

from msgspec import structs

from penstock.core.events import (
    BlockEnd,
    BlockKind,
    BlockStart,
    Event,
    Finish,
    ReasoningDelta,
    RefusalDelta,
    TextDelta,
    ToolCallDelta,
    ToolCallStart,
)
from penstock.core.wire.scan import JsonScan

MAX_WAITING = 65_536
_Text: TypeAlias = TextDelta | ReasoningDelta | RefusalDelta
_Content: TypeAlias = _Text | ToolCallStart | ToolCallDelta
_KINDS: dict[type[Event], BlockKind] = {TextDelta: "text", ReasoningDelta: "reasoning", RefusalDelta: "refusal"}


class Blocks:
    """Makes the borders of blocks explicit, for one answer."""

    def __init__(self) -> None:
        self._choices: dict[int, _ChoiceBlocks] = {}
        self._explicit = False

    def order(self, events: Iterable[Event]) -> list[Event]:
        """Return the events with block borders. Some are buffered until later events or until the choice finishes."""
        out: list[Event] = []
        for event in events:
            self._explicit = self._explicit or _has_borders(event)
            if self._explicit:
                out.append(event)
                continue
            match event:
                case TextDelta() | ReasoningDelta() | RefusalDelta():
                    self._choice(event.choice).add_text(event, out)
                case ToolCallStart(choice):
                    self._choice(choice).start_call(event, out)
                case ToolCallDelta(choice):
                    self._choice(choice).add_arguments(event, out)
                case Finish(choice):
                    self._choice(choice).finish(out)
                    out.append(event)
                case _:
                    out.append(event)
        return out

    def _choice(self, index: int) -> "_ChoiceBlocks":
        choice = self._choices.get(index)
        if choice is None:
            choice = self._choices[index] = _ChoiceBlocks(index)
        return choice


def _has_borders(event: Event) -> bool:
    return isinstance(event, BlockStart) or (isinstance(event, ToolCallStart) and event.block is not None)


class _OpenToolCall:
    """A tool call that has started: its block, and a scan of its arguments."""

    def __init__(self, start: ToolCallStart, block: int) -> None:
        self.block = block
        self._scan = JsonScan()
        # Free-form input has no recognisable end: whatever follows ends it.
        self._free = start.kind == "custom"

    def feed(self, arguments: str) -> None:
        self._scan.feed(arguments.encode(errors="surrogatepass"))

    @property
    def whole(self) -> bool:
        return self._free or not self._scan.started or self._scan.whole


class _ChoiceBlocks:
    """The blocks of one choice."""

    def __init__(self, index: int) -> None:
        self._index = index
        self._next = 0
        self._kind: BlockKind | None = None  # of the open block, unless that is a tool call
        self._block = 0  # its number
        self._calls: dict[int, _OpenToolCall] = {}
        self._open_calls: list[int] = []
        self._waiting: list[_Content] = []
        self._waiting_size = 0

    def add_text(self, event: _Text, out: list[Event]) -> None:
        """Add text, reasoning or a refusal."""
        if self._must_wait():
            self._wait(event, len(event.text), out)
            return
        if self._open_calls:
            self._end_open(out)
        self._put_text(event, out)

    def start_call(self, event: ToolCallStart, out: list[Event]) -> None:
        """Start a tool call."""
        if self._must_wait():
            self._wait(event, len(event.name), out)
            return
        self._end_open(out)
        self._open_call(event, out)

    def add_arguments(self, event: ToolCallDelta, out: list[Event]) -> None:
        """Add arguments to a call."""
        call = self._calls.get(event.call)
        if call is None:  # its start is buffered
            self._wait(event, len(event.arguments), out)
            return
        call.feed(event.arguments)
        out.append(event)
        if self._waiting and not self._must_wait():
            self._release(out)

    def finish(self, out: list[Event]) -> None:
        """Release all buffered events and end all blocks: the choice is complete."""
        while self._waiting:
            self._end_open(out)
            self._release(out)
        self._end_open(out)

    def _must_wait(self) -> bool:
        """Whether events must be buffered: others are, or a call is open whose arguments are incomplete."""
        return bool(self._waiting) or any(not self._calls[call].whole for call in self._open_calls)

    def _wait(
        self,
        event: TextDelta | ReasoningDelta | RefusalDelta | ToolCallStart | ToolCallDelta,
        size: int,
        out: list[Event],
    ) -> None:
        self._waiting.append(event)
        self._waiting_size += size
        if self._waiting_size > MAX_WAITING:
            self._overlap(out)

    def _release(self, out: list[Event]) -> None:
        """Process the buffered events as if they arrived now. Some of them may be buffered again."""
        waiting, self._waiting, self._waiting_size = self._waiting, [], 0
        for event in waiting:
            if isinstance(event, ToolCallStart):
                self.start_call(event, out)
            elif isinstance(event, ToolCallDelta):
                self.add_arguments(event, out)
            else:
                self.add_text(event, out)

    def _overlap(self, out: list[Event]) -> None:
        """Release the buffered events while a call is still open: the buffer is full."""
        waiting, self._waiting, self._waiting_size = self._waiting, [], 0
        for event in waiting:
            if isinstance(event, ToolCallStart):
                self._open_call(event, out)
            elif isinstance(event, ToolCallDelta):
                self._calls[event.call].feed(event.arguments)
                out.append(event)
            else:
                self._put_text(event, out)

    def _put_text(self, event: _Text, out: list[Event]) -> None:
        """Append text to the open block if that is of its kind, else to a new block."""
        kind = _KINDS[type(event)]
        if kind != self._kind:
            self._end_text(out)
            self._kind, self._block = kind, self._number()
            out.append(BlockStart(self._index, self._block, kind))
        out.append(event)

    def _open_call(self, event: ToolCallStart, out: list[Event]) -> None:
        self._end_text(out)
        block = self._number()
        self._calls[event.call] = _OpenToolCall(event, block)
        self._open_calls.append(event.call)
        out.append(structs.replace(event, block=block))

    def _end_open(self, out: list[Event]) -> None:
        """End every open block."""
        self._end_text(out)
        out.extend(BlockEnd(self._index, self._calls[call].block) for call in self._open_calls)
        self._open_calls.clear()

    def _end_text(self, out: list[Event]) -> None:
        if self._kind is not None:
            out.append(BlockEnd(self._index, self._block))
            self._kind = None

    def _number(self) -> int:
        self._next += 1
        return self._next - 1
