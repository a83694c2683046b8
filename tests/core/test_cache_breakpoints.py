"""Breakpoints for the prompt cache, in requests of clients of other APIs: where they are set, and where none is."""

import json
from typing import Any

import pytest

from penstock.core.dialects.dialect import Destination
from penstock.core.dialects.registry import surface_dialect, upstream_dialect
from tests.translation.support import BEDROCK, CHAT, COHERE, GEMINI, MESSAGES, RESPONSES, Json, asked

LONG = "Never touch the vendored folder. " * 160  # some 1,300 tokens
TOOL: Json = {"type": "function", "function": {"name": "read", "description": LONG, "parameters": {"type": "object"}}}
SHORT_TOOL: Json = {"type": "function", "function": {"name": "read", "parameters": {"type": "object"}}}
SYSTEM: Json = {"role": "system", "content": LONG}
HI: Json = {"role": "user", "content": "Hi"}
CALL: Json = {"id": "c1", "type": "function", "function": {"name": "read", "arguments": "{}"}}
LOOP: list[Json] = [
    HI,
    {"role": "assistant", "content": "Let me see.", "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "c1", "content": "a.txt"},
]
MARK = {"type": "ephemeral"}
_PATHS = {GEMINI: "/v1beta/models/m:generateContent"}
POINT = {"cachePoint": {"type": "default"}}

CASES: dict[str, tuple[Json, list[str]]] = {
    "an agent": ({"messages": [SYSTEM, *LOOP], "tools": [TOOL]}, ["tools", "system", "history", "message"]),
    "the first request of an agent": ({"messages": [SYSTEM, HI], "tools": [TOOL]}, ["tools", "system", "message"]),
    "a conversation without tools": (
        {"messages": [SYSTEM, HI, {"role": "assistant", "content": "Ho"}, HI]},
        ["system", "history", "message"],
    ),
    "one question, which is not asked again": ({"messages": [SYSTEM, HI]}, ["system"]),
    "one item of a batch, by a tool that must be called": (
        {"messages": [SYSTEM, HI], "tools": [TOOL], "tool_choice": "required"},
        ["tools", "system"],
    ),
    "a prompt below the least size": ({"messages": [HI, *LOOP[1:]], "tools": [SHORT_TOOL]}, []),
    "a system prompt that reaches it, after tools that do not": (
        {"messages": [SYSTEM, *LOOP], "tools": [SHORT_TOOL]},
        ["system", "history", "message"],
    ),
    "messages that reach it": (
        {"messages": [{"role": "user", "content": LONG}, *LOOP[1:]], "tools": [SHORT_TOOL]},
        ["history", "message"],
    ),
    "a result of a tool that reaches it": (
        {"messages": [*LOOP[:2], {"role": "tool", "tool_call_id": "c1", "content": LONG}], "tools": [SHORT_TOOL]},
        ["message"],
    ),
    "a client that sets its own": (
        {
            "messages": [
                {"role": "system", "content": [{"type": "text", "text": LONG, "cache_control": MARK}]},
                *LOOP,
            ],
            "tools": [TOOL],
        },
        [],
    ),
    "a client that wants none but its own": (
        {"messages": [SYSTEM, *LOOP], "tools": [TOOL], "prompt_cache_options": {"mode": "explicit"}},
        [],
    ),
}

CLAUDE: dict[str, Json] = {
    MESSAGES: {"cache_minimum": 1_024},
    BEDROCK: {"cache_minimum": 1_024, "cache_points": True},
}


def places(client: str, provider: str, fields: Json, *, cache: bool = True, **settings: object) -> list[str]:
    """Where a request gets breakpoints."""
    surface = surface_dialect(client)
    request = surface.read_request(json.dumps({"model": "m"} | fields).encode(), {}, _PATHS.get(client, surface.path))
    destination = Destination(model="target", settings=settings, cache=cache)
    return list(upstream_dialect(provider).write_request(request, destination).breakpoints)


@pytest.mark.parametrize("provider", CLAUDE)
@pytest.mark.parametrize(("fields", "expected"), CASES.values(), ids=CASES)
def test_breakpoints_are_set_where_they_pay(fields: Json, expected: list[str], provider: str) -> None:
    assert places(CHAT, provider, fields, **CLAUDE[provider]) == expected


def test_the_last_blocks_of_tools_system_and_messages_are_marked() -> None:
    body, _ = asked(CHAT, MESSAGES, CASES["an agent"][0], **CLAUDE[MESSAGES])
    first, answer, result = body["messages"]
    marked = [body["tools"][-1], body["system"][-1], first["content"][-1], result["content"][-1]]
    assert [block["cache_control"] for block in marked] == [MARK] * 4
    assert "cache_control" not in str(answer)


def test_points_follow_the_last_blocks_on_bedrock() -> None:
    body, _ = asked(CHAT, BEDROCK, CASES["an agent"][0], **CLAUDE[BEDROCK])
    first, answer, result = body["messages"]
    marked = [body["toolConfig"]["tools"], body["system"], first["content"], result["content"]]
    assert [blocks[-1] for blocks in marked] == [POINT] * 4
    assert "cachePoint" not in str(answer)


def test_breakpoints_change_nothing_else() -> None:
    fields = CASES["an agent"][0]
    for provider, settings in CLAUDE.items():
        with_marks, lost = asked(CHAT, provider, fields, **settings)
        without, lost_without = asked(CHAT, provider, fields, **settings | {"cache_minimum": 0})
        assert with_marks != without
        assert (without_marks(with_marks), lost) == (without, lost_without)


@pytest.mark.parametrize("provider", CLAUDE)
def test_a_route_turns_them_off(provider: str) -> None:
    assert places(CHAT, provider, CASES["an agent"][0], cache=False, **CLAUDE[provider]) == []


@pytest.mark.parametrize("provider", CLAUDE)
def test_a_provider_without_a_least_size_gets_none(provider: str) -> None:
    assert places(CHAT, provider, CASES["an agent"][0], **CLAUDE[provider] | {"cache_minimum": 0}) == []


# The same conversation of an agent in every API that has clients.
CLIENTS: dict[str, Json] = {
    CHAT: CASES["an agent"][0],
    RESPONSES: {
        "instructions": LONG,
        "tools": [{"type": "function", "name": "read", "description": LONG, "parameters": {"type": "object"}}],
        "input": [
            {"role": "user", "content": "Hi"},
            {"type": "function_call", "call_id": "c1", "name": "read", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "c1", "output": "a.txt"},
        ],
    },
    GEMINI: {
        "systemInstruction": {"parts": [{"text": LONG}]},
        "tools": [{"functionDeclarations": [{"name": "read", "description": LONG}]}],
        "contents": [
            {"role": "user", "parts": [{"text": "Hi"}]},
            {"role": "model", "parts": [{"functionCall": {"name": "read", "args": {}}}]},
            {"role": "user", "parts": [{"functionResponse": {"name": "read", "response": {"output": "a.txt"}}}]},
        ],
    },
    COHERE: CASES["an agent"][0],
    MESSAGES: {
        "max_tokens": 100,
        "system": LONG,
        "tools": [{"name": "read", "description": LONG, "input_schema": {"type": "object"}}],
        "messages": [
            {"role": "user", "content": "Hi"},
            {"role": "assistant", "content": [{"type": "tool_use", "id": "c1", "name": "read", "input": {}}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": "a.txt"}]},
        ],
    },
}


@pytest.mark.parametrize("provider", CLAUDE)
@pytest.mark.parametrize("client", CLIENTS)
def test_clients_of_every_other_api_get_them(client: str, provider: str) -> None:
    expected = [] if client == provider else ["tools", "system", "history", "message"]
    assert places(client, provider, CLIENTS[client], **CLAUDE[provider]) == expected


@pytest.mark.parametrize("provider", [CHAT, RESPONSES])
def test_openai_gets_one_after_the_system_prompt(provider: str) -> None:
    settings: Json = {"cache_breakpoints": True, "cache_minimum": 1_024}
    assert places(MESSAGES, provider, CLIENTS[MESSAGES], **settings) == ["system"]
    assert places(MESSAGES, provider, CLIENTS[MESSAGES] | {"system": "Be brief."}, **settings) == []
    assert places(MESSAGES, provider, CLIENTS[MESSAGES], cache_minimum=1_024) == []
    body, _ = asked(MESSAGES, provider, CLIENTS[MESSAGES], **settings)
    first = (body.get("messages") or body["input"])[0]
    assert first["content"][-1]["prompt_cache_breakpoint"] == {"mode": "explicit"}
    assert json.dumps(body).count("prompt_cache_breakpoint") == 1


@pytest.mark.parametrize("provider", [CHAT, RESPONSES])
def test_openai_gets_a_name_of_the_conversation(provider: str) -> None:
    first = CLIENTS[MESSAGES] | {"messages": CLIENTS[MESSAGES]["messages"][:1]}
    turns = [first, CLIENTS[MESSAGES]]
    names = [asked(MESSAGES, provider, turn, cache_key=True)[0]["prompt_cache_key"] for turn in turns]
    assert names[0] == names[1]
    another = CLIENTS[MESSAGES] | {"system": "Be brief."}
    assert asked(MESSAGES, provider, another, cache_key=True)[0]["prompt_cache_key"] != names[0]
    assert places(MESSAGES, provider, first, cache_key=True) == ["key"]
    assert places(MESSAGES, provider, first, cache=False, cache_key=True) == []
    assert "prompt_cache_key" not in asked(MESSAGES, provider, first)[0]
    own = {"input": "Hi", "prompt_cache_key": "mine"}
    assert asked(RESPONSES, CHAT, own, cache_key=True)[0]["prompt_cache_key"] == "mine"


def without_marks(value: Any) -> Any:
    """JSON without marks for the prompt cache."""
    if isinstance(value, list):
        return [without_marks(item) for item in value if item != POINT]
    if isinstance(value, dict):
        return {name: without_marks(item) for name, item in value.items() if name != "cache_control"}
    return value
