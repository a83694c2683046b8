"""Sharing: which calls of a route may have one answer, and which requests are identical.

Two requests are identical if they have the same *identity*: scope, API, model, the headers that reach the provider, and
the body, but for the members that only name the client (`IGNORED`). The whole identity is compared, not only its
digest. A blank more makes another request: nothing clever can go wrong. The scope is never wider than the operator says
it is: a key that has no team is alone in the scope `team`.
"""

import hashlib
from collections.abc import Mapping, Sequence
from typing import Literal, TypeAlias

import msgspec
from msgspec import Struct

from penstock.core.hub.request import ClientRequest

Scope: TypeAlias = Literal["key", "team", "route"]
Pace: TypeAlias = Literal["max", "original"]
IGNORED = ("metadata", "user")
"""The members of a body that make no other answer."""
# Members with which a model may call tools.
_TOOLS = ("tools", "functions")


class Sharing(Struct, frozen=True, kw_only=True):
    """Which answers the calls of a route share."""

    coalesce: Scope | None = None
    """Whose identical requests share one call while it is in progress; None if none do."""
    cache: Scope | None = None
    """Whose identical requests get the answer of a call that has ended; None if none do."""
    cache_s: float = 3600.0
    """The seconds for which an answer is kept."""
    cache_tools: bool = False
    """Whether answers to requests with tools are kept, too."""
    pace: Pace = "max"
    """How fast a kept answer is streamed again."""


class Identity(Struct, frozen=True):
    """What identical requests have in common."""

    text: bytes
    digest: bytes


class CacheControl(Struct, frozen=True):
    """What a request says of caches, in HTTP's words (RFC 9111, section 5.2.1)."""

    no_store: bool = False
    """Neither take an answer from another call, nor keep this one."""
    no_cache: bool = False
    """Make a new call, whose answer may be kept."""
    max_age_s: float | None = None
    """Take no answer that is older."""


_SILENT = CacheControl()


def read_cache_control(value: str) -> CacheControl:
    """What a `Cache-Control` header says. What is not understood is ignored, as HTTP says."""
    if not value:
        return _SILENT
    words = [word.strip().lower() for word in value.split(",")]
    ages = [word.removeprefix("max-age=").strip('"') for word in words if word.startswith("max-age=")]
    age = int(ages[0]) if ages and ages[0].isascii() and ages[0].isdigit() and len(ages[0]) <= 10 else None
    return CacheControl("no-store" in words, "no-cache" in words or age == 0, age)


def identity_of(
    scope: Sequence[str], surface: str, route: str, request: ClientRequest, headers: Mapping[str, str]
) -> Identity:
    """The identity of a request. `headers` are those besides the API's own that an answer may depend on."""
    lines = [*sorted(request.headers.items()), *sorted(headers.items())]
    about = [scope, surface, route, request.model, request.stream, lines]
    body = request.members.edited(dict.fromkeys(name for name in IGNORED if name in request.members.values))
    text = b"%b\n%b" % (msgspec.json.encode(about), body)
    return Identity(text, hashlib.sha256(text).digest())


def has_tools(request: ClientRequest) -> bool:
    """Whether the answer may call tools."""
    return any(request.fields.get(name) for name in _TOOLS)
