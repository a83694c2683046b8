"""Writes the dialect of Bedrock's Converse API: hub events → the messages of `ConverseStream`, an AWS event stream.

1. Only calls, images, and results of the provider's own tools have a `contentBlockStart`. Text and reasoning begin
   with their first delta. A block without content is written, with an empty delta, only if the provider speaks this
   dialect too. Blocks are numbered 0, 1, … as they are written.
2. `messageStop` has the reason. The usage follows it, in `metadata`, which is last.
3. Every payload has filler (`p`), as Amazon's have, whose lengths vary.
4. A seal of another API is wrapped (`core/hub/seals.py`).
5. A stream that is not completed ends with an exception.
"""

from string import ascii_lowercase

import msgspec

from penstock.core.dialects.answer_parts import SummaryParts, call_name, note_hidden
from penstock.core.dialects.answer_writer import AnswerFacts, AnswerWriter
from penstock.core.dialects.bedrock_converse.answer_parts import (
    Json,
    call_id,
    citation_body,
    image_format,
    metadata,
    seal_body,
    stop,
    stream_exception_name,
)
from penstock.core.dialects.bedrock_converse.reader import FAILURES
from penstock.core.hub.content import ReasoningSeal
from penstock.core.hub.events import (
    Annotation,
    BlockEnd,
    BlockStart,
    ChoiceStart,
    Event,
    Extra,
    Finish,
    MediaDelta,
    ReasoningDelta,
    RefusalDelta,
    Seal,
    TextDelta,
    ToolCallDelta,
    ToolCallStart,
)
from penstock.core.hub.failure import Failure
from penstock.core.hub.losses import Loss
from penstock.core.json.getters import integer_of, object_of, text_of
from penstock.core.wire.event_stream import write_message

_JSON = "application/json"
_FILLER = ascii_lowercase


class BedrockConverseWriter(AnswerWriter):
    """Writes the events of one answer."""

    _started = False
    _empty = -1  # the hub's number of the last text that is written even if it is empty

    def __init__(self, facts: AnswerFacts) -> None:
        super().__init__(facts)
        self._summary = SummaryParts()
        self._indexes: dict[int | None, int] = {}  # of the blocks that are written, by their numbers in the hub
        self._free_inputs: set[int | None] = set()  # blocks of calls whose input is free text: one JSON string
        self._extras: Json = {}  # of the metadata

    def heartbeat(self) -> bytes:
        """None: the API has none."""
        return b""

    def fail(self, failure: Failure) -> bytes:
        """The error as the last message."""
        return _exception(stream_exception_name(failure.status), failure.message)

    def write(self, event: Event) -> None:
        """Write an event."""
        match event:
            case TextDelta(_, text, block) | RefusalDelta(_, text, block):
                self._delta(block, {"text": text})
            case ReasoningDelta(_, text, _, part, block):
                self._delta(block, {"reasoningContent": {"text": self._summary.join(part, text)}})
            case ToolCallDelta(_, _, arguments, block):
                self._put_arguments(block, arguments)
            case BlockStart():
                self._start_block(event)
            case BlockEnd(_, block):
                self._end_block(block)
            case ToolCallStart(server=server) if self._own or not server:
                self._start_call(event.block, event)
            case Seal(_, block, scheme, value, redacted):
                seal = ReasoningSeal(scheme, value, redacted)
                self._delta(block, {"reasoningContent": seal_body(seal, self._facts.issuer)})
            case Annotation():
                self._put_citation(event)
            case MediaDelta(_, block, mime, data):
                self._put_media(block, mime, data)
            case ChoiceStart():
                self._start()
            case Extra("chunk", fields):
                self._extras |= fields
            case _:
                self.write_rest(event)

    # The message.

    def _start(self) -> None:
        if not self._started:
            self._started = True
            self._emit("messageStart", {"role": "assistant"})

    def complete(self, finish: Finish) -> None:
        """Write the reason, and the usage."""
        self._start()
        self._emit("messageStop", stop(finish, self.losses, own=self._own))
        self._emit("metadata", metadata(self._usage, self._extras, own=self._own))

    def write_error(self, message: str, code: str, provider: Json) -> None:  # noqa: ARG002
        """An exception; a reason that is an error, as the provider sent it."""
        reason, type = text_of(provider.get("stopReason")), text_of(provider.get("__type"))
        if reason in FAILURES:
            self._emit("messageStop", {"stopReason": reason})
        else:
            type = type if self._own and type else stream_exception_name(integer_of(provider.get("code")))
            self.out.append(_exception(type, message))

    # Blocks.

    def _start_block(self, start: BlockStart) -> None:
        self._summary.start()
        if self._own and start.data is not None:
            self._put_whole(start.block, start.data)
        elif start.kind in ("result", "opaque"):
            note_hidden(start, self.losses)
        elif self._own and start.kind == "text":
            self._empty = start.block

    def _put_whole(self, block: int, data: Json) -> None:
        """Write a block that the hub has whole. The content of a result is a delta."""
        self._start()
        result = object_of(data.get("toolResult"))
        head = {name: value for name, value in result.items() if name != "content"}
        start = {"toolResult": head} if result else data
        self._emit("contentBlockStart", {"start": start, "contentBlockIndex": self._index(block)})
        if "content" in result:
            self._delta(block, {"toolResult": result["content"]})

    def _index(self, block: int | None) -> int:
        """The number of a block that is written."""
        return self._indexes.setdefault(block, len(self._indexes))

    def _delta(self, block: int | None, delta: Json) -> None:
        self._start()
        self._emit("contentBlockDelta", {"delta": delta, "contentBlockIndex": self._index(block)})

    def _end_block(self, block: int) -> None:
        if block not in self._indexes and block == self._empty:
            self._delta(block, {"text": ""})
        if block not in self._indexes:
            return
        if block in self._free_inputs:
            self._delta(block, {"toolUse": {"input": '"}'}})
        self._emit("contentBlockStop", {"contentBlockIndex": self._indexes[block]})

    def _start_call(self, block: int | None, call: ToolCallStart) -> None:
        self._start()
        use: Json = {"toolUseId": call.id or call_id(self._facts, call.call), "name": call_name(call)}
        if call.server:
            use["type"] = "server_tool_use"
        self._emit("contentBlockStart", {"start": {"toolUse": use}, "contentBlockIndex": self._index(block)})
        if call.kind == "custom":
            self._free_inputs.add(block)
            self._delta(block, {"toolUse": {"input": '{"input":"'}})

    def _put_arguments(self, block: int | None, arguments: str) -> None:
        if block not in self._indexes:
            return  # of a call that is not shown
        if block in self._free_inputs:
            arguments = msgspec.json.encode(arguments).decode()[1:-1]
        self._delta(block, {"toolUse": {"input": arguments}})

    def _put_citation(self, citation: Annotation) -> None:
        body = citation_body(citation, own=self._own)
        if body is None:
            note_hidden(citation, self.losses)
        else:
            self._delta(citation.block, {"citation": body})

    def _put_media(self, block: int, mime: str, data: str) -> None:
        format = image_format(mime)
        if not format:
            self.losses.append(Loss("media-dropped", mime))
            return
        if block not in self._indexes:
            self._start()
            start = {"start": {"image": {"format": format}}, "contentBlockIndex": self._index(block)}
            self._emit("contentBlockStart", start)
        self._delta(block, {"image": {"source": {"bytes": data}}})

    def _emit(self, name: str, fields: Json) -> None:
        self.out.append(_event(name, msgspec.json.encode(fields | {"p": _FILLER})))


def write_report(data: bytes, report: bytes) -> bytes:
    """The last bytes of a stream, with the report as one more event: SDKs ignore events that they do not know."""
    return data + _event("penstockReport", report)


def _event(name: str, payload: bytes) -> bytes:
    return write_message({":event-type": name, ":content-type": _JSON, ":message-type": "event"}, payload)


def _exception(type: str, message: str) -> bytes:
    headers = {":exception-type": type, ":content-type": _JSON, ":message-type": "exception"}
    return write_message(headers, msgspec.json.encode({"message": message}))
