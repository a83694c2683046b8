"""Key: what a client shows to be let in, and what it may then do. KeyRing: all keys, found without a query.

Only a key's digest is kept. A key is `sk-ps-`, 32 random bytes in base64url, and six digits of their checksum, so that
scanners can tell a leaked key from any other text and a mistyped one is refused before anything is looked up.
"""

from collections.abc import Mapping
from typing import Literal, TypeAlias

from msgspec import Struct

Period: TypeAlias = Literal["day", "week", "month", "total"]


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
