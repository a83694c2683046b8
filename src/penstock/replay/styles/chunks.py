"""Units: what each chunk is to say, before anybody writes it in a manner's words.

Where one recorded group becomes several chunks, or the other way round, provider fields go with what they most likely
came with: those of a silent group before a tool call with the call's beginning, those behind the last words with the
finish and the usage, the last with the last.
"""

from msgspec import Struct

from penstock.core.events import (
    Finish,
    ReasoningDelta,
    RefusalDelta,
    TextDelta,
    ToolCallDelta,
    ToolCallStart,
)
from penstock.replay.styles.recorded import ChunkGroup, RecordedStream, Speech
from penstock.replay.styles.style import ProviderStyle, fits


class ToolCallPiece(Struct):
    """A piece of a tool call; `begins` if it has the call's id and name."""

    start: ToolCallStart
    arguments: str
    begins: bool


class ChunkContent(Struct, kw_only=True):
    """What one chunk says of one choice, or of none: its tags, its words, and the fields that were recorded with it."""

    choice: int | None
    tags: set[str]
    extras: dict[str, object]
    told: frozenset[str] = frozenset()
    alone: bool = False
    """Whether it was recorded as a chunk of its own, and so is not joined with words. (A call is told late.)"""
    role: str | None = None
    text: str | None = None
    reasoning: str | None = None
    refusal: str | None = None
    calls: list[ToolCallPiece] = []
    finish: Finish | None = None
    choice_extras: dict[str, object] = {}
    delta_extras: dict[str, object] = {}


def units(recorded: RecordedStream, manner: ProviderStyle, *, asked: bool) -> list[ChunkContent]:
    """The chunks that a provider with that manner would send, a client having asked for the usage or not."""
    last = max((number for number, group in enumerate(recorded.groups) if not group.silent), default=-1)
    spoken = _spoken(recorded, recorded.groups[: last + 1], manner)
    extras = recorded.groups[last].extras if last >= 0 else recorded.groups[-1].extras
    closing = _closing(recorded, recorded.groups[last + 1 :], extras, manner, asked=asked)
    found = spoken + closing
    traits = {"thinking": recorded.thinkers, "calling": recorded.callers, "parallel": recorded.parallel_callers}
    for unit in found:
        unit.tags |= {tag for tag, choices in traits.items() if unit.choice in choices}
        if asked:
            unit.tags.add("asked")
    return _joined(found, manner.cuts.join)


def _spoken(recorded: RecordedStream, groups: list[ChunkGroup], manner: ProviderStyle) -> list[ChunkContent]:
    """The chunks that open choices and say things."""
    names = {row.name for row in manner.choice + manner.delta}
    found: list[ChunkContent] = []
    before: ChunkGroup | None = None
    for group in groups:
        if group.role is not None:
            opening = ChunkContent(
                choice=group.choice, tags={"opening"}, extras=group.extras, told=group.told, role=group.role
            )
            if group.speech is None:
                opening.choice_extras, opening.delta_extras = group.choice_extras, group.delta_extras
                opening.alone = bool(group.choice_extras or group.delta_extras)
            found.append(opening)
        if group.speech is not None:
            found += _said(recorded, group, before or group, manner)
        elif group.silent and not group.bare and names.intersection(group.choice_extras, group.delta_extras):
            found.append(_unit(group, "extra"))
        before = group if group.bare else None
    return found


def _said(recorded: RecordedStream, group: ChunkGroup, before: ChunkGroup, manner: ProviderStyle) -> list[ChunkContent]:
    """The chunks that say what one group says; `before` is the group that the beginning of a call came in."""
    whole = manner.cuts.calls == "whole"
    match group.speech:
        case ToolCallStart(choice, call) as start:
            beginning = _unit(group if whole else before, "call")
            beginning.choice = choice
            arguments = recorded.arguments.get((choice, call), "")
            beginning.calls = [ToolCallPiece(start, arguments if whole else "", begins=True)]
            if whole or not group.arguments:
                return [beginning]
            rest = _unit(group, "arguments")
            rest.calls = [ToolCallPiece(start, group.arguments, begins=False)]
            return [beginning, rest]
        case ToolCallDelta(choice, call, arguments):
            if whole:
                return []
            more = _unit(group, "arguments")
            more.calls = [ToolCallPiece(recorded.calls[choice, call], arguments, begins=False)]
            return [more]
        case speech:
            return [_word(group, speech)]


def _word(group: ChunkGroup, speech: Speech | None) -> ChunkContent:
    match speech:
        case ReasoningDelta(_, text):
            unit = _unit(group, "reasoning")
            unit.reasoning = text
        case RefusalDelta(_, text):
            unit = _unit(group, "refusal")
            unit.refusal = text
        case _:
            unit = _unit(group, "text")
            unit.text = speech.text if isinstance(speech, TextDelta) else ""
    return unit


def _unit(group: ChunkGroup, tag: str) -> ChunkContent:
    opens = group.role is not None
    return ChunkContent(
        choice=group.choice,
        tags={tag},
        extras=group.extras,
        told=frozenset() if opens else group.told,  # the opening has them
        choice_extras=group.choice_extras,
        delta_extras=group.delta_extras,
    )


def _closing(
    recorded: RecordedStream, silent: list[ChunkGroup], extras: dict[str, object], manner: ProviderStyle, *, asked: bool
) -> list[ChunkContent]:
    """The chunks that finish choices, and the one with the usage; with what the last silent groups hold."""
    if recorded.fault is not None:
        return []
    found = [
        ChunkContent(choice=finish.choice, tags={"finish"}, extras=extras, finish=finish)
        for finish in recorded.finishes
    ]
    own_chunk = manner.usage.chunk != "none" and (asked or not manner.usage.only_if_asked)
    if recorded.usage is not None and own_chunk:
        first = min(recorded.thinkers | {finish.choice for finish in recorded.finishes}, default=0)
        choice = None if manner.usage.chunk == "bare" else first
        found.append(ChunkContent(choice=choice, tags={"usage"}, extras=extras))
    for unit, group in zip(reversed(found), reversed(silent), strict=False):
        unit.extras, unit.told = group.extras, group.told
        unit.choice_extras, unit.delta_extras = group.choice_extras, group.delta_extras
    return found


def _joined(found: list[ChunkContent], rules: tuple[str, ...]) -> list[ChunkContent]:
    """The chunks, those made one that the rules join: the first takes in what the second says."""
    joined: list[ChunkContent] = []
    last: set[str] = set()  # the tags of the one before, as it was
    for unit in found:
        joins = any(_joins(rule, last, unit.tags) for rule in rules)
        last = set(unit.tags)
        if joins and joined[-1].choice == unit.choice and not (joined[-1].alone and not unit.calls):
            _take_in(joined[-1], unit)
        else:
            joined.append(unit)
    return joined


def _joins(rule: str, before: set[str], tags: set[str]) -> bool:
    first, _, rest = rule.partition("+")
    return first in before and fits(rest, tags)


def _take_in(unit: ChunkContent, other: ChunkContent) -> None:
    unit.tags |= other.tags
    unit.text = other.text if unit.text is None else unit.text
    unit.reasoning = other.reasoning if unit.reasoning is None else unit.reasoning
    unit.refusal = other.refusal if unit.refusal is None else unit.refusal
    unit.calls = unit.calls + other.calls
    unit.finish = other.finish
    unit.choice_extras = unit.choice_extras | other.choice_extras
    unit.delta_extras = unit.delta_extras | other.delta_extras
