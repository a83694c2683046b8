"""The OpenAI Responses dialect, requests read: the fields of a body → `Request`.

Reading never fails: an item, a part or a tool of an unknown shape is kept as an `OpaquePart`, or in `extras`. The
conversation is a list of items. Consecutive items of the model (messages, reasoning, calls) are one turn of the
assistant, and consecutive results of tools are one turn of the user. `instructions` and leading messages of the system
or the developer are the system prompt; later ones keep their place as turns.
"""

from collections.abc import Iterator, Mapping

import msgspec

from penstock.core.dialects.openai_options import NO_SCHEMA
from penstock.core.dialects.openai_responses.vocabulary import (
    COMPACTED_ELSEWHERE,
    NAME,
    SEAL_SCHEME,
    SUMMARISED,
    Json,
    summary_in,
)
from penstock.core.hub.content import (
    Citation,
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
    Role,
    Sampling,
    Tool,
    ToolChoice,
)
from penstock.core.hub.seals import received
from penstock.core.json.getters import (
    Known,
    integer_of,
    list_of,
    object_of,
    objects_of,
    others,
    shown,
    take_numbers,
    text_of,
    unknown_members,
)

_SYSTEM_ROLES = ("system", "developer")
# Fields that no provider of another API needs: Penstock does itself what they ask for, or they ask for the default.
_WITHOUT_LOSS: Mapping[str, tuple[object, ...]] = {
    "background": (False,),
    "include": (["reasoning.encrypted_content"], []),
    "prompt_cache_retention": ("in_memory", "in-memory"),
    "store": (True, False),
    "truncation": ("disabled",),
}
# What an item has only where it is stored: other providers store none.
_OF_ITEMS = ("id", "status", "type")
_CHOSEN: Known = dict.fromkeys(("type", "name"))
_TEXT: Known = dict.fromkeys(("type", "text"))
# What is read of these fields.
_KNOWN: Known = {
    "tool_choice": {**_CHOSEN, "mode": None, "tools": {**_CHOSEN, "server_label": None}, "server_label": None},
    "stream_options": {},
}
_SAMPLING = ("temperature", "top_p", "presence_penalty", "frequency_penalty")
_LOGPROBS = "message.output_text.logprobs"


def read_request(fields: Mapping[str, object]) -> Request:
    """The request that a body with these fields is."""
    rest = dict(fields)
    conversation = _ItemTurns()
    instructions = rest.pop("instructions", None)
    conversation.system += read_content(instructions, _read_part)
    given = rest.pop("input", None)
    for item in [{"role": "user", "content": given}] if isinstance(given, str) else list_of(given):
        conversation.add(item)
    parallel, metadata = rest.pop("parallel_tool_calls", None), object_of(rest.pop("metadata", None))
    text = dict(object_of(rest.pop("text", None)))
    verbosity = text_of(text.pop("verbosity", None))
    form, invalid = _read_format(text)
    user = text_of(rest.pop("user", None)) or text_of(rest.pop("safety_identifier", None))
    sampling, reasoning = _read_sampling(rest), _read_reasoning(rest)
    unknown = unknown_members({name: rest.get(name) for name in _KNOWN}, _KNOWN)
    extras = (
        others(rest, ("model", "stream", "stream_options"))
        | unknown
        | conversation.extras
        | {f"text.{name}": value for name, value in text.items()}
    )
    choice = _read_choice(rest.get("tool_choice"))
    if choice is not None:
        del extras["tool_choice"]
    return Request(
        system=tuple(conversation.system),
        turns=tuple(conversation.turns()),
        tools=tuple(_read_tools([*objects_of(extras.pop("tools", None)), *conversation.tools])),
        tool_choice=choice,
        parallel_calls=parallel if isinstance(parallel, bool) else None,
        max_output=integer_of(extras.pop("max_output_tokens", None)),
        sampling=sampling,
        format=form,
        reasoning=reasoning,
        tier=text_of(extras.pop("service_tier", None)),
        user=user,
        metadata={name: value for name, value in metadata.items() if isinstance(value, str)},
        cache_key=text_of(extras.pop("prompt_cache_key", None)),
        compact_at=_take_threshold(extras),
        verbosity=verbosity,
        invalid=invalid or conversation.invalid,
        extras={name: value for name, value in extras.items() if not _is_without_loss(name, value)},
    )


def _take_threshold(extras: Json) -> int | None:
    """Remove what asks for compaction by the provider, and return its threshold; None if nothing does."""
    match extras.get("context_management"):
        case [{"type": "compaction", "compact_threshold": int(threshold), **rest}] if not rest:
            del extras["context_management"]
            return threshold
        case _:
            return None


def _is_without_loss(name: str, value: object) -> bool:
    return value is None or value in _WITHOUT_LOSS.get(name, ())


class _ItemTurns:
    """The items of a conversation, collected into turns."""

    def __init__(self) -> None:
        self.system: list[Part] = []
        self.tools: list[Json] = []
        """The tools that items have added."""
        self.extras: Json = {}
        """Members of such items that have no meaning to us."""
        self.invalid: tuple[str, str] | None = None
        """The problem with a role that the API does not have: another API would take the message for the user's."""
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
                unknown = others(fields, (*_OF_ITEMS, "role", "tools"))
                self.extras |= {f"input.{name}": value for name, value in unknown.items()}
            case "function_call_output" | "custom_tool_call_output":
                content, extras = (
                    read_content(fields.get("output"), _read_part),
                    others(fields, (*_OF_ITEMS, "call_id", "output")),
                )
                result = ToolResult(text_of(fields.get("call_id")), tuple(content), extras=extras)
                self._append("user", [result], joined=True)
            case "compaction" | "compaction_summary" if summary := summary_in(fields):
                self._turns.clear()  # the summary is of these
                self._append("user", [TextPart(SUMMARISED.format(summary))], joined=False)
            case "compaction" | "compaction_summary":
                self.invalid = ("input", COMPACTED_ELSEWHERE)
            case _:
                self._append("assistant", [_read_answer_item(type, fields)], joined=True)

    def _add_message(self, fields: Json) -> None:
        role, extras = fields.get("role"), others(fields, (*_OF_ITEMS, "role", "content"))
        parts = with_extras(read_content(fields.get("content"), _read_part), extras)
        if role in _SYSTEM_ROLES and not self._turns:
            self.system += parts
        elif role in _SYSTEM_ROLES:
            self._append("system", parts, joined=False)
        elif role == "assistant":
            self._append("assistant", parts, joined=True)
        else:
            self._append("user", parts, joined=False)
            if role not in ("user", None):
                self.invalid = ("input", f"`input` has the unknown role {shown(role)}")

    def _append(self, role: Role, parts: list[Part], *, joined: bool) -> None:
        """Add parts: to the last turn, if both may be joined with others of their role."""
        last = self._turns[-1] if self._turns else None
        if last is not None and last[0] == role and last[2] and joined:
            last[1].extend(parts)
        else:
            self._turns.append((role, parts, joined))


def _read_answer_item(type: str, fields: Json) -> Part:
    namespace, rest = text_of(fields.get("namespace")) or None, others(fields, (*_OF_ITEMS, "call_id", "namespace"))
    match type, rest:
        case "function_call", {"name": str(name), **rest}:
            arguments = rest.pop("arguments", None)
            written = arguments if isinstance(arguments, str) else msgspec.json.encode(arguments or {}).decode()
            return ToolCall(_call_id(fields), name, written, extras=rest, namespace=namespace)
        case "custom_tool_call", {"name": str(name), **rest}:
            return ToolCall(_call_id(fields), name, text_of(rest.pop("input", None)), "custom", rest, namespace)
        case "reasoning", _:
            seal = text_of(rest.pop("encrypted_content", None))
            return ReasoningPart(
                "".join(_texts(rest.get("content"))),
                tuple(_texts(rest.get("summary"))),
                (received(seal, SEAL_SCHEME),) if seal else (),
                extras=unknown_members(rest, {"content": _TEXT, "summary": _TEXT}),
            )
        case _:
            return OpaquePart(NAME, type, fields)


def _call_id(fields: Json) -> str | None:
    return text_of(fields.get("call_id")) or text_of(fields.get("id")) or None


def _texts(parts: object) -> list[str]:
    return [text_of(part.get("text")) for part in objects_of(parts)]


def _read_part(part: object) -> Part:
    fields = others(object_of(part))
    cache = take_cache(fields)
    match fields:
        case {"type": "input_text" | "output_text" | "text", "text": str(text), **rest}:
            citations = tuple(_read_citation(item) for item in objects_of(rest.pop("annotations", None)))
            return TextPart(text, citations, cache, {name: value for name, value in rest.items() if value != []})
        case {"type": "refusal", "refusal": str(text), **rest}:
            return RefusalPart(text, rest)
        case {"type": "input_image", **rest}:
            return _read_image(rest, cache)
        case {"type": "input_file", **rest}:
            return _read_file(rest, cache)
        case {"type": "input_audio", "input_audio": {"data": str(data), "format": str(form), **audio}, **rest}:
            extras = rest | others(audio)
            return typed_media(MediaPart(kind="audio", mime=f"audio/{form}", data=data, cache=cache, extras=extras))
        case {"type": str(type)}:
            return OpaquePart(NAME, type, fields)
        case _:
            return OpaquePart(NAME, "", {"value": part})


def _read_image(part: Json, cache: str) -> MediaPart:
    url, file_id = (text_of(part.pop(key, None)) for key in ("image_url", "file_id"))
    extras = part if part.get("detail") != "auto" else others(part, ("detail",))
    return typed_media(MediaPart(kind="image", url=url, file_id=file_id, cache=cache, extras=extras))


def _read_file(part: Json, cache: str) -> MediaPart:
    known = ("file_data", "file_url", "file_id", "filename")
    data, url, file_id, name = (text_of(part.pop(key, None)) for key in known)
    return typed_media(MediaPart(kind="file", data=data, url=url, file_id=file_id, name=name, cache=cache, extras=part))


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
        namespace = text_of(tool.get("name")) or None
        # Other APIs have no place for what describes several tools.
        about = {f"namespace.{name}": value for name, value in others(tool, ("type", "name", "tools")).items() if value}
        for number, inner in enumerate(objects_of(tool.get("tools"))):
            yield _read_tool(inner | about if not number else inner, namespace)


def _read_tool(tool: Json, namespace: str | None) -> Tool:
    fields = {**tool, **object_of(tool.get("function"))}  # chat completions have a function's fields in a member
    fields.pop("function", None)
    type, name = text_of(fields.pop("type", None)), text_of(fields.pop("name", None))
    if type not in ("function", "custom", ""):
        return Tool(name=name or type, kind="server", type=type, namespace=namespace, extras=fields)
    description, form = text_of(fields.pop("description", None)), fields.pop("format", None)
    schema, strict = fields.pop("parameters", None), fields.pop("strict", None)
    if fields.get("defer_loading") is False:  # the default
        del fields["defer_loading"]
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
    type, named = text_of(tool.get("type")), object_of(tool.get("function")) or tool  # as chat completions have it
    return type if type not in ("function", "custom", "") else text_of(named.get("name"))


def _read_sampling(rest: Json) -> Sampling:
    """The sampling settings, which are removed from the fields; one that is not a number stays there."""
    given: dict[str, object] = take_numbers(rest, _SAMPLING)
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
    rest |= {f"reasoning.{name}": value for name, value in others(settings).items()}
    if not isinstance(effort, str):
        return None  # without an effort the model decides; a summary is what other APIs show anyway
    return ReasoningSettings(
        effort=effort,
        enabled=False if effort == "none" else None,
        summary=summary if isinstance(summary, str) else None,
    )


def _read_format(text: Json) -> tuple[ResponseFormat | None, tuple[str, str] | None]:
    """The format of the answer, which is removed from `text`, or the problem with it. An unknown one stays there."""
    form = text.get("format")
    match form:
        case {"type": "text", **rest}:
            read = None
        case {"type": "json_object", **rest}:
            read = ResponseFormat("json")
        case {"type": "json_schema", "schema": dict(schema), **rest}:
            name, strict, description = (rest.pop(each, None) for each in ("name", "strict", "description"))
            known = strict if isinstance(strict, bool) else None
            read = ResponseFormat("schema", text_of(name), schema, known, text_of(description))
        case {"type": "json_schema"}:
            return None, ("text.format", NO_SCHEMA)
        case _:
            return None, None
    del text["format"]
    text |= {f"format.{name}": value for name, value in rest.items() if value is not None}
    return read, None
