"""Wish: what a request asks for, as far as it is to be accounted: tokens at most, a service tier, the client's tags."""

from collections.abc import Mapping
from itertools import islice
from typing import Any

import msgspec
from msgspec import Struct

from penstock.gateway.estimate import BESIDE_MESSAGES, estimate_input, estimate_messages
from penstock.gateway.request import ChatRequest, EmbeddingsRequest
from penstock.gateway.tags import MAX_TAGS

# Of what is to be embedded, which is not read.
_BYTES_PER_TOKEN = 4
# More than any model says in an answer, and few enough that what they cost fits into the accounts.
_MOST_OUTPUT = 1_000_000_000
# What of a chat is looked at, beside its messages.
_CAPS = ("max_completion_tokens", "max_tokens")
_LOOKED_AT = BESIDE_MESSAGES.union(_CAPS, ("n", "metadata", "user", "service_tier"))


class Wish(Struct, frozen=True):
    """Tokens of the input, estimated; tokens of the output at most, None where the client does not say; tags; the
    service tier, in lower case."""

    input: int
    output: int | None = None
    tags: Mapping[str, str] = {}
    user: str = ""
    tier: str = ""


def of_chat(request: ChatRequest, overrides: Mapping[str, object]) -> Wish:
    """What a chat asks for, with what its route overrides."""
    fields = request.fields
    if not overrides and _LOOKED_AT.isdisjoint(fields):
        return Wish(estimate_messages(fields["messages"]))
    caps = [_figure(overrides.get(name, fields.get(name))) for name in _CAPS]
    cap = max((cap for cap in caps if cap is not None), default=None)  # which of two counts is the provider's affair
    choices = _figure(overrides.get("n", fields.get("n"))) or 1
    return Wish(
        estimate_input(fields),
        min(cap * choices, _MOST_OUTPUT) if cap is not None else None,
        _tags(fields.get("metadata")),
        _text(fields.get("user")),
        _text(overrides.get("service_tier", fields.get("service_tier"))).lower(),
    )


def of_embeddings(request: EmbeddingsRequest) -> Wish:
    """What a request for embeddings asks for."""
    size = len(request.fields["input"])
    return Wish(size // _BYTES_PER_TOKEN + 1, 0, _tags(_raw(request, "metadata")), _text(_raw(request, "user")))


def _raw(request: EmbeddingsRequest, name: str) -> Any:
    return msgspec.json.decode(request.fields[name]) if name in request.fields else None


def _figure(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _tags(value: object) -> Mapping[str, str]:
    if not isinstance(value, dict) or not value:
        return {}
    return dict(islice(((name, item) for name, item in value.items() if isinstance(item, str)), MAX_TAGS))
