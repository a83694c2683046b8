"""ChatTextFormat: the fast path of chat completions (`core/fast/__init__.py`)."""

import re
from typing import Any

from penstock.core.dialects.openai_chat.plain_body import read_plain_body
from penstock.core.dialects.openai_chat.trailer import ChatTrailer
from penstock.core.fast.format import OpeningField, OpeningFormat, Path, PlainBody, TextEvent, TextFormat
from penstock.core.hub.events import ChoiceStart, Event, Extra, Start, TextDelta

_PADDING = "obfuscation"
_FINGERPRINT = "system_fingerprint"
_EXTRAS = frozenset((_PADDING, _FINGERPRINT, "service_tier"))


def _open(known: list[Any], values: dict[str, bytes]) -> list[Event]:
    """The events of an opening, made from those of the learned one: a start, perhaps an extra, a choice."""
    start = Start(values["id"].decode(), known[0].model, int(values["created"]))
    if len(known) == 2:
        return [start, known[1]]
    fields = known[1].fields.copy()
    if _FINGERPRINT in values:
        fields[_FINGERPRINT] = values[_FINGERPRINT].decode()
    if _PADDING in values:
        fields[_PADDING] = values[_PADDING].decode()
    return [start, Extra("chunk", fields), known[2]]


def _choice(events: list[Event]) -> int | None:
    """The choice, if the events are a start, perhaps the usual extras, and the start of a choice."""
    start, *extras, choice = events
    if not isinstance(start, Start) or not isinstance(choice, ChoiceStart) or len(extras) > 1:
        return None
    usual = (isinstance(extra, Extra) and extra.fields.keys() <= _EXTRAS for extra in extras)
    return choice.choice if all(usual) else None


def _trailer(opening: list[Event], last: bytes) -> ChatTrailer:
    start, *extras, choice = opening
    assert isinstance(start, Start)
    assert isinstance(choice, ChoiceStart)
    fields = extras[0].fields if extras and isinstance(extras[0], Extra) else {}
    return ChatTrailer((start.id, start.model, start.created), fields, choice.choice, last)


class ChatTextFormat(TextFormat):
    """Text and reasoning of one choice."""

    padding = _PADDING
    typed = True
    opening = OpeningFormat(
        fields=(
            OpeningField("id", ("id",), "token"),
            OpeningField("created", ("created",), "seconds"),
            OpeningField(_FINGERPRINT, (_FINGERPRINT,), "token", if_repeated=True),
            OpeningField(_PADDING, (_PADDING,), "padding"),
        ),
        make=_open,
        choice=_choice,
        trailer=_trailer,
    )
    trailer_mark = re.compile(rb'"finish_reason": ?"')

    def text_path(self, event: TextEvent) -> Path:
        """The path of the text in the JSON of this event."""
        return ("choices", 0, "delta", "content" if isinstance(event, TextDelta) else event.native)

    def padding_event(self, padding: str) -> Event:
        """The event for padding that has changed."""
        return Extra("chunk", {_PADDING: padding})

    def read_body(self, data: bytes) -> PlainBody | None:
        """Read an unstreamed answer by typed decoders."""
        return read_plain_body(data)
