"""Reads requests of the OpenAI chat dialect: the fields of a body → `Request`.

Reading never fails: a message, a part or a tool of unknown shape is kept as an `OpaquePart`, or in `extras`. Leading
`system` and `developer` messages are the system prompt; later ones keep their place as turns. Consecutive tool results
are one turn of the user.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias, TypeVar

import msgspec

from penstock.core.dialects.openai_options import NO_SCHEMA
from penstock.core.hub.content import (
    MediaPart,
    OpaquePart,
    Part,
    ReasoningPart,
    RefusalPart,
    TextPart,
    ToolCall,
    ToolResult,
    read_content,
    take_cache,
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
from penstock.core.hub.seals import PREFIX, received
from penstock.core.hub.tool_ids import CallIds
from penstock.core.json.getters import (
    Known,
    integer_of,
    list_of,
    object_of,
    objects_of,
    others,
    take_numbers,
    text_of,
    unknown_members,
)

NAME = "openai_chat"
Json: TypeAlias = dict[str, object]
Value = TypeVar("Value")

_SYSTEM_ROLES = ("system", "developer")
_ROLES = (*_SYSTEM_ROLES, "user", "assistant", "tool", "function", None)
_SAMPLING = ("temperature", "top_p", "top_k", "seed", "presence_penalty", "frequency_penalty")
# The fields that may hold the reasoning of earlier turns.
_REASONING_FIELDS = ("reasoning_content", "reasoning")
_NAMED: Known = {"name": None}
_DECLARED: Known = dict.fromkeys(("name", "description", "parameters", "strict"))  # as in `tools`
_CHOSEN: Known = {"type": None, "function": _DECLARED, "custom": _NAMED, "name": None}
# What is read of these fields, except where they are lists.
_KNOWN: Known = {
    "tool_choice": {**_CHOSEN, "allowed_tools": {"mode": None, "tools": _CHOSEN}},
    "function_call": _NAMED,
    "response_format": {"type": None, "json_schema": dict.fromkeys(("name", "schema", "strict", "description"))},
    "reasoning": dict.fromkeys(("effort", "max_tokens", "enabled", "exclude")),
    "stream_options": {"include_usage": None},  # usage is always asked for
}


def read_request(fields: Mapping[str, object]) -> Request:
    """The request in neutral form."""
    rest = dict(fields)
    system, turns = _read_messages(list_of(rest.pop("messages", None)))
    tools = [_read_tool(tool) for tool in objects_of(rest.pop("tools", None))]
    tools += [_read_function(function, {}) for function in objects_of(rest.pop("functions", None))]
    unknown = unknown_members({name: rest.get(name) for name in _KNOWN}, _KNOWN)
    rest.pop("stream_options", None)
    choice = _take(rest, "tool_choice", _read_choice) or _take(rest, "function_call", _read_function_choice)
    cap = _take(rest, "max_completion_tokens", integer_of) or _take(rest, "max_tokens", integer_of)
    form, invalid = _read_format(rest)
    stop = rest.pop("stop", None)
    metadata = rest.pop("metadata", None)
    parallel = rest.pop("parallel_tool_calls", None)
    return Request(
        system=tuple(system),
        turns=tuple(turns),
        tools=tuple(tools),
        tool_choice=choice,
        parallel_calls=parallel if isinstance(parallel, bool) else None,
        max_output=cap,
        choices=integer_of(rest.pop("n", None)) or 1,
        stop=(stop,) if isinstance(stop, str) else tuple(word for word in list_of(stop) if isinstance(word, str)),
        sampling=_read_sampling(rest),
        format=form,
        reasoning=_read_reasoning(rest),
        tier=text_of(rest.pop("service_tier", None)),
        user=text_of(rest.pop("user", None)),
        metadata={key: value for key, value in object_of(metadata).items() if isinstance(value, str)},
        cache_key=text_of(rest.pop("prompt_cache_key", None)),
        verbosity=text_of(rest.pop("verbosity", None)),
        invalid=invalid or unknown_role(list_of(fields.get("messages")), _ROLES, "messages"),
        extras=others(rest, ("model", "stream")) | unknown,
    )


def _take(rest: Json, name: str, read: Callable[[object], Value | None]) -> Value | None:
    """Read a field, and remove it if it could be read."""
    value = read(rest.get(name))
    if value is not None:
        del rest[name]
    return value


def _read_messages(messages: Sequence[object]) -> tuple[list[Part], list[Message]]:
    system: list[Part] = []
    turns: list[Message] = []
    results: list[Part] = []  # of tool messages that follow each other, which are one turn
    called = (call for message in objects_of(messages) for call in objects_of(message.get("tool_calls")))
    calls = CallIds(text_of(call.get("id")) for call in called)
    for message in messages:
        fields = dict(message) if isinstance(message, dict) else {"content": message}
        role = fields.pop("role", None)
        if role in ("tool", "function"):
            results.append(_read_result(fields, calls))
            continue
        if results:
            turns.append(Message("user", tuple(results)))
            results = []
        if role in _SYSTEM_ROLES:
            parts = with_extras(read_content(fields.pop("content", None), _read_part), others(fields))
            if turns:
                turns.append(Message("system", tuple(parts)))
            else:
                system += parts
        elif role == "assistant":
            turns.append(_read_answer(fields, calls))
        else:
            content, name = read_content(fields.pop("content", None), _read_part), text_of(fields.pop("name", None))
            turns.append(Message("user", tuple(content), name, others(fields)))
    if results:
        turns.append(Message("user", tuple(results)))
    return system, turns


def _read_part(part: object) -> Part:
    fields = others(object_of(part))
    cache = take_cache(fields)
    match fields:
        case {"type": "text", "text": str(text), **rest}:
            return TextPart(text, cache=cache, extras=rest)
        case {"type": "refusal", "refusal": str(text), **rest}:
            return RefusalPart(text, rest)
        case {"type": "image_url", "image_url": str(url) | {"url": str(url)}, **rest}:
            extras = others(object_of(fields["image_url"]), ("url",))
            return typed_media(MediaPart(kind="image", url=url, cache=cache, extras=rest | extras))
        case {"type": "input_audio", "input_audio": {"data": str(data), "format": str(form), **audio}, **rest}:
            extras = rest | others(audio)
            return typed_media(MediaPart(kind="audio", mime=f"audio/{form}", data=data, cache=cache, extras=extras))
        case {"type": "file", "file": dict(file), **rest}:
            return _read_file(file, cache, rest)
        case {"type": str(type), **rest}:
            return OpaquePart(NAME, type, rest)
        case _:
            return OpaquePart(NAME, "", {"value": part})


def _read_file(file: Json, cache: str, extras: Json) -> MediaPart:
    """A file. Some clients send a URL, which OpenAI has in Responses only."""
    known = ("file_data", "file_url", "file_id", "filename")
    data, url, file_id, name = (text_of(file.get(key)) for key in known)
    extras = extras | others(file, known)
    return typed_media(
        MediaPart(kind="file", data=data, url=url, file_id=file_id, name=name, cache=cache, extras=extras)
    )


def _read_answer(fields: Json, ids: CallIds) -> Message:
    """Read a turn of the assistant: its reasoning first, then its content, then its tool calls."""
    calls = objects_of(fields.pop("tool_calls", None))
    signed: dict[str, list[Part]] = {id: [] for call in calls if (id := text_of(call.get("id")))}
    parts: list[Part] = []
    for part, id in _read_earlier_reasoning(fields):
        signed.get(id, parts).append(part)
    parts += read_content(fields.pop("content", None), _read_part)
    refusal = fields.pop("refusal", None)
    if isinstance(refusal, str) and refusal:
        parts.append(RefusalPart(refusal))
    for call in calls:
        parts += signed.pop(text_of(call.get("id")), [])
        parts.append(_read_call(call, ids))
    function = object_of(fields.pop("function_call", None))
    if function:
        called, arguments = text_of(function.get("name")), text_of(function.get("arguments"))
        extras = others(function, ("name", "arguments"))
        parts.append(ToolCall(ids.start("", called), called, arguments, "function_call", extras))
    return Message("assistant", tuple(parts), text_of(fields.pop("name", None)), others(fields))


def _read_earlier_reasoning(fields: Json) -> list[tuple[ReasoningPart, str]]:
    """The reasoning of an earlier answer, taken out of the fields of its message; each part with the id of the tool
    call that it belongs to, which is empty if it belongs to none.

    Seals that Penstock has sent (`writer.py`, rule 6) come back in `reasoning_details`. They are valid only for the
    text that they were made for: where its length has changed, they are left out.
    """
    text, field = "", ""
    for name in _REASONING_FIELDS:
        given = fields.get(name)
        if isinstance(given, str):
            fields.pop(name)
            if given:
                text, field = given, name
                break
    details = objects_of(fields.get("reasoning_details"))
    sealed = [item for item in details if text_of(item.get("data")).startswith(PREFIX)]
    if sealed:
        fields.pop("reasoning_details")
    lengths = [tuple(max(0, integer_of(item.get(name)) or 0) for name in ("skipped", "length")) for item in sealed]
    unchanged = sum(map(sum, lengths)) == len(text)
    parts: list[tuple[ReasoningPart, str]] = []
    at = 0
    for item, (skipped, length) in zip(sealed, lengths, strict=True):
        if length and not unchanged:
            continue
        if skipped:
            parts.append((ReasoningPart(text[at : at + skipped], field=field), ""))
        at += skipped + length
        seal = received(text_of(item.get("data")), "")
        parts.append((ReasoningPart(text[at - length : at], seals=(seal,), field=field), text_of(item.get("id"))))
    return [*parts, (ReasoningPart(text[at:], field=field), "")] if text[at:] else parts


def _read_call(call: Json, ids: CallIds) -> Part:
    id = text_of(call.get("id"))
    match call:
        case {"type": "custom", "custom": {"name": str(name), "input": str(text), **custom}, **rest}:
            extras = others(rest, ("id", "index")) | others(custom)
            return ToolCall(ids.start(id, name), name, text, "custom", extras)
        case {"function": {"name": str(name), **function}, **rest}:
            arguments = function.pop("arguments", None)
            extras = others(rest, ("id", "type", "index")) | others(function)
            written = arguments if isinstance(arguments, str) else msgspec.json.encode(arguments or {}).decode()
            return ToolCall(ids.start(id, name), name, written, extras=extras)
        case _:
            return OpaquePart(NAME, "tool_call", call)


def _read_result(fields: Json, ids: CallIds) -> ToolResult:
    name = text_of(fields.get("name"))
    id = ids.answered(text_of(fields.get("tool_call_id")), name)
    extras = others(fields, ("tool_call_id", "content", "name"))
    return ToolResult(id, tuple(read_content(fields.get("content"), _read_part)), name=name, extras=extras)


def _read_tool(tool: Json) -> Tool:
    match tool:
        case {"type": "function", "function": dict(function), **rest}:
            return _read_function(function, dict(rest))
        case {"type": "function", "name": str()}:  # as Responses has it
            return _read_function(others(tool, ("type",)), {})
        case {"type": "custom", "custom": {"name": str(name), **custom}, **rest}:
            return Tool(
                name=name,
                description=text_of(custom.get("description")),
                kind="custom",
                format=_read_grammar(object_of(custom.get("format"))) or None,
                extras=others(rest) | others(custom, ("description", "format")),
            )
        case _:
            type = text_of(tool.get("type"))
            settings = {key: value for key, value in tool.items() if key not in ("type", "name")}
            return Tool(name=text_of(tool.get("name")) or type, kind="server", type=type, extras=settings)


def _read_grammar(form: Json) -> Json:
    """The format of a custom tool. Other APIs have the members of a grammar beside its type."""
    return {name: value for name, value in form.items() if name != "grammar"} | object_of(form.get("grammar"))


def _read_function(function: Json, extras: Json) -> Tool:
    strict = function.get("strict")
    schema = function.get("parameters")
    return Tool(
        name=text_of(function.get("name")),
        description=text_of(function.get("description")),
        schema=schema if isinstance(schema, dict) else None,
        strict=strict if isinstance(strict, bool) else None,
        extras=others(extras) | others(function, ("name", "description", "parameters", "strict")),
    )


def _read_choice(choice: object) -> ToolChoice | None:
    match choice:
        case "auto":
            return ToolChoice("auto")
        case "none":
            return ToolChoice("none")
        case "required" | "any":
            return ToolChoice("required")
        case {"type": "allowed_tools", "allowed_tools": {"tools": [*tools], **rest}}:
            names = tuple(name for tool in tools if (name := _chosen_name(tool)))
            return ToolChoice("allowed", names, required=rest.get("mode") == "required")
        case dict():
            name = _chosen_name(choice)
            return ToolChoice("tool", (name,)) if name else None
        case _:
            return None


def _read_function_choice(choice: object) -> ToolChoice | None:
    match choice:
        case {"name": str(name)}:
            return ToolChoice("tool", (name,))
        case _:
            return _read_choice(choice)


def _chosen_name(tool: object) -> str:
    match tool:
        case {"function": {"name": str(name)}} | {"custom": {"name": str(name)}} | {"name": str(name)}:
            return name
        case _:
            return ""


def _read_sampling(rest: Json) -> Sampling:
    """The sampling settings, which are removed from the fields; one that is not a number stays there."""
    given: dict[str, object] = take_numbers(rest, _SAMPLING)
    if isinstance(rest.get("logit_bias"), dict):
        given["logit_bias"] = rest.pop("logit_bias")
    if isinstance(rest.get("logprobs"), bool):
        given["logprobs"] = rest.pop("logprobs")
        given["top_logprobs"] = integer_of(rest.pop("top_logprobs", None))
    return msgspec.convert(given, Sampling, strict=False)


def _read_format(rest: Json) -> tuple[ResponseFormat | None, tuple[str, str] | None]:
    """The format of the answer, which is removed from the fields, or the problem with it. An unknown one stays."""
    match rest.get("response_format"):
        case {"type": "text"}:
            form = None
        case {"type": "json_object"}:
            form = ResponseFormat("json")
        case {"type": "json_schema", "json_schema": {"schema": dict(schema), **described}}:
            strict = described.get("strict")
            form = ResponseFormat(
                "schema",
                text_of(described.get("name")),
                schema,
                strict if isinstance(strict, bool) else None,
                text_of(described.get("description")),
            )
        case {"type": "json_schema"}:
            return None, ("response_format", NO_SCHEMA)
        case _:
            return None, None
    del rest["response_format"]
    return form, None


def _read_reasoning(rest: Json) -> ReasoningSettings | None:
    effort = rest.get("reasoning_effort")
    settings = rest.get("reasoning")
    if isinstance(settings, dict):
        rest.pop("reasoning")
        if not settings.get("effort"):
            rest.pop("reasoning_effort", None)
        enabled = settings.get("enabled")
        return ReasoningSettings(
            effort=text_of(settings.get("effort")) or text_of(effort) or None,
            budget=integer_of(settings.get("max_tokens")),
            enabled=enabled if isinstance(enabled, bool) else None,
            summary="none" if settings.get("exclude") is True else None,
        )
    if not isinstance(effort, str):
        return None
    rest.pop("reasoning_effort")
    return ReasoningSettings(effort=effort, enabled=False if effort == "none" else None)
