"""Affinity: a conversation stays at the target, and at the key of its provider, that have its prompt cache.

The conversation is recognised by what the route says (`affinity_key`). Its place among the targets follows by
rendezvous hashing: each target gets a number from a hash of the conversation and the target, and the highest one is
first. So all workers and gateways agree without sharing anything, a target that cools down moves its own conversations
only, and they return to it. With weights, each target gets its share of the conversations.

The tenant is part of the key: equal prompts of two tenants need not meet in one cache, and nothing that a client sends
can direct it to the place of another tenant's conversation (CacheProbe).
"""

import math
from collections.abc import Callable, Iterable, Mapping
from hashlib import blake2b
from typing import TypeVar

from penstock.core.dialects.dialect import CACHE_KEY
from penstock.core.dialects.stable_prefix import prefix_digest
from penstock.core.hub.request import ClientRequest
from penstock.core.json.getters import text_of
from penstock.gateway.calls.plan import Plan
from penstock.gateway.config import Route
from penstock.gateway.keys.client_key import ClientKey

T = TypeVar("T")

_HEADER = "header:"


def tenant_of(key: ClientKey | None) -> str:
    """Who shares prompts with whom: the team of a key, or else the key alone; empty without a key."""
    return "" if key is None else f"team/{key.team}" if key.team else f"key/{key.id}"


def affinity_headers(routes: Iterable[Route]) -> frozenset[str]:
    """The headers by which routes recognise a conversation."""
    rules = (route.affinity for route in routes)
    return frozenset(rule.removeprefix(_HEADER) for rule in rules if rule.startswith(_HEADER))


def affinity_key(rule: str, request: ClientRequest | None, key: ClientKey | None, headers: Mapping[str, str]) -> bytes:
    """What a conversation is recognised by, in all of its requests; empty if nothing recognises it.

    The first of these that the request has: the header, or the end user, that the rule of the route names; the client's
    own name for its cache; the beginning of the conversation.
    """
    if request is None:
        return b""
    named = headers.get(rule.removeprefix(_HEADER), "") if rule.startswith(_HEADER) else ""
    if rule == "user":
        named = request.user
    named = named or text_of(request.fields.get(CACHE_KEY))
    found = named.encode(errors="surrogatepass") if named else prefix_digest(request, request.model)
    return blake2b(b"%b\0%b" % (tenant_of(key).encode(), found), digest_size=16).digest()


def by_affinity(items: Iterable[T], key: bytes, name: Callable[[T], str], weight: Callable[[T], float]) -> list[T]:
    """The items in the order in which a conversation prefers them: weighted rendezvous hashing."""

    def score(item: T) -> float:
        digest = blake2b(name(item).encode(errors="surrogatepass"), key=key, digest_size=7).digest()
        share = (int.from_bytes(digest) + 1) / (2**56 + 1)  # in (0, 1)
        return -weight(item) / math.log(share)

    return sorted(items, key=score, reverse=True)


def target_name(plan: Plan) -> str:
    """What identifies a target in every process and configuration."""
    return f"{plan.provider}/{plan.model}"


def key_weight(plan: Plan) -> float:
    """The weight of the key of a plan; 1 without weights."""
    key = plan.target.provider.key
    return (key.weight if key is not None else None) or 1.0
