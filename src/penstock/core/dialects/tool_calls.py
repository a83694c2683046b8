"""Which tool call a piece belongs to, in the OpenAI chat dialect.

A healthy stream numbers its calls: `index` says which one, `id` and `name` come once, arguments follow in pieces. Real
ones leave the index out, use 0 for all, let it drift, repeat or drop ids. The owner of a piece is found thus:

| the piece has | its owner |
|---|---|
| an id that a call has | that call (a new one, if another index and name come with whole arguments behind) |
| a new id and a name | a new call, also where the index is taken |
| a new id and no name | the call of that index, whose id stays |
| no id, an index that is taken | that call; a new one if a name comes and the call's arguments are whole |
| no id, no index that is known, a name | a new call, unless it repeats the name of a call still unfinished |
| neither | the last call, if no other is unfinished |

Where two unfinished calls could own a piece, it is refused: a wrong guess would run a tool with another's arguments.

A call is told when its name, its id and its first argument are known, at the latest when the next call begins or the
stream ends; then at once, piece by piece.
"""

import json
from typing import Literal, TypeAlias

from penstock.core.dialects.getters import integer_of, shown, text_of
from penstock.core.events import Extra, ToolCallDelta, ToolCallStart, ToolKind
from penstock.core.sink import Sink
from penstock.core.wire.scan import JsonScan

_Owner: TypeAlias = Literal["new call", "unknown"]

# A call whose id never comes is not held forever.
_MAX_HELD_CHARACTERS = 65_536
# Far above what any model calls at once; bounds what one stream may hold in memory.
_MAX_CALLS = 1000


class _Call:
    """One call of a choice, as far as it is known."""

    __slots__ = (
        "extras",
        "held",
        "held_size",
        "id",
        "index",
        "kind",
        "name",
        "number",
        "pieces",
        "scan",
        "sole_piece",
        "told",
    )

    def __init__(self, number: int, index: int | None, kind: ToolKind) -> None:
        self.number = number
        self.index = index
        self.kind: ToolKind = kind
        self.id: str | None = None
        self.name = ""
        self.scan = JsonScan()
        self.told = False
        self.held: list[str] = []
        self.held_size = 0
        self.extras: list[dict[str, object]] = []
        self.pieces = 0
        self.sole_piece = ""

    @property
    def unfinished(self) -> bool:
        """Whether its arguments began and are not whole."""
        return self.scan.started and not self.scan.whole

    def repeats(self, id: str, name: str, arguments: str) -> bool:
        """Whether a piece says again, whole, what this call is."""
        return self.scan.whole and (id, name, arguments) == (self.id, self.name, self.sole_piece)


class ToolCalls:
    """The tool calls of one choice."""

    def __init__(self, choice: int) -> None:
        self._choice = choice
        self._calls: list[_Call] = []
        self._by_index: dict[int, _Call] = {}
        self._by_id: dict[str, _Call] = {}
        self._contested: set[int] = set()

    def read(self, piece: dict[str, object], sink: Sink) -> None:
        """Take in one item of `tool_calls`."""
        index = _index(piece.pop("index", None), sink)
        id = text_of(piece.pop("id", None))
        kind: ToolKind = "custom" if piece.pop("type", None) == "custom" or "custom" in piece else "function"
        body = piece.pop("custom" if kind == "custom" else "function", None)
        fields = dict(body) if isinstance(body, dict) else {}
        name = text_of(fields.pop("name", None))
        arguments = _arguments(fields.pop("input" if kind == "custom" else "arguments", None), sink)
        if arguments is None or (body is not None and not isinstance(body, dict)):
            sink.fault("bad-shape", f"a tool call's arguments are neither text nor an object: {shown(body)}")
            return
        call = self._owner(index, id, name, arguments, sink)
        if call == "unknown":
            sink.fault("tool-call-ambiguous", f"a piece without id could belong to several calls: {shown(arguments)}")
            return
        if call == "new call":
            if len(self._calls) == _MAX_CALLS:
                sink.fault("bad-shape", f"more than {_MAX_CALLS} tool calls")
                return
            call = self._open(index, kind, sink)
        elif arguments and call.repeats(id, name, arguments):
            sink.repair("tool-id-repeated", id)
            return
        self._identify(call, id, name, sink)
        extras = {key: value for key, value in (piece | fields).items() if value is not None}
        self._add(call, arguments, extras, sink)

    def read_legacy(self, piece: dict[str, object], sink: Sink) -> None:
        """Take in a `function_call`: the one call of a choice, without index and id."""
        name = text_of(piece.pop("name", None))
        arguments = _arguments(piece.pop("arguments", None), sink)
        if arguments is None:
            sink.fault("bad-shape", "a function call's arguments are neither text nor an object")
            return
        call = self._calls[-1] if self._calls else self._open(0, "function_call", sink)
        self._identify(call, "", name, sink)
        self._add(call, arguments, {key: value for key, value in piece.items() if value is not None}, sink)

    def tell_held(self, sink: Sink) -> None:
        """Tell the calls that were held, if they have a name."""
        for call in self._calls:
            if not call.told and call.name:
                self._tell(call, sink)

    def close(self, sink: Sink, *, finished: bool) -> None:
        """No more pieces will come: tell what was held, and which arguments are not whole."""
        for call in self._calls:
            if not call.told:
                self._tell(call, sink)
            if finished and call.kind != "custom" and (call.unfinished or call.scan.closed > 1):
                sink.repair("tool-arguments-broken", call.name)

    def _owner(self, index: int | None, id: str, name: str, arguments: str, sink: Sink) -> _Call | _Owner:
        """The call that the piece belongs to, as the table above says."""
        at_index = self._by_index.get(index) if index is not None else None
        known = self._by_id.get(id)
        if known is not None:
            return self._owner_of_known_id(known, index, name, arguments, sink)
        if at_index is not None:
            return self._owner_of_taken_index(at_index, id, name, sink)
        last = self._calls[-1] if self._calls else None
        if last is None or id or (name and not (last.name == name and last.unfinished)):
            return "new call"
        if any(call.unfinished for call in self._calls if call is not last):
            return "unknown"
        if last.scan.whole and arguments.strip():
            return "unknown"
        if index is not None:
            sink.repair("tool-index-drifting", str(index))
        return last

    def _owner_of_known_id(
        self, known: _Call, index: int | None, name: str, arguments: str, sink: Sink
    ) -> _Call | _Owner:
        same_index = index is None or known.index in (index, None)
        again = same_index and arguments == known.sole_piece
        if name and known.scan.whole and arguments.strip() and not again:
            sink.repair("tool-id-duplicate", known.id or "")
            return "new call"
        if not same_index:
            sink.repair("tool-index-drifting", str(index))
        return known

    def _owner_of_taken_index(self, call: _Call, id: str, name: str, sink: Sink) -> _Call | _Owner:
        if id and call.id is None and not call.told and name in ("", call.name):
            return call  # its id comes late
        if name and call.name and (id or call.scan.whole or name != call.name):
            sink.repair("tool-index-reused", id or name)
            if call.unfinished and call.index is not None:
                self._contested.add(call.index)
            return "new call"
        if not id and not name and call.index in self._contested:
            return "unknown"
        return call

    def _open(self, index: int | None, kind: ToolKind, sink: Sink) -> _Call:
        if self._calls and not self._calls[-1].told:
            self._tell(self._calls[-1], sink)
        call = _Call(len(self._calls), index, kind)
        self._calls.append(call)
        if index is not None:
            if index != call.number and index not in self._by_index:
                sink.repair("tool-index-renumbered", f"{index} is {call.number}")
            self._by_index[index] = call
        return call

    def _identify(self, call: _Call, id: str, name: str, sink: Sink) -> None:
        """Set the call's id and name, each once."""
        if id:
            if call.id is None and not call.told:
                call.id = id
                self._by_id.setdefault(id, call)
            else:
                sink.repair("tool-id-repeated" if call.id == id else "tool-id-changed", id)
        if name:
            if not call.name:
                call.name = name
            else:
                if name != call.name and not call.told:
                    call.name += name
                sink.repair("tool-name-repeated", name)

    def _add(self, call: _Call, arguments: str, extras: dict[str, object], sink: Sink) -> None:
        if arguments:
            call.pieces += 1
            call.sole_piece = arguments if call.pieces == 1 and len(arguments) <= _MAX_HELD_CHARACTERS else ""
            call.scan.feed(arguments.encode(errors="replace"))
        if call.told:
            if extras:
                sink.events.append(Extra("tool", extras, self._choice, call.number))
            if arguments:
                sink.events.append(ToolCallDelta(self._choice, call.number, arguments))
            return
        if extras:
            call.extras.append(extras)
        if arguments:
            call.held.append(arguments)
            call.held_size += len(arguments)
        known = call.name and (call.id or call.kind == "function_call" or call.held_size > _MAX_HELD_CHARACTERS)
        if known and call.held:
            self._tell(call, sink)

    def _tell(self, call: _Call, sink: Sink) -> None:
        call.told = True
        if not call.name:
            sink.fault("tool-call-unnamed", f"tool call {call.number} has no name: {shown(''.join(call.held))}")
            return
        if call.id is None and call.kind != "function_call":
            sink.repair("tool-id-missing", call.name)
        sink.events.append(ToolCallStart(self._choice, call.number, call.id, call.name, call.kind))
        for extras in call.extras:
            sink.events.append(Extra("tool", extras, self._choice, call.number))
        if call.held:
            sink.events.append(ToolCallDelta(self._choice, call.number, "".join(call.held)))
        call.held = []


def _index(value: object, sink: Sink) -> int | None:
    if type(value) is int:
        return value
    if value is None:
        sink.repair("tool-index-missing")
        return None
    sink.repair("tool-index-mistyped", shown(value))
    return integer_of(value)


def _arguments(value: object, sink: Sink) -> str | None:
    """The arguments as text; None where they are of no readable type."""
    match value:
        case str():
            return value
        case None:
            return ""
        case dict():
            sink.repair("tool-arguments-object")
            return json.dumps(value, ensure_ascii=False)
        case _:
            return None
