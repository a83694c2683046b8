"""A request of a client of another API, as Ollama gets it: what is carried, and what is declared as lost."""

import json

import pytest

from penstock.core.dialects.dialect import Destination, RequestError
from penstock.core.dialects.registry import surface_dialect, upstream_dialect
from penstock.core.hub.losses import LOSSES
from tests.translation.support import CHAT, MESSAGES, Json, Lost, asked, translated

OLLAMA = "ollama"
HI: Json = {"role": "user", "content": "Hi"}
SCHEMA: Json = {"type": "object", "properties": {"city": {"type": "string"}}}
TOOL: Json = {"type": "function", "function": {"name": "f", "description": "F", "parameters": SCHEMA}}
OTHER: Json = {"type": "function", "function": {"name": "g", "description": "", "parameters": SCHEMA}}
LEAST: Json = {"model": "target", "messages": [HI], "stream": False}
STOP = ("stop-sequence-unreported", "")

FIELDS: dict[str, tuple[Json, Json, Lost]] = {
    "only the conversation": ({}, {}, []),
    "a stream": ({"stream": True}, {"stream": True}, []),
    "the system prompt": (
        {"messages": [{"role": "system", "content": "Be brief."}, HI, {"role": "system", "content": "Briefer."}]},
        {"messages": [{"role": "system", "content": "Be brief."}, HI, {"role": "system", "content": "Briefer."}]},
        [],
    ),
    "sampling and limits": (
        {"temperature": 1.5, "top_p": 0.9, "seed": 7, "max_tokens": 50, "stop": ["a"], "presence_penalty": 1},
        {
            "options": {
                "temperature": 1.5, "top_p": 0.9, "seed": 7, "presence_penalty": 1.0, "num_predict": 50, "stop": ["a"],
            }
        },
        [STOP],
    ),
    "log probabilities": (
        {"logprobs": True, "top_logprobs": 3},
        {"logprobs": True, "top_logprobs": 3},
        [],
    ),
    "what the API lacks": (
        {"logit_bias": {"7": 1}, "user": "ann", "service_tier": "scale", "parallel_tool_calls": False},
        {},
        [
            ("sampling-dropped", "logit_bias"), ("field-dropped", "service_tier"), ("field-dropped", "user"),
            ("field-dropped", "parallel_tool_calls"),
        ],
    ),
    "a schema for the answer": (
        {"response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": SCHEMA}}},
        {"format": SCHEMA},
        [],
    ),
    "any JSON": ({"response_format": {"type": "json_object"}}, {"format": "json"}, []),
    "tools": ({"tools": [TOOL]}, {"tools": [TOOL]}, []),
    "a tool that must be called": (
        {"tools": [TOOL, OTHER], "tool_choice": {"type": "function", "function": {"name": "g"}}},
        {"tools": [OTHER]},
        [("tool-choice-widened", "tool")],
    ),
    "no tool that may be called": ({"tools": [TOOL], "tool_choice": "none"}, {}, []),
    "any tool that must be called": (
        {"tools": [TOOL], "tool_choice": "required"},
        {"tools": [TOOL]},
        [("tool-choice-widened", "required")],
    ),
    "images": (
        {
            "messages": [
                {
                    "role": "user",
                    "content": [
                        {"type": "text", "text": "What is it?"},
                        {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}},
                        {"type": "image_url", "image_url": {"url": "https://x/y.webp"}},
                    ],
                }
            ]
        },
        {"messages": [{"role": "user", "content": "What is it?", "images": ["AA=="]}]},
        [("content-dropped", "image by URL")],
    ),
}  # fmt: skip


@pytest.mark.parametrize(("fields", "expected", "lost"), FIELDS.values(), ids=FIELDS)
def test_a_chat_request(fields: Json, expected: Json, lost: Lost) -> None:
    body, losses = asked(CHAT, OLLAMA, {"messages": [HI]} | fields)
    assert body == LEAST | expected
    assert sorted(losses) == sorted(lost)
    assert {code for code, _ in losses} <= LOSSES.keys()


THINKING: dict[str, tuple[str, str, object, Lost]] = {
    "off": ("switch", "none", False, []),
    "on": ("switch", "high", True, [("effort-approximated", "high as true")]),
    "a level": ("level", "high", "high", []),
    "a level that there is not": ("level", "minimal", "low", [("effort-approximated", "minimal as low")]),
    "never off": ("level", "none", "low", [("effort-approximated", "none as low")]),
    "not at all": ("none", "high", None, [("field-dropped", "reasoning_effort")]),
}


@pytest.mark.parametrize(("setting", "effort", "expected", "lost"), THINKING.values(), ids=THINKING)
def test_thinking(setting: str, effort: str, expected: object, lost: Lost) -> None:
    body, losses = asked(CHAT, OLLAMA, {"messages": [HI], "reasoning_effort": effort}, think=setting)
    assert (body.get("think"), losses) == (expected, lost)


def test_the_conversation_of_a_messages_client_with_calls_and_thinking() -> None:
    thinking = {"type": "thinking", "thinking": "Hm.", "signature": "c2ln"}
    use = {"type": "tool_use", "id": "t1", "name": "f", "input": {"city": "Brest"}}
    picture = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AA=="}}
    result = {
        "type": "tool_result",
        "tool_use_id": "t1",
        "is_error": True,
        "content": [{"type": "text", "text": "no"}, picture],
    }
    turns = [
        HI,
        {"role": "assistant", "content": [thinking, {"type": "text", "text": "Let me see."}, use]},
        {"role": "user", "content": [result, {"type": "text", "text": "And now?"}]},
    ]
    body, losses = asked(MESSAGES, OLLAMA, {"messages": turns})
    call = {"id": "t1", "function": {"name": "f", "arguments": {"city": "Brest"}}}
    assert body["messages"] == [
        HI,
        {"role": "assistant", "content": "Let me see.", "thinking": "Hm.", "tool_calls": [call]},
        {"role": "tool", "content": "Error: no", "tool_call_id": "t1", "tool_name": "f"},
        {"role": "user", "content": "And now?", "images": ["AA=="]},
    ]
    assert losses == [("seal-dropped", "anthropic"), ("result-media-moved", "t1"), ("error-flag-as-text", "t1")]


def test_the_settings_of_a_provider_are_sent() -> None:
    body, _ = asked(CHAT, OLLAMA, {"messages": [HI]}, num_ctx=32_768, keep_alive="10m")
    assert (body["options"], body["keep_alive"]) == ({"num_ctx": 32_768}, "10m")


def test_several_choices_are_refused() -> None:
    with pytest.raises(RequestError, match="`n` is 2"):
        asked(CHAT, OLLAMA, {"messages": [HI], "n": 2})


def test_the_limit_of_the_output_is_known_before_the_call() -> None:
    surface, upstream = surface_dialect(CHAT), upstream_dialect(OLLAMA)
    body = json.dumps({"model": "m", "messages": [HI], "max_tokens": 50}).encode()
    request = surface.read_request(body, {}, surface.path)
    assert upstream.limits(request, Destination(model="m")).output == 50
    assert upstream.limits(request, Destination(model="m", overrides={"options": {"num_predict": 9}})).output == 9


LINES = b"""{"model":"q","created_at":"2026-11-17T08:00:00Z","message":{"role":"assistant","content":"","thinking":"Hm."},"done":false}
{"model":"q","created_at":"2026-11-17T08:00:00Z","message":{"role":"assistant","content":"Hi"},"done":false}
{"model":"q","created_at":"2026-11-17T08:00:00Z","message":{"role":"assistant","content":"","tool_calls":[{"function":{"name":"f","arguments":{"a":1}}}]},"done":false}
{"model":"q","created_at":"2026-11-17T08:00:00Z","message":{"role":"assistant","content":""},"done":true,"done_reason":"stop","prompt_eval_count":7,"eval_count":4}
"""  # noqa: E501


@pytest.mark.parametrize("client", [CHAT, MESSAGES, "openai_responses", "gemini"])
def test_an_answer_is_the_same_for_clients_of_every_api(client: str) -> None:
    written, losses = translated(OLLAMA, client, LINES, pieces=7)
    for text in (b"Hm.", b"Hi", b'"f"'):
        assert text in written
    assert losses == []
