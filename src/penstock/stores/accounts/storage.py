"""Storage: where accounts lie that several processes share. `sqlite_accounts.py` and `redis_accounts.py` are two.

It knows nothing of accounts: it keeps bytes, and changes them only for those who have seen the latest. Every method
blocks, but not for long: what does not answer in time raises `StorageError`, after which nobody knows what happened.
"""

from typing import Protocol, TypeAlias

# What lies there: a name of this very version, which never comes again, and the bytes; None if there is nothing.
Found: TypeAlias = tuple[bytes, bytes] | None


class StorageError(Exception):
    """The storage cannot do it now. The message has no secret."""


class Storage(Protocol):
    """Bytes by the ids of keys."""

    @property
    def name(self) -> str:
        """What people call it, in a word."""

    def load(self, key_id: str) -> Found:
        """What lies there now."""

    def swap(self, key_id: str, expected: bytes | None, version: bytes, data: bytes) -> tuple[bool, Found]:
        """Put this in place of the version that is expected, None for nothing; if another lies there, say which."""

    def probe(self) -> None:
        """Raise `StorageError` unless it can be used again. Called from another thread than the others."""

    def close(self) -> None:
        """Let go of it."""
