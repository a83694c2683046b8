"""Stores for a `Ledger` in tests: they record what they are asked, and can be made to fail."""

from collections.abc import Iterable, Mapping, Sequence

from penstock.gateway.limits.accounts import LocalAccounts
from penstock.gateway.record.entry import Entry


class JournalDouble:
    """A journal that records its calls."""

    def __init__(self) -> None:
        self.has_room = True
        self.open: list[Entry] = []
        self.marks: list[Mapping[str, tuple[int, int]]] = []
        self.over: list[Entry] = []
        self.done: list[str] = []

    def opened(self, entry: Entry) -> None:
        self.open.append(entry)

    def marked(self, reached: Mapping[str, tuple[int, int]]) -> None:
        self.marks.append(reached)

    def settled(self, entry: Entry) -> None:
        self.over.append(entry)

    def booked(self, ids: Iterable[str]) -> None:
        self.done += ids


class WriterDouble:
    """A book writer that keeps its entries."""

    def __init__(self) -> None:
        self.alive = True
        self.trouble = ""
        self.batches: list[Sequence[Entry]] = []

    def put(self, entries: Sequence[Entry]) -> None:
        self.batches.append(entries)


class AccountsDouble(LocalAccounts):
    """Accounts that record what is settled and booked."""

    def __init__(self) -> None:
        super().__init__()
        self.settled: list[tuple[str, str, int, int]] = []
        self.done: list[tuple[str, str]] = []

    def settle(self, key_id: str, id: str, cost: int, tokens: int) -> None:
        self.settled.append((key_id, id, cost, tokens))
        super().settle(key_id, id, cost, tokens)

    def booked(self, calls: Iterable[tuple[str, str]]) -> None:
        self.done += calls
        super().booked(calls)
