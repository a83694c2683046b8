"""Writes requests in the OpenAI chat dialect: `Request` → the fields of a body, and the losses.

It is for requests that arrived in another dialect. A request in this dialect is forwarded (`core/json_members.py`).
"""

from collections.abc import Iterable, Sequence

from penstock.core.content import (
    MediaPart,
    OpaquePart,
    Part,
    ReasoningPart,
    RefusalPart,
    TextPart,
    ToolCall,
    ToolResult,
)
from penstock.core.dialects.openai_chat.request import AUDIO_TYPES, NAME, Json
from penstock.core.losses import Loss
from penstock.core.request import Message, ReasoningSettings, Request, ResponseFormat, Sampling, Tool, ToolChoice

_STOP_LIMIT = 4


def write_request(request: Request, losses: list[Loss], *, reasoning_field: str = "") -> Json:
    """The fields of the body. `reasoning_field` is where the provider expects the reasoning of earlier turns."""
    writer = _Writer(losses, reasoning_field, own=request.dialect == NAME)
    fields: Json = {"model": request.model, "messages": writer.messages(request)}
    if request.stream:
        fields["stream"] = True
    tools = [body for tool in request.tools if (body := writer.tool(tool)) is not None]
    sampling = {name: getattr(request.sampling, name) for name in Sampling.__struct_fields__}
    if sampling.pop("top_k") is not None:
        losses.append(Loss("sampling-dropped", "top_k"))
    if len(request.stop) > _STOP_LIMIT:
        losses.append(Loss("stop-dropped", f"{len(request.stop) - _STOP_LIMIT} of {len(request.stop)}"))
    optional: Json = {
        "tools": tools or None,
        "tool_choice": _write_choice(request.tool_choice, request.tools) if tools else None,
        "parallel_tool_calls": request.parallel_calls if tools else None,
        "max_completion_tokens": request.max_output,
        "n": request.choices if request.choices > 1 else None,
        "stop": list(request.stop[:_STOP_LIMIT]) or None,
        **sampling,
        "response_format": _write_format(request.format),
        "reasoning_effort": _write_effort(request.reasoning, losses),
        "service_tier": request.tier or None,
        "user": request.user or None,
        "metadata": dict(request.metadata) or None,
        "prompt_cache_key": request.cache_key or None,
    }
    fields |= {name: value for name, value in optional.items() if value is not None}
    if request.dialect == NAME:
        return fields | request.extras
    losses.extend(Loss("field-dropped", name) for name in request.extras)
    return fields


class _Writer:
    """Writes the messages and tools of a request, and notes losses. `own`: it arrived in this dialect, with extras."""

    def __init__(self, losses: list[Loss], reasoning_field: str, *, own: bool) -> None:
        self._own = own
        self._losses = losses
        self._reasoning_field = reasoning_field

    def messages(self, request: Request) -> list[Json]:
        written: list[Json] = []
        if request.system:
            written.append({"role": "system", "content": self._content(request.system)})
        for turn in request.turns:
            written += self._turn(turn)
        return written

    def _turn(self, turn: Message) -> list[Json]:
        if turn.role == "system":
            return [{"role": turn.extras.get("role", "system"), "content": self._content(turn.parts)}]
        if turn.role == "assistant":
            return [self._answer(turn)]
        moved: list[Part] = []
        written = [self._result(part, moved) for part in turn.parts if isinstance(part, ToolResult)]
        rest = [*moved, *(part for part in turn.parts if not isinstance(part, ToolResult))]
        if rest or not written:
            message: Json = {"role": "user", "content": self._content(rest)}
            if turn.name:
                message["name"] = turn.name
            written.append(message)
        return written

    def _answer(self, turn: Message) -> Json:
        content = [part for part in turn.parts if not isinstance(part, ToolCall | ReasoningPart)]
        calls = [part for part in turn.parts if isinstance(part, ToolCall)]
        message: Json = {"role": "assistant", "content": self._content(content) if content or not calls else None}
        reasoning = [part for part in turn.parts if isinstance(part, ReasoningPart)]
        text = "".join(part.text or "\n\n".join(part.summary) for part in reasoning)
        if text and self._reasoning_field:
            message[self._reasoning_field] = text
        elif reasoning:
            self._losses.append(Loss("reasoning-dropped"))
        if turn.name:
            message["name"] = turn.name
        written = [self._call(call) for call in calls if not call.server]
        self._losses.extend(Loss("content-dropped", call.name) for call in calls if call.server)
        if written:
            message["tool_calls"] = written
        return message

    def _call(self, call: ToolCall) -> Json:
        name = _tool_name(call.name, call.namespace)
        if call.kind == "custom":
            return {"id": call.id or "", "type": "custom", "custom": {"name": name, "input": call.arguments}}
        return {"id": call.id or "", "type": "function", "function": {"name": name, "arguments": call.arguments}}

    def _result(self, result: ToolResult, moved: list[Part]) -> Json:
        """A message with the text of a result. Its media go into `moved`: a tool message cannot have any."""
        text = "\n".join(part.text for part in result.parts if isinstance(part, TextPart))
        media = [part for part in result.parts if isinstance(part, MediaPart)]
        if media:
            self._losses.append(Loss("result-media-moved", result.call_id))
            moved += [TextPart(f"The result of {result.name or result.call_id} is attached."), *media]
        self._losses.extend(
            Loss("content-dropped", getattr(part, "type", ""))
            for part in result.parts
            if not isinstance(part, TextPart | MediaPart)
        )
        if result.is_error:
            self._losses.append(Loss("error-flag-as-text", result.call_id))
            text = f"Error: {text}"
        self._note_cache(result.cache)
        return {"role": "tool", "tool_call_id": result.call_id, "content": text}

    def _content(self, parts: Sequence[Part]) -> object:
        """The text if there is only one text part, else a list of parts."""
        if len(parts) == 1 and isinstance(parts[0], TextPart):
            self._note_cache(parts[0].cache)
            return parts[0].text
        return [written for part in parts if (written := self._part(part)) is not None]

    def _part(self, part: Part) -> Json | None:
        match part:
            case TextPart(text):
                self._note_cache(part.cache)
                return {"type": "text", "text": text} | (part.extras if self._own else {})
            case RefusalPart(text):
                return {"type": "refusal", "refusal": text}
            case MediaPart():
                self._note_cache(part.cache)
                return self._media(part)
            case OpaquePart(dialect, type, data) if dialect == NAME:
                return {"type": type, **data}
            case OpaquePart(_, type):
                self._losses.append(Loss("content-dropped", type))
            case ReasoningPart():
                self._losses.append(Loss("reasoning-dropped"))
            case ToolCall() | ToolResult():
                self._losses.append(
                    Loss("content-dropped", "tool call" if isinstance(part, ToolCall) else "tool result")
                )
        return None

    def _media(self, part: MediaPart) -> Json | None:
        url = part.url or f"data:{part.mime};base64,{part.data}"
        if part.kind == "image" and not part.file_id:
            return {"type": "image_url", "image_url": {"url": url} | (part.extras if self._own else {})}
        if part.kind == "audio" and part.data:
            form = next((name for name, mime in AUDIO_TYPES.items() if mime == part.mime), part.mime.partition("/")[2])
            return {"type": "input_audio", "input_audio": {"data": part.data, "format": form}}
        if part.kind == "file" and part.data:
            return {"type": "file", "file": {"filename": part.name or "file", "file_data": url}}
        self._losses.append(Loss("content-dropped", f"{part.kind} by {'file id' if part.file_id else 'URL'}"))
        return None

    def tool(self, tool: Tool) -> Json | None:
        self._note_cache(tool.cache)
        if tool.kind == "server":
            self._losses.append(Loss("server-tool-dropped", tool.type or tool.name))
            return None
        name = _tool_name(tool.name, tool.namespace)
        body: Json = {"name": name}
        if tool.description:
            body["description"] = tool.description
        self._losses.extend(Loss("tool-option-dropped", option) for option in tool.extras)
        if tool.kind == "custom":
            return {"type": "custom", "custom": body | ({"format": tool.format} if tool.format else {})}
        if tool.schema is not None:
            body["parameters"] = tool.schema
        if tool.strict is not None:
            body["strict"] = tool.strict
        return {"type": "function", "function": body}

    def _note_cache(self, cache: str) -> None:
        if cache:
            self._losses.append(Loss("cache-hint-dropped", cache))


def _tool_name(name: str, namespace: str | None) -> str:
    return f"{namespace}__{name}" if namespace else name


def _write_choice(choice: ToolChoice | None, tools: Iterable[Tool]) -> object:
    if choice is None:
        return None
    custom = {tool.name for tool in tools if tool.kind == "custom"}
    named = [{"type": kind, kind: {"name": name}} for name in choice.names for kind in [_kind(name, custom)]]
    match choice.mode:
        case "auto" | "none" | "required":
            return choice.mode
        case "tool":
            return named[0] if named else "required"
        case "allowed":
            return {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": named}}


def _kind(name: str, custom: set[str]) -> str:
    return "custom" if name in custom else "function"


def _write_format(form: ResponseFormat | None) -> object:
    if form is None:
        return None
    if form.kind == "json":
        return {"type": "json_object"}
    described: Json = {"name": form.name or "answer", "schema": form.schema or {}}
    if form.strict is not None:
        described["strict"] = form.strict
    if form.description:
        described["description"] = form.description
    return {"type": "json_schema", "json_schema": described}


def _write_effort(settings: ReasoningSettings | None, losses: list[Loss]) -> str | None:
    if settings is None:
        return None
    if settings.enabled is False:
        return "none"
    if settings.effort is None and settings.budget is not None:
        losses.append(Loss("field-dropped", "reasoning budget"))
    return settings.effort
