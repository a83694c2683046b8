"""Calls of tools that a model has written as text, in the formats of well-known models.

A server that does not know the format of its model passes such a call on as the text of the answer.

| code | text | written by |
|---|---|---|
| `model-call-tagged` | `<tool_call>{"name": …, "arguments": {…}}</tool_call>` | Hermes, Qwen |
| `model-call-listed` | `[TOOL_CALLS] [{"name": …, "arguments": {…}}]` | Mistral |
| `model-call-python-tag` | `<\\|python_tag\\|>{"name": …, "parameters": {…}}` | Llama 3 |
| `model-call-function-tag` | `<function=name>{…}</function>` | Llama 3 and 4 |
| `model-call-fenced` | a fence of `json` with such an object | small models of all kinds |

The JSON in it may have the mistakes that `core/json/model_json.py` reads. It is a call only if exactly one reading
names tools of the request with arguments that satisfy their schemas. Everything else stays text.
"""

import re
from collections.abc import Mapping
from typing import Literal, TypeAlias

import msgspec
from msgspec import Struct

from penstock.core.json.getters import object_of
from penstock.core.json.model_json import ModelJson
from penstock.core.json.schema_check import SchemaCheck, Verdict

Json: TypeAlias = dict[str, object]
Schemas: TypeAlias = Mapping[str, Json]
"""The schemas of the arguments, by the names of the tools."""
Growth: TypeAlias = Literal["more", "text"] | int

_ARGUMENTS = ("arguments", "parameters")
_KEYS = ("name", *_ARGUMENTS, "type", "function", "id")


class _CallFormat(Struct, frozen=True):
    """A format. `head` matches what may follow the opening, and any beginning of it; `closing` ends the call, without
    one the end of the text does."""

    code: str
    head: re.Pattern[str]
    closing: str = ""


def _beginning(word: str) -> str:
    """A pattern of a word, or of a beginning of it at the end of the text."""
    return "".join(rf"(?:\Z|{re.escape(character)}" for character in word) + ")" * len(word)


_OBJECT = r"(?:\Z|\{\s*+(?:\Z|\\?+(?:\Z|[\"'](?:" + "|".join(map(_beginning, _KEYS)) + "))))"
_ONE = re.compile(rf"\s*+{_OBJECT}")
_SEVERAL = re.compile(rf"\s*+(?:\Z|\[\s*+{_OBJECT}|{_OBJECT})")
_NAMED = re.compile(r"[\w.-]{0,64}+(?:\Z|>\s*+(?:\Z|\{))")
_FORMATS = {
    "<tool_call>": _CallFormat("model-call-tagged", _ONE, "</tool_call>"),
    "[TOOL_CALLS]": _CallFormat("model-call-listed", _SEVERAL),
    "<|python_tag|>": _CallFormat("model-call-python-tag", _ONE),
    "<function=": _CallFormat("model-call-function-tag", _NAMED, "</function>"),
    "```json": _CallFormat("model-call-fenced", _SEVERAL, "```"),
}
_OPENING = re.compile("|".join(map(re.escape, _FORMATS)))
_BEGINNINGS = frozenset(opening[:end] for opening in _FORMATS for end in range(1, len(opening)))
_LONGEST = max(map(len, _FORMATS))
_MAX_HEAD = 128


def find_opening(text: str) -> int:
    """Where a call may begin in the text, or at its end with the beginning of an opening; its length if nowhere."""
    match = _OPENING.search(text)
    if match is not None:
        return match.start()
    tails = range(max(0, len(text) - _LONGEST + 1), len(text))
    return next((start for start in tails if text[start:] in _BEGINNINGS), len(text))


class FoundCall(Struct, frozen=True):
    """One call that was found: the tool's name, and its arguments as JSON text."""

    name: str
    arguments: str


class _RawFunction(Struct):
    name: str = ""
    arguments: msgspec.Raw = msgspec.Raw()
    parameters: msgspec.Raw = msgspec.Raw()


class _RawCall(_RawFunction):
    function: msgspec.Raw = msgspec.Raw()


class WrittenCall:
    """Text that may be a call, as it grows."""

    _format: _CallFormat | None = None
    _opening = ""
    _tail = ""

    def __init__(self, schemas: Schemas) -> None:
        self.pieces: list[str] = []
        self._schemas = schemas
        self._head: str | None = ""

    def grow(self, piece: str) -> Growth:
        """Add more text. Returns whether more is needed, it is only text, or how much of the piece belongs to it."""
        self.pieces.append(piece)
        if self._head is not None:
            self._head += piece[:_MAX_HEAD]
            if not self._may_be_call(self._head):
                return "text"
            if len(self._head) >= _MAX_HEAD:
                self._head = None
        format = self._format
        if format is None or not format.closing:
            return "more"
        searched = self._tail + piece
        place = searched.find(format.closing, 0 if self._tail else len(self._opening))
        if place >= 0:
            return place + len(format.closing) - len(self._tail)
        self._tail = searched[1 - len(format.closing) :]
        return "more"

    def _may_be_call(self, head: str) -> bool:
        if self._format is None:
            match = _OPENING.match(head)
            if match is None:
                return head in _BEGINNINGS
            self._opening, self._format = match[0], _FORMATS[match[0]]
        name, end, _ = head[len(self._opening) :].partition(">")
        if self._format.head is _NAMED and end and name not in self._schemas:
            return False
        return self._format.head.match(head, len(self._opening)) is not None

    def read(self, json: ModelJson, check: SchemaCheck) -> tuple[list[FoundCall], tuple[str, ...]] | None:
        """The calls, and the codes of the repairs that they need; None if it is text."""
        if self._format is None:
            return None
        inside = "".join(self.pieces)[len(self._opening) :].rstrip().removesuffix(self._format.closing)
        name = ""
        if self._format.head is _NAMED:
            name, _, inside = inside.partition(">")
        reading = json.read(inside, lambda value: self._accepts(_calls_in(value, name), check))
        if reading is None:
            return None
        raw = msgspec.json.decode(reading.text, type=_RawCall | list[_RawCall] if not name else msgspec.Raw)
        return _raw_calls(raw, name), (self._format.code, *reading.codes)

    def _accepts(self, calls: list[tuple[str, object]], check: SchemaCheck) -> Verdict:
        """Whether all are calls of declared tools, with arguments that satisfy their schemas."""
        verdicts = [
            check.accepts(self._schemas[name], arguments)
            if name in self._schemas and isinstance(arguments, dict)
            else False
            for name, arguments in calls
        ]
        return False if not calls or False in verdicts else None if None in verdicts else True


def _calls_in(value: object, name: str) -> list[tuple[str, object]]:
    """The names and the arguments of the calls in a value; an empty name stands for what is no call."""
    if name:
        return [(name, value)]
    calls: list[tuple[str, object]] = []
    for each in value if isinstance(value, list) else [value]:
        call = object_of(each)
        call = object_of(call.get("function")) or call
        given = [call[member] for member in _ARGUMENTS if member in call]
        arguments = given[0] if len(given) == 1 else None
        called = call.get("name")
        if isinstance(arguments, str):
            arguments = _decoded(arguments)
        calls.append((called if isinstance(called, str) else "", arguments))
    return calls


def _decoded(text: str) -> object:
    """The value of arguments that are written as a string in the call, as in the API of chat completions."""
    try:
        return msgspec.json.decode(text)
    except (ValueError, RecursionError):
        return None


def _raw_calls(raw: "_RawCall | list[_RawCall] | msgspec.Raw", name: str) -> list[FoundCall]:
    """The calls in a JSON value, with the bytes of their arguments as they were written."""
    if isinstance(raw, msgspec.Raw):
        return [FoundCall(name, bytes(raw).decode())]
    found = []
    for each in raw if isinstance(raw, list) else [raw]:
        inner = bytes(each.function).startswith(b"{") and msgspec.json.decode(each.function, type=_RawFunction)
        function = inner if inner and inner.name else each
        arguments = bytes(function.arguments) or bytes(function.parameters)
        if arguments.startswith(b'"'):
            arguments = msgspec.json.decode(arguments, type=str).encode()
        found.append(FoundCall(function.name, arguments.decode()))
    return found
