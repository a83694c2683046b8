"""RecordedStream: the chunks of a recorded stream, reconstructed from its events; and the events of a completion.

A reader reports content, not the chunks that it came in. But the extras of a chunk come before its other events, and
each kind of content comes once in a chunk. So the events can be divided into groups that are whole chunks, or parts of
one. A silent group has no content: it is a chunk of which only the provider fields are left. It was the start of a tool
call, which the reader reports only with the first arguments; or, after the last content, the finish or the usage.
"""

import re
from collections.abc import Iterable, Iterator
from itertools import zip_longest
from typing import TypeAlias

from msgspec import Struct

from penstock.core.hub.completion import Choice, Completion
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
from penstock.core.hub.usage import Usage

ContentEvent: TypeAlias = TextDelta | ReasoningDelta | RefusalDelta | ToolCallStart | ToolCallDelta

# A word with the space before it, as tokenizers split text. Arguments have few spaces, so punctuation splits them too.
_WORD = re.compile(r"\s*\S+|\s+\Z")
_ARGUMENT = re.compile(r"\w+|\W+")


class ChunkGroup(Struct):
    """The content of one chunk, or of a part of it. `own_extras` names the extras that this chunk itself had."""

    extras: dict[str, object]
    own_extras: frozenset[str] = frozenset()
    choice: int | None = None
    role: str | None = None
    delta: ContentEvent | None = None
    arguments: str = ""
    choice_extras: dict[str, object] = {}
    delta_extras: dict[str, object] = {}

    @property
    def silent(self) -> bool:
        """Whether it neither opens a choice nor has content."""
        return self.role is None and self.delta is None

    @property
    def reasons(self) -> bool:
        """Whether it has reasoning, or a field for it."""
        return isinstance(self.delta, ReasoningDelta) or any(name.startswith("reasoning") for name in self.delta_extras)

    @property
    def bare(self) -> bool:
        """Whether it has nothing but extras of the chunk."""
        return self.silent and not self.choice_extras and not self.delta_extras


class RecordedStream(Struct):
    """A recorded stream: its groups in order, and what occurs once, such as the usage."""

    groups: list[ChunkGroup] = []
    start: Start = Start("", "", None)
    finishes: list[Finish] = []
    usage: Usage | None = None
    fault: Fault | None = None
    end: End = End("completed")
    repairs: set[str] = set()
    arguments: dict[tuple[int, int], str] = {}
    """The complete arguments of each call."""
    call_extras: dict[tuple[int, int], dict[str, object]] = {}
    calls: dict[tuple[int, int], ToolCallStart] = {}

    @property
    def first_extras(self) -> dict[str, object]:
        """The provider fields of the first chunk."""
        return self.groups[0].extras

    @property
    def reasoning_choices(self) -> set[int]:
        """The choices with reasoning, even if its field is empty."""
        return {group.choice for group in self.groups if group.choice is not None and group.reasons}

    @property
    def calling_choices(self) -> set[int]:
        """The choices that call a tool."""
        return {choice for choice, _ in self.calls}

    @property
    def parallel_calling_choices(self) -> set[int]:
        """The choices that call more than one tool."""
        return {choice for choice, call in self.calls if call > 0}


def group_events(events: Iterable[Event]) -> RecordedStream:
    """Divide the events of one stream into groups."""
    recorded = RecordedStream()
    group = ChunkGroup({})
    for event in events:
        match event:
            case Start():
                recorded.start = event
            case Extra("chunk", fields):
                group = _next_group(recorded, group, group.extras | fields)
                group.own_extras = frozenset(fields)
            case Extra("tool", fields, int(choice), int(call)):
                known = recorded.call_extras.get((choice, call), {})
                recorded.call_extras[choice, call] = known | fields
            case Extra("choice", fields, int(choice)):
                if group.delta or group.choice_extras or group.choice not in (choice, None):
                    group = _next_group(recorded, group, group.extras)
                group.choice, group.choice_extras = choice, fields
            case Extra("delta", fields, int(choice)):
                if group.delta or group.delta_extras or group.choice not in (choice, None):
                    group = _next_group(recorded, group, group.extras)
                group.choice, group.delta_extras = choice, fields
            case ChoiceStart(choice, role):
                if group.choice is not None:
                    group = _next_group(recorded, group, group.extras)
                group.choice, group.role = choice, role
            case TextDelta() | ReasoningDelta() | RefusalDelta() | ToolCallStart() | ToolCallDelta():
                group = _add_delta(recorded, group, event)
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
                pass  # a chat chunk has no field for these
    recorded.groups.append(group)
    return recorded


def _next_group(recorded: RecordedStream, group: ChunkGroup, extras: dict[str, object]) -> ChunkGroup:
    if group != ChunkGroup({}):
        recorded.groups.append(group)
    return ChunkGroup(extras)


def _add_delta(recorded: RecordedStream, group: ChunkGroup, delta: ContentEvent) -> ChunkGroup:
    if isinstance(delta, ToolCallDelta):
        key = (delta.choice, delta.call)
        recorded.arguments[key] = recorded.arguments.get(key, "") + delta.arguments
        previous = group.delta
        if isinstance(previous, ToolCallStart) and (previous.choice, previous.call) == key and not group.arguments:
            group.arguments = delta.arguments
            return group
    if isinstance(delta, ToolCallStart):
        recorded.calls[delta.choice, delta.call] = delta
    if group.delta or group.choice not in (delta.choice, None):
        group = _next_group(recorded, group, group.extras)
    group.choice, group.delta = delta.choice, delta
    return group


def events_of(completion: Completion) -> list[Event]:
    """The events of a stream with this completion: text split into words, choices interleaved."""
    events: list[Event] = [Start(completion.id, completion.model, completion.created)]
    if completion.extras:
        events.append(Extra("chunk", completion.extras))
    for step in zip_longest(*map(_steps_of, completion.choices), fillvalue=[]):
        events += [event for group in step for event in group]
    if completion.fault is not None:
        events.append(completion.fault)
    for choice in completion.choices:
        if choice.finish_reason is not None:
            events.append(Finish(choice.index, choice.finish_reason, choice.native_finish_reason))
    if completion.usage is not None:
        events.append(UsageReport(completion.usage))
    return [*events, End(completion.ending or "truncated", completion.ending_detail)]


def _steps_of(choice: Choice) -> list[list[Event]]:
    """The content of a choice, one delta per step; the first step also starts the choice."""
    steps: list[list[Event]] = [[event] for event in _deltas_of(choice)] or [[]]
    steps[0].insert(0, ChoiceStart(choice.index, choice.role))
    return steps


def _deltas_of(choice: Choice) -> Iterator[Event]:
    index = choice.index
    yield from (ReasoningDelta(index, word, choice.reasoning_field) for word in _WORD.findall(choice.reasoning))
    yield from (TextDelta(index, word) for word in _WORD.findall(choice.text))
    yield from (RefusalDelta(index, word) for word in _WORD.findall(choice.refusal))
    for number, call in enumerate(choice.tool_calls):
        yield ToolCallStart(index, number, call.id, call.name, call.kind)
        if call.extras:
            yield Extra("tool", call.extras, index, number)
        yield from (ToolCallDelta(index, number, piece) for piece in _ARGUMENT.findall(call.arguments))
