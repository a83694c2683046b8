"""TokenDemand: what a request may consume: the most tokens, the service tier, and the client's tags."""

from collections.abc import Mapping
from itertools import islice
from typing import Any

import msgspec
from msgspec import Struct

from penstock.core.dialects.dialect import RequestLimits
from penstock.core.request import MAX_TAGS, ClientRequest
from penstock.gateway.calls.embeddings_request import EmbeddingsRequest

# For the input of embeddings, which is not decoded.
_BYTES_PER_TOKEN = 4
# More than the output of any model, and small enough that the cost fits into the accounts' integers.
_MAX_OUTPUT = 1_000_000_000


class TokenDemand(Struct, frozen=True):
    """The estimated input tokens, the maximum output tokens (None if the client sets none), the tags and user, and the
    service tier in lower case."""

    input: int
    output: int | None = None
    tags: Mapping[str, str] = {}
    user: str = ""
    tier: str = ""


def chat_demand(request: ClientRequest, limits: RequestLimits) -> TokenDemand:
    """The demand of a chat request, with the limits of the request that is sent to the provider."""
    return TokenDemand(
        request.estimate(),
        min(max(limits.output, 0), _MAX_OUTPUT) if limits.output is not None else None,
        request.metadata,
        request.user,
        limits.tier,
    )


def embeddings_demand(request: EmbeddingsRequest) -> TokenDemand:
    """The demand of a request for embeddings."""
    given = bytes(request.members.values["input"])
    tokens = len(given) // _BYTES_PER_TOKEN + 1
    if given.lstrip(b"[ \t\r\n")[:1].isdigit():  # lists of tokens, each a number
        tokens = max(tokens, given.count(b",") + 1)
    return TokenDemand(tokens, 0, _tags(_raw(request, "metadata")), _text(_raw(request, "user")))


def _raw(request: EmbeddingsRequest, name: str) -> Any:
    values = request.members.values
    return msgspec.json.decode(values[name]) if name in values else None


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _tags(value: object) -> Mapping[str, str]:
    if not isinstance(value, dict) or not value:
        return {}
    return dict(islice(((name, item) for name, item in value.items() if isinstance(item, str)), MAX_TAGS))
