"""Completion: the whole answer, and the Accumulator that folds a stream of events into it."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias

from msgspec import Struct

from penstock.core.hub.content import (
    Citation,
    MediaPart,
    OpaquePart,
    Part,
    ReasoningPart,
    ReasoningSeal,
    RefusalPart,
    TextPart,
    ToolCall,
)
from penstock.core.hub.events import (
    LAST_TEXT,
    Annotation,
    BlockEnd,
    BlockStart,
    ChoiceStart,
    End,
    Ending,
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
from penstock.core.hub.media import kind_of
from penstock.core.hub.repairs import Level, level_of
from penstock.core.hub.usage import Usage

REASONING_FIELD = "reasoning_content"
"""The field in which most providers of the chat dialect send reasoning."""
_OfChoice: TypeAlias = (
    ReasoningDelta
    | RefusalDelta
    | ToolCallStart
    | ToolCallDelta
    | BlockStart
    | BlockEnd
    | Seal
    | Annotation
    | MediaDelta
    | Finish
)
# Strings inside extras that arrive in pieces, by key; any other string is replaced by the later one.
_ADDED_UP = frozenset(("data", "transcript", "reasoning", "reasoning_content", "thinking"))


@dataclass(frozen=True, slots=True, init=False)
class Choice:
    """One of the parallel answers: its parts, in the order in which they arrived.

    `text`, `reasoning`, `refusal` and `tool_calls` are views of the parts. `finish_reason` is None if the provider
    never finished the choice. Provider fields with no meaning to us are in `extras` if they were members of the choice,
    and in `message_extras` if they were members of its message.
    """

    index: int
    role: str
    parts: tuple[Part, ...]
    finish_reason: str | None
    native_finish_reason: str | None
    stop_sequence: str | None
    finish_details: dict[str, object] | None
    extras: dict[str, object]
    message_extras: dict[str, object]

    def __init__(  # noqa: PLR0913 - one parameter per field and per view
        self,
        index: int,
        role: str = "assistant",
        text: str = "",
        reasoning: str = "",
        refusal: str = "",
        tool_calls: tuple[ToolCall, ...] = (),
        finish_reason: str | None = None,
        native_finish_reason: str | None = None,
        reasoning_field: str = REASONING_FIELD,
        extras: dict[str, object] | None = None,
        message_extras: dict[str, object] | None = None,
        *,
        parts: tuple[Part, ...] | None = None,
        stop_sequence: str | None = None,
        finish_details: dict[str, object] | None = None,
    ) -> None:
        """`parts` take precedence; without them the choice has one part per view that is given."""
        if parts is None:
            given: list[Part] = [ReasoningPart(reasoning, field=reasoning_field)] if reasoning else []
            given += [TextPart(text)] if text else []
            given += [RefusalPart(refusal)] if refusal else []
            parts = (*given, *tool_calls)
        keep = object.__setattr__
        keep(self, "index", index)
        keep(self, "role", role)
        keep(self, "parts", parts)
        keep(self, "finish_reason", finish_reason)
        keep(self, "native_finish_reason", native_finish_reason)
        keep(self, "stop_sequence", stop_sequence)
        keep(self, "finish_details", finish_details)
        keep(self, "extras", {} if extras is None else extras)
        keep(self, "message_extras", {} if message_extras is None else message_extras)

    @property
    def finish(self) -> Finish:
        """Why the choice ended, as an event; `stop` if the provider never finished it."""
        reason = self.finish_reason or "stop"
        return Finish(self.index, reason, self.native_finish_reason, self.stop_sequence, self.finish_details)

    @property
    def text(self) -> str:
        """All text of the choice."""
        return "".join(part.text for part in self.parts if isinstance(part, TextPart))

    @property
    def reasoning(self) -> str:
        """All reasoning of the choice; of a part that has only a summary, the summary."""
        return "".join(part.readable for part in self.parts if isinstance(part, ReasoningPart))

    @property
    def refusal(self) -> str:
        """Why the model does not answer, in its own words."""
        return "".join(part.text for part in self.parts if isinstance(part, RefusalPart))

    @property
    def tool_calls(self) -> tuple[ToolCall, ...]:
        """The calls that the client should execute, in order. Calls that the provider executes are left out."""
        return tuple(part for part in self.parts if isinstance(part, ToolCall) and not part.server)

    @property
    def reasoning_field(self) -> str:
        """The provider's name for the reasoning."""
        fields = [part.field for part in self.parts if isinstance(part, ReasoningPart) and part.field]
        return fields[-1] if fields else REASONING_FIELD


class RepairCount(Struct, frozen=True):
    """How often one defect was tolerated, and the position of the first occurrence."""

    code: str
    count: int
    offset: int
    line: int
    detail: str = ""

    @property
    def level(self) -> Level:
        """`notice` for a harmless deviation that is common among providers, else `repair`."""
        return level_of(self.code)


class Completion(Struct, frozen=True):
    """The whole answer: the result of folding all events of a stream. `ending` is None while the stream still runs.

    `repairs` are all defects that were tolerated, with those of the level `notice`.
    """

    id: str = ""
    model: str = ""
    created: int | None = None
    choices: tuple[Choice, ...] = ()
    usage: Usage | None = None
    ending: Ending | None = None
    ending_detail: str = ""
    fault: Fault | None = None
    repairs: tuple[RepairCount, ...] = ()
    extras: dict[str, object] = {}

    @property
    def text(self) -> str:
        """The text of the first choice."""
        return self.choices[0].text if self.choices else ""


class Accumulator:
    """Folds events into a completion, which can be read at any moment.

    `dialect` is that of the answer. Parts that only this dialect knows name it.
    """

    def __init__(self, dialect: str = "") -> None:
        self._dialect = dialect
        self._start = Start("", "", None)
        self._choices: dict[int, _ChoiceBuilder] = {}
        self._usage: Usage | None = None
        self._fault: Fault | None = None
        self._end: End | None = None
        self._repairs: dict[str, tuple[int, Repair]] = {}
        self._extras: dict[str, object] = {}

    def extend(self, events: Iterable[Event]) -> None:
        """Add events, in the order in which a reader returned them."""
        choices = self._choices
        for event in events:
            if type(event) is TextDelta:
                choice = choices.get(event.choice) or self._choice(event.choice)
                (choice.text_pieces or choice.open_text()).append(event.text)
            elif type(event) is ToolCallDelta:
                choices[event.choice].calls[event.call].arguments.append(event.arguments)
            elif type(event) is Extra and event.place == "chunk":
                self._extras.update(event.fields)
            else:
                self._add(event)

    @property
    def completion(self) -> Completion:
        """The answer so far."""
        return Completion(
            id=self._start.id,
            model=self._start.model,
            created=self._start.created,
            choices=tuple(self._choices[index].choice(index) for index in sorted(self._choices)),
            usage=self._usage,
            ending=self._end.ending if self._end else None,
            ending_detail=self._end.detail if self._end else "",
            fault=self._fault,
            repairs=tuple(
                RepairCount(code, count, first.offset, first.line, first.detail)
                for code, (count, first) in self._repairs.items()
            ),
            extras=dict(self._extras),
        )

    def _add(self, event: Event) -> None:
        match event:
            case Start():
                self._start = event
            case ChoiceStart(choice, role):
                self._choice(choice).role = role
            case TextDelta(choice, text):
                self._choice(choice).open_text().append(text)
            case UsageReport(usage):
                self._usage = usage
            case Extra():
                self._add_extra(event)
            case Repair(code):
                count, first = self._repairs.get(code, (0, event))
                self._repairs[code] = (count + 1, first)
            case Fault():
                self._fault = event
            case End():
                self._end = event
            case _:
                self._choice(event.choice).add(event)

    def _add_extra(self, extra: Extra) -> None:
        match extra:
            case Extra("chunk", fields):
                self._extras.update(fields)
            case Extra("event"):
                pass  # it belongs to the stream, not to the answer
            case Extra("tool", fields, int(choice), int(call)):
                self._choice(choice).calls[call].extras.update(fields)
            case Extra(place, fields, int(choice)) if choice in self._choices:
                parts = self._choices[choice]
                _add_up(parts.extras if place == "choice" else parts.message_extras, fields)
            case Extra(_, fields):
                self._extras.update(fields)

    def _choice(self, index: int) -> "_ChoiceBuilder":
        choice = self._choices.get(index)
        if choice is None:
            choice = self._choices[index] = _ChoiceBuilder(self._dialect)
        return choice


class _TextBuilder:
    def __init__(self, start: BlockStart | None = None) -> None:
        self.pieces: list[str] = []
        self.citations: list[Citation] = []
        self.extras = _block_extras(start)

    def part(self) -> Part:
        return TextPart("".join(self.pieces), tuple(self.citations), extras=dict(self.extras))


class _RefusalBuilder:
    def __init__(self, start: BlockStart | None = None) -> None:
        self.pieces: list[str] = []
        self.extras = _block_extras(start)

    def part(self) -> Part:
        return RefusalPart("".join(self.pieces), dict(self.extras))


class _ReasoningBuilder:
    def __init__(self, start: BlockStart | None = None) -> None:
        self.pieces: list[str] = []
        self.summary: dict[int, list[str]] = {}
        self.seals: list[ReasoningSeal] = []
        self.field = ""
        self.extras = _block_extras(start)

    def part(self) -> Part:
        summary = tuple("".join(self.summary[number]) for number in sorted(self.summary))
        return ReasoningPart("".join(self.pieces), summary, tuple(self.seals), self.field, dict(self.extras))


class _MediaBuilder:
    def __init__(self, start: BlockStart | None) -> None:
        self.mime = ""
        self.pieces: list[str] = []
        self.extras = _block_extras(start)

    def part(self) -> Part:
        url = self.extras.get("url")
        return MediaPart(
            kind=kind_of(self.mime),
            mime=self.mime,
            data="".join(self.pieces),
            url=url if isinstance(url, str) else "",
            extras=dict(self.extras),
        )


class _CallBuilder:
    def __init__(self, start: ToolCallStart) -> None:
        self.start = start
        self.arguments: list[str] = []
        self.extras: dict[str, object] = {}

    def part(self) -> Part:
        start = self.start
        return ToolCall(
            start.id,
            start.name,
            "".join(self.arguments),
            start.kind,
            dict(self.extras),
            start.namespace,
            start.server,
        )


class _OpaqueBuilder:
    def __init__(self, dialect: str, start: BlockStart) -> None:
        self._dialect, self._type = dialect, start.type
        self.extras = dict(start.data or {})

    def part(self) -> Part:
        return OpaquePart(self._dialect, self._type, dict(self.extras))


def _block_extras(start: BlockStart | None) -> dict[str, object]:
    """The fields of a block that have no event of their own, with its id."""
    if start is None:
        return {}
    return ({"id": start.id} if start.id else {}) | (start.data or {})


_Builder: TypeAlias = _TextBuilder | _RefusalBuilder | _ReasoningBuilder | _MediaBuilder | _CallBuilder | _OpaqueBuilder


class _ChoiceBuilder:
    """The parts of one choice under construction.

    Consecutive deltas of one kind are one part, unless a block ends between them. A tool call is a part of its own; its
    arguments are added to it even if other events are between them.
    """

    def __init__(self, dialect: str) -> None:
        self._dialect = dialect
        self.role = "assistant"
        self._builders: list[_Builder] = []
        self._blocks: dict[int, _Builder] = {}
        self._open: _Builder | None = None
        self.text_pieces: list[str] | None = None
        """The pieces of the open text part, if a text part is open. A shortcut, because most events are text."""
        self.calls: dict[int, _CallBuilder] = {}
        self._finish: Finish | None = None
        self.extras: dict[str, object] = {}
        self.message_extras: dict[str, object] = {}

    def open_text(self) -> list[str]:
        """Start a text part, unless one is open; return its pieces."""
        builder = self._open
        if not isinstance(builder, _TextBuilder):
            builder = _TextBuilder()
            self._begin(builder, None)
        self.text_pieces = builder.pieces
        return builder.pieces

    def add(self, event: _OfChoice) -> None:
        """Add any event of this choice other than text."""
        match event:
            case ReasoningDelta(_, text, native, part):
                reasoning = self._reasoning()
                reasoning.field = native
                (reasoning.pieces if part is None else reasoning.summary.setdefault(part, [])).append(text)
            case RefusalDelta(_, text):
                refusal = self._open
                if not isinstance(refusal, _RefusalBuilder):
                    refusal = _RefusalBuilder()
                    self._begin(refusal, None)
                refusal.pieces.append(text)
            case ToolCallStart(_, call):
                builder = self.calls[call] = _CallBuilder(event)
                self._begin(builder, event.block)
            case ToolCallDelta(_, call, arguments):
                self.calls[call].arguments.append(arguments)
            case BlockStart():
                self._begin(self._builder_of(event), event.block)
            case BlockEnd(_, block, data):
                ended = self._blocks.get(block)
                if ended is not None and data:
                    ended.extras |= data
                if ended is self._open:
                    self._open = self.text_pieces = None
            case Seal(_, block, scheme, value, redacted):
                if block is None:
                    self._begin(_ReasoningBuilder(), None)
                sealed = self._blocks.get(block) if block is not None else self._open
                if not isinstance(sealed, _ReasoningBuilder):
                    sealed = self._reasoning()
                sealed.seals.append(ReasoningSeal(scheme, value, redacted))
            case Annotation(_, block, url, title, quote, start, end, data):
                cited = self._blocks.get(block)
                if block == LAST_TEXT:
                    cited = next((each for each in reversed(self._builders) if isinstance(each, _TextBuilder)), None)
                if not isinstance(cited, _TextBuilder):
                    self.open_text()
                    cited = self._open
                assert isinstance(cited, _TextBuilder)
                cited.citations.append(Citation(url, title, quote, start, end, data))
            case MediaDelta(_, block, mime, data):
                media = self._blocks.get(block)
                if not isinstance(media, _MediaBuilder):
                    media = _MediaBuilder(None)
                    self._begin(media, block)
                media.mime = mime or media.mime
                media.pieces.append(data)
            case Finish():
                self._finish = event

    def choice(self, index: int) -> Choice:
        """The choice so far."""
        finish = self._finish
        return Choice(
            index,
            self.role,
            finish_reason=finish.reason if finish else None,
            native_finish_reason=finish.native if finish else None,
            extras=_settled(self.extras),
            message_extras=_settled(self.message_extras),
            parts=tuple(builder.part() for builder in self._builders),
            stop_sequence=finish.stop_sequence if finish else None,
            finish_details=finish.details if finish else None,
        )

    def _begin(self, builder: _Builder, block: int | None) -> None:
        self._builders.append(builder)
        self._open = builder
        self.text_pieces = None
        if block is not None:
            self._blocks[block] = builder

    def _reasoning(self) -> _ReasoningBuilder:
        builder = self._open
        if not isinstance(builder, _ReasoningBuilder):
            builder = _ReasoningBuilder()
            self._begin(builder, None)
        return builder

    def _builder_of(self, start: BlockStart) -> _Builder:
        match start.kind:
            case "text":
                return _TextBuilder(start)
            case "reasoning":
                return _ReasoningBuilder(start)
            case "refusal":
                return _RefusalBuilder(start)
            case "media":
                return _MediaBuilder(start)
            case "result" | "opaque":
                return _OpaqueBuilder(self._dialect, start)


class _Pieces(list[str]):
    """Text that arrives in pieces, and is joined when the completion is read."""


def _add_up(whole: dict[str, object], piece: dict[str, object]) -> None:
    """Merge extras into earlier ones: lists are extended, objects merged, and pieces of text collected."""
    for key, value in piece.items():
        before = whole.get(key)
        match value:
            case dict():
                merged = before if isinstance(before, dict) else {}
                _add_up(merged, value)
                whole[key] = merged
            case list() if isinstance(before, list):
                before.extend(value)
            case list():
                whole[key] = list(value)
            case str() if key in _ADDED_UP:
                pieces = before if isinstance(before, _Pieces) else _Pieces()
                pieces.append(value)
                whole[key] = pieces
            case None:
                whole.setdefault(key, None)
            case _:
                whole[key] = value


def _settled(extras: dict[str, object]) -> dict[str, object]:
    """A copy that later events do not change, with its pieces of text joined."""
    settled: dict[str, object] = {}
    for key, value in extras.items():
        match value:
            case _Pieces():
                settled[key] = "".join(value)
            case dict():
                settled[key] = _settled(value)
            case list():
                settled[key] = list(value)
            case _:
                settled[key] = value
    return settled
