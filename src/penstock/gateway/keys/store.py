"""KeyStore: the stored keys, and what they and their teams have spent. The book of `stores/` is one."""

from collections.abc import Callable, Iterable, Sequence
from collections.abc import Set as AbstractSet
from typing import Protocol

from msgspec import Struct

from penstock.gateway.keys.keys import Key, KeyName
from penstock.gateway.keys.quota import Spender


class Spent(Struct, frozen=True, kw_only=True):
    """The spending of one key in one period: the sum, and the ids of calls that were booked recently."""

    total: int
    recent: frozenset[str]


class KeyStore(Protocol):
    """The keys in the ledger's store, as changes and reports use them."""

    def key_names(self) -> list[KeyName]:
        """The names, teams and times of all keys, without their limits: ten times as fast as all of them."""

    def change_keys(self, change: Callable[[list[Key], AbstractSet[str]], Iterable[Key]]) -> list[Key]:
        """Store what `change` returns for the list of all keys and the paths of all teams that are not deleted, in one
        transaction, and return it. It may be called twice."""

    def spent_by(self, asked: Sequence[tuple[Spender, int]], *, recent_since_ms: int | None = None) -> Sequence[Spent]:
        """The spending of keys, of teams with all below them, or of their end users, by calls admitted since a time,
        the start of a day, including archived calls; and the ids of calls that were settled since `recent_since_ms`;
        in one snapshot."""
