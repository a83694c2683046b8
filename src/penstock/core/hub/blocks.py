"""Blocks: one block after the other, each from its start to its end, for writers whose clients expect that.

Chat completions send text, reasoning and tool calls as parallel channels without borders. Other dialects have borders,
and a provider may still interleave its tool calls. This stage precedes every writer whose dialect has blocks:

1. One block of a choice is open at a time. It starts, streams and ends; then the next one starts. Blocks have the order
   in which they started. The events of a block that started while another one is open wait until that one has ended.
2. Every event of a block names it (`block`), and none follows its `BlockEnd`, except a `Seal` or an `Annotation` that
   the provider sends late. So a writer need not know which block is open.
3. A block that has borders ends where its own `BlockEnd` is, at the latest with its choice.
4. Where there are no borders, they are added, and blocks are numbered 0, 1, … per choice. Text, reasoning and refusals
   end where the next block starts, and so does a seal without a block. A tool call ends where another block has
   started and its arguments are whole: a JSON object or list that is closed. Everything else has no end that can be
   recognised (no arguments yet, other JSON, the free-form input of a custom tool) and ends with the choice. So calls
   that come one after the other stream as they arrive, and of calls that interleave nothing is lost.
5. What comes for a call after its end is white space, or a second JSON value that would make its arguments broken. The
   latter is the loss `arguments-dropped`.

What waits is bounded by the limit on the whole answer: the gateway ends an answer of more than 32 million characters
with an error. Short deltas that wait are joined, so that they take about as much memory as their text. If an answer
fails before its choice finishes, what waits is dropped: a client must not take an incomplete call for a whole one.

The result is legal by `core/hub/events.py`, and folds to the same `Completion`.
"""

from collections import deque
from collections.abc import Iterable
from typing import TypeAlias

from msgspec import structs

from penstock.core.hub.events import (
    LAST_TEXT,
    Annotation,
    BlockEnd,
    BlockKind,
    BlockStart,
    ChoiceStart,
    Event,
    Extra,
    Finish,
    MediaDelta,
    ReasoningDelta,
    RefusalDelta,
    Seal,
    TextDelta,
    ToolCallDelta,
    ToolCallStart,
)
from penstock.core.hub.losses import Loss
from penstock.core.wire.scan import JsonScan

_Text: TypeAlias = TextDelta | ReasoningDelta | RefusalDelta
_TEXT = (TextDelta, ReasoningDelta, RefusalDelta)
_KINDS: dict[type[Event], BlockKind] = {TextDelta: "text", ReasoningDelta: "reasoning", RefusalDelta: "refusal"}
# The member of a delta that has its text.
_TEXTS = {TextDelta: "text", ReasoningDelta: "text", RefusalDelta: "text", ToolCallDelta: "arguments"}
# Deltas that wait are joined until one has this many characters.
_LONG = 4_096


class Blocks:
    """Puts the blocks of one answer one after the other. What cannot be written is added to `losses`."""

    def __init__(self, losses: list[Loss], *, one_choice: bool = False) -> None:
        """`one_choice`: the answers of the client's API have one choice; further ones are dropped."""
        self._losses = losses
        self._one_choice = one_choice
        self._choices: dict[int, _ChoiceBlocks] = {}

    def order(self, events: Iterable[Event]) -> list[Event]:
        """Return the events with block borders. Some are buffered until later events or until the choice finishes."""
        out: list[Event] = []
        for event in events:
            if isinstance(event, _TEXT) and (number := self.open_block(event)) is not None:
                out.append(structs.replace(event, block=number))  # the common case
            elif isinstance(event, ToolCallDelta) and (choice := self._choices.get(event.choice)) is not None:
                choice.add_arguments(event, out)
            else:
                self._order(event, out)
        return out

    def open_block(self, delta: _Text) -> int | None:
        """The number of the open block that a delta continues; None if it waits, or starts a block."""
        choice = self._choices.get(delta.choice)
        if choice is None or choice.open is None or choice.open is not choice.last:
            return None
        return choice.open.number if choice.open.kind == _KINDS[type(delta)] else None

    def end_open(self, choice: int) -> list[Event]:
        """End the open block of a choice, and those that wait: the answer goes on with another one."""
        out: list[Event] = []
        if choice in self._choices:
            self._choices[choice].finish(out)
        return out

    def _order(self, event: Event, out: list[Event]) -> None:
        if self._one_choice and getattr(event, "choice", None):
            if isinstance(event, ChoiceStart):
                self._losses.append(Loss("choices-dropped"))
            return
        match event:
            case ToolCallDelta(choice):
                self._choice(choice).add_arguments(event, out)
            case TextDelta(choice) | ReasoningDelta(choice) | RefusalDelta(choice):
                self._choice(choice).add_text(event, out)
            case BlockStart(choice) | ToolCallStart(choice):
                self._choice(choice).start(event, out)
            case BlockEnd(choice):
                self._choice(choice).end(event, out)
            case Seal(choice, None):
                self._choice(choice).add_seal(event, out)
            case MediaDelta(choice) | Seal(choice) | Annotation(choice) | Extra(choice=int(choice)):
                self._choice(choice).add_other(event, out)
            case Finish(choice):
                self._choice(choice).finish(out)
                out.append(event)
            case _:
                out.append(event)

    def _choice(self, index: int) -> "_ChoiceBlocks":
        choice = self._choices.get(index)
        if choice is None:
            choice = self._choices[index] = _ChoiceBlocks(index, self._losses)
        return choice


class _OrderedBlock:
    """A block from its start until its end is emitted."""

    def __init__(self, start: BlockStart | ToolCallStart, number: int, *, has_borders: bool) -> None:
        self.number = number
        self.call = start.call if isinstance(start, ToolCallStart) else None
        self.kind = None if isinstance(start, ToolCallStart) else start.kind
        self.waiting: list[Event] = []
        """Its events, while an earlier block is open."""
        self.end: BlockEnd | None = None
        self._scan = JsonScan()
        self._can_end = not has_borders and start.kind != "custom"

    @property
    def whole(self) -> bool:
        """Whether the block ends if another one starts (rule 4)."""
        return self._can_end and (self.kind is not None or (self._scan.closed > 0 and self._scan.whole))

    def scan(self, arguments: str) -> None:
        """More of the arguments of a call."""
        if self._can_end:
            self._scan.feed(arguments.encode(errors="surrogatepass"))

    def wait(self, event: Event) -> None:
        """Keep an event until the block is open. A delta is joined with the delta before it."""
        name = _TEXTS.get(type(event))
        before = self.waiting[-1] if self.waiting else None
        if name is not None and before is not None and type(before) is type(event):
            text = getattr(before, name)
            if len(text) < _LONG and structs.replace(event, **{name: text}) == before:
                self.waiting[-1] = structs.replace(event, **{name: text + getattr(event, name)})
                return
        self.waiting.append(event)


class _ChoiceBlocks:
    """The blocks of one choice."""

    def __init__(self, index: int, losses: list[Loss]) -> None:
        self._index = index
        self._losses = losses
        self._next = 0
        self.open: _OrderedBlock | None = None
        """The block whose events are emitted as they come."""
        self.last: _OrderedBlock | None = None
        """The block that started last, if its end is not emitted yet."""
        self._queue: deque[_OrderedBlock] = deque()  # the blocks that started after it
        self._text: int | None = None  # the number of the last one with text
        # Those whose end is not emitted yet.
        self._blocks: dict[int, _OrderedBlock] = {}
        self._calls: dict[int, _OrderedBlock] = {}

    def start(self, event: BlockStart | ToolCallStart, out: list[Event]) -> None:
        """Start a block; a tool call may have no borders."""
        if event.block is not None:
            self._start(event, event.block, out, has_borders=True)
        else:
            self._start(structs.replace(event, block=self._next), self._next, out)

    def add_text(self, event: _Text, out: list[Event]) -> None:
        """Add text, reasoning or a refusal to the block that started last, or to a new one if its kind differs."""
        block, kind = self.last, _KINDS[type(event)]
        if block is None or block.kind != kind or block.end is not None:
            block = self._start(BlockStart(self._index, self._next, kind), self._next, out)
        self._put(block, structs.replace(event, block=block.number), out)

    def add_arguments(self, event: ToolCallDelta, out: list[Event]) -> None:
        """Add arguments to a call."""
        block = self._calls.get(event.call)
        if block is None:  # it has ended
            if event.arguments.strip():
                self._losses.append(Loss("arguments-dropped"))
            return
        block.scan(event.arguments)
        self._put(block, structs.replace(event, block=block.number), out)
        if block is not self.last and block.end is None and block.whole:
            self._end(block, BlockEnd(self._index, block.number), out)

    def add_seal(self, event: Seal, out: list[Event]) -> None:
        """Add a seal that is a block of its own."""
        block = self._start(BlockStart(self._index, self._next, "reasoning"), self._next, out)
        self._put(block, structs.replace(event, block=block.number), out)

    def add_other(self, event: MediaDelta | Seal | Annotation | Extra, out: list[Event]) -> None:
        """Add an event that names its block or its call; or an extra of the choice, which precedes what follows."""
        block = self.last
        if isinstance(event, Annotation) and event.block == LAST_TEXT:
            if self._text is None:
                self._start(BlockStart(self._index, self._next, "text"), self._next, out)
            event = structs.replace(event, block=self._text)
        if event.block is not None:
            block = self._blocks.get(event.block)
        elif isinstance(event, Extra) and event.call is not None:
            block = self._calls.get(event.call)
            if block is None:
                return  # extras of a call that has ended have no place
            event = structs.replace(event, block=block.number)
        self._put(block, event, out)

    def end(self, event: BlockEnd, out: list[Event]) -> None:
        """End a block that has borders."""
        block = self._blocks.get(event.block)
        if block is not None and block.end is None:
            self._end(block, event, out)

    def finish(self, out: list[Event]) -> None:
        """End all blocks: the choice is complete."""
        for block in [self.open, *self._queue]:
            if block is not None and block.end is None:
                self._end(block, BlockEnd(self._index, block.number), out)

    def _start(
        self, event: BlockStart | ToolCallStart, number: int, out: list[Event], *, has_borders: bool = False
    ) -> _OrderedBlock:
        last = self.last
        if last is not None and last.end is None and last.whole:
            self._end(last, BlockEnd(self._index, last.number), out)
        self._next = max(self._next, number + 1)
        block = self.last = self._blocks[number] = _OrderedBlock(event, number, has_borders=has_borders)
        if block.call is not None:
            self._calls[block.call] = block
        elif block.kind == "text":
            self._text = number
        if self.open is None:
            self.open = block
        else:
            self._queue.append(block)
        self._put(block, event, out)
        return block

    def _put(self, block: _OrderedBlock | None, event: Event, out: list[Event]) -> None:
        if block is self.open or block is None:
            out.append(event)
        else:
            block.wait(event)

    def _end(self, block: _OrderedBlock, end: BlockEnd, out: list[Event]) -> None:
        """End a block. If it is the open one, its end is emitted, and the blocks after it as far as they have come."""
        block.end = end
        while self.open is not None and self.open.end is not None:
            ended = self.open
            out.append(self.open.end)
            self._blocks.pop(ended.number, None)
            if ended.call is not None:
                self._calls.pop(ended.call, None)
            if ended is self.last:
                self.last = None
            self.open = self._queue.popleft() if self._queue else None
            if self.open is not None:
                out += self.open.waiting
                self.open.waiting.clear()
