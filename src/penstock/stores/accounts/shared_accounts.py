"""SharedAccounts: accounts that several processes share. One thread uses the storage; the event loop never waits.

The loop puts operations into a queue. The thread takes all that are queued, groups them by account, and lets a
`SharedAccountClient` apply them with one message to the storage per account. When the storage stops answering, the
client continues offline, and another thread probes the storage every few seconds, so that no call waits for the probe.
"""

import asyncio
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import TypeAlias

from msgspec import Struct

from penstock.amounts import clock_ms
from penstock.gateway.keys.quota import Quota
from penstock.gateway.keys.store import Spent
from penstock.gateway.limits.account import BudgetUse, budget_use, last_minute
from penstock.gateway.limits.admission import Decision, Denial, Reservation
from penstock.stores.accounts.client import FetchSpent, SharedAccountClient
from penstock.stores.accounts.operations import Booked, Extend, Invalidate, Operation, Release, Reserve, Settle
from penstock.stores.accounts.storage import Storage, StorageError

_RETRY_S = 2.0
# How often accounts with holds are loaded again: the reserved sums that are reported are no older than this.
_REFRESH_S = 0.25
# How often the storage is checked while there are no holds.
_CHECK_S = 5.0
_RETRY_AFTER_S = 5.0
_CLOSE_WITHIN_S = 2.0

Then: TypeAlias = Callable[[Decision], None]


class _Task(Struct, frozen=True):
    """A queued operation, and the callback for its answer."""

    account_id: str
    operation: Operation
    then: Then | None = None


class _Probed(Struct, frozen=True):
    """The result of a probe: whether the storage answers again."""

    answers: bool


class SharedAccounts:
    """See `Accounts`. Belongs to the thread of the loop that is running when it is made."""

    def __init__(
        self,
        storage: Storage,
        fetch_spent: FetchSpent,
        share: float,
        clock: Callable[[], int] = clock_ms,
        retry_s: float = _RETRY_S,
    ) -> None:
        self._storage = storage
        self._clock = clock
        self._retry_s = retry_s
        self._loop = asyncio.get_running_loop()
        self._client = SharedAccountClient(storage, fetch_spent, share, clock)
        self._queue: SimpleQueue[_Task | _Probed | None] = SimpleQueue()
        self._probing: threading.Timer | None = None
        self.on_change: Callable[[str, bool], None] | None = None
        """Called in the event loop with the storage's name when it stops answering (False) or answers again (True)."""
        self._storage_lost = False
        self._thread = threading.Thread(target=self._run, daemon=True, name="penstock-accounts")
        self._thread.start()

    # Called in the event loop's thread.

    @property
    def store(self) -> str:
        """The name of the storage."""
        return self._storage.name

    @property
    def degraded(self) -> str:
        """See `Accounts`."""
        return self._client.degraded

    def reserve(self, quota: Quota, demand: Reservation, then: Then) -> None:
        """See `Accounts`."""
        self._queue.put(_Task(quota.id, Reserve(quota, demand), then))

    def extend(self, quota: Quota, id: str, cost: int, tokens: int, then: Then) -> None:
        """See `Accounts`."""
        self._queue.put(_Task(quota.id, Extend(quota, id, cost, tokens, self._clock()), then))

    def settle(self, account_id: str, id: str, cost: int, tokens: int) -> None:
        """See `Accounts`."""
        self._queue.put(_Task(account_id, Settle(id, cost, tokens, self._clock())))

    def release(self, account_id: str, id: str, *, undo: bool = False) -> None:
        """See `Accounts`."""
        self._queue.put(_Task(account_id, Release(id, self._clock(), undo)))

    def booked(self, calls: Iterable[tuple[str, str]]) -> None:
        """See `Accounts`. May be called from any thread."""
        now = self._clock()
        for account_id, id in calls:
            self._queue.put(_Task(account_id, Booked(id, now)))

    def seed(self, quota: Quota, spent: Spent) -> None:  # noqa: ARG002 - the client reads the sum between load and swap
        """See `Accounts`. The client reads the ledger again when the account is used next."""
        self._queue.put(_Task(quota.id, Invalidate(quota)))

    def used(self, quota: Quota) -> BudgetUse:
        """See `Accounts`."""
        return budget_use(self._client.last_seen(quota.id), quota, self._clock())

    def reserving(self) -> Iterable[str]:
        """See `Accounts`."""
        return self._client.used()

    def last_minute(self, account_id: str) -> tuple[int, int]:
        """See `Accounts`."""
        return last_minute(self._client.last_seen(account_id), self._clock())

    def close(self) -> None:
        """See `Accounts`. Applies the queued operations first, within a time limit."""
        self._queue.put(None)
        self._thread.join(_CLOSE_WITHIN_S)

    # Called in the client's thread.

    def _run(self) -> None:
        running, refreshed, checked = True, time.monotonic(), 0.0
        while running:
            items: list[_Task | _Probed | None] = []
            with suppress(Empty):
                items.append(self._queue.get(timeout=_REFRESH_S if self._client.holding else _CHECK_S))
                while True:
                    items.append(self._queue.get_nowait())
            running = None not in items
            self._process([item for item in items if item is not None])
            now = time.monotonic()
            if now - refreshed >= _REFRESH_S:
                self._client.refresh()
                refreshed = now
            if now - checked >= _CHECK_S:
                self._client.check()
                checked = now
            self._report_change()
            if self._client.degraded and self._probing is None and running:
                self._probe_later()
        if self._probing is not None:
            self._probing.cancel()
            self._probing.join()
        self._storage.close()

    def _process(self, items: list[_Task | _Probed]) -> None:
        by_account: dict[str, list[_Task]] = {}
        for item in items:
            match item:
                case _Task():
                    by_account.setdefault(item.account_id, []).append(item)
                case _Probed(succeeded):
                    self._probing = None
                    if succeeded:
                        self._client.recover()
        for account_id, tasks in by_account.items():
            answers = self._apply(account_id, tasks)
            results = [
                (task.then, answer)
                for task, answer in zip(tasks, answers, strict=True)
                if task.then is not None and answer is not None
            ]
            if results:
                with suppress(RuntimeError):  # the loop is closed: no call waits for an answer
                    self._loop.call_soon_threadsafe(_call_back, results)

    def _apply(self, account_id: str, tasks: list[_Task]) -> Sequence[Decision | None]:
        try:
            return self._client.apply(account_id, [task.operation for task in tasks])
        except Exception as error:  # noqa: BLE001 - a call waits for an answer, whatever the error is
            message = f"the gateway could not check this key's limits ({type(error).__name__}): try again later"
            denial = Denial(limit="ledger", code="ledger_unavailable", message=message, retry_after_s=_RETRY_AFTER_S)
            return [denial] * len(tasks)

    def _report_change(self) -> None:
        storage_lost = bool(self._client.degraded)
        if storage_lost != self._storage_lost and self.on_change is not None:
            self._storage_lost = storage_lost
            with suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self.on_change, self._storage.name, not storage_lost)

    def _probe_later(self) -> None:
        self._probing = threading.Timer(self._retry_s, self._probe)
        self._probing.daemon = True
        self._probing.start()

    def _probe(self) -> None:
        try:
            self._storage.probe()
        except StorageError:
            self._queue.put(_Probed(False))
        else:
            self._queue.put(_Probed(True))


def _call_back(results: list[tuple[Then, Decision]]) -> None:
    for then, answer in results:
        then(answer)
