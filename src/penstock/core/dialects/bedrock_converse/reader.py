"""Reads the dialect of Amazon Bedrock's Converse API: the JSON of one event of `ConverseStream` → hub events.

The stream is an AWS event stream (`core/wire/event_stream.py`): the name of an event is in its headers, and its JSON
has filler (`p`) beside the fields. An unstreamed answer (`Converse`) is one object with `output`. SDKs print events as
objects with the name as the only member; these are read, too.

Rules for the whole file:

1. Only calls have a `contentBlockStart`. Text and reasoning begin with their first delta. If another block has started
   since, they begin again: of such blocks, only the last one that started can go on.
2. `messageStop` has the reason, and completes the answer. The usage follows it, in `metadata`, which is last.
3. Input tokens exclude those that are read from the cache or written to it; the total includes them. So the input is
   the sum of the three. If the input or the output is missing, it is the rest of the total.
4. The provider executes some tools itself: a call of the type `server_tool_use`, and its `toolResult`. The result is
   kept whole, and reported when its block ends: its deltas are lists, of which each continues the content.
5. Some reasons say that there is no usable answer (`FAILURES`). They are faults, and so are all exceptions.
"""

from collections.abc import Mapping
from typing import Literal

import msgspec
from msgspec import Struct, field

from penstock.core.dialects.frame_reader import FrameReader
from penstock.core.dialects.unread_members import keep_unread, member_tree
from penstock.core.hub.events import (
    Annotation,
    BlockEnd,
    BlockStart,
    ChoiceStart,
    Extra,
    Finish,
    MediaDelta,
    ReasoningDelta,
    Seal,
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
from penstock.core.hub.usage_fields import read_count
from penstock.core.json.getters import integer_of, list_of, object_of, objects_of, shown, text_of
from penstock.core.provider_errors.error_shapes import error_of
from penstock.core.wire.scan import JsonScan

NAME = "bedrock_converse"
TITLE = "Bedrock Converse"
SEAL_SCHEME = "bedrock"
FINISH_REASONS: Mapping[str, str] = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "tool_use": "tool_calls",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "guardrail_intervened": "content_filter",
    "content_filtered": "content_filter",
}
FAILURES = frozenset(("malformed_model_output", "malformed_tool_use"))
"""Reasons of answers that failed."""
EVENTS = frozenset(
    ("messageStart", "contentBlockStart", "contentBlockDelta", "contentBlockStop", "messageStop", "metadata")
)
# Far above what a real answer has; it limits the memory of one stream.
_MAX_BLOCKS = 10_000
# The texts that the next event continues.
_TEXTS = frozenset((("delta", "text"), ("delta", "toolUse", "input"), ("delta", "reasoningContent", "text")))
_COUNTS = ("inputTokens", "outputTokens", "totalTokens", "cacheReadInputTokens", "cacheWriteInputTokens")
# What is read of an event, or of an unstreamed answer. Citations and results are kept whole.
_CALL = member_tree("toolUseId name type input")
_THOUGHT = member_tree("text signature redactedContent", reasoningText=member_tree("text signature"))
_IMAGE = member_tree("format", source=member_tree("bytes"))
_BLOCK = member_tree(
    "text citation toolResult",
    citationsContent=member_tree("citations", content=member_tree("text")),
    toolUse=_CALL,
    reasoningContent=_THOUGHT,
    image=_IMAGE,
)
_MEMBERS = member_tree(
    "p contentBlockIndex role stopReason usage metrics trace performanceConfig",
    serviceTier=member_tree("type"),
    start=_BLOCK,
    delta=_BLOCK,
    output=member_tree("", message=member_tree("role content")),
    additionalModelResponseFields=member_tree("stop_sequence", delta=member_tree("stop_sequence")),
)
_MEDIA = ("audio", "video", "document")
_Json = dict[str, object]
_Kind = Literal["text", "reasoning", "call", "media", "result", "other"]


class _ConverseBlock(Struct):
    """An open block."""

    number: int
    kind: _Kind
    call: int = 0
    mime: str = ""
    arguments: JsonScan = field(default_factory=JsonScan)
    """A scan of the arguments of a call."""
    result: _Json = field(default_factory=dict)
    """What has come of a result."""


class BedrockConverseReader(FrameReader):
    """Reads the events of one stream, or one unstreamed answer."""

    title = TITLE
    texts = _TEXTS
    _started = False
    _finished = False
    _blocks = 0
    _calls = 0
    _last = 0  # the provider's index of the block that started last

    def __init__(self, sink: Sink) -> None:
        super().__init__(sink)
        self._joiner = SurrogateJoiner()
        self._open: dict[int, _ConverseBlock] = {}  # by the provider's index
        self._ids: set[str] = set()  # of calls
        self._reported: _Json = {}  # the usage, as far as it was reported

    def read(self, value: dict[str, object], event: str) -> None:
        """Read the JSON of one event. `event` is its name."""
        if event not in EVENTS and len(value) == 1 and not EVENTS.isdisjoint(value):
            event, value = next((name, object_of(each)) for name, each in value.items())
        if self.done:
            self._sink.repair("data-after-done", event)
        match event:
            case "contentBlockDelta":
                self._read_delta(object_of(value.get("delta")), self._index(value))
            case "contentBlockStart":
                self._read_start(object_of(value.get("start")), self._index(value))
            case "contentBlockStop":
                self._read_stop(self._index(value))
            case "messageStart":
                self._begin(missing=False)
            case "messageStop":
                self._finish(value)
            case "metadata":
                self._read_metadata(value)
            case _:
                self._read_rest(value, event)
                return
        keep_unread(value, _MEMBERS, self._sink)

    def flush(self) -> None:
        """Emit halves of surrogate pairs that are buffered: the rest of the texts will not be read."""
        for block in self._open.values():
            self._add("", block, more=False)

    # Messages.

    def _begin(self, *, missing: bool) -> None:
        if self._started:
            if not missing:
                self._sink.repair("message-start-repeated")
            return
        self._started = True
        if missing:
            self._sink.repair("message-start-missing")
        self._sink.events += [Start("", "", None), ChoiceStart(0, "assistant")]

    def _read_whole(self, value: _Json, message: _Json) -> None:
        """Read an unstreamed answer."""
        self._begin(missing=False)
        for index, content in enumerate(objects_of(message.get("content"))):
            self._read_content(content, index)
        self._finish(value)
        self._read_metadata(value)
        keep_unread(value, _MEMBERS, self._sink)

    def _read_content(self, content: _Json, index: int) -> None:
        if not content.keys().isdisjoint(_BLOCK):
            keep_unread(content, _BLOCK, self._sink)
        reasoning, call = object_of(content.get("reasoningContent")), content.get("toolUse")
        cited = object_of(content.get("citationsContent"))
        if isinstance(call, dict):
            self._read_start({"toolUse": call}, index)
            written = msgspec.json.encode(call.get("input") or {}).decode()
            self._read_delta({"toolUse": {"input": written}}, index)
        elif reasoning:
            thought = object_of(reasoning.get("reasoningText"))
            for name, text in (thought | reasoning).items():
                if name in ("text", "signature", "redactedContent"):
                    self._read_delta({"reasoningContent": {name: text}}, index)
        elif cited:
            for part in objects_of(cited.get("content")):
                self._read_delta({"text": part.get("text")}, index)
            for citation in objects_of(cited.get("citations")):
                self._read_delta({"citation": citation}, index)
        elif "image" in content:
            image = object_of(content["image"])
            self._read_start({"image": image}, index)
            self._read_delta({"image": image}, index)
        elif "toolResult" in content:
            self._read_start({"toolResult": object_of(content["toolResult"])}, index)
        elif "text" in content:
            self._read_delta(content, index)
        else:
            self._read_other_block(content)
        if index in self._open:
            self._read_stop(index)

    def _read_other_block(self, content: _Json) -> None:
        """Keep a block of another type, which no client gets."""
        self._begin(missing=True)
        type = next(iter(content), "")
        number, self._blocks = self._blocks, self._blocks + 1
        kind: Literal["media", "opaque"] = "media" if type in _MEDIA else "opaque"
        self._sink.events += [BlockStart(0, number, kind, type=type, data=content), BlockEnd(0, number)]

    def _finish(self, value: _Json) -> None:
        native = text_of(value.get("stopReason"))
        self._begin(missing=True)
        for index in list(self._open):
            self._sink.repair("block-unclosed", str(index))
            self._end(index)
        if not native:
            return
        reason = read_reason(native, FINISH_REASONS, FAILURES, self._sink, member="stopReason")
        if reason is None:
            return
        self._finished = True
        more = object_of(value.get("additionalModelResponseFields"))
        sequence = more.get("stop_sequence") or object_of(more.get("delta")).get("stop_sequence")
        self._sink.events.append(Finish(0, reason, native, sequence if isinstance(sequence, str) else None))

    def _read_metadata(self, value: _Json) -> None:
        self.done = self._finished
        tier = text_of(object_of(value.get("serviceTier")).get("type"))
        usage = value.get("usage")
        if isinstance(usage, dict) and usage:
            self._sink.events.append(UsageReport(self._usage(usage, tier)))
        elif usage is not None and usage != {}:
            self._sink.repair("usage-mistyped", shown(usage))
        extras = {name: value[name] for name in ("metrics", "trace", "performanceConfig") if value.get(name)}
        if extras:
            self._sink.events.append(Extra("chunk", extras))

    def _usage(self, report: _Json, tier: str) -> Usage:
        """The usage after this report, read with those before it: `inputTokens` excludes the cache."""
        raw = self._reported | {name: value for name, value in report.items() if value is not None}
        if any(integer_of(report.get(name)) for name in _COUNTS):
            self._reported = raw
        else:
            raw = report  # a placeholder
        input, output, total, cached, written = (read_count(raw.get(name), self._sink) for name in _COUNTS)
        hour = [
            integer_of(each.get("inputTokens")) or 0
            for each in objects_of(raw.get("cacheDetails"))
            if each.get("ttl") == "1h"
        ]
        if input is not None:
            input += (cached or 0) + (written or 0)
            output = max(total - input, 0) if output is None and total is not None else output
        elif output is not None and total is not None:
            input = max(total - output, 0)
        return Usage(
            input=input,
            output=output,
            total=total,
            cached=cached,
            cache_write=written,
            cache_write_1h=sum(hour) or None,
            tier=tier or None,
            raw=raw,
        )

    # Blocks.

    def _index(self, value: _Json) -> int:
        index = integer_of(value.get("contentBlockIndex"))
        if index is None:
            self._sink.repair("block-index-missing")
            if len(self._open) > 1:
                self._sink.fault("bad-shape", f"an event could belong to several blocks: {shown(value)}")
            return next(iter(self._open), 0)
        return index

    def _read_start(self, start: _Json, index: int) -> None:
        call, image, result = start.get("toolUse"), object_of(start.get("image")), start.get("toolResult")
        if index in self._open:
            self._sink.repair("block-restarted", str(index))
            self._end(index)
        if isinstance(call, dict):
            self._start_call(call, index)
        elif image:
            self._start("media", index, mime=f"image/{text_of(image.get('format')) or 'png'}")
        elif isinstance(result, dict):
            block = self._start("result", index)
            if block is not None:
                block.result |= result
        elif start:
            self._sink.repair("event-unknown", next(iter(start)))
            self._start("other", index)

    def _start_call(self, call: _Json, index: int) -> None:
        name, id = text_of(call.get("name")), text_of(call.get("toolUseId")) or None
        if not name:
            self._sink.fault("tool-call-unnamed", f"a tool call has no name: {shown(call)}")
            return
        block = self._start("call", index)
        if block is None:
            return
        if id is not None and id in self._ids:
            self._sink.repair("tool-id-duplicate", id)
            id = None
        self._ids.add(id or "")
        server = call.get("type") == "server_tool_use"
        self._sink.events.append(ToolCallStart(0, block.call, id, name, server=server, block=block.number))

    def _start(self, kind: _Kind, index: int, *, mime: str = "") -> _ConverseBlock | None:
        self._begin(missing=True)
        if self._blocks >= _MAX_BLOCKS:
            self._sink.fault("event-too-complex", f"the answer has more than {_MAX_BLOCKS} blocks")
            return None
        last = self._open.get(self._last)
        if last is not None and last.kind in ("text", "reasoning"):
            self._add("", last, more=False)  # no text of that block follows any more (rule 1)
        self._open[index] = block = _ConverseBlock(self._blocks, kind, self._calls, mime)
        self._last = index
        self._blocks += 1
        if kind == "call":
            self._calls += 1
        elif kind != "result" and kind != "other":
            self._sink.events.append(BlockStart(0, block.number, kind))
        return block

    def _opened(self, kind: _Kind, index: int) -> _ConverseBlock | None:
        """The block that a delta belongs to: the open one of this index, or a new one (rule 1)."""
        block = self._open.get(index)
        if block is not None and (block.kind != kind or index != self._last):
            self._sink.repair("block-restarted", str(index))
            self._end(index)
            block = None
        return block or self._start(kind, index)

    def _read_delta(self, delta: _Json, index: int) -> None:
        call, reasoning, more = delta.get("toolUse"), delta.get("reasoningContent"), delta.get("toolResult")
        if "text" in delta:
            self._read_text(delta["text"], index, "text")
        elif isinstance(call, dict):
            self._read_arguments(call.get("input"), index)
        elif isinstance(reasoning, dict):
            self._read_reasoning(reasoning, index)
        elif isinstance(delta.get("citation"), dict):
            self._read_citation(object_of(delta["citation"]), index)
        elif isinstance(delta.get("image"), dict):
            self._read_image(object_of(delta["image"]), index)
        elif isinstance(more, list) and index in self._open and self._open[index].kind == "result":
            result = self._open[index].result
            result["content"] = [*list_of(result.get("content")), *more]
        elif delta and (index not in self._open or self._open[index].kind != "other"):
            self._sink.repair("event-unknown", next(iter(delta)))
            self.unread = self.unread or shown(delta)

    def _read_text(self, text: object, index: int, kind: Literal["text", "reasoning"]) -> None:
        if not isinstance(text, str):
            self._sink.fault("bad-shape", f"text is not text: {shown(text)}")
            return
        block = self._opened(kind, index)
        if block is not None:
            self._add(text, block)

    def _add(self, text: str, block: _ConverseBlock, *, more: bool = True) -> None:
        if self._surrogates:
            text = self._joiner.join((block.number, block.kind), text, self._sink, more=more)
        if text and block.kind == "call":
            block.arguments.feed(text.encode(errors="surrogatepass"))
            self._sink.events.append(ToolCallDelta(0, block.call, text))
        elif text:
            self._sink.events.append(TextDelta(0, text) if block.kind == "text" else ReasoningDelta(0, text))

    def _read_reasoning(self, reasoning: _Json, index: int) -> None:
        if "text" in reasoning:
            self._read_text(reasoning["text"], index, "reasoning")
        for name in ("signature", "redactedContent"):
            seal = text_of(reasoning.get(name))
            block = self._opened("reasoning", index) if seal else None
            if block is not None:
                self._sink.events.append(Seal(0, block.number, SEAL_SCHEME, seal, redacted=name == "redactedContent"))

    def _read_arguments(self, text: object, index: int) -> None:
        block = self._open.get(index)
        if block is None or block.kind != "call":
            self._sink.fault("bad-shape", f"arguments of a tool call that was not started: {shown(text)}")
        elif not isinstance(text, str):
            self._sink.fault("bad-shape", f"the arguments of a call are not text: {shown(text)}")
        else:
            self._add(text, block)

    def _read_citation(self, citation: _Json, index: int) -> None:
        block = self._opened("text", index)
        if block is not None:
            quotes = [text_of(each.get("text")) for each in objects_of(citation.get("sourceContent"))]
            url = text_of(object_of(object_of(citation.get("location")).get("web")).get("url"))
            title = text_of(citation.get("title"))
            self._sink.events.append(Annotation(0, block.number, url, title, "".join(quotes), data=citation))

    def _read_image(self, image: _Json, index: int) -> None:
        block = self._opened("media", index)
        data = text_of(object_of(image.get("source")).get("bytes"))
        if block is not None and data:
            self._sink.events.append(MediaDelta(0, block.number, block.mime or "image/png", data))

    def _read_stop(self, index: int) -> None:
        if index in self._open:
            self._end(index)
        else:
            self._sink.repair("block-stop-repeated", str(index))

    def _end(self, index: int) -> None:
        block = self._open.pop(index)
        self._add("", block, more=False)
        if block.kind == "call" and block.arguments.started and not block.arguments.whole:
            self._sink.repair("tool-arguments-broken")
        if block.kind == "result":
            data: _Json = {"toolResult": block.result}
            self._sink.events.append(BlockStart(0, block.number, "result", type="toolResult", data=data))
        if block.kind != "other":
            self._sink.events.append(BlockEnd(0, block.number))

    # Everything else.

    def _read_rest(self, value: _Json, event: str) -> None:
        output = object_of(value.get("output"))
        message = output.get("message")
        if isinstance(message, dict) and "stopReason" in value:
            self._read_whole(value, message)
        elif event == "error":
            self._report(error_of(value, value))
        else:
            self.read_unknown(value, event)
