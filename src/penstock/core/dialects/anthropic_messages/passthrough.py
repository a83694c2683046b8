"""The fast path of Anthropic Messages: what `core/fast/passthrough.py` needs to know about this dialect.

Text and thinking deltas are forwarded, and so are the usual opening (`message_start`, the start of a block of text or
thinking, perhaps a ping) and the usual ending. Anthropic adds spaces before the last bracket of each event, so that its
size does not tell the text's.
"""

import re
from typing import cast

from penstock.core.dialects.anthropic_messages.reader import AnthropicMessagesReader
from penstock.core.dialects.anthropic_messages.trailer import MessagesTrailer, trailer_after
from penstock.core.dialects.anthropic_messages.usage import INPUT_COUNTS, OUTPUT_MEMBERS
from penstock.core.fast.format import (
    OpeningField,
    OpeningFormat,
    PassThroughFormat,
    Path,
    TemplateSlot,
    TextEvent,
    TrailerFormat,
)
from penstock.core.hub.events import BlockStart, ChoiceStart, Event, Extra, Start, TextDelta

_USAGE: Path = ("message", "usage")
_COUNTS = (*INPUT_COUNTS, "output_tokens")
_LIFETIMES = ("ephemeral_5m_input_tokens", "ephemeral_1h_input_tokens")


def _text_path(event: TextEvent) -> Path:
    return ("delta", "text" if isinstance(event, TextDelta) else "thinking")


def _preliminary_usage(opening: list[Event]) -> dict[str, object]:
    """The usage in `message_start`; empty if it has no input tokens."""
    for event in opening:
        if isinstance(event, Extra) and event.place == "event" and event.fields.get("type") == "message_start":
            return cast("dict[str, object]", event.fields["usage"])
    return {}


def _open(known: list[Event], values: dict[str, bytes]) -> tuple[list[Event], dict[str, object]] | None:
    """The events of an opening, made from those of the learned one (`known`)."""
    usage = _preliminary_usage(known).copy()
    lifetimes = usage.get("cache_creation")
    if isinstance(lifetimes, dict):
        usage["cache_creation"] = lifetimes | {name: int(values[name]) for name in _LIFETIMES if name in values}
    usage |= {name: int(values[name]) for name in _COUNTS if name in values}
    if not any(usage.get(name) for name in INPUT_COUNTS):
        return None
    events: list[Event] = []
    for event in known:
        if isinstance(event, Start):
            events.append(Start(values["id"].decode(), event.model, None, event.tier))
        elif isinstance(event, Extra) and event.place == "event":
            events.append(Extra("event", {**event.fields, "usage": usage}))
        else:
            events.append(event)
    return events, {}


def _choice(events: list[Event]) -> int | None:
    """The only choice, if the events are a start with a usage, and the start of a block of text or thinking."""
    first, *others, last = events
    usual = isinstance(first, Start) and isinstance(last, BlockStart) and last.kind in ("text", "reasoning")
    one_each = [type(event) for event in others if not isinstance(event, Extra) or event.place == "event"]
    return 0 if usual and one_each == [Extra, ChoiceStart] and _preliminary_usage(events) else None


def _trailer(opening: list[Event], _fields: dict[str, object]) -> MessagesTrailer:
    start, block = opening[0], opening[-1]
    assert isinstance(start, Start)
    assert isinstance(block, BlockStart)
    usage = {name: value for name, value in _preliminary_usage(opening).items() if name not in OUTPUT_MEMBERS}
    return MessagesTrailer(block.block, start.model, usage)


MESSAGES_PASS_THROUGH = PassThroughFormat(
    text_path=_text_path,
    block_path=("index",),
    name_path=("type",),
    slots=(TemplateSlot("spaces", (), "spaces"),),
    opening=OpeningFormat(
        fields=(
            OpeningField("id", ("message", "id"), "token"),
            *(OpeningField(name, (*_USAGE, name), "count") for name in _COUNTS),
            *(OpeningField(name, (*_USAGE, "cache_creation", name), "count") for name in _LIFETIMES),
        ),
        make=_open,
        choice=_choice,
        in_deltas=False,
    ),
    trailer=TrailerFormat(
        mark=re.compile(rb'"type": ?"message_delta"'),
        make=_trailer,
        after=lambda reader, grammar: trailer_after(cast("AnthropicMessagesReader", reader), grammar),
    ),
)
