"""Content: what was asked and answered, as OpenTelemetry's conventions write messages. Only for who has asked for it.

Text, reasoning and tool calls are told as they are; of anything else, an image perhaps, only what kind it is.
"""

from collections.abc import Iterable

import msgspec

from penstock.core.completion import Completion
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
from penstock.core.request import Request

# Longer messages are left out: a collector is no archive.
LONGEST = 32_768


def messages_in(request: Request | None) -> str:
    """The client's messages, as JSON; empty where there are none, or too many."""
    if request is None:
        return ""
    messages: list[object] = []
    if request.system:
        messages.append({"role": "system", "parts": _parts(request.system)})
    for turn in request.turns:
        results = [part for part in turn.parts if isinstance(part, ToolResult)]
        messages += [{"role": "tool", "parts": _parts([result])} for result in results]
        if not results or len(results) < len(turn.parts):
            said = [part for part in turn.parts if not isinstance(part, ToolResult)]
            messages.append({"role": turn.role, "parts": _parts(said)})
    return _json(messages)


def messages_out(completion: Completion) -> str:
    """The model's, one for each choice."""
    found: list[object] = []
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
        found.append({"role": choice.role, "parts": parts, "finish_reason": choice.finish_reason or ""})
    return _json(found)


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
        case OpaquePart(type=type):
            return {"type": type}


def _json(messages: list[object]) -> str:
    if not messages:
        return ""
    encoded = msgspec.json.encode(messages).decode()
    return encoded if len(encoded) <= LONGEST else ""
