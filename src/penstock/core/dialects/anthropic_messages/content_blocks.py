"""Reads the content blocks of the Anthropic Messages dialect: their starts, deltas and stops → hub events.

The rules 2 to 5 and 7 of `reader.py` are implemented here.
"""

from collections.abc import Mapping
from typing import Literal, TypeAlias

import msgspec
from msgspec import Struct

from penstock.core.dialects.unread_members import member_tree, unread
from penstock.core.hub.events import (
    Annotation,
    BlockEnd,
    BlockStart,
    Extra,
    ReasoningDelta,
    Seal,
    TextDelta,
    ToolCallDelta,
    ToolCallStart,
)
from penstock.core.hub.sink import Sink
from penstock.core.hub.text import SurrogateJoiner
from penstock.core.json.getters import integer_of, shown, text_of
from penstock.core.wire.scan import JsonScan

SEAL_SCHEME = "anthropic"
SERVER_CALLS = frozenset(("server_tool_use", "mcp_tool_use"))
"""The types of blocks that are calls which the provider executes itself."""
# Far above what a real answer has; it limits the memory of one stream.
_MAX_BLOCKS = 10_000
_MAX_OPEN = 64
_MAX_BUFFERED = 1_000_000
_Json: TypeAlias = dict[str, object]
_Kind: TypeAlias = Literal["text", "reasoning", "call", "whole"]
_DELTA = member_tree("type text thinking partial_json signature citation")
_USUAL_DELTA = 2  # members: its type, and one more
_DELTA_KINDS: Mapping[str, _Kind] = {
    "text_delta": "text",
    "citations_delta": "text",
    "thinking_delta": "reasoning",
    "signature_delta": "reasoning",
    "input_json_delta": "call",
}
PIECES: Mapping[str, str] = {"text_delta": "text", "thinking_delta": "thinking", "input_json_delta": "partial_json"}
"""The member with the content of a delta, by the delta's type."""


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


class ContentBlocks:
    """The content blocks of one message."""

    surrogates = False
    """Whether texts may contain halves of surrogate pairs."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._joiner = SurrogateJoiner()
        self._open: dict[int, _OpenBlock] = {}
        self._last = -1  # the index of the block that was started last
        self._numbers: dict[int, int] = {}  # of the blocks that have ended, by index
        self._next_block = 0
        self._next_call = 0
        self._buffered = 0
        self._latest: dict[str, int] = {}  # the number of the last call that started with an id
        self._broken: set[str] = set()  # the ids of calls that ended with incomplete arguments
        self._unfinished: tuple[int, _OpenBlock] | None = None  # a call that has stopped and may continue (rule 7)

    @property
    def text_block(self) -> int | None:
        """The index of the only open block, if it is one of text or thinking and nothing of it is buffered."""
        if len(self._open) != 1 or self._unfinished is not None or self.surrogates:
            return None
        ((index, block),) = self._open.items()
        usual = block.kind in ("text", "reasoning") and not block.head and block.number == index
        return index if usual else None

    def read_start(self, value: _Json) -> None:
        """Read a `content_block_start`."""
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
            self.end_all()
        self._start(index, dict(block))

    def read_delta(self, value: _Json) -> None:
        """Read a `content_block_delta`."""
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
        if len(delta) > _USUAL_DELTA and (others := unread(delta, _DELTA)):
            if type in PIECES and not delta.get(PIECES[type]):  # no delta is written that could have them
                self._keep_delta(block, delta)
            else:
                events.append(Extra("delta", others, 0, block=block.number))
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

    def read_stop(self, value: _Json) -> None:
        """Read a `content_block_stop`."""
        index = self._index(value, missing=self._last)
        if index in self._open:
            self._stop(index)
        elif index not in self._numbers:
            self._sink.repair("block-start-missing", f"content_block_stop {index}")
        else:
            self._sink.repair("block-stop-repeated", str(index))

    def end_all(self) -> None:
        """End all open blocks: the message is complete."""
        self._end_unfinished()
        for index in list(self._open):
            self._sink.repair("block-unclosed", str(index))
            self._end(index)

    def flush(self) -> None:
        """Emit everything that is buffered of the open blocks: the rest of them will not be read."""
        self._end_unfinished()
        for block in self._open.values():
            self._flush(block)

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
            data = text_of(block.pop("data", None))
            events.append(BlockStart(0, number, "reasoning", type=type, data=block or None))
            events.append(Seal(0, number, SEAL_SCHEME, data, redacted=True))
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
        if id in self._broken or any(open.id == id and _is_broken(open) for open in self._open.values()):
            self._sink.fault("tool-call-ambiguous", f"two calls have the id {shown(id)}")
            return
        written = given if isinstance(given, str) else msgspec.json.encode(given).decode() if given else ""
        self._open[index] = _OpenBlock(number, "call", call=call, head=written, id=id or "")
        self._latest[id or ""] = number
        self._sink.events.append(ToolCallStart(0, call, id, name, server=type in SERVER_CALLS, block=number))
        extras = block if type != "mcp_tool_use" else {"type": type, **block}
        if extras:
            self._sink.events.append(Extra("tool", extras, 0, call))

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
            self._keep_delta(block, delta)
            return
        self._buffered += len(msgspec.json.encode(fields))
        if self._buffered > _MAX_BUFFERED:
            self._sink.fault("event-too-large", f"blocks of unknown types hold more than {_MAX_BUFFERED} bytes")
            return
        for name, value in fields.items():
            block.pieces.setdefault(name, []).append(value)

    def _keep_delta(self, block: _OpenBlock, delta: _Json) -> None:
        """Keep a delta as a whole for clients of the same API."""
        event = {"type": "content_block_delta", "index": block.number, "delta": delta}
        self._sink.events.append(Extra("event", event, 0, block=block.number))

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
        self._flush(block)
        events = self._sink.events
        if block.kind == "call" and block.arguments is None:
            events.append(ToolCallDelta(0, block.call, block.head or "{}"))
        elif block.kind == "call" and _is_broken(block):
            if block.id and self._latest[block.id] != block.number:
                self._sink.fault("tool-call-ambiguous", f"two calls have the id {shown(block.id)}")
                return
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

    def _text(self, holder: _Json, name: str) -> str:
        """A piece of text; empty for null. Any other type is a fault."""
        value = holder.get(name)
        if isinstance(value, str):
            return value
        if value is not None:
            self._sink.fault("bad-shape", f"{name} is not text: {shown(value)}")
        return ""

    def _flush(self, block: _OpenBlock) -> None:
        """Emit everything that is buffered of a block: the text of its start, and half of a surrogate pair."""
        self._emit_head(block)
        if half := self._joined(block, "", more=False):
            (self._add_arguments if block.kind == "call" else self._add)(block, half)

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

    def _index(self, value: _Json, *, missing: int) -> int:
        """The index of the block that an event belongs to, or a substitute if the event has none."""
        index = integer_of(value.get("index"))
        if index is not None:
            return index
        self._sink.repair("block-index-missing")
        return missing

    def _joined(self, block: _OpenBlock, text: str, *, more: bool = True) -> str:
        """The text with surrogate pairs joined, also pairs that are split between two deltas."""
        key = (block.number, block.kind)
        return self._joiner.join(key, text, self._sink, more=more) if self.surrogates else text


def _is_broken(call: _OpenBlock) -> bool:
    return call.arguments is not None and not call.arguments.whole


def _merged(before: object, pieces: list[object]) -> object:
    """The value of a field after its deltas: texts are concatenated, any other value is replaced by the last."""
    texts = [piece for piece in pieces if isinstance(piece, str)]
    if len(texts) < len(pieces):
        return pieces[-1]
    return "".join([before, *texts] if isinstance(before, str) else texts)


def _object(value: object) -> _Json:
    return value if isinstance(value, dict) else {}
