"""What the tests of translations share: a client's request through the ports of two dialects."""

import json
from typing import Any

from penstock.core.dialects.dialect import Destination
from penstock.core.dialects.registry import surface_dialect, upstream_dialect

CHAT = "openai_chat"
MESSAGES = "anthropic_messages"
RESPONSES = "openai_responses"
ISSUER = "0a1b2c3d"
Json = dict[str, Any]
Lost = list[tuple[str, str]]
# The fields that a request must have.
_LEAST: dict[str, Json] = {
    CHAT: {"messages": []},
    MESSAGES: {"messages": [], "max_tokens": 100},
    RESPONSES: {"input": []},
}


def asked(client: str, provider: str, fields: Json, **settings: object) -> tuple[Json, Lost]:
    """The request that a provider of one dialect gets from a client of another: the body, and the losses."""
    surface, upstream = surface_dialect(client), upstream_dialect(provider)
    least = {"model": "m"} | _LEAST[client]
    request = surface.read_request(json.dumps(least | fields).encode(), {}, surface.path)
    destination = Destination(model="target", settings=settings, issuer=ISSUER)
    outgoing = upstream.write_request(request, destination)
    return json.loads(outgoing.body), [(loss.code, loss.detail) for loss in outgoing.losses]


def chat_of(fields: Json, **settings: object) -> tuple[Json, Lost]:
    """What a chat provider gets of a Messages request."""
    return asked(MESSAGES, CHAT, fields, **settings)


def messages_of(fields: Json, **settings: object) -> tuple[Json, Lost]:
    """What an Anthropic provider gets of a chat request."""
    return asked(CHAT, MESSAGES, fields, **settings)
