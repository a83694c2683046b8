"""ChunkContent: the content of each chunk that a style sends, before `write.py` writes it as JSON.

One recorded group may become several chunks, or several groups one chunk. Provider fields then go to the chunk that
they most likely came with. The fields of a silent group before a tool call go to the start of the call. The fields of
the silent groups after the last content go to the finish and the usage, matched from the end.
"""

from msgspec import Struct

from penstock.core.hub.events import (
    Finish,
    ReasoningDelta,
    RefusalDelta,
    TextDelta,
    ToolCallDelta,
    ToolCallStart,
)
from penstock.replay.styles.recorded import ChunkGroup, ContentEvent, RecordedStream
from penstock.replay.styles.style import ChatStyle, fits


class ToolCallPiece(Struct):
    """A part of a tool call; `begins` if it has the call's id and name."""

    start: ToolCallStart
    arguments: str
    begins: bool


class ChunkContent(Struct, kw_only=True):
    """The content of one chunk, for one choice or none: its tags, its deltas, and the recorded provider fields.

    `own_extras` names those of `extras` that were recorded with this very chunk, not with an earlier one.
    """

    choice: int | None
    tags: set[str]
    extras: dict[str, object]
    own_extras: frozenset[str] = frozenset()
    separate: bool = False
    """Whether it was recorded as a chunk of its own, and so is not joined with content. A tool call may still join it:
    the reader reports the start of a call late, so a call may have been in the same chunk."""
    role: str | None = None
    text: str | None = None
    reasoning: str | None = None
    refusal: str | None = None
    calls: list[ToolCallPiece] = []
    finish: Finish | None = None
    choice_extras: dict[str, object] = {}
    delta_extras: dict[str, object] = {}


def chunk_contents(recorded: RecordedStream, style: ChatStyle, *, include_usage: bool) -> list[ChunkContent]:
    """The chunks that a provider with this style would send; `include_usage` as in the request's `stream_options`."""
    last = max((number for number, group in enumerate(recorded.groups) if not group.silent), default=-1)
    opened = _content_chunks(recorded, recorded.groups[: last + 1], style)
    extras = recorded.groups[last].extras if last >= 0 else recorded.groups[-1].extras
    closing = _closing_chunks(recorded, recorded.groups[last + 1 :], extras, style, include_usage=include_usage)
    contents = opened + closing
    traits = {
        "thinking": recorded.reasoning_choices,
        "calling": recorded.calling_choices,
        "parallel": recorded.parallel_calling_choices,
    }
    for content in contents:
        content.tags |= {tag for tag, choices in traits.items() if content.choice in choices}
        if include_usage:
            content.tags.add("requested")
    return _joined(contents, style.cuts.join)


def _content_chunks(recorded: RecordedStream, groups: list[ChunkGroup], style: ChatStyle) -> list[ChunkContent]:
    """The chunks that open choices and have their content."""
    names = {row.name for row in style.choice + style.delta}
    contents: list[ChunkContent] = []
    before: ChunkGroup | None = None
    for group in groups:
        if group.role is not None:
            opening = ChunkContent(
                choice=group.choice, tags={"opening"}, extras=group.extras, own_extras=group.own_extras, role=group.role
            )
            if group.delta is None:
                opening.choice_extras, opening.delta_extras = group.choice_extras, group.delta_extras
                opening.separate = bool(group.choice_extras or group.delta_extras)
            contents.append(opening)
        if group.delta is not None:
            contents += _content_of_group(recorded, group, before or group, style)
        elif group.silent and not group.bare and names.intersection(group.choice_extras, group.delta_extras):
            contents.append(_content_from(group, "extra"))
        before = group if group.bare else None
    return contents


def _content_of_group(
    recorded: RecordedStream, group: ChunkGroup, before: ChunkGroup, style: ChatStyle
) -> list[ChunkContent]:
    """The chunks for the content of one group; `before` is the group that had the start of a tool call."""
    whole = style.cuts.calls == "whole"
    match group.delta:
        case ToolCallStart(choice, call) as start:
            beginning = _content_from(group if whole else before, "call")
            beginning.choice = choice
            arguments = recorded.arguments.get((choice, call), "")
            beginning.calls = [ToolCallPiece(start, arguments if whole else "", begins=True)]
            if whole or not group.arguments:
                return [beginning]
            rest = _content_from(group, "arguments")
            rest.calls = [ToolCallPiece(start, group.arguments, begins=False)]
            return [beginning, rest]
        case ToolCallDelta(choice, call, arguments):
            if whole:
                return []
            more = _content_from(group, "arguments")
            more.calls = [ToolCallPiece(recorded.calls[choice, call], arguments, begins=False)]
            return [more]
        case delta:
            return [_text_content(group, delta)]


def _text_content(group: ChunkGroup, delta: ContentEvent | None) -> ChunkContent:
    match delta:
        case ReasoningDelta(_, text):
            content = _content_from(group, "reasoning")
            content.reasoning = text
        case RefusalDelta(_, text):
            content = _content_from(group, "refusal")
            content.refusal = text
        case _:
            content = _content_from(group, "text")
            content.text = delta.text if isinstance(delta, TextDelta) else ""
    return content


def _content_from(group: ChunkGroup, tag: str) -> ChunkContent:
    opens = group.role is not None
    return ChunkContent(
        choice=group.choice,
        tags={tag},
        extras=group.extras,
        own_extras=frozenset() if opens else group.own_extras,  # the opening chunk has them
        choice_extras=group.choice_extras,
        delta_extras=group.delta_extras,
    )


def _closing_chunks(
    recorded: RecordedStream,
    silent: list[ChunkGroup],
    extras: dict[str, object],
    style: ChatStyle,
    *,
    include_usage: bool,
) -> list[ChunkContent]:
    """The chunks that finish choices, and the one with the usage; with the fields of the last silent groups."""
    if recorded.fault is not None:
        return []
    contents = [
        ChunkContent(choice=finish.choice, tags={"finish"}, extras=extras, finish=finish)
        for finish in recorded.finishes
    ]
    own_chunk = style.usage.chunk != "none" and (include_usage or not style.usage.only_if_requested)
    if recorded.usage is not None and own_chunk:
        first = min(recorded.reasoning_choices | {finish.choice for finish in recorded.finishes}, default=0)
        choice = None if style.usage.chunk == "bare" else first
        contents.append(ChunkContent(choice=choice, tags={"usage"}, extras=extras))
    for content, group in zip(reversed(contents), reversed(silent), strict=False):
        content.extras, content.own_extras = group.extras, group.own_extras
        content.choice_extras, content.delta_extras = group.choice_extras, group.delta_extras
    return contents


def _joined(contents: list[ChunkContent], rules: tuple[str, ...]) -> list[ChunkContent]:
    """Merge each chunk into the previous one where a rule joins the two."""
    joined: list[ChunkContent] = []
    last: set[str] = set()  # the tags of the previous chunk, before merging
    for content in contents:
        joins = any(_joins(rule, last, content.tags) for rule in rules)
        last = set(content.tags)
        if joins and joined[-1].choice == content.choice and not (joined[-1].separate and not content.calls):
            _merge(joined[-1], content)
        else:
            joined.append(content)
    return joined


def _joins(rule: str, before: set[str], tags: set[str]) -> bool:
    first, _, rest = rule.partition("+")
    return first in before and fits(rest, tags)


def _merge(content: ChunkContent, other: ChunkContent) -> None:
    content.tags |= other.tags
    content.text = other.text if content.text is None else content.text
    content.reasoning = other.reasoning if content.reasoning is None else content.reasoning
    content.refusal = other.refusal if content.refusal is None else content.refusal
    content.calls = content.calls + other.calls
    content.finish = other.finish
    content.choice_extras = content.choice_extras | other.choice_extras
    content.delta_extras = content.delta_extras | other.delta_extras
