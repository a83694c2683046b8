"""Tools for a model whose template has none: it is made to write a JSON object, and the object is read as a call.

What is asked, by `tool_choice`:

| `tool_choice` | the model must write |
|---|---|
| a tool's name | `{"name": …, "arguments": {…}}` of this tool |
| `required` | the same, of any tool |
| `auto`, or none given | the same, or `{"answer": …}` |
| `auto`, after the result of a tool | whatever it likes: else small models would call for ever |
| `none`, or no tools | whatever it likes |

The tools are described to it in the system message, and a JSON schema holds it to them; calls and results of earlier
turns become text that its template can show. What it writes is told as it comes: the name as soon as it is whole, the
arguments piece by piece, an answer as the text inside its quotes. What fits none of this is told as it is.
"""

import json
import re
from typing import Any

from penstock.core.events import Event, Finish, TextDelta, ToolCallDelta, ToolCallStart
from penstock.core.stream import EventReader, Failed
from penstock.core.wire.scan import JsonScan

_CALL = re.compile(r'\s*\{\s*"name"\s*:\s*("(?:[^"\\]|\\.)*")\s*,\s*"arguments"\s*:\s*(?=\S)')
_ANSWER = re.compile(r'\s*\{\s*"answer"\s*:\s*(?=\S)')
# Longer than any beginning of a call with a name that is one.
_MAX_HEAD = 1_000
_STRING = re.compile(r'(?:[^"\\]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*')
# The first half of a character that JSON writes as two.
_FIRST_HALF = re.compile(r"\\u[dD][89abAB][0-9a-fA-F]{2}\Z")
_FIELDS = ("tools", "tool_choice", "parallel_tool_calls", "functions", "function_call")
_PARAGRAPH = """You have these functions:
{tools}
To call one, reply with JSON: {{"name": the function, "arguments": {{its arguments}}}}."""
_OR_ANSWER = ' If none of them helps, reply with JSON: {"answer": your answer}.'


class ToolsError(ValueError):
    """The tools of a request cannot be used; says why."""


def emulate(fields: dict[str, Any]) -> tuple[dict[str, Any], bool]:
    """The fields of a request for a model without tools, and whether its answer is to be read as calls."""
    plain = {name: value for name, value in fields.items() if name not in _FIELDS}
    plain["messages"] = _plain_messages(fields["messages"])
    tools, may_answer = _wanted(fields)
    if not tools:
        return plain, False
    paragraph = _PARAGRAPH.format(tools="\n".join(_described(tool) for tool in tools))
    plain["messages"] = with_system(plain["messages"], paragraph + (_OR_ANSWER if may_answer else ""))
    schema = _schema(tools, _answer_schema(fields) if may_answer else None)
    plain["response_format"] = {"type": "json_schema", "json_schema": {"name": "call", "schema": schema}}
    for name in ("logprobs", "top_logprobs"):
        plain.pop(name, None)  # of the JSON that nobody sees
    return plain, True


def with_system(messages: list[Any], text: str) -> list[Any]:
    """The messages with more said by the system: after what it says already, or first."""
    for index, message in enumerate(messages):
        if isinstance(message, dict) and message.get("role") in ("system", "developer"):
            said = {**message, "content": f"{_text(message.get('content'))}\n\n{text}"}
            return [*messages[:index], said, *messages[index + 1 :]]
    return [{"role": "system", "content": text}, *messages]


def has_system(messages: list[Any]) -> bool:
    """Whether the system says anything."""
    return any(isinstance(each, dict) and each.get("role") in ("system", "developer") for each in messages)


class EmulatedToolReader:
    """Reads a stream in which calls stand as JSON text. `id` is what the ids of calls begin with."""

    def __init__(self, reader: EventReader, id: str) -> None:
        self._reader = reader
        self._id = id
        self._scribes: dict[int, _ToolCallParser] = {}

    @property
    def done(self) -> bool:
        """Whether the provider has said that nothing more will come."""
        return self._reader.done

    @property
    def failed(self) -> Failed | None:
        """How far it had come when it failed, if it has."""
        return self._reader.failed

    @property
    def pending(self) -> int:
        """How much is known that is told at the end only."""
        return self._reader.pending

    @property
    def frames(self) -> int:
        """How many frames there were so far."""
        return self._reader.frames

    def feed(self, data: bytes) -> list[Event]:
        """Take in bytes; return the events that they complete."""
        return self._told(self._reader.feed(data))

    def close(self) -> list[Event]:
        """The bytes are over: return the last events."""
        return self._told(self._reader.close())

    def _told(self, events: list[Event]) -> list[Event]:
        told: list[Event] = []
        for event in events:
            if isinstance(event, TextDelta):
                told += self._scribe(event.choice).write(event.text)
            elif isinstance(event, Finish):
                scribe = self._scribe(event.choice)
                told += scribe.close()
                called = scribe.called and event.reason == "stop"
                told.append(Finish(event.choice, "tool_calls" if called else event.reason, event.native))
            else:
                told.append(event)
        return told

    def _scribe(self, choice: int) -> "_ToolCallParser":
        scribe = self._scribes.get(choice)
        if scribe is None:
            scribe = self._scribes[choice] = _ToolCallParser(choice, f"{self._id}_{choice}")
        return scribe


class _ToolCallParser:
    """Follows one choice: what it has written so far decides what it is."""

    def __init__(self, choice: int, id: str) -> None:
        self._choice = choice
        self._id = id
        self._state = "head"
        self._held = ""
        self._scan = JsonScan()
        self.called = False

    def write(self, text: str) -> list[Event]:
        """Take in more text."""
        self._held += text
        told: list[Event] = []
        state = ""
        while self._held and state != self._state:
            state = self._state
            told += getattr(self, f"_in_{state}")()
        return told

    def close(self) -> list[Event]:
        """Nothing more comes: what was held back is text after all."""
        held, self._held = self._held, ""
        return [TextDelta(self._choice, held)] if held and self._state in ("head", "text") else []

    def _in_head(self) -> list[Event]:
        if found := _CALL.match(self._held):
            self._held = self._held[found.end() :]
            self._state = "json"
            self.called = True
            return [ToolCallStart(self._choice, 0, self._id, json.loads(found[1], strict=False))]
        if found := _ANSWER.match(self._held):
            rest = self._held[found.end() :]
            self._state = "string" if rest.startswith('"') else "json"
            self._held = rest.removeprefix('"')
        elif len(self._held) > _MAX_HEAD or self._held.lstrip()[:1] not in ("", "{"):
            self._state = "text"
        return []

    def _in_text(self) -> list[Event]:
        held, self._held = self._held, ""
        return [TextDelta(self._choice, held)]

    def _in_string(self) -> list[Event]:
        found = _STRING.match(self._held)
        assert found is not None  # it may be empty
        whole = found[0]
        ended = self._held.startswith('"', found.end())
        if half := None if ended else _FIRST_HALF.search(whole):
            whole = whole[: half.start()]  # its second half is still to come
        self._held = self._held[len(whole) :]
        if ended:
            self._state = "over"
        text = json.loads(f'"{whole}"', strict=False).encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        return [TextDelta(self._choice, text)] if text else []

    def _in_json(self) -> list[Event]:
        data = self._held.encode()
        end = self._scan.advance(data, 0)
        if self._scan.closed:
            self._state = "over"
        self._held = data[end:].decode()
        text = data[:end].decode()
        return [ToolCallDelta(self._choice, 0, text) if self.called else TextDelta(self._choice, text)]

    def _in_over(self) -> list[Event]:
        self._held = ""
        return []


def _wanted(fields: dict[str, Any]) -> tuple[list[dict[str, Any]], bool]:
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


def _described(tool: dict[str, Any]) -> str:
    known = {name: tool[name] for name in ("name", "description", "parameters") if name in tool}
    return json.dumps(known, ensure_ascii=False)


def _answer_schema(fields: dict[str, Any]) -> dict[str, Any]:
    """What an answer looks like: text, or what the request asks for."""
    match fields.get("response_format"):
        case {"type": "json_schema", "json_schema": {"schema": dict(schema)}}:
            return schema
        case {"type": "json_object"}:
            return {"type": "object"}
        case _:
            return {"type": "string"}


def _schema(tools: list[dict[str, Any]], answer: dict[str, Any] | None) -> dict[str, Any]:
    """The schema of all that the model may write. Each part stands under `$defs`, and its references lead there."""
    parts = [tool.get("parameters") or {"type": "object", "properties": {}} for tool in tools]
    options = [
        _object({"name": {"const": tool["name"]}, "arguments": {"$ref": f"#/$defs/part{number}"}})
        for number, tool in enumerate(tools)
    ]
    if answer is not None:
        options.append(_object({"answer": {"$ref": f"#/$defs/part{len(parts)}"}}))
        parts.append(answer)
    defined = {f"part{number}": _moved(part, f"#/$defs/part{number}") for number, part in enumerate(parts)}
    return {"$defs": defined, "anyOf": options}


def _object(properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


def _moved(schema: Any, root: str) -> Any:
    """A schema that stands somewhere else, its references to itself with it."""
    if isinstance(schema, list):
        return [_moved(item, root) for item in schema]
    if not isinstance(schema, dict):
        return schema
    moved = {name: _moved(value, root) for name, value in schema.items()}
    reference = schema.get("$ref")
    if isinstance(reference, str) and reference.startswith("#"):
        moved["$ref"] = root + reference[1:]
    return moved


def _plain_messages(messages: list[Any]) -> list[Any]:
    """Messages with calls and results told as text."""
    names: dict[object, str] = {}
    plain: list[Any] = []
    for message in messages:
        match message:
            case {"role": "assistant", "tool_calls": [*calls]}:
                said = [_text(message.get("content"))] if message.get("content") else []
                for call in calls:
                    if isinstance(call, dict) and isinstance(function := call.get("function"), dict):
                        names[call.get("id")] = str(function.get("name"))
                        said.append(_written(function))
                plain.append({"role": "assistant", "content": "\n".join(said)})
            case {"role": "tool" | "function", "content": content}:
                name = names.get(message.get("tool_call_id")) or message.get("name") or "the function"
                ask = "" if message is not messages[-1] else "\nNow answer my question."
                plain.append({"role": "user", "content": f"The result of {name} is: {_text(content)}{ask}"})
            case _:
                plain.append(message)
    return plain


def _written(function: dict[str, Any]) -> str:
    """An earlier call, in words: shown as JSON, a small model only writes it again."""
    arguments = function.get("arguments")
    given = arguments if isinstance(arguments, str) and arguments.strip() else "{}"
    return f"I will call {function.get('name')} with {given}."


def _text(content: object) -> str:
    """The text of a message, in one piece or in several."""
    if isinstance(content, list):
        parts = [part.get("text") for part in content if isinstance(part, dict)]
        return "\n".join(part for part in parts if isinstance(part, str))
    return content if isinstance(content, str) else ""
