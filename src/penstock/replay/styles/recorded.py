"""RecordedStream: what the events of a stream tell of its chunks, and the events that a mere completion stands for.

A reader tells what was said, not what stood in which chunk. But extras of a chunk come before all else that it holds,
and each thing is said once in a chunk; so the events fall into groups that are chunks, or finer. A group that says
nothing is a chunk of which only provider fields are left: the beginning of a tool call, held back until there were
arguments; behind the last words, the finish or the usage.
"""

import re
from collections.abc import Iterable, Iterator
from itertools import zip_longest
from typing import TypeAlias

from msgspec import Struct

from penstock.core.completion import Choice, Completion
from penstock.core.events import (
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
from penstock.core.usage import Usage

Speech: TypeAlias = TextDelta | ReasoningDelta | RefusalDelta | ToolCallStart | ToolCallDelta

# A word with the space before it, as tokenizers cut; arguments have few spaces, so punctuation cuts them too.
_WORD = re.compile(r"\s*\S+|\s+\Z")
_ARGUMENT = re.compile(r"\w+|\W+")


class ChunkGroup(Struct):
    """What one chunk held, or a part of it. `told` names the chunk's extras that were told with it."""

    extras: dict[str, object]
    told: frozenset[str] = frozenset()
    choice: int | None = None
    role: str | None = None
    speech: Speech | None = None
    arguments: str = ""
    choice_extras: dict[str, object] = {}
    delta_extras: dict[str, object] = {}

    @property
    def silent(self) -> bool:
        """Whether it neither opens a choice nor says anything."""
        return self.role is None and self.speech is None

    @property
    def thinks(self) -> bool:
        """Whether it reasons, or has a field for that."""
        return isinstance(self.speech, ReasoningDelta) or any(
            name.startswith("reasoning") for name in self.delta_extras
        )

    @property
    def bare(self) -> bool:
        """Whether it has nothing but extras of the chunk."""
        return self.silent and not self.choice_extras and not self.delta_extras


class RecordedStream(Struct):
    """A stream's events, by what they tell: its groups in order, and what is told once."""

    groups: list[ChunkGroup] = []
    start: Start = Start("", "", None)
    finishes: list[Finish] = []
    usage: Usage | None = None
    fault: Fault | None = None
    end: End = End("completed")
    repairs: set[str] = set()
    arguments: dict[tuple[int, int], str] = {}
    """The whole arguments of each call."""
    call_extras: dict[tuple[int, int], dict[str, object]] = {}
    calls: dict[tuple[int, int], ToolCallStart] = {}

    @property
    def first_extras(self) -> dict[str, object]:
        """The provider fields of the first chunk."""
        return self.groups[0].extras

    @property
    def thinkers(self) -> set[int]:
        """The choices that reason somewhere, if only behind a field that is empty."""
        return {group.choice for group in self.groups if group.choice is not None and group.thinks}

    @property
    def callers(self) -> set[int]:
        """The choices that call a tool."""
        return {choice for choice, _ in self.calls}

    @property
    def parallel_callers(self) -> set[int]:
        """The choices that call more than one tool."""
        return {choice for choice, call in self.calls if call > 0}


def gather(events: Iterable[Event]) -> RecordedStream:
    """The events of one stream, sorted."""
    recorded = RecordedStream()
    group = ChunkGroup({})
    for event in events:
        match event:
            case Start():
                recorded.start = event
            case Extra("chunk", fields):
                group = _next(recorded, group, group.extras | fields)
                group.told = frozenset(fields)
            case Extra("tool", fields, int(choice), int(call)):
                known = recorded.call_extras.get((choice, call), {})
                recorded.call_extras[choice, call] = known | fields
            case Extra("choice", fields, int(choice)):
                if group.speech or group.choice_extras or group.choice not in (choice, None):
                    group = _next(recorded, group, group.extras)
                group.choice, group.choice_extras = choice, fields
            case Extra("delta", fields, int(choice)):
                if group.speech or group.delta_extras or group.choice not in (choice, None):
                    group = _next(recorded, group, group.extras)
                group.choice, group.delta_extras = choice, fields
            case ChoiceStart(choice, role):
                if group.choice is not None:
                    group = _next(recorded, group, group.extras)
                group.choice, group.role = choice, role
            case TextDelta() | ReasoningDelta() | RefusalDelta() | ToolCallStart() | ToolCallDelta():
                group = _hear(recorded, group, event)
            case Finish():
                recorded.finishes.append(event)
            case UsageReport(usage):
                recorded.usage = usage
            case Repair(code):
                recorded.repairs.add(code)
            case Fault():
                recorded.fault = event
            case End():
                recorded.end = event
            case Extra() | BlockStart() | BlockEnd() | Seal() | Annotation() | MediaDelta():
                pass  # nothing that a chat chunk has a place for
    recorded.groups.append(group)
    return recorded


def _next(recorded: RecordedStream, group: ChunkGroup, extras: dict[str, object]) -> ChunkGroup:
    if group != ChunkGroup({}):
        recorded.groups.append(group)
    return ChunkGroup(extras)


def _hear(recorded: RecordedStream, group: ChunkGroup, speech: Speech) -> ChunkGroup:
    if isinstance(speech, ToolCallDelta):
        key = (speech.choice, speech.call)
        recorded.arguments[key] = recorded.arguments.get(key, "") + speech.arguments
        begun = group.speech
        if isinstance(begun, ToolCallStart) and (begun.choice, begun.call) == key and not group.arguments:
            group.arguments = speech.arguments
            return group
    if isinstance(speech, ToolCallStart):
        recorded.calls[speech.choice, speech.call] = speech
    if group.speech or group.choice not in (speech.choice, None):
        group = _next(recorded, group, group.extras)
    group.choice, group.speech = speech.choice, speech
    return group


def events_of(completion: Completion) -> list[Event]:
    """The events of a stream that would say the same: its text cut into words, its choices in turn."""
    events: list[Event] = [Start(completion.id, completion.model, completion.created)]
    if completion.extras:
        events.append(Extra("chunk", completion.extras))
    for turn in zip_longest(*map(_turns_of, completion.choices), fillvalue=[]):
        events += [event for said in turn for event in said]
    if completion.fault is not None:
        events.append(completion.fault)
    for choice in completion.choices:
        if choice.finish_reason is not None:
            events.append(Finish(choice.index, choice.finish_reason, choice.native_finish_reason))
    if completion.usage is not None:
        events.append(UsageReport(completion.usage))
    return [*events, End(completion.ending or "truncated", completion.ending_detail)]


def _turns_of(choice: Choice) -> list[list[Event]]:
    """What a choice says, one thing at a time; it begins with the first."""
    said: list[list[Event]] = [[event] for event in _speech_of(choice)] or [[]]
    said[0].insert(0, ChoiceStart(choice.index, choice.role))
    return said


def _speech_of(choice: Choice) -> Iterator[Event]:
    index = choice.index
    yield from (ReasoningDelta(index, word, choice.reasoning_field) for word in _WORD.findall(choice.reasoning))
    yield from (TextDelta(index, word) for word in _WORD.findall(choice.text))
    yield from (RefusalDelta(index, word) for word in _WORD.findall(choice.refusal))
    for number, call in enumerate(choice.tool_calls):
        yield ToolCallStart(index, number, call.id, call.name, call.kind)
        if call.extras:
            yield Extra("tool", call.extras, index, number)
        yield from (ToolCallDelta(index, number, piece) for piece in _ARGUMENT.findall(call.arguments))
