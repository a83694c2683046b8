"""Reads requests of the dialect of Cohere: the fields of a body → `Request`.

Reading never fails: a message, a part or a tool of an unknown shape is kept as an `OpaquePart`, or in `extras`. Leading
system messages are the system prompt; later ones keep their place as turns. Consecutive tool results are one turn of
the user. Documents in the result of a tool are read as text: every API has that. Documents beside the conversation are
Cohere's own.
"""

from collections.abc import Mapping, Sequence

import msgspec

from penstock.core.dialects.cohere.reader import NAME, PLAN
from penstock.core.hub.content import (
    Citation,
    MediaPart,
    OpaquePart,
    Part,
    ReasoningPart,
    TextPart,
    ToolCall,
    ToolResult,
    read_content,
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
    take_numbers,
    text_of,
    unknown_members,
)

Json = dict[str, object]
SAMPLING = {
    "temperature": "temperature",
    "p": "top_p",
    "k": "top_k",
    "seed": "seed",
    "presence_penalty": "presence_penalty",
    "frequency_penalty": "frequency_penalty",
}
"""The sampling settings, and the hub's names of them."""
_ROLES = ("system", "user", "assistant", "tool", None)
_CHOICES = {"REQUIRED": ToolChoice("required"), "NONE": ToolChoice("none")}
_THINKING = {"enabled": True, "disabled": False}
# What is read of these fields.
_KNOWN: Known = {
    "response_format": dict.fromkeys(("type", "json_schema", "schema")),
    "thinking": dict.fromkeys(("type", "token_budget")),
}


def read_request(fields: Mapping[str, object]) -> Request:
    """The request in neutral form."""
    rest = dict(fields)
    unknown = unknown_members({name: rest.get(name) for name in _KNOWN}, _KNOWN)
    messages = list_of(rest.pop("messages", None))
    system, turns = _read_messages(messages)
    system += [OpaquePart(NAME, "documents", {"documents": rest.pop("documents")})] if rest.get("documents") else []
    strict = True if rest.get("strict_tools") is True else None
    if isinstance(rest.get("strict_tools"), bool):
        del rest["strict_tools"]
    choice = _CHOICES.get(text_of(rest.get("tool_choice")))
    if choice is not None:
        del rest["tool_choice"]
    thinking = object_of(rest.pop("thinking", None))
    if thinking.get("type") is not None and text_of(thinking["type"]) not in _THINKING:
        unknown["thinking.type"] = thinking["type"]
    if thinking.get("type") == "disabled":
        unknown |= {f"thinking.{name}": value for name, value in thinking.items() if name == "token_budget" and value}
        thinking = {"type": "disabled"}
    stop = rest.pop("stop_sequences", None)
    return Request(
        system=tuple(system),
        turns=tuple(turns),
        tools=tuple(_read_tool(tool, strict=strict) for tool in objects_of(rest.pop("tools", None))),
        tool_choice=choice,
        max_output=integer_of(rest.pop("max_tokens", None)),
        stop=tuple(word for word in list_of(stop) if isinstance(word, str)),
        sampling=_read_sampling(rest),
        format=_read_format(rest),
        reasoning=_read_reasoning(thinking),
        invalid=unknown_role(messages, _ROLES, "messages"),
        extras=others(rest, ("model", "stream")) | unknown,
    )


def _read_messages(messages: Sequence[object]) -> tuple[list[Part], list[Message]]:
    system: list[Part] = []
    turns: list[Message] = []
    results: list[Part] = []  # of tool messages that follow each other, which are one turn
    called = (call for message in objects_of(messages) for call in objects_of(message.get("tool_calls")))
    ids = CallIds(text_of(call.get("id")) for call in called)
    for message in messages:
        fields = dict(message) if isinstance(message, dict) else {"content": message}
        role = fields.pop("role", None)
        if role == "tool":
            results.append(_read_result(fields, ids))
            continue
        if results:
            turns.append(Message("user", tuple(results)))
            results = []
        if role == "assistant":
            turns.append(_read_answer(fields, ids))
            continue
        parts = read_content(fields.pop("content", None), _read_part)
        if role != "system":
            turns.append(Message("user", tuple(parts), extras=others(fields)))
        elif turns:
            turns.append(Message("system", tuple(with_extras(parts, others(fields)))))
        else:
            system += with_extras(parts, others(fields))
    if results:
        turns.append(Message("user", tuple(results)))
    return system, turns


def _read_part(part: object) -> Part:
    match others(object_of(part)):
        case {"type": "text", "text": str(text), **rest}:
            return TextPart(text, extras=rest)
        case {"type": "thinking", "thinking": str(text), **rest}:
            return ReasoningPart(text, extras=rest)
        case {"type": "image_url", "image_url": str() | dict() as image, **rest}:
            holder = {"url": image} if isinstance(image, str) else object_of(image)
            extras = rest | others(holder, ("url",))
            return typed_media(MediaPart(kind="image", url=text_of(holder.get("url")), extras=extras))
        case {"type": "document", "document": {"data": str() | dict() as data, **document}, **rest}:
            extras = rest | {f"document.{name}": value for name, value in others(document).items()}
            text = data if isinstance(data, str) else msgspec.json.encode(data).decode()
            return TextPart(text, extras=extras)
        case {"type": str(type), **rest}:
            return OpaquePart(NAME, type, rest)
        case _:
            return OpaquePart(NAME, "", {"value": part})


def _read_answer(fields: Json, ids: CallIds) -> Message:
    """Read a turn of the assistant: the plan before its calls, then its content, then the calls."""
    plan = fields.pop(PLAN, None)
    parts: list[Part] = [ReasoningPart(plan)] if isinstance(plan, str) and plan else []
    content = read_content(fields.pop("content", None), _read_part)
    cited = [_read_citation(citation) for citation in objects_of(fields.pop("citations", None))]
    for place in range(len(content) - 1, -1, -1):
        if cited and isinstance(part := content[place], TextPart):
            content[place] = TextPart(part.text, tuple(cited), extras=part.extras)
            cited = []
    parts += content
    if cited:
        fields["citations"] = [citation.data for citation in cited]
    parts += [_read_call(call, ids) for call in objects_of(fields.pop("tool_calls", None))]
    return Message("assistant", tuple(parts), extras=others(fields))


def _read_citation(citation: Json) -> Citation:
    documents = (object_of(source.get("document")) for source in objects_of(citation.get("sources")))
    document = next(documents, {})
    return Citation(
        text_of(document.get("url")),
        text_of(document.get("title")),
        text_of(citation.get("text")),
        integer_of(citation.get("start")),
        integer_of(citation.get("end")),
        citation,
    )


def _read_call(call: Json, ids: CallIds) -> Part:
    match call:
        case {"function": {"name": str(name), **function}, **rest}:
            arguments = function.pop("arguments", None)
            written = arguments if isinstance(arguments, str) else msgspec.json.encode(arguments or {}).decode()
            extras = others(rest, ("id", "type")) | others(function)
            return ToolCall(ids.start(text_of(call.get("id")), name), name, written or "{}", extras=extras)
        case _:
            return OpaquePart(NAME, text_of(call.get("type")) or "tool_call", call)


def _read_result(fields: Json, ids: CallIds) -> ToolResult:
    parts = read_content(fields.pop("content", None), _read_part)
    id = ids.answered(text_of(fields.pop("tool_call_id", None)), "")
    return ToolResult(id, tuple(parts), extras=others(fields))


def _read_tool(tool: Json, *, strict: bool | None) -> Tool:
    match tool:
        case {"type": "function", "function": dict(function), **rest}:
            schema = function.get("parameters")
            return Tool(
                name=text_of(function.get("name")),
                description=text_of(function.get("description")),
                schema=schema if isinstance(schema, dict) else None,
                strict=strict,
                extras=others(rest) | others(function, ("name", "description", "parameters")),
            )
        case _:
            type = text_of(tool.get("type"))
            return Tool(name=type or "tool", kind="server", type=type, extras=others(tool, ("type",)))


def _read_sampling(rest: Json) -> Sampling:
    """The sampling settings, which are removed from the fields; one that is not a number stays there."""
    given: Json = {ours: rest.get(theirs) for theirs, ours in SAMPLING.items()}
    taken = take_numbers(given, SAMPLING.values())
    for theirs, ours in SAMPLING.items():
        if ours in taken:
            del rest[theirs]
    if isinstance(rest.get("logprobs"), bool):
        taken["logprobs"] = rest.pop("logprobs")
    return msgspec.convert(taken, Sampling, strict=False)


def _read_format(rest: Json) -> ResponseFormat | None:
    """The format of the answer, which is removed from the fields. An unknown one stays."""
    form = object_of(rest.get("response_format"))
    schema = next((form[name] for name in ("json_schema", "schema") if isinstance(form.get(name), dict)), None)
    if form.get("type") not in ("text", "json_object"):
        return None
    del rest["response_format"]
    if form["type"] == "text":
        return None
    return ResponseFormat("json") if schema is None else ResponseFormat("schema", schema=object_of(schema))


def _read_reasoning(thinking: Json) -> ReasoningSettings | None:
    enabled, budget = _THINKING.get(text_of(thinking.get("type"))), integer_of(thinking.get("token_budget"))
    return None if enabled is None and budget is None else ReasoningSettings(budget=budget, enabled=enabled)
