"""TokenDemand: what a request may consume: the most tokens, the service tier, and the client's tags."""

from collections.abc import Mapping
from itertools import islice
from types import MappingProxyType
from typing import Any

import msgspec
from msgspec import Struct

from penstock.core.dialects.dialect import RequestLimits
from penstock.core.hub.input_estimate import text_tokens
from penstock.core.hub.request import MAX_TAGS, ClientRequest
from penstock.gateway.record.embeddings_request import EmbeddingsRequest

# More than the output of any model, and small enough that the cost fits into the accounts' integers.
_MAX_OUTPUT = 1_000_000_000


class TokenDemand(Struct, frozen=True):
    """The estimated input tokens, the maximum output tokens (None if the client sets none), the tags and user, the
    service tier in lower case, and which of the input tokens are audio."""

    input: int
    output: int | None = None
    tags: Mapping[str, str] = {}
    user: str = ""
    tier: str = ""
    audio: int = 0


def chat_demand(
    request: ClientRequest, limits: RequestLimits, overrides: Mapping[str, object] = MappingProxyType({})
) -> TokenDemand:
    """The demand of a chat request, with the limits and the overrides of the request that is sent to the provider."""
    estimate = request.estimate()
    return TokenDemand(
        estimate.tokens + (text_tokens(msgspec.json.encode(dict(overrides))) if overrides else 0),
        min(max(limits.output, 0), _MAX_OUTPUT) if limits.output is not None else None,
        request.metadata,
        request.user,
        limits.tier,
        estimate.audio,
    )


def embeddings_demand(request: EmbeddingsRequest) -> TokenDemand:
    """The demand of a request for embeddings."""
    tokens = text_tokens(request.members.body)
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
