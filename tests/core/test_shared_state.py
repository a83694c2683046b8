"""Requests that refer to what is stored in a provider's account, or choose a route, are recognised in every API."""

from typing import Any

import msgspec
import pytest

from penstock.core.dialects.registry import surface_dialect
from penstock.core.dialects.shared_state import find_reference, find_route

RESPONSES, CHAT, MESSAGES, GEMINI = "openai_responses", "openai_chat", "anthropic_messages", "gemini"
COHERE, BEDROCK = "cohere", "bedrock_converse"
PATHS = {
    RESPONSES: "/v1/responses",
    CHAT: "/v1/chat/completions",
    MESSAGES: "/v1/messages",
    GEMINI: "/v1/models/m:generateContent",
    COHERE: "/v2/chat",
    BEDROCK: "/model/m/converse",
}
USUAL: dict[str, dict[str, Any]] = {
    RESPONSES: {"model": "m", "input": "x"},
    CHAT: {"model": "m", "messages": [{"role": "user", "content": "x"}]},
    MESSAGES: {"model": "m", "max_tokens": 5, "messages": [{"role": "user", "content": "x"}]},
    GEMINI: {"contents": [{"parts": [{"text": "x"}]}]},
    COHERE: {"model": "m", "messages": [{"role": "user", "content": "x"}]},
    BEDROCK: {"messages": [{"role": "user", "content": [{"text": "x"}]}]},
}


def user(*parts: object) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": list(parts)}]}


def given(*items: object) -> dict[str, Any]:
    return {"input": list(items)}


def part(value: object) -> dict[str, Any]:
    return {"contents": [{"parts": [value]}]}


def image(url: str) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": url}}


FILES_API = "https://generativelanguage.googleapis.com/v1beta/files/a"
REFERENCES: dict[str, tuple[str, dict[str, Any]]] = {
    "a reference to an item": (RESPONSES, given({"type": "item_reference", "id": "i"})),
    "without its type": (RESPONSES, given({"id": "i"})),
    "with a type of null": (RESPONSES, given({"type": None, "id": "i"})),
    "an image by its id": (RESPONSES, given({"type": "image_generation_call", "id": "i"})),
    "a file": (RESPONSES, given({"role": "user", "content": [{"type": "input_file", "file_id": "i"}]})),
    "a file of a tool": (RESPONSES, given({"type": "function_call_output", "output": [{"file_id": "i"}]})),
    "a conversation": (RESPONSES, {"conversation": "i"}),
    "a conversation as an object": (RESPONSES, {"conversation": {"id": "i"}}),
    "a prompt": (RESPONSES, {"prompt": {"id": "i"}}),
    "a variable of a prompt": (RESPONSES, {"prompt": {"variables": {"a": {"type": "input_file", "file_id": "i"}}}}),
    "a vector store": (RESPONSES, {"tools": [{"type": "file_search", "vector_store_ids": ["i"]}]}),
    "a mask": (RESPONSES, {"tools": [{"type": "image_generation", "input_image_mask": {"file_id": "i"}}]}),
    "a container": (RESPONSES, {"tools": [{"type": "code_interpreter", "container": "i"}]}),
    "files of a container": (RESPONSES, {"tools": [{"container": {"type": "auto", "file_ids": ["i"]}}]}),
    "a container of a shell": (RESPONSES, {"tools": [{"type": "shell", "environment": {"container_id": "i"}}]}),
    "a container of a call": (RESPONSES, given({"type": "code_interpreter_call", "id": "c", "container_id": "i"})),
    "a skill": (RESPONSES, {"tools": [{"environment": {"skills": [{"type": "skill_reference", "skill_id": "i"}]}}]}),
    "chat: a file": (CHAT, user({"type": "file", "file": {"file_id": "i"}})),
    "chat: beside a text": (CHAT, user({"type": "text", "text": "x", "file_id": "i"})),
    "chat: a file of two members": (CHAT, user({"text": "x", "file_id": "i"})),
    "chat: audio": (CHAT, {"messages": [{"role": "assistant", "audio": {"id": "i"}}]}),
    "chat: a voice": (CHAT, {"audio": {"voice": {"id": "i"}}}),
    "chat: an index": (CHAT, {"data_sources": [{"type": "azure_search"}]}),
    "chat: S3": (CHAT, user(image("s3://bucket/key"))),
    "chat: S3 in capitals": (CHAT, user(image(" S3://bucket/key"))),
    "chat: Cloud Storage": (CHAT, user(image("gs://bucket/key"))),
    "chat: Gemini's files": (CHAT, user(image(FILES_API))),
    "chat: nested lists": (CHAT, user([[{"file_id": "i"}]])),
    "messages: a file": (MESSAGES, user({"type": "document", "source": {"type": "file", "file_id": "i"}})),
    "messages: a file of a tool": (
        MESSAGES,
        user({"type": "tool_result", "content": [{"type": "image", "source": {"file_id": "i"}}]}),
    ),
    "messages: an upload": (MESSAGES, user({"type": "container_upload", "file_id": "i"})),
    "messages: a container": (MESSAGES, {"container": "i"}),
    "messages: a container as an object": (MESSAGES, {"container": {"id": "i"}}),
    "messages: a skill": (MESSAGES, {"container": {"skills": [{"type": "custom", "skill_id": "i"}]}}),
    "messages: S3": (MESSAGES, user({"type": "image", "source": {"type": "url", "url": "s3://bucket/key"}})),
    "gemini: a file": (GEMINI, part({"fileData": {"fileUri": FILES_API}})),
    "gemini: a file by its name": (GEMINI, part({"file_data": {"file_uri": "files/a"}})),
    "gemini: Cloud Storage": (GEMINI, part({"fileData": {"fileUri": "gs://bucket/key"}})),
    "gemini: with user information": (
        GEMINI,
        part({"fileData": {"fileUri": "https://a@GenerativeLanguage.googleapis.com/v1beta/files/a"}}),
    ),
    "gemini: a cache": (GEMINI, {"cachedContent": "cachedContents/a"}),
    "gemini: a cache in snake case": (GEMINI, {"cached_content": "cachedContents/a"}),
    "gemini: a store": (GEMINI, {"tools": [{"fileSearch": {"fileSearchStoreNames": ["a"]}}]}),
    "bedrock: S3": (
        BEDROCK,
        user({"image": {"format": "png", "source": {"s3Location": {"uri": "s3://bucket/key"}}}}),
    ),
    "bedrock: a guardrail": (BEDROCK, {"guardrailConfig": {"guardrailIdentifier": "g", "guardrailVersion": "1"}}),
    "bedrock: a stored prompt": (BEDROCK, {"promptVariables": {"a": {"text": "x"}}}),
    "cohere: Cloud Storage": (COHERE, user(image("gs://bucket/key"))),
    "gemini: a corpus": (GEMINI, {"tools": [{"retrieval": {"vertexRagStore": {"ragResources": []}}}]}),
}


@pytest.mark.parametrize(("dialect", "more"), REFERENCES.values(), ids=REFERENCES)
def test_what_is_stored_at_a_provider_is_recognised(dialect: str, more: dict[str, Any]) -> None:
    body = msgspec.json.encode(USUAL[dialect] | more)
    request = surface_dialect(dialect).read_request(body, {}, PATHS[dialect])
    assert find_reference(dialect, request.fields) is not None


SCHEMA = {"type": "object", "properties": {"file_id": {"type": "string"}}, "default": {"file_id": "i"}}
NONE: dict[str, tuple[str, dict[str, Any]]] = {
    "a message of parts": (RESPONSES, given({"role": "user", "content": [{"type": "input_text", "text": "x"}]})),
    "a message with an id": (RESPONSES, given({"id": "i", "role": "assistant", "content": []})),
    "settings": (RESPONSES, {"reasoning": {"effort": "low"}, "text": {"format": {"type": "text"}}, "store": False}),
    "a container of its own": (RESPONSES, {"tools": [{"type": "code_interpreter", "container": {"type": "auto"}}]}),
    "a generated image": (RESPONSES, given({"type": "image_generation_call", "id": "i", "result": "AA=="})),
    "a citation": (
        RESPONSES,
        given({"role": "assistant", "content": [{"type": "output_text", "annotations": [{"file_id": "i"}]}]}),
    ),
    "empty": (RESPONSES, {"previous_response_id": None, "prompt": None, "tools": [{"vector_store_ids": []}]}),
    "chat: a schema": (CHAT, {"tools": [{"type": "function", "function": {"name": "f", "parameters": SCHEMA}}]}),
    "chat: a voice by its name": (CHAT, {"audio": {"voice": "alloy", "format": "wav"}}),
    "chat: an image": (
        CHAT,
        user(image("https://storage.googleapis.com/public/a.png"), image("data:image/png;base64,AA")),
    ),
    "chat: metadata": (CHAT, {"metadata": {"file_id": "i"}}),
    "messages: arguments": (MESSAGES, user({"type": "tool_use", "input": {"file_id": "i", "container": "c"}})),
    "messages: a public skill": (MESSAGES, {"container": {"skills": [{"type": "anthropic", "skill_id": "pptx"}]}}),
    "messages: a file of a result": (MESSAGES, user({"content": [{"type": "code_execution_output", "file_id": "i"}]})),
    "messages: types of another kind": (MESSAGES, user({"type": {}, "text": []}, {"type": []})),
    "bedrock: a schema": (
        BEDROCK,
        {"toolConfig": {"tools": [{"toolSpec": {"inputSchema": {"json": {"default": {"uri": "s3://bucket/key"}}}}}]}},
    ),
    "bedrock: a result": (BEDROCK, user({"toolResult": {"content": [{"json": {"uri": "s3://bucket/key"}}]}})),
    "cohere: a document": (COHERE, {"documents": [{"data": {"url": "gs://bucket/key"}}]}),
    "gemini: a video": (GEMINI, part({"fileData": {"fileUri": "https://www.youtube.com/watch?v=a"}})),
    "gemini: arguments": (GEMINI, part({"functionCall": {"name": "f", "args": {"cachedContent": "a"}}})),
}


@pytest.mark.parametrize(("dialect", "more"), NONE.values(), ids=NONE)
def test_what_belongs_to_the_client_is_no_shared_state(dialect: str, more: dict[str, Any]) -> None:
    assert find_reference(dialect, USUAL[dialect] | more) is None


def test_a_request_with_an_id_and_an_address_refers_to_an_id() -> None:
    fields = user(image("s3://bucket/key"), {"type": "file", "file": {"file_id": "i"}})
    reference = find_reference(CHAT, fields)
    assert reference is not None
    assert (reference.member, reference.kind) == ("file_id", "stored")


@pytest.mark.parametrize(
    ("more", "member"),
    [
        ({"models": ["a", "b"]}, "models"),
        ({"provider": {"order": ["a"]}}, "provider"),
        ({"route": "fallback"}, "route"),
        ({"models": None, "provider": {}, "route": ""}, ""),
        ({}, ""),
    ],
)
def test_a_field_that_chooses_a_route_is_recognised(more: dict[str, Any], member: str) -> None:
    body = msgspec.json.encode(USUAL[CHAT] | more)
    assert find_route(surface_dialect(CHAT).read_request(body, {}, PATHS[CHAT]).members.values) == member
