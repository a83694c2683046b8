"""What the tests of translations share: a client's request, and a provider's answer, from one dialect to another."""

import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from penstock import Accumulator, Completion, StreamReader, StreamWriter
from penstock.core.dialects.dialect import AnswerFacts, Destination
from penstock.core.dialects.registry import surface_dialect, upstream_dialect
from penstock.core.hub.content import MediaPart

CHAT = "openai_chat"
MESSAGES = "anthropic_messages"
RESPONSES = "openai_responses"
GEMINI = "gemini"
OLLAMA = "ollama"
COHERE = "cohere"
BEDROCK = "bedrock_converse"
ISSUER = "0a1b2c3d"
Json = dict[str, Any]
Lost = list[tuple[str, str]]
# The fields that a request must have.
_LEAST: dict[str, Json] = {
    CHAT: {"messages": [{"role": "user", "content": "Hi"}]},
    MESSAGES: {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 100},
    RESPONSES: {"input": "Hi"},
    GEMINI: {"contents": "Hi"},
    COHERE: {"messages": [{"role": "user", "content": "Hi"}]},
    BEDROCK: {"messages": [{"role": "user", "content": [{"text": "Hi"}]}]},
}
# Where a request is sent, if its model is in the path.
_PATHS = {GEMINI: "/v1beta/models/m:generateContent", BEDROCK: "/model/m/converse"}


def asked(client: str, provider: str, fields: Json, **settings: object) -> tuple[Json, Lost]:
    """The request that a provider of one dialect gets from a client of another: the body, and the losses."""
    return sent(client, provider, fields, Destination(model="target", settings=settings, issuer=ISSUER))


def sent(
    client: str,
    provider: str,
    fields: Json,
    destination: Destination,
    *,
    fetched: Mapping[str, MediaPart] = MappingProxyType({}),
) -> tuple[Json, Lost]:
    """As `asked`, for any destination. `fetched`: the media that the gateway has fetched, by URL."""
    surface, upstream = surface_dialect(client), upstream_dialect(provider)
    body = json.dumps({"model": "m"} | _LEAST[client] | fields).encode()
    request = surface.read_request(body, {}, _PATHS.get(client, surface.path))
    request.fetched = fetched
    outgoing = upstream.write_request(request, destination)
    return json.loads(outgoing.body), [(loss.code, loss.detail) for loss in outgoing.losses]


def chat_of(fields: Json, **settings: object) -> tuple[Json, Lost]:
    """What a chat provider gets of a Messages request."""
    return asked(MESSAGES, CHAT, fields, **settings)


def messages_of(fields: Json, **settings: object) -> tuple[Json, Lost]:
    """What an Anthropic provider gets of a chat request."""
    return asked(CHAT, MESSAGES, fields, **settings)


def facts(provider: str, client: str) -> AnswerFacts:
    """What a writer for this client knows of an answer of this provider."""
    return AnswerFacts(
        call_id="req_1",
        model="m",
        created=1,
        include_usage=True,
        input_estimate=5,
        same_dialect=provider == client,
        issuer=ISSUER,
    )


def folded(dialect: str, wire: bytes) -> Completion:
    """The whole answer of a stream, or of a body."""
    reader, answer = StreamReader(dialect), Accumulator(dialect)
    answer.extend([*reader.feed(wire), *reader.close()])
    return answer.completion


def translated(provider: str, client: str, wire: bytes, *, pieces: int = 0) -> tuple[bytes, Lost]:
    """What a client gets of a stream that arrives in pieces of so many bytes, and the losses."""
    reader, writer = StreamReader(provider), StreamWriter.for_call(client, facts(provider, client))
    size = pieces or len(wire)
    reads = [wire[start : start + size] for start in range(0, len(wire), size)]
    out = b"".join(writer.write(reader.feed(read)) for read in reads) + writer.write(reader.close())
    return out, [(loss.code, loss.detail) for loss in writer.losses]


def translated_body(provider: str, client: str, wire: bytes) -> tuple[bytes, Lost]:
    """What a client that does not stream gets of a stream or a body, and the losses."""
    reader, writer = StreamReader(provider, whole=True), StreamWriter.for_call(client, facts(provider, client))
    answer = Accumulator(provider)
    answer.extend(writer.passed_on([*reader.feed(wire), *reader.close()]))
    return writer.write_body(answer.completion), [(loss.code, loss.detail) for loss in writer.losses]
