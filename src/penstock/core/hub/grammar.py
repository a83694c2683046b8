"""Grammar: the legal order of events, and the repairs that restore it.

A dialect's frame reader emits events in the order in which it read them. The grammar alone guarantees what
`core/hub/events.py` promises:

1. One `Start`, before the answer. It is buffered until a choice begins, so that a late id or model is in it. Another
   one follows only where another model takes over.
2. One `ChoiceStart` per choice, before all content of the choice. Content of a choice that has not begun is a fault.
3. One `Finish` per choice, after all content of the choice. It is buffered until the end of the stream, because text,
   tool calls or a better reason may follow the first one. `stop` becomes `tool_calls` if the choice has tool calls.
4. One `UsageReport`, merged by the rule in `core/hub/usage.py`, at the end.
5. One `Fault`, the first. After it only usage and repairs are emitted.
6. One `End`, last: `completed` only if a choice began, every choice that began is finished, and the bytes were not cut.
7. Of the blocks of a choice one is open at a time, tool calls excepted: the start of another one ends it, and a finish
   ends all. (That a provider left a block open is for the dialect's reader to report.)
8. A delta belongs to an open block of its kind, or to a call that has started and not ended. Any other delta is a
   fault. Like a fault by rule 2, it is a defect of the dialect's reader, which must not reach a client.
"""

from msgspec import structs

from penstock.core.hub.events import (
    Annotation,
    BlockEnd,
    BlockStart,
    ChoiceStart,
    End,
    Event,
    Extra,
    Fault,
    Finish,
    MediaDelta,
    ReasoningDelta,
    RefusalDelta,
    Repair,
    Seal,
    Start,
    TextDelta,
    ToolCallDelta,
    ToolCallStart,
    UsageReport,
)
from penstock.core.hub.sink import Sink
from penstock.core.hub.usage import Usage

_DELTAS = frozenset((TextDelta, ReasoningDelta, RefusalDelta, ToolCallDelta, MediaDelta, Seal, Annotation, Extra))
_CONTENT = (TextDelta, ReasoningDelta, RefusalDelta, ToolCallStart, ToolCallDelta, BlockStart, MediaDelta)
_TEXT = (TextDelta, ReasoningDelta, RefusalDelta)
# The text that may follow in a choice: without blocks any, in a block that of its kind, between two blocks none.
_ANY_TEXT: frozenset[type[Event]] = frozenset(_TEXT)
_NO_TEXT: frozenset[type[Event]] = frozenset()
_TEXTS: dict[str, frozenset[type[Event]]] = {
    "text": frozenset((TextDelta,)),
    "reasoning": frozenset((ReasoningDelta,)),
    "refusal": frozenset((RefusalDelta,)),
}
_NO_START = Start("", "", None)
# Extras that come before the answer begins wait for its Start; a provider that sends nothing else is not waited for.
_MAX_WAITING_EXTRAS = 16


class Grammar:
    """Puts the events of one stream into legal order."""

    _start = _NO_START
    _started = False
    _finished = False
    usage: Usage | None = None
    """The usage, as far as it was reported."""
    fault: Fault | None = None
    """What failed, if anything has."""
    _usage_place = (0, 1)  # where the last usage was seen

    def __init__(self, envelope: tuple[str, ...] = ("id", "model", "created")) -> None:
        """`envelope`: the fields of `Start` that every answer of the dialect has."""
        self._envelope = envelope
        self._waiting: list[Event] = []
        self._choices: dict[int, Finish | None] = {}
        self._tool_finishes: dict[int, str] = {}  # by choice: the finish reason that its tool calls imply
        self._finish_places: dict[int, tuple[int, int]] = {}  # where the finish of each choice was seen
        self._texts: dict[int, frozenset[type[Event]]] = {}  # by choice that has begun: the text that may follow
        self._open_calls: set[tuple[int, int]] = set()  # by choice: the calls that have started and not ended
        # By choice: the open blocks, each with the number of its call; None for those that are not calls.
        self._open_blocks: dict[int, dict[int, int | None]] = {}

    @property
    def whole(self) -> bool:
        """Whether the answer is whole so far: a choice began, every one that began is finished, nothing failed."""
        return self.fault is None and bool(self._choices) and None not in self._choices.values()

    @property
    def withheld(self) -> int:
        """The number of events that are buffered until the end: a finish for each choice, the usage."""
        return len(self._finish_places) + (self.usage is not None)

    @property
    def expects_text(self) -> bool:
        """Whether text of a choice that has begun is legal without any repair."""
        return self._started and not self._finished and self.fault is None

    @property
    def expects_end(self) -> bool:
        """For a stream that expects text: whether a finish and a usage report would be the first, and unchanged."""
        return self.usage is None and self.expects_finish

    @property
    def expects_finish(self) -> bool:
        """For a stream that expects text: whether a finish would be the first, and unchanged."""
        return not self._tool_finishes and len(self._choices) == 1

    def has_block(self, choice: int, block: object) -> bool:
        """Whether a block of this number that is not a tool call is open in a choice: text belongs to it."""
        return isinstance(block, int) and self._open_blocks.get(choice, {}).get(block, 0) is None

    def has_open_call(self, choice: int) -> bool:
        """Whether a block of a tool call is open in a choice: for some clients text waits for its end."""
        return any(call is not None for call in self._open_blocks.get(choice, {}).values())

    def only_block(self, choice: int) -> int | None:
        """The number of the only open block of a choice, if there is one."""
        blocks = self._open_blocks.get(choice, {})
        return next(iter(blocks)) if len(blocks) == 1 else None

    def begin(self, start: Start, choice: int) -> bool:
        """Take the events of the first frame: a start, extras, and the start of this choice.

        Returns whether they are legal without any repair; if not, nothing is taken.
        """
        if self.fault is not None or self._missing(start):
            return False
        self._start = start
        self._started = True
        self._begin_choice(choice)
        return True

    def order(self, events: list[Event], sink: Sink) -> None:
        """Take the events that a frame reader emitted, and put those that are legal now into the sink."""
        for event in events:
            if (
                isinstance(event, _TEXT)
                and type(event) in self._texts.get(event.choice, _NO_TEXT)
                and self.fault is None
                and not self._finished
            ):
                sink.events.append(event)  # the common case; the next one decides the same in more time
            elif type(event) in _DELTAS and self.expects_text and self._has_place(event):
                sink.events.append(event)  # the choice has begun (rule 2), none is finished (rule 3)
            elif type(event) is Repair:
                sink.events.append(event)
            elif type(event) is UsageReport:
                self._see_usage(event.usage, sink)
            elif self.fault is not None:
                if not isinstance(event, Fault | Start | Extra):
                    sink.repair("ignored-after-fault")
            else:
                self._see(event, sink)

    def close(self, sink: Sink, *, cut: bool, unread: str = "") -> None:
        """End the stream: emit the finishes, the usage and the `End`.

        `cut`: the bytes stop in the middle of an event. `unread` is the first frame that is not part of an answer; the
        fault of an empty stream quotes it.
        """
        unfinished = [choice for choice, finish in self._choices.items() if finish is None]
        if self.fault is None and not self._choices and not cut:
            message = f"the stream ended without an answer{f'; it holds {unread}' if unread else ''}"
            self._see(Fault("empty-stream", message, sink.offset, sink.line), sink)
        if self.fault is None and (self._start != _NO_START or self._waiting):
            self._emit_start(sink)
        if self.fault is None:
            for finish in self._choices.values():
                if finish is not None:
                    self._end_blocks(finish.choice, sink, calls=True)
                    sink.events.append(self._reconciled(finish, sink))
        if self.usage is not None:
            usage = self.usage.with_total()
            sink.events.extend(Repair(code, *self._usage_place, detail) for code, detail in usage.doubts())
            sink.events.append(UsageReport(usage))
        if self.fault is not None:
            sink.events.append(End("failed", self.fault.message))
        elif cut:
            sink.events.append(End("truncated", "the bytes stop in the middle of an event"))
        elif unfinished:
            named = ", ".join(map(str, unfinished))
            sink.events.append(End("truncated", f"no finish reason for choice {named}"))
        else:
            sink.events.append(End("completed"))

    def _see(self, event: Event, sink: Sink) -> None:
        """Take any event but a repair or usage, before a fault."""
        match event:
            case Start():
                self._see_start(event, sink)
            case ChoiceStart(choice, role):
                self._see_choice(choice, role, sink)
            case Finish(choice) if choice in self._choices:
                self._see_finish(event, sink)
            case Fault():
                self.fault = event
                if self._start.id or self._start.model or self._waiting:
                    self._emit_start(sink)
                sink.events.append(event)
            case Extra(choice=choice) if not self._started:
                self._waiting.append(event)
                if len(self._waiting) > _MAX_WAITING_EXTRAS:
                    self._emit_start(sink)
            case BlockEnd(choice, block):
                if block in self._open_blocks.get(choice, ()):
                    self._end_block(choice, block)
                    sink.events.append(event)
            case _ if not self._has_place(event):
                message = f"{type(event).__name__} of a choice that has not begun, or of a block that is not open"
                self._see(Fault("bad-shape", message, sink.offset, sink.line), sink)
            case _:
                if isinstance(event, ToolCallStart) and not event.server:  # the provider executes the others
                    self._tool_finishes[event.choice] = (
                        "function_call" if event.kind == "function_call" else "tool_calls"
                    )
                if isinstance(event, _CONTENT) and self._choices.get(event.choice) is not None:
                    sink.repair("content-after-finish")
                if isinstance(event, BlockStart | ToolCallStart):
                    self._see_block(event, sink)
                sink.events.append(event)

    def _has_place(self, event: Event) -> bool:
        """Whether the choice of an event has begun (rule 2), and the block of a delta is open (rule 8)."""
        match event:
            case TextDelta(choice) | ReasoningDelta(choice) | RefusalDelta(choice):
                return type(event) in self._texts.get(choice, _NO_TEXT)
            case ToolCallDelta(choice, call):
                return (choice, call) in self._open_calls
            case MediaDelta(choice, block):
                return block in self._open_blocks.get(choice, ())
            case BlockStart(choice) | ToolCallStart(choice) | Seal(choice) | Annotation(choice) | Finish(choice):
                return choice in self._choices
            case _:
                return True

    def _see_block(self, start: BlockStart | ToolCallStart, sink: Sink) -> None:
        choice, call = start.choice, start.call if isinstance(start, ToolCallStart) else None
        if call is not None:
            self._open_calls.add((choice, call))
        if start.block is not None:
            self._end_blocks(choice, sink, calls=False)
            self._open_blocks.setdefault(choice, {})[start.block] = call
            self._texts[choice] = _TEXTS.get(start.kind, _NO_TEXT)

    def _end_blocks(self, choice: int, sink: Sink, *, calls: bool) -> None:
        """End the open blocks of a choice; those of tool calls only with `calls`."""
        blocks = self._open_blocks.get(choice, {})
        for block in [block for block, call in blocks.items() if calls or call is None]:
            self._end_block(choice, block)
            sink.events.append(BlockEnd(choice, block))

    def _end_block(self, choice: int, block: int) -> None:
        call = self._open_blocks[choice].pop(block)
        if call is None:
            self._texts[choice] = _NO_TEXT
        else:
            self._open_calls.discard((choice, call))

    def _begin_choice(self, choice: int) -> None:
        self._choices[choice] = None
        self._texts[choice] = _ANY_TEXT

    def _see_start(self, seen: Start, sink: Sink) -> None:
        known = self._start
        if seen.takes_over:
            self._start = structs.replace(known, model=seen.model, takes_over=self._started)
            if self._started:
                sink.events.append(self._start)
            return
        self._start = merged = Start(
            known.id or seen.id, known.model or seen.model, known.created or seen.created, known.tier or seen.tier
        )
        if not self._started:
            return
        if seen.id and seen.id != merged.id:
            sink.repair("id-changed", seen.id)
        if seen.model and seen.model != merged.model:
            sink.repair("model-changed", seen.model)
        if seen.created and seen.created != merged.created:
            sink.repair("created-changed", str(seen.created))

    def _see_choice(self, choice: int, role: str, sink: Sink) -> None:
        if choice in self._choices:
            sink.repair("role-repeated")
            return
        self._emit_start(sink)
        if not role:
            sink.repair("role-missing")
        self._begin_choice(choice)
        sink.events.append(ChoiceStart(choice, role or "assistant"))

    def _see_finish(self, finish: Finish, sink: Sink) -> None:
        before = self._choices.get(finish.choice)
        if before is not None:
            sink.repair("finish-repeated" if before.reason == finish.reason else "finish-changed", finish.reason)
        self._choices[finish.choice] = finish
        self._finish_places[finish.choice] = (sink.offset, sink.line)
        self._finished = True

    def _reconciled(self, finish: Finish, sink: Sink) -> Finish:
        """The finish, with the reason `tool_calls` in place of `stop` if its choice has tool calls."""
        reason = self._tool_finishes.get(finish.choice)
        if reason is None or finish.reason != "stop":
            return finish
        sink.events.append(Repair("finish-stop-with-tools", *self._finish_places[finish.choice]))
        return structs.replace(finish, reason=reason, native=finish.native or finish.reason)

    def _see_usage(self, usage: Usage, sink: Sink) -> None:
        if usage.blank:
            sink.repair("usage-placeholder")
            return
        self._usage_place = (sink.offset, sink.line)
        if self.usage is None:
            self.usage = usage
        else:
            self.usage = self.usage.updated(usage)

    def _emit_start(self, sink: Sink) -> None:
        if self._started:
            return
        self._started = True
        missing = self._missing(self._start)
        if missing and self.fault is None:
            sink.repair("envelope-incomplete", ", ".join(missing))
        sink.events.append(self._start)
        sink.events.extend(self._waiting)
        self._waiting.clear()

    def _missing(self, start: Start) -> list[str]:
        """The fields that the provider should have sent, and has not."""
        return [name for name in self._envelope if not getattr(start, name)]
