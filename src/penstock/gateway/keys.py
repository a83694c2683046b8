"""Key: what a client shows to be let in, and what it may then do. KeyRing: all keys, found without a query.

Only a key's digest is kept. A key is `sk-ps-`, 32 random bytes in base64url, and six digits of their checksum: scanners
can tell a leaked key from any other text, and a mistyped one is told from an unknown one.
"""

import base64
import hashlib
import hmac
import secrets
import zlib
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Literal, TypeAlias

from msgspec import Struct

Period: TypeAlias = Literal["day", "week", "month", "total"]
PREFIX = "sk-ps-"
_NO_DIGEST = bytes(32)


class Key(Struct, frozen=True, kw_only=True):
    """A client's key, as it is stored. What is None has no limit. Times are in milliseconds since 1970."""

    id: str
    """Short, and no secret: `key_` and twelve characters."""
    name: str
    digest: bytes
    """SHA-256 of the key."""
    hint: str
    """Its last four characters, by which people tell keys apart."""
    created_ms: int
    budget: int | None = None
    """Nanodollars that it may spend in a period."""
    period: Period = "month"
    """By the calendar, in UTC; a week begins on Monday."""
    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None
    concurrent: int | None = None
    """Calls under way at a time."""
    models: tuple[str, ...] = ()
    """Patterns of the names that it may ask for, such as `groq/*`; empty for all."""
    tags: Mapping[str, str] = {}
    expires_ms: int | None = None
    revoked_ms: int | None = None
    replaced_by: str = ""
    """The id of the key that a rotation made of it."""

    @property
    def stored(self) -> bool:
        """Whether the book has it, and not the configuration."""
        return self.created_ms > 0

    def may_ask_for(self, model: str) -> bool:
        """Whether the key is for that model."""
        return not self.models or any(fnmatchcase(model, pattern) for pattern in self.models)

    def unusable(self, now_ms: float) -> str:
        """Why the key opens nothing now, in words for whoever shows it; empty if it does."""
        if self.revoked_ms is not None and self.revoked_ms <= now_ms:
            return "this key was revoked; ask for another one"
        if self.expires_ms is not None and self.expires_ms <= now_ms:
            return "this key has expired; ask for another one"
        return ""


class KeyRing:
    """Keys by their digests."""

    def __init__(self, keys: Iterable[Key]) -> None:
        self._keys = {key.digest: key for key in keys}

    def __bool__(self) -> bool:
        return bool(self._keys)

    def find(self, given: str) -> Key | None:
        """The key that a client shows. How long it takes tells nothing: what is looked up is a digest."""
        digest = digest_of(given)
        key = self._keys.get(digest)
        same = hmac.compare_digest(digest, key.digest if key is not None else _NO_DIGEST)
        return key if same else None


def new_secret() -> str:
    """A key, as its owner keeps it."""
    body = base64.urlsafe_b64encode(secrets.token_bytes(32)).decode().rstrip("=")
    return f"{PREFIX}{body}{_checksum(body)}"


def is_mistyped(given: str) -> bool:
    """Whether a text begins like a key and cannot be one."""
    body, checksum = given[len(PREFIX) : -6], given[-6:]
    return given.startswith(PREFIX) and _checksum(body) != checksum


def new_id() -> str:
    """A name for a key, which is no secret."""
    return f"key_{secrets.token_hex(6)}"


def digest_of(secret: str) -> bytes:
    """What is kept of a key."""
    return hashlib.sha256(secret.encode("utf-8", "replace")).digest()


def configured(number: int, secret: str) -> Key:
    """A key of the configuration file: it has no limits but those of everybody."""
    name = f"configured-{number}"
    return Key(id=name, name=name, digest=digest_of(secret), hint=secret[-4:], created_ms=0)


def _checksum(body: str) -> str:
    return f"{zlib.crc32(body.encode()) % 1_000_000:06d}"
