"""ToolMap: names and forms for the tools of one request that every API accepts, and the way back.

Some APIs group tools in namespaces, and have custom tools, which take free text. Others have neither, and accept only
short names without special characters. For those a request is written with other names and forms:

- A tool of a namespace is called `namespace__name`.
- A name that is too long, or has other characters, is shortened and gets a digest (`core/hub/tool_ids.py`). So does one
  that another tool has already.
- A custom tool becomes a function with one argument, the text `input`.

Clients know their tools by their own names. So the answer is changed back: `ToolCallRestorer` gives calls their own
name, namespace and kind again, and takes the text of a custom tool out of its arguments as they arrive.
"""

import json
import re
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Literal

import msgspec
from msgspec import Struct, structs

from penstock.core.hub.content import ToolCall
from penstock.core.hub.events import BlockEnd, End, Event, Fault, Finish, ToolCallDelta, ToolCallStart, ToolKind
from penstock.core.hub.losses import Loss
from penstock.core.hub.request import Tool
from penstock.core.hub.tool_ids import portable
from penstock.core.wire.payload import TextDecoder, TooComplexError

_MAX_NAME = 64
_INPUT = "input"
TEXT_SCHEMA: Mapping[str, object] = MappingProxyType(
    {"type": "object", "properties": {_INPUT: {"type": "string"}}, "required": [_INPUT]}
)


class ClientTool(Struct, frozen=True):
    """A tool as the client knows it."""

    name: str
    namespace: str | None = None
    kind: ToolKind = "function"


class ToolMap:
    """The names of the tools of one request."""

    def __init__(self, tools: Iterable[Tool]) -> None:
        self._names: dict[tuple[str | None, str], str] = {}
        self._tools: dict[str, ClientTool] = {}
        own = [tool for tool in tools if tool.kind != "server"]
        for tool in sorted(own, key=lambda tool: _plain_name(tool.name, tool.namespace) != tool.name):
            key = (tool.namespace, tool.name)
            name = _plain_name(tool.name, tool.namespace)
            if name in self._tools and key not in self._names:
                name = portable(f"{tool.namespace or ''}\0{tool.name}", _MAX_NAME)
            self._names.setdefault(key, name)
            kind: ToolKind = "custom" if tool.kind == "custom" else "function"
            self._tools[self._names[key]] = ClientTool(tool.name, tool.namespace, kind)

    def name(self, name: str, namespace: str | None = None) -> str:
        """The name to write for a tool, or for a call in the conversation, whose tool may be gone."""
        return self._names.get((namespace, name)) or _plain_name(name, namespace)

    def chosen(self, name: str) -> str:
        """The name to write for the tool that a client chooses, which need not say its namespace."""
        names = (written for (_, own), written in self._names.items() if own == name)
        return self._names.get((None, name)) or next(names, "") or _plain_name(name, None)

    def changed(self) -> dict[str, ClientTool]:
        """The client's tools that have another name or form in the request, by their names in it."""
        return {name: tool for name, tool in self._tools.items() if tool.name != name or tool.kind != "function"}


def _plain_name(name: str, namespace: str | None) -> str:
    return portable(f"{namespace}__{name}" if namespace else name, _MAX_NAME)


def as_function(tool: Tool, losses: list[Loss]) -> Tool:
    """A custom tool as a function that takes its text. A grammar becomes a part of the description."""
    description = tool.description
    form = tool.format or {}
    if unknown := form.keys() - {"type", "syntax", "definition"}:
        losses.extend(Loss("tool-option-dropped", f"format.{name}") for name in unknown)
    if tool.format is not None and tool.format.get("type") == "grammar":
        losses.append(Loss("grammar-dropped", tool.name))
        syntax, definition = tool.format.get("syntax"), tool.format.get("definition")
        if isinstance(definition, str):
            grammar = f"`{_INPUT}` must match this grammar ({syntax}):\n{definition}"
            description = f"{description}\n\n{grammar}" if description else grammar
    return structs.replace(
        tool, kind="function", schema=dict(TEXT_SCHEMA), description=description, format=None, strict=None
    )


def json_arguments(arguments: str) -> str:
    """The arguments of a function; an empty object where models and clients wrote none: nothing, spaces or null."""
    return "{}" if arguments.strip() in ("", "null") else arguments


def arguments_of(call: ToolCall) -> str:
    """The arguments of a call as a function has them."""
    if call.kind != "custom":
        return json_arguments(call.arguments)
    return msgspec.json.encode({_INPUT: call.arguments}).decode()


class ToolCallRestorer:
    """Changes the tool calls of one answer back to what the client knows. `tools` is `ToolMap.changed`."""

    def __init__(self, tools: Mapping[str, ClientTool]) -> None:
        self._tools = tools
        self._decoder = TextDecoder()
        self._inputs: dict[tuple[int, int], _TextInput] = {}  # of custom tools, by choice and call
        self._blocks: dict[tuple[int, int], tuple[int, int]] = {}

    def restore(self, events: Iterable[Event]) -> list[Event]:
        """The events with the calls as the client knows them."""
        out: list[Event] = []
        for event in events:
            match event:
                case ToolCallStart(choice, call, name=name) if name in self._tools:
                    tool = self._tools[name]
                    out.append(structs.replace(event, name=tool.name, namespace=tool.namespace, kind=tool.kind))
                    if tool.kind == "custom":
                        self._inputs[choice, call] = _TextInput(self._decoder)
                        if event.block is not None:
                            self._blocks[choice, event.block] = (choice, call)
                case ToolCallDelta(choice, call, arguments) if (choice, call) in self._inputs:
                    text = self._inputs[choice, call].feed(arguments)
                    if text:
                        out.append(ToolCallDelta(choice, call, text))
                case BlockEnd(choice, block) if (choice, block) in self._blocks:
                    self._end(self._blocks.pop((choice, block)), out)
                    out.append(event)
                case Finish(choice):
                    for key in [key for key in self._inputs if key[0] == choice]:
                        self._end(key, out)
                    out.append(event)
                case Fault() | End():
                    for key in list(self._inputs):
                        self._end(key, out)
                    out.append(event)
                case _:
                    out.append(event)
        return out

    def _end(self, key: tuple[int, int], out: list[Event]) -> None:
        given = self._inputs.pop(key, None)
        text = given.close() if given is not None else ""
        if text:
            out.append(ToolCallDelta(*key, text))


# How the arguments begin. White space in it is rare, and long only by mistake.
_HEAD = re.compile(r'\s*\{\s*"input"\s*:\s*"')
_MAX_HEAD = 256
# What may continue at the end of a text: the first half of a surrogate pair, and the beginning of an escape sequence.
_OPEN_END = re.compile(r"(?:\\u[dD][89abAB][0-9a-fA-F]{2})?(?:\\(?:u[0-9a-fA-F]{0,3})?)?\Z")
_LONGEST_END = 11
# A backslash that begins no escape sequence. A text with more of them is not in JSON.
_LONE_BACKSLASH = re.compile(r"\\(?![/bfnrt]|u[0-9a-fA-F]{4})")
_MOST_LONE = 10_000
# In place of escape sequences that are found first, so that each other backslash begins one. No text has these halves.
_BACKSLASH, _QUOTE = "\ud800", "\ud801"
# Arguments of another form are collected, up to this length, and decoded as a whole.
_MAX_COLLECTED = 65_536


class _TextInput:
    """Decodes `{"input": "…"}` as it arrives. Arguments of another form are decoded at their end."""

    _state: Literal["head", "text", "collected", "undecoded", "over"] = "head"

    def __init__(self, decoder: TextDecoder) -> None:
        self._decoder = decoder
        self._rest = ""  # what is not decoded yet: the head, or the beginning of an escape sequence
        self._pieces: list[str] = []  # of arguments of another form
        self._size = 0

    def feed(self, arguments: str) -> str:
        """More of the arguments; returns more of the text."""
        match self._state:
            case "text":
                return self._decode(arguments)
            case "undecoded":
                return arguments
            case "over":
                return ""
            case "head":
                self._rest += arguments
                head = _HEAD.match(self._rest)
                if head is not None:
                    self._state, rest, self._rest = "text", self._rest[head.end() :], ""
                    return self._decode(rest)
                if len(self._rest) <= _MAX_HEAD:
                    return ""
                arguments, self._rest, self._state = self._rest, "", "collected"
            case "collected":
                pass
        self._pieces.append(arguments)
        self._size += len(arguments)
        if self._size <= _MAX_COLLECTED:
            return ""
        self._state = "undecoded"
        return "".join(self._pieces)

    def _decode(self, piece: str) -> str:
        piece, self._rest = self._rest + piece, ""
        text, quote, _ = piece.replace("\\\\", _BACKSLASH).replace('\\"', _QUOTE).partition('"')
        if not quote:
            end = _OPEN_END.search(text, max(0, len(text) - _LONGEST_END))
            assert end is not None  # the pattern matches the empty string
            text, self._rest = text[: end.start()], end[0]
        text, lone = _LONE_BACKSLASH.subn(r"\\\\", text, _MOST_LONE)
        if lone == _MOST_LONE:
            self._state, self._rest = "undecoded", ""
            return piece
        if quote:
            self._state = "over"
        return _unescaped(text.replace(_BACKSLASH, "\\\\").replace(_QUOTE, '\\"'))

    def close(self) -> str:
        """The rest of the text."""
        if self._state not in ("head", "collected"):
            return ""
        whole = self._rest or "".join(self._pieces)
        try:
            given = self._decoder.decode(whole)
        except (ValueError, TooComplexError):
            return whole
        if not isinstance(given, dict):
            return whole
        text = given.get(_INPUT) if _INPUT in given or len(given) != 1 else next(iter(given.values()))
        return text if isinstance(text, str) else whole if given else ""


def _unescaped(text: str) -> str:
    if "\\" not in text:
        return text
    try:
        return msgspec.json.decode(f'"{text}"', type=str)
    except ValueError:  # a raw control character, or half of a surrogate pair
        decoded: str = json.loads(f'"{text}"', strict=False)
    return decoded.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
