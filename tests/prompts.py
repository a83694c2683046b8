"""The prompt of a request as a provider's prompt cache sees it, and the earlier turns of a conversation.

A prompt cache has the tools, then the system prompt, then the messages, each as the bytes that the provider gets. Marks
for the cache are no part of it. One changed byte in front of a breakpoint empties the cache.
"""

import json
from collections.abc import Iterator
from itertools import takewhile
from typing import Any

from penstock.core.json.getters import list_of
from tests.translation.support import BEDROCK, CHAT, COHERE, GEMINI, MESSAGES, OLLAMA, RESPONSES

Json = dict[str, Any]
_POINT = {"cachePoint": {"type": "default"}}
MARKS = ("cache_control", "cachePoint", "prompt_cache_breakpoint")
# The member with the messages, by the dialect; and how the API calls the model's role.
MEMBERS = {RESPONSES: "input", GEMINI: "contents"}
_SYSTEM = {MESSAGES: "system", BEDROCK: "system", GEMINI: "systemInstruction"}
_OF_MODEL = ("assistant", "model")
# The items of Responses that the model makes.
_MADE = ("_call", "reasoning", "compaction", "mcp_list_tools", "mcp_approval_request", "item_reference")
PROVIDERS = (CHAT, MESSAGES, RESPONSES, GEMINI, BEDROCK, COHERE, OLLAMA)


# Bedrock demands that every tool is declared that was called, also if the client offers none any more.
_UNDECLARED = {"type": "object", "properties": {}}


def turn(client: str, text: str, *, of_model: bool) -> Json:
    """A message in an API."""
    role = "user" if not of_model else "model" if client == GEMINI else "assistant"
    return {
        "role": role,
        "parts" if client == GEMINI else "content": [{"text": text}] if client in (GEMINI, BEDROCK) else text,
    }


def earlier(client: str, fields: Json) -> Iterator[Json]:
    """The requests of a conversation, oldest first: each ends where the model answered. The last one is `fields`."""
    name = MEMBERS.get(client, "messages")
    turns = list_of(fields.get(name))
    for place in range(len(turns)):
        if place and not _is_of_model(turns[place - 1]) and _is_answered(turns[place:]):
            yield fields | {name: turns[:place]}
    yield fields


def _is_answered(turns: list[Any]) -> bool:
    """Whether the model's answer is next. Reasoning alone is none."""
    made = list(takewhile(_is_of_model, turns))
    return any(turn.get("type") != "reasoning" for turn in made)


def _is_of_model(turn: object) -> bool:
    return isinstance(turn, dict) and (turn.get("role") in _OF_MODEL or str(turn.get("type")).endswith(_MADE))


def prompt(provider: str, body: Json) -> list[str]:
    """What the prompt cache of a provider sees of a request, in order: tools, system prompt, blocks of messages."""
    tools = body.get("tools") or body.get("toolConfig", {}).get("tools") or []
    system = body.get(_SYSTEM.get(provider, ""), [])
    messages = body.get(MEMBERS.get(provider, "messages"), [])
    blocks = [("tool", tool) for tool in tools if tool.get("toolSpec", {}).get("inputSchema") != {"json": _UNDECLARED}]
    blocks += [("system", block) for block in (system if isinstance(system, list) else [system])]
    for message in messages:
        role = str(message.get("role"))
        content = message.get("content", message.get("parts"))
        parts = [{"type": "text", "text": content}] if isinstance(content, str) else content or []
        blocks += [(role, part) for part in parts]
        rest = {name: value for name, value in message.items() if name not in ("role", "content", "parts")}
        blocks += [(role, rest)] if rest else []
    return [json.dumps([kind, unmarked(block)]) for kind, block in blocks if block != _POINT]


def unmarked(value: Any) -> Any:
    """JSON without marks for the prompt cache."""
    if isinstance(value, dict):
        return {name: unmarked(each) for name, each in value.items() if name not in MARKS}
    return [unmarked(each) for each in value if each != _POINT] if isinstance(value, list) else value
