"""Emulated tool calls, for a model whose chat template has no tools.

A JSON schema constrains the model to write a JSON object, and the object is read as a tool call:

| `tool_choice` | the model must write |
|---|---|
| a tool's name | `{"name": …, "arguments": {…}}` of this tool |
| `required` | the same, of any tool |
| `auto`, or none given | the same, or `{"answer": …}` |
| `auto`, after the result of a tool | any text: otherwise small models would call tools forever |
| `none`, or no tools | any text |

The system message describes the tools. Tool calls and results of earlier turns become text that the template supports.
The output is streamed: the name of a tool as soon as it is complete, its arguments piece by piece, and an answer as the
text inside its quotes. Output that matches none of this is passed on as text.
"""

import json
import re
from typing import Any

from penstock.core.hub.events import Event, Finish, TextDelta, ToolCallDelta, ToolCallStart
from penstock.core.reader_decorator import ReaderDecorator
from penstock.core.stream import EventReader
from penstock.core.wire.scan import JsonScan

_CALL = re.compile(r'\s*\{\s*"name"\s*:\s*("(?:[^"\\]|\\.)*")\s*,\s*"arguments"\s*:\s*(?=\S)')
_ANSWER = re.compile(r'\s*\{\s*"answer"\s*:\s*(?=\S)')
# The most text that is buffered while it may still become a tool call: longer than any valid name needs.
_MAX_HEAD = 1_000
_STRING = re.compile(r'(?:[^"\\]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*')
# A high surrogate at the end: the first half of a character that JSON escapes as two.
_HIGH_SURROGATE = re.compile(r"\\u[dD][89abAB][0-9a-fA-F]{2}\Z")
_FIELDS = ("tools", "tool_choice", "parallel_tool_calls", "functions", "function_call")
_PARAGRAPH = """You have these functions:
{tools}
To call one, reply with JSON: {{"name": the function, "arguments": {{its arguments}}}}."""
_OR_ANSWER = ' If none of them helps, reply with JSON: {"answer": your answer}.'


class ToolsError(ValueError):
    """The tools of a request cannot be used; the message is the reason."""


def emulate(fields: dict[str, Any]) -> tuple[dict[str, Any], bool]:
    """The fields of a request for a model without tools, and whether its answer must be parsed for tool calls."""
    plain = {name: value for name, value in fields.items() if name not in _FIELDS}
    plain["messages"] = _plain_messages(fields["messages"])
    tools, may_answer = _allowed_tools(fields)
    if not tools:
        return plain, False
    paragraph = _PARAGRAPH.format(tools="\n".join(_describe(tool) for tool in tools))
    plain["messages"] = with_system(plain["messages"], paragraph + (_OR_ANSWER if may_answer else ""))
    schema = _schema(tools, _answer_schema(fields) if may_answer else None)
    plain["response_format"] = {"type": "json_schema", "json_schema": {"name": "call", "schema": schema}}
    for name in ("logprobs", "top_logprobs"):
        plain.pop(name, None)  # they would describe the JSON, which the client does not see
    return plain, True


def with_system(messages: list[Any], text: str) -> list[Any]:
    """The messages with text added to the system message, or with a new system message first."""
    for index, message in enumerate(messages):
        if isinstance(message, dict) and message.get("role") in ("system", "developer"):
            extended = {**message, "content": f"{_text(message.get('content'))}\n\n{text}"}
            return [*messages[:index], extended, *messages[index + 1 :]]
    return [{"role": "system", "content": text}, *messages]


def has_system(messages: list[Any]) -> bool:
    """Whether there is a system message."""
    return any(isinstance(each, dict) and each.get("role") in ("system", "developer") for each in messages)


class EmulatedToolReader(ReaderDecorator):
    """Reads a stream in which tool calls are written as JSON text. `id` is the prefix of the tool calls' ids."""

    def __init__(self, reader: EventReader, id: str) -> None:
        super().__init__(reader)
        self._id = id
        self._parsers: dict[int, _ToolCallParser] = {}

    def _convert(self, events: list[Event]) -> list[Event]:
        converted: list[Event] = []
        for event in events:
            if isinstance(event, TextDelta):
                converted += self._parser(event.choice).write(event.text)
            elif isinstance(event, Finish):
                parser = self._parser(event.choice)
                converted += parser.close()
                called = parser.called and event.reason == "stop"
                converted.append(Finish(event.choice, "tool_calls" if called else event.reason, event.native))
            else:
                converted.append(event)
        return converted

    def _parser(self, choice: int) -> "_ToolCallParser":
        parser = self._parsers.get(choice)
        if parser is None:
            parser = self._parsers[choice] = _ToolCallParser(choice, f"{self._id}_{choice}")
        return parser


class _ToolCallParser:
    """Parses the text of one choice, incrementally, as a tool call, an answer, or plain text.

    The states: `head` until the kind is known; `json` inside the arguments; `string` inside the quotes of an answer;
    `text` for plain text; `over` after the object, whose rest is dropped.
    """

    def __init__(self, choice: int, id: str) -> None:
        self._choice = choice
        self._id = id
        self._state = "head"
        self._buffer = ""
        self._scan = JsonScan()
        self.called = False

    def write(self, text: str) -> list[Event]:
        """Read more text; return the events that it completes."""
        self._buffer += text
        converted: list[Event] = []
        state = ""
        while self._buffer and state != self._state:
            state = self._state
            converted += getattr(self, f"_in_{state}")()
        return converted

    def close(self) -> list[Event]:
        """End the text: what is still buffered is plain text."""
        text, self._buffer = self._buffer, ""
        return [TextDelta(self._choice, text)] if text and self._state in ("head", "text") else []

    def _in_head(self) -> list[Event]:
        if match := _CALL.match(self._buffer):
            self._buffer = self._buffer[match.end() :]
            self._state = "json"
            self.called = True
            return [ToolCallStart(self._choice, 0, self._id, json.loads(match[1], strict=False))]
        if match := _ANSWER.match(self._buffer):
            rest = self._buffer[match.end() :]
            self._state = "string" if rest.startswith('"') else "json"
            self._buffer = rest.removeprefix('"')
        elif len(self._buffer) > _MAX_HEAD or self._buffer.lstrip()[:1] not in ("", "{"):
            self._state = "text"
        return []

    def _in_text(self) -> list[Event]:
        text, self._buffer = self._buffer, ""
        return [TextDelta(self._choice, text)]

    def _in_string(self) -> list[Event]:
        match = _STRING.match(self._buffer)
        assert match is not None  # it may be empty
        whole = match[0]
        ended = self._buffer.startswith('"', match.end())
        if half := None if ended else _HIGH_SURROGATE.search(whole):
            whole = whole[: half.start()]  # its second half has not arrived yet
        self._buffer = self._buffer[len(whole) :]
        if ended:
            self._state = "over"
        text = json.loads(f'"{whole}"', strict=False).encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        return [TextDelta(self._choice, text)] if text else []

    def _in_json(self) -> list[Event]:
        data = self._buffer.encode()
        end = self._scan.advance(data, 0)
        if self._scan.closed:
            self._state = "over"
        self._buffer = data[end:].decode()
        text = data[:end].decode()
        return [ToolCallDelta(self._choice, 0, text) if self.called else TextDelta(self._choice, text)]

    def _in_over(self) -> list[Event]:
        self._buffer = ""
        return []


def _allowed_tools(fields: dict[str, Any]) -> tuple[list[dict[str, Any]], bool]:
    """The functions that the model may call, and whether it may answer instead."""
    if fields.get("functions"):
        raise ToolsError("this model takes `tools`, and no `functions`")
    given = fields.get("tools") or []
    choice = fields.get("tool_choice") or "auto"
    if not isinstance(given, list) or not all(isinstance(tool, dict) for tool in given):
        raise ToolsError("`tools` must be a list of objects")
    functions = [tool.get("function") for tool in given if tool.get("type", "function") == "function"]
    tools = [tool for tool in functions if isinstance(tool, dict) and isinstance(tool.get("name"), str)]
    if len(tools) < len(given):
        raise ToolsError("this model takes functions only, each with a name, as `tools`")
    if isinstance(choice, dict):
        function = choice.get("function")
        name = function.get("name") if isinstance(function, dict) else None
        chosen = [tool for tool in tools if tool["name"] == name]
        if not chosen:
            raise ToolsError("`tool_choice` names no function of `tools`")
        return chosen, False
    if choice == "required":
        if not tools:
            raise ToolsError("`tool_choice` is required, and there are no `tools`")
        return tools, False
    if choice not in ("auto", "none"):
        raise ToolsError("`tool_choice` must be none, auto, required or the name of a function")
    last = fields["messages"][-1] if fields["messages"] else None
    answered = isinstance(last, dict) and last.get("role") in ("tool", "function")
    return ([] if choice == "none" or answered else tools), True


def _describe(tool: dict[str, Any]) -> str:
    known = {name: tool[name] for name in ("name", "description", "parameters") if name in tool}
    return json.dumps(known, ensure_ascii=False)


def _answer_schema(fields: dict[str, Any]) -> dict[str, Any]:
    """The schema of an answer: a string, or the request's own `response_format`."""
    match fields.get("response_format"):
        case {"type": "json_schema", "json_schema": {"schema": dict(schema)}}:
            return schema
        case {"type": "json_object"}:
            return {"type": "object"}
        case _:
            return {"type": "string"}


def _schema(tools: list[dict[str, Any]], answer: dict[str, Any] | None) -> dict[str, Any]:
    """The schema of everything that the model may write. Its parts are in `$defs`, with their references adjusted."""
    parts = [tool.get("parameters") or {"type": "object", "properties": {}} for tool in tools]
    options = [
        _object({"name": {"const": tool["name"]}, "arguments": {"$ref": f"#/$defs/part{number}"}})
        for number, tool in enumerate(tools)
    ]
    if answer is not None:
        options.append(_object({"answer": {"$ref": f"#/$defs/part{len(parts)}"}}))
        parts.append(answer)
    defined = {f"part{number}": _with_root(part, f"#/$defs/part{number}") for number, part in enumerate(parts)}
    return {"$defs": defined, "anyOf": options}


def _object(properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


def _with_root(schema: Any, root: str) -> Any:
    """A copy of a schema for another place, with its references to itself adjusted."""
    if isinstance(schema, list):
        return [_with_root(item, root) for item in schema]
    if not isinstance(schema, dict):
        return schema
    copied = {name: _with_root(value, root) for name, value in schema.items()}
    reference = schema.get("$ref")
    if isinstance(reference, str) and reference.startswith("#"):
        copied["$ref"] = root + reference[1:]
    return copied


def _plain_messages(messages: list[Any]) -> list[Any]:
    """The messages with tool calls and results written as text."""
    names: dict[object, str] = {}
    plain: list[Any] = []
    for message in messages:
        match message:
            case {"role": "assistant", "tool_calls": [*calls]}:
                lines = [_text(message.get("content"))] if message.get("content") else []
                for call in calls:
                    if isinstance(call, dict) and isinstance(function := call.get("function"), dict):
                        names[call.get("id")] = str(function.get("name"))
                        lines.append(_describe_call(function))
                plain.append({"role": "assistant", "content": "\n".join(lines)})
            case {"role": "tool" | "function", "content": content}:
                name = names.get(message.get("tool_call_id")) or message.get("name") or "the function"
                ask = "" if message is not messages[-1] else "\nNow answer my question."
                plain.append({"role": "user", "content": f"The result of {name} is: {_text(content)}{ask}"})
            case _:
                plain.append(message)
    return plain


def _describe_call(function: dict[str, Any]) -> str:
    """An earlier call as a sentence: if it were JSON, a small model would only repeat it."""
    arguments = function.get("arguments")
    given = arguments if isinstance(arguments, str) and arguments.strip() else "{}"
    return f"I will call {function.get('name')} with {given}."


def _text(content: object) -> str:
    """The text of a message, whose content is a string or a list of parts."""
    if isinstance(content, list):
        parts = [part.get("text") for part in content if isinstance(part, dict)]
        return "\n".join(part for part in parts if isinstance(part, str))
    return content if isinstance(content, str) else ""
