"""Several account clients in one process: a storage in memory that can lose everything, and a ledger that cannot."""

from typing import Any

import msgspec

from penstock.gateway.keys.quota import Quota, Spender
from penstock.gateway.keys.store import Spent
from penstock.gateway.limits.account import Account
from penstock.stores.accounts.client import SharedAccountClient
from penstock.stores.accounts.storage import StorageError, StoredValue

NOW = 1_794_700_800_000  # 2026-11-15
KEY = "key_1"
MONTH = "2026-11"


def quota(**limits: Any) -> Quota:
    return Quota(id=KEY, spender=Spender(key=KEY), period="month", **limits)


class MemoryStore:
    """The storage that all clients share."""

    def __init__(self) -> None:
        self.lies: dict[str, tuple[bytes, bytes]] = {}

    def account(self, id: str = KEY) -> Account | None:
        found = self.lies.get(id)
        return msgspec.msgpack.decode(found[1], type=Account) if found else None


class StoreLink:
    """One client's access to the storage. It can be disconnected, or lose the next replies."""

    name = "shelf"

    def __init__(self, memory: MemoryStore) -> None:
        self.memory = memory
        self.shut = False
        self.swallowing = False

    def pause(self) -> None:
        """Called before each operation, so that a test can let something else happen first."""

    def load(self, account_id: str) -> StoredValue:
        self.pause()
        self._pass()
        return self.memory.lies.get(account_id)

    def swap(self, account_id: str, expected: bytes | None, version: bytes, data: bytes) -> tuple[bool, StoredValue]:
        self.pause()
        if self.shut and not self.swallowing:
            raise StorageError("shut")
        found = self.memory.lies.get(account_id)
        if (found[0] if found else None) != expected:
            self._pass()
            return False, found
        self.memory.lies[account_id] = version, data
        self._pass()
        return True, None

    def probe(self) -> None:
        self._pass()

    def close(self) -> None:
        pass

    def _pass(self) -> None:
        if self.shut or self.swallowing:
            self.shut = True
            raise StorageError("shut")


class Ledger:
    """What is durable: the cost of each call, and when it ended."""

    def __init__(self) -> None:
        self.entries: dict[str, tuple[int, int]] = {}
        self.now = NOW

    def clock(self) -> int:
        return self.now

    def append(self, id: str, cost: int) -> None:
        self.entries.setdefault(id, (cost, self.now))

    def ask(self, asked: Spender, since: int, recent: int) -> Spent:
        assert (asked.key, since) == (KEY, 1_793_491_200_000)
        late = frozenset(id for id, (_, ended) in self.entries.items() if ended > recent)
        return Spent(total=self.total, recent=late)

    @property
    def total(self) -> int:
        return sum(cost for cost, _ in self.entries.values())


def join_store(memory: MemoryStore, ledger: Ledger, share: float = 0.25) -> tuple[SharedAccountClient, StoreLink]:
    link = StoreLink(memory)
    return SharedAccountClient(link, ledger.ask, share, ledger.clock), link
