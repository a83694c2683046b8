"""Content: the messages of a request and of its answer in OpenTelemetry's format, if `[telemetry] content` is set.

Text, reasoning and tool calls are exported with secrets masked. Of any other part, such as an image, only the type is
exported.
"""

from collections.abc import Callable, Iterable
from typing import TypeAlias

import msgspec

from penstock.core.hub.completion import Completion
from penstock.core.hub.content import (
    MediaPart,
    OpaquePart,
    Part,
    ReasoningPart,
    RefusalPart,
    TextPart,
    ToolCall,
    ToolChange,
    ToolResult,
)
from penstock.core.hub.request import Request

# Longer content is omitted: a trace collector is not an archive.
MAX_CHARS = 32_768
# A JSON value without the secrets in it.
Mask: TypeAlias = Callable[[object], object]


def messages_in(request: Request | None, mask: Mask) -> str:
    """The client's messages as JSON; empty if there are none or if they are too long."""
    if request is None:
        return ""
    messages: list[object] = []
    if request.system:
        messages.append({"role": "system", "parts": _parts(request.system)})
    for turn in request.turns:
        results = [part for part in turn.parts if isinstance(part, ToolResult)]
        messages += [{"role": "tool", "parts": _parts([result])} for result in results]
        if not results or len(results) < len(turn.parts):
            others = [part for part in turn.parts if not isinstance(part, ToolResult)]
            messages.append({"role": turn.role, "parts": _parts(others)})
    return _json(messages, mask)


def messages_out(completion: Completion, mask: Mask) -> str:
    """The model's messages as JSON, one for each choice; empty if they are too long."""
    return _json(answer_messages(completion), mask)


def answer_messages(completion: Completion) -> list[object]:
    """The model's messages, one for each choice."""
    messages: list[object] = []
    for choice in completion.choices:
        parts: list[object] = []
        if choice.reasoning:
            parts.append({"type": "reasoning", "content": choice.reasoning})
        if choice.text or choice.refusal:
            parts.append({"type": "text", "content": choice.text + choice.refusal})
        parts += (
            {"type": "tool_call", "id": call.id, "name": call.name, "arguments": call.arguments}
            for call in choice.tool_calls
        )
        messages.append({"role": choice.role, "parts": parts, "finish_reason": choice.finish_reason or ""})
    return messages


def _parts(parts: Iterable[Part]) -> list[object]:
    return [_part(part) for part in parts]


def _part(part: Part) -> object:
    match part:
        case TextPart(text) | RefusalPart(text):
            return {"type": "text", "content": text}
        case ReasoningPart(text):
            return {"type": "reasoning", "content": text}
        case ToolCall(id, name, arguments):
            return {"type": "tool_call", "id": id, "name": name, "arguments": arguments}
        case ToolResult(call_id, inner):
            texts = [each.text for each in inner if isinstance(each, TextPart)]
            return {"type": "tool_call_response", "id": call_id, "response": "\n".join(texts)}
        case MediaPart(kind=kind):
            return {"type": kind}
        case ToolChange():
            return {"type": "text", "content": str(part)}
        case OpaquePart(type=type):
            return {"type": type}


def _json(messages: list[object], mask: Mask) -> str:
    if not messages or len(msgspec.json.encode(messages)) > 4 * MAX_CHARS:  # in bytes; masking takes longer
        return ""
    encoded = msgspec.json.encode(mask(messages)).decode()
    return encoded if len(encoded) <= MAX_CHARS else ""
