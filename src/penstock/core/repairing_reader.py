"""RepairingReader: a reader that corrects what weak models get wrong in calls of tools and in structured output.

It is for routes that ask for it (`repair_tool_arguments`). `core/json/model_json.py` says which mistakes are corrected,
and when; `core/written_calls.py` which calls in the text of the answer become calls. Each correction is a `Repair`
whose detail has the text before and after.

**What is held.** The arguments of a call are held until the call is complete: at the end of its block, where the next
call starts, or at the end of the answer. If they are JSON then, they go out as they came. If not, they are held until
the answer has ended, because an answer that was cut off, by its limit for example, is not completed. Text is held from
where a call may begin until it is a call, or certainly none. Text that must follow a schema is held to its end. What
comes behind something that is held waits for it, so that the order stays. Other choices do not wait.

**What is never lost.** If the answer fails, is cut off, or ends for another reason than that the model was done, the
pieces that are held go out as they came. So they do if there are too many (`_MAX_BUFFERED`); the rest of that choice is
then not repaired. `release` returns them if the relay ends the answer.

Calls that were text are emitted at the end of their choice, behind the calls of the provider, whose numbers are not
known before. The choice then finishes with `tool_calls`. A block of text that was nothing but calls is left out.
"""

from collections import deque
from collections.abc import Mapping
from typing import Self

import msgspec
from msgspec import Struct, structs

from penstock.core.hub.events import (
    BlockEnd,
    BlockStart,
    End,
    Event,
    Fault,
    Finish,
    MediaDelta,
    ReasoningDelta,
    RefusalDelta,
    Repair,
    TextDelta,
    ToolCallDelta,
    ToolCallStart,
)
from penstock.core.hub.request import Request
from penstock.core.hub.tool_map import TEXT_SCHEMA, ClientTool
from penstock.core.json.model_json import ModelJson
from penstock.core.json.schema_check import SchemaCheck, Verdict
from penstock.core.reader_decorator import ReaderDecorator
from penstock.core.stream import EventReader
from penstock.core.wire.payload import is_json
from penstock.core.written_calls import FoundCall, Json, Schemas, WrittenCall, find_opening

# Characters, with what the events themselves take, in one stream.
_MAX_BUFFERED = 1_000_000
_EVENT, _EXTRA = 64, 2_048
# Text in which a call may begin is read in pieces of this size, because what is behind each beginning is copied; and
# no more than so many beginnings in an answer, at some ten microseconds each.
_PIECE = 1_024
_MAX_BEGINNINGS = 256
# The reasons with which a model is done. Others cut an answer off.
_DONE = frozenset(("stop", "tool_calls", "function_call"))
_BROKEN = "tool-arguments-broken"
_FUNCTIONS = ("function", "function_call")
_ANY_OBJECT: Json = {"type": "object"}
_MAX_SHOWN = 200


class AnswerSchemas(Struct, frozen=True):
    """What an answer must satisfy: the arguments of each tool, by its name in the request, and perhaps its text."""

    tools: Schemas
    text: Json | None = None

    @classmethod
    def of(cls, request: Request, renamed: Mapping[str, ClientTool]) -> Self:
        """The schemas of a request. `renamed` are the tools that the provider knows by another name or form."""
        names = {(tool.name, tool.namespace): name for name, tool in renamed.items()}
        choice = request.tool_choice
        schemas: dict[str, Json] = {}
        for tool in request.tools:
            if choice is not None and (choice.mode == "none" or (choice.names and tool.name not in choice.names)):
                continue  # the model must not call it, so what looks like a call is text
            name = names.get((tool.name, tool.namespace))
            if tool.kind == "function":
                schemas[name or tool.name] = _ANY_OBJECT if tool.schema is None else tool.schema
            elif tool.kind == "custom" and name is not None:
                schemas[name] = dict(TEXT_SCHEMA)
        text = None
        if request.format is not None:
            text = _ANY_OBJECT if request.format.schema is None else request.format.schema
        return cls(schemas, text)


class RepairingReader(ReaderDecorator):
    """Decorates a reader; `schemas` are those of the request."""

    def __init__(self, reader: EventReader, schemas: AnswerSchemas) -> None:
        super().__init__(reader)
        self._shared = _Shared(schemas)
        self._choices: dict[int, _PendingChoice] = {}
        self._size = 0
        self._lines = 1
        self._broken: list[Event] = []  # findings of the inner reader, until it is known which calls stay broken

    @property
    def withheld(self) -> int:
        """The events that are emitted later: those of the inner reader, and all that were ever held."""
        return self._reader.withheld + self._shared.buffered_events

    def feed(self, data: bytes) -> list[Event]:
        """Read bytes; return the events that they complete, and that are not held."""
        shared = self._shared
        shared.offset, shared.line = self._size, self._lines
        self._size += len(data)
        self._lines += data.count(b"\n")
        return self._convert(self._reader.feed(data))

    def release(self) -> list[Event]:
        """Return all that is held, as it came; nothing is held from then on."""
        out: list[Event] = []
        for choice in self._choices.values():
            choice.release(out)
        return [*out, *self._findings()]

    def _convert(self, events: list[Event]) -> list[Event]:
        out: list[Event] = []
        whole = bool(events) and isinstance(events[-1], End) and events[-1].ending == "completed"
        for event in events:
            if isinstance(event, Finish):
                choice = self._choice(event.choice)
                if whole and event.reason in _DONE:
                    out.append(choice.finish(event, out))
                else:
                    choice.release(out)
                    out.append(event)
            elif isinstance(event, Fault | End):
                out += self.release()
                out.append(event)
            elif isinstance(event, Repair) and event.code == _BROKEN:
                self._broken.append(event)
            elif (index := getattr(event, "choice", None)) is not None:
                self._choice(index).add(event, out)
            else:
                out.append(event)
        if self._shared.size > _MAX_BUFFERED:
            for choice in self._choices.values():
                choice.give_up(out)
        return out

    def _choice(self, index: int) -> "_PendingChoice":
        choice = self._choices.get(index)
        if choice is None:
            choice = self._choices[index] = _PendingChoice(index, self._shared)
        return choice

    def _findings(self) -> list[Event]:
        """The findings of the inner reader about calls that were not repaired."""
        findings, self._broken = self._broken, []
        repaired = self._shared.repaired
        return findings[: max(0, len(findings) - repaired)]


class _Shared:
    """What the choices of one answer have in common."""

    offset, line = 0, 1
    size = 0
    """The size of all that is held."""
    buffered_events = 0
    """How many events were ever held."""
    beginnings = 0
    """How many texts may have been calls."""
    repaired = 0
    """How many calls were repaired that the inner reader may have reported as broken."""

    def __init__(self, schemas: AnswerSchemas) -> None:
        self.schemas = schemas
        self.json = ModelJson()
        self.check = SchemaCheck()

    def repairs(self, codes: tuple[str, ...], before: str, after: str) -> list[Event]:
        """The events of the repairs of one text."""
        detail = f"{_shown(before)} is read as {_shown(after)}"
        return [Repair(code, self.offset, self.line, detail) for code in codes]


class _Buffered:
    """Something in the order of a choice that waits: for its own end, or for what is before it."""

    settled = True

    def __init__(self, *events: Event) -> None:
        self._events = [*events]
        self._repairs: list[Event] = []

    def add(self, event: Event) -> None:
        """One more piece of it."""
        self._events.append(event)

    def events(self) -> list[Event]:
        """What it becomes."""
        return [*self._repairs, *self._events]


class _BufferedJson(_Buffered):
    """Text that must be JSON by a schema: the arguments of a call, or the whole text of a choice."""

    def __init__(self, schema: Json, member: str) -> None:
        super().__init__()
        self._schema = schema
        self._member = member
        self.settled = False

    @property
    def _text(self) -> str:
        return "".join(getattr(event, self._member) for event in self._events)

    def settle_if_healthy(self) -> None:
        """It seems complete: let it pass if it is an object."""
        self.settled = self.settled or _is_object(self._text)

    def correct(self, shared: _Shared) -> None:
        """The answer is complete: correct the text if there is one way to."""
        self.settle_if_healthy()
        text = self._text
        if self.settled or not text.strip() or (self._member == "text" and _may_satisfy(text, self._schema, shared)):
            return
        reading = shared.json.read(text, lambda value: _satisfies(value, self._schema, shared.check))
        if reading is not None and reading.codes:
            shared.repaired += self._member == "arguments" and not is_json(text.encode(errors="replace"))
            self._repairs = shared.repairs(reading.codes, text, reading.text)
            self._events = [structs.replace(self._events[0], **{self._member: reading.text})]


class _BufferedText(_Buffered):
    """Text that may be a call."""

    def __init__(self, choice: int, schemas: Schemas, space: str) -> None:
        super().__init__()
        self._space = space  # between the call before it and this text
        self.written = WrittenCall(schemas)
        self._choice = choice
        self.settled = self.is_call = False

    def read(self, shared: _Shared) -> list[FoundCall]:
        """It is complete: the calls in it; none if it is text."""
        self.settled = True
        found = self.written.read(shared.json, shared.check)
        if found is None:
            return []
        calls, codes = found
        after = " ".join(f"{call.name} {call.arguments}" for call in calls)
        self._repairs = shared.repairs(codes, "".join(self.written.pieces), after)
        self.is_call = True
        return calls

    def events(self) -> list[Event]:
        pieces = () if self.is_call else (self._space, *self.written.pieces)
        return [*self._repairs, *(TextDelta(self._choice, piece) for piece in pieces if piece)]


class _TextBlock:
    """A block of text. It is left out if all its text was calls."""

    def __init__(self) -> None:
        self.texts: list[_BufferedText] = []
        self.ended = self.has_text = False

    @property
    def settled(self) -> bool:
        """Whether it is known if the block has text."""
        return self.has_text or (self.ended and all(text.settled for text in self.texts))

    @property
    def left_out(self) -> bool:
        """Whether all its text was calls."""
        return not self.has_text and bool(self.texts) and all(text.is_call for text in self.texts)


class _Border(_Buffered):
    """The start or the end of a block of text."""

    def __init__(self, block: _TextBlock, event: Event) -> None:
        super().__init__(event)
        self._block = block

    @property
    def settled(self) -> bool:  # type: ignore[override]
        """Whether it is known if the block is left out."""
        return self._block.settled

    def events(self) -> list[Event]:
        return [] if self._block.left_out else super().events()


class _PendingChoice:
    """What is held of one choice, in its order."""

    def __init__(self, index: int, shared: _Shared) -> None:
        self._index = index
        self._shared = shared
        self._queue: deque[_Buffered] = deque()
        self._size = 0
        self._calls = 0
        self._next_block: int | None = None  # None where there are no blocks
        self._arguments: dict[int, _BufferedJson] = {}  # by call
        self._last: _BufferedJson | None = None  # those of the last call
        self._call_blocks: dict[int, int] = {}  # by block: the call
        self._whole: _BufferedJson | None = None  # the text that must follow a schema
        self._texts: list[_BufferedText] = []  # texts that may be calls, to be read at the end
        self._open: _BufferedText | None = None  # the one of them that still grows
        self._block: _TextBlock | None = None  # the open block of text
        self._behind_call = False
        self._space = ""  # white space behind a call, which is dropped with it unless text follows
        self._found: list[FoundCall] = []
        self._given_up = False

    def add(self, event: Event, out: list[Event]) -> None:
        """Take the next event of the choice; what is not held goes out."""
        if isinstance(event, ToolCallStart):
            self._calls = max(self._calls, event.call + 1)
        if isinstance(event, BlockStart | ToolCallStart) and event.block is not None:
            self._next_block = max(self._next_block or 0, event.block + 1)
        if self._given_up:
            out.append(event)
            return
        match event:
            case TextDelta(text=text) if self._shared.schemas.text is not None:
                self._add_whole(event, text)
            case TextDelta(text=text) if self._shared.schemas.tools:
                self._add_text(text)
            case ToolCallDelta(call=call) if call in self._arguments and not self._arguments[call].settled:
                self._arguments[call].add(event)
            case ToolCallStart():
                self._start_call(event)
            case BlockStart(kind="text") if self._shared.schemas.tools and self._shared.schemas.text is None:
                self._block = _TextBlock()
                self._put(_Border(self._block, event))
            case BlockEnd(block=block):
                self._end_block(block, event)
            case _:
                self._put(_Buffered(event))
        self._flush(out)
        if self._queue:
            size = _size(event)
            self._size += size
            self._shared.size += size
            self._shared.buffered_events += 1

    def finish(self, finish: Finish, out: list[Event]) -> Finish:
        """The choice is complete: correct what is held, and let all of it go."""
        for text in self._texts:
            self._found += text.read(self._shared)
        for each in self._json:
            each.correct(self._shared)
        found = bool(self._found)
        self.release(out)
        if not found or finish.reason != "stop":
            return finish
        return structs.replace(finish, reason="tool_calls", native=finish.native or finish.reason)

    def give_up(self, out: list[Event]) -> None:
        """Let all that is held go as it is; nothing is held from now on."""
        self._given_up = True
        for each in (*self._texts, *self._json):
            each.settled = True
        self._texts.clear()
        if self._block is not None:
            self._block.ended = True
        self._flush(out)

    def release(self, out: list[Event]) -> None:
        """Let all that is held go, and the calls that were text."""
        self.give_up(out)
        for call in self._found:
            number, block = self._calls, self._next_block
            out += [
                ToolCallStart(self._index, number, None, call.name, block=block),
                ToolCallDelta(self._index, number, call.arguments),
            ]
            if block is not None:
                out.append(BlockEnd(self._index, block))
                self._next_block = block + 1
            self._calls += 1
        self._found.clear()

    @property
    def _json(self) -> list[_BufferedJson]:
        return [*self._arguments.values(), *([] if self._whole is None else [self._whole])]

    def _put(self, item: _Buffered) -> None:
        self._queue.append(item)

    def _flush(self, out: list[Event]) -> None:
        queue = self._queue
        while queue and queue[0].settled:
            out += queue.popleft().events()
        if not queue:
            self._shared.size -= self._size
            self._size = 0

    # Calls.

    def _start_call(self, start: ToolCallStart) -> None:
        if self._last is not None:
            self._last.settle_if_healthy()
        self._put(_Buffered(start))
        schema = self._shared.schemas.tools.get(start.name)
        if schema is not None and start.kind in _FUNCTIONS and not start.server:
            arguments = self._last = self._arguments[start.call] = _BufferedJson(schema, "arguments")
            self._put(arguments)
            if start.block is not None:
                self._call_blocks[start.block] = start.call

    def _end_block(self, block: int, event: Event) -> None:
        if block in self._call_blocks:
            self._arguments[self._call_blocks.pop(block)].settle_if_healthy()
        elif self._block is not None:
            ended, self._block, self._open = self._block, None, None
            ended.ended = True
            self._put(_Border(ended, event))
            return
        self._put(_Buffered(event))

    # Text.

    def _add_whole(self, event: Event, text: str) -> None:
        schema = self._shared.schemas.text
        if self._whole is None and schema is not None:
            self._whole = _BufferedJson(schema, "text")
            self._put(self._whole)
        if self._whole is not None and text:
            self._whole.add(event)

    def _add_text(self, text: str) -> None:
        """Text, in which calls may begin, go on and end."""
        if self._open is None and (len(text) <= _PIECE or find_opening(text) == len(text)):
            self._add_piece(text)
        else:
            for start in range(0, len(text), _PIECE):
                self._add_piece(text[start : start + _PIECE])

    def _add_piece(self, text: str) -> None:
        while text:
            if self._open is None:
                place = find_opening(text) if self._shared.beginnings < _MAX_BEGINNINGS else len(text)
                self._pass(text[:place])
                text = text[place:]
                if not text:
                    return
                self._shared.beginnings += 1
                self._open = _BufferedText(self._index, self._shared.schemas.tools, self._space)
                self._space = ""
                self._texts.append(self._open)
                self._put(self._open)
                if self._block is not None:
                    self._block.texts.append(self._open)
            text = self._grow(self._open, text)

    def _grow(self, open: _BufferedText, text: str) -> str:
        """Add text to what may be a call; returns the text behind it."""
        pieces = open.written.pieces
        growth = open.written.grow(text)
        if growth == "more":
            return ""
        self._open = None
        self._texts.remove(open)
        if growth == "text":
            growth = 1 if len(pieces) == 1 else 0  # a call may begin behind the character that began none
            open.settled = True
        pieces[-1] = text[:growth]
        if not open.settled:
            self._found += open.read(self._shared)
        self._behind_call = open.is_call
        if self._block is not None:
            self._block.has_text |= not open.is_call
        return text[growth:]

    def _pass(self, text: str) -> None:
        """Text that is no call."""
        if self._behind_call and (not text or text.isspace()):
            self._space += text
        elif text:
            self._put(_Buffered(TextDelta(self._index, self._space + text)))
            self._behind_call, self._space = False, ""
            if self._block is not None:
                self._block.has_text = True


def _is_object(text: str) -> bool:
    """Whether the text is a JSON object."""
    try:
        msgspec.json.decode(text, type=dict[str, msgspec.Raw])
    except (ValueError, RecursionError):
        return False
    return True


def _may_satisfy(text: str, schema: Json, shared: _Shared) -> bool:
    """Whether the text is JSON that the schema does not refuse, such as a string with JSON in it."""
    try:
        value = msgspec.json.decode(text)
    except (ValueError, RecursionError):
        return False
    return shared.check.accepts(schema, value) is not False


def _satisfies(value: object, schema: Json, check: SchemaCheck) -> Verdict:
    return isinstance(value, dict) and check.accepts(schema, value)


def _size(event: Event) -> int:
    """About how much memory an event takes, in bytes."""
    match event:
        case TextDelta(text=text) | ToolCallDelta(arguments=text) | ReasoningDelta(text=text) | RefusalDelta(text=text):
            return _EVENT + len(text)
        case MediaDelta(data=data):
            return _EVENT + len(data)
        case _:
            return _EXTRA


def _shown(text: str) -> str:
    """A text for a person to read: its beginning and its end, if it is long."""
    return text if len(text) <= _MAX_SHOWN else f"{text[: _MAX_SHOWN // 2]} … {text[-_MAX_SHOWN // 2 :]}"
