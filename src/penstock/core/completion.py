"""Completion: the whole answer, and the Accumulator that folds a stream of events into it."""

from collections.abc import Iterable

from msgspec import Struct

from penstock.core.events import (
    ChoiceStart,
    End,
    Ending,
    Event,
    Extra,
    Fault,
    Finish,
    ReasoningDelta,
    RefusalDelta,
    Repair,
    Start,
    TextDelta,
    ToolCallDelta,
    ToolCallStart,
    ToolKind,
    UsageReport,
)
from penstock.core.repairs import Level, level_of
from penstock.core.usage import Usage

# Strings inside extras that arrive in pieces, by key; any other string is replaced by the later one.
_ADDED_UP = frozenset(("data", "transcript", "reasoning", "reasoning_content", "thinking"))


class ToolCall(Struct, frozen=True):
    """A call that the model wants made. `arguments` is JSON text exactly as the model wrote it, whole or not."""

    id: str | None
    name: str
    arguments: str
    kind: ToolKind = "function"
    extras: dict[str, object] = {}


class Choice(Struct, frozen=True):
    """One of the parallel answers. `finish_reason` is None where the provider never finished it.

    `reasoning_field` is the provider's name for the reasoning. Provider fields with no meaning to us are in `extras`
    where they came beside the message, in `message_extras` where they came in it.
    """

    index: int
    role: str = "assistant"
    text: str = ""
    reasoning: str = ""
    refusal: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    finish_reason: str | None = None
    native_finish_reason: str | None = None
    reasoning_field: str = "reasoning_content"
    extras: dict[str, object] = {}
    message_extras: dict[str, object] = {}


class RepairCount(Struct, frozen=True):
    """How often one defect was tolerated, and where it was met first."""

    code: str
    count: int
    offset: int
    line: int
    detail: str = ""

    @property
    def level(self) -> Level:
        """`notice` where it is a harmless habit of providers, else `repair`."""
        return level_of(self.code)


class Completion(Struct, frozen=True):
    """The whole answer: the fold of a stream. `ending` is None while the stream still runs.

    `repairs` are all defects that were tolerated; those that are harmless habits of providers have the level `notice`.
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
        """What the first choice says."""
        return self.choices[0].text if self.choices else ""


class Accumulator:
    """Folds events into a completion, which can be asked for at any moment."""

    def __init__(self) -> None:
        self._start = Start("", "", None)
        self._choices: dict[int, _ChoiceParts] = {}
        self._usage: Usage | None = None
        self._fault: Fault | None = None
        self._end: End | None = None
        self._repairs: dict[str, tuple[int, Repair]] = {}
        self._extras: dict[str, object] = {}

    def extend(self, events: Iterable[Event]) -> None:
        """Take in events, in the order in which a reader gave them."""
        choices = self._choices
        for event in events:
            if type(event) is TextDelta:
                parts = choices.get(event.choice) or self._choice(event.choice)
                parts.text.append(event.text)
            elif type(event) is ToolCallDelta:
                choices[event.choice].calls[event.call].arguments.append(event.arguments)
            elif type(event) is ReasoningDelta:
                parts = choices.get(event.choice) or self._choice(event.choice)
                parts.reasoning.append(event.text)
                parts.reasoning_field = event.native
            elif type(event) is Extra and event.place == "chunk":
                self._extras.update(event.fields)
            else:
                self._add(event)

    @property
    def completion(self) -> Completion:
        """The answer as far as it is known."""
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
                self._choice(choice).text.append(text)
            case ReasoningDelta(choice, text, native):
                parts = self._choice(choice)
                parts.reasoning.append(text)
                parts.reasoning_field = native
            case RefusalDelta(choice, text):
                self._choice(choice).refusal.append(text)
            case ToolCallStart(choice, call):
                self._choice(choice).calls[call] = _CallParts(event)
            case ToolCallDelta(choice, call, arguments):
                self._choice(choice).calls[call].arguments.append(arguments)
            case Finish(choice):
                self._choice(choice).finish = event
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

    def _add_extra(self, extra: Extra) -> None:
        match extra:
            case Extra("chunk", fields):
                self._extras.update(fields)
            case Extra("tool", fields, int(choice), int(call)):
                self._choice(choice).calls[call].extras.update(fields)
            case Extra(place, fields, int(choice)) if choice in self._choices:
                parts = self._choices[choice]
                _add_up(parts.extras if place == "choice" else parts.message_extras, fields)
            case Extra(_, fields):
                self._extras.update(fields)

    def _choice(self, index: int) -> "_ChoiceParts":
        parts = self._choices.get(index)
        if parts is None:
            parts = self._choices[index] = _ChoiceParts()
        return parts


class _CallParts:
    def __init__(self, start: ToolCallStart) -> None:
        self.start = start
        self.arguments: list[str] = []
        self.extras: dict[str, object] = {}


class _ChoiceParts:
    def __init__(self) -> None:
        self.role = "assistant"
        self.text: list[str] = []
        self.reasoning: list[str] = []
        self.refusal: list[str] = []
        self.calls: dict[int, _CallParts] = {}
        self.finish: Finish | None = None
        self.reasoning_field = "reasoning_content"
        self.extras: dict[str, object] = {}
        self.message_extras: dict[str, object] = {}

    def choice(self, index: int) -> Choice:
        return Choice(
            index=index,
            role=self.role,
            text="".join(self.text),
            reasoning="".join(self.reasoning),
            refusal="".join(self.refusal),
            tool_calls=tuple(
                ToolCall(call.start.id, call.start.name, "".join(call.arguments), call.start.kind, dict(call.extras))
                for _, call in sorted(self.calls.items())
            ),
            finish_reason=self.finish.reason if self.finish else None,
            native_finish_reason=self.finish.native if self.finish else None,
            reasoning_field=self.reasoning_field,
            extras=_settled(self.extras),
            message_extras=_settled(self.message_extras),
        )


class _Pieces(list[str]):
    """Text that arrives in pieces, joined when somebody asks for it."""


def _add_up(whole: dict[str, object], piece: dict[str, object]) -> None:
    """Add a piece of extras to what came before: lists grow, objects merge, pieces of text wait to be joined."""
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
    """A copy that no later event changes, its texts joined."""
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
