"""SharedAccountClient: one of several processes that change shared accounts. `shared_accounts.py` runs it in a thread.

An account is changed by compare-and-set (optimistic concurrency): the client loads the account with its version,
applies the operations to its copy, and swaps the copy in if the storage still has that version. If another process was
faster, the client applies the operations again to what that process wrote. Every operation is idempotent
(`gateway/limits/account.py`), so an operation whose result was lost can be applied again.

The storage may lose accounts: it is a cache, and the book is the source of truth. So the client keeps its own holds
(`AccountView.own_holds`) until they are booked, and repairs the account:

| the client finds | it does |
|---|---|
| no account | makes one with a new random `generation`, seeded from the book, with its own holds |
| an account of another generation, which another process made | restores its own holds, except those in the seed |
| an account that is stale, or has no sum for the current period | reads the sum from the book |
| the storage fails | continues offline, see below; afterwards reads the sum and restores its own holds |

Where it restores its holds, it also counts the requests of the last minute that it has made and the account lacks.

Why no call counts twice and none is lost: the book is read between load and swap. A call that is booked meanwhile is
either in the sum that was read, and then its id is in the seed as well, so that its hold is dropped; or it is booked
after the swap, and then its hold is in the account.

*Offline* means that the storage does not answer. The client then has the account as it was last seen, with the sum from
the book. Other processes may be offline too, so it admits no more than its share (`local_share` in the configuration)
of what is left of each limit. With shares that add up to one, the processes together do not exceed a budget. They may
exceed the other limits: as long as anything is left of one, the share of each process is at least 1. The client's
operations go to a separate account, `OfflineState.own`. Calls that are booked in the meantime are in the book, which
is read when the storage answers again.
"""

import random
import secrets
import time
from collections.abc import Callable, Sequence
from itertools import islice
from typing import TypeAlias

import msgspec
from msgspec import Struct, field, structs

from penstock.errors import BookError
from penstock.gateway.keys.period import period_at
from penstock.gateway.keys.quota import END_USER, Quota, Spender
from penstock.gateway.keys.store import Spent
from penstock.gateway.limits.account import (
    SEED_IDS_MS,
    Account,
    Hold,
    count,
    expire,
    remove_holds,
    restore_holds,
    restore_requests,
    seed,
    wants_seed,
)
from penstock.gateway.limits.admission import Decision, Denial, Grant, with_share
from penstock.stores.accounts.operations import Booked, Extend, Invalidate, Operation, Release, Reserve, apply_operation
from penstock.stores.accounts.storage import Storage, StorageError, StoredValue

# Reads from the book a spender's sum since a time, and the ids of its calls that ended after another time.
FetchSpent: TypeAlias = Callable[[Spender, int, int], Spent]

# A try fails only because another process has succeeded. After the first few, each process waits a random time.
_MAX_TRIES = 200
_IMMEDIATE_TRIES = 3
_MAX_BACKOFF_S = 0.002
# How long the client waits before it reads a book again that has failed.
_BOOK_RETRY_MS = 1000
_RETRY_AFTER_S = 5.0
# The most accounts that one `refresh` loads: each takes a tenth of a millisecond, and calls wait for it.
_MAX_REFRESHED = 200
# Clients choose the names of end users. A forgotten account is loaded again, or seeded from the book, when it is used.
_MAX_USERS = 10_000
_MAX_LOOKED_AT = 100


class OfflineState(Struct):
    """An account while the storage cannot be reached: as it was last seen, and this process's operations since."""

    base: Account
    own: Account


class AccountView(Struct):
    """What this process knows of one account."""

    quota: Quota | None = None
    stored: StoredValue = None
    generation: str = ""
    own_holds: dict[str, Hold] = field(default_factory=dict)
    """Holds of this process that are not booked yet."""
    requests: Account = field(default_factory=Account)
    """The requests of this process in the last minute. Only its window is used."""
    unconfirmed: set[str] = field(default_factory=set)
    """Calls that may have a hold in the storage since an outage. It is removed unless it is in `own_holds`."""
    outage: int = 0
    """The number of the last outage after which this account was repaired."""
    offline: OfflineState | None = None


class SharedAccountClient:
    """Applies operations to shared accounts, and continues offline when the storage fails."""

    def __init__(self, storage: Storage, fetch_spent: FetchSpent, share: float, clock: Callable[[], int]) -> None:
        self._storage = storage
        self._fetch_spent = fetch_spent
        self._share = share
        self._clock = clock
        self._views: dict[str, AccountView] = {}
        # The accounts of end users among them, the least recently used first.
        self._users: dict[str, None] = {}
        # The accounts that had holds when it was last seen; the least recently refreshed first.
        self._holding: dict[str, None] = {}
        self._outages = 0
        self._book_retry_at = 0
        self.degraded = ""
        """The name of the storage while it does not answer, otherwise empty."""
        self._encode = msgspec.msgpack.Encoder().encode
        self._decode = msgspec.msgpack.Decoder(Account).decode

    def apply(self, account_id: str, operations: Sequence[Operation]) -> list[Decision | None]:
        """Apply the operations in order; returns the answer to each."""
        view = self._views.get(account_id)
        if view is None:
            view = self._views[account_id] = AccountView(outage=self._outages)
        if account_id.startswith(END_USER):
            self._note_user(account_id)
        for operation in operations:
            if isinstance(operation, Reserve | Extend | Invalidate):
                view.quota = operation.quota
        if not self.degraded:
            try:
                return self._apply_shared(account_id, view, operations)
            except StorageError:
                view.unconfirmed.update(operation.id for operation in operations if isinstance(operation, Reserve))
                self._lose_storage()
        return self._apply_offline(view, operations)

    def _note_user(self, account_id: str) -> None:
        """Forget the end user's account that was least recently used and has no calls, if there are too many."""
        self._users.pop(account_id, None)
        self._users[account_id] = None
        if len(self._users) <= _MAX_USERS:
            return
        for other in islice(self._users, _MAX_LOOKED_AT):
            view = self._views[other]
            if other != account_id and not view.own_holds and not view.unconfirmed:
                del self._users[other], self._views[other]
                self._holding.pop(other, None)
                return

    def recover(self) -> None:
        """Restore what the storage may have lost, now that it answers again. It is safe if the storage fails again."""
        self.degraded = ""
        for account_id, view in list(self._views.items()):
            if not self.degraded and view.outage != self._outages and (view.own_holds or view.unconfirmed):
                self.apply(account_id, ())

    @property
    def holding(self) -> bool:
        """Whether any account had holds when it was last seen."""
        return bool(self._holding)

    def refresh(self) -> None:
        """Load the accounts with holds again. Other processes may have released some, which `last_seen` reports; and
        the storage may have lost holds of this process's long calls, which the other processes must respect.
        """
        for account_id in list(self._holding)[:_MAX_REFRESHED]:
            if self.degraded:
                return
            view = self._views[account_id]
            try:
                stored = self._storage.load(account_id)
            except StorageError:
                self._lose_storage()
                return
            if stored is None or view.stored is None or stored[0] != view.stored[0]:
                account = self._decode_account(stored)
                if view.own_holds and (account is None or account.generation != view.generation):
                    self.apply(account_id, ())
                    continue
                view.stored = stored
                self._update_holding(account_id, account)
            else:
                self._holding[account_id] = self._holding.pop(account_id)  # to the end: the other accounts are next

    def check(self) -> None:
        """Check whether the storage answers, also while there are no calls."""
        if not self.degraded:
            try:
                self._storage.load("")
            except StorageError:
                self._lose_storage()

    def used(self) -> list[str]:
        """The ids of the accounts that this process has used. May be called from any thread."""
        return list(self._views)

    def last_seen(self, account_id: str) -> Account | None:
        """The account as it was last loaded or written. May be called from any thread."""
        view = self._views.get(account_id)
        return self._decode_account(view.stored) if view is not None else None

    def _lose_storage(self) -> None:
        """Note that the storage does not answer: from now on, operations are applied offline."""
        self._outages += 1
        self.degraded = self._storage.name

    def _update_holding(self, account_id: str, account: Account | None) -> None:
        """Note whether the account has holds, for `refresh`."""
        self._holding.pop(account_id, None)
        if account is not None and account.holds:
            self._holding[account_id] = None

    def _apply_shared(
        self, account_id: str, view: AccountView, operations: Sequence[Operation]
    ) -> list[Decision | None]:
        stored = view.stored or self._storage.load(account_id)
        for attempt in range(_MAX_TRIES):
            account = self._decode_account(stored)
            if account is None:
                if view.quota is None:
                    return [None] * len(operations)  # the next reservation will seed the account
                account = Account(generation=secrets.token_hex(8))
            own_holds, answers = self._try_operations(view, account, operations)
            version, data = secrets.token_bytes(8), self._encode(account)
            swapped, stored = self._storage.swap(account_id, stored[0] if stored else None, version, data)
            if swapped:
                view.stored, view.generation, view.own_holds = (version, data), account.generation, own_holds
                view.outage, view.offline = self._outages, None
                view.unconfirmed.clear()
                self._update_holding(account_id, account)
                self._count_own(view, operations, answers)
                return answers
            if attempt >= _IMMEDIATE_TRIES:
                time.sleep(random.random() * _MAX_BACKOFF_S)
        raise StorageError("other processes were faster at every try")

    def _decode_account(self, stored: StoredValue) -> Account | None:
        """The account; None if there is none, or if another version of Penstock has written it."""
        if stored is None:
            return None
        try:
            return self._decode(stored[1])
        except msgspec.MsgspecError:
            return None

    def _try_operations(
        self, view: AccountView, account: Account, operations: Sequence[Operation]
    ) -> tuple[dict[str, Hold], list[Decision | None]]:
        after_outage = view.outage != self._outages
        restore = after_outage or account.generation != view.generation
        expire(account, self._clock())
        if after_outage:
            remove_holds(account, view.unconfirmed - view.own_holds.keys())
            account.stale = True
        missing = self._seed(account, view.quota)
        if restore:
            if account.generation != view.generation:
                restore_requests(account, view.requests, self._clock())
            elif view.offline is not None:
                restore_requests(account, view.offline.own, self._clock())
            restore_holds(account, view.own_holds, requests=0)
        own_holds = dict(view.own_holds)
        answers: list[Decision | None] = []
        for operation in operations:
            id = operation.id
            if id in own_holds and id not in account.holds:
                restore_holds(account, {id: own_holds[id]})
            if missing is not None and isinstance(operation, Reserve):
                answers.append(missing)
                continue
            answers.append(apply_operation(account, operation))
            _remember(own_holds, id, account)
        return own_holds, answers

    def _count_own(
        self, view: AccountView, operations: Sequence[Operation], answers: Sequence[Decision | None]
    ) -> None:
        """Remember the requests of this process, in case that the storage loses them."""
        expire(view.requests, self._clock())
        for operation, answer in zip(operations, answers, strict=True):
            if isinstance(operation, Reserve) and isinstance(answer, Grant):
                count(view.requests, operation.reservation.now + operation.reservation.ahead, 1, 0)

    def _seed(self, account: Account, quota: Quota | None) -> Denial | None:
        """Seed the account from the book if it needs it. Returns a denial if the sum is unknown, for reservations."""
        now = self._clock()
        if quota is None or not wants_seed(account, quota, now):
            return None
        period = period_at(quota.period, now)
        if now >= self._book_retry_at:
            try:
                seed(account, period, self._fetch_spent(quota.spender, period.since, now - SEED_IDS_MS), now)
            except BookError:
                self._book_retry_at = now + _BOOK_RETRY_MS
        if period.label in account.spent:
            return None
        message = "the rest of this key's budget cannot be read from the ledger: try again in a few seconds"
        return Denial(limit="ledger", code="ledger_unavailable", message=message, retry_after_s=_RETRY_AFTER_S)

    def _apply_offline(self, view: AccountView, operations: Sequence[Operation]) -> list[Decision | None]:
        if view.offline is None:
            last_seen = self._decode_account(view.stored)
            base = last_seen if last_seen is not None else Account()
            base.stale = True  # other processes have spent since: the book has the sum, if it answers
            self._seed(base, view.quota)
            if last_seen is None:
                restore_holds(base, view.own_holds)
            view.offline, view.stored = OfflineState(base, Account()), None
        answers = [self._apply_one_offline(view, view.offline, operation) for operation in operations]
        self._count_own(view, operations, answers)
        return answers

    def _apply_one_offline(self, view: AccountView, offline: OfflineState, operation: Operation) -> Decision | None:
        id, answer = operation.id, None
        account = offline.base if id in offline.base.holds else offline.own
        if isinstance(operation, Reserve) and account is offline.own:
            missing = self._seed(offline.base, operation.quota)
            if missing is not None:
                return missing
            quota, now = operation.quota, operation.reservation.now
            offline.own.spent.setdefault(period_at(quota.period, now).label, 0)
            answer = apply_operation(offline.own, operation, with_share(offline.base, quota, self._share, now))
            if isinstance(answer, Denial):
                answer = self._explain_offline(answer)
        elif isinstance(operation, Extend) and account is offline.own:
            quota, now = operation.quota, operation.now
            answer = apply_operation(offline.own, operation, with_share(offline.base, quota, self._share, now))
        else:
            answer = apply_operation(account, operation)
        if isinstance(operation, Booked | Release) and account is offline.base:
            view.unconfirmed.add(id)
        _remember(view.own_holds, id, account)
        return answer

    def _explain_offline(self, denial: Denial) -> Denial:
        message = "the gateway cannot reach the store of this key's limits, and may use only a share of them"
        wait = _RETRY_AFTER_S if denial.retry_after_s is None else min(denial.retry_after_s, _RETRY_AFTER_S)
        return structs.replace(denial, message=f"{message}: try again in a few seconds", retry_after_s=wait)


def _remember(own_holds: dict[str, Hold], id: str, account: Account) -> None:
    hold = account.holds.get(id)
    if hold is not None:
        own_holds[id] = hold
    else:
        own_holds.pop(id, None)
