"""Accounts: the accounts of all quotas. `LocalAccounts` is for one process; shared accounts are in `stores/accounts/`.

No method blocks. Answers are passed to the callback `then`, at once or later, in the thread of the gateway's event
loop. The order for each call is: `reserve`, any number of `extend`, then `settle` and `booked`, or `release`.
"""

from collections.abc import Callable, Iterable
from typing import Protocol

from penstock.amounts import clock_ms
from penstock.gateway.keys.period import period_at
from penstock.gateway.keys.quota import END_USER, Quota
from penstock.gateway.keys.store import Spent
from penstock.gateway.limits.account import (
    Account,
    BudgetUse,
    book,
    budget_use,
    last_minute,
    release,
    seed,
    settle,
)
from penstock.gateway.limits.admission import Decision, Reservation, extend, reserve


class Accounts(Protocol):
    """The accounts of all quotas, as the gateway uses them."""

    @property
    def degraded(self) -> str:
        """The name of the storage that does not answer, so that only a share of each limit is used; else empty."""

    def reserve(self, quota: Quota, reservation: Reservation, then: Callable[[Decision], None]) -> None:
        """Admit a call and reserve its maximum cost."""

    def extend(self, quota: Quota, id: str, cost: int, tokens: int, then: Callable[[Decision], None]) -> None:
        """Raise the reservation of a running call to this total."""

    def settle(self, account_id: str, id: str, cost: int, tokens: int) -> None:
        """Record the actual cost and tokens of a call that has ended."""

    def release(self, account_id: str, id: str, *, undo: bool = False) -> None:
        """Remove the reservation of a call that has ended without cost. It will not be booked. With `undo`, it does not
        count as a request either."""

    def booked(self, calls: Iterable[tuple[str, str]]) -> None:
        """These calls, as pairs of account id and call id, are stored in the ledger."""

    def seed(self, quota: Quota, spent: Spent) -> None:
        """Set the amount spent in the current period: at the start, and when a quota or its period is new."""

    def used(self, quota: Quota) -> BudgetUse:
        """What is used of a budget in the current period, as this process last saw it."""

    def reserving(self) -> Iterable[str]:
        """The ids of accounts that may have a reservation."""

    def last_minute(self, account_id: str) -> tuple[int, int]:
        """The requests and tokens of the last minute, as this process last saw them."""

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

    def reserve(self, quota: Quota, reservation: Reservation, then: Callable[[Decision], None]) -> None:
        """See `Accounts`."""
        if (users := self._users_of(quota)) is not None:
            users.reserve(quota, reservation, then)
            return
        account = self._account(quota.id)
        if quota.budget is not None:
            # A new period starts with nothing spent: this process sees all calls.
            account.spent.setdefault(period_at(quota.period, reservation.now).label, 0)
        then(reserve(account, quota, reservation))

    def extend(self, quota: Quota, id: str, cost: int, tokens: int, then: Callable[[Decision], None]) -> None:
        """See `Accounts`."""
        if (users := self._users_of(quota)) is not None:
            users.extend(quota, id, cost, tokens, then)
            return
        then(extend(self._account(quota.id), quota, id, cost, tokens, self._clock()))

    def settle(self, account_id: str, id: str, cost: int, tokens: int) -> None:
        """See `Accounts`."""
        account = self._accounts.get(account_id)
        if account is not None:
            settle(account, id, cost, tokens, self._clock())
        elif self._users is not None and account_id.startswith(END_USER):
            self._users.settle(account_id, id, cost, tokens)

    def release(self, account_id: str, id: str, *, undo: bool = False) -> None:
        """See `Accounts`."""
        account = self._accounts.get(account_id)
        if account is not None:
            release(account, id, self._clock(), undo=undo)
        elif self._users is not None and account_id.startswith(END_USER):
            self._users.release(account_id, id, undo=undo)

    def booked(self, calls: Iterable[tuple[str, str]]) -> None:
        """See `Accounts`."""
        now = self._clock()
        for account_id, id in calls:
            account = self._accounts.get(account_id)
            if account is not None:
                book(account, (id,), now)
            elif self._users is not None and account_id.startswith(END_USER):
                self._users.booked([(account_id, id)])

    def seed(self, quota: Quota, spent: Spent) -> None:
        """See `Accounts`."""
        now = self._clock()
        seed(self._account(quota.id), period_at(quota.period, now), spent, now)

    def used(self, quota: Quota) -> BudgetUse:
        """See `Accounts`."""
        return budget_use(self._accounts.get(quota.id), quota, self._clock())

    def reserving(self) -> Iterable[str]:
        """See `Accounts`."""
        return [id for id, account in self._accounts.items() if account.owed]

    def last_minute(self, account_id: str) -> tuple[int, int]:
        """See `Accounts`."""
        return last_minute(self._accounts.get(account_id), self._clock())

    def close(self) -> None:
        """See `Accounts`."""
        self._accounts.clear()
        if self._users is not None:
            self._users.close()

    def _users_of(self, quota: Quota) -> Accounts | None:
        """The accounts of end users, if this is one of them."""
        if not quota.spender.user or self._open_users is None:
            return None
        if self._users is None:
            self._users = self._open_users()
        return self._users

    def _account(self, account_id: str) -> Account:
        account = self._accounts.get(account_id)
        if account is None:
            account = self._accounts[account_id] = Account(never_expires=True)
        return account
