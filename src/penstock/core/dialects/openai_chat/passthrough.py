"""The fast path of chat completions: what `core/fast/passthrough.py` needs to know about this dialect."""

import re
from typing import Any, cast

from penstock.core.dialects.openai_chat.reader import OpenAIChatReader
from penstock.core.dialects.openai_chat.trailer import ChatTrailer
from penstock.core.fast.format import (
    OpeningField,
    OpeningFormat,
    PassThroughFormat,
    Path,
    TemplateSlot,
    TextEvent,
    TrailerFormat,
)
from penstock.core.hub.events import ChoiceStart, Event, Extra, Start, TextDelta

_PADDING = "obfuscation"
_FINGERPRINT = "system_fingerprint"


def _text_path(event: TextEvent) -> Path:
    return ("choices", 0, "delta", "content" if isinstance(event, TextDelta) else event.native)


def _padding_event(fields: dict[str, object]) -> Event:
    return Extra("chunk", fields)


def _open(known: list[Any], values: dict[str, bytes]) -> tuple[list[Event], dict[str, object]]:
    """The events of an opening, made from those of the learned one, and the extras of its stream.

    `known` is a `Start`, perhaps an `Extra`, and a `ChoiceStart`.
    """
    start, choice = known[0], known[-1]
    opened = Start(values["id"].decode(), start.model, int(values["created"]))
    if len(known) == 2:
        return [opened, choice], {}
    fields: dict[str, object] = known[1].fields.copy()
    if _FINGERPRINT in values:
        fields[_FINGERPRINT] = values[_FINGERPRINT].decode()
    if _PADDING in values:
        fields[_PADDING] = values[_PADDING].decode()
    # A copy: the extras of the stream change, but the emitted event must not.
    return [opened, Extra("chunk", fields), choice], fields.copy()


def _choice(events: list[Event]) -> int:
    choice = events[-1]
    assert isinstance(choice, ChoiceStart)
    return choice.choice


def _trailer(opening: list[Event], fields: dict[str, object]) -> ChatTrailer:
    start = opening[0]
    assert isinstance(start, Start)
    return ChatTrailer((start.id, start.model, start.created), fields, _choice(opening))


CHAT_PASS_THROUGH = PassThroughFormat(
    text_path=_text_path,
    slots=(TemplateSlot(_PADDING, (_PADDING,), "padding"),),
    padding_event=_padding_event,
    opening=OpeningFormat(
        fields=(
            OpeningField("id", ("id",), "token"),
            OpeningField("created", ("created",), "seconds"),
            OpeningField(_FINGERPRINT, (_FINGERPRINT,), "token", if_repeated=True),
            OpeningField(_PADDING, (_PADDING,), "padding"),
        ),
        make=_open,
        choice=_choice,
    ),
    # A text delta that matched no template, because its text has an escape, has no finish reason.
    trailer=TrailerFormat(mark=re.compile(rb'"finish_reason": ?"'), make=_trailer),
    frames=lambda reader: cast("OpenAIChatReader", reader),
)
