"""Key: a client's API key with its limits, as it is stored.

A client authenticates with the key's secret (`key_secret.py`). A rotation gives the key a new one; the previous one may
remain valid for some time.
"""

import secrets
from collections.abc import Mapping
from typing import Literal, TypeAlias

from msgspec import Struct

from penstock.gateway.keys.client_key import AnyKey
from penstock.gateway.keys.quota import Period, RateLimits

Raiser: TypeAlias = Literal["team_admin", "admin"]


class KeyLimits(RateLimits, frozen=True, kw_only=True, omit_defaults=True):
    """The limits of a key, a team, or each end user of one."""

    budgets: Mapping[Period, int] = {}
    """In nanodollars, by period. All apply at once."""


NO_LIMITS = KeyLimits()


class KeyPolicy(KeyLimits, frozen=True, kw_only=True, omit_defaults=True):
    """The most that a key may have which a member of a team creates for itself."""

    number: int | None = None
    """How many active keys a member may have."""
    days: int | None = None
    """How long a key may be valid."""
    models: tuple[str, ...] = ()
    raised_by: Raiser = "team_admin"
    """Who may create keys, and approve requests, beyond it."""


class Limited(KeyLimits, frozen=True, kw_only=True):
    """What keys and teams have in common. Times are in milliseconds since 1970."""

    created_ms: int
    blocked_ms: int | None = None
    """Since when it is blocked; None if it is not."""
    models: tuple[str, ...] = ()
    """Patterns of the models that may be used, such as `groq/*`; empty for all."""
    end_users: KeyLimits = NO_LIMITS
    """The limits of each end user."""
    managed_by: str = ""
    """Who declares it: the name that a file for `penstock apply` gives itself; empty if no file does."""


class KeyName(Struct, AnyKey, frozen=True, kw_only=True):
    """What identifies a key, and whether it can be used. Lists of all keys need no more."""

    id: str
    name: str
    team: str = ""
    owner: str = ""
    expires_ms: int | None = None
    revoked_ms: int | None = None


class KeyBudgets(Struct, frozen=True, kw_only=True):
    """The budgets of a key, as a list of all keys is sorted by them."""

    id: str
    budget: int | None = None
    period: Period = "month"
    budgets: Mapping[Period, int] = {}


class Key(Limited, AnyKey, frozen=True, kw_only=True):
    """A client's key. Its `budgets` are further ones, besides `budget`."""

    id: str
    """Public: `key_` and twelve characters."""
    name: str
    team: str = ""
    """The path of its team, such as `acme/search`; empty if it has none."""
    owner: str = ""
    """The user who created it for itself; empty if an administrator created it."""
    digest: bytes
    """SHA-256 of its secret."""
    hint: str
    """The secret's last four characters, by which users recognise it."""
    rotated_ms: int | None = None
    """When it was last rotated."""
    previous: bytes = b""
    """SHA-256 of the previous secret; empty if there is none."""
    previous_until_ms: int | None = None
    """When the previous secret becomes invalid."""
    expires_ms: int | None = None
    revoked_ms: int | None = None
    budget: int | None = None
    """In nanodollars per period."""
    period: Period = "month"
    tags: Mapping[str, str] = {}
    strict: bool = False
    """Whether losses in translation that change the meaning fail its calls."""
    client_credentials: tuple[str, ...] = ()
    """The providers that its calls may be made to with credentials of the client's own."""


def new_id() -> str:
    """A new public id for a key."""
    return f"key_{secrets.token_hex(6)}"
