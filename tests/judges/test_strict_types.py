"""Every object that Penstock writes is valid in the types of the official SDKs, checked strictly: every required member
is there, and every value has its type, without conversions. Embeddings are not judged: Penstock forwards them.

The first tests judge the bytes of the writers, for every pair of APIs and every answer of the pairs matrix. The last
ones are real clients with strict response validation, and ask a gateway over sockets.
"""

import json
from collections.abc import Iterator
from typing import Any

import anthropic
import openai
import pytest
from anthropic.types import Message, RawMessageStreamEvent
from google import genai
from google.genai import types as google
from msgspec import structs
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter, ValidationError

from penstock import StreamReader, StreamWriter
from penstock.core.dialects.dialect import AnswerFacts
from penstock.core.dialects.registry import surface_dialect
from tests.faults.client import CLIENT_KEY
from tests.judges.answers import streamed
from tests.judges.messages.bench import Bench
from tests.translation.scenarios import PROVIDERS, SCENARIOS
from tests.translation.support import CHAT, GEMINI, MESSAGES, RESPONSES, Json, facts, folded

# The types of the events of a stream, and of a body, of the packages in this environment.
TYPES: dict[str, tuple[Any, Any]] = {
    CHAT: (ChatCompletionChunk, ChatCompletion),
    MESSAGES: (RawMessageStreamEvent, Message),
    RESPONSES: (ResponseStreamEvent, Response),
    GEMINI: (google.GenerateContentResponse, google.GenerateContentResponse),
}
# Answers with something that the SDK of the provider's own API has no type for: its clients get it as it is.
UNTYPED = frozenset(("a source beside its text, and one of another kind",))
# The events that the SDKs do not parse: a heartbeat, and the mark of the end.
UNREAD = ('{"type":"ping"}', "[DONE]")
SCHEMA: Json = {"type": "object", "properties": {}}
FUNCTION: Json = {"type": "function", "name": "f", "parameters": SCHEMA}
# Members of a request that the response repeats, as OpenAI's API accepts them.
ECHOES: dict[str, Json] = {
    "a tool without options": {"tools": [{"type": "function", "name": "f"}]},
    "tools": {
        "tools": [
            FUNCTION | {"strict": True, "description": "d"},
            {"type": "custom", "name": "c", "format": {"type": "grammar", "syntax": "lark", "definition": "x"}},
            {"type": "namespace", "name": "n", "description": "d", "tools": [FUNCTION]},
            {"type": "web_search", "external_web_access": False},
            {"type": "mcp", "server_label": "x", "server_url": "https://mcp.example"},
        ],
        "tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "f"}]},
        "parallel_tool_calls": False,
        "max_tool_calls": 3,
    },
    "a schema": {"text": {"format": {"type": "json_schema", "name": "x", "schema": SCHEMA}, "verbosity": "low"}},
    "reasoning": {"reasoning": {"effort": "low", "summary": "auto"}, "tool_choice": {"type": "function", "name": "f"}},
    "the rest": {
        "instructions": "Be brief.",
        "metadata": {"a": "b"},
        "temperature": 1,
        "top_p": 0.5,
        "top_logprobs": 3,
        "truncation": "auto",
        "user": "u",
        "max_output_tokens": 99,
    },
}


def complaints(adapter: TypeAdapter[Any], data: str | bytes) -> list[str]:
    """What is wrong with an object. Of a union, only the errors of the type that the object names are given."""
    try:
        adapter.validate_json(data, strict=True)
    except ValidationError as error:
        errors = error.errors()
        others = [each["loc"][:-1] for each in errors if each["type"] == "literal_error" and each["loc"][-1] == "type"]
        named = [each for each in errors if not any(each["loc"][: len(other)] == other for other in others)]
        return [f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in named or errors]
    return []


def events_of(client: str, facts: AnswerFacts, provider: str, wire: bytes) -> Iterator[str]:
    """The data of the events that a client reads of a stream, with a heartbeat before each, up to an error."""
    reader, writer = StreamReader(provider), StreamWriter.for_call(client, facts)
    out = b""
    for event in [*reader.feed(wire), *reader.close()]:
        out += writer.heartbeat() + writer.write([event])
    for line in out.decode().splitlines():
        data = line.removeprefix("data: ")
        if data != line and data not in UNREAD:
            if json.loads(data).get("error"):
                return
            yield data


@pytest.mark.parametrize("client", TYPES)
def test_every_answer_is_valid(client: str) -> None:
    event, body = map(TypeAdapter, TYPES[client])
    found: dict[str, str] = {}
    judged = 0

    def judge(adapter: TypeAdapter[Any], data: str | bytes, where: str) -> None:
        nonlocal judged
        judged += 1
        found.update((f"{where}: {what}", where) for what in complaints(adapter, data))

    for name, scenario in SCENARIOS.items():
        for provider, wire in scenario.wires.items():
            if provider == client and name in UNTYPED:
                continue
            known = facts(provider, client)
            for data in events_of(client, known, provider, wire):
                judge(event, data, f"{provider}, {name}, streamed")
            if scenario.is_whole:
                writer = StreamWriter.for_call(client, known)
                judge(body, writer.write_body(folded(provider, scenario.body(provider))), f"{provider}, {name}")
    assert list(found) == []
    assert judged > 300


@pytest.mark.parametrize("name", ECHOES)
def test_a_response_that_repeats_its_request_is_valid(name: str) -> None:
    fields = {"model": "m", "input": "Hi"} | ECHOES[name]
    request = surface_dialect(RESPONSES).read_request(json.dumps(fields).encode(), {}, "/v1/responses")
    known = structs.replace(facts(CHAT, RESPONSES), echo=request.echo)
    scenario, (event, body) = SCENARIOS["text"], map(TypeAdapter, TYPES[RESPONSES])
    for data in events_of(RESPONSES, known, CHAT, scenario.wires[CHAT]):
        assert complaints(event, data) == []
    writer = StreamWriter.for_call(RESPONSES, known)
    assert complaints(body, writer.write_body(folded(CHAT, scenario.body(CHAT)))) == []


# Real clients.

# The providers of the bench, by their dialects.
NAMES = dict(zip(PROVIDERS, ("main", "claude", "responses", "gem", "ollama", "command", "converse"), strict=True))
ASKED = ("text", "reasoning", "reasoning with a seal", "two parallel calls", "the limit on the output")


def models_of(bench: Bench) -> Iterator[str]:
    """A model for every provider and answer."""
    for name in ASKED:
        scenario = SCENARIOS[name]
        for provider in scenario.wires:
            yield bench.play(NAMES[provider], streamed(scenario.wires[provider]))


def address(bench: Bench) -> str:
    return f"http://127.0.0.1:{bench.gateway.port}"


def test_a_strict_client_of_openai_accepts_everything(messages_bench: Bench) -> None:
    bench, http_client = messages_bench, openai.DefaultHttpxClient(trust_env=False)
    with openai.OpenAI(
        api_key=CLIENT_KEY,
        base_url=f"{address(bench)}/v1",
        max_retries=0,
        http_client=http_client,
        _strict_response_validation=True,
    ) as client:
        for model in models_of(bench):
            chat: Any = {"model": model, "messages": [{"role": "user", "content": "Hi"}]}
            assert client.chat.completions.create(**chat).choices
            usage: Any = {"include_usage": True}
            assert list(client.chat.completions.create(**chat, stream=True, stream_options=usage))[-1].usage
            made = client.responses.create(model=model, input="Hi", store=True)
            assert list(client.responses.create(model=model, input="Hi", stream=True))
            assert client.responses.retrieve(made.id).usage == made.usage
            assert list(client.responses.input_items.list(made.id))
        assert client.responses.input_tokens.count(model=model, input="Hi").input_tokens
        failing = bench.play("claude", streamed(SCENARIOS["a fault in mid-stream"].wires[MESSAGES]))
        stream = client.responses.create(model=failing, input="Hi", stream=True, store=True)
        begins = next(iter(stream))
        assert begins.type == "response.created"
        with pytest.raises(openai.APIError, match="verload"):
            list(stream)
        assert client.responses.retrieve(begins.response.id).status == "failed"
        offered = list(client.models.list())
        assert client.models.retrieve(offered[0].id) == offered[0]


def test_a_strict_client_of_anthropic_accepts_everything(messages_bench: Bench) -> None:
    bench, http_client = messages_bench, anthropic.DefaultHttpxClient(trust_env=False)
    with anthropic.Anthropic(
        api_key=CLIENT_KEY,
        base_url=address(bench),
        max_retries=0,
        http_client=http_client,
        _strict_response_validation=True,
    ) as client:
        for model in models_of(bench):
            fields: Any = {"model": model, "messages": [{"role": "user", "content": "Hi"}]}
            assert client.messages.create(**fields, max_tokens=99).content
            assert list(client.messages.create(**fields, max_tokens=99, stream=True))
            assert client.beta.messages.create(**fields, max_tokens=99).content
            assert list(client.beta.messages.create(**fields, max_tokens=99, stream=True))
            assert client.messages.count_tokens(**fields).input_tokens
        offered = list(client.models.list())
        assert client.models.retrieve(offered[0].id) == offered[0]
        assert {model.lifecycle for model in offered} == {"active"}


def test_a_client_of_google_accepts_everything(messages_bench: Bench) -> None:
    bench = messages_bench
    options = google.HttpOptions(base_url=address(bench), client_args={"trust_env": False})
    client = genai.Client(api_key=CLIENT_KEY, vertexai=False, http_options=options)
    for model in models_of(bench):
        assert client.models.generate_content(model=model, contents="Hi").candidates
        assert list(client.models.generate_content_stream(model=model, contents="Hi"))[-1].usage_metadata
    assert client.models.count_tokens(model=model, contents="Hi").total_tokens
    offered = list(client.models.list())
    assert client.models.get(model=offered[0].name or "").name == offered[0].name
    client.close()
