"""Writes the Anthropic Messages dialect: hub events → the bytes of a stream that Anthropic's SDKs accept.

1. Every event has its name in an `event:` line and in the JSON: the SDKs read the first, others the second.
2. `message_start` precedes everything except pings. Its usage is that of the provider's own `message_start`. If the
   provider speaks another dialect, it reports usage last, and clients show it at once: then it is an estimate of the
   input. `message_delta` has the reported usage.
3. Blocks are numbered 0, 1, … as they are written. Those that are not written (media, another API's server tools) take
   no number, and are losses.
4. No event type and no block type is written that Anthropic does not have: some SDKs refuse a stream with an unknown
   one. Events and blocks of unknown types are written again only where the provider speaks this dialect too.
5. A seal of another issuer is wrapped (`core/hub/seals.py`), so that it comes back with the next request. If the client
   does not expect reasoning (`AnswerFacts.reasoning`), a block of it is written only if it has no text, but a seal.
6. If another target goes on with an answer, clients that know Anthropic's `fallback` block get one, with a trigger of
   ours. For others the next delta of the open block has a member `penstock`: several SDKs refuse unknown blocks.
7. A stream that is not completed ends with one `error` event, and neither `message_delta` nor `message_stop`.
"""

from collections.abc import Mapping

import msgspec

from penstock.core.dialects.answer_parts import SummaryParts, adds_to_call, call_name
from penstock.core.dialects.answer_writer import TEXT, AnswerFacts, AnswerWriter, TextWriter, text_template
from penstock.core.dialects.anthropic_messages.content_blocks import SEAL_SCHEME
from penstock.core.dialects.anthropic_messages.failures import envelope, write_error_event
from penstock.core.dialects.anthropic_messages.usage import write_usage
from penstock.core.dialects.anthropic_messages.vocabulary import FINISH_REASONS
from penstock.core.hub.content import Citation, ReasoningSeal
from penstock.core.hub.events import (
    Annotation,
    BlockEnd,
    BlockStart,
    ChoiceStart,
    Event,
    Extra,
    Finish,
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
from penstock.core.hub.seals import wrap
from penstock.core.hub.text import without_line_ends
from penstock.core.hub.usage import clean_counts
from penstock.core.json.getters import integer_of, text_of

PING = b'event: ping\ndata: {"type":"ping"}\n\n'
_STOP_REASONS = {
    "stop": "end_turn",
    "length": "max_tokens",
    "tool_calls": "tool_use",
    "function_call": "tool_use",
    "content_filter": "refusal",
    "pause": "pause_turn",
}
_ERROR_TYPES = frozenset(("overloaded_error", "rate_limit_error", "timeout_error", "api_error", "billing_error"))


# Blocks that are one event in the hub, and for clients a start without content and one delta.
_STREAMED_BLOCKS = {"compaction": "compaction_delta"}


class AnthropicMessagesWriter(AnswerWriter):
    """Writes the events of one answer."""

    tells_seams = True
    pending: tuple[ToolCallStart, dict[str, object]] | None  # a call whose extras may follow
    _started = False
    _refused = False
    _unwritten: BlockStart | None = None  # a block of reasoning that the client may not expect, while it is empty
    _hidden = False  # whether something of the last block of reasoning was not written
    _start_usage: object = None  # the usage in the provider's own `message_start`
    _tier: str | None = None

    def __init__(self, facts: AnswerFacts) -> None:
        super().__init__(facts)
        self._message: dict[str, object] = {"id": answer_id(facts), "type": "message", "role": "assistant"}
        self._message["model"] = facts.model
        self._extras: dict[str, object] = {}  # of the event that is written next: of the message, then of its delta
        self._delta_extras: dict[str, object] = {}
        self._next_delta: dict[str, object] = {}  # extras of the delta of a block that is written next
        self._summary = SummaryParts()
        self._indexes: dict[int | None, int] = {}  # of the blocks that are written, by their numbers in the hub
        self._free_inputs: set[int] = set()  # blocks of calls whose input is free text: written as one JSON string
        self._redacted: dict[int, dict[str, object]] = {}  # blocks that wait for the data of their start
        self._shown = "all" if facts.same_dialect else facts.reasoning

    def note(self, event: Event) -> None:
        """Observe an event whose bytes are forwarded unchanged: what is written later must match it."""
        match event:
            case Start(id, model):
                self._message |= {"id": id, "model": model}
            case ChoiceStart():
                self._started = True
            case BlockStart(_, block):
                self._indexes[block] = len(self._indexes)
            case _:
                pass

    def go_on(self, seam: Mapping[str, object]) -> None:
        """Tell the client of the seam (rule 6)."""
        super().go_on(seam)
        if not self._facts.fallback_blocks:
            self._next_delta = {"penstock": {"continued": seam}}
            return
        models = {name: {"model": text_of(seam.get(name)).partition("/")[2]} for name in ("from", "to")}
        index = len(self._indexes)
        content = {"type": "fallback", **models, "trigger": {"type": text_of(seam.get("because"))}}
        self._indexes[-1 - index] = index
        self._emit("content_block_start", {"index": index, "content_block": content})
        self._emit("content_block_stop", {"index": index})

    def heartbeat(self) -> bytes:
        """The API's own heartbeat."""
        return PING

    def fail(self, failure: Failure) -> bytes:
        """The error as the last event."""
        return write_error_event(failure, self._facts.call_id)

    def write(self, event: Event) -> None:
        """Write an event."""
        if self.pending is not None and not adds_to_call(event):
            self.flush()
        match event:
            case TextDelta(_, text, block):
                self._delta(block, {"type": "text_delta", "text": text})
            case ReasoningDelta() if self._shown != "all":
                self._hide()
            case ReasoningDelta(_, text, _, part, block):
                self._delta(block, {"type": "thinking_delta", "thinking": self._summary.join(part, text)})
            case ToolCallDelta(_, _, arguments, block):
                self._write_arguments(block, arguments)
            case BlockStart():
                self._start_block(event)
            case BlockEnd(_, block):
                self._end_block(block)
            case ToolCallStart():
                self.pending = (event, {})
            case ChoiceStart():
                self._start()
            case Extra("event", fields):
                self._write_unknown(fields)
            case Extra():
                self._take_extra(event)
            case Seal():
                self._write_seal(event)
            case Annotation():
                self._write_citation(event)
            case RefusalDelta(_, text, block):
                self._refused = True
                self._delta(block, {"type": "text_delta", "text": text})
            case Start(id, model):
                self._tier = event.tier
                known = {"id": id if self._facts.same_dialect else None, "model": model}
                self._message |= {name: value for name, value in known.items() if value}
            case _:
                self.write_rest(event)

    def text_writer(self, delta: TextDelta | ReasoningDelta) -> TextWriter | None:
        """Writes further texts of an open block."""
        index, is_text = self._indexes.get(delta.block), isinstance(delta, TextDelta)
        if index is None or not (is_text or self._shown == "all"):
            return None
        body = {"type": "text_delta", "text": TEXT} if is_text else {"type": "thinking_delta", "thinking": TEXT}
        return text_template(_frame("content_block_delta", {"index": index, "delta": body}))

    # The message.

    def _start(self) -> None:
        if self._started:
            return
        self._started = True
        estimated: dict[str, object] = {
            "input_tokens": self._facts.input_estimate,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": 0,
            "output_tokens": 0,
        }
        if self._tier is not None:
            estimated["service_tier"] = self._tier
        usage = self._start_usage or estimated
        if isinstance(usage, dict) and (clean := clean_counts(usage)) != usage:
            usage = estimated | clean
        message = {**self._message, "content": [], "stop_reason": None, "stop_sequence": None, "usage": usage}
        self._emit("message_start", {"message": self._extras | message})
        self._extras = {}

    def complete(self, finish: Finish) -> None:
        """Write the stop reason and the usage."""
        delta: dict[str, object] = {
            "stop_reason": stop_reason(finish, refused=self._refused),
            "stop_sequence": finish.stop_sequence,
        }
        if finish.details is not None:
            delta["stop_details"] = finish.details
        usage: dict[str, object] = {"output_tokens": 0}
        if self._usage is not None:
            usage = write_usage(self._usage, same_dialect=self._own)
        self._emit("message_delta", {**self._extras, "delta": self._delta_extras | delta, "usage": usage})
        self._emit("message_stop", {})

    def write_error(self, message: str, code: str, provider: dict[str, object]) -> None:
        """Write the error as the last event."""
        native = text_of(provider.get("type"))
        type = native if native in _ERROR_TYPES else "timeout_error" if code == "timed_out" else "api_error"
        self.out.append(b"event: error\ndata: " + envelope(type, message, self._facts.call_id) + b"\n\n")

    # Blocks.

    def _start_block(self, block: BlockStart) -> None:
        extras = block.data or {}
        match block.kind:
            case "reasoning" if self._shown != "all" and self._unwritten is not block:
                self._unwritten, self._hidden = block, False
            case "text" | "refusal":
                self._open(block.block, {"type": "text", "text": "", **(extras if self._own else {})})
            case "reasoning" if block.type == "redacted_thinking":
                self._redacted[block.block] = extras if self._own else {}  # its data comes with the seal
            case "reasoning":
                self._summary.start()
                own = extras if self._own else {}
                self._open(block.block, {"type": "thinking", "thinking": "", "signature": "", **own})
            case "result" | "opaque" if self._own:
                self._write_whole(block.block, {"type": block.type} | extras)
            case "result" | "opaque":
                self.losses.append(Loss("server-activity-hidden", block.type))
            case "media":
                self.losses.append(Loss("media-dropped", block.type))

    def _open(self, block: int, content: dict[str, object]) -> None:
        self._start()
        index = self._indexes[block] = len(self._indexes)
        self._emit("content_block_start", {"index": index, "content_block": content})

    def _write_whole(self, block: int, content: dict[str, object]) -> None:
        delta = _STREAMED_BLOCKS.get(str(content["type"]))
        if delta is None:
            self._open(block, content)
            return
        fields = {name: value for name, value in content.items() if name != "type"}
        self._open(block, {"type": content["type"], **dict.fromkeys(fields)})
        if fields:
            self._delta(block, {"type": delta, **fields})

    def _write_unknown(self, fields: dict[str, object]) -> None:
        """Write an event that only this dialect has. A delta has the hub's number of its block."""
        if not self._own:
            return
        if fields.get("type") == "message_start":
            self._start_usage = fields.get("usage")
        elif fields.get("type") == "content_block_delta":
            index = self._indexes.get(integer_of(fields.get("index")) or 0)
            if index is not None:
                self._emit("content_block_delta", fields | {"index": index})
        else:
            self._emit(text_of(fields.get("type")), fields)

    def _end_block(self, block: int) -> None:
        index = self._indexes.get(block)
        if index is None:
            self._unwritten = None  # a seal that follows the end of its block has no place
            return
        if block in self._free_inputs:
            self._delta(block, {"type": "input_json_delta", "partial_json": '"}'})
        self._emit("content_block_stop", {"index": index})

    def _delta(self, block: int | None, delta: dict[str, object]) -> None:
        """Write more of a block, if it is written at all."""
        index = self._indexes.get(block)
        if index is None:
            return
        if self._next_delta:
            delta, self._next_delta = self._next_delta | delta, {}
        self._emit("content_block_delta", {"index": index, "delta": delta})

    def _hide(self) -> None:
        """Do not write something of a block of reasoning: one loss, however many pieces it has."""
        if not self._hidden:
            self._unwritten, self._hidden = None, True
            self.losses.append(Loss("reasoning-hidden"))

    def _write_seal(self, seal: Seal) -> None:
        if self._unwritten is not None and self._unwritten.block == seal.block:
            if self._shown == "none":
                self._hide()
                return
            self._start_block(self._unwritten)
            self._unwritten = None
        value = seal.value
        if seal.scheme != SEAL_SCHEME:
            value = wrap(ReasoningSeal(seal.scheme, seal.value, seal.redacted), self._facts.issuer)
        if seal.block in self._redacted:
            self._open(seal.block, {"type": "redacted_thinking", "data": value, **self._redacted.pop(seal.block)})
        elif seal.block in self._indexes:
            self._delta(seal.block, {"type": "signature_delta", "signature": value})
        elif not self._hidden:
            self.losses.append(Loss("seal-dropped", seal.scheme))

    def _write_citation(self, citation: Annotation) -> None:
        body = citation_body(citation, own=self._own)
        if body is None or citation.block not in self._indexes:
            self.losses.append(Loss("citation-dropped", citation.title))
        else:
            self._delta(citation.block, {"type": "citations_delta", "citation": body})

    # Tool calls.

    def _take_extra(self, extra: Extra) -> None:
        if extra.place == "tool" and self.pending is not None:
            self.pending[1].update(extra.fields)
        elif extra.place == "chunk" and self._own:
            self._extras |= extra.fields
        elif extra.place == "choice" and self._own:
            self._delta_extras |= extra.fields
        elif extra.place == "delta" and self._own:
            self._next_delta |= extra.fields

    def flush(self) -> None:
        """Start a call: its extras have come."""
        if self.pending is None:
            return
        (call, extras), self.pending = self.pending, None
        if call.server and not self._own:
            self.losses.append(Loss("server-activity-hidden", call.name))
            return
        content: dict[str, object] = {
            "type": "server_tool_use" if call.server else "tool_use",
            "id": call.id or call_id(self._facts, call.call),
            "name": call_name(call),
            "input": {},
        }
        assert call.block is not None  # `Blocks` has given it one
        self._open(call.block, content | (extras if self._own else {}))
        if call.kind == "custom":
            self._free_inputs.add(call.block)
            self._delta(call.block, {"type": "input_json_delta", "partial_json": '{"input":"'})

    def _write_arguments(self, block: int | None, arguments: str) -> None:
        if block in self._free_inputs:
            arguments = msgspec.json.encode(arguments).decode()[1:-1]
        self._delta(block, {"type": "input_json_delta", "partial_json": arguments})

    def _emit(self, name: str, fields: dict[str, object]) -> None:
        self.out.append(_frame(name, fields))


def _frame(name: str, fields: dict[str, object]) -> bytes:
    data = without_line_ends(msgspec.json.encode({"type": name, **fields}))
    return b"event: %b\ndata: %b\n\n" % (name.encode(), data)


def answer_id(facts: AnswerFacts) -> str:
    """The id of a message whose provider gave none, or one of another API: clients may expect this prefix."""
    return facts.id or f"msg_{facts.call_id}"


def call_id(facts: AnswerFacts, number: int) -> str:
    """The id of a tool call whose provider gave none. It is different in each answer."""
    return f"toolu_{facts.call_id}_{number}"


def stop_reason(finish: Finish, *, refused: bool = False) -> str:
    """Anthropic's stop reason. `refused`: the answer has a refusal, which is no finish reason in other APIs."""
    if refused and finish.reason == "stop":
        return "refusal"
    known = finish.native in FINISH_REASONS or finish.reason not in _STOP_REASONS
    if finish.native and known and FINISH_REASONS.get(finish.native, finish.native) == finish.reason:
        return finish.native
    if finish.reason == "stop" and finish.stop_sequence is not None:
        return "stop_sequence"
    return _STOP_REASONS.get(finish.reason, finish.reason)


def citation_body(citation: Annotation | Citation, *, own: bool) -> dict[str, object] | None:
    """A citation in Anthropic's format; None if that has no such citation."""
    if own and citation.data is not None:
        return citation.data
    if not citation.url:
        return None
    return {
        "type": "web_search_result_location",
        "url": citation.url,
        "title": citation.title or None,
        "cited_text": citation.quote,
        "encrypted_index": "",
    }
