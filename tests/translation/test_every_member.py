"""Every member of a request reaches the provider, or is declared as a loss, or the request is refused."""

from random import Random
from typing import Any

import pytest

from penstock.core.dialects.dialect import RequestError
from tests.request_members import random_case, unaccounted
from tests.translation.support import BEDROCK, CHAT, COHERE, GEMINI, MESSAGES, OLLAMA, RESPONSES, Json, Lost, asked

PROVIDERS = (CHAT, RESPONSES, MESSAGES, GEMINI, BEDROCK, COHERE, OLLAMA)
HI: Json = {"role": "user", "content": "Hi"}
TOOL: Json = {"type": "function", "function": {"name": "f"}}
SCHEMALESS: Json = {"type": "json_schema"}
# Requests that ask for what is wrong in their own API.
REFUSED: dict[str, tuple[str, Json, str]] = {
    "a format without a schema": (CHAT, {"messages": [HI], "response_format": SCHEMALESS}, "response_format"),
    "a named format without a schema": (
        CHAT,
        {"messages": [HI], "response_format": SCHEMALESS | {"json_schema": {"name": "x"}}},
        "response_format",
    ),
    "a Responses format without a schema": (
        RESPONSES,
        {"input": "Hi", "text": {"format": SCHEMALESS | {"name": "x"}}},
        "text.format",
    ),
    "a Messages format without a schema": (
        MESSAGES,
        {"messages": [HI], "output_config": {"format": SCHEMALESS}},
        "output_config.format",
    ),
    "an unknown role": (CHAT, {"messages": [{"role": "robot", "content": "x"}]}, "messages"),
    "an unknown role of Messages": (MESSAGES, {"messages": [{"role": "robot", "content": "x"}]}, "messages"),
    "an unknown role of Responses": (RESPONSES, {"input": [{"role": "robot", "content": "x"}]}, "input"),
    "an unknown role of Gemini": (GEMINI, {"contents": [{"role": "robot", "parts": [{"text": "x"}]}]}, "contents"),
    "an unknown role of Cohere": (COHERE, {"messages": [{"role": "developer", "content": "x"}]}, "messages"),
    "a tool that is not declared": (
        CHAT,
        {"messages": [HI], "tools": [TOOL], "tool_choice": {"type": "function", "function": {"name": "g"}}},
        "tool_choice",
    ),
    "a tool of Gemini that is not declared": (
        GEMINI,
        {
            "contents": [{"parts": [{"text": "Hi"}]}],
            "tools": [{"functionDeclarations": [{"name": "f"}]}],
            "toolConfig": {"functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": ["g"]}},
        },
        "tool_choice",
    ),
    "a demand for a deferred tool": (
        MESSAGES,
        {"messages": [HI], "tools": [{"name": "f", "defer_loading": True}], "tool_choice": {"type": "any"}},
        "tool_choice",
    ),
    "a demand for a tool without tools": (CHAT, {"messages": [HI], "tool_choice": "required"}, "tool_choice"),
}


@pytest.mark.parametrize(("client", "fields", "param"), REFUSED.values(), ids=REFUSED)
def test_what_no_other_api_can_express_is_refused(client: str, fields: Json, param: str) -> None:
    for provider in PROVIDERS:
        if provider == client:
            body, losses = asked(client, provider, fields)
            assert fields.items() <= body.items()  # it is up to the provider
            assert losses == []
            continue
        with pytest.raises(RequestError) as error:
            asked(client, provider, fields)
        assert error.value.failure.param == param
        assert error.value.failure.code == "invalid_request"


MARKS: dict[str, tuple[Json, Json]] = {
    "cache_control": ({"cache_control": {"type": "ephemeral"}}, {}),
    "cache_control for an hour": ({"cache_control": {"type": "ephemeral", "ttl": "1h"}}, {"ttl": "1h"}),
    "prompt_cache_breakpoint": ({"prompt_cache_breakpoint": {"mode": "explicit"}}, {}),
}
URL = "https://example.com/a.png"
PARTS: dict[str, tuple[Json, Json]] = {
    CHAT: ({"type": "text", "text": "Long"}, {"type": "image_url", "image_url": {"url": URL}}),
    RESPONSES: ({"type": "input_text", "text": "Long"}, {"type": "input_image", "image_url": URL}),
}


def conversation(client: str, *parts: Json) -> Json:
    return {"messages" if client == CHAT else "input": [{"role": "user", "content": list(parts)}]}


@pytest.mark.parametrize("client", PARTS)
@pytest.mark.parametrize(("mark", "lifetime"), MARKS.values(), ids=MARKS)
def test_marks_for_the_cache_reach_claude(client: str, mark: Json, lifetime: Json) -> None:
    """`cache_control` and `prompt_cache_breakpoint` both mark the end of a prefix that is used again."""
    fields = conversation(client, *(part | mark for part in PARTS[client]))
    body, losses = asked(client, MESSAGES, fields)
    assert [block["cache_control"] for block in body["messages"][0]["content"]] == [
        {"type": "ephemeral"} | lifetime
    ] * 2
    assert [code for code, _ in losses] == ["max-tokens-assumed"]
    body, losses = asked(client, BEDROCK, conversation(client, PARTS[client][0] | mark), cache_points=True)
    assert body["messages"][0]["content"] == [{"text": "Long"}, {"cachePoint": {"type": "default"} | lifetime}]
    assert losses == []


@pytest.mark.parametrize("provider", [GEMINI, COHERE, OLLAMA, BEDROCK])
def test_marks_for_the_cache_are_declared_elsewhere(provider: str) -> None:
    mark = {"prompt_cache_breakpoint": {"mode": "explicit"}}
    _, losses = asked(CHAT, provider, conversation(CHAT, PARTS[CHAT][0] | mark))
    assert losses == [("cache-hint-dropped", "5m")]


def test_a_lifetime_that_claude_lacks_is_declared() -> None:
    mark = {"prompt_cache_breakpoint": {"mode": "explicit", "ttl": "30m"}}
    body, losses = asked(CHAT, MESSAGES, conversation(CHAT, PARTS[CHAT][0] | mark))
    assert body["messages"][0]["content"][0]["cache_control"] == {"type": "ephemeral"}
    assert ("cache-hint-dropped", "the lifetime 30m") in losses


# Members that no API has, at every level of a request: the client's API, the request, and the loss of each member.
UNKNOWN: dict[str, tuple[str, Json, Lost]] = {
    "of a text": (
        CHAT,
        {"messages": [{"role": "user", "content": [{"type": "text", "text": "Hi", "glow": 1}]}]},
        [("field-dropped", "content.glow")],
    ),
    "of a system message": (
        CHAT,
        {"messages": [{"role": "system", "content": "Hi", "glow": 1}, HI]},
        [("field-dropped", "content.glow")],
    ),
    "of a choice of tools": (
        CHAT,
        {"messages": [HI], "tools": [TOOL], "tool_choice": {**TOOL, "glow": 1}},
        [("field-dropped", "tool_choice.glow")],
    ),
    "of a function": (
        CHAT,
        {"messages": [HI], "tools": [{"type": "function", "function": {"name": "f", "glow": 1}}]},
        [("tool-option-dropped", "glow")],
    ),
    "of an item": (
        RESPONSES,
        {"input": [HI, {"type": "function_call", "call_id": "a", "name": "f", "arguments": "{}", "glow": 1}]},
        [("field-dropped", "content.glow")],
    ),
    "of a source": (
        MESSAGES,
        {
            "messages": [
                {"role": "user", "content": [{"type": "image", "source": {"type": "url", "url": URL, "glow": 1}}]},
                HI,
            ]
        },
        [("field-dropped", "content.source.glow")],
    ),
    "of a part of Gemini": (
        GEMINI,
        {"contents": [{"role": "user", "parts": [{"text": "Hi", "glow": 1}]}]},
        [("field-dropped", "content.glow")],
    ),
    "of a nested setting": (
        GEMINI,
        {"contents": [{"parts": [{"text": "Hi"}]}], "generationConfig": {"thinkingConfig": {"glow": 1}}},
        [("field-dropped", "generationConfig.thinkingConfig.glow")],
    ),
}


@pytest.mark.parametrize(("client", "fields", "expected"), UNKNOWN.values(), ids=UNKNOWN)
def test_members_that_no_api_has_are_declared(client: str, fields: Json, expected: Lost) -> None:
    for provider in PROVIDERS:
        body, losses = asked(client, provider, fields)
        if provider == client:
            assert fields.items() <= body.items()
        else:
            assert [loss for loss in losses if "glow" in loss[1]] == expected, provider


def result(**members: object) -> Json:
    return {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a", "content": [members]}]}


PDF = "data:application/pdf;base64,JVBERi0="
# Members that other APIs lack: the client's API, the request, and a loss of it.
DECLARED: dict[str, tuple[str, Json, tuple[str, str]]] = {
    "an input that may be cut": (RESPONSES, {"input": "Hi", "truncation": "auto"}, ("field-dropped", "truncation")),
    "data in two places": (
        RESPONSES,
        conversation(RESPONSES, PARTS[RESPONSES][0], {"type": "input_file", "file_data": PDF, "file_url": PDF + "="}),
        ("field-dropped", "content.file_data"),
    ),
    "a search result of another type than text": (
        MESSAGES,
        {
            "messages": [
                HI,
                conversation(CHAT, {"type": "search_result", "content": [{"type": "glow", "text": "Hi"}]})["messages"][
                    0
                ],
            ]
        },
        ("content-dropped", "search_result"),
    ),
    "a mark at the name of a tool": (
        MESSAGES,
        {"messages": [HI, result(type="tool_reference", tool_name="f", cache_control={"type": "ephemeral"})]},
        ("field-dropped", "content.cache_control"),
    ),
    "a level of thinking that is off": (
        GEMINI,
        {
            "contents": [{"parts": [{"text": "Hi"}]}],
            "generationConfig": {"thinkingConfig": {"thinkingBudget": 0, "thinkingLevel": "HIGH"}},
        },
        ("effort-approximated", "high and none"),
    ),
    "calls that fulfil the schema": (
        GEMINI,
        {
            "contents": [{"parts": [{"text": "Hi"}]}],
            "tools": [{"functionDeclarations": [{"name": "f"}]}],
            "toolConfig": {"functionCallingConfig": {"mode": "VALIDATED"}},
        },
        ("field-dropped", "toolConfig.functionCallingConfig.mode"),
    ),
    "a member beside the media of a result": (
        GEMINI,
        {
            "contents": [
                {"parts": [{"functionCall": {"name": "f"}}], "role": "model"},
                {
                    "parts": [
                        {
                            "functionResponse": {
                                "name": "f",
                                "parts": [{"inlineData": {"mimeType": "image/png", "data": "aGk="}, "glow": 1}],
                            }
                        }
                    ]
                },
            ]
        },
        ("field-dropped", "content.glow"),
    ),
}


@pytest.mark.parametrize(("client", "fields", "expected"), DECLARED.values(), ids=DECLARED)
def test_what_other_apis_lack_is_declared(client: str, fields: Json, expected: tuple[str, str]) -> None:
    for provider in PROVIDERS:
        _, losses = asked(client, provider, fields)
        assert (expected in losses) == (provider != client), provider


def test_a_tool_that_no_message_has_added_is_declared() -> None:
    tools = [{"name": "f", "input_schema": {"type": "object"}, "defer_loading": True}]
    for provider in PROVIDERS:
        body, losses = asked(MESSAGES, provider, {"messages": [HI], "max_tokens": 100, "tools": tools})
        if provider == MESSAGES:
            assert body["tools"] == tools
        else:
            assert ("tool-withheld", "f") in losses, provider


def test_calls_that_a_choice_forbids_are_declared_where_the_history_needs_tools() -> None:
    """Bedrock needs a definition of each tool that the conversation has called, and has no choice of none."""
    call = {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    messages = [HI, {"role": "assistant", "tool_calls": [call]}, {"role": "tool", "tool_call_id": "a", "content": "1"}]
    body, losses = asked(CHAT, BEDROCK, {"messages": messages, "tool_choice": "none"})
    assert body["toolConfig"]["tools"]
    assert ("tool-choice-widened", "none") in losses


def test_members_beside_the_text_of_a_flat_result_are_declared() -> None:
    texts = [{"type": "input_text", "text": "1", "glow": 1}, {"type": "glow", "text": "2"}]
    fields = {"input": [HI, {"type": "function_call_output", "call_id": "a", "output": texts}]}
    body, losses = asked(RESPONSES, RESPONSES, fields, result_parts=False)
    assert body["input"][1]["output"] == "1"
    assert texts[1] in body["input"][2]["content"]
    assert ("field-dropped", "output.glow") in losses


def test_a_seed_of_zero_is_a_seed() -> None:
    for provider in PROVIDERS:
        body, losses = asked(CHAT, provider, {"messages": [HI], "seed": 0, "presence_penalty": 0})
        holder = body.get("generationConfig") or body.get("options") or body
        assert (holder.get("seed") == 0) != (("sampling-dropped", "seed") in losses), provider
        assert ("sampling-dropped", "presence_penalty") not in losses  # 0 is the default


@pytest.mark.slow
@pytest.mark.parametrize("start", range(0, 600, 300))
def test_no_member_vanishes(start: int) -> None:
    """`scripts/fuzz --members` tries more."""
    found: list[Any] = [
        (number, problem)
        for number in range(start, start + 300)
        for problem in unaccounted(random_case(Random(number)))
    ]
    assert found == []
