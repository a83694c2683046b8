"""Reads the dialect of Ollama: the JSON of one line of `/api/chat` → hub events.

A stream is JSON lines. Every line has a piece of the answer (`message.content`, `message.thinking`), and the last one
has `done: true`, the reason and the counts of tokens. An unstreamed answer is one such line. Lines of `/api/generate`
have their text in `response` instead.

Rules for the whole file:

1. Only a line with `done: true` completes an answer. The reason `stop` also ends answers with tool calls.
2. Tool calls are whole, with their arguments as an object. Older versions send no ids.
3. A count that is missing is unknown, not 0: `prompt_eval_count` is missing if the whole prompt was cached.
"""

from collections.abc import Mapping
from datetime import datetime

import msgspec

from penstock.core.dialects.frame_reader import FrameReader
from penstock.core.dialects.unread_members import keep_unread, member_tree
from penstock.core.hub.events import (
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
from penstock.core.hub.usage_fields import read_count
from penstock.core.json.getters import object_of, objects_of, shown, text_of
from penstock.core.provider_errors.error_shapes import read_error
from penstock.core.wire.scan import JsonScan

NAME = "ollama"
TITLE = "Ollama"
FINISH_REASONS: Mapping[str, str] = {
    "stop": "stop",
    "length": "length",
    # An answer without a prompt, which loads or unloads the model.
    "load": "stop",
    "unload": "stop",
}
_KNOWN = frozenset(("message", "response", "done"))
_INPUT, _OUTPUT = "prompt_eval_count", "eval_count"
_FIGURES = (_INPUT, _OUTPUT, "total_duration", "load_duration", "prompt_eval_duration", "eval_duration")
# What is read of a line. The context of `/api/generate` is for a next request to the same endpoint.
_MEMBERS = member_tree(
    " ".join(("model created_at response thinking context done done_reason logprobs", *_FIGURES)),
    message=member_tree(
        "role content thinking", tool_calls=member_tree("id type", function=member_tree("name arguments index"))
    ),
)
# Far above what a real answer has; it limits the memory of one stream.
_MAX_CALLS = 10_000
# The texts that the next line continues.
_TEXTS = frozenset((("message", "content"), ("message", "thinking"), ("response",), ("thinking",)))
_Json = dict[str, object]


class OllamaReader(FrameReader):
    """Reads the lines of one stream, or one unstreamed answer."""

    title = TITLE
    texts = _TEXTS
    envelope = ("model",)
    _model: str | None = None
    _calls = 0

    def __init__(self, sink: Sink) -> None:
        super().__init__(sink)
        self._joiner = SurrogateJoiner()
        self._ids: set[str] = set()  # of calls

    def read(self, value: dict[str, object], event: str) -> None:
        """Read the JSON of one line."""
        if self.done:
            self._sink.repair("data-after-done", shown(value))
        if (error := read_error(value, event)) is not None:
            self._report(error)
        elif value.keys().isdisjoint(_KNOWN):
            self.read_unknown(value, event)
        else:
            self._read_line(value)
            keep_unread(value, _MEMBERS, self._sink)

    def flush(self) -> None:
        """Emit halves of surrogate pairs that are buffered: the rest of the texts will not be read."""
        self._read_pieces("", "", more=False)

    def _read_line(self, value: _Json) -> None:
        model = text_of(value.get("model"))
        if model != self._model:
            started, self._model = self._model is not None, model
            self._sink.events.append(Start("", model, None if started else _seconds(value.get("created_at"))))
            if not started:
                self._sink.events.append(ChoiceStart(0, "assistant"))
        entries = objects_of(value.get("logprobs"))
        if entries:
            self._sink.events.append(Extra("choice", {"logprobs": {"content": entries}}, 0))
        message = value.get("message")
        if isinstance(message, dict):
            self._read_pieces(message.get("content"), message.get("thinking"))
            if message.get("tool_calls"):
                self.flush()
            self._read_calls(message.get("tool_calls"))
        elif message is not None:
            self._sink.fault("bad-shape", f"the message is not an object: {shown(message)}")
        else:
            self._read_pieces(value.get("response"), value.get("thinking"))
        if value.get("done") is True:
            self._read_end(value)

    def _read_pieces(self, content: object, thinking: object, *, more: bool = True) -> None:
        thought = self._text("thinking", thinking, more=more)
        if thought:
            self._sink.events.append(ReasoningDelta(0, thought))
        text = self._text("content", content, more=more)
        if text:
            self._sink.events.append(TextDelta(0, text))

    def _text(self, name: str, value: object, *, more: bool) -> str:
        if isinstance(value, str):
            return self._joiner.join((0, name), value, self._sink, more=more) if self._surrogates else value
        if value is not None:
            self._sink.fault("bad-shape", f"`{name}` is not text: {shown(value)}")
        return ""

    def _read_calls(self, calls: object) -> None:
        if calls is not None and not isinstance(calls, list):
            self._sink.fault("bad-shape", f"the tool calls are not a list: {shown(calls)}")
        for call in calls if isinstance(calls, list) else ():
            self._read_call(object_of(call))

    def _read_call(self, call: _Json) -> None:
        function = object_of(call.get("function"))
        name, arguments = text_of(function.get("name")), function.get("arguments")
        if not name:
            self._sink.fault("tool-call-unnamed", f"a tool call has no name: {shown(call)}")
        elif not (arguments is None or isinstance(arguments, dict | str)):
            self._sink.fault("bad-shape", f"the arguments of a call are not an object: {shown(arguments)}")
        elif self._calls >= _MAX_CALLS:
            self._sink.fault("event-too-complex", f"the answer has more than {_MAX_CALLS} tool calls")
        else:
            if isinstance(arguments, str):
                self._sink.repair("tool-arguments-text")
                if not _is_whole(arguments):
                    self._sink.repair("tool-arguments-broken")
            written = arguments if isinstance(arguments, str) else msgspec.json.encode(arguments or {}).decode()
            id = text_of(call.get("id")) or None
            if id is not None and id in self._ids:
                self._sink.repair("tool-id-duplicate", id)
                id = None
            self._ids.add(id or "")
            self._sink.events += [
                ToolCallStart(0, self._calls, id, name),
                ToolCallDelta(0, self._calls, written or "{}"),
            ]
            self._calls += 1

    def _read_end(self, value: _Json) -> None:
        self.done = True
        self.flush()
        native, reason = text_of(value.get("done_reason")), None
        if native:
            reason = read_reason(native, FINISH_REASONS, frozenset(), self._sink, member="done_reason")
        else:
            self._sink.repair("finish-mapped", "done")  # versions before 0.1.38 do not say why
            reason = "stop"
        if reason is not None:
            reason = "tool_calls" if reason == "stop" and self._calls else reason
            self._sink.events.append(Finish(0, reason, native or None))
        figures = {name: value[name] for name in _FIGURES if value.get(name) is not None}
        if _INPUT in figures or _OUTPUT in figures:
            usage = Usage(
                input=read_count(figures.get(_INPUT), self._sink),
                output=read_count(figures.get(_OUTPUT), self._sink),
                raw=figures,
            )
            self._sink.events.append(UsageReport(usage))


def _is_whole(arguments: str) -> bool:
    """Whether arguments that are sent as text are empty, or whole JSON."""
    scan = JsonScan()
    scan.feed(arguments.encode(errors="surrogatepass"))
    return scan.whole or not scan.started


def _seconds(time: object) -> int | None:
    """A time of RFC 3339 in Unix seconds; None if it is none."""
    try:
        return int(datetime.fromisoformat(text_of(time)).timestamp())
    except (ValueError, OverflowError):
        return None
