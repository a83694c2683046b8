"""Reads the Anthropic Messages dialect: the JSON of an event → hub events.

    message_start                                              Start, ChoiceStart, a preliminary usage report
    ( content_block_start content_block_delta* content_block_stop )*     one content block after the other
    message_delta                                              the stop reason, cumulative usage; at times several
    message_stop                                               the end; `ping` and `error` may come anywhere

The reader emits events in the order in which it reads them; `core/hub/grammar.py` puts them into legal order.
Rules for this file and `content_blocks.py`:

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
   end of such a call is buffered until the next event. If another call with its id starts while it is incomplete, or
   before its arguments, nothing says which call they belong to: the stream fails.
"""

from typing import TypeAlias

from penstock.core.dialects.anthropic_messages.content_blocks import PIECES, ContentBlocks
from penstock.core.dialects.anthropic_messages.trailer import MessagesTrailer
from penstock.core.dialects.anthropic_messages.usage import INPUT_COUNTS, OUTPUT_MEMBERS, merge, read_usage
from penstock.core.dialects.anthropic_messages.vocabulary import FINISH_REASONS
from penstock.core.dialects.frame_reader import EVENT_NAME, FrameReader
from penstock.core.hub.events import (
    ChoiceStart,
    Extra,
    Finish,
    Start,
    UsageReport,
)
from penstock.core.hub.finish_reasons import read_reason
from penstock.core.hub.grammar import Grammar
from penstock.core.hub.sink import Sink
from penstock.core.hub.text import TextPath
from penstock.core.json.getters import shown, text_of
from penstock.core.wire.event_stream import CHUNK

NAME = "anthropic_messages"
_Json: TypeAlias = dict[str, object]
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
_NO_TEXTS: frozenset[TextPath] = frozenset()
_MESSAGE_FIELDS = frozenset(
    ("id", "type", "role", "model", "content", "stop_reason", "stop_sequence", "stop_details", "usage")
)


class AnthropicMessagesReader(FrameReader):
    """Reads the events of one stream, or one unstreamed message."""

    title = "Anthropic Messages"
    foreign_types = ("response.",)
    keeps_unknown = False  # only those with a valid name are
    envelope = ("id", "model")
    _started = False
    _finished = False
    _id = ""
    _model = ""
    _asked = ""  # the model that another one took over from
    _unnamed = False  # whether an event without its name was met

    def __init__(self, sink: Sink) -> None:
        super().__init__(sink)
        self._blocks = ContentBlocks(sink)
        self._usage: _Json = {}

    def read_odd(self, value: object, event: str, *, surrogates: bool = False) -> None:
        """Read JSON with halves of surrogate pairs, or JSON that is not an object."""
        self._blocks.surrogates |= surrogates
        super().read_odd(value, event, surrogates=surrogates)

    def read(self, value: dict[str, object], event: str) -> None:
        """Read the JSON of one event. `event` is the name of its SSE event."""
        kind = text_of(value.get("type")) or event
        if event != kind and kind in _NAMED and not self._unnamed and event != CHUNK:
            self._unnamed = True
            self._sink.repair("event-name-missing", event)
        if self.done and kind not in _HARMLESS:
            self._sink.repair("data-after-done", kind)
        match kind:
            case "content_block_delta":
                if not self._started:
                    self._read_missing_start()
                self._blocks.read_delta(value)
            case "content_block_start":
                if not self._started:
                    self._read_missing_start()
                self._blocks.read_start(value)
                self._read_fallback(value.get("content_block"))
            case "content_block_stop":
                self._blocks.read_stop(value)
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
                if self.read_unknown(value, event) and EVENT_NAME.fullmatch(kind):
                    self._sink.events.append(Extra("event", {**value, "type": kind}))

    def trailer(self, grammar: Grammar) -> MessagesTrailer | None:
        """An empty trailer, if the only open block is one of text or thinking, and nothing of it is buffered."""
        block = None if self._finished else self._blocks.text_block
        if block is None or grammar.only_block(0) != block or not grammar.expects_finish:
            return None
        if self._asked or bool(self._usage) != (grammar.usage is not None):
            return None  # the usage is another model's, or has no counts so far: the grammar ignores it
        return MessagesTrailer(block, self._model, self._usage, grammar.usage)

    def flush(self) -> None:
        """Emit everything that is buffered of the open blocks: the rest of them will not be read."""
        self._blocks.flush()

    def close(self) -> None:
        """Emit everything that is buffered: no more events will come. After a stop reason all blocks are complete."""
        if self._finished:
            self._blocks.end_all()
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
            self._blocks.read_start({"index": index, "content_block": block})
            self._blocks.read_stop({"index": index})

    def _read_fallback(self, block: object) -> None:
        """Read whether another model goes on: the requested one declined. The whole answer is then that model's."""
        match block:
            case {"type": "fallback", "to": {"model": str(model)}} if model:
                self._asked, self._model = self._asked or self._model, model
                self._sink.events.append(Start(self._id, model, None, takes_over=True))
            case _:
                pass

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
        self._blocks.end_all()
        self._finished = True
        reason = read_reason(native, FINISH_REASONS, frozenset(), self._sink, member="stop_reason")
        if reason is None:
            return
        sequence, details = fields.get("stop_sequence"), fields.get("stop_details")
        self._sink.events.append(
            Finish(
                0,
                reason,
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
        self._sink.events.append(UsageReport(read_usage(self._usage, self._sink, self._model, self._asked)))

    def _keep(self, extra: Extra) -> None:
        if extra.fields:
            self._sink.events.append(extra)

    # Everything else.

    def _read_missing_start(self) -> None:
        self._sink.repair("message-start-missing")
        self._started = True
        self._sink.events += [Start("", "", None), ChoiceStart(0, "assistant")]

    def _open_texts(self, value: _Json) -> frozenset[TextPath]:
        match value:
            case {"type": "content_block_delta", "delta": {"type": str(type)}} if type in PIECES:
                return frozenset((("delta", PIECES[type]),))
            case _:
                return _NO_TEXTS


def _others(fields: _Json, known: frozenset[str]) -> _Json:
    return {name: value for name, value in fields.items() if name not in known and value is not None}


def _object(value: object) -> _Json:
    return value if isinstance(value, dict) else {}
