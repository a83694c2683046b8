"""Key: what a client shows to be let in, and what it may then do. KeyRing: all keys, found without a query.

What a client shows is the key's secret, of which only a digest is kept. It is `sk-ps-`, 32 random bytes in base64url,
and six digits of their checksum: scanners can tell a leaked one from any other text, and a mistyped one is told from an
unknown one. A rotation gives the key a new secret; the one before may open it for a while longer.
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
# The key by which `penstock chat` calls the gateway that it runs inside; and the source of its secret.
CHAT = "penstock-chat"
PREFIX = "sk-ps-"
_NO_DIGEST = bytes(32)


class Key(Struct, frozen=True, kw_only=True):
    """A client's key, as it is stored. What is None has no limit. Times are in milliseconds since 1970."""

    id: str
    """Short, and no secret: `key_` and twelve characters."""
    name: str
    digest: bytes
    """SHA-256 of its secret."""
    hint: str
    """The secret's last four characters, by which people tell keys apart."""
    created_ms: int
    rotated_ms: int | None = None
    """When it got this secret, if it had another one before."""
    previous: bytes = b""
    """SHA-256 of the secret before; empty if there was none."""
    previous_until_ms: int | None = None
    """When that one ends, or has ended."""
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
    strict: bool = False
    """Whether losses in translation that change the meaning fail its calls."""
    expires_ms: int | None = None
    revoked_ms: int | None = None

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


class _LiveSecret(NamedTuple):
    digest: bytes
    key: Key
    until_ms: float


class KeyRing:
    """Keys by the digests of their secrets: of the present ones, and of those before."""

    def __init__(self, keys: Iterable[Key]) -> None:
        keys = list(keys)
        before = [_LiveSecret(key.previous, key, key.previous_until_ms or 0) for key in keys if key.previous]
        present = [_LiveSecret(key.digest, key, math.inf) for key in keys]
        self._secrets = {secret.digest: secret for secret in (*before, *present)}

    def __bool__(self) -> bool:
        return bool(self._secrets)

    def find(self, given: str, now_ms: float) -> Key | None:
        """The key whose secret a client shows."""
        return self.find_by(digest_of(given), now_ms)

    def find_by(self, digest: bytes, now_ms: float) -> Key | None:
        """The same, by the digest of what a client shows. How long it takes tells nothing of what was shown."""
        secret = self._secrets.get(digest)
        same = hmac.compare_digest(digest, secret.digest if secret is not None else _NO_DIGEST)
        return secret.key if same and secret is not None and now_ms < secret.until_ms else None

    def was_rotated(self, given: str, now_ms: float) -> bool:
        """Whether this was the secret of a key, and has ended since that got another one."""
        secret = self._secrets.get(digest_of(given))
        return secret is not None and secret.until_ms <= now_ms


def new_secret() -> str:
    """The secret of a key, as its owner keeps it."""
    body = base64.urlsafe_b64encode(secrets.token_bytes(32)).decode().rstrip("=")
    return f"{PREFIX}{body}{_checksum(body)}"


def is_mistyped(given: str) -> bool:
    """Whether a text begins like a secret and cannot be one."""
    body, checksum = given[len(PREFIX) : -6], given[-6:]
    return given.startswith(PREFIX) and _checksum(body) != checksum


def new_id() -> str:
    """A name for a key, which is no secret."""
    return f"key_{secrets.token_hex(6)}"


def digest_of(secret: str) -> bytes:
    """What is kept of a secret."""
    return hashlib.sha256(secret.encode("utf-8", "replace")).digest()


def configured(given: Iterable[Secret]) -> list[Key]:
    """The keys of the configuration: they have no limits but those of everybody."""
    return [_configured(secret, number) for number, secret in enumerate(given, 1)]


def _configured(secret: Secret, number: int) -> Key:
    name = CHAT if secret.source == CHAT else f"configured-{number}"
    shown = secret.reveal()
    return Key(id=name, name=name, digest=digest_of(shown), hint=shown[-4:], created_ms=0)


def _checksum(body: str) -> str:
    return f"{zlib.crc32(body.encode()) % 1_000_000:06d}"
