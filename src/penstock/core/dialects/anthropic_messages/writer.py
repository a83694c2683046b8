"""The Anthropic Messages dialect, written: hub events → the bytes of a stream that Anthropic's SDKs accept.

1. Every event has its name in an `event:` line and in the JSON: the SDKs read the first, others the second.
2. `message_start` comes before everything but pings. Its usage is an estimate of the input, because clients show it
   at once and providers of other dialects report it last. `message_delta` has the real figures.
3. One block after the other, numbered 0, 1, …; `core/blocks.py` adds the borders that chat completions do not have.
   Blocks that are not written (media, another API's server tools) take no number, and are losses.
4. No event type and no block type is written that Anthropic does not have: some SDKs refuse a stream with an unknown
   one. Blocks of unknown types are written again only where the provider speaks this dialect too (`own`).
5. A seal of another issuer is wrapped (`core/seals.py`), so that it comes back with the next request.
6. A stream that is not completed ends with one `error` event, and neither `message_delta` nor `message_stop`.
"""

from collections.abc import Iterable

import msgspec

from penstock.core.blocks import Blocks
from penstock.core.content import Citation, ReasoningSeal
from penstock.core.dialects.anthropic_messages.failures import envelope, write_error_event
from penstock.core.dialects.anthropic_messages.reader import FINISH_REASONS, SEAL_SCHEME
from penstock.core.dialects.anthropic_messages.usage import write_usage
from penstock.core.events import (
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
from penstock.core.failure import Failure
from penstock.core.losses import Loss
from penstock.core.seals import wrap
from penstock.core.text import without_line_ends
from penstock.core.usage import Usage

PING = b'event: ping\ndata: {"type":"ping"}\n\n'
_STOP_REASONS = {
    "stop": "end_turn",
    "length": "max_tokens",
    "tool_calls": "tool_use",
    "function_call": "tool_use",
    "content_filter": "refusal",
    "pause": "pause_turn",
}
# Why a stream without a fault of its own is not completed: the error's type, and its message.
_ENDINGS = {
    "truncated": ("api_error", "the provider's stream ended before the answer was complete"),
    "timed_out": ("timeout_error", "the provider took too long"),
    "cancelled": ("api_error", "the answer was cancelled"),
    "failed": ("api_error", "the provider failed"),
}
_ERROR_TYPES = frozenset(("overloaded_error", "rate_limit_error", "timeout_error", "api_error", "billing_error"))


class AnthropicMessagesWriter:
    """Writes the events of one answer."""

    _started = False
    _failed = False
    _index = -1  # of the block that was started last
    _summary_part: int | None = None
    _pending: tuple[ToolCallStart, dict[str, object]] | None = None  # a call whose extras may follow
    _finish: Finish | None = None
    _usage: Usage | None = None
    _tier: str | None = None

    def __init__(
        self, *, id: str, model: str, input_estimate: int = 0, request_id: str = "", own: bool = True, issuer: str = ""
    ) -> None:
        """`own`: whether the provider speaks this dialect too."""
        self._request_id = request_id
        self._own = own
        self._issuer = issuer
        self._message: dict[str, object] = {"id": id, "type": "message", "role": "assistant", "model": model}
        self._estimate = input_estimate
        self._extras: dict[str, object] = {}
        self._blocks = Blocks()
        self._indexes: dict[int, int] = {}  # of the blocks that are written, by their numbers in the hub
        self._calls: dict[int, int] = {}  # the index of each call's block
        self._free_inputs: set[int] = set()  # calls whose input is free text: written as one JSON string
        self._redacted: set[int] = set()  # blocks that wait for the data of their start
        self._out: list[bytes] = []
        self.losses: list[Loss] = []

    def write(self, events: Iterable[Event]) -> bytes:
        """The bytes of these events."""
        for event in self._blocks.order(events):
            if self._pending is not None and not self._takes_extra(event):
                self._start_call()
            self._write(event)
        self._start_call()
        out, self._out = self._out, []
        return b"".join(out)

    def note(self, events: Iterable[Event]) -> None:
        """Take note of events that the client gets as the provider sent them."""
        for event in events:
            if isinstance(event, ChoiceStart):
                self._started = True

    def heartbeat(self) -> bytes:
        """The API's own heartbeat."""
        return PING

    def fail(self, failure: Failure) -> bytes:
        """The error as the last event."""
        return write_error_event(failure, self._request_id)

    def _write(self, event: Event) -> None:
        match event:
            case TextDelta(_, text):
                self._delta({"type": "text_delta", "text": text})
            case ReasoningDelta(_, text, _, part):
                self._delta({"type": "thinking_delta", "thinking": self._summary(part, text)})
            case ToolCallDelta(_, call, arguments):
                self._write_arguments(call, arguments)
            case Repair():
                pass  # counted, not shown to the client
            case BlockStart():
                self._start_block(event)
            case BlockEnd(_, block):
                self._end_block(block)
            case ToolCallStart(choice=0):
                self._pending = (event, {})
            case ToolCallStart() | ChoiceStart(choice=1):
                self.losses.append(Loss("choices-dropped"))
            case ChoiceStart():
                self._start()
            case Extra():
                self._take_extra(event)
            case Seal():
                self._write_seal(event)
            case Annotation():
                self._write_citation(event)
            case RefusalDelta(_, text):
                self._delta({"type": "text_delta", "text": text})
            case MediaDelta():
                pass  # its block is a loss already
            case Start(id, model):
                self._tier = event.tier
                self._message |= {name: value for name, value in (("id", id), ("model", model)) if value}
            case Finish():
                self._finish = event
            case UsageReport(usage):
                self._usage = usage
            case Fault():
                self._write_fault(event)
            case End(ending):
                self._write_end(ending)

    # The message.

    def _start(self) -> None:
        if self._started:
            return
        self._started = True
        usage: dict[str, object] = {
            "input_tokens": self._estimate,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": 0,
            "output_tokens": 0,
        }
        if self._tier is not None:
            usage["service_tier"] = self._tier
        message = {**self._message, "content": [], "stop_reason": None, "stop_sequence": None, "usage": usage}
        self._emit("message_start", {"message": message | self._extras})
        self._extras = {}

    def _write_end(self, ending: str) -> None:
        if ending != "completed":
            if not self._failed:
                self._write_error(*_ENDINGS[ending])
            return
        finish = self._finish or Finish(0, "stop")
        delta: dict[str, object] = {"stop_reason": stop_reason(finish), "stop_sequence": finish.stop_sequence}
        if finish.details is not None:
            delta["stop_details"] = finish.details
        if "container" in self._extras:
            delta["container"] = self._extras.pop("container")
        usage = write_usage(self._usage) if self._usage is not None else {"output_tokens": 0}
        self._emit("message_delta", {"delta": delta, "usage": usage, **self._extras})
        self._emit("message_stop", {})

    def _write_fault(self, fault: Fault) -> None:
        native = (fault.provider or {}).get("type")
        self._write_error(native if native in _ERROR_TYPES else "api_error", fault.message)

    def _write_error(self, type: object, message: str) -> None:
        self._failed = True
        self._out.append(b"event: error\ndata: " + envelope(str(type), message, self._request_id) + b"\n\n")

    # Blocks.

    def _start_block(self, block: BlockStart) -> None:
        extras = block.data or {}
        match block.kind:
            case "text" | "refusal":
                self._open(block.block, {"type": "text", "text": "", **(extras if self._own else {})})
            case "reasoning" if block.type == "redacted_thinking":
                self._redacted.add(block.block)  # its data comes with the seal
            case "reasoning":
                self._summary_part = None
                self._open(block.block, {"type": "thinking", "thinking": "", "signature": ""})
            case "result" | "opaque" if self._own and block.type:
                self._open(block.block, {"type": block.type} | extras)
            case "result" | "opaque":
                self.losses.append(Loss("server-activity-hidden", block.type))
            case "media":
                self.losses.append(Loss("media-dropped", block.type))

    def _open(self, block: int, content: dict[str, object]) -> None:
        self._start()
        self._index += 1
        self._indexes[block] = self._index
        self._emit("content_block_start", {"index": self._index, "content_block": content})

    def _end_block(self, block: int) -> None:
        index = self._indexes.get(block)
        if index is None:
            return
        if index in self._free_inputs:
            self._emit_delta(index, {"type": "input_json_delta", "partial_json": '"}'})
        self._emit("content_block_stop", {"index": index})

    def _delta(self, delta: dict[str, object]) -> None:
        self._emit_delta(self._index, delta)

    def _emit_delta(self, index: int, delta: dict[str, object]) -> None:
        self._emit("content_block_delta", {"index": index, "delta": delta})

    def _summary(self, part: int | None, text: str) -> str:
        """A piece of a summary, with a blank line before it where it starts another part."""
        before, self._summary_part = self._summary_part, part
        return text if part is None or before in (None, part) else f"\n\n{text}"

    def _write_seal(self, seal: Seal) -> None:
        value = seal.value
        if seal.scheme != SEAL_SCHEME:
            value = wrap(ReasoningSeal(seal.scheme, seal.value, seal.redacted), self._issuer)
        if seal.block in self._redacted:
            self._redacted.discard(seal.block)
            self._open(seal.block, {"type": "redacted_thinking", "data": value})
        elif seal.block in self._indexes:
            self._emit_delta(self._indexes[seal.block], {"type": "signature_delta", "signature": value})

    def _write_citation(self, citation: Annotation) -> None:
        body = citation_body(citation, own=self._own)
        if body is None:
            self.losses.append(Loss("citation-dropped", citation.title))
        else:
            self._emit_delta(
                self._indexes.get(citation.block, self._index), {"type": "citations_delta", "citation": body}
            )

    # Tool calls.

    def _takes_extra(self, event: Event) -> bool:
        return isinstance(event, Repair) or (isinstance(event, Extra) and event.place == "tool")

    def _take_extra(self, extra: Extra) -> None:
        if extra.place == "tool" and self._pending is not None:
            self._pending[1].update(extra.fields)
        elif extra.place == "chunk" and self._own:
            self._extras |= extra.fields

    def _start_call(self) -> None:
        if self._pending is None:
            return
        (call, extras), self._pending = self._pending, None
        if call.server and not self._own:
            self.losses.append(Loss("server-activity-hidden", call.name))
            return
        name = f"{call.namespace}__{call.name}" if call.namespace else call.name
        content: dict[str, object] = {
            "type": "server_tool_use" if call.server else "tool_use",
            "id": call.id or f"toolu_{call.choice}_{call.call}",
            "name": name,
            "input": {},
        }
        self._open(call.block if call.block is not None else -1, content | (extras if self._own else {}))
        self._calls[call.call] = self._index
        if call.kind == "custom":
            self._free_inputs.add(self._index)
            self._delta({"type": "input_json_delta", "partial_json": '{"input":"'})

    def _write_arguments(self, call: int, arguments: str) -> None:
        index = self._calls.get(call)
        if index is None:
            return  # a call that is not shown
        if index in self._free_inputs:
            arguments = msgspec.json.encode(arguments).decode()[1:-1]
        self._emit_delta(index, {"type": "input_json_delta", "partial_json": arguments})

    def _emit(self, name: str, fields: dict[str, object]) -> None:
        data = without_line_ends(msgspec.json.encode({"type": name, **fields}))
        self._out.append(b"event: %b\ndata: %b\n\n" % (name.encode(), data))


def stop_reason(finish: Finish) -> str:
    """Anthropic's word for why an answer ended."""
    if finish.native is not None and FINISH_REASONS.get(finish.native) == finish.reason:
        return finish.native
    if finish.reason == "stop" and finish.stop_sequence is not None:
        return "stop_sequence"
    return _STOP_REASONS.get(finish.reason, "end_turn")


def citation_body(citation: Annotation | Citation, *, own: bool) -> dict[str, object] | None:
    """A citation in Anthropic's words; None where there is no such citation."""
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
