"""What providers of other APIs get of requests to Cohere's API."""

import json

from tests.translation.support import CHAT, COHERE, MESSAGES, Json, asked

HI: Json = {"role": "user", "content": "Hi"}
CITATION: Json = {"start": 0, "end": 2, "text": "It", "sources": [{"type": "document", "document": {"title": "D"}}]}
CALL: Json = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"a":1}'}}


def test_a_conversation_with_a_tool() -> None:
    messages = [
        {"role": "system", "content": [{"type": "text", "text": "Be brief."}]},
        {"role": "user", "content": [{"type": "text", "text": "Tides?"}]},
        {"role": "assistant", "tool_plan": "I look.", "tool_calls": [CALL]},
        {
            "role": "tool",
            "tool_call_id": "c1",
            "content": [{"type": "document", "document": {"id": "d", "data": {"t": 1}}}],
        },
    ]
    tool = {"type": "function", "function": {"name": "f", "description": "F", "parameters": {"type": "object"}}}
    fields = {"messages": messages, "tools": [tool], "strict_tools": True, "tool_choice": "REQUIRED", "k": 5, "p": 0.5}
    body, losses = asked(COHERE, CHAT, fields)
    assert body["messages"] == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Tides?"},
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "c1", "content": '{"t":1}'},
    ]
    assert body["tools"][0]["function"] | {"strict": True} == body["tools"][0]["function"]
    assert (body["tool_choice"], body["top_p"]) == ("required", 0.5)
    assert ("field-dropped", "content.document.id") in losses
    assert ("reasoning-dropped", "") in losses
    assert ("sampling-dropped", "top_k") in losses


def test_thinking_and_a_schema() -> None:
    fields = {
        "messages": [HI],
        "thinking": {"type": "enabled", "token_budget": 2_000},
        "response_format": {"type": "json_object", "json_schema": {"type": "object", "properties": {}}},
        "max_tokens": 4_000,
        "stop_sequences": ["END"],
    }
    body, _ = asked(COHERE, MESSAGES, fields)
    assert body["thinking"] == {"type": "enabled", "budget_tokens": 2_000}
    assert (body["max_tokens"], body["stop_sequences"]) == (4_000, ["END"])
    assert "schema" in json.dumps(body)


def test_what_only_cohere_has_is_declared() -> None:
    answer = {"role": "assistant", "content": "It.", "citations": [CITATION]}
    fields = {
        "messages": [HI, answer, HI],
        "documents": [{"data": {"text": "x"}}],
        "citation_options": {"mode": "FAST"},
        "safety_mode": "STRICT",
    }
    body, losses = asked(COHERE, CHAT, fields)
    assert sorted(losses) == [
        ("citation-dropped", ""),
        ("content-dropped", "documents"),
        ("field-dropped", "citation_options"),
        ("field-dropped", "safety_mode"),
    ]
    assert body["messages"] == [HI, {"role": "assistant", "content": "It."}, HI]


def test_a_provider_of_cohere_gets_the_client_s_own_body() -> None:
    fields = {"messages": [HI], "documents": ["x"], "priority": 3, "stream": False}
    body, losses = asked(COHERE, COHERE, fields)
    assert (body, losses) == (fields | {"model": "target"}, [])
