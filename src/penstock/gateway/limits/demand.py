"""TokenDemand: what a request may consume: the most tokens, the service tier, and the client's tags."""

from collections.abc import Mapping
from itertools import islice
from typing import Any

import msgspec
from msgspec import Struct

from penstock.core.dialects.dialect import RequestLimits
from penstock.core.request import MAX_TAGS, ClientRequest
from penstock.gateway.calls.embeddings_request import EmbeddingsRequest

# Of what is to be embedded, which is not read.
_BYTES_PER_TOKEN = 4
# More than any model says in an answer, and few enough that what they cost fits into the accounts.
_MOST_OUTPUT = 1_000_000_000


class TokenDemand(Struct, frozen=True):
    """Tokens of the input, estimated; tokens of the output at most, None where the client does not say; tags; the
    service tier, in lower case."""

    input: int
    output: int | None = None
    tags: Mapping[str, str] = {}
    user: str = ""
    tier: str = ""


def of_request(request: ClientRequest, limits: RequestLimits) -> TokenDemand:
    """What a request asks for, by the limits of the request that is sent."""
    return TokenDemand(
        request.estimate(),
        min(limits.output, _MOST_OUTPUT) if limits.output is not None else None,
        request.metadata,
        request.user,
        limits.tier,
    )


def of_embeddings(request: EmbeddingsRequest) -> TokenDemand:
    """What a request for embeddings asks for."""
    size = len(request.members.values["input"])
    return TokenDemand(size // _BYTES_PER_TOKEN + 1, 0, _tags(_raw(request, "metadata")), _text(_raw(request, "user")))


def _raw(request: EmbeddingsRequest, name: str) -> Any:
    values = request.members.values
    return msgspec.json.decode(values[name]) if name in values else None


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _tags(value: object) -> Mapping[str, str]:
    if not isinstance(value, dict) or not value:
        return {}
    return dict(islice(((name, item) for name, item in value.items() if isinstance(item, str)), MAX_TAGS))
