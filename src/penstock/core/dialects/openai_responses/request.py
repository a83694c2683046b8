"""The OpenAI Responses dialect, requests read: the fields of a body → `Request`.

Reading never fails: an item, a part or a tool of an unknown shape is kept as an `OpaquePart`, or in `extras`. The
conversation is a list of items. Consecutive items of the model (messages, reasoning, calls) are one turn of the
assistant, and consecutive results of tools are one turn of the user. `instructions` and leading messages of the system
or the developer are the system prompt; later ones keep their place as turns.
"""

from collections.abc import Iterator, Mapping

import msgspec

from penstock.core.content import (
    Citation,
    MediaPart,
    OpaquePart,
    Part,
    ReasoningPart,
    RefusalPart,
    TextPart,
    ToolCall,
    ToolResult,
)
from penstock.core.dialects.openai_responses.vocabulary import NAME, SEAL_SCHEME, Json
from penstock.core.json_getters import integer_of, list_of, object_of, objects_of, take_numbers, text_of
from penstock.core.media import typed_media
from penstock.core.request import (
    Message,
    ReasoningSettings,
    Request,
    ResponseFormat,
    Role,
    Sampling,
    Tool,
    ToolChoice,
)
from penstock.core.seals import received

_SYSTEM_ROLES = ("system", "developer")
# Fields that no provider of another API needs: Penstock does itself what they ask for, or they ask for the default.
_WITHOUT_LOSS: Mapping[str, tuple[object, ...]] = {
    "background": (False,),
    "include": (["reasoning.encrypted_content"], []),
    "prompt_cache_retention": ("in_memory", "in-memory"),
    "store": (True, False),
    "truncation": ("disabled", "auto"),
}
_LOGPROBS = "message.output_text.logprobs"


def read_request(fields: Mapping[str, object]) -> Request:
    """The request that a body with these fields is."""
    rest = dict(fields)
    conversation = _ItemTurns()
    instructions = rest.pop("instructions", None)
    conversation.system += _read_content(instructions)
    given = rest.pop("input", None)
    for item in [{"role": "user", "content": given}] if isinstance(given, str) else list_of(given):
        conversation.add(item)
    parallel, metadata = rest.pop("parallel_tool_calls", None), object_of(rest.pop("metadata", None))
    text = dict(object_of(rest.pop("text", None)))
    form, verbosity = text.pop("format", None), text_of(text.pop("verbosity", None))
    user, safety = text_of(rest.pop("user", None)), text_of(rest.pop("safety_identifier", None))
    sampling, reasoning = _read_sampling(rest), _read_reasoning(rest)
    rest.pop("stream_options", None)
    extras = rest | ({"text": text} if text else {})
    return Request(
        dialect=NAME,
        model=text_of(extras.pop("model", None)),
        stream=extras.pop("stream", None) is True,
        system=tuple(conversation.system),
        turns=tuple(conversation.turns()),
        tools=tuple(_read_tools([*objects_of(extras.pop("tools", None)), *conversation.tools])),
        tool_choice=_read_choice(extras.pop("tool_choice", None)),
        parallel_calls=parallel if isinstance(parallel, bool) else None,
        max_output=integer_of(extras.pop("max_output_tokens", None)),
        sampling=sampling,
        format=_read_format(form),
        reasoning=reasoning,
        tier=text_of(extras.pop("service_tier", None)),
        user=user or safety,
        metadata={name: value for name, value in metadata.items() if isinstance(value, str)},
        cache_key=text_of(extras.pop("prompt_cache_key", None)),
        verbosity=verbosity,
        extras={name: value for name, value in extras.items() if not _is_without_loss(name, value)},
    )


def _is_without_loss(name: str, value: object) -> bool:
    return value is None or value in _WITHOUT_LOSS.get(name, ())


class _ItemTurns:
    """The items of a conversation, collected into turns."""

    def __init__(self) -> None:
        self.system: list[Part] = []
        self.tools: list[Json] = []
        """The tools that items have added."""
        self._turns: list[tuple[Role, list[Part], bool]] = []

    def turns(self) -> Iterator[Message]:
        """The turns, in order."""
        return (Message(role, tuple(parts)) for role, parts, _ in self._turns)

    def add(self, item: object) -> None:
        """Add the next item."""
        fields = object_of(item)
        type = text_of(fields.get("type")) or ("message" if "role" in fields else "")
        match type:
            case "message":
                self._add_message(fields)
            case "additional_tools":
                self.tools += objects_of(fields.get("tools"))
            case "function_call_output" | "custom_tool_call_output":
                content = _read_content(fields.get("output"))
                self._append("user", [ToolResult(text_of(fields.get("call_id")), tuple(content))], joined=True)
            case _:
                self._append("assistant", [_read_answer_item(type, fields)], joined=True)

    def _add_message(self, fields: Json) -> None:
        role, parts = fields.get("role"), _read_content(fields.get("content"))
        if role in _SYSTEM_ROLES and not self._turns:
            self.system += parts
        elif role in _SYSTEM_ROLES:
            self._append("system", parts, joined=False)
        elif role == "assistant":
            phase = {"phase": fields["phase"]} if fields.get("phase") is not None else {}
            self._append("assistant", [_with_extras(part, phase) for part in parts], joined=True)
        else:
            self._append("user", parts, joined=False)

    def _append(self, role: Role, parts: list[Part], *, joined: bool) -> None:
        """Add parts: to the last turn, if both may be joined with others of their role."""
        last = self._turns[-1] if self._turns else None
        if last is not None and last[0] == role and last[2] and joined:
            last[1].extend(parts)
        else:
            self._turns.append((role, parts, joined))


def _with_extras(part: Part, extras: Json) -> Part:
    return msgspec.structs.replace(part, extras=extras) if extras and isinstance(part, TextPart) else part


def _read_answer_item(type: str, fields: Json) -> Part:
    match type, fields:
        case "function_call", {"name": str(name)}:
            arguments = fields.get("arguments")
            written = arguments if isinstance(arguments, str) else msgspec.json.encode(arguments or {}).decode()
            return ToolCall(_call_id(fields), name, written, namespace=text_of(fields.get("namespace")) or None)
        case "custom_tool_call", {"name": str(name)}:
            namespace = text_of(fields.get("namespace")) or None
            return ToolCall(_call_id(fields), name, text_of(fields.get("input")), "custom", namespace=namespace)
        case "reasoning", _:
            seal = text_of(fields.get("encrypted_content"))
            return ReasoningPart(
                "".join(_texts(fields.get("content"))),
                tuple(_texts(fields.get("summary"))),
                (received(seal, SEAL_SCHEME),) if seal else (),
            )
        case _:
            return OpaquePart(NAME, type, fields)


def _call_id(fields: Json) -> str | None:
    return text_of(fields.get("call_id")) or text_of(fields.get("id")) or None


def _texts(parts: object) -> list[str]:
    return [text_of(part.get("text")) for part in objects_of(parts)]


def _read_content(content: object) -> list[Part]:
    if isinstance(content, str):
        return [TextPart(content)] if content else []
    return [_read_part(part) for part in list_of(content)]


def _read_part(part: object) -> Part:
    if isinstance(part, str):
        return TextPart(part)
    fields = object_of(part)
    match fields:
        case {"type": "input_text" | "output_text" | "text", "text": str(text)}:
            citations = tuple(_read_citation(item) for item in objects_of(fields.get("annotations")))
            return TextPart(text, citations)
        case {"type": "refusal", "refusal": str(text)}:
            return RefusalPart(text)
        case {"type": "input_image"}:
            return _read_image(fields)
        case {"type": "input_file"}:
            return _read_file(fields)
        case {"type": "input_audio", "input_audio": {"data": str(data), "format": str(form)}}:
            return typed_media(MediaPart(kind="audio", mime=f"audio/{form}", data=data))
        case {"type": str(type)}:
            return OpaquePart(NAME, type, fields)
        case _:
            return OpaquePart(NAME, "", {"value": part})


def _read_image(part: Json) -> MediaPart:
    url, file_id, detail = text_of(part.get("image_url")), text_of(part.get("file_id")), part.get("detail")
    extras: Json = {"detail": detail} if isinstance(detail, str) and detail != "auto" else {}
    return typed_media(MediaPart(kind="image", url=url, file_id=file_id, extras=extras))


def _read_file(part: Json) -> MediaPart:
    data, url, file_id, name = (text_of(part.get(key)) for key in ("file_data", "file_url", "file_id", "filename"))
    return typed_media(MediaPart(kind="file", data=data, url=url, file_id=file_id, name=name))


def _read_citation(annotation: Json) -> Citation:
    return Citation(
        url=text_of(annotation.get("url")),
        title=text_of(annotation.get("title")) or text_of(annotation.get("filename")),
        start=integer_of(annotation.get("start_index")),
        end=integer_of(annotation.get("end_index")),
        data=annotation,
    )


def _read_tools(tools: list[Json]) -> Iterator[Tool]:
    for tool in tools:
        if tool.get("type") != "namespace":
            yield _read_tool(tool, None)
            continue
        namespace, about = text_of(tool.get("name")) or None, tool.get("description")
        for number, inner in enumerate(objects_of(tool.get("tools"))):
            # Other APIs have no place for what describes several tools.
            described = {"namespace.description": about} if about and not number else {}
            yield _read_tool(inner | described, namespace)


def _read_tool(tool: Json, namespace: str | None) -> Tool:
    fields = {**tool, **object_of(tool.get("function"))}  # chat completions have a function's fields in a member
    fields.pop("function", None)
    type, name = text_of(fields.pop("type", None)), text_of(fields.pop("name", None))
    if type not in ("function", "custom", ""):
        return Tool(name=name or type, kind="server", type=type, namespace=namespace, extras=fields)
    description, form = text_of(fields.pop("description", None)), fields.pop("format", None)
    schema, strict = fields.pop("parameters", None), fields.pop("strict", None)
    fields.pop("defer_loading", None)  # providers of other APIs cannot search for tools: they get all
    return Tool(
        name=name,
        description=description,
        schema=schema if isinstance(schema, dict) else None,
        strict=strict if isinstance(strict, bool) else None,
        kind="custom" if type == "custom" else "function",
        namespace=namespace,
        format=form if isinstance(form, dict) else None,
        extras=fields,
    )


def _read_choice(choice: object) -> ToolChoice | None:
    match choice:
        case "auto":
            return ToolChoice("auto")
        case "none":
            return ToolChoice("none")
        case "required":
            return ToolChoice("required")
        case {"type": "allowed_tools", "tools": list(tools), **rest}:
            names = tuple(name for tool in objects_of(tools) if (name := _chosen(tool)))
            return ToolChoice("allowed", names, required=rest.get("mode") == "required")
        case dict():
            name = _chosen(choice)
            return ToolChoice("tool", (name,)) if name else None
        case _:
            return None


def _chosen(tool: Json) -> str:
    """The name of a chosen tool; of one that the provider executes, its type."""
    named = object_of(tool.get("function")) or tool  # as chat completions have it
    return text_of(named.get("name")) or text_of(tool.get("type"))


def _read_sampling(rest: Json) -> Sampling:
    """The sampling settings, which are removed from the fields; one that is not a number stays there."""
    given: dict[str, object] = take_numbers(rest, ("temperature", "top_p"))
    top = integer_of(rest.get("top_logprobs"))
    include = rest.get("include")
    if isinstance(include, list) and _LOGPROBS in include:
        rest["include"] = [word for word in include if word != _LOGPROBS]
        given["logprobs"] = True
    if top is not None:
        rest.pop("top_logprobs")
        given |= {"logprobs": True, "top_logprobs": top} if top else {}
    return msgspec.convert(given, Sampling, strict=False)


def _read_reasoning(rest: Json) -> ReasoningSettings | None:
    settings = dict(object_of(rest.pop("reasoning", None)))
    effort, summary = settings.pop("effort", None), settings.pop("summary", None)
    left = {name: value for name, value in settings.items() if value is not None}
    if left:
        rest["reasoning"] = left
    if not isinstance(effort, str):
        return None  # without an effort the model decides; a summary is what other APIs show anyway
    return ReasoningSettings(
        effort=effort,
        enabled=False if effort == "none" else None,
        summary=summary if isinstance(summary, str) else None,
    )


def _read_format(form: object) -> ResponseFormat | None:
    match form:
        case {"type": "json_object"}:
            return ResponseFormat("json")
        case {"type": "json_schema", "schema": dict(schema), **rest}:
            name, strict, description = rest.get("name"), rest.get("strict"), rest.get("description")
            known = strict if isinstance(strict, bool) else None
            return ResponseFormat("schema", text_of(name), schema, known, text_of(description))
        case _:
            return None
