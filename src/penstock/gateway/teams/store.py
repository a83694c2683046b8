"""TeamStore: the stored teams and their keys. The book of `stores/` is one."""

from collections.abc import Callable, Iterable
from typing import Protocol

from penstock.gateway.keys.keys import Key
from penstock.gateway.keys.store import KeyStore
from penstock.gateway.teams.team import Team


class TeamStore(KeyStore, Protocol):
    """The store of keys and teams."""

    def change_teams(self, change: Callable[[list[Team], list[Key]], Iterable[Team]]) -> list[Team]:
        """Store what `change` returns for the lists of all teams and keys, in one transaction, and return it. It may be
        called twice.
        """
