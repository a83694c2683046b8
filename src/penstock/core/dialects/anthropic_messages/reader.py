"""Reads the Anthropic Messages dialect: the JSON of an event → hub events.

    message_start                                              Start, ChoiceStart, a preliminary usage report
    ( content_block_start content_block_delta* content_block_stop )*     one content block after the other
    message_delta                                              the stop reason, cumulative usage; at times several
    message_stop                                               the end; `ping` and `error` may come anywhere

The reader emits events in the order in which it reads them; `core/grammar.py` puts them into legal order.
Rules for the whole file:

1. The `type` in the JSON is the type of an event. The event name of the transport is used only if the JSON has none.
2. The kind of a delta is its own `type`, not that of its block (LiteLLM sends thinking inside of text blocks). A delta
   that does not fit the open block ends that block and starts one of its own kind.
3. A block is identified by its index. A second start with the index of an open block ends that block. A signature
   belongs to the block with its index, even if that block has ended (OpenRouter).
4. Text or input in the start of a block counts only if the deltas do not repeat it (MiniMax).
5. Blocks of unknown types are kept whole (`BlockStart` of the kind `opaque`): the fields of their deltas are merged
   into the block, and it is reported when it ends. Events of unknown types, and deltas of unknown types in known
   blocks, are kept as extras of the place `event`; such a delta has the hub's number of its block. The preliminary
   usage of `message_start` is kept in the same way, because clients show it at once.
6. An unstreamed message gives the events of the equivalent stream.
7. A call whose arguments are incomplete when its block stops may continue in a block with the same id (vLLM). So the
   end of such a call is buffered until the next event.
"""

import re
from collections.abc import Mapping
from typing import Literal, TypeAlias

import msgspec
from msgspec import Struct

from penstock.core.dialects.anthropic_messages.usage import INPUT_COUNTS, OUTPUT_MEMBERS, merge, read_usage
from penstock.core.error_shapes import is_heartbeat, read_error
from penstock.core.events import (
    Annotation,
    BlockEnd,
    BlockStart,
    ChoiceStart,
    Extra,
    Finish,
    ReasoningDelta,
    Seal,
    Start,
    TextDelta,
    ToolCallDelta,
    ToolCallStart,
    UsageReport,
)
from penstock.core.json_getters import integer_of, shown, text_of
from penstock.core.sink import Sink
from penstock.core.text import SurrogateJoiner, whole_json
from penstock.core.wire.event_stream import CHUNK
from penstock.core.wire.scan import JsonScan

NAME = "anthropic_messages"
SEAL_SCHEME = "anthropic"
FINISH_REASONS: Mapping[str, str] = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "tool_use": "tool_calls",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "content_filter",
    "pause_turn": "pause",
    "compaction": "pause",
}
SERVER_CALLS = frozenset(("server_tool_use", "mcp_tool_use"))
"""The types of blocks that are calls which the provider executes itself."""
# Far above what a real answer has; it limits the memory of one stream.
_MAX_BLOCKS = 10_000
_MAX_OPEN = 64
_MAX_BUFFERED = 1_000_000
_Kind: TypeAlias = Literal["text", "reasoning", "call", "whole"]
_Json: TypeAlias = dict[str, object]
_DELTA_KINDS: Mapping[str, _Kind] = {
    "text_delta": "text",
    "citations_delta": "text",
    "thinking_delta": "reasoning",
    "signature_delta": "reasoning",
    "input_json_delta": "call",
}
# The types of unknown events that may be written again as the name of an event.
_EVENT_NAME = re.compile(r"[\w.-]{1,100}", re.ASCII)
_DELTA_FIELDS = frozenset(("type", "delta", "usage"))
# Events of a stream, which have their type as a name.
_NAMED = frozenset(
    (
        "message_start",
        "content_block_start",
        "content_block_delta",
        "content_block_stop",
        "message_delta",
        "message_stop",
    )
)
# Events that may follow the end of a message. All others are data after the end.
_HARMLESS = frozenset(("message_start", "message_stop", "message", "ping", "error"))
# The member of a delta that has a piece of text, by the type of the delta.
_PIECES = {"text_delta": "text", "thinking_delta": "thinking", "input_json_delta": "partial_json"}
_MESSAGE_FIELDS = frozenset(
    ("id", "type", "role", "model", "content", "stop_reason", "stop_sequence", "stop_details", "usage")
)


class _OpenBlock(Struct):
    """A content block that has started."""

    number: int
    kind: _Kind
    call: int = 0
    head: str = ""
    """The text in the start of the block, which the deltas may repeat (rule 4)."""
    repeated: int = 0
    """How many characters of `head` the deltas have repeated so far."""
    id: str = ""
    """The id of a call."""
    arguments: JsonScan | None = None
    """A scan of the arguments of a call; None before the first piece."""
    whole: _Json = {}
    """The block as it was sent, if it is reported as a whole."""
    pieces: dict[str, list[object]] = {}
    """The values in its deltas, by field."""


class AnthropicMessagesReader:
    """Reads the events of one stream, or one unstreamed message."""

    sentinel = ""
    marks_end = True
    finish_is_last = True
    limits_pieces = False
    envelope: tuple[str, ...] = ("id", "model")
    done = False
    unread = ""
    _started = False
    _finished = False
    _id = ""
    _model = ""
    _unnamed = False  # whether an event without its name was met
    _surrogates = False  # whether texts may contain halves of surrogate pairs

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._joiner = SurrogateJoiner()
        self._open: dict[int, _OpenBlock] = {}
        self._last = -1  # the index of the block that was started last
        self._numbers: dict[int, int] = {}  # of the blocks that have ended, by index
        self._next_block = 0
        self._next_call = 0
        self._buffered = 0
        self._usage: _Json = {}
        self._broken: set[str] = set()  # the ids of calls that ended with incomplete arguments
        self._unfinished: tuple[int, _OpenBlock] | None = None  # a call that has stopped and may continue (rule 7)

    def read(self, value: object, *, event: str = "", surrogates: bool = False) -> None:
        """Read the JSON of one event. `event` is the name of its SSE event."""
        if surrogates:
            self._surrogates = True
            value = self._without_halves(value)
        if not isinstance(value, dict):
            self._read_other(value, event)
            return
        kind = text_of(value.get("type")) or event
        if event != kind and kind in _NAMED and not self._unnamed and event != CHUNK:
            self._unnamed = True
            self._sink.repair("event-name-missing", event)
        if self.done and kind not in _HARMLESS:
            self._sink.repair("data-after-done", kind)
        match kind:
            case "content_block_delta":
                self._read_delta(value)
            case "content_block_start":
                self._read_block_start(value)
            case "content_block_stop":
                self._read_block_stop(value)
            case "message_start":
                self._read_start(_object(value.get("message")), whole=False)
            case "message_delta":
                self._read_message_delta(value)
            case "message_stop":
                self._read_stop()
            case "ping":
                pass  # the API's own heartbeat
            case "message":
                self._read_message(value)
            case _:
                self._read_unknown(value, kind, event)

    @property
    def model(self) -> str:
        """The model that answers; empty if the provider has not named it."""
        return self._model

    @property
    def usage(self) -> dict[str, object]:
        """The usage so far, as it was sent."""
        return self._usage

    @property
    def text_block(self) -> int | None:
        """The index of the only open block, if it is one of text or thinking and nothing of it is buffered."""
        if len(self._open) != 1 or self._unfinished is not None or self._surrogates or self._finished:
            return None
        ((index, block),) = self._open.items()
        usual = block.kind in ("text", "reasoning") and not block.head and block.number == index
        return index if usual else None

    def read_undecodable(self, data: bytes, event: str) -> None:
        """Read the data of an event that is not JSON."""
        text = data.decode(errors="replace").strip()
        if text == "[DONE]":
            self._sink.repair("done-unexpected")
        elif event == "error":
            self._sink.fault("provider-error", text[:500] or "an error event without data")
        elif not text or event == "ping" or is_heartbeat(event) or is_heartbeat(text.strip("[]")):
            self._sink.repair("empty-event" if not text and event != "ping" else "keepalive-event", event or text[:80])
        elif self.done:
            self._sink.repair("data-after-done", text[:80])
        else:
            self._sink.fault("bad-json", text[:500])

    def flush(self) -> None:
        """Emit everything that is buffered of the open blocks: the rest of them will not be read."""
        self._end_unfinished()
        for block in self._open.values():
            self._emit_head(block)

    def close(self) -> None:
        """Emit everything that is buffered: no more events will come. After a stop reason all blocks are complete."""
        if self._finished:
            self._end_all()
        self.flush()

    # Messages.

    def _read_start(self, message: _Json, *, whole: bool) -> None:
        """Read the start of a message. Unless it is `whole`, its output tokens are preliminary, and are not kept."""
        id, model = text_of(message.get("id")), text_of(message.get("model"))
        if self._started:
            if id and self._id and id != self._id:
                self._sink.fault("bad-shape", "a second message starts in the same stream")
            else:
                self._sink.repair("message-start-repeated", id)
            return
        self._started = True
        self._id, self._model = id, model
        usage = message.get("usage")
        tier = usage.get("service_tier") if isinstance(usage, dict) else None
        self._sink.events.append(Start(id, model, None, tier if isinstance(tier, str) else None))
        self._keep(Extra("chunk", _others(message, _MESSAGE_FIELDS)))
        if isinstance(usage, dict) and not whole:
            if any(usage.get(name) for name in INPUT_COUNTS):
                self._sink.events.append(Extra("event", {"type": "message_start", "usage": usage}))
            usage = {name: count for name, count in usage.items() if name not in OUTPUT_MEMBERS}
        self._sink.events.append(ChoiceStart(0, text_of(message.get("role"))))
        self._read_usage(usage)
        content = message.get("content")
        if isinstance(content, list) and content:
            self._read_content(content)
        self._finish(message)

    def _read_message(self, message: _Json) -> None:
        """Read an unstreamed message. After a stream it repeats the whole answer (MiniMax), and is ignored."""
        if self._started:
            self._sink.repair("message-appended")
            return
        self._read_start(message, whole=True)
        self.done = True

    def _read_content(self, content: list[object]) -> None:
        for index, block in enumerate(content):
            self._read_block_start({"index": index, "content_block": block})
            self._read_block_stop({"index": index})

    def _read_message_delta(self, value: _Json) -> None:
        if not self._started:
            self._read_missing_start()
        delta = _object(value.get("delta"))
        self._finish(delta)
        self._keep(Extra("choice", _others(delta, _MESSAGE_FIELDS), 0))
        self._keep(Extra("chunk", _others(value, _DELTA_FIELDS)))
        self._read_usage(value.get("usage"))

    def _finish(self, fields: _Json) -> None:
        native = text_of(fields.get("stop_reason"))
        if not native:
            return
        self._end_all()
        self._finished = True
        reason = FINISH_REASONS.get(native)
        if reason is None:
            self._sink.repair("finish-unknown", shown(native))
        sequence, details = fields.get("stop_sequence"), fields.get("stop_details")
        self._sink.events.append(
            Finish(
                0,
                reason or native,
                native,
                sequence if isinstance(sequence, str) else None,
                details if isinstance(details, dict) else None,
            )
        )

    def _read_stop(self) -> None:
        if self.done:
            self._sink.repair("done-repeated")
        self.done = True

    def _read_usage(self, report: object) -> None:
        if not isinstance(report, dict) or not report:
            if report is not None and report != {}:
                self._sink.repair("usage-mistyped", shown(report))
            return
        self._usage = merge(self._usage, report)
        self._sink.events.append(UsageReport(read_usage(self._usage, self._sink, self._model)))

    def _keep(self, extra: Extra) -> None:
        if extra.fields:
            self._sink.events.append(extra)

    # Blocks.

    def _read_block_start(self, value: _Json) -> None:
        if not self._started:
            self._read_missing_start()
        index = self._index(value, missing=self._last + 1)
        if index in self._open:
            self._sink.repair("block-restarted", str(index))
            self._stop(index)
        self._last = index
        block = value.get("content_block")
        if isinstance(block, dict) and self._continues_call(index, block):
            return
        self._end_unfinished()
        if not isinstance(block, dict):
            self._sink.fault("bad-shape", f"a content block is not an object: {shown(block)}")
            return
        if self._next_block >= _MAX_BLOCKS:
            self._sink.fault("event-too-complex", f"the answer has more than {_MAX_BLOCKS} content blocks")
            return
        self._end_texts()
        if len(self._open) >= _MAX_OPEN:
            self._end_all()
        self._start(index, dict(block))

    def _start(self, index: int, block: _Json) -> None:
        type = text_of(block.pop("type", None))
        number, self._next_block = self._next_block, self._next_block + 1
        events = self._sink.events
        if type == "text":
            head = self._text(block, "text")
            block.pop("text", None)
            citations = block.pop("citations", None)
            self._open[index] = _OpenBlock(number, "text", head=head)
            events.append(BlockStart(0, number, "text", type=type, data=block or None))
            for citation in citations if isinstance(citations, list) else ():
                self._annotate(number, citation)
        elif type == "thinking":
            head, signature = self._text(block, "thinking"), text_of(block.pop("signature", None))
            block.pop("thinking", None)
            self._open[index] = _OpenBlock(number, "reasoning", head=head)
            events.append(BlockStart(0, number, "reasoning", type=type, data=block or None))
            if signature:
                self._emit_head(self._open[index])
                events.append(Seal(0, number, SEAL_SCHEME, signature))
        elif type == "redacted_thinking":
            self._open[index] = _OpenBlock(number, "reasoning")
            events.append(BlockStart(0, number, "reasoning", type=type))
            events.append(Seal(0, number, SEAL_SCHEME, text_of(block.get("data")), redacted=True))
        elif type == "tool_use" or type in SERVER_CALLS:
            self._start_call(index, number, type, block)
        else:
            self._open[index] = _OpenBlock(number, "whole", whole={"type": type, **block})

    def _start_call(self, index: int, number: int, type: str, block: _Json) -> None:
        call, self._next_call = self._next_call, self._next_call + 1
        id, name, given = block.pop("id", None), text_of(block.pop("name", None)), block.pop("input", None)
        if not name:
            self._sink.fault("tool-call-unnamed", f"a {type} block has no name")
            return
        if not isinstance(id, str) or not id:
            self._sink.repair("tool-id-missing")
            id = None
        if id in self._broken:
            self._sink.fault("tool-call-ambiguous", f"two calls have the id {shown(id)}")
            return
        written = given if isinstance(given, str) else msgspec.json.encode(given).decode() if given else ""
        self._open[index] = _OpenBlock(number, "call", call=call, head=written, id=id or "")
        self._sink.events.append(ToolCallStart(0, call, id, name, server=type in SERVER_CALLS, block=number))
        extras = block if type != "mcp_tool_use" else {"type": type, **block}
        if extras:
            self._sink.events.append(Extra("tool", extras, 0, call))

    def _read_delta(self, value: _Json) -> None:
        if not self._started:
            self._read_missing_start()
        index, delta = self._index(value, missing=self._last), _object(value.get("delta"))
        type = text_of(delta.get("type"))
        kind = _DELTA_KINDS.get(type)
        block = self._open.get(index)
        if type == "signature_delta" and (block is None or block.kind != "reasoning"):
            self._read_late_signature(index, delta)
            return
        if kind is None:
            self._read_unknown_delta(block, delta, type)
            return
        if block is None or block.kind != kind:
            block = self._implied_block(index, block, kind)
            if block is None:
                return
        events = self._sink.events
        match type:
            case "text_delta":
                self._add(block, self._text(delta, "text"))
            case "thinking_delta":
                self._add(block, self._text(delta, "thinking"))
            case "input_json_delta":
                self._add_arguments(block, self._text(delta, "partial_json"))
            case "signature_delta":
                self._emit_head(block)
                signature = text_of(delta.get("signature"))
                if signature:
                    events.append(Seal(0, block.number, SEAL_SCHEME, signature))
            case _:
                self._emit_head(block)
                self._annotate(block.number, delta.get("citation"))

    def _read_late_signature(self, index: int, delta: _Json) -> None:
        """Read a signature of a block that has ended, or that is not the last one."""
        number = self._numbers.get(index)
        if number is None:
            self._sink.repair("block-start-missing", "signature_delta")
            return
        self._sink.repair("signature-late", str(index))
        self._sink.events.append(Seal(0, number, SEAL_SCHEME, text_of(delta.get("signature"))))

    def _implied_block(self, index: int, block: _OpenBlock | None, kind: _Kind) -> _OpenBlock | None:
        """Start the block that a delta needs, because no start preceded the delta (rule 2)."""
        if kind == "call":
            self._sink.fault("tool-call-unnamed", "arguments came without the start of their call")
            return None
        if block is None:
            self._sink.repair("block-start-missing", str(index))
        else:
            self._sink.repair("delta-in-wrong-block", f"{kind} in a block of {block.kind}")
            self._end(index)
        self._end_texts()
        self._start(index, {"type": "text" if kind == "text" else "thinking"})
        return self._open[index]

    def _read_unknown_delta(self, block: _OpenBlock | None, delta: _Json, type: str) -> None:
        """Read a delta of a block that is kept whole: merge its fields into the block."""
        fields = {name: value for name, value in delta.items() if name != "type" and value is not None}
        if block is None:
            self._sink.repair("block-start-missing", type)
            return
        if block.kind != "whole":
            self._sink.repair("delta-unknown", type)
            self._emit_head(block)
            event = {"type": "content_block_delta", "index": block.number, "delta": delta}
            self._sink.events.append(Extra("event", event))
            return
        self._buffered += len(msgspec.json.encode(fields))
        if self._buffered > _MAX_BUFFERED:
            self._sink.fault("event-too-large", f"blocks of unknown types hold more than {_MAX_BUFFERED} bytes")
            return
        for name, value in fields.items():
            block.pieces.setdefault(name, []).append(value)

    def _read_block_stop(self, value: _Json) -> None:
        index = self._index(value, missing=self._last)
        if index in self._open:
            self._stop(index)
        elif index not in self._numbers:
            self._sink.repair("block-start-missing", f"content_block_stop {index}")
        else:
            self._sink.repair("block-stop-repeated", str(index))

    def _stop(self, index: int) -> None:
        """Stop a block. A call whose arguments are incomplete may continue (rule 7)."""
        block = self._open[index]
        if block.kind != "call" or not block.id or not _is_broken(block):
            self._end(index)
            return
        self._end_unfinished()
        self._unfinished = index, self._open.pop(index)

    def _continues_call(self, index: int, block: _Json) -> bool:
        """Whether a block continues the call that has just stopped: it has the same id (rule 7)."""
        if self._unfinished is None or block.get("id") != self._unfinished[1].id:
            return False
        if block.get("input"):
            return False  # which is ambiguous
        self._sink.repair("tool-id-repeated", self._unfinished[1].id)
        self._open[index] = self._unfinished[1]
        self._unfinished = None
        return True

    def _end_unfinished(self) -> None:
        if self._unfinished is not None:
            (index, self._open[index]), self._unfinished = self._unfinished, None
            self._end(index)

    def _end(self, index: int) -> None:
        block = self._open.pop(index)
        self._emit_head(block)
        events = self._sink.events
        if block.kind == "call" and block.arguments is None:
            events.append(ToolCallDelta(0, block.call, block.head or "{}"))
        elif block.kind == "call" and _is_broken(block):
            self._sink.repair("tool-arguments-broken", block.id)
            self._broken.add(block.id)
        elif block.kind == "whole":
            for name, pieces in block.pieces.items():
                block.whole[name] = _merged(block.whole.get(name), pieces)
            type = text_of(block.whole.get("type"))
            kind: Literal["result", "opaque"] = "result" if type.endswith("_tool_result") else "opaque"
            id = block.whole.get("tool_use_id") if kind == "result" else block.whole.get("id")
            events.append(BlockStart(0, block.number, kind, id if isinstance(id, str) else None, type, block.whole))
        if len(self._numbers) < _MAX_BLOCKS:
            self._numbers[index] = block.number
        events.append(BlockEnd(0, block.number))

    def _end_texts(self) -> None:
        """End the open blocks of text and reasoning that had no stop: another block starts."""
        for index in [index for index, block in self._open.items() if block.kind != "call"]:
            self._sink.repair("block-unclosed", str(index))
            self._end(index)

    def _end_all(self) -> None:
        """End all open blocks: the message is complete."""
        self._end_unfinished()
        for index in list(self._open):
            self._sink.repair("block-unclosed", str(index))
            self._end(index)

    def _text(self, holder: _Json, name: str) -> str:
        """A piece of text; empty for null. Any other type is a fault."""
        value = holder.get(name)
        if isinstance(value, str):
            return value
        if value is not None:
            self._sink.fault("bad-shape", f"{name} is not text: {shown(value)}")
        return ""

    def _add_arguments(self, block: _OpenBlock, text: str) -> None:
        text = self._joined(block, text)
        if not text:
            return
        block.head = ""
        if block.arguments is None:
            block.arguments = JsonScan()
        block.arguments.feed(text.encode(errors="surrogatepass"))
        self._sink.events.append(ToolCallDelta(0, block.call, text))

    def _add(self, block: _OpenBlock, text: str) -> None:
        """Add text to a block. Text that may repeat that of the start is buffered (rule 4)."""
        if not text:
            return
        if block.head:
            rest = block.head[block.repeated : block.repeated + len(text)]
            if text.startswith(rest):
                block.repeated += len(rest)
                if block.repeated < len(block.head):
                    return
                self._sink.repair("block-text-repeated")
                text = block.head + text[len(rest) :]
            else:
                text = block.head + block.head[: block.repeated] + text
            block.head, block.repeated = "", 0
        text = self._joined(block, text)
        if text:
            self._sink.events.append(TextDelta(0, text) if block.kind == "text" else ReasoningDelta(0, text))

    def _emit_head(self, block: _OpenBlock) -> None:
        """Emit the text of a start that the deltas have not repeated completely."""
        if block.kind == "call" or not block.head:
            return
        text, block.head, block.repeated = block.head + block.head[: block.repeated], "", 0
        self._sink.events.append(TextDelta(0, text) if block.kind == "text" else ReasoningDelta(0, text))

    def _annotate(self, number: int, citation: object) -> None:
        if not isinstance(citation, dict):
            self._sink.repair("delta-unknown", "citations_delta")
            return
        start, end = citation.get("start_char_index"), citation.get("end_char_index")
        self._sink.events.append(
            Annotation(
                0,
                number,
                url=text_of(citation.get("url")) or text_of(citation.get("source")),
                title=text_of(citation.get("title")) or text_of(citation.get("document_title")),
                quote=text_of(citation.get("cited_text")),
                start=start if isinstance(start, int) else None,
                end=end if isinstance(end, int) else None,
                data=citation,
            )
        )

    # Everything else.

    def _read_missing_start(self) -> None:
        self._sink.repair("message-start-missing")
        self._started = True
        self._sink.events += [Start("", "", None), ChoiceStart(0, "assistant")]

    def _read_unknown(self, value: _Json, kind: str, event: str) -> None:
        """Read an error, a heartbeat of another API, or an event of unknown type."""
        error = read_error(value, event)
        if error is not None:
            self._sink.fault("provider-error", *error)
        elif "choices" in value or kind.startswith("response.") or "candidates" in value:
            self._sink.fault("other-dialect", f"this is no event of the Anthropic Messages dialect: {shown(value)}")
        elif is_heartbeat(kind) or not value:
            self._sink.repair("keepalive-event", kind)
        else:
            self._sink.repair("event-unknown", kind or shown(value))
            if _EVENT_NAME.fullmatch(kind):
                self._sink.events.append(Extra("event", {**value, "type": kind}))
            if not self.unread:
                self.unread = shown(value)

    def _read_other(self, value: object, event: str) -> None:
        """Read an event whose JSON is not an object."""
        if event == "error":
            self._sink.fault("provider-error", f"{value or 'an error event without data'!s:.500}")
        elif isinstance(value, list) and value and all(isinstance(item, dict) for item in value):
            for item in value:
                self.read(item, event=event)
        elif isinstance(value, list) and value:
            self._sink.fault("bad-shape", f"an event is a list: {shown(value)}")
        else:
            self._sink.repair("empty-event", shown(value))

    def _index(self, value: _Json, *, missing: int) -> int:
        """The index of the block that an event belongs to, or a substitute if the event has none."""
        index = integer_of(value.get("index"))
        if index is not None:
            return index
        self._sink.repair("block-index-missing")
        return missing

    def _without_halves(self, value: object) -> object:
        """The JSON of an event with surrogate pairs joined, except in texts that the next event may continue."""
        match value:
            case {"type": "content_block_delta", "delta": {"type": str(type)}} if type in _PIECES:
                assert isinstance(value, dict)
                name, delta = _PIECES[type], value["delta"]
                kept = delta.get(name)
                clean = whole_json(
                    {**value, "delta": {**delta, name: "" if isinstance(kept, str) else kept}}, self._sink
                )
                assert isinstance(clean, dict)
                if isinstance(kept, str):
                    clean["delta"][name] = kept
                return clean
            case _:
                return whole_json(value, self._sink)

    def _joined(self, block: _OpenBlock, text: str) -> str:
        """The text with surrogate pairs joined, also pairs that are split between two deltas."""
        return self._joiner.join((block.number, block.kind), text, self._sink) if self._surrogates else text


def _is_broken(call: _OpenBlock) -> bool:
    return call.arguments is not None and not call.arguments.whole


def _merged(before: object, pieces: list[object]) -> object:
    """The value of a field after its deltas: texts are concatenated, any other value is replaced by the last."""
    texts = [piece for piece in pieces if isinstance(piece, str)]
    if len(texts) < len(pieces):
        return pieces[-1]
    return "".join([before, *texts] if isinstance(before, str) else texts)


def _others(fields: _Json, known: frozenset[str]) -> _Json:
    return {name: value for name, value in fields.items() if name not in known and value is not None}


def _object(value: object) -> _Json:
    return value if isinstance(value, dict) else {}
