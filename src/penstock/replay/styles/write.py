r"""Writes an answer the way a named provider writes it, with its peculiarities and its defects.

    from penstock.replay.styles import write_in_style
    from penstock.replay.styles.catalog import load_style

    for event in write_in_style(answer.completion, load_style("groq")):
        print(event)  # b'data: {"id":"chatcmpl-…","object":"chat.completion.chunk",…}\n\n'

The text of a completion is split into words. The events of a recorded stream keep their boundaries, and its provider
fields are written again where the style has such fields; all others are left out. A stream in its own style is
reproduced exactly, except for what the reader does not keep: comments, empty chunks, and nulls that only some models
send.
"""

import re
from collections.abc import Iterable
from typing import TypeAlias

from msgspec import UNSET, Struct

from penstock.core.dialects.registry import DEFAULT_DIALECT
from penstock.core.hub.completion import Completion
from penstock.core.hub.events import End, Event, Fault
from penstock.core.json_text import write_json
from penstock.replay.styles.chunks import ChunkContent, ToolCallPiece, chunk_contents
from penstock.replay.styles.framing import frame
from penstock.replay.styles.made_up import make_value, padding
from penstock.replay.styles.recorded import RecordedStream, events_of, group_events
from penstock.replay.styles.style import ChatStyle, ProviderStyle, StyleField
from penstock.replay.styles.translate import translate, write_body_in_dialect, write_in_dialect
from penstock.replay.styles.usage import usage_fields

_KIND = "chat.completion.chunk"
_Object: TypeAlias = dict[str, object]


def write_in_style(
    answer: Completion | Iterable[Event],
    style: ProviderStyle,
    *,
    include_usage: bool = True,
    recorded_as: str = DEFAULT_DIALECT,
) -> list[bytes]:
    """Write an answer as a stream in that style: a list of events, each as its bytes on the wire.

    `include_usage` is whether the client requests the usage with `stream_options`; some providers always send it.
    `recorded_as` is the dialect that the answer was read from. An answer that was not completed ends as it did: with
    the provider's error, or without any ending.
    """
    events = events_of(answer) if isinstance(answer, Completion) else list(answer)
    if not isinstance(style, ChatStyle):
        return write_in_dialect(events, style, recorded_as, include_usage=include_usage)
    if recorded_as != style.dialect:
        events = translate(events, style, recorded_as)
    return _StyledWriter(group_events(events), style, include_usage=include_usage).events()


def write_unstreamed(
    answer: Completion | Iterable[Event], style: ProviderStyle, *, recorded_as: str = DEFAULT_DIALECT
) -> bytes:
    """Write a completed answer as a body without streaming. Only its ids depend on the style, not on the dialect."""
    events = events_of(answer) if isinstance(answer, Completion) else list(answer)
    return write_body_in_dialect(events, style, recorded_as)


def write_error_in_style(message: str, code: str, style: ProviderStyle) -> bytes:
    """The event with which a provider of that style reports an error inside a stream."""
    return write_in_style([Fault(code, message, 0, 1), End("failed")], style)[-1]


class _ChunkContext(Struct, frozen=True):
    """What the rows of one chunk depend on: its tags, and the seed of its generated values."""

    tags: frozenset[str]
    seed: str


class _StyledWriter:
    """Writes one answer in one style."""

    def __init__(self, recorded: RecordedStream, style: ChatStyle, *, include_usage: bool) -> None:
        self._recorded = recorded
        self._style = style
        self._include_usage = include_usage
        self._roles = {group.choice: group.role for group in recorded.groups if group.role is not None}
        start = recorded.start
        self._created = start.created or 0
        self._id = start.id
        if not re.fullmatch(style.ids.fits, start.id):
            self._id = make_value(style.ids.form, f"{start.id} {start.model}", created=self._created)

    def events(self) -> list[bytes]:
        """All events in order, framed."""
        style, recorded = self._style, self._recorded
        bodies = [
            self._chunk(content, number)
            for number, content in enumerate(chunk_contents(recorded, style, include_usage=self._include_usage))
        ]
        if style.preamble:
            preamble = _ChunkContext(frozenset(), self._id)
            bodies.insert(0, self._object(style.preamble, preamble, {}, recorded.first_extras))
        payloads = [("", write_json(body, style.json)) for body in bodies]
        if recorded.fault is not None:
            payloads.append((style.error.event, write_json(self._error(recorded.fault), style.json)))
        return frame(payloads, style.framing, completed=recorded.end.ending == "completed", defects=recorded.repairs)

    def _chunk(self, content: ChunkContent, number: int) -> _Object:
        style = self._style
        context = _ChunkContext(frozenset(content.tags), f"{self._id} {number}")
        known: _Object = {
            "id": self._id,
            "object": _KIND,
            "created": self._created,
            "model": self._recorded.start.model,
            "choices": [] if content.choice is None else [self._choice(content, context)],
        }
        usage = self._usage(context.tags)
        if usage is not None:
            known["usage"] = usage
        stale = {row.name for row in style.chunk if row.fresh} - content.own_extras
        extras = {name: value for name, value in content.extras.items() if name not in stale}
        chunk = self._object(style.chunk, context, known, extras)
        for row in style.chunk:
            if row.pad and row.name in chunk and row.name not in extras:
                chunk[row.name] = self._padding(chunk | {row.name: ""}, row.pad, context.seed)
        return chunk

    def _padding(self, chunk: _Object, pad: tuple[int, int], seed: str) -> str:
        multiple, over = pad
        line = self._style.framing.data + write_json(chunk, self._style.json)
        return padding((over - len(line.encode(errors="replace"))) % multiple, seed)

    def _usage(self, tags: frozenset[str]) -> _Object | None:
        usage, style = self._recorded.usage, self._style.usage
        if usage is None:
            return None
        if tags.intersection(style.figures):
            return usage_fields(usage, style)
        return usage_fields(usage, style, zeros=True) if tags.intersection(style.zeros) else None

    def _choice(self, content: ChunkContent, context: _ChunkContext) -> _Object:
        known: _Object = {"index": content.choice, "delta": self._delta(content, context)}
        if content.finish is not None:
            known["finish_reason"] = content.finish.reason
            known["native_finish_reason"] = content.finish.native or content.finish.reason
        return self._object(self._style.choice, context, known, content.choice_extras)

    def _delta(self, content: ChunkContent, context: _ChunkContext) -> _Object:
        texts = {"content": content.text, "refusal": content.refusal, "reasoning": content.reasoning}
        known: _Object = {name: text for name, text in texts.items() if text is not None}
        if content.reasoning is not None:
            known[self._style.reasoning] = content.reasoning
        if content.reasoning is not None and self._style.reasoning == "content":
            known["content"] = [{"type": "thinking", "thinking": [{"type": "text", "text": content.reasoning}]}]
        known["role"] = self._roles.get(content.choice, "assistant")
        if content.calls:
            known["tool_calls"] = [self._call(piece, context) for piece in content.calls]
        delta = self._object(self._style.delta, context, known, content.delta_extras)
        legacy = [piece for piece in content.calls if piece.start.kind == "function_call"]
        if legacy:
            return _renamed(delta, "tool_calls", "function_call") | {
                "function_call": self._function(legacy[0], context)
            }
        return delta

    def _call(self, piece: ToolCallPiece, context: _ChunkContext) -> _Object:
        start = piece.start
        number = (start.choice, start.call)
        known: _Object = {
            "index": start.call,
            "id": start.id or make_value(self._style.ids.call, f"{self._id} call {number}"),
            "type": start.kind,
            "function": self._function(piece, context),
        }
        extras = self._recorded.call_extras.get(number, {}) if piece.begins else {}
        return _renamed(self._object(self._style.call, context, known, extras), "function", start.kind)

    def _function(self, piece: ToolCallPiece, context: _ChunkContext) -> _Object:
        known: _Object = {"name": piece.start.name, "arguments": piece.arguments}
        function = self._object(self._style.function, context, known, {})
        return _renamed(function, "arguments", "input") if piece.start.kind == "custom" else function

    def _error(self, fault: Fault) -> _Object:
        known: _Object = {"message": fault.message, "code": fault.code}
        context = _ChunkContext(frozenset(), self._id)
        return self._object(self._style.error.fields, context, known, {"error": fault.provider})

    def _object(
        self,
        rows: tuple[StyleField, ...],
        context: _ChunkContext,
        known: _Object,
        recorded: object,
        *,
        inner: bool = False,
    ) -> _Object:
        """The object that the rows describe; `inner` if it is a field of another object."""
        fields = recorded if isinstance(recorded, dict) else {}
        written: _Object = {}
        for row in rows:
            if row.name in written or not row.fits(context.tags):
                continue
            value = self._value(row, context, known, fields, inner=inner)
            if value is not UNSET:
                written[row.name] = value
        return written

    def _value(
        self, row: StyleField, context: _ChunkContext, known: _Object, recorded: _Object, *, inner: bool
    ) -> object:
        name = row.of or row.name
        if name in known and not inner:
            return known[name]
        if row.fields and not isinstance(recorded.get(row.name), list):
            if row.optional and row.name not in recorded:
                return UNSET
            value = self._object(row.fields, context, known, recorded.get(row.name), inner=True)
            return [value] if row.listed else value
        if row.name in recorded and not (recorded[row.name] is None and row.of in known):
            return recorded[row.name]
        if row.of in known:
            return known[row.of]
        if row.optional:
            return UNSET
        if row.form:
            seed = context.seed if row.fresh else f"{self._id} {row.name}"
            return make_value(row.form, seed, created=self._created)
        return row.value


def _renamed(fields: _Object, old: str, new: str) -> _Object:
    """The fields with one of them renamed, in the same position."""
    return {(new if name == old else name): value for name, value in fields.items()}
