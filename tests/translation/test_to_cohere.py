"""A request of a client of another API, as Cohere gets it: what is carried, and what is declared as lost."""

import json

import pytest

from penstock.core.dialects.dialect import Destination, RequestError
from penstock.core.dialects.registry import surface_dialect, upstream_dialect
from penstock.core.hub.losses import LOSSES
from tests.provider_streams import COHERE as HEALTHY
from tests.translation.support import CHAT, MESSAGES, Json, Lost, asked, translated

COHERE = "cohere"
HI: Json = {"role": "user", "content": "Hi"}
SCHEMA: Json = {"type": "object", "properties": {"city": {"type": "string"}}}
LEAST: Json = {"model": "target", "messages": [HI], "stream": False}


def tool(name: str, **fields: object) -> Json:
    return {"type": "function", "function": {"name": name, "description": "", "parameters": SCHEMA, **fields}}


F, G = tool("f"), tool("g")
NAMED = {"type": "function", "function": {"name": "g"}}
FIELDS: dict[str, tuple[Json, Json, Lost]] = {
    "only the conversation": ({}, {}, []),
    "a stream": ({"stream": True}, {"stream": True}, []),
    "sampling and limits": (
        {"temperature": 0.5, "top_p": 0.9, "seed": 7, "max_tokens": 50, "stop": list("abcdef"), "frequency_penalty": 1},
        {
            "temperature": 0.5, "p": 0.9, "seed": 7, "max_tokens": 50, "stop_sequences": list("abcde"),
            "frequency_penalty": 1.0,
        },
        [("stop-dropped", "f"), ("stop-sequence-unreported", "")],
    ),
    "what the API lacks": (
        {"logit_bias": {"7": 1}, "logprobs": True, "user": "ann", "reasoning_effort": "high"},
        {},
        [
            ("sampling-dropped", "logit_bias"), ("sampling-dropped", "logprobs"), ("field-dropped", "user"),
            ("field-dropped", "reasoning_effort"),
        ],
    ),
    "a schema for the answer": (
        {"response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": SCHEMA}}},
        {"response_format": {"type": "json_object", "json_schema": SCHEMA}},
        [],
    ),
    "any JSON": (
        {"response_format": {"type": "json_object"}},
        {"response_format": {"type": "json_object"}},
        [],
    ),
    "tools": ({"tools": [F, G]}, {"tools": [F, G]}, []),
    "strict tools": ({"tools": [tool("f", strict=True)]}, {"tools": [F], "strict_tools": True}, []),
    "a strict tool among others": ({"tools": [tool("f", strict=True), G]}, {"tools": [F, G]},
                                   [("tool-option-dropped", "strict")]),
    "a tool that must be called": (
        {"tools": [F, G], "tool_choice": NAMED},
        {"tools": [G], "tool_choice": "REQUIRED"},
        [],
    ),
    "no tool that may be called": (
        {"tools": [F], "tool_choice": "none"},
        {"tools": [F], "tool_choice": "NONE"},
        [],
    ),
    "images": (
        {
            "messages": [
                {
                    "role": "user",
                    "content": [
                        {"type": "text", "text": "What is it?"},
                        {"type": "image_url", "image_url": {"url": "https://x/y.webp", "detail": "low"}},
                    ],
                }
            ]
        },
        {
            "messages": [
                {
                    "role": "user",
                    "content": [
                        {"type": "text", "text": "What is it?"},
                        {"type": "image_url", "image_url": {"url": "https://x/y.webp", "detail": "low"}},
                    ],
                }
            ]
        },
        [],
    ),
}  # fmt: skip


@pytest.mark.parametrize(("fields", "expected", "lost"), FIELDS.values(), ids=FIELDS)
def test_a_chat_request(fields: Json, expected: Json, lost: Lost) -> None:
    body, losses = asked(CHAT, COHERE, {"messages": [HI]} | fields)
    assert body == LEAST | expected
    assert sorted(losses) == sorted(lost)
    assert {code for code, _ in losses} <= LOSSES.keys()


THINKING: dict[str, tuple[str, object, Lost]] = {
    "off": ("none", {"type": "disabled"}, []),
    "on": ("high", {"type": "enabled", "token_budget": 24_576}, [("effort-approximated", "high as 24576")]),
}


@pytest.mark.parametrize(("effort", "expected", "lost"), THINKING.values(), ids=THINKING)
def test_thinking(effort: str, expected: object, lost: Lost) -> None:
    body, losses = asked(CHAT, COHERE, {"messages": [HI], "reasoning_effort": effort}, reasons=True)
    assert (body["thinking"], losses) == (expected, lost)


@pytest.mark.parametrize("reasons", [False, True])
def test_the_conversation_of_a_messages_client_with_calls_and_thinking(*, reasons: bool) -> None:
    thinking = {"type": "thinking", "thinking": "Hm.", "signature": "c2ln"}
    use = {"type": "tool_use", "id": "t1", "name": "f", "input": {"city": "Brest"}}
    turns = [
        HI,
        {"role": "assistant", "content": [thinking, {"type": "text", "text": "Let me see."}, use]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "no", "is_error": True}]},
    ]
    body, losses = asked(MESSAGES, COHERE, {"messages": turns, "system": "Be brief."}, reasons=reasons)
    call = {"id": "t1", "type": "function", "function": {"name": "f", "arguments": '{"city":"Brest"}'}}
    text = {"type": "text", "text": "Let me see."}
    own: Json = (
        {"content": [{"type": "thinking", "thinking": "Hm."}, text]}
        if reasons
        else {"content": [text], "tool_plan": "Hm."}
    )
    assert body["messages"] == [
        {"role": "system", "content": "Be brief."},
        HI,
        {"role": "assistant", "tool_calls": [call], **own},
        {"role": "tool", "tool_call_id": "t1", "content": "Error: no"},
    ]
    assert losses == [("seal-dropped", "anthropic"), ("error-flag-as-text", "t1")]


def test_several_choices_are_refused() -> None:
    with pytest.raises(RequestError, match="`n` is 2"):
        asked(CHAT, COHERE, {"messages": [HI], "n": 2})


def test_the_limit_of_the_output_is_known_before_the_call() -> None:
    surface, upstream = surface_dialect(CHAT), upstream_dialect(COHERE)
    body = json.dumps({"model": "m", "messages": [HI], "max_tokens": 50}).encode()
    request = surface.read_request(body, {}, surface.path)
    assert upstream.limits(request, Destination(model="m")).output == 50
    assert upstream.limits(request, Destination(model="m", overrides={"max_tokens": 9})).output == 9


@pytest.mark.parametrize("client", [CHAT, MESSAGES, "openai_responses", "gemini"])
def test_an_answer_is_the_same_for_clients_of_every_api(client: str) -> None:
    written, losses = translated(COHERE, client, HEALTHY["thinking and a call"], pieces=7)
    for text in (b"turn.", b"High water", b"get_tide"):
        assert text in written
    assert losses == []
