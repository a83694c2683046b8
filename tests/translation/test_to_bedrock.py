"""A request of a client of another API, as Bedrock gets it: what is carried, what is lost, and botocore's judgement."""

import json
from typing import Any

import pytest
from botocore.session import Session
from botocore.validate import ParamValidator

from penstock.core.dialects.dialect import Destination, RequestError
from penstock.core.dialects.registry import surface_dialect, upstream_dialect
from penstock.core.hub.content import ReasoningSeal
from penstock.core.hub.losses import LOSSES
from penstock.core.hub.seals import wrap
from tests.provider_streams import BEDROCK as HEALTHY
from tests.translation.support import CHAT, ISSUER, MESSAGES, Json, Lost, asked, translated

CONVERSE = "bedrock_converse"
HI: Json = {"role": "user", "content": "Hi"}
ASKED: Json = {"role": "user", "content": [{"text": "Hi"}]}
SCHEMA: Json = {"type": "object", "properties": {"city": {"type": "string"}}}
TOOL: Json = {"type": "function", "function": {"name": "f", "description": "F", "parameters": SCHEMA}}
BARE: Json = {"type": "function", "function": {"name": "g"}}
SPEC: Json = {"toolSpec": {"name": "f", "description": "F", "inputSchema": {"json": SCHEMA}}}
NOTHING: Json = {"type": "object", "properties": {}}
PICTURE: Json = {"type": "image", "source": {"type": "base64", "media_type": "image/webp", "data": "AA=="}}


@pytest.fixture(scope="module")
def shape() -> Any:
    """The request of `ConverseStream`, as botocore knows it."""
    return Session().get_service_model("bedrock-runtime").operation_model("ConverseStream").input_shape


def judged(shape: Any, body: Json) -> Json:
    """The body, if botocore would send it."""
    report = ParamValidator().validate({"modelId": "m", **body}, shape)
    assert not report.has_errors(), report.generate_report()
    return body


CLOSED = '{"type":"object","properties":{},"additionalProperties":false}'
FIELDS: dict[str, tuple[Json, Json, Lost]] = {
    "only the conversation": ({}, {}, []),
    "the system prompt, and another one later": (
        {"messages": [{"role": "system", "content": "Be brief."}, HI, {"role": "system", "content": "Briefer."}]},
        {
            "system": [{"text": "Be brief."}],
            "messages": [
                {
                    "role": "user",
                    "content": [{"text": "Hi"}, {"text": "<system-reminder>\nBriefer.\n</system-reminder>"}],
                }
            ],
        },
        [("system-moved", "")],
    ),
    "sampling and limits": (
        {"temperature": 1.5, "top_p": 0.9, "max_tokens": 50, "stop": ["a", "b"], "seed": 7},
        {"inferenceConfig": {"temperature": 1.0, "topP": 0.9, "maxTokens": 50, "stopSequences": ["a", "b"]}},
        [("temperature-clamped", "1.5"), ("sampling-dropped", "seed"), ("stop-sequence-unreported", "")],
    ),
    "a tier": ({"service_tier": "flex"}, {"serviceTier": {"type": "flex"}}, []),
    "what the API lacks": (
        {"user": "ann", "reasoning_effort": "high", "parallel_tool_calls": False},
        {},
        [("field-dropped", "user"), ("field-dropped", "reasoning_effort"), ("field-dropped", "parallel_tool_calls")],
    ),
    "a schema for the answer": (
        {"response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": NOTHING}}},
        {
            "outputConfig": {
                "textFormat": {
                    "type": "json_schema",
                    "structure": {"jsonSchema": {"schema": CLOSED, "name": "a"}},
                }
            }
        },
        [],
    ),
    "any JSON": ({"response_format": {"type": "json_object"}}, {}, [("schema-loosened", "")]),
    "tools": (
        {"tools": [TOOL], "tool_choice": "auto"},
        {"toolConfig": {"tools": [SPEC], "toolChoice": {"auto": {}}}},
        [],
    ),
    "a tool that must be called": (
        {"tools": [TOOL, BARE], "tool_choice": {"type": "function", "function": {"name": "g"}}},
        {
            "toolConfig": {
                "tools": [{"toolSpec": {"name": "g", "inputSchema": {"json": NOTHING}}}],
                "toolChoice": {"tool": {"name": "g"}},
            }
        },
        [],
    ),
    "any tool that must be called": (
        {"tools": [TOOL], "tool_choice": "required"},
        {"toolConfig": {"tools": [SPEC], "toolChoice": {"any": {}}}},
        [],
    ),
    "no tool that may be called": ({"tools": [TOOL], "tool_choice": "none"}, {}, []),
    "images and files": (
        {
            "messages": [
                {
                    "role": "user",
                    "content": [
                        {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}},
                        {"type": "image_url", "image_url": {"url": "https://x/y.webp"}},
                        {"type": "image_url", "image_url": {"url": "s3://bucket/y.webp"}},
                        {
                            "type": "file",
                            "file": {"filename": "a_b/c.pdf", "file_data": "data:application/pdf;base64,AA=="},
                        },
                        {"type": "text", "text": ""},
                    ],
                }
            ]
        },
        {
            "messages": [
                {
                    "role": "user",
                    "content": [
                        {"image": {"format": "png", "source": {"bytes": "AA=="}}},
                        {"image": {"format": "webp", "source": {"s3Location": {"uri": "s3://bucket/y.webp"}}}},
                        {"document": {"format": "pdf", "name": "a b c pdf", "source": {"bytes": "AA=="}}},
                    ],
                }
            ]
        },
        [("content-dropped", "image by URL")],
    ),
}  # fmt: skip


@pytest.mark.parametrize(("fields", "expected", "lost"), FIELDS.values(), ids=FIELDS)
def test_a_chat_request(fields: Json, expected: Json, lost: Lost, shape: Any) -> None:
    body, losses = asked(CHAT, CONVERSE, {"messages": [HI]} | fields)
    assert judged(shape, body) == {"messages": [ASKED]} | expected
    assert sorted(losses) == sorted(lost)
    assert {code for code, _ in losses} <= LOSSES.keys()


REASONING: dict[str, tuple[Json, str, object, Lost]] = {
    "a budget": (
        {"reasoning_effort": "low"},
        "budget",
        {"thinking": {"type": "enabled", "budget_tokens": 2_048}},
        [("effort-approximated", "low as 2048")],
    ),
    "a budget below the limit of the output": (
        {"reasoning_effort": "high", "max_tokens": 2_000},
        "budget",
        {"thinking": {"type": "enabled", "budget_tokens": 1_999}},
        [("effort-approximated", "high as 1999")],
    ),
    "no room for a budget": (
        {"reasoning_effort": "high", "max_tokens": 500}, "budget", None, [("effort-approximated", "high as none")],
    ),
    "adaptive": (
        {"reasoning_effort": "high", "temperature": 0.5},
        "adaptive",
        {"thinking": {"type": "adaptive"}, "output_config": {"effort": "high"}},
        [("sampling-dropped", "temperature")],
    ),
    "not with a forced call": (
        {"reasoning_effort": "high", "tools": [TOOL], "tool_choice": "required"},
        "budget",
        None,
        [("effort-approximated", "no thinking: tool_choice forces a call")],
    ),
    "off": ({"reasoning_effort": "none"}, "budget", None, []),
}  # fmt: skip


@pytest.mark.parametrize(("fields", "setting", "expected", "lost"), REASONING.values(), ids=REASONING)
def test_reasoning(fields: Json, setting: str, expected: object, lost: Lost, shape: Any) -> None:
    body, losses = asked(CHAT, CONVERSE, {"messages": [HI]} | fields, reasoning=setting)
    assert (judged(shape, body).get("additionalModelRequestFields"), losses) == (expected, lost)


def test_the_conversation_of_a_messages_client(shape: Any) -> None:
    own = wrap(ReasoningSeal("bedrock", "c2ln"), ISSUER)
    foreign = wrap(ReasoningSeal("bedrock", "c2ln"), "ffffffff")
    use = {"type": "tool_use", "id": "a.1", "name": "f", "input": {"city": "Brest"}}
    turns: list[Json] = [
        {"role": "user", "content": [{"type": "text", "text": "Hi", "cache_control": {"type": "ephemeral"}}]},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "Hm.", "signature": own},
                {"type": "thinking", "thinking": "No.", "signature": foreign},
                use,
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "a.1", "is_error": True, "content": [PICTURE]},
                {"type": "tool_result", "tool_use_id": "a.1"},
            ],
        },
    ]
    body, losses = asked(MESSAGES, CONVERSE, {"messages": turns, "top_k": 5}, cache_points=True, takes_top_k=True)
    first, answer, results = judged(shape, body)["messages"]
    assert first["content"] == [{"text": "Hi"}, {"cachePoint": {"type": "default"}}]
    id = answer["content"][1]["toolUse"]["toolUseId"]
    assert answer["content"] == [
        {"reasoningContent": {"reasoningText": {"text": "Hm.", "signature": "c2ln"}}},
        {"toolUse": {"toolUseId": id, "name": "f", "input": {"city": "Brest"}}},
    ]
    picture = {"image": {"format": "webp", "source": {"bytes": "AA=="}}}
    assert results["content"] == [
        {"toolResult": {"toolUseId": id, "content": [picture], "status": "error"}},
        {"toolResult": {"toolUseId": id, "content": [{"json": {}}]}},
    ]
    assert body["toolConfig"] == {"tools": [{"toolSpec": {"name": "f", "inputSchema": {"json": NOTHING}}}]}
    assert body["additionalModelRequestFields"] == {"top_k": 5}
    assert losses == [("reasoning-dropped", "")]


def test_a_hint_for_the_cache_is_lost_if_the_model_takes_none() -> None:
    text = {"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral", "ttl": "1h"}}
    fields: Json = {"messages": [HI], "system": [text]}
    body, losses = asked(MESSAGES, CONVERSE, fields)
    assert (body["system"], losses) == ([{"text": "Be brief."}], [("cache-hint-dropped", "1h")])
    body, losses = asked(MESSAGES, CONVERSE, fields, cache_points=True)
    assert (body["system"][1], losses) == ({"cachePoint": {"type": "default", "ttl": "1h"}}, [])


def test_several_choices_are_refused() -> None:
    with pytest.raises(RequestError, match="`n` is 2"):
        asked(CHAT, CONVERSE, {"messages": [HI], "n": 2})


def test_the_limits_are_known_before_the_call() -> None:
    surface, upstream = surface_dialect(CHAT), upstream_dialect(CONVERSE)
    body = json.dumps({"model": "m", "messages": [HI], "max_tokens": 50, "service_tier": "flex"}).encode()
    request = surface.read_request(body, {}, surface.path)
    limits = upstream.limits(request, Destination(model="m"))
    assert (limits.output, limits.tier) == (50, "flex")


@pytest.mark.parametrize(
    ("client", "lost"),
    [
        (CHAT, ["cache_write_1h"]),
        (MESSAGES, []),
        ("openai_responses", ["cache_write_1h"]),
        ("gemini", ["cache_write", "cache_write_1h"]),
    ],
)
def test_an_answer_is_the_same_for_clients_of_every_api_except_details_of_usage(client: str, lost: list[str]) -> None:
    written, losses = translated(CONVERSE, client, HEALTHY["thinking and a call"], pieces=7)
    for text in (b"turn.", b"High water", b"get_tide"):
        assert text in written
    assert losses == [("field-dropped", f"usage.{count}") for count in lost]
