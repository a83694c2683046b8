"""Reads the dialect of Cohere: the JSON of one event of `/v2/chat` → hub events.

An answer is a list of blocks: `content-start`, `content-delta` and `content-end` for text and thinking, `tool-call-…`
for calls. `message-end` has the finish reason and the usage; nothing of an answer follows it but, usually, `[DONE]`. An
unstreamed answer is one object with `message`, `finish_reason` and `usage`.

Rules for the whole file:

1. The type of an event is in its JSON. Its name in the transport is the same.
2. Only `message-end` completes an answer. With a reason of `FAILURES` it is a fault.
3. The numbers of calls and of content count separately. So blocks are numbered here, in the order of their starts.
4. `tool-plan-delta` is what the model thinks before it calls tools: reasoning, in a block without start and end.
5. A citation belongs to the last text.
6. Members that are not read, and probabilities of tokens, are extras before the event that has them: the writer adds
   them to what it writes next.
7. Of the two counts of usage, `tokens` is what the model read and wrote, and `billed_units` what is charged. The first
   are the counts; `raw` has both.
"""

from collections.abc import Mapping
from typing import Literal

from msgspec import Struct, field

from penstock.core.dialects.frame_reader import FrameReader
from penstock.core.dialects.unread_members import member_tree, unread
from penstock.core.hub.events import (
    Annotation,
    BlockEnd,
    BlockStart,
    ChoiceStart,
    Extra,
    Finish,
    ReasoningDelta,
    Start,
    TextDelta,
    ToolCallDelta,
    ToolCallStart,
    UsageReport,
)
from penstock.core.hub.finish_reasons import read_reason
from penstock.core.hub.sink import Sink
from penstock.core.hub.text import SurrogateJoiner
from penstock.core.hub.usage import Usage
from penstock.core.json.getters import integer_of, object_of, objects_of, shown, text_of
from penstock.core.provider_errors.error_shapes import read_error
from penstock.core.wire.scan import JsonScan

NAME = "cohere"
TITLE = "Cohere"
FINISH_REASONS: Mapping[str, str] = {
    "COMPLETE": "stop",
    "STOP_SEQUENCE": "stop",
    "MAX_TOKENS": "length",
    "TOOL_CALL": "tool_calls",
}
FAILURES = frozenset(("ERROR", "TIMEOUT", "ERROR_LIMIT", "ERROR_TOXIC"))
"""Finish reasons of answers that failed."""
SENTINEL = "[DONE]"
LOGPROBS = "logprobs"
"""The member with the probabilities of tokens: of an event an object, of an answer a list."""
PLAN = "tool_plan"
"""The member with the plan before tool calls, and the type of its block in the hub."""
# Far above what a real answer has; it limits the memory of one stream.
_MAX_BLOCKS = 10_000
_CONTENT = ("delta", "message", "content")
# The texts that the next event continues.
_TEXTS = frozenset(
    (
        (*_CONTENT, "text"),
        (*_CONTENT, "thinking"),
        ("delta", "message", PLAN),
        ("delta", "message", "tool_calls", "function", "arguments"),
    )
)
# What is read of an event, or of an unstreamed answer. Citations are kept whole.
_MESSAGE = member_tree(
    f"role citations {PLAN}",
    content=member_tree("type text thinking"),
    tool_calls=member_tree("id type", function=member_tree("name arguments")),
)
_MEMBERS = member_tree(
    "type index id finish_reason usage error",
    message=_MESSAGE,
    delta=member_tree("finish_reason usage error", message=_MESSAGE),
)
_Json = dict[str, object]
_Kind = Literal["text", "reasoning", "call"]


class _OpenCohereBlock(Struct):
    """An open block."""

    number: int
    kind: _Kind
    index: int | None
    """Its number in the provider's events; None for the plan before tool calls."""
    call: int = 0
    arguments: JsonScan = field(default_factory=JsonScan)
    """A scan of the arguments of a call."""


class CohereReader(FrameReader):
    """Reads the events of one stream, or one unstreamed answer."""

    title = TITLE
    sentinel = SENTINEL
    texts = _TEXTS
    envelope = ("id",)
    _started = False
    _id = ""
    _ended = False  # whether the sentinel was read
    _blocks = 0
    _calls = 0
    _text_block = 0  # the number of the last text

    def __init__(self, sink: Sink) -> None:
        super().__init__(sink)
        self._joiner = SurrogateJoiner()
        self._open: _OpenCohereBlock | None = None
        self._ids: set[str] = set()  # of calls

    def read(self, value: dict[str, object], event: str) -> None:
        """Read the JSON of one event."""
        kind = text_of(value.get("type")) or event
        if self.done and kind != "message-end":
            self._sink.repair("data-after-done", kind)
        message = object_of(object_of(value.get("delta")).get("message"))
        before = len(self._sink.events)
        match kind:
            case "content-delta":
                self._read_content(object_of(message.get("content")), value)
            case "tool-call-delta":
                self._read_arguments(object_of(message.get("tool_calls")), value)
            case "tool-plan-delta":
                self._read_plan(message.get(PLAN))
            case "content-start":
                self._start_content(object_of(message.get("content")), value)
            case "tool-call-start":
                self._start_call(object_of(message.get("tool_calls")), value)
            case "content-end" | "tool-call-end":
                self._read_end(value)
            case "citation-start":
                self._read_citation(object_of(message.get("citations")))
            case "citation-end":
                pass
            case "message-start":
                self._read_start(value)
            case "message-end":
                self._finish(object_of(value.get("delta")), "delta.")
            case _:
                self._read_rest(value, event)
                return
        self._sink.events[before:before] = _extras(value)

    def read_undecodable(self, data: bytes, event: str) -> None:
        """Read the data of an event that is not JSON: the sentinel, usually."""
        if data.strip() != SENTINEL.encode():
            super().read_undecodable(data, event)
            return
        if self._ended:
            self._sink.repair("done-repeated")
        self._ended = True

    def flush(self) -> None:
        """Emit half of a surrogate pair that is buffered: the rest of the text will not be read."""
        if self._open is not None:
            self._add("", self._open.kind, more=False)

    # Messages.

    def _read_start(self, value: _Json) -> None:
        id = text_of(value.get("id"))
        if self._started:
            if id and self._id and id != self._id:
                self._sink.fault("bad-shape", "a second message starts in the same stream")
            else:
                self._sink.repair("message-start-repeated", id)
            return
        self._begin(id)

    def _begin(self, id: str) -> None:
        self._started, self._id = True, id
        self._sink.events += [Start(id, "", None), ChoiceStart(0, "assistant")]

    def _read_whole(self, value: _Json, message: _Json) -> None:
        """Read an unstreamed answer."""
        self._begin(text_of(value.get("id")))
        if message.get(PLAN):
            self._read_plan(message[PLAN])
        contents = objects_of(message.get("content"))
        for index, content in enumerate(contents):
            self._start_content(content, {"index": index})
            for citation in objects_of(message.get("citations")) if index == len(contents) - 1 else ():
                self._read_citation(citation)
            self._read_end({"index": index})
        if not contents and message.get("citations"):
            self._sink.events.append(Extra("chunk", {"message.citations": message["citations"]}))
        for index, call in enumerate(objects_of(message.get("tool_calls"))):
            self._start_call(call, {"index": index})
            self._read_end({"index": index})
        self._finish(value)
        self._sink.events += _extras(value)

    def _finish(self, fields: _Json, path: str = "") -> None:
        if self.done:
            self._sink.repair("done-repeated")
            return
        self.done = True
        if not self._started:
            self._sink.repair("message-start-missing")
            self._begin("")
        native = text_of(fields.get("finish_reason"))
        if self._open is not None:
            self._end(unclosed=self._open.index is not None)
        if native:
            message = text_of(fields.get("error"))
            reason = read_reason(native, FINISH_REASONS, FAILURES, self._sink, member="finish_reason", message=message)
            if reason is not None:
                self._sink.events.append(Finish(0, reason, native))
                self._sink.events += [Extra("chunk", {f"{path}error": message})] if message else []
        self._read_usage(fields.get("usage"))

    def _read_usage(self, usage: object) -> None:
        if not isinstance(usage, dict) or not usage:
            if usage is not None and usage != {}:
                self._sink.repair("usage-mistyped", shown(usage))
            return
        tokens = object_of(usage.get("tokens")) or object_of(usage.get("billed_units"))
        self._sink.events.append(
            UsageReport(
                Usage(
                    input=self._count(tokens.get("input_tokens")),
                    output=self._count(tokens.get("output_tokens")),
                    cached=self._count(usage.get("cached_tokens")),
                    reasoning=self._count(tokens.get("reasoning_tokens")),
                    raw=usage,
                )
            )
        )

    def _count(self, value: object) -> int | None:
        count = integer_of(value)
        if value is not None and type(value) is not int and not isinstance(value, float):
            self._sink.repair("usage-mistyped", shown(value))
        return count

    # Blocks.

    def _start_content(self, content: _Json, value: _Json) -> None:
        kind: _Kind = "reasoning" if content.get("type") == "thinking" or "thinking" in content else "text"
        if self._start(kind, integer_of(value.get("index")) or 0):
            self._add(content.get("thinking" if kind == "reasoning" else "text"), kind)

    def _read_content(self, content: _Json, value: _Json) -> None:
        kind: _Kind = "reasoning" if "thinking" in content else "text"
        index, block = integer_of(value.get("index")) or 0, self._open
        if block is None or block.kind != kind or block.index != index:
            self._sink.repair("block-start-missing", str(index))
            if not self._start(kind, index):
                return
        self._add(content.get("thinking" if kind == "reasoning" else "text"), kind)

    def _read_plan(self, text: object) -> None:
        block = self._open
        opened = block is not None and block.kind == "reasoning" and block.index is None
        if opened or self._start("reasoning", None):
            self._add(text, "reasoning")

    def _start_call(self, call: _Json, value: _Json) -> None:
        function = object_of(call.get("function"))
        name = text_of(function.get("name"))
        if not name:
            self._sink.fault("tool-call-unnamed", f"a tool call has no name: {shown(call)}")
        elif self._start("call", integer_of(value.get("index")) or 0, text_of(call.get("id")) or None, name):
            self._add(function.get("arguments"), "call")

    def _read_arguments(self, call: _Json, value: _Json) -> None:
        index, block = integer_of(value.get("index")) or 0, self._open
        if block is None or block.kind != "call" or block.index != index:
            self._sink.fault("bad-shape", f"arguments of a tool call that was not started: {shown(call)}")
        else:
            self._add(object_of(call.get("function")).get("arguments"), "call")

    def _start(self, kind: _Kind, index: int | None, id: str | None = None, name: str = "") -> bool:
        """Start a block; returns whether it may be started."""
        if not self._started:
            self._sink.repair("message-start-missing")
            self._begin("")
        if self._open is not None:
            self._end(unclosed=self._open.index is not None)
        if self._blocks >= _MAX_BLOCKS:
            self._sink.fault("event-too-complex", f"the answer has more than {_MAX_BLOCKS} blocks")
            return False
        self._open = block = _OpenCohereBlock(self._blocks, kind, index, self._calls)
        self._blocks += 1
        if kind == "call":
            self._calls += 1
            if id is not None and id in self._ids:
                self._sink.repair("tool-id-duplicate", id)
                id = None
            self._ids.add(id or "")
            self._sink.events.append(ToolCallStart(0, block.call, id, name, block=block.number))
        else:
            self._text_block = block.number if kind == "text" else self._text_block
            plan: _Json | None = {"type": PLAN} if index is None else None
            self._sink.events.append(BlockStart(0, block.number, kind, type=PLAN if plan else "", data=plan))
        return True

    def _read_end(self, value: _Json) -> None:
        index = integer_of(value.get("index"))
        if self._open is None or (index is not None and self._open.index != index):
            self._sink.repair("block-stop-repeated", text_of(index))
        else:
            self._end()

    def _end(self, *, unclosed: bool = False) -> None:
        self.flush()
        block, self._open = self._open, None
        assert block is not None  # the callers have checked it
        if unclosed:
            self._sink.repair("block-unclosed", text_of(block.index))
        if block.kind == "call" and block.arguments.started and not block.arguments.whole:
            self._sink.repair("tool-arguments-broken")
        self._sink.events.append(BlockEnd(0, block.number))

    def _add(self, text: object, kind: _Kind, *, more: bool = True) -> None:
        if text is not None and not isinstance(text, str):
            self._sink.fault("bad-shape", f"text is not text: {shown(text)}")
            return
        text = text or ""
        block = self._open
        assert block is not None  # the callers have started it
        if self._surrogates:
            text = self._joiner.join((block.number, kind), text, self._sink, more=more)
        if not text:
            return
        if kind == "call":
            block.arguments.feed(text.encode(errors="surrogatepass"))
            self._sink.events.append(ToolCallDelta(0, block.call, text))
        else:
            self._sink.events.append(TextDelta(0, text) if kind == "text" else ReasoningDelta(0, text))

    def _read_citation(self, citation: _Json) -> None:
        if not citation or not self._started:
            return
        document = next((object_of(each.get("document")) for each in objects_of(citation.get("sources"))), {})
        self._sink.events.append(
            Annotation(
                0,
                self._text_block,
                text_of(document.get("url")),
                text_of(document.get("title")),
                text_of(citation.get("text")),
                integer_of(citation.get("start")),
                integer_of(citation.get("end")),
                citation,
            )
        )

    # Everything else.

    def _read_rest(self, value: _Json, event: str) -> None:
        message = value.get("message")
        if isinstance(message, dict) and "finish_reason" in value:
            if self._started:
                self._sink.repair("message-appended")
            else:
                self._read_whole(value, message)
        elif "event_type" in value and read_error(value, event) is None:
            self._sink.fault("other-dialect", f"this is an event of version 1 of Cohere's API: {shown(value)}")
        else:
            self.read_unknown(value, event)


def _extras(value: _Json) -> list[Extra]:
    """What the reader does not read of an event, or of an unstreamed answer."""
    others = unread(value, _MEMBERS)
    items = others.pop(LOGPROBS, None) or []
    listed = items if isinstance(items, list) else [items]
    extras = [Extra("delta", {LOGPROBS: listed}, 0)] if listed else []
    return [*extras, Extra("chunk", others)] if others else extras
