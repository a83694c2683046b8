"""The rules of providers (`providers/rules.toml`): for each, what a provider gets of a client's request, and the loss.

A case is one request to a built-in provider, with the settings that its data has for the model. A new rule needs one.
"""

import json
from collections.abc import Mapping
from itertools import product
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import pytest
from msgspec import structs

from penstock.core.dialects.dialect import Destination, RequestError
from penstock.core.dialects.registry import surface_dialect
from penstock.core.dialects.stable_prefix import prefix_digest
from penstock.core.hub.content import MediaPart, ReasoningSeal
from penstock.core.hub.seals import wrap
from penstock.gateway.config import load
from penstock.providers.catalog import rules
from penstock.providers.provider import Provider
from tests.translation.support import CHAT, ISSUER, MESSAGES, Json, Lost, sent


class Case(NamedTuple):
    """`body`: members of the body that is sent, None for one that must be missing. `lost`: the losses, but for
    `max-tokens-assumed`. `model` is `provider/model`. `fetched`: the media that the gateway has fetched, by URL."""

    model: str
    fields: Json
    body: Json
    lost: Lost
    client: str = CHAT
    fetched: Mapping[str, MediaPart] = MappingProxyType({})


PLACES = {
    "ANTHROPIC_FOUNDRY_RESOURCE": "me",
    "AZURE_OPENAI_ENDPOINT": "https://me.openai.azure.com",
    "GOOGLE_CLOUD_PROJECT": "me",
}


def tool(schema: Json, **more: object) -> Json:
    return {"type": "function", "function": {"name": "f", "parameters": schema, **more}}


def spec(schema: Json, **more: object) -> Json:
    return {"toolSpec": {"name": "f", "inputSchema": {"json": schema}, **more}}


BOUNDED: Json = {"type": "object", "properties": {"n": {"type": "integer", "minimum": 1}}}
SUBSET: Json = {
    "type": "object",
    "properties": {"n": {"type": "integer", "description": '{"minimum":1}'}},
    "additionalProperties": False,
}
CACHED: Json = {"cache_control": {"type": "ephemeral"}}
RESULT: Json = {"type": "tool_result", "tool_use_id": "c1", "content": '{"scope": {"cache_control": "x"}}'}
FORMAT: Json = {"type": "json_schema", "json_schema": {"name": "s", "schema": BOUNDED}}
TEXT_SUBSET: Json = {"schema": json.dumps(SUBSET, separators=(",", ":")), "name": "s"}
EITHER: Json = {"properties": {"a": {"type": "null"}, "b": {"type": "null"}}, "anyOf": [{"required": ["a"]}]}
MERGED: Json = {
    "type": "object",
    "properties": EITHER["properties"],
    "required": ["a"],
    "description": '{"anyOf":[{"required":["a"]}]}',
}
HI: Json = {"role": "user", "content": "Hi"}
ASKED = json.dumps({"model": "m", "max_tokens": 99, "messages": [HI]}).encode()
NAME = prefix_digest(surface_dialect(MESSAGES).read_request(ASKED, {}, ""), "gpt-5.6").hex()
ANSWER: Json = {"role": "assistant", "content": "Ho"}
CALL: Json = {"id": "c1", "type": "function", "function": {"name": "get_tide", "arguments": "{}"}}
CALLED: list[Json] = [
    HI,
    {"role": "assistant", "content": "Well.", "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "c1", "content": "10:41"},
]
TOOL: Json = {"type": "function", "function": {"name": "get_tide", "parameters": {"type": "object"}}}
LATE: Json = {"role": "system", "content": "Be brief."}


def text(words: str) -> Json:
    return {"type": "text", "text": words}


def called(signature: Json | None) -> list[Json]:
    """A chat conversation with a tool call, in Google's OpenAI-compatible API."""
    call = CALL | ({"extra_content": {"google": signature}} if signature else {})
    return [HI, {"role": "assistant", "content": None, "tool_calls": [call]}, CALLED[2]]


def thinking(signature: str) -> Json:
    """An answer of an earlier turn in Messages: a signature, and the call that it belongs to."""
    use = {"type": "tool_use", "id": "c1", "name": "get_tide", "input": {}}
    return {"role": "assistant", "content": [{"type": "thinking", "thinking": "", "signature": signature}, use]}


GOOGLE_SIGNED: Json = {"thought_signature": "c2ln"}
SIGNED: list[Json] = [
    HI,
    thinking(wrap(ReasoningSeal("gemini", "c2ln"), ISSUER)),
    {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": "10:41"}]},
]
THOUGHT = thinking(wrap(ReasoningSeal("gemini", "c2ln"), "another"))
PICTURE = "https://a.example/pic"
LINKED: Json = {"type": "image", "source": {"type": "url", "url": PICTURE}}
IMAGE: Json = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}}
FETCHED = {PICTURE: MediaPart(kind="image", mime="image/png", data="AAAA")}
RESULT_BLOCK: Json = {"type": "tool_result", "tool_use_id": "c1"}
MARK: Json = {"prompt_cache_breakpoint": {"mode": "explicit"}}
THOUGHTS: Json = {"includeThoughts": True}
ATTRIBUTED: Json = {
    "type": "text",
    "text": "x-anthropic-billing-header: cc_version=2",
    "cache_control": {"type": "ephemeral", "scope": "global"},
}
REMINDER = text("<system-reminder>\nBe brief.\n</system-reminder>")
CASES: dict[str, list[Case]] = {
    # What the rule allows is in requests that go on with an answer: `tests/serve/test_continuing.py`.
    "claude-prefill": [
        Case("anthropic/claude-haiku-4-5", {"messages": [HI, ANSWER]}, {}, []),
    ],
    "claude-thinking": [
        Case(
            "vertex-anthropic/claude-haiku-4-5@20251001",
            {"messages": [HI], "reasoning_effort": "high"},
            {"thinking": {"type": "enabled", "budget_tokens": 16_384}, "output_config": None},
            [("effort-approximated", "high as 16384")],
        ),
        Case(
            "vertex-anthropic/claude-sonnet-4@20250514",
            {"messages": [HI], "reasoning_effort": "high"},
            {"thinking": {"type": "enabled", "budget_tokens": 16_384}},
            [("effort-approximated", "high as 16384")],
        ),
        Case(
            "azure-anthropic/claude-opus-4-8",
            {"messages": [HI], "reasoning_effort": "minimal"},
            {"thinking": {"type": "adaptive"}, "output_config": {"effort": "low"}},
            [("effort-approximated", "minimal")],
        ),
    ],
    "claude-thinking-history": [
        Case(
            "bedrock/us.anthropic.claude-sonnet-4-5-20250929-v1:0",
            {"messages": CALLED, "tools": [TOOL], "reasoning_effort": "high"},
            {"additionalModelRequestFields": None},
            [("effort-approximated", "no thinking: the reasoning before the last tool call is missing")],
        ),
        Case(
            "bedrock/us.anthropic.claude-sonnet-4-5-20250929-v1:0",
            {"messages": [*CALLED, ANSWER, HI], "tools": [TOOL], "reasoning_effort": "high"},
            {"additionalModelRequestFields": {"thinking": {"type": "enabled", "budget_tokens": 24_576}}},
            [("effort-approximated", "high as 24576")],
        ),
        Case(
            "vertex-anthropic/claude-sonnet-4-5@20250929",
            {"messages": CALLED, "tools": [TOOL], "reasoning_effort": "high"},
            {"thinking": None},
            [("effort-approximated", "no thinking: the reasoning before the last tool call is missing")],
        ),
    ],
    "structured-output": [
        Case(
            "anthropic/claude-opus-4-8",
            {"messages": [HI], "response_format": FORMAT},
            {"output_config": {"format": {"type": "json_schema", "schema": SUBSET}}},
            [("schema-loosened", "minimum")],
        ),
        Case(
            "bedrock/us.anthropic.claude-opus-4-8",
            {"messages": [HI], "response_format": FORMAT},
            {"outputConfig": {"textFormat": {"type": "json_schema", "structure": {"jsonSchema": TEXT_SUBSET}}}},
            [("schema-loosened", "minimum")],
        ),
        Case(
            "vertex-anthropic/claude-opus-4-8",
            {"messages": [HI], "tools": [tool(BOUNDED, strict=True)]},
            {"tools": [{"name": "f", "input_schema": SUBSET, "strict": True}]},
            [("schema-loosened", "minimum")],
        ),
    ],
    "claude-tool-schemas": [
        Case(
            "azure-anthropic/claude-opus-4-8",
            {"messages": [HI], "tools": [tool(EITHER)]},
            {"tools": [{"name": "f", "input_schema": MERGED}]},
            [("schema-loosened", "anyOf")],
        )
    ],
    "bedrock-tool-schemas": [
        Case(
            "bedrock/eu.anthropic.claude-sonnet-4-5-20250929-v1:0",
            {"messages": [HI], "tools": [tool(EITHER)]},
            {"toolConfig": {"tools": [spec(MERGED)]}},
            [("schema-loosened", "anyOf")],
        ),
        Case(
            "bedrock/zai.glm-5",
            {"messages": [HI], "tools": [tool(EITHER)]},
            {"toolConfig": {"tools": [spec(EITHER | {"type": "object"})]}},
            [],
        ),
    ],
    "bedrock-strict-tools": [
        Case(
            "bedrock/eu.anthropic.claude-sonnet-4-5-20250929-v1:0",
            {"messages": [HI], "tools": [tool(BOUNDED, strict=True)]},
            {"toolConfig": {"tools": [spec(SUBSET, strict=True)]}},
            [("schema-loosened", "minimum")],
        ),
        Case(
            "bedrock/us.anthropic.claude-3-5-haiku-20241022-v1:0",
            {"messages": [HI], "tools": [tool(BOUNDED, strict=True)]},
            {"toolConfig": {"tools": [spec(BOUNDED)]}},
            [("tool-option-dropped", "strict")],
        ),
    ],
    "claude-cache-scope": [
        Case(
            "azure-anthropic/claude-opus-4-8",
            {"max_tokens": 9, "messages": [HI], "system": [ATTRIBUTED]},
            {"system": None},
            [("attribution-dropped", "attribution")],
            MESSAGES,
        ),
        *(
            Case(
                model,
                {
                    "system": [text("Be brief.") | {"cache_control": {"type": "ephemeral", "scope": "global"}}],
                    "messages": [
                        HI,
                        ANSWER,
                        {
                            "role": "user",
                            "content": [RESULT | {"cache_control": {"type": "ephemeral", "scope": "turn"}}],
                        },
                    ],
                    "tools": [{"name": "f", "input_schema": EITHER, "cache_control": {"type": "ephemeral"}}],
                },
                {
                    "system": [text("Be brief.") | {"cache_control": {"type": "ephemeral"}}],
                    "messages": [
                        HI,
                        ANSWER,
                        {"role": "user", "content": [RESULT | {"cache_control": {"type": "ephemeral"}}]},
                    ],
                    "tools": [{"name": "f", "input_schema": EITHER, "cache_control": {"type": "ephemeral"}}],
                },
                [("option-refused-by-provider", "cache_control.scope")] * 2,
                MESSAGES,
            )
            for model in (
                "azure-anthropic/claude-opus-4-8",
                "bedrock/us.anthropic.claude-opus-4-8",
                "vertex-anthropic/claude-opus-4-8",
            )
        ),
        Case(
            "anthropic/claude-opus-4-8",
            {"messages": [{"role": "user", "content": [text("Hi") | {"cache_control": {"scope": "global"}}]}]},
            {"messages": [{"role": "user", "content": [text("Hi") | {"cache_control": {"scope": "global"}}]}]},
            [],
            MESSAGES,
        ),
    ],
    "claude-stops": [
        Case(
            "anthropic/claude-opus-4-8",
            {"messages": [HI], "stop": ["\n\n", "a ", " "]},
            {"stop_sequences": ["a "]},
            [("stop-dropped", r"'\n\n'"), ("stop-dropped", "' '")],
        ),
        Case(
            "azure-anthropic/claude-opus-4-8",
            {"messages": [HI], "stop": "\n"},
            {"stop_sequences": None},
            [("stop-dropped", r"'\n'")],
        ),
    ],
    "bedrock-stops": [
        Case(
            "bedrock/us.anthropic.claude-opus-4-8",
            {"messages": [HI], "stop": ["\n", *"abcde"]},
            {"inferenceConfig": {"stopSequences": [*"abcde"]}},
            [("stop-dropped", r"'\n'"), ("stop-sequence-unreported", "")],
        ),
        Case(
            "bedrock/us.amazon.nova-pro-v1:0",
            {"messages": [HI], "stop": ["\n", *"abcde"]},
            {"inferenceConfig": {"stopSequences": ["\n", *"abcde"]}},
            [("stop-sequence-unreported", "")],
        ),
    ],
    "bedrock-tool-turns": [
        Case(
            "bedrock/us.anthropic.claude-opus-4-8",
            {
                "messages": [
                    {"role": "user", "content": "Hi"},
                    {"role": "assistant", "tool_calls": [CALL]},
                    {"role": "assistant", "content": "One moment."},
                    {"role": "system", "content": "Be brief."},
                    {"role": "tool", "tool_call_id": "c1", "content": "2 m"},
                ],
            },
            {
                "messages": [
                    {"role": "user", "content": [{"text": "Hi"}]},
                    {
                        "role": "assistant",
                        "content": [
                            {"text": "One moment."},
                            {"toolUse": {"toolUseId": "c1", "name": "get_tide", "input": {}}},
                        ],
                    },
                    {
                        "role": "user",
                        "content": [
                            {"toolResult": {"toolUseId": "c1", "content": [{"text": "2 m"}]}},
                            {"text": "<system-reminder>\nBe brief.\n</system-reminder>"},
                        ],
                    },
                ],
            },
            [("system-moved", "")],
        ),
    ],
    "bedrock-texts": [
        Case(
            "bedrock/us.anthropic.claude-opus-4-8",
            {
                "messages": [
                    {"role": "system", "content": " \n"},
                    {"role": "user", "content": [text("\n"), text("Hi ")]},
                    {"role": "assistant", "content": "\t", "tool_calls": [CALL]},
                    {"role": "tool", "tool_call_id": "c1", "content": " "},
                    {"role": "assistant", "content": "Answer: "},
                ],
            },
            {
                "system": None,
                "messages": [
                    {"role": "user", "content": [{"text": "Hi "}]},
                    {
                        "role": "assistant",
                        "content": [{"toolUse": {"toolUseId": "c1", "name": "get_tide", "input": {}}}],
                    },
                    {"role": "user", "content": [{"toolResult": {"toolUseId": "c1", "content": [{"json": {}}]}}]},
                    {"role": "assistant", "content": [{"text": "Answer:"}]},
                ],
            },
            [],
        )
    ],
    "claude-system-messages": [
        Case(
            "anthropic/claude-haiku-4-5",
            {"messages": [HI, LATE, HI]},
            {"messages": [{"role": "user", "content": [text("Hi"), REMINDER, text("Hi")]}]},
            [("system-moved", "")],
        ),
        Case(
            "anthropic/claude-opus-4-8",
            {"messages": [HI, LATE, LATE, ANSWER, HI, LATE]},
            {
                "messages": [
                    {"role": "user", "content": [text("Hi")]},
                    {"role": "system", "content": [text("Be brief."), text("Be brief.")]},
                    {"role": "assistant", "content": [text("Ho")]},
                    {"role": "user", "content": [text("Hi")]},
                    {"role": "system", "content": [text("Be brief.")]},
                ]
            },
            [],
        ),
        Case(
            "anthropic/claude-sonnet-5-5",
            {"messages": [HI, LATE, HI, ANSWER, LATE, HI]},
            {
                "messages": [
                    {"role": "user", "content": [text("Hi"), REMINDER, text("Hi")]},
                    {"role": "assistant", "content": [text("Ho")]},
                    {"role": "user", "content": [REMINDER, text("Hi")]},
                ]
            },
            [("system-moved", ""), ("system-moved", "")],
        ),
        Case(
            "anthropic/claude-sonnet-5",
            {"messages": [HI, LATE]},
            {"messages": [{"role": "user", "content": [text("Hi"), REMINDER]}]},
            [("system-moved", "")],
            MESSAGES,
        ),
    ],
    "claude-system-messages-elsewhere": [
        Case(
            "vertex-anthropic/claude-opus-4-8",
            {"messages": [HI, LATE]},
            {"messages": [{"role": "user", "content": [text("Hi"), REMINDER]}]},
            [("system-moved", "")],
        ),
        Case(
            "bedrock/us.anthropic.claude-opus-4-7",
            {"messages": [HI, LATE]},
            {"messages": [{"role": "user", "content": [text("Hi"), REMINDER]}]},
            [("system-moved", "")],
            MESSAGES,
        ),
        Case("bedrock/us.anthropic.claude-opus-4-8", {"messages": [HI, LATE]}, {"messages": [HI, LATE]}, [], MESSAGES),
    ],
    "claude-sampling": [
        Case(
            "anthropic/claude-opus-4-8",
            {"messages": [HI], "temperature": 0.5},
            {"temperature": None},
            [("sampling-dropped", "temperature")],
        ),
        Case(
            "anthropic/claude-opus-4-8",
            {"messages": [HI], "max_tokens": 9, "temperature": 0.5, "top_k": 3},
            {"temperature": None, "top_k": None},
            [("option-refused-by-provider", "temperature"), ("option-refused-by-provider", "top_k")],
            MESSAGES,
        ),
        Case(
            "anthropic/claude-sonnet-4-6",
            {"messages": [HI], "max_tokens": 9, "temperature": 0.5},
            {"temperature": 0.5},
            [],
            MESSAGES,
        ),
        Case("anthropic/claude-sonnet-4-6", {"messages": [HI], "temperature": 0.5}, {"temperature": 0.5}, []),
        Case("vertex-anthropic/claude-opus-4@20250514", {"messages": [HI], "top_p": 0.5}, {"top_p": 0.5}, []),
    ],
    "claude-sampling-on-bedrock": [
        Case(
            "bedrock/us.anthropic.claude-opus-4-8",
            {"messages": [HI], "temperature": 0.5, "top_p": 0.9},
            {"inferenceConfig": None},
            [("sampling-dropped", "temperature"), ("sampling-dropped", "topP")],
        ),
        Case(
            "bedrock/anthropic.claude-3-5-sonnet-20241022-v2:0",
            {"messages": [HI], "temperature": 0.5, "top_p": 0.9},
            {"inferenceConfig": {"temperature": 0.5, "topP": 0.9}},
            [],
        ),
    ],
    "claude-sampling-pair": [
        *(
            Case(
                model,
                {"messages": [HI], "temperature": 0.5, "top_p": 0.9},
                {"temperature": 0.5, "top_p": None},
                [("sampling-dropped", "top_p")],
            )
            for model in (
                "anthropic/claude-opus-4-1-20250805",
                "azure-anthropic/claude-haiku-4-5",
                "vertex-anthropic/claude-sonnet-4-6@default",
            )
        ),
        Case(
            "bedrock/us.anthropic.claude-sonnet-4-5-20250929-v1:0",
            {"messages": [HI], "temperature": 0.5, "top_p": 0.9},
            {"inferenceConfig": {"temperature": 0.5}},
            [("sampling-dropped", "topP")],
        ),
        Case("anthropic/claude-haiku-4-5", {"messages": [HI], "top_p": 0.9}, {"top_p": 0.9}, []),
        Case(
            "anthropic/claude-haiku-4-5",
            {"messages": [HI], "temperature": 1, "top_p": 0.9},
            {"temperature": None, "top_p": 0.9},
            [],
        ),
        Case(
            "bedrock/us.anthropic.claude-haiku-4-5-20251001-v1:0",
            {"messages": [HI], "temperature": 1, "top_p": 0.9},
            {"inferenceConfig": {"topP": 0.9}},
            [],
        ),
        Case(
            "anthropic/claude-sonnet-4-20250514",
            {"messages": [HI], "temperature": 0.5, "top_p": 0.9},
            {"temperature": 0.5, "top_p": 0.9},
            [],
        ),
    ],
    "claude-output": [
        Case("anthropic/claude-3-5-haiku-20241022", {"messages": [HI]}, {"max_tokens": 8_192}, []),
        Case("anthropic/claude-opus-4-8", {"messages": [HI]}, {"max_tokens": 32_000}, []),
    ],
    "claude-media-urls": [
        Case(
            "vertex-anthropic/claude-opus-4-8",
            {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": PICTURE}}]}]},
            {"messages": [{"role": "user", "content": [IMAGE]}]},
            [],
            fetched=FETCHED,
        ),
        Case(
            "vertex-anthropic/claude-opus-4-8",
            {"messages": [{"role": "user", "content": [RESULT_BLOCK | {"content": [LINKED]}]}]},
            {"messages": [{"role": "user", "content": [RESULT_BLOCK | {"content": [IMAGE]}]}]},
            [],
            MESSAGES,
            FETCHED,
        ),
    ],
    "gemini-efforts": [
        Case(
            "vertex/gemini-2.5-pro",
            {"messages": [HI], "reasoning_effort": "none"},
            {"generationConfig": {"thinkingConfig": {"thinkingBudget": 128}}},
            [("effort-approximated", "none as 128")],
        ),
        Case(
            "vertex/gemini-2.5-flash",
            {"messages": [HI], "reasoning_effort": "none"},
            {"generationConfig": {"thinkingConfig": {"thinkingBudget": 0}}},
            [],
        ),
        Case(
            "vertex/gemini-3-pro-preview",
            {"messages": [HI], "reasoning_effort": "medium"},
            {"generationConfig": {"thinkingConfig": {"includeThoughts": True, "thinkingLevel": "LOW"}}},
            [("effort-approximated", "medium as low")],
        ),
        Case(
            "vertex/gemini-3-pro-preview",
            {"messages": [HI], "thinking": {"type": "disabled"}},
            {"generationConfig": {"maxOutputTokens": 100, "thinkingConfig": {"thinkingLevel": "LOW"}}},
            [("effort-approximated", "none as low")],
            MESSAGES,
        ),
        Case(
            "gemini/gemini-3-flash-preview",
            {"messages": [HI], "thinking": {"type": "enabled", "budget_tokens": 8_000}},
            {"reasoning_effort": "medium"},
            [("effort-approximated", "8000 as medium")],
            MESSAGES,
        ),
        Case(
            "vertex/gemini-2.5-flash-image",
            {"messages": [HI], "reasoning_effort": "low"},
            {"generationConfig": None},
            [("field-dropped", "reasoning_effort")],
        ),
    ],
    "gemini-thinking": [
        Case(
            "vertex/gemini-2.5-flash-lite",
            {"messages": [HI], "thinking": {"type": "enabled", "budget_tokens": 30_000}},
            {"generationConfig": {"maxOutputTokens": 100, "thinkingConfig": THOUGHTS | {"thinkingBudget": 24_576}}},
            [("effort-approximated", "30000 as 24576")],
            MESSAGES,
        ),
        Case(
            "vertex/gemini-3.1-pro-preview",
            {"messages": [HI], "reasoning_effort": "high"},
            {"generationConfig": {"thinkingConfig": THOUGHTS | {"thinkingLevel": "HIGH"}}},
            [],
        ),
    ],
    "claude-cache-minimum": [
        Case(
            f"{provider}/{prefix}{model}",
            {"messages": [{"role": "system", "content": "word " * least}, HI]},
            {"system": [{"type": "text", "text": "word " * least} | marked]},
            [],
        )
        for provider, prefix in (("anthropic", ""), ("vertex-anthropic", ""), ("azure-anthropic", ""))
        for model, least, marked in (
            ("claude-opus-4-8", 1_100, CACHED),
            ("claude-opus-4-8", 500, {}),
            ("claude-sonnet-4-6", 1_400, {}),
            ("claude-sonnet-4-6", 2_100, CACHED),
            ("claude-haiku-4-5", 2_800, {}),
            ("claude-haiku-4-5", 4_200, CACHED),
        )
    ]
    + [
        Case(
            "bedrock/eu.anthropic.claude-sonnet-4-6",
            {"messages": [{"role": "system", "content": "word " * least}, HI]},
            {"system": [{"text": "word " * least}, *points]},
            [],
        )
        for least, points in ((1_400, []), (2_100, [{"cachePoint": {"type": "default"}}]))
    ],
    "openai-cache-key": [
        Case(model, {"messages": [HI], "max_tokens": 99}, {"prompt_cache_key": key}, [], MESSAGES)
        for model, key in (("openai/gpt-5.6", NAME), ("openai/gpt-5.2", None), ("openai/gpt-4.1", None))
    ],
    "openai-reasoning-parameters": [
        Case(
            f"openai/{model}",
            {"messages": [HI], "max_tokens": 50, "temperature": 0.2},
            {"max_tokens": None, "max_completion_tokens": 50, "temperature": kept},
            [] if kept else [("option-refused-by-provider", "temperature")],
        )
        for model, kept in (("o4-mini", None), ("gpt-5", None), ("gpt-5-mini-2025-08-07", None), ("gpt-5.2", 0.2))
    ]
    + [Case("openai/gpt-4o", {"messages": [HI], "max_tokens": 50}, {"max_tokens": 50}, [])],
    "openai-cache-breakpoints": [
        Case(
            "openai/gpt-5.6",
            {"system": "word " * 1_100, "messages": [HI]},
            {
                "input": [
                    {
                        "type": "message",
                        "role": "developer",
                        "content": [{"type": "input_text", "text": "word " * 1_100} | MARK],
                    },
                    {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Hi"}]},
                ]
            },
            [],
            MESSAGES,
        ),
        Case(
            "openai/gpt-5.6",
            {"messages": [{"role": "user", "content": [text("Hi") | {"cache_control": {"type": "ephemeral"}}]}]},
            {"input": [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Hi"} | MARK]}]},
            [],
            MESSAGES,
        ),
        Case(
            "openai/gpt-5.6",
            {"messages": [{"role": "user", "content": [text("Hi") | MARK]}]},
            {"messages": [{"role": "user", "content": [text("Hi") | MARK]}]},
            [],
        ),
        Case(
            "openai/gpt-4.1",
            {"messages": [{"role": "user", "content": [text("Hi") | {"cache_control": {"type": "ephemeral"}}]}]},
            {"messages": [HI]},
            [("cache-hint-dropped", "5m")],
            MESSAGES,
        ),
    ],
    "gemini-call-signatures": [
        Case("gemini/gemini-2.5-pro", {"messages": SIGNED}, {"messages": called(GOOGLE_SIGNED)}, [], MESSAGES),
    ],
    "gemini-signature-placeholder": [
        Case(
            "gemini/gemini-3-flash-preview",
            {"messages": [SIGNED[0], THOUGHT, *SIGNED[2:]]},
            {"messages": called({"thought_signature": "skip_thought_signature_validator"})},
            [("reasoning-dropped", "")],
            MESSAGES,
        ),
        Case(
            "gemini/gemini-3-flash-preview",
            {"messages": called(None)},
            {"messages": called({"thought_signature": "skip_thought_signature_validator"})},
            [],
        ),
    ],
}
MODELS = sorted({case.model.partition("/")[2] for cases in CASES.values() for case in cases})
ALL = {f"{name} {number}": case for name, cases in CASES.items() for number, case in enumerate(cases)}


@pytest.fixture(scope="module")
def providers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Provider]:
    """The built-in providers that have rules, as a configuration that only names them has them."""
    file: Path = tmp_path_factory.mktemp("rules") / "penstock.toml"
    named = sorted({name for rule in rules().values() for name in rule.providers})
    file.write_text("".join(f'[providers.{name}]\napi_key = "a-key-of-some-length"\n' for name in named))
    return dict(load(file, PLACES).providers)


def asked(case: Case, provider: Provider) -> tuple[Json, Lost]:
    model = case.model.partition("/")[2]
    dialect = provider.dialect_for(model, case.client)
    settings = provider.settings_for(model, dialect)
    destination = Destination(model=model, settings=settings, issuer=ISSUER)
    body, lost = sent(case.client, dialect, case.fields, destination, fetched=case.fetched)
    return body, [loss for loss in lost if loss[0] != "max-tokens-assumed"]


@pytest.mark.parametrize("case", ALL.values(), ids=ALL)
def test_the_provider_gets_a_request_that_it_takes(case: Case, providers: dict[str, Provider]) -> None:
    body, _ = asked(case, providers[case.model.partition("/")[0]])
    assert {name: body.get(name) for name in case.body} == case.body


@pytest.mark.parametrize("case", ALL.values(), ids=ALL)
def test_what_a_rule_changes_is_declared(case: Case, providers: dict[str, Provider]) -> None:
    assert asked(case, providers[case.model.partition("/")[0]])[1] == case.lost


@pytest.mark.parametrize("client", [CHAT, MESSAGES])
def test_media_by_url_that_nothing_fetches_are_refused(client: str, providers: dict[str, Provider]) -> None:
    case = CASES["claude-media-urls"][client == MESSAGES]
    with pytest.raises(RequestError, match="base64 data, or ask the gateway's operator") as caught:
        asked(case._replace(fetched={}), providers["vertex-anthropic"])
    assert caught.value.failure.code == "invalid_request"
    wrong = {PICTURE: MediaPart(kind="file", mime="application/pdf", data="AAAA")}
    with pytest.raises(RequestError, match="type application/pdf"):
        asked(case._replace(fetched=wrong), providers["vertex-anthropic"])


def test_every_rule_has_a_case() -> None:
    assert CASES.keys() == rules().keys()
    assert all(cases for cases in CASES.values())


def test_every_rule_has_its_evidence_and_applies_to_its_providers(providers: dict[str, Provider]) -> None:
    for name, rule in rules().items():
        assert rule.says.endswith("."), name
        assert rule.sources, name
        assert all(source.startswith("https://") for source in rule.sources), name
        for provider in map(providers.__getitem__, rule.providers):
            offered = [dialect for dialect in rule.dialects if dialect in (provider.dialect, *provider.dialects)]
            assert offered, name
            alone = structs.replace(provider, settings=rule.settings, dialects={})
            for model, dialect in product(MODELS, offered):
                assert provider.settings_for(model, dialect).items() >= alone.settings_for(model).items(), name
