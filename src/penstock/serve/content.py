"""Content: what was asked and answered, as OpenTelemetry's conventions write messages. Only for who has asked for it.

Text, reasoning and tool calls are told as they are; of anything else, an image perhaps, only what kind it is.
"""

from collections.abc import Iterable

import msgspec

from penstock.core.completion import Completion

# Longer messages are left out: a collector is no archive.
LONGEST = 32_768


def messages_in(messages: object) -> str:
    """The client's messages, as JSON; empty where there are none, or too many."""
    given = messages if isinstance(messages, list) else []
    return _json([_message(message) for message in given if isinstance(message, dict)])


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


def _message(message: dict[str, object]) -> object:
    role = message.get("role")
    if role == "tool":
        response = {"type": "tool_call_response", "id": message.get("tool_call_id"), "response": message.get("content")}
        return {"role": role, "parts": [response]}
    calls = message.get("tool_calls")
    return {"role": role, "parts": [*_parts(message.get("content")), *_calls(calls if isinstance(calls, list) else [])]}


def _parts(content: object) -> list[object]:
    if isinstance(content, str):
        return [{"type": "text", "content": content}]
    parts = [part for part in content if isinstance(part, dict)] if isinstance(content, list) else []
    return [
        {"type": "text", "content": part.get("text")} if part.get("type") == "text" else {"type": part.get("type")}
        for part in parts
    ]


def _calls(calls: Iterable[object]) -> list[object]:
    found: list[object] = []
    for call in calls:
        function = call.get("function") if isinstance(call, dict) else None
        if isinstance(call, dict) and isinstance(function, dict):
            arguments = function.get("arguments")
            found.append(
                {"type": "tool_call", "id": call.get("id"), "name": function.get("name"), "arguments": arguments}
            )
    return found


def _json(messages: list[object]) -> str:
    if not messages:
        return ""
    encoded = msgspec.json.encode(messages).decode()
    return encoded if len(encoded) <= LONGEST else ""
