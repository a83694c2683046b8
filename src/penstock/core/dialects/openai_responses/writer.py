"""The OpenAI Responses dialect, written: hub events → the bytes of a stream that OpenAI's SDKs and Codex accept.

1. Every event has its type in an `event:` line and in the JSON, and the next `sequence_number`.
2. The whole grammar is written, whatever the provider sent: `response.created` and `response.in_progress`, every item
   and part from its `added` to its `done`, and a last response with the whole output and complete usage. SDKs rely on
   each of these; Codex reads `output_item.done` only.
3. One item after the other, with one id each. An item stays open until the next one starts or the answer finishes:
   only then is its status known.
4. No event type and no item type is written that OpenAI does not have. Items and events of unknown types are written
   again only where the provider speaks this dialect too.
5. Nothing is written before the first content, because the gateway may still try another provider. The events before
   it are buffered, and numbered when they are written: heartbeats have numbers too, and may come first.
6. A heartbeat is another `response.in_progress`: Codex counts events only, not comments. The first one sends
   `response.created`. Heartbeats of earlier attempts at the same call count (`AnswerFacts.heartbeats`).
7. A seal is wrapped with its issuer (`core/hub/seals.py`), so that it goes back only to the account that made it.
8. Reasoning of another API is written as a summary, though it may be the reasoning itself: the AI SDK, pydantic-ai and
   Codex show summaries only, and the first two send nothing else back.
9. A stream that is not completed ends with an `error` event, which SDKs raise as an exception, and `response.failed`,
   which Codex reads.
10. `[DONE]` is last where the call asks for it, also behind a failure: it says only that no event follows. How the
   answer ended is in the event before it.
"""

from collections.abc import Mapping
from types import MappingProxyType

import msgspec
from msgspec import Raw

from penstock.core.dialects.answer_parts import adds_to_call
from penstock.core.dialects.answer_writer import TEXT, AnswerFacts, AnswerWriter, TextWriter, text_template
from penstock.core.dialects.openai_responses.failures import FailureWords, error_words, failure_words
from penstock.core.dialects.openai_responses.open_items import PART_FORMS, OpenItem, OpenPart
from penstock.core.dialects.openai_responses.output import (
    IMAGE_CALL,
    NO_ARGUMENTS,
    ResponseEnvelope,
    call_body,
    call_id,
    citation_body,
    final_status,
    item_id,
    item_status,
    logprobs_body,
    opaque_body,
    seal_text,
    summary_body,
    usage_body,
)
from penstock.core.dialects.openai_responses.vocabulary import END_MARKER, Json
from penstock.core.hub.content import ReasoningSeal
from penstock.core.hub.events import (
    Annotation,
    BlockEnd,
    BlockStart,
    End,
    Event,
    Extra,
    Finish,
    MediaDelta,
    ReasoningDelta,
    RefusalDelta,
    Seal,
    Start,
    TextDelta,
    ToolCallDelta,
    ToolCallStart,
)
from penstock.core.hub.failure import Failure
from penstock.core.hub.losses import Loss
from penstock.core.hub.text import without_line_ends
from penstock.core.json.getters import integer_of, object_of, text_of

_CONTENT = (TextDelta, ReasoningDelta, RefusalDelta, ToolCallStart, MediaDelta, End)
# Events before the first content are released at this size, so that they do not fill the memory.
_MAX_BUFFER = 65_536
# Characters of a text that is encoded once for all of its events.
_LONG = 65_536
# The number of the part of a summary that is the whole reasoning.
_WHOLE = -1
_NO_SEAM: Mapping[str, object] = MappingProxyType({})
# The members of calls that hold what the model wrote, and the names of their events.
_CALLS = {
    "function_call": ("arguments", "response.function_call_arguments"),
    "custom_tool_call": ("input", "response.custom_tool_call_input"),
}


class OpenAIResponsesWriter(AnswerWriter):
    """Writes the events of one answer."""

    tells_seams = True
    pending: tuple[ToolCallStart, Json] | None  # a call whose extras may follow
    _seam: Mapping[str, object] = _NO_SEAM  # for the next delta of text
    _released = False  # whether the first content is written
    _buffer_size = 0
    _current: OpenItem | None = None  # the item that was started last, if it is a message or reasoning

    def __init__(self, facts: AnswerFacts) -> None:
        super().__init__(facts)
        self._envelope = ResponseEnvelope(facts)
        self._created = facts.heartbeats > 0
        self._number = facts.heartbeats + 1 if self._created else 0
        self._output: list[OpenItem] = []
        self._ended: list[OpenItem] = []  # those that are not done, because their status is not known yet
        self._at: dict[int | None, OpenItem] = {}  # by the number of the block in the hub
        self._media: dict[int, BlockStart] = {}  # blocks whose type of media is not known yet
        self._ids: set[str] = set()
        self._logprobs: list[Json] = []  # of the next text
        self._buffer: list[tuple[str, bytes]] = []

    def go_on(self, seam: Mapping[str, object]) -> None:
        """The next delta of text has the seam."""
        super().go_on(seam)
        self._seam = {"penstock": {"continued": seam}}

    def note(self, event: Event) -> None:
        """Take note of an event that the client gets as the provider sent it."""
        if isinstance(event, TextDelta | ReasoningDelta):
            self.follow_text(event.text)

    def continues_with(self, delta: Mapping[str, object]) -> bool:
        """Whether a delta with these members and a text would continue the open text, with the next number."""
        expected = self._next_delta()
        return expected is not None and _sorted_json(delta) == _sorted_json(expected)

    def _next_delta(self) -> Json | None:
        """The delta that would continue the open text, without the text; None if no text is open."""
        item = self._current
        part = item.part if item is not None else None
        if item is None or part is None or not self._released or self._failed:
            return None
        logprobs: Json = {"logprobs": []} if "logprobs" in part.body else {}
        head: Json = {"type": f"{part.form.text_events}.delta", "sequence_number": self._number}
        return head | part.place | logprobs

    def follow_text(self, text: str) -> None:
        """Continue after a delta that was forwarded: it is part of the text, and has a number."""
        assert self._current is not None
        assert self._current.part is not None
        self._current.part.pieces.append(text)
        self._number += 1

    def text_writer(self, delta: TextDelta | ReasoningDelta) -> TextWriter | None:
        """Writes further texts of the open part of an item."""
        item = self._at.get(delta.block)
        part = item.part if item is not None else None
        if part is None:
            return None
        fields: Json = {**part.place, "delta": TEXT} | ({"logprobs": []} if isinstance(delta, TextDelta) else {})
        head = _head(f"{part.form.text_events}.delta")
        body = text_template(_body(msgspec.json.encode(fields)), part.pieces.append)

        def write(text: str) -> bytes:
            self._number += 1
            return b"%b%d%b" % (head, self._number - 1, body(text))

        return write

    def heartbeat(self) -> bytes:
        """Another `response.in_progress`. The first one creates the response, because nothing may precede that."""
        self._create()
        self._send("response.in_progress", self._in_progress())
        return self.take()

    def fail(self, failure: Failure) -> bytes:
        """The error and the failed response as the last events."""
        if not self._failed:
            self._write_failure(failure_words(failure, self._facts.call_id))
        return self.take()

    def write(self, event: Event) -> None:
        """Write an event."""
        if self.pending is not None and not adds_to_call(event):
            self.flush()
        if not self._released and isinstance(event, _CONTENT):
            self._release()
        match event:
            case TextDelta(_, text, block):
                self._write_text(self._at[block], text)
            case ReasoningDelta(_, text, _, part, block):
                self._write_reasoning(self._at[block], text, part)
            case ToolCallDelta(_, _, arguments, block):
                self._write_arguments(block, arguments)
            case BlockStart():
                self._start_block(event)
            case BlockEnd(_, block, data):
                self._end_block(block, data)
            case ToolCallStart():
                self.pending = (event, {})
            case Extra("event", fields):
                self._write_unknown(fields)
            case Extra():
                self._take_extra(event)
            case Seal():
                self._write_seal(event)
            case Annotation():
                self._write_citation(event)
            case RefusalDelta(_, text, block):
                self._write_piece(self._at[block], text)
            case MediaDelta(_, block, mime, data):
                self._write_media(block, mime, data)
            case Start(id, model, created, tier):
                self._envelope.start(id, model, created, tier, announced=self._created)
            case Finish():
                self._finish = event
                self._finish_items()
            case _:
                self.write_rest(event)

    # The response.

    def _create(self) -> None:
        if not self._created:
            self._created = True
            self._send("response.created", self._in_progress())

    def _in_progress(self) -> bytes:
        return msgspec.json.encode({"response": self._envelope.body("in_progress", output=[], usage=None)})

    def _release(self) -> None:
        """Write everything in the buffer: the first content follows."""
        self._released = True
        if not self._created:
            self._created = True
            data = self._in_progress()
            self._send("response.created", data)
            self._send("response.in_progress", data)
        for type, data in self._buffer:
            self._send(type, data)
        self._buffer.clear()

    def complete(self, finish: Finish) -> None:  # noqa: ARG002
        """Write the ends of the items, and the response."""
        self._finish_items()
        if self._logprobs:
            self.losses.append(Loss("field-dropped", "logprobs"))  # of no text
        how = final_status(self._finish, self.losses, own=self._own)
        status = str(how.pop("status"))
        usage = usage_body(self._usage, own=self._own)
        response = self._envelope.body(status, output=self._whole_output(), usage=usage, **how)
        self._emit(f"response.{status}", {"response": response})
        self._mark_end()

    def write_error(self, message: str, code: str, provider: Json) -> None:
        """Write a provider's error, or the end of a stream that is not complete."""
        self._write_failure(error_words(message, code, provider))

    def _write_failure(self, words: FailureWords) -> None:
        """The `error` event, and the response as far as it came. Nothing follows."""
        self._failed = True
        self._release()
        self._emit("error", {"error": words.error})
        usage = usage_body(self._usage, own=self._own) if self._usage is not None else None
        response = self._envelope.body("failed", error=words.response_error, output=self._whole_output(), usage=usage)
        self._emit("response.failed", {"response": response})
        self._mark_end()

    def _whole_output(self) -> list[Json]:
        return [item.body for item in self._output]

    # Items.

    def _add(self, block: int | None, body: Json, name: str | None = None) -> OpenItem:
        """Start an item. Those that have ended are done now, as their status is known."""
        self._finish_items()
        id = name if self._own and name and name not in self._ids else ""
        type = str(body["type"])
        body = {"id": id or item_id(self._facts, type, len(self._output)), **body}
        self._ids.add(str(body["id"]))
        item = OpenItem(len(self._output), body, name)
        self._output.append(item)
        if block is not None:
            self._at[block] = item
        self._emit("response.output_item.added", {"output_index": item.index, "item": body})
        return item

    def _end(self, item: OpenItem) -> None:
        if not item.ended:
            item.ended = True
            self._ended.append(item)

    def _finish_items(self) -> None:
        """Write the ends of the items that have ended."""
        for item in self._ended:
            item.done = True
            if item.body.get("status") == "in_progress":
                item.body["status"] = item_status(self._finish)
            self._emit("response.output_item.done", {"output_index": item.index, "item": item.body})
        self._ended.clear()

    def _start_block(self, block: BlockStart) -> None:
        fields = dict(block.data or {}) if self._own else {}
        match block.kind:
            case "text":
                self._start_message(block, fields)
                part: Json = {"type": "output_text", "annotations": [], "logprobs": [], "text": ""}
                self._start_part(self._current, part)
            case "refusal":
                self._start_message(block, fields)
                self._start_part(self._current, {"type": "refusal", "refusal": ""})
            case "reasoning":
                body = {"type": "reasoning", **fields, "summary": []}
                self._current = self._add(block.block, body, block.id)
            case "media":
                self._media[block.block] = block
            case "result" | "opaque" if self._own:
                self._write_whole(block.block, opaque_body(block.type, fields, self._facts), block.id)
            case "opaque" if block.type == "compaction" and (item := summary_body(block.data or {}, self._facts)):
                self._write_whole(block.block, item, None)
            case "result" | "opaque":
                self.losses.append(Loss("server-activity-hidden", block.type))

    def _end_block(self, block: int, data: Json | None) -> None:
        item = self._at.get(block)
        if block in self._media:
            self._end_media(self._media.pop(block), item)
        if item is None or item.done:
            return
        if data and self._own:
            item.body |= data
        if item.type in _CALLS:
            self._end_call(item)
        else:
            self._end_part(item)
        self._end(item)

    def _write_whole(self, block: int, body: Json, name: str | None) -> None:
        """An item that only this dialect knows. Its start may have been an event that was written already.

        Its values are encoded once: up to three events have them.
        """
        body = {name: _encoded(value) for name, value in body.items()}
        item = self._at.get(block)
        if item is None:
            item = self._add(block, body | ({"status": "in_progress"} if "status" in body else {}), name)
        item.body = body | {"id": item.body["id"]}
        self._end(item)
        self._finish_items()

    def _write_unknown(self, fields: Json) -> None:
        """An event that only this dialect knows; it names its item by the number that the hub gave to the block."""
        if not self._own:
            return
        type, block = text_of(fields.get("type")), integer_of(fields.get("output_index"))
        fields = {name: value for name, value in fields.items() if name not in ("type", "sequence_number")}
        whole = fields.get("item")
        if type == "response.output_item.added" and isinstance(whole, dict) and block is not None:
            self._add(block, opaque_body(text_of(whole.get("type")), whole, self._facts), text_of(whole.get("id")))
        elif block is None:
            self._emit(type, fields)
        elif block in self._at:
            item = self._at[block]
            self._emit(type, fields | (item.address if "item_id" in fields else {"output_index": item.index}))

    # Messages and reasoning.

    def _start_message(self, block: BlockStart, fields: Json) -> None:
        """Continue the message that came last if the block is another part of it; else start one."""
        item = self._current
        if item is None or item.type != "message" or item.done or item.name != block.id or self._ended != [item]:
            body: Json = {"type": "message", "status": "in_progress", "content": [], **fields, "role": "assistant"}
            self._current = self._add(block.block, body, block.id)
        else:
            item.ended = False
            self._ended.clear()
            self._at[block.block] = item

    def _start_part(self, item: OpenItem | None, body: Json, summary: int | None = None) -> OpenPart:
        assert item is not None
        self._end_part(item)
        form = PART_FORMS[str(body["type"])]
        parts = item.body.setdefault(form.list, [])
        assert isinstance(parts, list)
        item.part = OpenPart(form, body, item.address | {form.number: len(parts)}, summary)
        self._emit(f"{form.events}.added", item.part.place | {"part": body})
        return item.part

    def _end_part(self, item: OpenItem) -> None:
        part, item.part = item.part, None
        if part is None:
            return
        form, text, place = part.form, "".join(part.pieces), part.place
        part.body[form.text] = encoded = _encoded_once(text)
        for citation in part.citations:
            self._annotate(part, citation, len(text))
        logprobs = {"logprobs": part.body["logprobs"]} if "logprobs" in part.body else {}
        self._emit(f"{form.text_events}.done", place | {form.text: encoded} | logprobs)
        self._emit(f"{form.events}.done", place | {"part": part.body})
        parts = item.body[form.list]
        assert isinstance(parts, list)
        parts.append(part.body)

    def _write_text(self, item: OpenItem, text: str) -> None:
        part = item.part
        if part is None:
            return
        part.pieces.append(text)
        logprobs, self._logprobs = self._logprobs, []
        known = part.body["logprobs"]
        assert isinstance(known, list)
        known += logprobs
        self._emit("response.output_text.delta", {**part.place, "delta": text, "logprobs": logprobs, **self._seam})
        self._seam = _NO_SEAM

    def _write_piece(self, item: OpenItem, text: str) -> None:
        """A piece of the open part, of any kind but text."""
        part = item.part
        if part is not None:
            part.pieces.append(text)
            self._emit(f"{part.form.text_events}.delta", part.place | {"delta": text})

    def _write_reasoning(self, item: OpenItem, text: str, summary: int | None) -> None:
        """A piece of a summary, or of the reasoning itself (rule 8)."""
        if summary is None and not self._own:
            summary = _WHOLE
        if item.part is None or item.part.summary != summary:
            type = "reasoning_text" if summary is None else "summary_text"
            self._start_part(item, {"type": type, "text": ""}, summary)
        self._write_piece(item, text)

    def _write_seal(self, seal: Seal) -> None:
        item = self._at.get(seal.block)
        if item is not None and item.type == "reasoning":
            value = seal_text(ReasoningSeal(seal.scheme, seal.value, seal.redacted), self._facts)
            item.body.setdefault("encrypted_content", value)
        else:
            self.losses.append(Loss("seal-dropped", seal.scheme))

    def _write_citation(self, citation: Annotation) -> None:
        item = self._at.get(citation.block)
        part = item.part if item is not None else None
        if item is None or part is None or "annotations" not in part.body:
            self.losses.append(Loss("citation-dropped", citation.title))
        elif citation.end is None and not self._own:
            part.citations.append(citation)
        else:
            self._annotate(part, citation, 0)

    def _annotate(self, part: OpenPart, citation: Annotation, length: int) -> None:
        body = citation_body(citation, length, own=self._own)
        if body is None:
            self.losses.append(Loss("citation-dropped", citation.title))
            return
        annotations = part.body["annotations"]
        assert isinstance(annotations, list)
        place = part.place | {"annotation_index": len(annotations)}
        annotations.append(body)
        self._emit("response.output_text.annotation.added", place | {"annotation": body})

    # Images.

    def _write_media(self, block: int, mime: str, data: str) -> None:
        start = self._media.get(block)
        item = self._at.get(block)
        if item is None:
            if not mime.startswith("image/"):
                return  # a loss, at the end of its block
            fields = dict(start.data or {}) if start is not None and self._own else {}
            form = {} if self._own else {"output_format": mime.removeprefix("image/")}
            body = {"type": IMAGE_CALL, **form, **fields, "status": "in_progress", "result": None}
            item = self._add(block, body, start.id if start is not None else None)
        item.pieces.append(data)

    def _end_media(self, start: BlockStart, item: OpenItem | None) -> None:
        if item is None:
            self.losses.append(Loss("media-dropped", start.type))
            return
        fields = dict(start.data or {}) if self._own else {}
        item.body |= {"status": "completed", **fields, "result": "".join(item.pieces)}

    # Tool calls.

    def _take_extra(self, extra: Extra) -> None:
        if extra.place == "tool" and self.pending is not None:
            self.pending[1].update(extra.fields)
        elif extra.place == "chunk":
            self._envelope.add(extra.fields)
        elif extra.place == "delta" and self._own and self._current is not None and self._current.part is not None:
            self._current.part.body |= extra.fields
        elif extra.place == "choice":
            self._logprobs += logprobs_body(object_of(extra.fields.get("logprobs")).get("content"))

    def flush(self) -> None:
        """Start a call: its extras have come."""
        if self.pending is None:
            return
        (call, extras), self.pending = self.pending, None
        if call.server:
            self.losses.append(Loss("server-activity-hidden", call.name))
            return
        fields = dict(extras) if self._own else {}
        name = text_of(fields.pop("id", None))
        id = call.id or call_id(self._facts, call.call)
        body = call_body(call.kind, call.namespace, call.name, id, fields) | {"status": "in_progress"}
        self._add(call.block, body, name or None)

    def _write_arguments(self, block: int | None, arguments: str) -> None:
        item = self._at.get(block)
        if item is None or not arguments:
            return  # a call that is not shown
        item.pieces.append(arguments)
        encoded = _encoded_once(arguments)
        item.encoded = encoded if len(item.pieces) == 1 else None
        self._emit(f"{_CALLS[item.type][1]}.delta", item.address | {"delta": encoded})

    def _end_call(self, item: OpenItem) -> None:
        member, events = _CALLS[item.type]
        if not item.pieces and item.type == "function_call":
            item.pieces.append(NO_ARGUMENTS)
            self._emit(f"{events}.delta", item.address | {"delta": NO_ARGUMENTS})
        item.body[member] = item.encoded or _encoded_once("".join(item.pieces))
        name = {"name": item.body["name"]} if item.type == "function_call" else {}
        self._emit(f"{events}.done", item.address | name | {member: item.body[member]})

    # Bytes.

    def _emit(self, type: str, fields: Json) -> None:
        data = msgspec.json.encode(fields)
        if self._released:
            self._send(type, data)
            return
        self._buffer.append((type, data))
        self._buffer_size += len(data)
        if self._buffer_size > _MAX_BUFFER:
            self._release()

    def _mark_end(self) -> None:
        if self._facts.end_marker:
            self.out.append(END_MARKER)

    def _send(self, type: str, data: bytes) -> None:
        """Send an event: its type, its number, and the members of this object."""
        self.out.append(b"%b%d%b" % (_head(type), self._number, _body(data)))
        self._number += 1


def _head(type: str) -> bytes:
    """An event up to its number."""
    name = type.encode()
    return b'event: %b\ndata: {"type":"%b","sequence_number":' % (name, name)


def _body(data: bytes) -> bytes:
    """An event behind its number: the other members, which are those of this object."""
    return (b"}" if data == b"{}" else b"," + without_line_ends(data)[1:]) + b"\n\n"


def _encoded_once(text: str) -> str | Raw:
    """A long text, encoded: several events have it, and each would take milliseconds to encode it."""
    return Raw(msgspec.json.encode(text)) if len(text) > _LONG else text


def _encoded(value: object) -> object:
    return Raw(msgspec.json.encode(value)) if isinstance(value, dict | list) else value


def _sorted_json(value: Mapping[str, object]) -> bytes:
    """JSON that can be compared: sorted, and with numbers that differ from booleans."""
    return msgspec.json.encode(value, order="sorted")
