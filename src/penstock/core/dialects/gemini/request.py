"""Reads requests of the Gemini dialect: the fields of a body → `Request`.

Reading never fails: a part or a tool of an unknown shape is kept as an `OpaquePart`, or in `extras`. Members may have
names in camelCase or in snake_case.
"""

import math
from collections.abc import Iterable, Mapping

import msgspec

from penstock.core.dialects.gemini.members import member, snake_case
from penstock.core.dialects.gemini.reader import NAME
from penstock.core.dialects.gemini.signatures import read_signature, standard_base64
from penstock.core.hub.content import (
    MediaPart,
    OpaquePart,
    Part,
    ReasoningPart,
    TextPart,
    ToolCall,
    ToolResult,
    with_extras,
)
from penstock.core.hub.media import typed_media
from penstock.core.hub.request import (
    Message,
    ReasoningSettings,
    Request,
    ResponseFormat,
    Sampling,
    Tool,
    ToolChoice,
    unknown_role,
)
from penstock.core.hub.tool_ids import CallIds
from penstock.core.json.getters import (
    Known,
    integer_of,
    list_of,
    object_of,
    objects_of,
    others,
    text_of,
    unknown_members,
)

_Json = dict[str, object]
# What Google's documentation names for calls that another model has made. They prove nothing.
_PLACEHOLDERS = ("skip_thought_signature_validator", "context_engineering_is_the_way_to_go")
_SAMPLING = {
    "temperature": "temperature",
    "topP": "top_p",
    "presencePenalty": "presence_penalty",
    "frequencyPenalty": "frequency_penalty",
}
_WHOLE = {"topK": "top_k", "seed": "seed"}
_CONFIG = (
    *_SAMPLING, *_WHOLE, "maxOutputTokens", "stopSequences", "candidateCount", "responseMimeType", "responseSchema",
    "responseJsonSchema", "thinkingConfig",
)  # fmt: skip
_ROLES = ("user", "model", "function", "tool", None)
# The members of a part that it is read from.
_DATA = (
    "text", "thought", "thoughtSignature", "functionCall", "functionResponse", "inlineData", "fileData",
)  # fmt: skip


def _both(names: Iterable[str], **inner: Known) -> dict[str, Known | None]:
    """Members that are read, by either of their names; of these, their own members."""
    known: dict[str, Known | None] = {**dict.fromkeys(names), **inner}
    return {name: below for each, below in known.items() for name in (each, snake_case(each))}


# What is read of a request, except for lists.
_KNOWN: Known = _both(
    ("contents", "systemInstruction", "tools", "serviceTier", "model", "labels", "stream"),
    toolConfig=_both((), functionCallingConfig=_both(("mode", "allowedFunctionNames"))),
    generationConfig=_both(_CONFIG, thinkingConfig=_both(("thinkingBudget", "thinkingLevel", "includeThoughts"))),
)
# Enums, which protocol buffers write by their names and accept by their numbers.
_MODES = {"AUTO": "auto", "NONE": "none", "ANY": "required", "VALIDATED": "auto"}
_MODE_NUMBERS = {1: "AUTO", 2: "ANY", 3: "NONE", 4: "VALIDATED"}
_TYPE_NUMBERS = {1: "string", 2: "number", 3: "integer", 4: "boolean", 5: "array", 6: "object", 7: "null"}
# Members of a schema with a number, which protocol buffers write as text because it has 64 bits.
_COUNTS = ("minItems", "maxItems", "minLength", "maxLength", "minProperties", "maxProperties")
_SCHEMA_NAMES = {snake_case(name): name for name in (*_COUNTS, "anyOf")}
_MAX_SCHEMA_DEPTH = 64


def read_request(fields: Mapping[str, object]) -> Request:
    """The request in neutral form."""
    config = object_of(member(fields, "generationConfig"))
    labels = object_of(fields.get("labels"))
    sampling, form = _read_sampling(config), _read_format(config)
    calling = object_of(member(object_of(member(fields, "toolConfig")), "functionCallingConfig"))
    choice = _read_choice(calling)
    extras = unknown_members(fields, _KNOWN) | _unread(config, sampling, form)
    if (choice is None or not choice.names) and member(calling, "allowedFunctionNames"):
        extras["toolConfig.functionCallingConfig.allowedFunctionNames"] = member(calling, "allowedFunctionNames")
    if str(calling.get("mode")).upper() in ("VALIDATED", "4"):  # which other APIs have by tool: `strict`
        extras["toolConfig.functionCallingConfig.mode"] = "VALIDATED"
    return Request(
        system=tuple(_system(member(fields, "systemInstruction"))),
        turns=_read_contents(member(fields, "contents")),
        tools=tuple(_read_tools(member(fields, "tools"))),
        tool_choice=choice,
        max_output=integer_of(member(config, "maxOutputTokens")),
        choices=max(integer_of(member(config, "candidateCount")) or 1, 1),
        stop=tuple(word for word in list_of(member(config, "stopSequences")) if isinstance(word, str)),
        sampling=sampling,
        format=form,
        reasoning=_read_reasoning(object_of(member(config, "thinkingConfig"))),
        tier=text_of(member(fields, "serviceTier")).lower(),
        metadata={name: value for name, value in labels.items() if isinstance(value, str)},
        invalid=unknown_role(list_of(member(fields, "contents")), _ROLES, "contents"),
        extras=extras,
    )


def _unread(config: _Json, sampling: Sampling, form: ResponseFormat | None) -> _Json:
    """Settings that have another value than the API knows, or that another one overrides."""
    names = {**_SAMPLING, **_WHOLE}
    unread = [theirs for theirs, ours in names.items() if getattr(sampling, ours) is None]
    if member(config, "responseMimeType") not in ("application/json", "text/plain"):
        unread.append("responseMimeType")
    if isinstance(member(config, "responseJsonSchema"), dict) or form is None or form.schema is None:
        unread.append("responseSchema")
    return {f"generationConfig.{name}": value for name in unread if (value := member(config, name)) is not None}


def _others(holder: Mapping[str, object], known: tuple[str, ...]) -> _Json:
    names = {name for each in known for name in (each, snake_case(each))}
    return others(holder, names)


def _system(content: object) -> Iterable[Part]:
    """The system prompt: a content, its parts, or a text. Other parts than text have no place in other APIs."""
    if isinstance(content, str):
        return [TextPart(content)]
    parts = object_of(content).get("parts") if isinstance(content, dict) else content
    read: list[Part] = [
        OpaquePart(NAME, next(iter(part)), part)
        if part.get("text") is None
        else TextPart(text_of(part["text"]), extras=_others(part, ("text",)))
        for part in objects_of(_list(parts))
        if part and part.get("text") != ""
    ]
    return with_extras(read, others(content, ("parts", "role")) if isinstance(content, dict) else {})


def _list(value: object) -> list[object]:
    """A list, or the only item of one."""
    return value if isinstance(value, list) else [] if value is None else [value]


def _read_contents(contents: object) -> tuple[Message, ...]:
    calls = CallIds(_given_ids(contents))
    turns: list[Message] = []
    for content in _list(contents):
        fields = object_of(content)
        role = "assistant" if fields.get("role") == "model" else "user"
        parts: list[Part] = [TextPart(content)] if isinstance(content, str) else []
        for part in _list(fields.get("parts")):
            parts += _read_part(part, calls)
        extras = others(fields, ("role", "parts"))
        turns.append(Message("assistant" if role == "assistant" else "user", tuple(parts), extras=extras))
    return tuple(turns)


def _given_ids(contents: object) -> Iterable[str]:
    """The ids of the calls that have one."""
    for content in objects_of(_list(contents)):
        for part in objects_of(_list(content.get("parts"))):
            if id := text_of(object_of(member(part, "functionCall")).get("id")):
                yield id


def _read_part(part: object, calls: CallIds) -> list[Part]:
    """A part, and before it the signature that it has."""
    if isinstance(part, str):
        return [TextPart(part)]
    fields = object_of(part)
    signature = text_of(member(fields, "thoughtSignature"))
    seals = (read_signature(signature),) if signature and signature not in _PLACEHOLDERS else ()
    text, extras = fields.get("text"), _others(fields, _DATA)
    if isinstance(text, str) and fields.get("thought") is True:
        return [ReasoningPart(text, seals=seals, extras=extras)]
    signed: list[Part] = [ReasoningPart(seals=seals)] if seals else []
    if fields.get("thought") is True:
        extras["thought"] = True
    read: list[Part] = [TextPart(text)] if isinstance(text, str) else [_read_other(fields, calls)]
    return [*signed, *with_extras(read, extras)] if text != "" or extras else signed


def _read_other(fields: _Json, calls: CallIds) -> Part:
    """A part that is no text."""
    call, result = object_of(member(fields, "functionCall")), object_of(member(fields, "functionResponse"))
    inline, file = object_of(member(fields, "inlineData")), object_of(member(fields, "fileData"))
    if call.get("name"):
        name = text_of(call["name"])
        arguments = msgspec.json.encode(call.get("args") or {}).decode()
        id = calls.start(text_of(call.get("id")), name)
        return ToolCall(id, name, arguments, extras=others(call, ("name", "args", "id")))
    if result:
        name = text_of(result.get("name"))
        id = calls.answered(text_of(result.get("id")), name)
        return _read_result(id, name, result)
    holder = inline or file
    data, url, mime = (text_of(member(holder, name)) for name in ("data", "fileUri", "mimeType"))
    if data or url:
        name = text_of(member(holder, "displayName"))
        extras = _others(holder, ("data", "fileUri", "mimeType", "displayName"))
        media = MediaPart(kind="file", mime=mime, name=name, data=standard_base64(data), url=url, extras=extras)
        return typed_media(media)
    kind = next((name for name in fields if name not in ("thoughtSignature", "thought_signature")), "")
    return OpaquePart(NAME, kind, fields)


def _read_result(id: str, name: str, result: _Json) -> ToolResult:
    """The result of a call. One that is only an output or an error is that text; any other is JSON."""
    given = result.get("response")
    response = given if isinstance(given, dict) else {} if given is None else {"output": given}
    beside = [part for each in objects_of(result.get("parts")) for part in _media(each)]
    is_error = set(response) == {"error"}
    only = next(iter(response.values())) if set(response) in ({"output"}, {"error"}, {"result"}) else response
    text = only if isinstance(only, str) else msgspec.json.encode(only).decode()
    extras = others(result, ("id", "name", "response", "parts"))
    return ToolResult(id, (TextPart(text), *beside), is_error, name, extras=extras)


def _media(part: _Json) -> list[Part]:
    return with_extras([_read_other(part, CallIds())], _others(part, _DATA))


def _read_tools(tools: object) -> Iterable[Tool]:
    for tool in objects_of(_list(tools)):
        for name, value in tool.items():
            if name in ("functionDeclarations", "function_declarations"):
                yield from (_read_function(each) for each in objects_of(_list(value)))
            else:  # a tool that the provider executes
                yield Tool(name=name, kind="server", type=name, extras=object_of(value))


def _read_function(declaration: _Json) -> Tool:
    schema, subset = member(declaration, "parametersJsonSchema"), declaration.get("parameters")
    known = ("name", "description", "parametersJsonSchema", *(() if isinstance(schema, dict) else ("parameters",)))
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
    for given, value in schema.items():
        name = _SCHEMA_NAMES.get(given, given)
        if name == "type" and type(value) in (int, str):
            written[name] = _TYPE_NUMBERS.get(value) if isinstance(value, int) else text_of(value).lower()
        elif name in _COUNTS:
            written[name] = value if (count := integer_of(value)) is None else count
        elif name == "properties" and isinstance(value, dict):
            written[name] = {
                key: json_schema(each, depth + 1) if isinstance(each, dict) else each for key, each in value.items()
            }
        elif name == "anyOf" and isinstance(value, list):
            written[name] = [json_schema(each, depth + 1) for each in objects_of(value)]
        elif name == "items" and isinstance(value, dict):
            written[name] = json_schema(value, depth + 1)
        elif name not in ("nullable", "propertyOrdering", "property_ordering"):
            written[name] = value
    if schema.get("nullable") is True:
        _allow_null(written)
    return written


def _allow_null(schema: _Json) -> None:
    """Add null to what a schema allows."""
    kind, options, values = schema.get("type"), schema.get("anyOf"), schema.get("enum")
    if isinstance(kind, str):
        schema["type"] = [kind, "null"]
    if isinstance(options, list) and {"type": "null"} not in options:
        schema["anyOf"] = [*options, {"type": "null"}]
    if isinstance(values, list) and None not in values:
        schema["enum"] = [*values, None]


def _read_choice(config: _Json) -> ToolChoice | None:
    given = config.get("mode")
    mode = _MODE_NUMBERS.get(given, "") if isinstance(given, int) else text_of(given).upper()
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
    numbers = {ours: _number(member(config, theirs)) for theirs, ours in _SAMPLING.items()}
    whole = {ours: integer_of(member(config, theirs)) for theirs, ours in _WHOLE.items()}
    return Sampling(**numbers, **whole)  # type: ignore[arg-type]


def _number(value: object) -> float | None:
    """A number, which protocol buffers accept as text too."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


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
        return ReasoningSettings(effort=level or None, enabled=False)
    shown = member(config, "includeThoughts") is True
    return ReasoningSettings(
        effort=level or None,
        budget=budget if budget is not None and budget > 0 else None,
        enabled=True if shown or budget == -1 else None,
    )
