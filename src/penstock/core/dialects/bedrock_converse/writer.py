"""Writes the dialect of Bedrock's Converse API: hub events → the messages of `ConverseStream`, an AWS event stream.

1. Only calls and images have a `contentBlockStart`. Text and reasoning begin with their first delta. A block without
   content is written, with an empty delta, only if the provider speaks this dialect too. Blocks are numbered 0, 1, …
   as they are written.
2. `messageStop` has the reason. The usage follows it, in `metadata`, which is last.
3. Every payload has filler (`p`), as Amazon's have, whose lengths vary.
4. A seal of another API is wrapped (`core/hub/seals.py`).
5. A stream that is not completed ends with an exception.
"""

from collections.abc import Iterable
from string import ascii_lowercase

import msgspec

from penstock.core.dialects.answer_parts import ENDING_WORDS, SummaryParts, call_name, note_hidden, of_first_choice
from penstock.core.dialects.bedrock_converse.answer_parts import (
    Json,
    citation_body,
    image_format,
    metadata,
    seal_body,
    stop,
    stream_exception_name,
)
from penstock.core.dialects.bedrock_converse.reader import FAILURES
from penstock.core.dialects.dialect import AnswerFacts, AnswerWriter
from penstock.core.hub.blocks import Blocks
from penstock.core.hub.content import ReasoningSeal
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
from penstock.core.hub.failure import Failure
from penstock.core.hub.losses import Loss
from penstock.core.hub.usage import Usage
from penstock.core.json.getters import integer_of, text_of
from penstock.core.wire.event_stream import write_message

_JSON = "application/json"
_FILLER = ascii_lowercase


class BedrockConverseWriter(AnswerWriter):
    """Writes the events of one answer."""

    _started = False
    _failed = False
    _empty = -1  # the hub's number of the last text that is written even if it is empty
    _block = 0  # the hub's number of the open block of text or reasoning
    _finish: Finish | None = None
    _usage: Usage | None = None

    def __init__(self, facts: AnswerFacts) -> None:
        self.losses: list[Loss] = []
        self._own = facts.same_dialect
        self._issuer = facts.issuer
        self._blocks = Blocks(self.losses)
        self._summary = SummaryParts()
        self._indexes: dict[int, int] = {}  # of the blocks that are written, by their numbers in the hub
        self._calls: dict[int, int] = {}  # the block of each open call
        self._free_inputs: set[int] = set()  # blocks of calls whose input is free text: written as one JSON string
        self._extras: Json = {}  # of the metadata
        self._out: list[bytes] = []

    def write(self, events: Iterable[Event]) -> bytes:
        """The bytes of these events."""
        for event in self._blocks.order(of_first_choice(events, self.losses)):
            self._write(event)
        out, self._out = self._out, []
        return b"".join(out)

    def heartbeat(self) -> bytes:
        """Nothing: the API has no heartbeats."""
        return b""

    def fail(self, failure: Failure) -> bytes:
        """The error as the last message."""
        return _exception(stream_exception_name(failure.status), failure.message)

    def _write(self, event: Event) -> None:
        match event:
            case TextDelta(_, text) | RefusalDelta(_, text):
                self._delta(self._block, {"text": text})
            case ReasoningDelta(_, text, _, part):
                self._delta(self._block, {"reasoningContent": {"text": self._summary.join(part, text)}})
            case ToolCallDelta(_, call, arguments):
                self._put_arguments(call, arguments)
            case BlockStart():
                self._start_block(event)
            case BlockEnd(_, block):
                self._end_block(block)
            case ToolCallStart(server=server) if self._own or not server:
                self._start_call(event)
            case ToolCallStart():
                note_hidden(event, self.losses)
            case Seal(_, block, scheme, value, redacted):
                assert block is not None  # `Blocks` has given it one
                seal = ReasoningSeal(scheme, value, redacted)
                self._delta(block, {"reasoningContent": seal_body(seal, self._issuer)})
            case Annotation():
                self._put_citation(event)
            case MediaDelta(_, block, mime, data):
                self._put_media(block, mime, data)
            case ChoiceStart():
                self._start()
            case Extra("chunk", fields):
                self._extras |= fields
            case Finish():
                self._finish = event
            case UsageReport(usage):
                self._usage = usage
            case Fault():
                self._put_fault(event)
            case End("completed"):
                self._end()
            case End(ending):
                if not self._failed:
                    self._out.append(_exception(stream_exception_name(None), ENDING_WORDS[ending]))
            case Start() | Extra() | Repair():
                pass  # no field for the envelope; no field; counted, not shown

    # The message.

    def _start(self) -> None:
        if not self._started:
            self._started = True
            self._emit("messageStart", {"role": "assistant"})

    def _end(self) -> None:
        self._start()
        self._emit("messageStop", stop(self._finish or Finish(0, "stop"), self.losses, own=self._own))
        self._emit("metadata", metadata(self._usage, self._extras, own=self._own))

    def _put_fault(self, fault: Fault) -> None:
        self._failed = True
        provider = fault.provider or {}
        reason, type = text_of(provider.get("stopReason")), text_of(provider.get("__type"))
        if reason in FAILURES:
            self._emit("messageStop", {"stopReason": reason})
        else:
            type = type if self._own and type else stream_exception_name(integer_of(provider.get("code")))
            self._out.append(_exception(type, fault.message))

    # Blocks.

    def _start_block(self, start: BlockStart) -> None:
        self._summary.start()
        self._block = start.block
        if start.kind in ("result", "opaque"):
            note_hidden(start, self.losses)
        elif self._own and start.kind == "text":
            self._empty = start.block

    def _index(self, block: int) -> int:
        """The number of a block that is written."""
        return self._indexes.setdefault(block, len(self._indexes))

    def _delta(self, block: int, delta: Json) -> None:
        self._start()
        self._emit("contentBlockDelta", {"delta": delta, "contentBlockIndex": self._index(block)})

    def _end_block(self, block: int) -> None:
        if block not in self._indexes and block == self._empty:
            self._delta(block, {"text": ""})
        if block not in self._indexes:
            return
        if block in self._free_inputs:
            self._delta(block, {"toolUse": {"input": '"}'}})
        self._calls = {call: opened for call, opened in self._calls.items() if opened != block}
        self._emit("contentBlockStop", {"contentBlockIndex": self._indexes[block]})

    def _start_call(self, call: ToolCallStart) -> None:
        self._start()
        block = self._calls[call.call] = call.block if call.block is not None else -1 - call.call
        use: Json = {"toolUseId": call.id, "name": call_name(call)}
        if call.server:
            use["type"] = "server_tool_use"
        self._emit("contentBlockStart", {"start": {"toolUse": use}, "contentBlockIndex": self._index(block)})
        if call.kind == "custom":
            self._free_inputs.add(block)
            self._delta(block, {"toolUse": {"input": '{"input":"'}})

    def _put_arguments(self, call: int, arguments: str) -> None:
        block = self._calls.get(call)
        if block is None:
            return  # of a call that is not shown, or after its end
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
        headers = {":event-type": name, ":content-type": _JSON, ":message-type": "event"}
        self._out.append(write_message(headers, msgspec.json.encode(fields | {"p": _FILLER})))


def _exception(type: str, message: str) -> bytes:
    headers = {":exception-type": type, ":content-type": _JSON, ":message-type": "exception"}
    return write_message(headers, msgspec.json.encode({"message": message}))
