"""MessagesTextFormat: the fast path of Anthropic Messages (`core/fast/__init__.py`).

Text and thinking deltas are forwarded, and so are the usual opening (`message_start`, the start of a block of text or
thinking, perhaps a ping) and the usual ending. Anthropic adds spaces before the last bracket of each event, so that its
size does not tell the text's.
"""

import re
from typing import cast

from penstock.core.dialects.anthropic_messages.plain_body import read_plain_body
from penstock.core.dialects.anthropic_messages.trailer import MessagesTrailer
from penstock.core.dialects.anthropic_messages.usage import INPUT_COUNTS, OUTPUT_MEMBERS
from penstock.core.fast.format import OpeningField, OpeningFormat, Path, PlainBody, TextEvent, TextFormat
from penstock.core.hub.events import BlockStart, ChoiceStart, Event, Extra, Start, TextDelta

_USAGE: Path = ("message", "usage")
_COUNTS = (*INPUT_COUNTS, "output_tokens")
_LIFETIMES = ("ephemeral_5m_input_tokens", "ephemeral_1h_input_tokens")


def _preliminary_usage(opening: list[Event]) -> dict[str, object]:
    """The usage in `message_start`; empty if it has no input tokens."""
    for event in opening:
        if isinstance(event, Extra) and event.place == "event" and event.fields.get("type") == "message_start":
            return cast("dict[str, object]", event.fields["usage"])
    return {}


def _open(known: list[Event], values: dict[str, bytes]) -> list[Event] | None:
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
    return events


def _choice(events: list[Event]) -> int | None:
    """The only choice, if the events are a start with a usage, and the start of a block of text or thinking."""
    first, *others, last = events
    usual = isinstance(first, Start) and isinstance(last, BlockStart) and last.kind in ("text", "reasoning")
    one_each = [type(event) for event in others if not isinstance(event, Extra) or event.place == "event"]
    return 0 if usual and one_each == [Extra, ChoiceStart] and _preliminary_usage(events) else None


def _trailer(opening: list[Event], _last: bytes) -> MessagesTrailer:
    start, block = opening[0], opening[-1]
    assert isinstance(start, Start)
    assert isinstance(block, BlockStart)
    usage = {name: value for name, value in _preliminary_usage(opening).items() if name not in OUTPUT_MEMBERS}
    return MessagesTrailer(block.block, start.model, usage)


class MessagesTextFormat(TextFormat):
    """Deltas of text and thinking."""

    block_path = ("index",)
    name_path = ("type",)
    spaces = True
    opening = OpeningFormat(
        fields=(
            OpeningField("id", ("message", "id"), "token"),
            *(OpeningField(name, (*_USAGE, name), "count") for name in _COUNTS),
            *(OpeningField(name, (*_USAGE, "cache_creation", name), "count") for name in _LIFETIMES),
        ),
        make=_open,
        choice=_choice,
        trailer=_trailer,
        in_deltas=False,
    )
    trailer_mark = re.compile(rb'"type": ?"content_block_stop"')

    def text_path(self, event: TextEvent) -> Path:
        """The path of the text in the JSON of this event."""
        return ("delta", "text" if isinstance(event, TextDelta) else "thinking")

    def read_body(self, data: bytes) -> PlainBody | None:
        """Read an unstreamed answer by typed decoders."""
        return read_plain_body(data)
