"""What providers of other APIs get of requests to Bedrock's Converse API, and what Bedrock itself gets."""

import json

import pytest

from penstock.core.dialects.dialect import RequestError
from penstock.core.dialects.registry import surface_dialect
from penstock.core.hub.content import ReasoningSeal
from penstock.core.hub.seals import wrap
from tests.translation.support import BEDROCK, CHAT, ISSUER, MESSAGES, Json, asked

HI: Json = {"role": "user", "content": [{"text": "Hi"}]}
CALL: Json = {"toolUse": {"toolUseId": "t1", "name": "f", "input": {"a": 1}}}
RESULT: Json = {"toolResult": {"toolUseId": "t1", "content": [{"json": {"t": 1}}], "status": "error"}}
SPEC: Json = {"toolSpec": {"name": "f", "description": "F", "inputSchema": {"json": {"type": "object"}}}}
CACHE: Json = {"cachePoint": {"type": "default"}}


def test_a_conversation_with_a_tool() -> None:
    fields = {
        "system": [{"text": "Be brief."}, CACHE],
        "messages": [HI, {"role": "assistant", "content": [CALL]}, {"role": "user", "content": [RESULT]}],
        "toolConfig": {"tools": [SPEC, CACHE], "toolChoice": {"any": {}}},
        "inferenceConfig": {"maxTokens": 50, "temperature": 0.5, "topP": 0.9, "stopSequences": ["END"]},
        "requestMetadata": {"team": "weir"},
    }
    body, _ = asked(BEDROCK, MESSAGES, fields)
    mark = {"cache_control": {"type": "ephemeral"}}
    assert body["system"] == [{"type": "text", "text": "Be brief.", **mark}]
    assert body["messages"][1]["content"] == [{"type": "tool_use", "id": "t1", "name": "f", "input": {"a": 1}}]
    (result,) = body["messages"][2]["content"]
    assert (
        result["tool_use_id"],
        result["is_error"],
        '{"t":1}' in json.dumps(result["content"]).replace("\\", ""),
    ) == (
        "t1",
        True,
        True,
    )
    assert (body["tools"][0]["cache_control"], body["tool_choice"]) == ({"type": "ephemeral"}, {"type": "any"})
    assert (body["max_tokens"], body["temperature"], body["stop_sequences"]) == (50, 0.5, ["END"])


def test_claude_s_settings_of_reasoning_are_translated() -> None:
    more = {"thinking": {"type": "enabled", "budget_tokens": 2_000}, "top_k": 5, "anthropic_beta": ["x"]}
    body, losses = asked(
        BEDROCK, MESSAGES, {"additionalModelRequestFields": more, "inferenceConfig": {"maxTokens": 4_000}}
    )
    assert body["thinking"] == {"type": "enabled", "budget_tokens": 2_000}
    assert ("field-dropped", "additionalModelRequestFields.anthropic_beta") in losses


def test_media_and_documents() -> None:
    content = [
        {"image": {"format": "png", "source": {"bytes": "aGk="}}},
        {"document": {"format": "txt", "name": "Notes", "source": {"text": "High at noon"}}},
        {"searchResult": {"source": "https://tides.example", "title": "Tides", "content": [{"text": "low"}]}},
    ]
    body, losses = asked(BEDROCK, CHAT, {"messages": [{"role": "user", "content": content}]})
    image, *texts = body["messages"][0]["content"]
    assert image["image_url"]["url"] == "data:image/png;base64,aGk="
    assert [part["text"] for part in texts] == ["Notes\n\nHigh at noon", "Tides\n\nhttps://tides.example\n\nlow"]
    assert losses == []


def test_bedrock_gets_the_client_s_own_body_without_foreign_seals() -> None:
    def thought(signature: str) -> Json:
        return {"reasoningContent": {"reasoningText": {"text": "Hm.", "signature": signature}}}

    foreign = wrap(ReasoningSeal("anthropic", "EqQB"), ISSUER)
    answer = {"role": "assistant", "content": [thought("c2ln"), thought(foreign), {"text": "So."}]}
    fields: Json = {"messages": [HI, answer, HI], "guardrailConfig": {"trace": "enabled"}}
    body, losses = asked(BEDROCK, BEDROCK, fields)
    kept = {"role": "assistant", "content": [thought("c2ln"), {"text": "So."}]}
    assert body == fields | {"messages": [HI, kept, HI]}
    assert losses == [("reasoning-dropped", "")]


REFUSED = {
    "no messages": b'{"messages": []}',
    "a cap of another type": b'{"messages": [{}], "inferenceConfig": {"maxTokens": "5"}}',
    "a cap that is there twice": b'{"messages": [{}], "inferenceConfig": {"maxTokens": 5, "maxTokens": 6}}',
    "settings that are no object": b'{"messages": [{}], "inferenceConfig": []}',
}


@pytest.mark.parametrize("body", REFUSED.values(), ids=REFUSED)
def test_what_the_gateway_acts_on_is_checked(body: bytes) -> None:
    with pytest.raises(RequestError):
        surface_dialect(BEDROCK).read_request(body, {}, "/model/m/converse")


@pytest.mark.parametrize(
    ("path", "model", "stream"),
    [
        ("/model/groq%2Fopenai%2Fgpt-oss/converse", "groq/openai/gpt-oss", False),
        ("/model/eu.weir%2F3-v1%3A0/converse-stream", "eu.weir/3-v1:0", True),
    ],
)
def test_the_path_names_the_model(path: str, model: str, stream: bool) -> None:
    request = surface_dialect(BEDROCK).read_request(json.dumps({"messages": [HI]}).encode(), {}, path)
    assert (request.model, request.stream) == (model, stream)
