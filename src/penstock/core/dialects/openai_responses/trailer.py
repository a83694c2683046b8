"""ResponsesTrailer: the usual ending of a stream of Responses, after the only text of a message.

    response.output_text.done  response.content_part.done  response.output_item.done  response.completed

They must come in one read, and repeat the text of the deltas. They have their usual members only; the response may have
any. `core/passthrough.py` explains why the events are those of the slow path. The writer writes them.
"""

from typing import Annotated, Literal, TypeAlias

import msgspec
from msgspec import Meta, Struct

from penstock.core.dialects.openai_responses.items import OpenText
from penstock.core.dialects.openai_responses.reader import OpenAIResponsesReader, envelope_of, new_extras
from penstock.core.dialects.openai_responses.usage import read_usage
from penstock.core.dialects.openai_responses.vocabulary import Json
from penstock.core.events import BlockEnd, End, Event, Extra, Finish, Start, UsageReport
from penstock.core.grammar import Grammar
from penstock.core.json_getters import list_of, object_of
from penstock.core.sink import Sink
from penstock.core.usage import Tokens, Usage
from penstock.core.wire.complexity import SMALL, is_intricate, outline_of
from penstock.core.wire.payload import is_too_deep

_Nothing: TypeAlias = Annotated[list[None], Meta(max_length=0)]
_CR = ord("\r")


class WholePart(Struct, forbid_unknown_fields=True, gc=False):
    """A text without annotations."""

    type: Literal["output_text"]
    text: str
    annotations: _Nothing = []
    logprobs: _Nothing = []


class WholeMessage(Struct, forbid_unknown_fields=True, gc=False):
    """A message that consists of one text."""

    id: str
    type: Literal["message"]
    status: Literal["completed"]
    role: Literal["assistant"]
    content: Annotated[list[WholePart], Meta(min_length=1, max_length=1)]


class TextDone(Struct, forbid_unknown_fields=True, gc=False):
    """`response.output_text.done`."""

    type: Literal["response.output_text.done"]
    sequence_number: int
    item_id: str
    output_index: int
    content_index: Literal[0]
    text: str
    logprobs: _Nothing = []


class PartDone(Struct, forbid_unknown_fields=True, gc=False):
    """`response.content_part.done`."""

    type: Literal["response.content_part.done"]
    sequence_number: int
    item_id: str
    output_index: int
    content_index: Literal[0]
    part: WholePart


class MessageDone(Struct, forbid_unknown_fields=True, gc=False):
    """`response.output_item.done`."""

    type: Literal["response.output_item.done"]
    sequence_number: int
    output_index: int
    item: WholeMessage


class ResponseDone(Struct, forbid_unknown_fields=True, gc=False):
    """`response.completed`."""

    type: Literal["response.completed"]
    sequence_number: int
    response: dict[str, object]


_HEADS = tuple(
    b"event: %b\ndata:" % name
    for name in (
        b"response.output_text.done",
        b"response.content_part.done",
        b"response.output_item.done",
        b"response.completed",
    )
)
_TEXT_DONE = msgspec.json.Decoder(TextDone)
_PART_DONE = msgspec.json.Decoder(PartDone)
_MESSAGE_DONE = msgspec.json.Decoder(MessageDone)
_RESPONSE_DONE = msgspec.json.Decoder(ResponseDone)


class ResponsesTrailer:
    """The usual ending of one stream (`StreamTrailer`).

    `start` and `extras` are what the response said of itself at its start. `number` is that of the next event.
    """

    frames = 0
    """The number of frames in the buffer."""
    raw = b""
    """Their bytes."""
    done = False
    """Whether the trailer is complete."""
    finish_reason = "stop"
    tokens: Tokens | None = None
    """The tokens of the reported usage."""
    tier: str | None = None
    """The service tier of the reported usage, if it names one."""
    _usage: Usage
    _changed: Json

    def __init__(self, start: Start, extras: Json, message: OpenText, number: int | None) -> None:
        self._start = start
        self._extras = extras
        self._message = message
        self._text = message.text
        self._number = number

    def note_text(self, text: str, number: int | None) -> None:
        """Continue after text deltas that the fast path has read (`TextFollowingReader`)."""
        self._text.add(text.encode())
        self._number = number

    def feed(self, data: bytes) -> bool:
        """Take one read if it is the whole trailer. Otherwise return False; the trailer must not be fed again."""
        events = data.split(b"\n\n")
        if self.raw or len(events) != len(_HEADS) + 1 or events.pop() or _CR in data:
            return False
        values = []
        for event, head in zip(events, _HEADS, strict=True):
            if not event.startswith(head) or event.find(b"\n", len(head)) >= 0:
                return False
            values.append(event[len(head) :])
        try:
            if not self._take_message(*values[:3]) or not self._take_response(values[3]):
                return False
        except ValueError:
            return False
        self.raw = data
        self.frames = len(_HEADS)
        self.done = True
        return True

    def events(self) -> list[Event]:
        """The events of the trailer."""
        return [
            BlockEnd(0, self._message.block),
            *([Extra("chunk", self._changed)] if self._changed else ()),
            Finish(0, self.finish_reason, "completed"),
            UsageReport(self._usage),
            End("completed"),
        ]

    def write(self, *, include_usage: bool) -> bytes:  # noqa: ARG002 - it is the same with and without
        """Nothing: the writer has its own numbers, and writes members that the provider left out."""
        return b""

    def _take_message(self, text_done: bytes, part_done: bytes, message_done: bytes) -> bool:
        """Whether the text, the part and the message end, in this order, and all of them repeat the text."""
        message, number = self._message, self._number
        text, part, whole = (
            _TEXT_DONE.decode(text_done),
            _PART_DONE.decode(part_done),
            _MESSAGE_DONE.decode(message_done),
        )
        return (
            number is not None
            and (text.sequence_number, part.sequence_number, whole.sequence_number) == (number, number + 1, number + 2)
            and text.item_id == part.item_id == whole.item.id == message.id
            and text.output_index == part.output_index == whole.output_index == message.output_index
            and text.text == part.part.text == whole.item.content[0].text
            and self._text.size > 0
            and self._text.rest_of(text.text) == ""
        )

    def _take_response(self, data: bytes) -> bool:
        """Take the whole response if it is completed, is the one that started, and reports a usage without defects."""
        outline = outline_of(data) if len(data) > SMALL else None
        if is_too_deep(data, outline and outline.outside) or (outline is not None and outline.is_costly()):
            return False
        event = _RESPONSE_DONE.decode(data)
        response, types, output = event.response, self._message.items, list_of(event.response.get("output"))
        if outline is not None and is_intricate([{"response": response}], pieces=False):
            return False
        if event.sequence_number != (self._number or 0) + len(_HEADS) - 1 or response.get("status") != "completed":
            return False
        if envelope_of(response) != self._start or len(output) != len(types):
            return False
        if any(object_of(item).get("type") != type for item, type in zip(output, types, strict=True)):
            return False
        report, defects = response.get("usage"), Sink()
        if not isinstance(report, dict) or not report:
            return False
        usage = read_usage(report, defects, tier=response.get("service_tier")).with_total()
        tokens = Tokens.of_sound(usage)
        if tokens is None or defects.events or not tokens.output:
            return False
        self.tokens = tokens
        self.tier = usage.tier
        self._usage = usage
        self._changed = new_extras(response, self._extras)
        return True


def trailer_after(reader: OpenAIResponsesReader, grammar: Grammar) -> ResponsesTrailer | None:
    """An empty trailer for a stream whose text the slow path has read; None if it cannot have the usual ending."""
    message = reader.open_text()
    if message is None or grammar.only_block(0) != message.block or not grammar.expects_end:
        return None
    if not grammar.expects_text:
        return None
    return ResponsesTrailer(reader.start, reader.extras, message, reader.next_number)
