"""Assigns the pieces of tool calls to their calls, in the OpenAI chat dialect.

A healthy stream numbers its calls: `index` is the number, `id` and `name` come once, and the arguments follow in
pieces. Real streams leave the index out, use 0 for all calls, let it drift, and repeat or omit ids. The call that a
piece belongs to is found by this table. A call is *complete* when its arguments are complete JSON.

| the piece has | it belongs to |
|---|---|
| the id of a call | that call; a new one if the call is complete and the piece has a name and other arguments |
| a new id and a name | a new call, even if the index is used, unless the arguments can only continue that call |
| a new id and no name | the call with that index, which keeps its id |
| no id, the index of a call | that call; a new one if the piece has a name and the call is complete |
| no id, no known index, a name | a new call, unless it repeats the name of an incomplete call |
| no id, no known index, no name | the last call, if every other call is complete |

If two incomplete calls could own a piece, the stream fails: a wrong guess would run a tool with the arguments of
another. It also fails if a name changes after it was emitted, or if arguments come for a complete call that is not the
only one.

Google signs calls (`extra_content`). The signature is a seal before the call, and stays an extra of it for clients of
this dialect.

A call is buffered until its name, its id and its first argument are known, at the latest until the next call begins or
the stream ends. After that its pieces are emitted as they arrive.
"""

import json
from typing import Literal, TypeAlias

from penstock.core.hub.events import Extra, Repair, Seal, ToolCallDelta, ToolCallStart, ToolKind
from penstock.core.hub.seals import GOOGLE, call_signature
from penstock.core.hub.sink import Sink
from penstock.core.json.getters import integer_of, shown, text_of
from penstock.core.wire.payload import TextDecoder, TooComplexError, is_json
from penstock.core.wire.scan import JsonScan

_Owner: TypeAlias = Literal["new call", "unknown"]

# The maximum size of a buffered call, and of the arguments that are kept of a call that was emitted.
_MAX_BUFFERED_CHARACTERS = 16_384
# Far above what any model calls at once; limits the memory of one stream.
_MAX_CALLS = 1000
_MAX_BUFFERED_EXTRAS = 8
_OPENING = ("{", "[")
# The known members of a piece. An extra with one of these names is emitted under another name.
_KNOWN_KEYS = frozenset(("index", "id", "type", "function", "custom"))


class _PendingCall:
    """One call of a choice, so far."""

    __slots__ = ("arguments", "extras", "id", "index", "kind", "name", "number", "parsed", "reported", "scan", "size")

    def __init__(self, number: int, index: int | None, kind: ToolKind) -> None:
        self.number = number
        self.index = index
        self.kind: ToolKind = kind
        self.id: str | None = None
        self.name = ""
        self.scan = JsonScan()
        self.reported = False
        self.arguments: list[str] = []
        self.size = 0
        self.parsed: tuple[int, object] | None = None
        """The decoded arguments, and their length when they were decoded (a cache)."""
        self.extras: list[dict[str, object]] = []

    @property
    def whole(self) -> bool:
        """Whether its arguments are complete."""
        return self.scan.whole

    @property
    def unfinished(self) -> bool:
        """Whether its arguments have begun and are incomplete."""
        return self.scan.started and not self.scan.whole

    @property
    def broken(self) -> bool:
        """Whether its arguments are not JSON. Empty arguments are not broken: some providers omit an empty object."""
        if not self.scan.started or self.kind == "custom":
            return False
        if self.size <= _MAX_BUFFERED_CHARACTERS:
            return not is_json("".join(self.arguments).encode(errors="replace"))
        return not self.scan.whole or self.scan.closed > 1

    def add(self, arguments: str) -> None:
        """Add arguments."""
        self.size += len(arguments)
        if self.size <= _MAX_BUFFERED_CHARACTERS or not self.reported:
            self.arguments.append(arguments)
        self.scan.feed(arguments.encode(errors="replace"))

    def has_arguments(self, arguments: str) -> bool:
        """Whether its arguments are complete and equal to these."""
        if not self.scan.whole or self.size > _MAX_BUFFERED_CHARACTERS:
            return False
        known = "".join(self.arguments)
        if arguments == known:
            return True
        if self.parsed is None or self.parsed[0] != len(known):
            self.parsed = (len(known), _parsed(known))
        return _parsed(arguments) == self.parsed[1] is not None


class ToolCalls:
    """The tool calls of one choice."""

    def __init__(self, choice: int) -> None:
        self._choice = choice
        self._calls: list[_PendingCall] = []
        self._by_index: dict[int, _PendingCall] = {}
        self._by_id: dict[str, _PendingCall] = {}
        self._contested: set[int] = set()
        # The numbers of the calls whose arguments are incomplete, and of the calls that are buffered.
        self._partial: set[int] = set()
        self._unreported: set[int] = set()

    def read(self, piece: dict[str, object], sink: Sink) -> None:
        """Read one item of `tool_calls`."""
        index = _index(piece.pop("index", None), sink)
        id = text_of(piece.pop("id", None))
        custom = piece.pop("type", None) == "custom" or ("custom" in piece and "function" not in piece)
        kind: ToolKind = "custom" if custom else "function"
        body = piece.pop("custom" if kind == "custom" else "function", None)
        fields = dict(body) if isinstance(body, dict) else {}
        name = text_of(fields.pop("name", None))
        arguments = _arguments(fields.pop("input" if kind == "custom" else "arguments", None), sink)
        if arguments is None or (body is not None and not isinstance(body, dict)):
            self._fail("bad-shape", f"a tool call's arguments are neither text nor an object: {shown(body)}", sink)
            return
        call = self._owner(index, id, name, arguments, sink)
        if call == "unknown":
            self._fail(
                "tool-call-ambiguous", f"a piece without id could belong to several calls: {shown(arguments)}", sink
            )
            return
        if call == "new call":
            if len(self._calls) == _MAX_CALLS:
                self._fail("bad-shape", f"more than {_MAX_CALLS} tool calls", sink)
                return
            call = self._open(index, kind, sink)
        elif arguments and call.id and id in ("", call.id) and name == call.name and call.has_arguments(arguments):
            sink.repair("tool-id-repeated" if id else "tool-name-repeated", id or name)
            return
        elif arguments.strip() and self._is_past(call):
            self._fail("tool-call-ambiguous", f"arguments follow those of a complete call: {shown(arguments)}", sink)
            return
        if not self._identify(call, id, name, sink):
            return
        self._add(call, arguments, _extras(piece | fields), sink)

    def _is_past(self, call: _PendingCall) -> bool:
        """Whether the arguments of a call are complete, and those of another call have followed or are expected."""
        if call.kind == "custom" or not (call.scan.closed and call.whole):
            return False
        others = any(self._calls[number].kind != "custom" for number in self._partial)  # whose input is never JSON
        return others or call is not self._calls[-1]

    def read_more(self, index: int, arguments: str, sink: Sink) -> bool:
        """Read more arguments of a call that was emitted: the common case. For any other, return False."""
        call = self._by_index.get(index)
        if not arguments or call is None or not call.reported or call.kind != "function":
            return False
        # What this reads may be forwarded as it is, so the call must have the number that its client knows it by.
        if call.number != index or call.scan.whole or index in self._contested:
            return False
        self._extend(call, arguments)
        sink.events.append(ToolCallDelta(self._choice, call.number, arguments))
        return True

    def _extend(self, call: _PendingCall, arguments: str) -> None:
        call.add(arguments)
        if call.whole:
            self._partial.discard(call.number)
        else:
            self._partial.add(call.number)

    def read_legacy(self, piece: dict[str, object], sink: Sink) -> None:
        """Read a `function_call`: the only call of a choice, without index and id."""
        name = text_of(piece.pop("name", None))
        arguments = _arguments(piece.pop("arguments", None), sink)
        if arguments is None:
            self._fail("bad-shape", "a function call's arguments are neither text nor an object", sink)
            return
        call = self._calls[-1] if self._calls else self._open(0, "function_call", sink)
        if name and call.whole and not call.has_arguments(arguments):
            self._fail("tool-call-ambiguous", f"a second legacy function call: {shown(name)}", sink)
            return
        if name and call.whole:
            sink.repair("tool-name-repeated", name)
            return
        if not self._identify(call, "", name, sink):
            return
        self._add(call, arguments, _extras(piece), sink)

    def emit_pending(self, sink: Sink) -> None:
        """Emit the buffered calls that have a name."""
        for number in sorted(self._unreported):
            if self._calls[number].name:
                self._emit(self._calls[number], sink)

    def close(self, sink: Sink, *, finished: tuple[int, int] | None) -> None:
        """Emit the buffered calls, and a repair for each call of a finished choice whose arguments are broken.

        `finished` is the position of the choice's finish, or None.
        """
        for call in self._calls:
            if not call.reported:
                self._emit(call, sink)
            if finished is not None and call.broken:
                sink.events.append(Repair("tool-arguments-broken", *finished, call.name))

    def _owner(self, index: int | None, id: str, name: str, arguments: str, sink: Sink) -> _PendingCall | _Owner:
        """The call that the piece belongs to, by the table at the top of this file."""
        at_index = self._by_index.get(index) if index is not None else None
        known = self._by_id.get(id)
        if known is not None:
            return self._owner_of_known_id(known, index, name, arguments, sink)
        if at_index is not None:
            return self._owner_of_taken_index(at_index, id, name, arguments, sink)
        last = self._calls[-1] if self._calls else None
        if last is None or id or (name and not (last.name == name and last.unfinished)):
            return "new call"
        if len(self._partial) > (last.number in self._partial):
            return "unknown"
        if last.whole and arguments.strip():
            return "unknown"
        if index is not None:
            sink.repair("tool-index-drifting", str(index))
        return last

    def _owner_of_known_id(
        self, known: _PendingCall, index: int | None, name: str, arguments: str, sink: Sink
    ) -> _PendingCall | _Owner:
        again = name == known.name and known.has_arguments(arguments)
        elsewhere = index is not None and index not in self._by_index
        other = elsewhere and name != known.name
        if name and not again and (other or (known.whole and (arguments.strip() or elsewhere))):
            sink.repair("tool-id-duplicate", known.id or "")
            return "new call"
        if index is not None and known.index not in (index, None):
            sink.repair("tool-index-drifting", str(index))
        return known

    def _owner_of_taken_index(
        self, call: _PendingCall, id: str, name: str, arguments: str, sink: Sink
    ) -> _PendingCall | _Owner:
        if id and call.id is None and not call.reported and name in ("", call.name):
            return call  # its id comes late
        contested = call.index in self._contested
        if not name or not call.name:
            return "unknown" if contested else call
        if not id and name == call.name and call.id is not None and call.has_arguments(arguments):
            return call  # repeated
        if name == call.name and arguments and arguments.lstrip()[:1] not in _OPENING:
            if contested:
                return "unknown"
            if call.unfinished:
                return call  # these arguments can only continue the call, whatever the id
        if not id and name != call.name and not call.scan.started:
            return "unknown"  # the next part of the name, or another call
        if id or call.whole or name != call.name:
            sink.repair("tool-index-reused", id or name)
            if not call.whole and call.index is not None:
                self._contested.add(call.index)
            return "new call"
        return call

    def _fail(self, code: str, message: str, sink: Sink) -> None:
        """Emit the buffered calls and a fault: the stream has failed here."""
        self.emit_pending(sink)
        sink.fault(code, message)

    def _open(self, index: int | None, kind: ToolKind, sink: Sink) -> _PendingCall:
        if self._calls and not self._calls[-1].reported:
            self._emit(self._calls[-1], sink)
        call = _PendingCall(len(self._calls), index, kind)
        self._calls.append(call)
        self._partial.add(call.number)
        self._unreported.add(call.number)
        if index is not None:
            if index != call.number and index not in self._by_index:
                sink.repair("tool-index-renumbered", f"{index} is {call.number}")
            self._by_index[index] = call
        return call

    def _identify(self, call: _PendingCall, id: str, name: str, sink: Sink) -> bool:
        """Set the call's id and name, each once; return False if the name contradicts the one that was emitted."""
        if id:
            if call.id is None and not call.reported:
                call.id = id
                self._by_id.setdefault(id, call)
            else:
                sink.repair("tool-id-repeated" if call.id == id else "tool-id-changed", id)
        if name and not call.name:
            call.name = name
        elif name:
            if name != call.name:
                if call.reported:
                    self._fail(
                        "tool-call-ambiguous", f"the name of a call changes from {call.name!r} to {name!r}", sink
                    )
                    return False
                call.name += name
            sink.repair("tool-name-repeated", name)
        return True

    def _add(self, call: _PendingCall, arguments: str, extras: dict[str, object], sink: Sink) -> None:
        if arguments:
            self._extend(call, arguments)
        if call.reported:
            if extras:
                sink.events.append(Extra("tool", extras, self._choice, call.number))
            if arguments:
                sink.events.append(ToolCallDelta(self._choice, call.number, arguments))
            return
        if extras:
            call.extras.append(extras)
        known = call.name and (call.id or call.kind == "function_call")
        full = call.size > _MAX_BUFFERED_CHARACTERS or len(call.extras) > _MAX_BUFFERED_EXTRAS
        if (known and call.arguments) or full:
            self._emit(call, sink)

    def _emit(self, call: _PendingCall, sink: Sink) -> None:
        self._unreported.discard(call.number)
        if not call.name:
            call.reported = True
            sink.fault("tool-call-unnamed", f"tool call {call.number} has no name: {shown(''.join(call.arguments))}")
            return
        if call.id is None and call.kind != "function_call":
            sink.repair("tool-id-missing", call.name)
        signature = next(filter(None, map(call_signature, call.extras)), "")
        if signature:
            sink.events.append(Seal(self._choice, None, GOOGLE, signature))
        sink.events.append(ToolCallStart(self._choice, call.number, call.id, call.name, call.kind))
        sink.events += [Extra("tool", extras, self._choice, call.number) for extras in call.extras]
        call.extras.clear()
        if call.arguments:
            sink.events.append(ToolCallDelta(self._choice, call.number, "".join(call.arguments)))
        if call.size > _MAX_BUFFERED_CHARACTERS:
            call.arguments.clear()
        call.reported = True


def _index(value: object, sink: Sink) -> int | None:
    if type(value) is int:
        return value
    if value is None:
        sink.repair("tool-index-missing")
        return None
    sink.repair("tool-index-mistyped", shown(value))
    return integer_of(value)


def _arguments(value: object, sink: Sink) -> str | None:
    """The arguments as text; None if they have another type than text or object."""
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


def _extras(fields: dict[str, object]) -> dict[str, object]:
    """The extras of a piece: what remains when the known members are removed."""
    rest = {f"other_{key}" if key in _KNOWN_KEYS else key: value for key, value in fields.items()}
    return {key: value for key, value in rest.items() if value is not None}


def _parsed(arguments: str) -> object:
    """The decoded arguments; None if they are not JSON."""
    try:
        return TextDecoder().decode(arguments)
    except (ValueError, TooComplexError):
        return None
