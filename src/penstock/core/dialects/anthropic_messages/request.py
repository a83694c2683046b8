"""Reads requests of the Anthropic Messages dialect: the fields of a body → `Request`.

Reading never fails: a message, a block or a tool of an unknown shape is kept as an `OpaquePart`, or in `extras`.
Documents that are text, and search results, are read as text: every API has that.

A tool is deferred if the model may call it only after a `tool_reference` or a `tool_addition` has named it. Where the
request has Anthropic's own search for tools, none is: other providers cannot search, so they get all tools.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import TypeAlias

import msgspec

from penstock.core.dialects.anthropic_messages.content_blocks import SEAL_SCHEME, SERVER_CALLS
from penstock.core.dialects.anthropic_messages.reader import NAME
from penstock.core.hub.content import (
    Citation,
    MediaKind,
    MediaPart,
    OpaquePart,
    Part,
    ReasoningPart,
    TextPart,
    ToolCall,
    ToolChange,
    ToolResult,
    read_content,
    take_cache,
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
    unknown_role,
)
from penstock.core.hub.seals import received
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

Json: TypeAlias = dict[str, object]

ATTRIBUTION = "x-anthropic-billing-header:"
"""The prefix of a text block in the system prompt that Claude Code addresses to Anthropic, and not to the model."""
_TOOL_SEARCH = "tool_search_tool_"
_TIERS = {"standard_only": "default"}
_ROLES: Mapping[object, Role] = {"assistant": "assistant", "system": "system"}
_SOURCE = ("type", "data", "media_type", "url", "file_id", "content")
_THINKING = {"enabled": True, "adaptive": True, "disabled": False}
_TEXT: Known = {"type": None, "text": None}
# What is read of these fields.
_KNOWN: Known = {
    "metadata": {"user_id": None},
    "tool_choice": dict.fromkeys(("type", "name", "disable_parallel_tool_use")),
    "output_config": {"effort": None, "format": {"type": None, "schema": None}},
    "output_format": {"type": None, "schema": None},
    "thinking": dict.fromkeys(("type", "budget_tokens", "display")),
}


def read_request(fields: Mapping[str, object]) -> Request:
    """The request in neutral form."""
    rest = dict(fields)
    unknown = unknown_members({name: rest.get(name) for name in _KNOWN}, _KNOWN)
    metadata, choice = object_of(rest.pop("metadata", None)), object_of(rest.pop("tool_choice", None))
    output, thinking = object_of(rest.pop("output_config", None)), object_of(rest.pop("thinking", None))
    holder, name = (output, "format") if output.get("format") else (rest, "output_format")
    form = _read_format(holder.get(name))
    invalid = ("output_config.format", "the format needs a `schema`") if holder.get(name) and form is None else None
    rest.pop(name, None)
    if thinking.get("type") is not None and text_of(thinking["type"]) not in _THINKING:
        unknown["thinking.type"] = thinking["type"]
    stop = rest.pop("stop_sequences", None)
    messages = list_of(rest.pop("messages", None))
    tier = text_of(rest.pop("service_tier", None))
    return Request(
        system=tuple(map(_read_attribution, read_content(rest.pop("system", None), _read_block))),
        turns=tuple(_read_message(message) for message in messages),
        tools=_read_tools([*objects_of(rest.pop("tools", None)), *_added_tools(messages)]),
        tool_choice=_read_choice(choice),
        parallel_calls=False if choice.get("disable_parallel_tool_use") is True else None,
        max_output=integer_of(rest.pop("max_tokens", None)),
        stop=tuple(word for word in list_of(stop) if isinstance(word, str)),
        sampling=_read_sampling(rest),
        format=form,
        reasoning=_read_reasoning(thinking, output.get("effort")),
        tier=_TIERS.get(tier, tier),
        user=text_of(metadata.get("user_id")),
        invalid=invalid or unknown_role(messages, (*_ROLES, "user", None), "messages"),
        extras=others(rest, ("model", "stream")) | unknown,
    )


def _read_message(message: object) -> Message:
    fields = dict(message) if isinstance(message, dict) else {"content": message}
    role = _ROLES.get(text_of(fields.pop("role", None)), "user")
    parts = read_content(fields.pop("content", None), _read_block)
    return Message(role, tuple(parts), extras=others(fields))


def _read_attribution(part: Part) -> Part:
    """A part of the system prompt. One that is addressed to Anthropic becomes opaque: other providers do not get it."""
    if isinstance(part, TextPart) and part.text.startswith(ATTRIBUTION):
        return OpaquePart(NAME, "attribution", {"text": part.text}, "attribution-dropped")
    return part


def _read_block(block: object) -> Part:
    fields = others(object_of(block))
    type, cache = text_of(fields.pop("type", None)), take_cache(fields)
    if fields.get("caller") == {"type": "direct"}:  # the default
        del fields["caller"]
    match type, fields:
        case "text", {"text": str(text), **rest}:
            citations = tuple(_read_citation(item) for item in objects_of(rest.pop("citations", None)))
            return TextPart(text, citations, cache, rest)
        case (("image" | "document"), {"source": dict(source), **rest}):
            return _read_media(type, source, cache, rest)
        case "thinking", {"thinking": str(text), **rest}:
            signature = text_of(rest.pop("signature", None))
            seals = (received(signature, SEAL_SCHEME),) if signature else ()
            return ReasoningPart(text, seals=seals, field="thinking", extras=rest)
        case "redacted_thinking", {"data": str(data), **rest}:
            return ReasoningPart(seals=(received(data, SEAL_SCHEME, redacted=True),), extras=rest)
        case _, {"id": str(id), "name": str(name), **rest} if type == "tool_use" or type in SERVER_CALLS:
            given = rest.pop("input", None)
            arguments = (
                given if isinstance(given, str) else msgspec.json.encode(given if given is not None else {}).decode()
            )
            extras = rest | ({"type": type} if type == "mcp_tool_use" else {})
            return ToolCall(id, name, arguments, extras=extras, server=type in SERVER_CALLS, cache=cache)
        case "tool_result", {"tool_use_id": str(id), **rest}:
            content, is_error = rest.pop("content", None), rest.pop("is_error", None) is True
            return ToolResult(id, tuple(read_content(content, _read_block)), is_error, cache=cache, extras=rest)
        case "search_result", {"content": list(content), **rest} if _are_texts(content):
            texts = [text_of(rest.pop(name, None)) for name in ("title", "source")]
            return _text([*texts, *_texts(content)], cache, rest | unknown_members(content, _TEXT, "content."))
        case "tool_reference", {"tool_name": str(name), **rest}:
            return ToolChange(added=(name,), extras=rest | ({"cache_control": cache} if cache else {}))
        case "tool_addition", {"tool": {"definition": {"name": str(name)}} | {"name": str(name)}, **rest}:
            return ToolChange(added=(name,), extras=rest)
        case "tool_removal", {"tool": {"name": str(name)}, **rest}:
            return ToolChange(removed=(name,), extras=rest)
        case "compaction", {"content": str(text), **rest} if text:
            return TextPart(text, cache=cache, extras=rest)
        case _:
            return OpaquePart(NAME, type, object_of(block))


def _text(texts: list[str], cache: str, extras: Json) -> TextPart:
    """Several texts as one part, separated by blank lines."""
    return TextPart("\n\n".join(filter(None, texts)), cache=cache, extras=extras)


def _are_texts(blocks: Sequence[object]) -> bool:
    return all(isinstance(block, dict) and block.get("type") == "text" for block in blocks)


def _texts(blocks: Sequence[object]) -> list[str]:
    return [text_of(block.get("text")) for block in objects_of(blocks)]


def _read_media(type: str, source: Json, cache: str, extras: Json) -> MediaPart | TextPart | OpaquePart:
    kind: MediaKind = "image" if type == "image" else "file"
    name = text_of(extras.pop("title", None))
    extras |= {f"source.{each}": value for each, value in others(source, _SOURCE).items()}
    match source:
        case {"type": "text", "data": str(text)} | {"type": "content", "content": str(text)}:
            return _text([name, text_of(extras.pop("context", None)), text], cache, extras)
        case {"type": "content", "content": [*blocks]} if _are_texts(blocks):
            extras |= unknown_members(blocks, _TEXT, "source.content.")
            return _text([name, text_of(extras.pop("context", None)), *_texts(blocks)], cache, extras)
        case {"type": "base64", "data": str(data)}:
            mime = text_of(source.get("media_type"))
            part = MediaPart(kind=kind, mime=mime, data=data, name=name, cache=cache, extras=extras)
        case {"type": "url", "url": str(url)}:
            part = MediaPart(kind=kind, url=url, name=name, cache=cache, extras=extras)
        case {"type": "file", "file_id": str(id)}:
            part = MediaPart(kind=kind, file_id=id, name=name, cache=cache, extras=extras)
        case _:
            block: Json = {"type": type, "source": source, **extras} | ({"title": name} if name else {})
            return OpaquePart(NAME, type, block)
    return typed_media(part)


def _read_citation(citation: Json) -> Citation:
    return Citation(
        url=text_of(citation.get("url")) or text_of(citation.get("source")),
        title=text_of(citation.get("title")) or text_of(citation.get("document_title")),
        quote=text_of(citation.get("cited_text")),
        data=citation,
    )


def _added_tools(messages: Sequence[object]) -> Iterator[Json]:
    """The tools that are defined in messages. They are deferred: their block adds them."""
    for message in objects_of(messages):
        for block in objects_of(message.get("content")):
            definition = object_of(object_of(block.get("tool")).get("definition"))
            if block.get("type") == "tool_addition" and definition:
                yield definition | {"defer_loading": True}


def _read_tools(tools: list[Json]) -> tuple[Tool, ...]:
    searched = any(text_of(tool.get("type")).startswith(_TOOL_SEARCH) for tool in tools)
    return tuple(_read_tool(tool, searched=searched) for tool in tools)


def _read_tool(tool: Json, *, searched: bool) -> Tool:
    fields = dict(tool)
    type, name = text_of(fields.pop("type", None)), text_of(fields.pop("name", None))
    cache = take_cache(fields)
    if type not in ("", "custom"):
        return Tool(name=name or type, kind="server", type=type, cache=cache, extras=fields)
    deferred = fields.pop("defer_loading", None) is True and not searched
    schema, strict = fields.pop("input_schema", None), fields.pop("strict", None)
    return Tool(
        name=name,
        description=text_of(fields.pop("description", None)),
        schema=schema if isinstance(schema, dict) else None,
        strict=strict if isinstance(strict, bool) else None,
        deferred=deferred,
        cache=cache,
        extras=fields,
    )


def _read_choice(choice: Json) -> ToolChoice | None:
    match choice:
        case {"type": "auto"}:
            return ToolChoice("auto")
        case {"type": "any"}:
            return ToolChoice("required")
        case {"type": "none"}:
            return ToolChoice("none")
        case {"type": "tool", "name": str(name)}:
            return ToolChoice("tool", (name,))
        case _:
            return None


def _read_sampling(rest: Json) -> Sampling:
    """The sampling settings, which are removed from the fields; one that is not a number stays there."""
    return msgspec.convert(take_numbers(rest, ("temperature", "top_p", "top_k")), Sampling, strict=False)


def _read_format(form: object) -> ResponseFormat | None:
    match form:
        case {"type": "json_schema", "schema": dict(schema)}:
            return ResponseFormat("schema", schema=schema)
        case _:
            return None


def _read_reasoning(thinking: object, effort: object) -> ReasoningSettings | None:
    settings = object_of(thinking)
    if not settings and not isinstance(effort, str):
        return None
    type, display = settings.get("type"), settings.get("display")
    return ReasoningSettings(
        effort=effort if isinstance(effort, str) else None,
        budget=integer_of(settings.get("budget_tokens")),
        enabled=_THINKING.get(text_of(type)),
        summary="none" if display == "omitted" else display if isinstance(display, str) else None,
    )
