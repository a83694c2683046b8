"""Accounts: the accounts of all keys. `LocalAccounts` is for one process; shared accounts are in `stores/accounts/`.

No method blocks. Answers are passed to the callback `then`, at once or later, in the thread of the gateway's event
loop. The order for each call is: `reserve`, any number of `extend`, then `settle` and `booked`, or `release`.
"""

from collections.abc import Callable, Iterable
from typing import Protocol

from penstock.amounts import clock_ms
from penstock.gateway.billing.book import Spent
from penstock.gateway.keys.keys import Key
from penstock.gateway.limits.account import (
    Account,
    book,
    last_minute,
    release,
    remaining_share,
    reserved_cost,
    seed,
    settle,
    spent_cost,
)
from penstock.gateway.limits.admission import Answer, Reservation, extend, reserve
from penstock.gateway.limits.period import period_at

# The start of the ids of end users' accounts.
END_USER = "user:"


class Accounts(Protocol):
    """The accounts of all keys, as the gateway uses them."""

    @property
    def degraded(self) -> str:
        """The name of the storage that does not answer, so that only a share of each limit is used; else empty."""

    def reserve(self, key: Key, reservation: Reservation, then: Callable[[Answer], None]) -> None:
        """Admit a call and reserve its maximum cost."""

    def extend(self, key: Key, id: str, cost: int, tokens: int, then: Callable[[Answer], None]) -> None:
        """Raise the reservation of a running call to this total."""

    def settle(self, key_id: str, id: str, cost: int, tokens: int) -> None:
        """Record the actual cost and tokens of a call that has ended."""

    def release(self, key_id: str, id: str, *, undo: bool = False) -> None:
        """Remove the reservation of a call that has ended without cost. It will not be booked. With `undo`, it does not
        count as a request either."""

    def booked(self, calls: Iterable[tuple[str, str]]) -> None:
        """These calls, as pairs of key id and call id, are stored in the ledger."""

    def seed(self, key: Key, spent: Spent) -> None:
        """Set the amount spent in a key's current period: at the start, and when a key or its period is new."""

    def remaining_share(self, key: Key) -> float | None:
        """The share of a key's budget that is left, as this process last saw it; None if it is unknown."""

    def spent(self, key: Key) -> int | None:
        """The amount spent by booked calls in a key's current period, in nanodollars, as this process last saw it; None
        if it is unknown."""

    def reserved(self, key: Key) -> int:
        """The amount reserved in a key's current period, in nanodollars, as this process last saw it."""

    def reserving(self) -> Iterable[str]:
        """The ids of accounts that may have a reservation."""

    def last_minute(self, key_id: str) -> tuple[int, int]:
        """The requests and tokens of a key in the last minute, as this process last saw them."""

    def close(self) -> None:
        """Release all resources."""


class LocalAccounts:
    """The accounts of a gateway that is one process.

    Those of end users are elsewhere: `open_users` opens them when the first is needed. Clients choose the names of end
    users, so these accounts are too many to be kept here, and each is read from the book when it is used.
    """

    degraded = ""

    def __init__(self, clock: Callable[[], int] = clock_ms, open_users: Callable[[], Accounts] | None = None) -> None:
        self._clock = clock
        self._accounts: dict[str, Account] = {}
        self._open_users = open_users
        self._users: Accounts | None = None

    def reserve(self, key: Key, reservation: Reservation, then: Callable[[Answer], None]) -> None:
        """See `Accounts`."""
        if (users := self._users_of(key)) is not None:
            users.reserve(key, reservation, then)
            return
        account = self._account(key.id)
        if key.budget is not None:
            # A new period starts with nothing spent: this process sees all calls.
            account.spent.setdefault(period_at(key.period, reservation.now).label, 0)
        then(reserve(account, key, reservation))

    def extend(self, key: Key, id: str, cost: int, tokens: int, then: Callable[[Answer], None]) -> None:
        """See `Accounts`."""
        if (users := self._users_of(key)) is not None:
            users.extend(key, id, cost, tokens, then)
            return
        then(extend(self._account(key.id), key, id, cost, tokens, self._clock()))

    def settle(self, key_id: str, id: str, cost: int, tokens: int) -> None:
        """See `Accounts`."""
        account = self._accounts.get(key_id)
        if account is not None:
            settle(account, id, cost, tokens, self._clock())
        elif self._users is not None and key_id.startswith(END_USER):
            self._users.settle(key_id, id, cost, tokens)

    def release(self, key_id: str, id: str, *, undo: bool = False) -> None:
        """See `Accounts`."""
        account = self._accounts.get(key_id)
        if account is not None:
            release(account, id, self._clock(), undo=undo)
        elif self._users is not None and key_id.startswith(END_USER):
            self._users.release(key_id, id, undo=undo)

    def booked(self, calls: Iterable[tuple[str, str]]) -> None:
        """See `Accounts`."""
        now = self._clock()
        for key_id, id in calls:
            account = self._accounts.get(key_id)
            if account is not None:
                book(account, (id,), now)
            elif self._users is not None and key_id.startswith(END_USER):
                self._users.booked([(key_id, id)])

    def seed(self, key: Key, spent: Spent) -> None:
        """See `Accounts`."""
        now = self._clock()
        seed(self._account(key.id), period_at(key.period, now), spent, now)

    def remaining_share(self, key: Key) -> float | None:
        """See `Accounts`."""
        account = self._accounts.get(key.id)
        return remaining_share(account, key, self._clock()) if account is not None else None

    def spent(self, key: Key) -> int | None:
        """See `Accounts`."""
        account = self._accounts.get(key.id)
        return spent_cost(account, key, self._clock()) if account is not None else None

    def reserved(self, key: Key) -> int:
        """See `Accounts`."""
        account = self._accounts.get(key.id)
        return reserved_cost(account, key, self._clock()) if account is not None else 0

    def reserving(self) -> Iterable[str]:
        """See `Accounts`."""
        return [id for id, account in self._accounts.items() if account.owed]

    def last_minute(self, key_id: str) -> tuple[int, int]:
        """See `Accounts`."""
        return last_minute(self._accounts.get(key_id), self._clock())

    def close(self) -> None:
        """See `Accounts`."""
        self._accounts.clear()
        if self._users is not None:
            self._users.close()

    def _users_of(self, key: Key) -> Accounts | None:
        """The accounts of end users, if this is one of them."""
        if key.spender is None or not key.spender.user or self._open_users is None:
            return None
        if self._users is None:
            self._users = self._open_users()
        return self._users

    def _account(self, key_id: str) -> Account:
        account = self._accounts.get(key_id)
        if account is None:
            account = self._accounts[key_id] = Account(never_expires=True)
        return account
