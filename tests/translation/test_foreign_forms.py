"""Old forms, forms of another API, and conversations without content: carried as meant, or refused with 400."""

import json

import pytest

from penstock.core.dialects.dialect import RequestError
from penstock.core.dialects.registry import surface_dialect
from tests.translation.support import BEDROCK, CHAT, COHERE, GEMINI, MESSAGES, OLLAMA, RESPONSES, Json, asked

PROVIDERS = (CHAT, MESSAGES, RESPONSES, GEMINI, BEDROCK, COHERE, OLLAMA)
CLIENTS = (CHAT, MESSAGES, RESPONSES, GEMINI)
PAIRS = [(client, provider) for client in CLIENTS for provider in PROVIDERS if client != provider]
SCHEMA: Json = {"type": "object", "properties": {"port": {"type": "string"}}}
# The members of a provider's body that have the id of a call, and of a result.
ID_MEMBERS = {
    MESSAGES: ("id", "tool_use_id"),
    RESPONSES: ("call_id", "call_id"),
    GEMINI: ("id", "id"),
    BEDROCK: ("toolUseId", "toolUseId"),
    COHERE: ("id", "tool_call_id"),
    OLLAMA: ("id", "tool_call_id"),
}


def legacy(name: str, arguments: str) -> Json:
    return {"role": "assistant", "content": None, "function_call": {"name": name, "arguments": arguments}}


def ids_in(value: object, members: tuple[str, ...]) -> list[str]:
    """The ids in a body, in their order."""
    if isinstance(value, list):
        return [id for each in value for id in ids_in(each, members)]
    if not isinstance(value, dict):
        return []
    own = [str(value[name]) for name in dict.fromkeys(members) if name in value]
    return own + [id for each in value.values() for id in ids_in(each, members)]


@pytest.mark.parametrize("provider", ID_MEMBERS)
def test_a_legacy_function_keeps_its_result(provider: str) -> None:
    conversation = [
        {"role": "user", "content": "Tide?"},
        {
            "role": "assistant",
            "tool_calls": [{"id": "call_1", "type": "function", "function": {"name": "g", "arguments": "{}"}}],
        },
        {"role": "tool", "tool_call_id": "call_1", "content": "0"},
        legacy("f", '{"port":"Brest"}'),
        {"role": "function", "name": "f", "content": "high"},
        legacy("f", '{"port":"Calais"}'),
        {"role": "function", "name": "f", "content": "low"},
    ]
    body, losses = asked(CHAT, provider, {"messages": conversation, "functions": [{"name": "f"}, {"name": "g"}]})
    members = ("messages", "contents", "input")
    sent = next(body[name] for name in members if name in body)
    assert ids_in(sent, ID_MEMBERS[provider]) == ["call_1", "call_1", "call_2", "call_2", "call_3", "call_3"]
    assert "content-dropped" not in dict(losses)


def named(provider: str, body: Json) -> list[tuple[str, object]]:
    """The tools of a body: names and schemas."""
    if provider == GEMINI:
        return [(each["name"], each["parametersJsonSchema"]) for each in body["tools"][0]["functionDeclarations"]]
    if provider == BEDROCK:
        specs = [each["toolSpec"] for each in body["toolConfig"]["tools"]]
        return [(each["name"], each["inputSchema"]["json"]) for each in specs]
    tools = [each.get("function", each) for each in body["tools"]]
    return [(each["name"], each.get("parameters") or each["input_schema"]) for each in tools]


WRAPPED: Json = {"type": "function", "function": {"name": "f", "description": "A tide", "parameters": SCHEMA}}
FLAT: Json = {"type": "function", "name": "f", "description": "A tide", "parameters": SCHEMA}


@pytest.mark.parametrize(
    ("client", "tool", "choice", "provider"),
    [
        (RESPONSES, WRAPPED, {"type": "function", "function": {"name": "f"}}, each)
        for each in PROVIDERS
        if each != RESPONSES
    ]
    + [(CHAT, FLAT, {"type": "function", "name": "f"}, each) for each in PROVIDERS if each != CHAT],
)
def test_a_function_in_the_form_of_the_other_api_is_lifted(
    client: str, tool: Json, choice: Json, provider: str
) -> None:
    body, losses = asked(client, provider, {"tools": [tool], "tool_choice": choice})
    assert named(provider, body) == [("f", SCHEMA)]
    assert not {"tool-option-dropped", "server-tool-dropped"} & dict(losses).keys()


UNNAMED: dict[str, Json] = {
    CHAT: {"tools": [{"type": "function", "function": {"parameters": SCHEMA}}]},
    RESPONSES: {"tools": [{"type": "function", "parameters": SCHEMA}]},
    MESSAGES: {"tools": [{"input_schema": SCHEMA}]},
    GEMINI: {"tools": [{"functionDeclarations": [{"parametersJsonSchema": SCHEMA}]}]},
}


@pytest.mark.parametrize(("client", "provider"), PAIRS)
def test_a_tool_without_a_name_is_refused(client: str, provider: str) -> None:
    with pytest.raises(RequestError, match="a tool has no name") as caught:
        asked(client, provider, UNNAMED[client])
    assert (caught.value.failure.status, caught.value.failure.param) == (400, "tools")


ABSENT: dict[str, tuple[str, Json]] = {
    "chat": (CHAT, {}),
    "chat: an empty list": (CHAT, {"messages": []}),
    "messages: an empty list": (MESSAGES, {"messages": [], "max_tokens": 9}),
    "messages: only a system prompt": (MESSAGES, {"messages": [], "system": "Hi", "max_tokens": 9}),
    "responses": (RESPONSES, {"instructions": "Hi"}),
    "responses: an empty list": (RESPONSES, {"input": []}),
    "gemini": (GEMINI, {}),
    "gemini: an empty list": (GEMINI, {"contents": []}),
}


def read(client: str, fields: Json) -> None:
    surface = surface_dialect(client)
    path = "/v1beta/models/m:generateContent" if client == GEMINI else surface.path
    surface.read_request(json.dumps({"model": "m"} | fields).encode(), {}, path)


@pytest.mark.parametrize(("client", "fields"), ABSENT.values(), ids=ABSENT)
def test_a_request_without_a_conversation_is_refused_for_every_provider(client: str, fields: Json) -> None:
    with pytest.raises(RequestError, match="at least one") as caught:
        read(client, fields)
    assert caught.value.failure.status == 400


@pytest.mark.parametrize("member", [{"prompt": {"id": "pmpt_1"}}, {"previous_response_id": "resp_1"}], ids=str)
def test_a_stored_prompt_or_response_needs_no_input(member: Json) -> None:
    read(RESPONSES, member)


def request_of(client: str, *content: Json) -> Json:
    """A request with a system prompt and a message of the user."""
    match client:
        case "gemini":
            return {"contents": [{"role": "user", "parts": content}], "systemInstruction": {"parts": [{"text": "s"}]}}
        case "openai_responses":
            return {"input": [{"role": "user", "content": content}], "instructions": "s"}
        case "anthropic_messages":
            return {"messages": [{"role": "user", "content": content}], "system": "s"}
        case _:
            return {"messages": [{"role": "system", "content": "s"}, {"role": "user", "content": content}]}


TEXT = {CHAT: "text", MESSAGES: "text", RESPONSES: "input_text", GEMINI: ""}


@pytest.mark.parametrize(("client", "provider"), PAIRS)
def test_a_conversation_that_is_empty_after_translation_is_refused(client: str, provider: str) -> None:
    text: Json = {"text": ""} | ({"type": TEXT[client]} if TEXT[client] else {})
    with pytest.raises(RequestError, match=r"^the conversation is empty; send a message$"):
        asked(client, provider, request_of(client, text))
    unknown: Json = {"hologram": {}} if client == GEMINI else {"type": "hologram"}
    with pytest.raises(RequestError, match=r"^the conversation is empty; .*content-dropped \(hologram\)$") as caught:
        asked(client, provider, request_of(client, text, unknown))
    assert (caught.value.failure.status, caught.value.failure.param) == (400, "messages")


@pytest.mark.parametrize("provider", [RESPONSES, COHERE, OLLAMA])
def test_a_chat_of_a_system_message_only_is_sent_where_the_api_has_such(provider: str) -> None:
    asked(CHAT, provider, {"messages": [{"role": "system", "content": "Say hi."}]})
