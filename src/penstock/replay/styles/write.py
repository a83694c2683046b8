r"""Mimicry: an answer written the way a named provider writes it, its habits and its defects included.

    from penstock.replay.styles import mimic
    from penstock.replay.styles.catalog import manner

    for event in mimic(answer.completion, manner("groq")):
        print(event)  # b'data: {"id":"chatcmpl-…","object":"chat.completion.chunk",…}\n\n'

A completion is cut into words. The events of a recorded stream keep their cuts, and the provider fields among them are
written again where the manner has such fields; all others are left out. In its own manner a stream comes back as it
was, but for what no reader keeps: comments, empty chunks, nulls that some models send and others do not.
"""

import re
from collections.abc import Iterable
from typing import TypeAlias

from msgspec import UNSET, Struct

from penstock.core.completion import Completion
from penstock.core.events import End, Event, Fault
from penstock.core.json_text import write_json
from penstock.replay.styles.chunks import ChunkContent, ToolCallPiece, units
from penstock.replay.styles.framing import frame
from penstock.replay.styles.made_up import mint, padding
from penstock.replay.styles.recorded import RecordedStream, events_of, gather
from penstock.replay.styles.style import ProviderStyle, StyleField
from penstock.replay.styles.usage import usage_in

_KIND = "chat.completion.chunk"
_Object: TypeAlias = dict[str, object]


def mimic(said: Completion | Iterable[Event], manner: ProviderStyle, *, include_usage: bool = True) -> list[bytes]:
    """The events of a stream that says this in that manner, each as it stands on the wire.

    `include_usage` is whether the client asks for the usage with `stream_options`; some providers send it unasked. What
    is not completed ends as it did: with the provider's error, or with nothing at all.
    """
    recorded = gather(events_of(said) if isinstance(said, Completion) else said)
    return _StyledWriter(recorded, manner, asked=include_usage).events()


def mimic_error(message: str, code: str, manner: ProviderStyle) -> bytes:
    """The event with which a provider of that manner breaks off its stream."""
    return mimic([Fault(code, message, 0, 1), End("failed")], manner)[-1]


class _Chunk(Struct, frozen=True):
    """What the rows of one chunk are filled with: its tags, and a seed for what is made up."""

    tags: frozenset[str]
    seed: str


class _StyledWriter:
    """One answer, being written in one manner."""

    def __init__(self, recorded: RecordedStream, manner: ProviderStyle, *, asked: bool) -> None:
        self._recorded = recorded
        self._manner = manner
        self._asked = asked
        self._roles = {group.choice: group.role for group in recorded.groups if group.role is not None}
        start = recorded.start
        self._created = start.created or 0
        self._id = start.id
        if not re.fullmatch(manner.ids.fits, start.id):
            self._id = mint(manner.ids.form, f"{start.id} {start.model}", created=self._created)

    def events(self) -> list[bytes]:
        """Every event, in order, framed."""
        manner, recorded = self._manner, self._recorded
        bodies = [self._chunk(unit, number) for number, unit in enumerate(units(recorded, manner, asked=self._asked))]
        if manner.preamble:
            nothing = _Chunk(frozenset(), self._id)
            bodies.insert(0, self._object(manner.preamble, nothing, {}, recorded.first_extras))
        payloads = [("", write_json(body, manner.json)) for body in bodies]
        if recorded.fault is not None:
            payloads.append((manner.error.event, write_json(self._error(recorded.fault), manner.json)))
        return frame(payloads, manner.framing, completed=recorded.end.ending == "completed", defects=recorded.repairs)

    def _chunk(self, unit: ChunkContent, number: int) -> _Object:
        manner = self._manner
        here = _Chunk(frozenset(unit.tags), f"{self._id} {number}")
        known: _Object = {
            "id": self._id,
            "object": _KIND,
            "created": self._created,
            "model": self._recorded.start.model,
            "choices": [] if unit.choice is None else [self._choice(unit, here)],
        }
        usage = self._usage(here.tags)
        if usage is not None:
            known["usage"] = usage
        stale = {row.name for row in manner.chunk if row.fresh} - unit.told
        extras = {name: value for name, value in unit.extras.items() if name not in stale}
        chunk = self._object(manner.chunk, here, known, extras)
        for row in manner.chunk:
            if row.pad and row.name in chunk and row.name not in extras:
                chunk[row.name] = self._padding(chunk | {row.name: ""}, row.pad, here.seed)
        return chunk

    def _padding(self, chunk: _Object, pad: tuple[int, int], seed: str) -> str:
        multiple, over = pad
        line = self._manner.framing.data + write_json(chunk, self._manner.json)
        return padding((over - len(line.encode(errors="replace"))) % multiple, seed)

    def _usage(self, tags: frozenset[str]) -> _Object | None:
        usage, manner = self._recorded.usage, self._manner.usage
        if usage is None:
            return None
        if tags.intersection(manner.figures):
            return usage_in(usage, manner)
        return usage_in(usage, manner, zeros=True) if tags.intersection(manner.zeros) else None

    def _choice(self, unit: ChunkContent, here: _Chunk) -> _Object:
        known: _Object = {"index": unit.choice, "delta": self._delta(unit, here)}
        if unit.finish is not None:
            known["finish_reason"] = unit.finish.reason
            known["native_finish_reason"] = unit.finish.native or unit.finish.reason
        return self._object(self._manner.choice, here, known, unit.choice_extras)

    def _delta(self, unit: ChunkContent, here: _Chunk) -> _Object:
        said = {"content": unit.text, "refusal": unit.refusal, "reasoning": unit.reasoning}
        known: _Object = {name: text for name, text in said.items() if text is not None}
        if unit.reasoning is not None:
            known[self._manner.reasoning] = unit.reasoning
        if unit.reasoning is not None and self._manner.reasoning == "content":
            known["content"] = [{"type": "thinking", "thinking": [{"type": "text", "text": unit.reasoning}]}]
        known["role"] = self._roles.get(unit.choice, "assistant")
        if unit.calls:
            known["tool_calls"] = [self._call(piece, here) for piece in unit.calls]
        delta = self._object(self._manner.delta, here, known, unit.delta_extras)
        legacy = [piece for piece in unit.calls if piece.start.kind == "function_call"]
        if legacy:
            return _renamed(delta, "tool_calls", "function_call") | {"function_call": self._function(legacy[0], here)}
        return delta

    def _call(self, piece: ToolCallPiece, here: _Chunk) -> _Object:
        start = piece.start
        number = (start.choice, start.call)
        known: _Object = {
            "index": start.call,
            "id": start.id or mint(self._manner.ids.call, f"{self._id} call {number}"),
            "type": start.kind,
            "function": self._function(piece, here),
        }
        extras = self._recorded.call_extras.get(number, {}) if piece.begins else {}
        return _renamed(self._object(self._manner.call, here, known, extras), "function", start.kind)

    def _function(self, piece: ToolCallPiece, here: _Chunk) -> _Object:
        known: _Object = {"name": piece.start.name, "arguments": piece.arguments}
        function = self._object(self._manner.function, here, known, {})
        return _renamed(function, "arguments", "input") if piece.start.kind == "custom" else function

    def _error(self, fault: Fault) -> _Object:
        known: _Object = {"message": fault.message, "code": fault.code}
        here = _Chunk(frozenset(), self._id)
        return self._object(self._manner.error.fields, here, known, {"error": fault.provider})

    def _object(
        self, rows: tuple[StyleField, ...], here: _Chunk, known: _Object, recorded: object, *, inner: bool = False
    ) -> _Object:
        """The object that the rows describe; `inner` if it is a field of another."""
        found = recorded if isinstance(recorded, dict) else {}
        written: _Object = {}
        for row in rows:
            if row.name in written or not row.fits(here.tags):
                continue
            value = self._value(row, here, known, found, inner=inner)
            if value is not UNSET:
                written[row.name] = value
        return written

    def _value(self, row: StyleField, here: _Chunk, known: _Object, recorded: _Object, *, inner: bool) -> object:
        name = row.of or row.name
        if name in known and not inner:
            return known[name]
        if row.fields and not isinstance(recorded.get(row.name), list):
            if row.optional and row.name not in recorded:
                return UNSET
            value = self._object(row.fields, here, known, recorded.get(row.name), inner=True)
            return [value] if row.listed else value
        if row.name in recorded and not (recorded[row.name] is None and row.of in known):
            return recorded[row.name]
        if row.of in known:
            return known[row.of]
        if row.optional:
            return UNSET
        if row.form:
            seed = here.seed if row.fresh else f"{self._id} {row.name}"
            return mint(row.form, seed, created=self._created)
        return row.value


def _renamed(fields: _Object, old: str, new: str) -> _Object:
    """The fields with one of them under another name, at the same place."""
    return {(new if name == old else name): value for name, value in fields.items()}
