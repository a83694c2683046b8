"""Key: a client's API key with its limits. KeyRing: all keys in memory, by the digest of their secrets.

A client authenticates with the key's secret, of which only a digest is stored. The secret is `sk-ps-`, 32 random bytes
in base64url, and a checksum of six digits. So scanners recognise a leaked secret, and a mistyped one is distinguished
from an unknown one. A rotation gives the key a new secret; the previous one may remain valid for some time.
"""

import base64
import hashlib
import hmac
import math
import secrets
import zlib
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Literal, NamedTuple, TypeAlias

from msgspec import Struct

from penstock.providers.secret import Secret

Period: TypeAlias = Literal["day", "week", "month", "total"]
# The name of the key with which `penstock chat` calls the gateway in its own process, and the source of its secret.
CHAT = "penstock-chat"
PREFIX = "sk-ps-"
_NO_DIGEST = bytes(32)


class EndUserLimits(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The limits of each end user of a key or a team. A limit of None is no limit."""

    budgets: Mapping[Period, int] = {}
    """In nanodollars, by period."""
    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None
    concurrent: int | None = None

    def __bool__(self) -> bool:
        return self != NO_LIMITS


NO_LIMITS = EndUserLimits()


class Spender(Struct, frozen=True):
    """Whose calls a budget is for: those of a key, or of a team and all below it; of one end user, if it is given."""

    key: str = ""
    team: str = ""
    user: str = ""


class KeyName(Struct, frozen=True, kw_only=True):
    """What identifies a key, and whether it can be used. Lists of all keys need no more."""

    id: str
    """Public: `key_` and twelve characters."""
    name: str
    team: str = ""
    """The path of its team, such as `acme/search`; empty if it has none."""
    owner: str = ""
    """The user who created it for itself; empty if an administrator created it."""
    expires_ms: int | None = None
    revoked_ms: int | None = None

    def unusable(self, now_ms: float) -> str:
        """Why the key is invalid for good, as a message for the client; empty if it is not."""
        if self.revoked_ms is not None and self.revoked_ms <= now_ms:
            return "this key was revoked; ask for another one"
        if self.expires_ms is not None and self.expires_ms <= now_ms:
            return "this key has expired; ask for another one"
        return ""


class Key(KeyName, frozen=True, kw_only=True):
    """A client's key, as it is stored. A limit of None is no limit. Times are in milliseconds since 1970."""

    digest: bytes
    """SHA-256 of its secret."""
    hint: str
    """The secret's last four characters, by which users recognise it."""
    created_ms: int
    rotated_ms: int | None = None
    """When it was last rotated."""
    previous: bytes = b""
    """SHA-256 of the previous secret; empty if there is none."""
    previous_until_ms: int | None = None
    """When the previous secret becomes invalid."""
    budget: int | None = None
    """In nanodollars per period."""
    period: Period = "month"
    """Of the calendar, in UTC; a week starts on Monday."""
    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None
    concurrent: int | None = None
    """The number of concurrent calls."""
    models: tuple[str, ...] = ()
    """Patterns of the models that it allows, such as `groq/*`; empty for all."""
    tags: Mapping[str, str] = {}
    strict: bool = False
    """Whether losses in translation that change the meaning fail its calls."""
    subject: str = ""
    """Not stored: the end user of its calls, as a JWT names it; empty to take the one that the client names."""
    blocked_ms: int | None = None
    """Since when it is blocked; None if it is not."""
    budgets: Mapping[Period, int] = {}
    """Further budgets in nanodollars, by period, besides `budget`."""
    end_users: EndUserLimits = NO_LIMITS
    """The limits of each of its end users."""

    # Not stored: `gateway/teams/chain.py` sets these from the key's teams.
    further: tuple["Key", ...] = ()
    """The accounts, besides its own, in which its calls are reserved: its further budgets, then those of its teams from
    the innermost to the organisation."""
    user_limits: tuple[tuple["Key", EndUserLimits], ...] = ()
    """The limits of its end users, each with the account of the key or team that sets them."""
    team_models: tuple[tuple[str, ...], ...] = ()
    """The patterns of each team that limits models."""
    team_refusal: str = ""
    """Why its team cannot be used, as a message for the client; empty if it can."""
    holder: str = "this key"
    """Whose limits these are, in messages for clients."""
    spender: Spender | None = None
    """Whose calls count; None for those of the key."""

    @property
    def restricted(self) -> bool:
        """Whether the key or a team of it allows some models only."""
        return bool(self.models or self.team_models)

    @property
    def budgeted(self) -> bool:
        """Whether any budget limits its calls."""
        if self.budget is not None or not (self.further or self.user_limits):
            return self.budget is not None
        return any(account.budget is not None for account in self.further) or any(
            limits.budgets for _, limits in self.user_limits
        )

    @property
    def stored(self) -> bool:
        """Whether the key is in the book, rather than in the configuration."""
        return self.created_ms > 0

    def allows(self, model: str) -> bool:
        """Whether the key and its teams allow that model."""
        return not self.forbids(model)

    def forbids(self, model: str) -> str:
        """Who does not allow that model, as the subject of a sentence: the key, or a team of it; empty if all do."""
        if self.models and not any(fnmatchcase(model, pattern) for pattern in self.models):
            return "this key"
        allowed = (any(fnmatchcase(model, pattern) for pattern in patterns) for patterns in self.team_models)
        return "" if all(allowed) else "the team of this key"

    def refusal(self, now_ms: float) -> str:
        """Why the key cannot be used now, as a message for the client; empty if it can."""
        blocked = "this key is blocked; ask its administrator" if self.blocked_ms else ""
        return self.unusable(now_ms) or blocked or self.team_refusal


class _LiveSecret(NamedTuple):
    digest: bytes
    key: Key
    until_ms: float


class KeyRing:
    """Keys by the digests of their secrets, current and previous ones."""

    def __init__(self, keys: Iterable[Key]) -> None:
        keys = list(keys)
        before = [_LiveSecret(key.previous, key, key.previous_until_ms or 0) for key in keys if key.previous]
        present = [_LiveSecret(key.digest, key, math.inf) for key in keys]
        self._secrets = {secret.digest: secret for secret in (*before, *present)}

    def with_keys(self, keys: Iterable[Key]) -> "KeyRing":
        """A ring with further keys. Those of this ring win."""
        joined = KeyRing(keys)
        joined._secrets |= self._secrets
        return joined

    def __bool__(self) -> bool:
        return bool(self._secrets)

    def find(self, digest: bytes, now_ms: float) -> Key | None:
        """The key with a secret of this digest. Takes the same time for every wrong secret (timing attacks)."""
        secret = self._secrets.get(digest)
        same = hmac.compare_digest(digest, secret.digest if secret is not None else _NO_DIGEST)
        return secret.key if same and secret is not None and now_ms < secret.until_ms else None

    def rotated(self, given: str, now_ms: float) -> Key | None:
        """The key of which this is the previous secret, which is no longer valid."""
        secret = self._secrets.get(digest_of(given))
        return secret.key if secret is not None and secret.until_ms <= now_ms else None


def new_secret(prefix: str = PREFIX) -> str:
    """A new random secret."""
    body = base64.urlsafe_b64encode(secrets.token_bytes(32)).decode().rstrip("=")
    return f"{prefix}{body}{_checksum(body)}"


def is_mistyped(given: str, prefix: str = PREFIX) -> bool:
    """Whether a text has the prefix of a secret and a wrong checksum."""
    body, checksum = given[len(prefix) : -6], given[-6:]
    return given.startswith(prefix) and _checksum(body) != checksum


def new_id() -> str:
    """A new public id for a key."""
    return f"key_{secrets.token_hex(6)}"


def digest_of(secret: str) -> bytes:
    """The SHA-256 digest of a secret, which is stored instead of it."""
    return hashlib.sha256(secret.encode("utf-8", "replace")).digest()


def configured(given: Iterable[Secret]) -> list[Key]:
    """The keys of the configuration. They have no limits of their own."""
    return [_configured(secret, number) for number, secret in enumerate(given, 1)]


def _configured(secret: Secret, number: int) -> Key:
    name = CHAT if secret.source == CHAT else f"configured-{number}"
    shown = secret.reveal()
    return Key(id=name, name=name, digest=digest_of(shown), hint=shown[-4:], created_ms=0)


def _checksum(body: str) -> str:
    return f"{zlib.crc32(body.encode()) % 1_000_000:06d}"
