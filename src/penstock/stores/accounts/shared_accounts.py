"""SharedAccounts: accounts that several processes share. One thread asks the storage; the gateway's loop never waits.

The loop puts operations into a queue. The thread takes all that are queued, groups them by key, and lets a
`SharedAccountClient` apply them with one message to the storage per key. When the storage stops answering, the client
continues offline, and another thread probes the storage every few seconds, so that no call waits for the probe.
"""

import asyncio
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import TypeAlias

from msgspec import Struct

from penstock.gateway.billing.book import Spent
from penstock.gateway.keys.keys import Key
from penstock.gateway.limits.account import held_in, left_of_budget
from penstock.gateway.limits.accounts import now_ms
from penstock.gateway.limits.admission import Answer, Denial, Reservation
from penstock.stores.accounts.client import Seed, SharedAccountClient
from penstock.stores.accounts.operations import Booked, Extend, Invalidate, Operation, Release, Reserve, Settle
from penstock.stores.accounts.storage import Storage, StorageError

_RETRY_S = 2.0
# Where something is held, accounts are looked at so often: what is told of holds is no older.
_WATCH_S = 0.25
# Where nothing is, it is found out so often whether the storage answers.
_CHECK_S = 5.0
_WAIT_S = 5.0
_CLOSE_WITHIN_S = 2.0

Then: TypeAlias = Callable[[Answer], None]


class _Task(Struct, frozen=True):
    """An operation that waits."""

    key_id: str
    operation: Operation
    then: Then | None = None


class _Forget(Struct, frozen=True):
    """A key that is gone."""

    key_id: str


class _Probed(Struct, frozen=True):
    """Whether the storage answers again."""

    well: bool


class SharedAccounts:
    """See `Accounts`. Belongs to the thread of the loop that is running when it is made."""

    def __init__(
        self,
        storage: Storage,
        ask: Seed,
        share: float,
        clock: Callable[[], int] = now_ms,
        retry_s: float = _RETRY_S,
    ) -> None:
        self._storage = storage
        self._clock = clock
        self._retry_s = retry_s
        self._loop = asyncio.get_running_loop()
        self._participant = SharedAccountClient(storage, ask, share, clock)
        self._queue: SimpleQueue[_Task | _Forget | _Probed | None] = SimpleQueue()
        self._probing: threading.Timer | None = None
        self.on_change: Callable[[str, bool], None] | None = None
        """Told in the event loop that the storage of this name stopped answering (False), or answers again (True)."""
        self._lost = False
        self._thread = threading.Thread(target=self._run, daemon=True, name="penstock-accounts")
        self._thread.start()

    # What the loop's thread calls.

    @property
    def store(self) -> str:
        """The name of the storage."""
        return self._storage.name

    @property
    def degraded(self) -> str:
        """See `Accounts`."""
        return self._participant.degraded

    def reserve(self, key: Key, demand: Reservation, then: Then) -> None:
        """See `Accounts`."""
        self._queue.put(_Task(key.id, Reserve(key, demand), then))

    def extend(self, key: Key, id: str, cost: int, tokens: int, then: Then) -> None:
        """See `Accounts`."""
        self._queue.put(_Task(key.id, Extend(key, id, cost, tokens, self._clock()), then))

    def settle(self, key_id: str, id: str, cost: int, tokens: int) -> None:
        """See `Accounts`."""
        self._queue.put(_Task(key_id, Settle(id, cost, tokens, self._clock())))

    def release(self, key_id: str, id: str) -> None:
        """See `Accounts`."""
        self._queue.put(_Task(key_id, Release(id, self._clock())))

    def booked(self, calls: Iterable[tuple[str, str]]) -> None:
        """See `Accounts`. May be called from any thread."""
        now = self._clock()
        for key_id, id in calls:
            self._queue.put(_Task(key_id, Booked(id, now)))

    def seed(self, key: Key, spent: Spent) -> None:  # noqa: ARG002 - the ledger is asked while nobody else can write
        """See `Accounts`. The ledger is asked again when the account is used next."""
        self._queue.put(_Task(key.id, Invalidate(key)))

    def left(self, key: Key) -> float | None:
        """See `Accounts`."""
        account = self._participant.seen(key.id)
        return left_of_budget(account, key, self._clock()) if account is not None else None

    def held(self, key: Key) -> int:
        """See `Accounts`."""
        account = self._participant.seen(key.id)
        return held_in(account, key, self._clock()) if account is not None else 0

    def forget(self, key_id: str) -> None:
        """See `Accounts`."""
        self._queue.put(_Forget(key_id))

    def close(self) -> None:
        """See `Accounts`. What waits is done first, if that does not take long."""
        self._queue.put(None)
        self._thread.join(_CLOSE_WITHIN_S)

    # What the thread does.

    def _run(self) -> None:
        going, watched, checked = True, time.monotonic(), 0.0
        while going:
            items: list[_Task | _Forget | _Probed | None] = []
            with suppress(Empty):
                items.append(self._queue.get(timeout=_WATCH_S if self._participant.holding else _CHECK_S))
                while True:
                    items.append(self._queue.get_nowait())
            going = None not in items
            self._do([item for item in items if item is not None])
            now = time.monotonic()
            if now - watched >= _WATCH_S:
                self._participant.watch()
                watched = now
            if now - checked >= _CHECK_S:
                self._participant.check()
                checked = now
            self._tell_change()
            if self._participant.degraded and self._probing is None and going:
                self._probe_later()
        if self._probing is not None:
            self._probing.cancel()
            self._probing.join()
        self._storage.close()

    def _do(self, items: list[_Task | _Forget | _Probed]) -> None:
        waiting: dict[str, list[_Task]] = {}
        gone: list[str] = []
        for item in items:
            match item:
                case _Task():
                    waiting.setdefault(item.key_id, []).append(item)
                case _Forget(key_id):
                    gone.append(key_id)
                case _Probed(well):
                    self._probing = None
                    if well:
                        self._participant.recover()
        for key_id, tasks in waiting.items():
            answers = self._apply(key_id, tasks)
            told = [
                (task.then, answer)
                for task, answer in zip(tasks, answers, strict=True)
                if task.then is not None and answer is not None
            ]
            if told:
                with suppress(RuntimeError):  # the loop is closed: nobody waits
                    self._loop.call_soon_threadsafe(_tell, told)
        for key_id in gone:
            self._participant.forget(key_id)

    def _apply(self, key_id: str, tasks: list[_Task]) -> Sequence[Answer | None]:
        try:
            return self._participant.apply(key_id, [task.operation for task in tasks])
        except Exception as error:  # noqa: BLE001 - whatever it is: somebody waits for an answer
            message = f"the gateway could not tell this key's limits ({type(error).__name__}): try again later"
            denial = Denial(limit="ledger", code="ledger_unavailable", message=message, retry_after_s=_WAIT_S)
            return [denial] * len(tasks)

    def _tell_change(self) -> None:
        lost = bool(self._participant.degraded)
        if lost != self._lost and self.on_change is not None:
            self._lost = lost
            with suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self.on_change, self._storage.name, not lost)

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


def _tell(told: list[tuple[Then, Answer]]) -> None:
    for then, answer in told:
        then(answer)
