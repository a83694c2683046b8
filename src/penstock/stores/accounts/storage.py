"""Storage: the interface of a store for shared accounts. `accounts/sqlite.py` and `accounts/redis.py` implement it.

A storage knows nothing of accounts: it stores bytes, and replaces them by compare-and-set only. Every method blocks,
but not for long: without an answer in time it raises `StorageError`, and it is unknown whether the change was made.
"""

from typing import Protocol, TypeAlias

# A version, which is unique and never used again, and the bytes; None if nothing is stored.
StoredValue: TypeAlias = tuple[bytes, bytes] | None


class StorageError(Exception):
    """The storage has failed. The message has no secrets."""


class Storage(Protocol):
    """Stores bytes by the id of an account."""

    @property
    def name(self) -> str:
        """A short name for people."""

    def load(self, account_id: str) -> StoredValue:
        """The current value."""

    def swap(self, account_id: str, expected: bytes | None, version: bytes, data: bytes) -> tuple[bool, StoredValue]:
        """Compare-and-set: replace the `expected` version (None: no value); if another is stored, return that one."""

    def probe(self) -> None:
        """Raise `StorageError` unless the storage can be used again. Called from another thread than the others."""

    def close(self) -> None:
        """Close it."""
