"""Reads requests of the dialect of Bedrock's Converse API: the fields of a body → `Request`.

Reading never fails: a block or a tool of an unknown shape is kept as an `OpaquePart`, or in `extras`. Documents that
are text, and search results, are read as text: every API has that. A `cachePoint` is a hint of what is before it. Of
the fields that only the model's vendor knows, Claude's settings of reasoning and `top_k` are read.
"""

from base64 import b64decode
from collections.abc import Iterable, Mapping
from typing import cast

import msgspec
from msgspec import structs

from penstock.core.dialects.bedrock_converse.reader import NAME, SEAL_SCHEME
from penstock.core.hub.content import (
    Citation,
    MediaKind,
    MediaPart,
    OpaquePart,
    Part,
    ReasoningPart,
    TextPart,
    ToolCall,
    ToolResult,
)
from penstock.core.hub.media import type_of_format, typed_media
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
from penstock.core.wire.payload import TextDecoder, TooComplexError

Json = dict[str, object]
MORE = "additionalModelRequestFields"
"""The member with what only the model's vendor knows."""
_ROLES = ("user", "assistant", "system", None)
_SAMPLING = {"temperature": "temperature", "topP": "top_p"}
_THINKING = {"enabled": True, "adaptive": True, "disabled": False}
_KINDS: dict[str, MediaKind] = {"image": "image", "document": "file", "video": "video", "audio": "audio"}
_TEXT: Known = {"text": None}
_SCHEMA: Known = {"jsonSchema": dict.fromkeys(("schema", "name", "description"))}
# What is read of a request, except for lists.
_KNOWN: Known = {
    **dict.fromkeys(("messages", "system", "requestMetadata", "model", "stream", MORE)),
    "inferenceConfig": dict.fromkeys((*_SAMPLING, "maxTokens", "stopSequences")),
    "toolConfig": {"tools": None, "toolChoice": {"auto": {}, "any": {}, "tool": {"name": None}}},
    "serviceTier": {"type": None},
    "outputConfig": {"textFormat": {"type": None, "structure": _SCHEMA}, "effort": None},
}


def read_request(fields: Mapping[str, object]) -> Request:
    """The request in neutral form."""
    config, output = object_of(fields.get("inferenceConfig")), object_of(fields.get("outputConfig"))
    tools, choice = _read_tools(object_of(fields.get("toolConfig")))
    more = dict(object_of(fields.get(MORE)))
    extras = unknown_members(fields, _KNOWN)
    sampling = _read_sampling(config, more, extras)
    reasoning = _read_reasoning(more, output.get("effort"), extras)
    extras |= {f"{MORE}.{name}": value for name, value in others(more).items()}
    text_format = object_of(output.get("textFormat"))
    form = _read_format(text_format)
    invalid = (
        ("outputConfig.textFormat", "the format needs a JSON schema as text") if text_format and not form else None
    )
    metadata = object_of(fields.get("requestMetadata"))
    return Request(
        system=tuple(_blocks(fields.get("system"), CallIds())),
        turns=_read_messages(list_of(fields.get("messages"))),
        tools=tools,
        tool_choice=choice,
        max_output=integer_of(config.get("maxTokens")),
        stop=tuple(word for word in list_of(config.get("stopSequences")) if isinstance(word, str)),
        sampling=sampling,
        format=form,
        reasoning=reasoning,
        tier=text_of(object_of(fields.get("serviceTier")).get("type")),
        metadata={name: value for name, value in metadata.items() if isinstance(value, str)},
        invalid=invalid or unknown_role(list_of(fields.get("messages")), _ROLES, "messages"),
        extras=extras,
    )


# Messages.


def _read_messages(messages: list[object]) -> tuple[Message, ...]:
    blocks = (block for message in objects_of(messages) for block in objects_of(message.get("content")))
    ids = CallIds(text_of(object_of(block.get("toolUse")).get("toolUseId")) for block in blocks)
    turns: list[Message] = []
    for message in messages:
        fields = message if isinstance(message, dict) else {"content": message}
        role = fields.get("role")
        parts = tuple(_blocks(fields.get("content"), ids))
        extras = others(fields, ("role", "content"))
        turns.append(Message(role if role in ("assistant", "system") else "user", parts, extras=extras))
    return tuple(turns)


def _blocks(blocks: object, ids: CallIds) -> list[Part]:
    """The parts of a list of blocks. A point up to which to cache is a hint of the part before it."""
    if isinstance(blocks, str):
        return [TextPart(blocks)]
    parts: list[Part] = []
    if blocks is not None and not isinstance(blocks, list):
        parts.append(OpaquePart(NAME, "content", {"value": blocks}))
    for block in list_of(blocks):
        fields = others(object_of(block))
        point = object_of(fields.get("cachePoint"))
        if point and parts and isinstance(parts[-1], TextPart | MediaPart | ToolCall | ToolResult):
            extras = {f"cachePoint.{name}": value for name, value in others(point, ("type", "ttl")).items()}
            hinted = structs.replace(parts[-1], cache=_lifetime(point), extras=parts[-1].extras | extras)
            parts[-1] = cast("Part", hinted)
        else:
            parts += _read_block(fields, ids)
    return parts


def _lifetime(point: Json) -> str:
    return text_of(point.get("ttl")) or "5m"


def _read_block(fields: Json, ids: CallIds) -> list[Part]:
    match fields:
        case {"text": str(text), **rest}:
            return [TextPart(text, extras=rest)]
        case {"toolUse": dict(use), **rest}:
            return [_read_call(use, rest, ids)]
        case {"toolResult": dict(result), **rest}:
            return [_read_result(result, rest, ids)]
        case {"reasoningContent": dict(reasoning), **rest} if read := _read_thought(reasoning, rest):
            return [read]
        case {"citationsContent": {"content": list()} as cited, **rest}:
            return [_read_cited(object_of(cited), rest)]
        case {"searchResult": {"content": list(content), **found}, **rest}:
            unread = others(found, ("source", "title")) | unknown_members(content, _TEXT, "content.")
            extras = rest | {f"searchResult.{name}": value for name, value in unread.items()}
            texts = [text_of(found.get(name)) for name in ("title", "source")]
            return [_text([*texts, *(text_of(each.get("text")) for each in objects_of(content))], extras)]
        case {"json": value, **rest}:
            return [TextPart(msgspec.json.encode(value).decode(), extras=rest)]
        case _:
            pass
    for name in _KINDS:
        if isinstance(media := fields.get(name), dict) and (part := _read_media(name, media, others(fields, (name,)))):
            return [part]
    kind = next(iter(fields), "")
    return [OpaquePart(NAME, kind, fields)]


def _text(texts: list[str], extras: Json) -> TextPart:
    """Several texts as one part, separated by blank lines."""
    return TextPart("\n\n".join(filter(None, texts)), extras=extras)


def _read_call(use: Json, extras: Json, ids: CallIds) -> ToolCall:
    name, given = text_of(use.get("name")), use.get("input")
    arguments = given if isinstance(given, str) else msgspec.json.encode({} if given is None else given).decode()
    extras = extras | others(use, ("toolUseId", "name", "input", "type"))
    server = use.get("type") == "server_tool_use"
    return ToolCall(ids.start(text_of(use.get("toolUseId")), name), name, arguments, extras=extras, server=server)


def _read_result(result: Json, extras: Json, ids: CallIds) -> ToolResult:
    extras = extras | others(result, ("toolUseId", "content", "status"))
    if result.get("status") not in ("success", "error", None):
        extras["status"] = result["status"]
    id = ids.answered(text_of(result.get("toolUseId")), "")
    parts = tuple(_blocks(result.get("content"), CallIds()))
    return ToolResult(id, parts, result.get("status") == "error", extras=extras)


def _read_thought(reasoning: Json, extras: Json) -> ReasoningPart | None:
    match reasoning:
        case {"reasoningText": {"text": str(text), **proof}, **rest}:
            signature = text_of(proof.pop("signature", None))
            seals = (received(signature, SEAL_SCHEME),) if signature else ()
            return ReasoningPart(text, seals=seals, extras=extras | others(proof) | others(rest))
        case {"redactedContent": str(data), **rest}:
            seal = received(unwrapped(data) or data, SEAL_SCHEME, redacted=True)
            return ReasoningPart(seals=(seal,), extras=extras | others(rest))
        case _:
            return None


def unwrapped(data: str) -> str:
    """The wrapped seal in redacted content, which is base64; empty if it has none."""
    try:
        text = b64decode(data, validate=True).decode()
    except ValueError:
        return ""
    return text if text.startswith(PREFIX) else ""


def _read_cited(cited: Json, extras: Json) -> TextPart:
    texts = [text_of(each.get("text")) for each in objects_of(cited.get("content"))]
    citations = tuple(map(_read_citation, objects_of(cited.get("citations"))))
    extras = extras | others(cited, ("content", "citations")) | unknown_members(cited.get("content"), _TEXT, "content.")
    return TextPart("".join(texts), citations, extras=extras)


def _read_citation(citation: Json) -> Citation:
    web = object_of(object_of(citation.get("location")).get("web"))
    quoted = "".join(text_of(each.get("text")) for each in objects_of(citation.get("sourceContent")))
    return Citation(text_of(web.get("url")), text_of(citation.get("title")), quoted, data=citation)


def _read_media(name: str, media: Json, extras: Json) -> Part | None:
    source, kind = object_of(media.get("source")), _KINDS[name]
    extras = extras | others(media, ("format", "source", "name"))
    extras |= {
        f"source.{each}": value for each, value in others(source, ("bytes", "s3Location", "text", "content")).items()
    }
    title = text_of(media.get("name"))
    match source:
        case {"text": str(text)}:
            return _text([title, text_of(extras.pop("context", None)), text], extras)
        case {"content": list(content)}:
            extras |= unknown_members(content, _TEXT, "source.content.")
            texts = (text_of(each.get("text")) for each in objects_of(content))
            return _text([title, text_of(extras.pop("context", None)), *texts], extras)
        case {"bytes": str(data)}:
            part = MediaPart(kind=kind, mime=_mime(kind, media), data=data, name=title, extras=extras)
        case {"s3Location": {"uri": str(uri), **where}}:
            extras |= {f"source.s3Location.{each}": value for each, value in others(where).items()}
            part = MediaPart(kind=kind, mime=_mime(kind, media), url=uri, name=title, extras=extras)
        case _:
            return None
    return typed_media(part)


def _mime(kind: MediaKind, media: Json) -> str:
    """The media type of a format of the API."""
    format = text_of(media.get("format"))
    return type_of_format(format) or (f"{kind}/{format}" if format and kind != "file" else "")


# Tools.


def _read_tools(config: Json) -> tuple[tuple[Tool, ...], ToolChoice | None]:
    tools: list[Tool] = []
    for tool in objects_of(config.get("tools")):
        point = object_of(tool.get("cachePoint"))
        if point and tools:
            extras = {f"cachePoint.{name}": value for name, value in others(point, ("type", "ttl")).items()}
            tools[-1] = structs.replace(tools[-1], cache=_lifetime(point), extras=tools[-1].extras | extras)
        else:
            tools.append(_read_tool(tool))
    return tuple(tools), _read_choice(object_of(config.get("toolChoice")))


def _read_tool(tool: Json) -> Tool:
    match tool:
        case {"toolSpec": dict(spec), **rest}:
            schema, strict = object_of(spec.get("inputSchema")), spec.get("strict")
            given = schema.get("json")
            extras = others(rest) | others(spec, ("name", "description", "inputSchema", "strict"))
            return Tool(
                name=text_of(spec.get("name")),
                description=text_of(spec.get("description")),
                schema=given if isinstance(given, dict) else None,
                strict=strict if isinstance(strict, bool) else None,
                extras=extras | {f"inputSchema.{name}": value for name, value in others(schema, ("json",)).items()},
            )
        case _:
            kind = next(iter(tool), "tool")
            settings = object_of(tool.get(kind))
            name = text_of(settings.get("name")) or kind
            return Tool(name=name, kind="server", type=name, extras=settings)


def _read_choice(choice: Json) -> ToolChoice | None:
    match choice:
        case {"tool": {"name": str(name)}}:
            return ToolChoice("tool", (name,))
        case {"any": dict()}:
            return ToolChoice("required")
        case {"auto": dict()}:
            return ToolChoice("auto")
        case _:
            return None


# Settings.


def _read_sampling(config: Json, more: Json, extras: Json) -> Sampling:
    """The sampling settings. One that is not a number is noted in the extras."""
    given: Json = {ours: config.get(theirs) for theirs, ours in _SAMPLING.items()} | {"top_k": more.get("top_k")}
    taken = take_numbers(given, ("temperature", "top_p", "top_k"))
    if "top_k" in taken:
        del more["top_k"]
    unread = {theirs: ours for theirs, ours in _SAMPLING.items() if given.get(ours) is not None}
    extras |= {f"inferenceConfig.{theirs}": given[ours] for theirs, ours in unread.items()}
    return msgspec.convert(taken, Sampling, strict=False)


def _read_reasoning(more: Json, effort: object, extras: Json) -> ReasoningSettings | None:
    """Claude's settings of reasoning, which are removed from the fields of the model's vendor."""
    thinking, output = object_of(more.get("thinking")), object_of(more.get("output_config"))
    if text_of(thinking.get("type")) in _THINKING:
        del more["thinking"]
        extras |= {
            f"{MORE}.thinking.{name}": value for name, value in others(thinking, ("type", "budget_tokens")).items()
        }
    else:
        thinking = {}
    if not isinstance(effort, str) and isinstance(output.get("effort"), str):
        effort = output["effort"]
        more["output_config"] = others(output, ("effort",)) or None
    if not thinking and not isinstance(effort, str):
        return None
    return ReasoningSettings(
        effort=effort if isinstance(effort, str) else None,
        budget=integer_of(thinking.get("budget_tokens")),
        enabled=_THINKING.get(text_of(thinking.get("type"))),
    )


def _read_format(form: Json) -> ResponseFormat | None:
    match form:
        case {"type": "json_schema", "structure": {"jsonSchema": {"schema": str(text), **named}}}:
            try:
                schema = TextDecoder().decode(text)
            except (ValueError, TooComplexError):
                return None
            if not isinstance(schema, dict):
                return None
            return ResponseFormat(
                "schema", text_of(named.get("name")), schema, description=text_of(named.get("description"))
            )
        case _:
            return None


def wrapped_blocks(messages: Iterable[object]) -> Iterable[tuple[list[object], object]]:
    """The blocks of reasoning whose seal another API has made, each with the list that it is in."""
    for message in objects_of(list(messages)):
        content = message.get("content")
        for block in objects_of(content):
            reasoning = object_of(block.get("reasoningContent"))
            signature = text_of(object_of(reasoning.get("reasoningText")).get("signature"))
            if signature.startswith(PREFIX) or unwrapped(text_of(reasoning.get("redactedContent"))):
                yield list_of(content), block
