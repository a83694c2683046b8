"""Output items of a response, while they are read: what arrives of each item → hub events.

The package's docstring says which events an item becomes. Rules for the whole file:

1. An item is known by its `output_index` alone. Some servers send another id with every event (GitHub Copilot); the
   first one is used. Where the index is missing, the id decides, and else the item that came last.
2. The kind of a delta says what it is. A delta of an item, or of a part, that was not announced starts it.
3. A text comes in deltas, and then up to four times as a whole: behind the deltas, with its part, with its item, and
   with the response. What the deltas lack of it is emitted (simple servers send no deltas at all). Where the whole is
   another text, the deltas count, unless the numbers of the events have a gap: then a delta was lost, and the stream
   has failed. An answer that is used only when it is complete (`Sink.whole`) waits for the whole after a gap instead.
4. One text is open at a time. Where items overlap (OpenRouter, xAI), what follows of an earlier one is another block
   with the same item id.
5. A call is reported once its name is known. Arguments that come before are in the whole item again.
6. Items of all other types are opaque: their events are forwarded to clients of the same API, and the item is reported
   as a whole when it is done. Such an event names the block by the number that the hub gives to it.
7. The reader limits the items that one event can end, and the parts and annotations that it can add, because other
   calls wait meanwhile. Text that was streamed before does not count when the response repeats it at its end.
"""

from collections.abc import Iterator
from typing import Literal, NamedTuple, TypeAlias
from zlib import crc32

import msgspec
from msgspec import Struct

from penstock.core.dialects.frame_reader import EVENT_NAME
from penstock.core.dialects.openai_responses.vocabulary import SEAL_SCHEME, Json
from penstock.core.dialects.unread_members import member_tree, unread
from penstock.core.hub.events import (
    Annotation,
    BlockEnd,
    BlockStart,
    Extra,
    MediaDelta,
    ReasoningDelta,
    RefusalDelta,
    Seal,
    TextDelta,
    ToolCallDelta,
    ToolCallStart,
)
from penstock.core.hub.sink import Sink
from penstock.core.hub.text import REPLACEMENT, SurrogateJoiner
from penstock.core.json.getters import integer_of, objects_of, text_of
from penstock.core.wire.scan import JsonScan

TextField: TypeAlias = Literal["text", "refusal", "summary", "reasoning", "arguments"]
# Far above what a real answer has; they bound what one stream may hold in memory.
_MAX_ITEMS = 10_000
_MAX_TEXTS = 10_000
# Far above the calls that some providers stream in turns. All open items end with the response.
_MAX_OPEN = 64
# Rule 7: how long one event may take, and what the end of an item, a part and an annotation take at most, from here to
# the client, in microseconds. A response of deep research has some hundred items and annotations.
_MOST_US = 12_000
_ITEM_US = 25
_PART_US = 25
_ANNOTATION_US = 10
_CALLS = {"function_call": "arguments", "custom_tool_call": "input"}
_PARTS: dict[str, tuple[TextField, str]] = {"output_text": ("text", "text"), "refusal": ("refusal", "refusal")}
# The members of an item that events of their own stand for.
_KNOWN = {
    "message": frozenset(("id", "type", "role", "content", "status")),
    "reasoning": frozenset(("id", "type", "summary", "content", "encrypted_content", "status")),
    "function_call": frozenset(("id", "type", "status", "arguments", "call_id", "name", "namespace")),
    "custom_tool_call": frozenset(("id", "type", "status", "input", "call_id", "name", "namespace")),
}
_PART = member_tree("type text refusal annotations logprobs")
_REASONING_TEXTS: tuple[tuple[TextField, str], ...] = (("summary", "summary"), ("reasoning", "content"))
_USUAL_STATUSES = ("in_progress", "completed", None)


class RunningText(Struct):
    """The length (in bytes of UTF-8) and the checksum of a text so far, to compare with the whole text at its end.

    The text itself is not kept, so the memory of one stream stays small.
    """

    size: int = 0
    checksum: int = 0

    def add(self, data: bytes) -> None:
        """Count more of the text."""
        self.size += len(data)
        self.checksum = crc32(data, self.checksum)

    def rest_of(self, whole: str) -> str | None:
        """What the whole text has beyond the text so far; None if it does not begin with that text."""
        data = whole.encode(errors="surrogatepass")
        if len(data) < self.size or crc32(data[: self.size]) != self.checksum:
            return None
        try:
            return data[self.size :].decode(errors="surrogatepass")
        except UnicodeDecodeError:
            return None


class TextKey(NamedTuple):
    """One of the texts of an item: its field, and which one of several."""

    field: TextField
    number: int = 0


class _OutputItem(Struct):
    """An item that has begun."""

    index: int
    place: int
    """Its position among all items."""
    type: str
    id: str = ""
    opaque: bool = False
    announced: bool = True
    """Whether it began with `output_item.added`, so that deltas are expected."""
    id_changed: bool = False
    ended: bool = False
    block: int = -1
    """The hub's number of its block: of the last one, if it has several; -1 if it has none yet."""
    part: TextKey | None = None
    """Which of its parts that block is."""
    call: int = -1
    rest: Json = {}
    """The members that have no event of their own, as they were announced."""
    whole: Json = {}
    """The item as it was announced, if it is of an opaque type."""
    texts: dict[TextKey, RunningText] = {}
    heads: dict[TextKey, str] = {}
    """Texts that came with an announcement: deltas may repeat them."""
    buffered: dict[TextKey, list[str]] = {}
    """Deltas after a gap, which wait for the whole text (rule 3)."""
    thinking: TextKey | None = None
    """The text of reasoning that came last."""
    summaries: int = 0
    """The parts of a summary so far. A part that another one interrupts goes on as a new part."""
    cited: dict[int, int] = {}
    """How many annotations each part has."""
    scan: JsonScan | None = None


class OutputItems:
    """The output of one response."""

    called = False
    """Whether the client has to execute a call."""
    custom_tools: frozenset[str] | None = None
    """The names of the client's custom tools, if calls of other names are the provider's own; None if none are."""
    has_gap = False
    """Whether an event is missing, by the numbers of the events."""
    in_stream = True
    """Whether items come in events, so that deltas are expected."""

    surrogates = False
    """Whether texts may hold halves of surrogate pairs."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._joiner = SurrogateJoiner()
        self._order: list[_OutputItem] = []
        self._at: dict[int, _OutputItem] = {}
        self._by_id: dict[str, _OutputItem] = {}
        self._speaking: _OutputItem | None = None  # the item whose text is the open block
        self._unnamed: set[int] = set()  # the indexes of arguments that came without their call
        self._blocks = self._calls = self._open = 0
        self._frame = -1  # the position of the current event
        self._left_us = 0  # what is left of its time (rule 7)

    @property
    def is_open(self) -> bool:
        """Whether something is not whole: an item, or arguments without their call."""
        return self._open > 0 or bool(self._unnamed)

    # Items.

    def add(self, index: int | None, item: Json) -> None:
        """An item is announced."""
        if index is None:
            self._sink.repair("block-index-missing")
            index = len(self._order)
        before = self._at.get(index)
        if before is not None:
            self._sink.repair("block-restarted", str(index))
            if not before.ended:
                self._end(before, {})
        elif self._open:
            self._sink.repair("items-overlap", str(index))
        new = self._new(index, item, announced=True)
        if new is not None:
            new.heads = {key: text for key, text in self._texts_of(item) if text}

    def finish(self, index: int | None, item: Json) -> None:
        """An item is whole."""
        known = self._at.get(index) if index is not None else None
        if index is None:
            self._sink.repair("block-index-missing")
            known = self._without_index(item.get("id"))
            index = known.index if known is not None else len(self._order)
        if known is not None and known.type != text_of(item.get("type")):
            self._sink.repair("block-restarted", str(index))
            if not known.ended:
                self._end(known, {})
            known = None
        if known is None:
            if self.in_stream:
                self._sink.repair("block-start-missing", text_of(item.get("type")))
            known = self._new(index, item, announced=False)
            if known is None:
                return
        elif known.ended:
            self._sink.repair("block-stop-repeated", str(index))
            return
        else:
            self._check_id(known, item.get("id"))
        self._unnamed.discard(index)
        self._end(known, item)

    def settle(self, output: list[Json], *, whole: bool) -> None:
        """The response is over, with this output. With `whole`, it must have all items."""
        types = [text_of(item.get("type")) for item in output]
        streamed = [item.type for item in self._order]
        fits = types[: len(streamed)] == streamed
        for item in [item for item in self._order if not item.ended]:
            self._sink.repair("block-unclosed", item.type)
            self._unnamed.discard(item.index)
            self._end(item, output[item.place] if fits else {})
        if whole and streamed and not output:
            self._sink.repair("output-missing", str(len(streamed)))
        for place, unsaid in enumerate(output[len(streamed) :] if fits else ()):
            if not self._has_time_for(_ITEM_US):
                return
            self.finish(len(streamed) + place, unsaid)
        if self._unnamed:
            self._sink.fault("tool-call-unnamed", "arguments came without their call")

    def _new(self, index: int, item: Json, *, announced: bool) -> _OutputItem | None:
        if len(self._order) >= _MAX_ITEMS or self._blocks >= _MAX_ITEMS:
            self._sink.fault("event-too-complex", f"the answer has more than {_MAX_ITEMS} output items")
            return None
        if self._open >= _MAX_OPEN:
            self._sink.fault("event-too-complex", f"more than {_MAX_OPEN} output items are open at once")
            return None
        type, id = text_of(item.get("type")), text_of(item.get("id"))
        new = _OutputItem(index, len(self._order), type, id, announced=announced, rest=_rest(type, item))
        self._order.append(new)
        self._open += 1
        self._at[index] = new
        if id:
            self._by_id[id] = new
        new.opaque = self._is_opaque(type, item)
        if new.opaque:
            new.whole = item
            new.block = self._next_block()
            if announced:
                event = {"type": "response.output_item.added", "output_index": new.block, "item": item}
                self._sink.events.append(Extra("event", event, 0, block=new.block))
        elif type in _CALLS:
            self._start_call(new, item)
        return new

    def _is_opaque(self, type: str, item: Json) -> bool:
        if type == "custom_tool_call" and self.custom_tools is not None:
            return text_of(item.get("name")) not in self.custom_tools
        # A compacted conversation has messages of the user.
        return type not in _KNOWN or (type == "message" and item.get("role", "assistant") != "assistant")

    def _end(self, item: _OutputItem, whole: Json) -> None:
        """Emit what is missing of an item, and its end. `whole` is empty if nothing more is known of it."""
        if item.opaque:
            self._end_opaque(item, whole or item.whole)
        elif item.type in _CALLS:
            self._end_call(item, whole)
        else:
            self._end_texts(item, whole)
        item.ended = True
        item.rest, item.whole, item.heads, item.scan = {}, {}, {}, None
        self._open -= 1

    def _check_id(self, item: _OutputItem, id: object) -> None:
        if not isinstance(id, str) or not id or id == item.id:
            return
        if not item.id:
            item.id = id
        elif not item.id_changed:
            item.id_changed = True
            self._sink.repair("item-id-changed", id)

    def _next_block(self) -> int:
        block, self._blocks = self._blocks, self._blocks + 1
        return block

    def objects_of(self, value: object) -> list[Json]:
        """The objects of a list; none if the list is longer than any answer's."""
        if isinstance(value, list) and len(value) > _MAX_ITEMS:
            self._sink.fault("event-too-complex", f"an event has a list of more than {_MAX_ITEMS} items")
            return []
        return objects_of(value)

    def _has_time_for(self, microseconds: int) -> bool:
        """Whether the current event may take so much longer (rule 7). If not, the stream has failed."""
        if self._frame != self._sink.offset:
            self._frame, self._left_us = self._sink.offset, _MOST_US
        before, self._left_us = self._left_us, self._left_us - microseconds
        if self._left_us < 0 <= before:
            self._sink.fault("event-too-complex", "an event adds more items, parts or annotations than are read")
        return self._left_us >= 0

    # Opaque items.

    def pass_on(self, event: Json) -> bool:
        """Keep an event of an opaque item; returns whether it is one."""
        index = integer_of(event.get("output_index"))
        item = self._at.get(index) if index is not None else self._by_id.get(text_of(event.get("item_id")))
        if item is None or item.ended or not item.opaque:
            return False
        type = text_of(event.get("type"))
        if not type.startswith(f"response.{item.type}") or EVENT_NAME.fullmatch(type) is None:
            return False
        self._check_id(item, event.get("item_id"))
        kept = {name: value for name, value in event.items() if name not in ("sequence_number", "obfuscation")}
        kept["output_index"] = item.block
        if "item_id" in kept:
            kept["item_id"] = item.id
        self._sink.events.append(Extra("event", kept, 0, block=item.block))
        return True

    def _end_opaque(self, item: _OutputItem, whole: Json) -> None:
        self._stop_speaking()
        events, id = self._sink.events, item.id or None
        data = whole.get("result") if item.type == "image_generation_call" else None
        if isinstance(data, str) and data:
            form = text_of(whole.get("output_format")) or "png"
            rest = {name: value for name, value in whole.items() if name != "result"}
            events.append(BlockStart(0, item.block, "media", id, item.type, rest))
            events.append(MediaDelta(0, item.block, f"image/{form}", data))
        else:
            events.append(BlockStart(0, item.block, "opaque", id, item.type, whole))
        events.append(BlockEnd(0, item.block))

    # Calls.

    def _start_call(self, item: _OutputItem, fields: Json) -> bool:
        """Report a call, if its name is known."""
        name = text_of(fields.get("name"))
        if not name:
            return False
        self._stop_speaking()
        id, namespace = fields.get("call_id"), fields.get("namespace")
        if not isinstance(id, str) or not id:
            self._sink.repair("tool-id-missing")
            id = None
        item.block, item.call, self._calls = self._next_block(), self._calls, self._calls + 1
        self.called = True
        self._sink.events.append(
            ToolCallStart(
                0,
                item.call,
                id,
                name,
                "custom" if item.type == "custom_tool_call" else "function",
                namespace if isinstance(namespace, str) and namespace else None,
                block=item.block,
            )
        )
        extras = ({"id": item.id} if item.id else {}) | item.rest
        if extras:
            self._sink.events.append(Extra("tool", extras, 0, item.call))
        return True

    def _end_call(self, item: _OutputItem, whole: Json) -> None:
        if item.call < 0 and not self._start_call(item, whole):
            self._sink.fault("tool-call-unnamed", f"a {item.type} has no name")
            return
        given = whole.get(_CALLS[item.type])
        if isinstance(given, dict | list):
            self._sink.repair("tool-arguments-object", item.id)
            given = msgspec.json.encode(given).decode()
        if isinstance(given, str):
            self._settle(item, TextKey("arguments"), given)
        self._emit_buffered(item)
        self._emit_halves(item)
        if item.type == "function_call":
            if item.scan is None:
                self._sink.events.append(ToolCallDelta(0, item.call, "{}"))
            elif not item.scan.whole:
                self._sink.repair("tool-arguments-broken", item.id)
        self._sink.events.append(BlockEnd(0, item.block, _changed(item, whole)))

    # Texts.

    def add_text(self, event: Json, type: str, key: TextKey, text: str) -> None:
        """A delta of an item of this type."""
        item = self._find(event, type)
        if item is None or not text:
            return
        if item.ended:
            self._sink.repair("block-start-missing", text_of(event.get("type")))
            if item.call >= 0:
                return  # the item had all arguments
        if self.has_gap and self._sink.whole and not item.ended:
            item.buffered.setdefault(key, []).append(text)
            return
        head = item.heads.pop(key, "")
        if head and not (head.startswith(text) or text.startswith(head)):
            self._emit(item, key, head)
        self._emit(item, key, text)

    def note_text(self, text: str) -> None:
        """Continue the text that is open, of which the fast path has read more."""
        item = self._speaking
        assert item is not None
        key = item.thinking or item.part
        assert key is not None
        item.texts.setdefault(key, RunningText()).add(text.encode())

    def settle_text(self, event: Json, type: str, key: TextKey, whole: str) -> None:
        """A text is whole."""
        item = self._find(event, type)
        if item is not None and not (item.ended and item.call >= 0):  # an item that has ended had all arguments
            self._settle(item, key, whole)

    def add_part(self, event: Json, type: str, key: TextKey, text: str) -> None:
        """A part of a message, or of a summary, is announced."""
        item = self._find(event, type)
        if item is None or item.ended:
            return
        for other in [other for other in item.heads if other != key]:
            self._settle(item, other, item.heads[other])  # its deltas have come, or will not
        if text:
            item.heads[key] = text
        self._speak(item, key)

    def finish_part(self, event: Json, part: Json) -> None:
        """A part of a message is whole."""
        item = self._find(event, "message")
        if item is not None and not item.ended:
            self._settle_part(item, integer_of(event.get("content_index")) or 0, part)

    def annotate(self, event: Json, annotation: object) -> None:
        """A citation in a text."""
        item = self._find(event, "message")
        if item is None or item.ended:
            return
        if not isinstance(annotation, dict):
            self._sink.repair("delta-unknown", text_of(event.get("type")))
            return
        number = integer_of(event.get("content_index")) or 0
        self._speak(item, TextKey("text", number))
        self._cite(item, number, annotation)

    def keep_logprobs(self, fields: Json) -> None:
        """Keep the log probabilities of the text that follows, which are beside it in these fields."""
        logprobs = fields.get("logprobs")
        if isinstance(logprobs, list) and logprobs:
            self._sink.events.append(Extra("choice", {"logprobs": {"content": logprobs}}, 0))

    def _find(self, event: Json, type: str) -> _OutputItem | None:
        """The item that an event of a text belongs to; None where it cannot belong to any."""
        index, id = integer_of(event.get("output_index")), event.get("item_id")
        if index is None:
            self._sink.repair("block-index-missing")
            item = self._without_index(id)
        else:
            item = self._at.get(index)
        if item is not None and item.type == type:
            self._check_id(item, id)
            if item.type in _CALLS and item.call < 0:
                return None  # its name is not known yet
            return item
        if item is not None:
            self._sink.repair("delta-in-wrong-block", f"{type} in an item of {item.type}")
            if not item.ended:
                self._end(item, {})
        else:
            self._sink.repair("block-start-missing", text_of(event.get("type")))
        index = len(self._order) if index is None else index
        if type in _CALLS:
            self._unnamed.add(index)
            return None
        return self._new(index, {"type": type, "id": text_of(id)}, announced=True)

    def _without_index(self, id: object) -> _OutputItem | None:
        """The item of an event without an index: by its id, or else the one that came last, if it is open."""
        last = self._order[-1] if self._order else None
        return (self._by_id.get(id) if isinstance(id, str) else None) or (last if last and not last.ended else None)

    def _end_texts(self, item: _OutputItem, whole: Json) -> None:
        """The end of a message or of reasoning."""
        for key, text in list(item.heads.items()):
            if not self._has_time_for(_PART_US):
                return
            self._settle(item, key, text)
        if item.type == "message":
            for number, part in enumerate(self.objects_of(whole.get("content"))):
                if not self._has_time_for(_PART_US):
                    return
                self._settle_part(item, number, part)
        else:
            for key, text in self._texts_of(whole):
                if not self._has_time_for(_PART_US):
                    return
                self._settle(item, key, text)
            for part in (*objects_of(whole.get("summary")), *objects_of(whole.get("content"))):
                self._keep_members(item, part)
        self._emit_buffered(item)
        self._emit_halves(item)
        if item.block < 0:
            self._speak(item, TextKey("text" if item.type == "message" else "reasoning"))
        seal = whole.get("encrypted_content")
        if item.type == "reasoning" and isinstance(seal, str) and seal:
            self._sink.events.append(Seal(0, item.block, SEAL_SCHEME, seal))
        if self._speaking is item:
            self._speaking = None
            self._sink.events.append(BlockEnd(0, item.block, _changed(item, whole)))

    def _settle_part(self, item: _OutputItem, number: int, part: Json) -> None:
        type = text_of(part.get("type"))
        known = _PARTS.get(type)
        if known is None:
            self._keep_part(item, part)
            return
        field, member = known
        key = TextKey(field, number)
        text = part.get(member)
        if isinstance(text, str):
            if key not in item.texts:
                self.keep_logprobs(part)
            self._settle(item, key, text)
        if key not in item.texts:
            self._speak(item, key)
            item.texts[key] = RunningText()
        self._keep_members(item, part)
        annotations = self.objects_of(part.get("annotations"))
        for annotation in annotations[item.cited.get(number, 0) :]:
            if not self._has_time_for(_ANNOTATION_US):
                return
            self._cite(item, number, annotation)

    def _keep_members(self, item: _OutputItem, part: Json) -> None:
        """Keep the members of a part that have no event of their own."""
        if others := unread(part, _PART):
            self._sink.events.append(Extra("delta", others, 0, block=item.block if item.block >= 0 else None))

    def _keep_part(self, item: _OutputItem, part: Json) -> None:
        """A part of an unknown type is kept as a message of its own."""
        self._stop_speaking()
        block = item.block = self._next_block()
        whole: Json = {"type": "message", "id": item.id, "role": "assistant", "status": "completed", "content": [part]}
        self._sink.events += [BlockStart(0, block, "opaque", item.id or None, "message", whole), BlockEnd(0, block)]

    def _settle(self, item: _OutputItem, key: TextKey, whole: str) -> None:
        """Emit what the deltas of a text lack (rule 3)."""
        running = item.texts.get(key) or RunningText()
        rest = running.rest_of(whole)
        item.heads.pop(key, None)
        item.buffered.pop(key, None)
        if rest is None and self.has_gap:
            self._sink.fault("delta-lost", f"a delta of the {key.field} is missing: the whole text is another one")
        elif rest is None:
            self._sink.repair("text-differs", key.field)
        elif rest:
            half = self._joiner.halves.pop((item.place, str(key)), "")
            if item.announced and self.in_stream and not (half and rest == REPLACEMENT):
                self._sink.repair("deltas-missing", key.field)
            self._emit(item, key, rest)

    def _emit_buffered(self, item: _OutputItem) -> None:
        """Emit deltas whose text never came as a whole."""
        buffered, item.buffered = item.buffered, {}
        for key, pieces in buffered.items():
            self._emit(item, key, "".join(pieces))

    def flush(self) -> None:
        """Emit halves of surrogate pairs that are buffered: the rest of the texts will not be read."""
        for item in self._order:
            self._emit_halves(item)

    def _emit_halves(self, item: _OutputItem) -> None:
        for key in list(item.texts) if self._joiner.halves else ():
            self._emit(item, key, "", more=False)

    def _emit(self, item: _OutputItem, key: TextKey, text: str, *, more: bool = True) -> None:
        """Emit a piece of a text."""
        running = item.texts.get(key)
        if running is None:
            if len(item.texts) >= _MAX_TEXTS:
                self._sink.fault("event-too-complex", f"an output item has more than {_MAX_TEXTS} texts")
                return
            running = item.texts[key] = RunningText()
        if self.surrogates:
            text = self._joiner.join((item.place, str(key)), text, self._sink, more=more)
        if not text:
            return
        data = text.encode(errors="surrogatepass")
        running.add(data)
        events = self._sink.events
        if key.field == "arguments":
            if item.scan is None:
                item.scan = JsonScan()
            item.scan.feed(data)
            events.append(ToolCallDelta(0, item.call, text))
            return
        self._speak(item, key)
        match key.field:
            case "text":
                events.append(TextDelta(0, text))
            case "refusal":
                events.append(RefusalDelta(0, text))
            case "summary":
                item.summaries += item.thinking != key
                item.thinking = key
                events.append(ReasoningDelta(0, text, part=item.summaries - 1))
            case "reasoning":
                item.thinking = key
                events.append(ReasoningDelta(0, text))

    def _speak(self, item: _OutputItem, key: TextKey) -> None:
        """Open the block of a text, unless it is open."""
        part = key if item.type == "message" else None
        if self._speaking is item and item.part == part:
            return
        self._stop_speaking()
        if self._blocks >= _MAX_ITEMS:
            self._sink.fault("event-too-complex", f"the answer has more than {_MAX_ITEMS} parts")
            return
        item.block, item.part = self._next_block(), part
        self._speaking = item
        kind: Literal["text", "refusal", "reasoning"] = "reasoning"
        if item.type == "message":
            kind = "refusal" if key.field == "refusal" else "text"
        self._sink.events.append(BlockStart(0, item.block, kind, item.id or None, item.type, item.rest or None))

    def _stop_speaking(self) -> None:
        if self._speaking is not None:
            self._sink.events.append(BlockEnd(0, self._speaking.block))
            self._speaking = None

    def _cite(self, item: _OutputItem, number: int, annotation: Json) -> None:
        item.cited[number] = item.cited.get(number, 0) + 1
        start, end = annotation.get("start_index"), annotation.get("end_index")
        self._sink.events.append(
            Annotation(
                0,
                item.block,
                url=text_of(annotation.get("url")),
                title=text_of(annotation.get("title")) or text_of(annotation.get("filename")),
                start=start if isinstance(start, int) else None,
                end=end if isinstance(end, int) else None,
                data=annotation,
            )
        )

    def _texts_of(self, item: Json) -> Iterator[tuple[TextKey, str]]:
        """The texts of a whole message, or of whole reasoning."""
        match item.get("type"):
            case "message":
                for number, part in enumerate(self.objects_of(item.get("content"))):
                    known = _PARTS.get(text_of(part.get("type")))
                    if known is not None:
                        yield TextKey(known[0], number), text_of(part.get(known[1]))
            case "reasoning":
                for field, member in _REASONING_TEXTS:
                    for number, part in enumerate(self.objects_of(item.get(member))):
                        yield TextKey(field, number), text_of(part.get("text"))
            case _:
                pass


def _rest(type: str, item: Json) -> Json:
    """The members that have no event of their own."""
    known = _KNOWN.get(type)
    rest = {name: value for name, value in item.items() if name not in known} if known is not None else {}
    if rest.get("phase", "") is None:
        del rest["phase"]  # a message has a phase, or none
    return rest


def _changed(item: _OutputItem, whole: Json) -> Json | None:
    """What is known of an item only at its end."""
    rest = _rest(item.type, whole)
    changed = {name: value for name, value in rest.items() if name not in item.rest or item.rest[name] != value}
    if whole.get("status") not in _USUAL_STATUSES:
        changed["status"] = whole["status"]
    return changed or None
