"""Accounts: those of all keys, as the gateway sees them. Here for one process; `stores/` has those that are shared.

Nothing blocks: what has an answer hands it to `then`, at once or later, in the thread of the gateway's loop. For each
call the order is: `reserve`, any `extend`, then `settle` and `booked`, or `release`.
"""

import time
from collections.abc import Callable, Iterable
from typing import Protocol

from penstock.gateway.billing.book import Spent
from penstock.gateway.keys.keys import Key
from penstock.gateway.limits.account import Account, book, left_of_budget, release, reserved_cost, seed, settle
from penstock.gateway.limits.admission import Answer, Reservation, extend, reserve
from penstock.gateway.limits.period import span


def now_ms() -> int:
    """The time, in milliseconds since 1970."""
    return time.time_ns() // 1_000_000


class Accounts(Protocol):
    """Reserve and settle, for every key."""

    @property
    def degraded(self) -> str:
        """What cannot be reached, so that limits are only a share of what they should be; empty if all is well."""

    def reserve(self, key: Key, demand: Reservation, then: Callable[[Answer], None]) -> None:
        """Admit a call and hold what it may cost."""

    def extend(self, key: Key, id: str, cost: int, tokens: int, then: Callable[[Answer], None]) -> None:
        """Hold this much in all for a running call."""

    def settle(self, key_id: str, id: str, cost: int, tokens: int) -> None:
        """The call is over, and took this."""

    def release(self, key_id: str, id: str) -> None:
        """The call is over, and took nothing: there will be nothing to book."""

    def booked(self, calls: Iterable[tuple[str, str]]) -> None:
        """These calls, each with its key before it, are in the ledger durably."""

    def seed(self, key: Key, spent: Spent) -> None:
        """What the ledger says of a key's present period: at the start, and when a key or its period is new."""

    def left(self, key: Key) -> float | None:
        """Which part of a key's budget is left, as far as this process has seen; None where it has not."""

    def reserved(self, key: Key) -> int:
        """What is held for calls of a key in its present period, in nanodollars, as far as this process has seen."""

    def close(self) -> None:
        """Let go of everything."""


class LocalAccounts:
    """The accounts of a gateway that is one process."""

    degraded = ""

    def __init__(self, clock: Callable[[], int] = now_ms) -> None:
        self._clock = clock
        self._accounts: dict[str, Account] = {}

    def reserve(self, key: Key, demand: Reservation, then: Callable[[Answer], None]) -> None:
        """See `Accounts`."""
        account = self._account(key.id)
        if key.budget is not None:
            # A new period begins with nothing: all that is spent in it passes here.
            account.spent.setdefault(span(key.period, demand.now).label, 0)
        then(reserve(account, key, demand))

    def extend(self, key: Key, id: str, cost: int, tokens: int, then: Callable[[Answer], None]) -> None:
        """See `Accounts`."""
        then(extend(self._account(key.id), key, id, cost, tokens, self._clock()))

    def settle(self, key_id: str, id: str, cost: int, tokens: int) -> None:
        """See `Accounts`."""
        settle(self._account(key_id), id, cost, tokens, self._clock())

    def release(self, key_id: str, id: str) -> None:
        """See `Accounts`."""
        release(self._account(key_id), id, self._clock())

    def booked(self, calls: Iterable[tuple[str, str]]) -> None:
        """See `Accounts`."""
        now = self._clock()
        for key_id, id in calls:
            account = self._accounts.get(key_id)
            if account is not None:
                book(account, (id,), now)

    def seed(self, key: Key, spent: Spent) -> None:
        """See `Accounts`."""
        now = self._clock()
        seed(self._account(key.id), span(key.period, now), spent, now)

    def left(self, key: Key) -> float | None:
        """See `Accounts`."""
        account = self._accounts.get(key.id)
        return left_of_budget(account, key, self._clock()) if account is not None else None

    def reserved(self, key: Key) -> int:
        """See `Accounts`."""
        account = self._accounts.get(key.id)
        return reserved_cost(account, key, self._clock()) if account is not None else 0

    def close(self) -> None:
        """See `Accounts`."""
        self._accounts.clear()

    def _account(self, key_id: str) -> Account:
        account = self._accounts.get(key_id)
        if account is None:
            account = self._accounts[key_id] = Account(lasting=True)
        return account
