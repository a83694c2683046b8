"""The OpenAI Responses dialect, read: the JSON of an event → hub events.

    response.created  response.in_progress                     Start, ChoiceStart; `in_progress` may be repeated
    ( response.output_item.added … response.output_item.done )*     one output item after the other; some overlap
    response.completed | response.incomplete | response.failed the end, with the whole response and its usage

The reader reports what it read; `core/hub/grammar.py` puts that into order. `items.py` has the rules for output items,
and the package's docstring says which events an item becomes. Rules for this file:

1. The type in the JSON says what an event is. The transport's event name counts only where the JSON has no type.
2. Only the last event is an end. `[DONE]` proves nothing: simple servers append it to every stream. Behind the end it
   is no defect, because Open Responses demands it.
3. The whole response at the end is used for what the stream has not said: items without events, unfinished ones. The
   ChatGPT backend always sends an empty `output` there.
4. Events of unknown types are kept as extras of the place `event`.
5. An unstreamed response is read as the stream that it stands for.
"""

from collections.abc import Mapping

import msgspec
from msgspec import Struct

from penstock.core.dialects.frame_reader import EVENT_NAME, FrameReader
from penstock.core.dialects.openai_responses.items import OutputItems, TextField, TextKey
from penstock.core.dialects.openai_responses.usage import read_usage
from penstock.core.dialects.openai_responses.vocabulary import Json
from penstock.core.fast.format import TextEvent
from penstock.core.hub.events import ChoiceStart, Extra, Finish, Start, UsageReport
from penstock.core.hub.finish_reasons import read_reason
from penstock.core.hub.sink import Sink
from penstock.core.json.getters import integer_of, object_of, shown, text_of
from penstock.core.provider_errors.error_shapes import error_of, is_heartbeat

FINISH_REASONS: Mapping[str, str] = {"max_output_tokens": "length", "content_filter": "content_filter"}
"""Why a response is incomplete, in the hub's words."""
_ENDS = {"response.completed": "completed", "response.incomplete": "incomplete", "response.failed": "failed"}
_STARTS = frozenset(("response.created", "response.in_progress", "response.queued"))
# Events that may come when the response is over: all others are data behind the end.
_HARMLESS = frozenset((*_ENDS, *_STARTS, "error"))
# Members of a response that have events of their own, or none.
_RESPONSE_FIELDS = frozenset(
    ("id", "object", "model", "created_at", "status", "output", "usage", "error", "incomplete_details")
)
_END_FIELDS = frozenset(("type", "response", "sequence_number"))
# Tools of xAI that it executes itself, and reports as calls of custom tools.
_HOSTED_AS_CUSTOM = frozenset(("x_search",))


class _ResponsesText(Struct, frozen=True):
    """How a text is sent: the type of its items, its field, the member with its number, the member with the whole."""

    item: str
    field: TextField
    number: str
    whole: str


_TEXTS = {
    "response.output_text": _ResponsesText("message", "text", "content_index", "text"),
    "response.refusal": _ResponsesText("message", "refusal", "content_index", "refusal"),
    "response.reasoning_summary_text": _ResponsesText("reasoning", "summary", "summary_index", "text"),
    "response.reasoning_text": _ResponsesText("reasoning", "reasoning", "content_index", "text"),
    "response.function_call_arguments": _ResponsesText("function_call", "arguments", "", "arguments"),
    "response.custom_tool_call_input": _ResponsesText("custom_tool_call", "arguments", "", "input"),
}
_PART_FIELDS: Mapping[str, tuple[str, TextField]] = {
    "output_text": ("text", "text"),
    "refusal": ("refusal", "refusal"),
    "reasoning_text": ("text", "reasoning"),
}


class OpenAIResponsesReader(FrameReader):
    """Reads the events of one stream, or one unstreamed response."""

    title = "OpenAI Responses"
    texts = frozenset((("delta",),))
    foreign_types = ("message_", "content_block_")
    keeps_unknown = False  # only those with a valid name are
    limits_pieces = True  # `items.py` does: most of the last event repeats what was streamed, and takes no time
    envelope = ("id", "model", "created")
    _started = False
    _finished = False
    _id = ""
    _unnamed = False  # whether an event without a name was met
    _unnumbered = False  # whether an event without a number, or with an unexpected one, was met
    _number: int | None = None  # of the next event
    start = Start("", "", None)
    """The id, the model and the time of the response, as it started."""

    def __init__(self, sink: Sink) -> None:
        super().__init__(sink)
        self._items = OutputItems(sink)
        self._extras: Json = {}

    def read_odd(self, value: object, event: str, *, surrogates: bool = False) -> None:
        """Read JSON with halves of surrogate pairs, or JSON that is not an object."""
        self._items.surrogates |= surrogates
        super().read_odd(value, event, surrogates=surrogates)

    def read_undecodable(self, data: bytes, event: str) -> None:
        """Read the data of an event that is not JSON. `[DONE]` may follow the end: Open Responses demands it."""
        if not (self.done and data.strip() == b"[DONE]"):
            super().read_undecodable(data, event)

    def read(self, value: dict[str, object], event: str) -> None:
        """Read the JSON of one event. `event` is the name that the transport gave it."""
        type = text_of(value.get("type")) or event
        stem, _, verb = type.rpartition(".")
        if type.startswith("response.") or "sequence_number" in value:
            self._check_envelope(value, event, type)
        if self.done and type and type not in _HARMLESS and not is_heartbeat(type):
            self._sink.repair("data-after-done", type)
        text = _TEXTS.get(stem)
        if text is not None and verb in ("delta", "done"):
            self._read_text(value, text, verb)
        elif type in _STARTS:
            self._read_start(value, type)
        elif type in _ENDS:
            self._read_end(object_of(value.get("response")), _ENDS[type])
            self._keep(_others(value, _END_FIELDS))
        elif value.get("object") == "response" or (not type and isinstance(value.get("output"), list)):
            self._read_body(value)
        else:
            self._read_item_event(value, type, event)

    def follow_text(self, delta: TextEvent, last: bytes) -> None:
        """Continue after text deltas of the open text that the fast path has read."""
        self._items.note_text(delta.text)
        number = integer_of(msgspec.json.decode(last).get("sequence_number"))
        if number is not None:
            self._number = number + 1

    def flush(self) -> None:
        """Emit everything that is buffered: the rest of the open items will not be read."""
        self._items.flush()

    def close(self) -> None:
        """No more events will come. Items that began after the end of the response end, too."""
        if self._finished and self._items.is_open:
            self._items.settle([], whole=False)
        self.flush()

    # The response.

    def _check_envelope(self, value: Json, event: str, type: str) -> None:
        """Check the name and the number of an event. What is missing is reported once."""
        if event != type and not self._unnamed:
            self._unnamed = True
            self._sink.repair("event-name-missing", event)
        number = value.get("sequence_number")
        if number == self._number and number is not None:
            self._number = number + 1
            return
        known = integer_of(number)
        if (known is None or self._number is not None) and not self._unnumbered:
            self._unnumbered = True
            self._sink.repair("sequence-missing" if known is None else "sequence-gap", text_of(number))
        if known is not None:
            self._items.has_gap |= self._number is not None and known > self._number
            self._number = known + 1

    def _read_start(self, value: Json, type: str) -> None:
        response = object_of(value.get("response"))
        if not self._started:
            if type == "response.in_progress":
                self._sink.repair("message-start-missing")
            self._start(response)
            return
        id = text_of(response.get("id"))
        if type != "response.created":
            return  # `in_progress`, which is also a heartbeat
        if id and self._id and id != self._id:
            self._sink.fault("bad-shape", "a second response starts in the same stream")
        else:
            self._sink.repair("message-start-repeated", id)

    def _start(self, response: Json) -> None:
        self._started = True
        self._id = text_of(response.get("id"))
        self._sink.events.append(_envelope_of(response))
        self._extras = extras_of(response)
        self._keep(self._extras)
        self._sink.events.append(ChoiceStart(0, "assistant"))
        tools = self._items.objects_of(response.get("tools"))
        if any(text_of(tool.get("type")) in _HOSTED_AS_CUSTOM for tool in tools):
            own = (text_of(tool.get("name")) for tool in tools if tool.get("type") == "custom")
            self._items.custom_tools = frozenset(own)

    def _read_end(self, response: Json, status: str) -> None:
        if self.done:
            self._sink.repair("done-repeated")
            return
        if not self._started:
            self._sink.repair("message-start-missing")
            self._start(response)
        self._finish(response, status)

    def _read_body(self, response: Json) -> None:
        """An unstreamed response; behind a stream it is a repetition of the whole answer."""
        if self._started:
            self._sink.repair("message-appended")
            return
        self._items.in_stream = False
        self._start(response)
        self._finish(response, text_of(response.get("status")) or "completed")

    def _finish(self, response: Json, status: str) -> None:
        """The end of the response. Where its own status says that it failed, or is incomplete, that counts."""
        own = response.get("status")
        status = own if own in ("incomplete", "failed", "cancelled") else status
        self._sink.events.append(_envelope_of(response))
        self._keep(_new_extras(response, self._extras))
        usage = response.get("usage")
        if isinstance(usage, dict) and usage:
            self._sink.events.append(UsageReport(read_usage(usage, self._sink, tier=response.get("service_tier"))))
        elif usage not in (None, {}):
            self._sink.repair("usage-mistyped", shown(usage))
        if status in ("failed", "cancelled"):
            self.done = True
            error = response.get("error")
            words = (
                error_of(error, {})
                if error
                else (f"the response was {status}" if status == "cancelled" else "the response failed", None)
            )
            self._sink.fault("provider-error", *words)
            return
        self._items.settle(self._items.objects_of(response.get("output")), whole=status == "completed")
        if status not in ("completed", "incomplete"):
            return  # an unstreamed response that still runs
        self.done = self._finished = True
        if status == "completed":
            self._sink.events.append(Finish(0, "tool_calls" if self._items.called else "stop", status))
            return
        details = object_of(response.get("incomplete_details"))
        native = text_of(details.get("reason")) or status
        reason = read_reason(native, FINISH_REASONS, frozenset(), self._sink, member="reason")
        if reason is not None:
            self._sink.events.append(Finish(0, reason, native, details=details if len(details) > 1 else None))

    def _keep(self, fields: Json) -> None:
        if fields:
            self._sink.events.append(Extra("chunk", fields))

    # Output items.

    def _need_start(self) -> None:
        if not self._started:
            self._sink.repair("message-start-missing")
            self._start({})

    def _read_text(self, value: Json, text: _ResponsesText, verb: str) -> None:
        self._need_start()
        if text.field == "arguments" and self._items.pass_on(value):
            return
        key = TextKey(text.field, (integer_of(value.get(text.number)) or 0) if text.number else 0)
        member = "delta" if verb == "delta" else text.whole
        given = value.get(member)
        if given is not None and not isinstance(given, str):
            self._sink.fault("bad-shape", f"{member} is not text: {shown(given)}")
        elif verb == "done":
            self._items.settle_text(value, text.item, key, given or "")
        elif given:
            if key.field == "text":
                self._items.keep_logprobs(value)
            self._items.add_text(value, text.item, key, given)

    def _read_item_event(self, value: Json, type: str, event: str) -> None:
        match type:
            case "response.output_item.added" | "response.output_item.done":
                self._read_item(value, type)
            case "response.content_part.added":
                self._need_start()
                part = object_of(value.get("part"))
                member, field = _PART_FIELDS.get(text_of(part.get("type")), ("", "text"))
                if member:
                    key = TextKey(field, integer_of(value.get("content_index")) or 0)
                    item = "reasoning" if field == "reasoning" else "message"
                    self._items.add_part(value, item, key, text_of(part.get(member)))
            case "response.content_part.done":
                self._need_start()
                part = object_of(value.get("part"))
                if part.get("type") != "reasoning_text":
                    self._items.finish_part(value, part)
            case "response.reasoning_summary_part.added":
                self._need_start()
                key = TextKey("summary", integer_of(value.get("summary_index")) or 0)
                self._items.add_part(value, "reasoning", key, text_of(object_of(value.get("part")).get("text")))
            case "response.reasoning_summary_part.done":
                self._need_start()
                key = TextKey("summary", integer_of(value.get("summary_index")) or 0)
                self._items.settle_text(value, "reasoning", key, text_of(object_of(value.get("part")).get("text")))
            case "response.output_text.annotation.added" | "response.output_text_annotation.added":
                self._need_start()
                self._items.annotate(value, value.get("annotation"))
            case _:
                self._read_rest(value, type, event)

    def _read_item(self, value: Json, type: str) -> None:
        self._need_start()
        item, index = value.get("item"), integer_of(value.get("output_index"))
        if not isinstance(item, dict):
            self._sink.fault("bad-shape", f"an output item is not an object: {shown(item)}")
        elif type == "response.output_item.added":
            self._items.add(index, item)
        else:
            self._items.finish(index, item)

    # Everything else.

    def _read_rest(self, value: Json, type: str, event: str) -> None:
        """An event of an item of another type, an error, a heartbeat, or an event that is not known."""
        if self._items.pass_on(value):
            return
        if self.read_unknown(value, "error" if type == "error" else event) and EVENT_NAME.fullmatch(type):
            kept = {name: member for name, member in value.items() if name != "sequence_number"}
            self._sink.events.append(Extra("event", kept | {"type": type}))


def _envelope_of(response: Json) -> Start:
    """The id, the model and the time of a response."""
    return Start(text_of(response.get("id")), text_of(response.get("model")), integer_of(response.get("created_at")))


def extras_of(response: Json) -> Json:
    """The members of a response that have no events of their own."""
    return _others(response, _RESPONSE_FIELDS)


def _new_extras(response: Json, known: Json) -> Json:
    """Those of these members that the response did not have before, or had with another value."""
    return {name: value for name, value in extras_of(response).items() if name not in known or known[name] != value}


def _others(fields: Json, known: frozenset[str]) -> Json:
    return {name: value for name, value in fields.items() if name not in known}
