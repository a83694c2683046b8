"""A value of another type, anywhere in a request, is a mistake of the client: never an error of the gateway."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from penstock.core.dialects.dialect import Destination, RequestError, RequestLimits
from penstock.core.dialects.registry import DIALECTS, surface_dialect, upstream_dialect
from penstock.core.dialects.shared_state import find_reference
from penstock.gateway.limits.demand import chat_demand

SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
FUNCTION = {"name": "f", "description": "d", "parameters": SCHEMA, "strict": True}
PNG = "data:image/png;base64,AA=="
REQUESTS: dict[str, tuple[str, dict[str, Any]]] = {
    "openai_chat": (
        "/v1/chat/completions",
        {
            "model": "m",
            "messages": [
                {"role": "system", "content": "s"},
                {
                    "role": "user",
                    "content": [
                        {"type": "text", "text": "x"},
                        {"type": "image_url", "image_url": {"url": PNG, "detail": "low"}},
                        {"type": "input_audio", "input_audio": {"data": "AA==", "format": "wav"}},
                        {"type": "file", "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,AA"}},
                    ],
                },
                {
                    "role": "assistant",
                    "content": None,
                    "reasoning_content": "r",
                    "tool_calls": [{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
                },
                {"role": "tool", "tool_call_id": "c", "content": "x"},
            ],
            "tools": [{"type": "function", "function": FUNCTION}],
            "tool_choice": {"type": "function", "function": {"name": "f"}},
            "response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": SCHEMA}},
            "seed": 1,
            "temperature": 0.5,
            "stop": ["a"],
            "logprobs": True,
            "top_logprobs": 2,
            "logit_bias": {"1": 2},
            "max_tokens": 9,
            "reasoning_effort": "low",
            "metadata": {"a": "b"},
            "service_tier": "flex",
        },
    ),
    "anthropic_messages": (
        "/v1/messages",
        {
            "model": "m",
            "max_tokens": 2_000,
            "system": [{"type": "text", "text": "s", "cache_control": {"type": "ephemeral", "ttl": "1h"}}],
            "messages": [
                {
                    "role": "user",
                    "content": [
                        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AA=="}},
                        {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "x"}},
                    ],
                },
                {
                    "role": "assistant",
                    "content": [
                        {"type": "thinking", "thinking": "t", "signature": "s"},
                        {"type": "tool_use", "id": "c", "name": "f", "input": {"a": 1}},
                    ],
                },
                {
                    "role": "user",
                    "content": [
                        {"type": "tool_result", "tool_use_id": "c", "content": [{"type": "text", "text": "x"}]},
                    ],
                },
            ],
            "tools": [{"name": "f", "description": "d", "input_schema": SCHEMA}],
            "tool_choice": {"type": "tool", "name": "f", "disable_parallel_tool_use": True},
            "thinking": {"type": "enabled", "budget_tokens": 1_024},
            "output_config": {"effort": "low", "format": {"type": "json_schema", "schema": SCHEMA}},
            "stop_sequences": ["a"],
            "temperature": 0.5,
            "top_k": 3,
            "metadata": {"user_id": "u"},
        },
    ),
    "openai_responses": (
        "/v1/responses",
        {
            "model": "m",
            "instructions": "s",
            "input": [
                {
                    "role": "user",
                    "content": [
                        {"type": "input_text", "text": "x"},
                        {"type": "input_image", "image_url": PNG, "detail": "low"},
                        {"type": "input_file", "filename": "a.pdf", "file_data": "data:application/pdf;base64,AA"},
                    ],
                },
                {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "r"}]},
                {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
                {"type": "function_call_output", "call_id": "c", "output": [{"type": "input_text", "text": "x"}]},
            ],
            "tools": [{"type": "function", **FUNCTION}, {"type": "custom", "name": "g", "format": {"type": "text"}}],
            "tool_choice": {"type": "function", "name": "f"},
            "text": {"format": {"type": "json_schema", "name": "a", "schema": SCHEMA}, "verbosity": "low"},
            "reasoning": {"effort": "low", "summary": "auto"},
            "include": ["reasoning.encrypted_content"],
            "max_output_tokens": 99,
            "temperature": 0.5,
            "top_logprobs": 2,
            "metadata": {"a": "b"},
        },
    ),
    "gemini": (
        "/v1beta/models/m:generateContent",
        {
            "systemInstruction": {"parts": [{"text": "s"}]},
            "contents": [
                {
                    "role": "user",
                    "parts": [{"text": "x"}, {"inlineData": {"mimeType": "image/png", "data": "AA=="}}],
                },
                {"role": "model", "parts": [{"functionCall": {"name": "f", "args": {"a": 1}}}]},
                {"role": "user", "parts": [{"functionResponse": {"name": "f", "response": {"a": 1}}}]},
            ],
            "tools": [{"functionDeclarations": [{"name": "f", "parameters": SCHEMA}]}],
            "toolConfig": {"functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": ["f"]}},
            "generationConfig": {
                "temperature": 0.5,
                "topK": 3,
                "seed": 1,
                "maxOutputTokens": 99,
                "stopSequences": ["a"],
                "responseSchema": SCHEMA,
                "responseMimeType": "application/json",
                "thinkingConfig": {"thinkingBudget": 1_024},
            },
            "safetySettings": [{"category": "a", "threshold": "b"}],
        },
    ),
    "cohere": (
        "/v2/chat",
        {
            "model": "m",
            "messages": [
                {"role": "system", "content": "s"},
                {
                    "role": "user",
                    "content": [{"type": "text", "text": "x"}, {"type": "image_url", "image_url": {"url": PNG}}],
                },
                {
                    "role": "assistant",
                    "tool_plan": "p",
                    "content": [{"type": "thinking", "thinking": "t"}, {"type": "text", "text": "x"}],
                    "citations": [{"start": 0, "end": 1, "text": "x", "sources": [{"document": {"title": "t"}}]}],
                    "tool_calls": [{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
                },
                {
                    "role": "tool",
                    "tool_call_id": "c",
                    "content": [{"type": "document", "document": {"id": "d", "data": {"a": 1}}}],
                },
            ],
            "tools": [{"type": "function", "function": FUNCTION}],
            "strict_tools": True,
            "tool_choice": "REQUIRED",
            "response_format": {"type": "json_object", "json_schema": SCHEMA},
            "thinking": {"type": "enabled", "token_budget": 1_024},
            "max_tokens": 99,
            "stop_sequences": ["a"],
            "temperature": 0.5,
            "k": 3,
            "logprobs": True,
            "documents": [{"data": {"a": "b"}}],
        },
    ),
    "bedrock_converse": (
        "/model/m/converse",
        {
            "system": [{"text": "s"}, {"cachePoint": {"type": "default", "ttl": "1h"}}],
            "messages": [
                {
                    "role": "user",
                    "content": [
                        {"text": "x"},
                        {"image": {"format": "png", "source": {"bytes": "AA=="}}},
                        {"document": {"format": "txt", "name": "d", "source": {"content": [{"text": "x"}]}}},
                        {"searchResult": {"source": "s", "title": "t", "content": [{"text": "x"}]}},
                    ],
                },
                {
                    "role": "assistant",
                    "content": [
                        {"reasoningContent": {"reasoningText": {"text": "t", "signature": "s"}}},
                        {"reasoningContent": {"redactedContent": "AA=="}},
                        {"citationsContent": {"content": [{"text": "x"}], "citations": [{"location": {"web": {}}}]}},
                        {"toolUse": {"toolUseId": "c", "name": "f", "input": {"a": 1}}},
                    ],
                },
                {
                    "role": "user",
                    "content": [{"toolResult": {"toolUseId": "c", "content": [{"json": {}}], "status": "error"}}],
                },
            ],
            "toolConfig": {
                "tools": [{"toolSpec": {"name": "f", "inputSchema": {"json": SCHEMA}}}, {"cachePoint": {}}],
                "toolChoice": {"tool": {"name": "f"}},
            },
            "inferenceConfig": {"maxTokens": 99, "temperature": 0.5, "topP": 0.5, "stopSequences": ["a"]},
            "additionalModelRequestFields": {
                "thinking": {"type": "enabled", "budget_tokens": 1_024},
                "top_k": 3,
                "output_config": {"effort": "low"},
            },
            "outputConfig": {
                "textFormat": {"type": "json_schema", "structure": {"jsonSchema": {"schema": "{}", "name": "a"}}}
            },
            "serviceTier": {"type": "flex"},
            "requestMetadata": {"a": "b"},
        },
    ),
}
VALUES: tuple[object, ...] = (1.5, {}, [], "", True, None, -1, {"a": 1}, ["a"], 10**30, [{}], [[]], {"type": {}}, 1e300)


def _places(value: object, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    for name, item in value.items() if isinstance(value, dict) else enumerate(value if isinstance(value, list) else ()):
        yield (*path, name)
        yield from _places(item, (*path, name))


def _with(request: dict[str, Any], path: tuple[Any, ...], value: object) -> bytes:
    changed = holder = json.loads(json.dumps(request))
    for name in path[:-1]:
        holder = holder[name]
    holder[path[-1]] = value
    return json.dumps(changed).encode()


@pytest.mark.slow
@pytest.mark.parametrize("dialect", REQUESTS)
def test_a_value_of_another_type_is_no_error_of_the_gateway(dialect: str) -> None:
    path, request = REQUESTS[dialect]
    providers = [upstream_dialect(name) for name, each in DIALECTS.items() if each.upstream is not None]
    for place in _places(request):
        for value in VALUES:
            body = _with(request, place, value)
            try:
                read = surface_dialect(dialect).read_request(body, {}, path)
                find_reference(dialect, read.fields)
                chat_demand(read, RequestLimits())
            except RequestError:
                continue
            for provider in providers:
                try:
                    provider.limits(read, Destination(model="m"))
                    provider.write_request(read, Destination(model="m"))
                except RequestError:
                    continue


TWICE: dict[str, tuple[str, bytes]] = {
    "chat: max_tokens": ("openai_chat", b'{"model":"m","messages":[{}],"max_tokens":5,"max_tokens":500}'),
    "chat: max_completion_tokens": (
        "openai_chat",
        b'{"model":"m","messages":[{}],"max_completion_tokens":5,"max_completion_tokens":500}',
    ),
    "chat: store": ("openai_chat", b'{"model":"m","messages":[{}],"store":false,"store":true}'),
    "gemini: maxOutputTokens": (
        "gemini",
        b'{"contents":[{}],"generationConfig":{"maxOutputTokens":5,"maxOutputTokens":500}}',
    ),
    "gemini: candidateCount": (
        "gemini",
        b'{"contents":[{}],"generation_config":{"candidate_count":1,"candidate_count":99}}',
    ),
    "cohere: max_tokens": ("cohere", b'{"model":"m","messages":[{}],"max_tokens":5,"max_tokens":500}'),
    "bedrock: maxTokens": (
        "bedrock_converse",
        b'{"messages":[{}],"inferenceConfig":{"maxTokens":5,"maxTokens":500}}',
    ),
    "responses: service_tier": ("openai_responses", b'{"model":"m","input":"x","service_tier":"a","service_tier":"b"}'),
}


@pytest.mark.parametrize(("dialect", "body"), TWICE.values(), ids=TWICE)
def test_a_member_that_the_cost_depends_on_is_there_once(dialect: str, body: bytes) -> None:
    with pytest.raises(RequestError) as refused:
        surface_dialect(dialect).read_request(body, {}, REQUESTS[dialect][0])
    assert refused.value.failure.code == "duplicate_key"


@pytest.mark.parametrize("dialect", ["openai_chat", "openai_responses"])
@pytest.mark.parametrize("store", ["false", 0, "", {}, []])
def test_store_is_true_or_false(dialect: str, store: object) -> None:
    path, request = REQUESTS[dialect]
    with pytest.raises(RequestError, match="`store` must be true or false"):
        surface_dialect(dialect).read_request(json.dumps(request | {"store": store}).encode(), {}, path)
    asked = {"model": "m", "messages": [{}], "input": "x", "store": False}
    assert surface_dialect(dialect).read_request(json.dumps(asked).encode(), {}, path).unkept


@pytest.mark.parametrize("dialect", ["anthropic_messages", "openai_responses", "gemini"])
def test_a_count_that_is_nested_too_deep_is_none(dialect: str) -> None:
    counting = DIALECTS[dialect].token_counting
    assert counting is not None
    assert counting.read_count(b"[" * 5_000) is None
