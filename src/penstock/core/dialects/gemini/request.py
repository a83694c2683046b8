"""Reads requests of the Gemini dialect: the fields of a body → `Request`.

Reading never fails: a part or a tool of an unknown shape is kept as an `OpaquePart`, or in `extras`. Members may have
names in camelCase or in snake_case.

Function calls and their results have no ids in most conversations; the API links them by name and order. So calls
without an id are numbered, and a result belongs to the first call of its name that has none yet.
"""

from collections.abc import Iterable, Mapping

import msgspec

from penstock.core.content import (
    MediaKind,
    MediaPart,
    OpaquePart,
    Part,
    ReasoningPart,
    TextPart,
    ToolCall,
    ToolResult,
)
from penstock.core.dialects.gemini.members import member, snake_case
from penstock.core.dialects.gemini.reader import NAME
from penstock.core.dialects.gemini.signatures import read_signature, standard_base64
from penstock.core.json_getters import integer_of, list_of, object_of, objects_of, text_of
from penstock.core.request import Message, ReasoningSettings, Request, ResponseFormat, Sampling, Tool, ToolChoice

_Json = dict[str, object]
# What Google's documentation names for calls that another model has made. They prove nothing.
_PLACEHOLDERS = ("skip_thought_signature_validator", "context_engineering_is_the_way_to_go")
_SAMPLING = {
    "temperature": "temperature",
    "topP": "top_p",
    "topK": "top_k",
    "seed": "seed",
    "presencePenalty": "presence_penalty",
    "frequencyPenalty": "frequency_penalty",
}
_CONFIG = (
    *_SAMPLING, "maxOutputTokens", "stopSequences", "candidateCount", "responseMimeType", "responseSchema",
    "responseJsonSchema", "thinkingConfig",
)  # fmt: skip
_TOP = (
    "contents", "systemInstruction", "tools", "toolConfig", "generationConfig", "serviceTier", "model", "labels",
    "stream",
)  # fmt: skip
_MODES = {"AUTO": "auto", "NONE": "none", "ANY": "required", "VALIDATED": "auto"}
_MAX_SCHEMA_DEPTH = 64


def read_request(fields: Mapping[str, object]) -> Request:
    """The request in neutral form."""
    config = object_of(member(fields, "generationConfig"))
    labels = object_of(fields.get("labels"))
    return Request(
        dialect=NAME,
        model=text_of(fields.get("model")),
        stream=fields.get("stream") is True,
        system=tuple(_texts(member(fields, "systemInstruction"))),
        turns=_read_contents(member(fields, "contents")),
        tools=tuple(_read_tools(member(fields, "tools"))),
        tool_choice=_read_choice(object_of(member(object_of(member(fields, "toolConfig")), "functionCallingConfig"))),
        max_output=integer_of(member(config, "maxOutputTokens")),
        choices=max(integer_of(member(config, "candidateCount")) or 1, 1),
        stop=tuple(word for word in list_of(member(config, "stopSequences")) if isinstance(word, str)),
        sampling=_read_sampling(config),
        format=_read_format(config),
        reasoning=_read_reasoning(object_of(member(config, "thinkingConfig"))),
        tier=text_of(member(fields, "serviceTier")).lower(),
        metadata={name: value for name, value in labels.items() if isinstance(value, str)},
        extras=_others(fields, _TOP)
        | {f"generationConfig.{name}": value for name, value in _others(config, _CONFIG).items()},
    )


def _others(holder: Mapping[str, object], known: tuple[str, ...]) -> _Json:
    names = {name for each in known for name in (each, snake_case(each))}
    return {name: value for name, value in holder.items() if name not in names and value is not None}


def _texts(content: object) -> Iterable[TextPart]:
    """The texts of the system prompt: a content, its parts, or a text."""
    if isinstance(content, str):
        return [TextPart(content)]
    parts = object_of(content).get("parts") if isinstance(content, dict) else content
    return [TextPart(text_of(part.get("text"))) for part in objects_of(_list(parts)) if part.get("text")]


def _list(value: object) -> list[object]:
    """A list, or the only item of one."""
    return value if isinstance(value, list) else [] if value is None else [value]


class _Calls:
    """The calls of a conversation, and those that have no result yet."""

    def __init__(self) -> None:
        self._count = 0
        self._open: list[tuple[str, str]] = []  # the id and the name of each

    def start(self, id: str, name: str) -> str:
        self._count += 1
        id = id or f"call_{self._count}"
        self._open.append((id, name))
        return id

    def answered(self, id: str, name: str) -> str:
        """The id of the call that a result belongs to."""
        found = next((call for call in self._open if (call[0] == id if id else call[1] == name)), None)
        if found is not None:
            self._open.remove(found)
            return found[0]
        return id or name


def _read_contents(contents: object) -> tuple[Message, ...]:
    calls = _Calls()
    turns: list[Message] = []
    for content in _list(contents):
        fields = object_of(content)
        role = "assistant" if fields.get("role") == "model" else "user"
        parts: list[Part] = [TextPart(content)] if isinstance(content, str) else []
        for part in _list(fields.get("parts")):
            parts += _read_part(part, calls)
        turns.append(Message("assistant" if role == "assistant" else "user", tuple(parts)))
    return tuple(turns)


def _read_part(part: object, calls: _Calls) -> list[Part]:
    """A part, and before it the signature that it has."""
    if isinstance(part, str):
        return [TextPart(part)]
    fields = object_of(part)
    signature = text_of(member(fields, "thoughtSignature"))
    seals = (read_signature(signature),) if signature and signature not in _PLACEHOLDERS else ()
    text = fields.get("text")
    if isinstance(text, str) and fields.get("thought") is True:
        return [ReasoningPart(text, seals=seals)]
    signed: list[Part] = [ReasoningPart(seals=seals)] if seals else []
    if isinstance(text, str):
        return [*signed, TextPart(text)] if text else signed
    return [*signed, _read_other(fields, calls)]


def _read_other(fields: _Json, calls: _Calls) -> Part:
    """A part that is no text."""
    call, result = object_of(member(fields, "functionCall")), object_of(member(fields, "functionResponse"))
    inline, file = object_of(member(fields, "inlineData")), object_of(member(fields, "fileData"))
    if call.get("name"):
        name = text_of(call["name"])
        arguments = msgspec.json.encode(call.get("args") or {}).decode()
        return ToolCall(calls.start(text_of(call.get("id")), name), name, arguments)
    if result:
        name = text_of(result.get("name"))
        id = calls.answered(text_of(result.get("id")), name)
        return _read_result(id, name, object_of(result.get("response")), result)
    holder = inline or file
    data, url, mime = (text_of(member(holder, name)) for name in ("data", "fileUri", "mimeType"))
    if data or url:
        name = text_of(member(holder, "displayName"))
        return MediaPart(kind=_kind(mime), mime=mime, name=name, data=standard_base64(data), url=url)
    kind = next((name for name in fields if name not in ("thoughtSignature", "thought_signature")), "")
    return OpaquePart(NAME, kind, fields)


def _read_result(id: str, name: str, response: _Json, result: _Json) -> ToolResult:
    """The result of a call. One that is only an output or an error is that text; any other is JSON."""
    media = [part for each in objects_of(result.get("parts")) if isinstance(part := _media(each), MediaPart)]
    is_error = set(response) == {"error"}
    only = next(iter(response.values())) if set(response) in ({"output"}, {"error"}, {"result"}) else response
    text = only if isinstance(only, str) else msgspec.json.encode(only).decode()
    return ToolResult(id, (TextPart(text), *media), is_error, name)


def _media(part: _Json) -> Part:
    return _read_other(part, _Calls())


def _kind(mime: str) -> MediaKind:
    match mime.partition("/")[0]:
        case "image":
            return "image"
        case "audio":
            return "audio"
        case "video":
            return "video"
        case _:
            return "file"


def _read_tools(tools: object) -> Iterable[Tool]:
    for tool in objects_of(_list(tools)):
        for name, value in tool.items():
            if name in ("functionDeclarations", "function_declarations"):
                yield from (_read_function(each) for each in objects_of(_list(value)))
            else:  # a tool that the provider executes
                yield Tool(name=name, kind="server", type=name, extras=object_of(value))


def _read_function(declaration: _Json) -> Tool:
    schema, subset = member(declaration, "parametersJsonSchema"), declaration.get("parameters")
    known = ("name", "description", "parameters", "parametersJsonSchema")
    return Tool(
        name=text_of(declaration.get("name")),
        description=text_of(declaration.get("description")),
        schema=schema if isinstance(schema, dict) else json_schema(subset) if isinstance(subset, dict) else None,
        extras=_others(declaration, known),
    )


def json_schema(schema: _Json, depth: int = 0) -> _Json:
    """A schema of the API's own subset of OpenAPI as JSON Schema: types in lower case, and no `nullable`."""
    if depth > _MAX_SCHEMA_DEPTH:
        return {}
    written: _Json = {}
    for name, value in schema.items():
        if name == "type" and isinstance(value, str):
            written[name] = value.lower()
        elif name == "properties" and isinstance(value, dict):
            written[name] = {
                key: json_schema(each, depth + 1) if isinstance(each, dict) else each for key, each in value.items()
            }
        elif name in ("anyOf", "any_of") and isinstance(value, list):
            written["anyOf"] = [json_schema(each, depth + 1) for each in objects_of(value)]
        elif name == "items" and isinstance(value, dict):
            written[name] = json_schema(value, depth + 1)
        elif name not in ("nullable", "propertyOrdering", "property_ordering"):
            written[name] = value
    kind = written.get("type")
    if schema.get("nullable") is True and isinstance(kind, str):
        written["type"] = [kind, "null"]
    return written


def _read_choice(config: _Json) -> ToolChoice | None:
    mode = text_of(config.get("mode")).upper()
    names = tuple(name for name in list_of(member(config, "allowedFunctionNames")) if isinstance(name, str))
    match _MODES.get(mode), names:
        case None, _:
            return None
        case "none", _:
            return ToolChoice("none")
        case "required", (name,):
            return ToolChoice("tool", (name,))
        case "required", ():
            return ToolChoice("required")
        case _, ():
            return ToolChoice("auto")
        case found, _:
            return ToolChoice("allowed", names, required=found == "required")


def _read_sampling(config: _Json) -> Sampling:
    given = {ours: member(config, theirs) for theirs, ours in _SAMPLING.items()}
    numbers = {
        name: value for name, value in given.items() if isinstance(value, int | float) and not isinstance(value, bool)
    }
    whole = {"top_k", "seed"}
    return Sampling(**{name: int(value) if name in whole else float(value) for name, value in numbers.items()})  # type: ignore[arg-type]


def _read_format(config: _Json) -> ResponseFormat | None:
    schema, subset = member(config, "responseJsonSchema"), member(config, "responseSchema")
    if isinstance(schema, dict):
        return ResponseFormat("schema", schema=json_schema(schema))
    if isinstance(subset, dict):
        return ResponseFormat("schema", schema=json_schema(subset))
    return ResponseFormat("json") if member(config, "responseMimeType") == "application/json" else None


def _read_reasoning(config: _Json) -> ReasoningSettings | None:
    if not config:
        return None
    budget, level = integer_of(member(config, "thinkingBudget")), text_of(member(config, "thinkingLevel")).lower()
    if budget == 0:
        return ReasoningSettings(enabled=False)
    shown = member(config, "includeThoughts") is True
    return ReasoningSettings(
        effort=level or None,
        budget=budget if budget is not None and budget > 0 else None,
        enabled=True if shown or budget == -1 else None,
    )
