"""BookWriter: writes entries to the book in batches, in a thread of its own; and reloads the keys when they change.

Between batches it adds booked calls to the summary (`summary.py`), some thousand at a time, once there are as many; and
archives old calls (`retention.py`), a few at a time.

Only this thread uses the book, so that no other thread waits for the disk or the database. While the book fails,
entries stay here and in the journal, and are retried with exponential backoff.
"""

import asyncio
import queue
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from penstock.amounts import DAY_MS, clock_ms
from penstock.errors import BookError, BookUnusableError
from penstock.gateway.keys.client_key import ClientKey
from penstock.gateway.keys.key_ring import KeyRing
from penstock.gateway.keys.period import period_at
from penstock.gateway.keys.quota import Period, Quota
from penstock.gateway.keys.store import Spent
from penstock.gateway.limits.warnings import BudgetWarning, WatchedBudget, watched_budgets
from penstock.gateway.record.entry import Entry
from penstock.gateway.teams.chain import Chain
from penstock.gateway.teams.team import existing
from penstock.stores.book.snapshot import KnownKeys, KnownUsers, LocalSnapshot
from penstock.stores.book.sql_book import Book

# A batch is complete with this many entries; it may be larger by the last group that was queued.
_MAX_BATCH = 2_000
# How often keys are checked for changes: a new or revoked key takes effect within this time.
_KEYS_POLL_S = 1.0
# The ids of calls that were booked within this time are read with the sums; older ones have no holds any more.
_RECENT_MS = 300_000
# How often the local snapshot is confirmed.
_CONFIRM_S = 60.0
# The accounts whose spending is passed to the event loop at a time: that takes about a millisecond.
_SPENT_BATCH = 500
# The calls that are summed up together. Fewer would cost more per call. Queries count the later calls themselves.
_SUM_BATCH = 2_000
# The pause between two batches of the summary while more are waiting, as after an import: it leaves time to others.
_CATCH_UP_PAUSE_S = 0.05
# When the summary fails, it is retried after this time. Without it, views are correct but slow.
_SUM_RETRY_S = 60.0
# How often it looks for calls to archive.
_PRUNE_EVERY_S = 600.0
# The calls that are archived together. Streams wait while this thread has the interpreter's lock (GIL): with so few
# calls, that is about a millisecond at a time. For the same reason this thread must not have a lower priority.
_PRUNE_BATCH = 50
# After a batch of archived calls it pauses for this many times as long: so pruning takes a tenth of its time.
_PRUNE_PAUSES = 9
_PRUNE_RETRY_S = 60.0
_MIN_PAUSE_S = 0.01
_FIRST_RETRY_S = 0.05
_MAX_RETRY_S = 2.0


class Keys:
    """All keys, with the accounts of their teams, and tables of them. It is made in the writer's thread, because that
    takes tens of milliseconds for ten thousand keys, and the event loop must not wait so long."""

    def __init__(
        self, keys: list[ClientKey], of_jwts: Sequence[ClientKey] = (), stopped: Mapping[str, int] | None = None
    ) -> None:
        """`of_jwts`: those of clients with a JWT. `stopped`: when the calls of a key were last stopped, by its id; None
        if the keys are from the local snapshot."""
        self.keys = keys
        self.stopped = stopped
        self.of_jwts = of_jwts
        everything = (*keys, *of_jwts)
        self.ring = KeyRing(keys)
        """Those of the book."""
        self.budgeted = {key.id: key.quotas[0] for key in keys if key.quotas[0].budget is not None}
        self.further = {key.id: [quota.id for quota in key.quotas[1:]] for key in everything if key.quotas[1:]}
        """By key: its accounts besides its own."""
        self.budgets = watched_budgets(everything)
        self.accounts = {
            quota.id: quota
            for key in everything
            for quota in key.quotas
            if quota is key.quotas[0] or quota.budget is not None
        }
        """By id: the account of each key, and the others that have a budget."""


class SpentAccounts(NamedTuple):
    """Accounts, each with what the book says is spent; and all budgets, as `Keys` has them."""

    accounts: Sequence[tuple[Quota, Spent]]
    budgets: Mapping[str, WatchedBudget]


class Retention(NamedTuple):
    """How many days calls stay in the book, and their sums (None: for good); and the folder for archives."""

    folder: Path
    keep_days: int
    keep_sums_days: int | None = None


class BookWriter:
    """Writes the entries of one process to the book. `on_booked` and `on_keys` are called in its event loop."""

    def __init__(
        self,
        open_book: Callable[[], Book],
        on_booked: Callable[[Sequence[Entry]], None],
        on_keys: Callable[[Keys], None],
        log: Callable[[str], None],
        reread_s: float | None = None,
        retention: Retention | None = None,
    ) -> None:
        """`reread_s`: how often to read what other gateways have spent that write to the same book.

        Without `retention`, all calls stay in the book.
        """
        self._loop = asyncio.get_running_loop()
        self._open_book = open_book
        self._on_booked = on_booked
        self._on_keys = on_keys
        self._keys = Keys([])
        # The place up to which the spending of other gateways is read.
        self._read_place = 0
        self._log = log
        self._queue: queue.SimpleQueue[Sequence[Entry]] = queue.SimpleQueue()
        self._book: Book | None = None
        self._keys_version: int | None = None
        self._known: dict[str, Period] = {}
        self._reread_accounts: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._reread_s = reread_s
        self._read_at_s = 0.0
        self._sum_at_s = 0.0
        self._retention = retention
        self._prune_at_s = 0.0
        self._behind = False
        self._ending = threading.Event()
        self._started = threading.Event()
        self._adopted: set[str] = set()
        self._unusable: BookUnusableError | None = None
        self.snapshot: LocalSnapshot | None = None
        """Where keys, tokens and sessions are written, and keys are read from until the book can be read."""
        self.snapshot_budgets = True
        """Whether keys with a budget are taken from the snapshot: only if another store has what they have spent."""
        self._has_keys = False
        self._people_version: int | None = None
        self._confirm_at_s = 0.0
        self.on_spent: Callable[[SpentAccounts], None] | None = None
        """Called in the event loop with the spending of accounts: of new ones before `on_keys` gets their keys."""
        self.on_commit: Callable[[float], None] | None = None
        """Called in the event loop with the seconds that a batch took."""
        self.on_warned: Callable[[Sequence[BudgetWarning]], None] | None = None
        """Called in the event loop with the budget warnings that this process was the first to make."""
        self._warnings: queue.SimpleQueue[BudgetWarning] = queue.SimpleQueue()
        self._unclaimed: list[BudgetWarning] = []
        self._looks: queue.SimpleQueue[Callable[[object], None]] = queue.SimpleQueue()
        self._jwt_teams: frozenset[str] = frozenset()
        self._jwt_teams_changed = False
        self.trouble = ""
        """Why entries cannot be written now; empty while they can."""
        self.alive = False
        """Whether the thread is running."""
        self._thread = threading.Thread(target=self._run_thread, daemon=True, name="penstock-ledger")

    def start(self, first: Sequence[Entry], wait_s: float) -> None:
        """Start with entries of dead gateways; returns when they are written and keys are loaded, or after `wait_s`.

        Raises `BookUnusableError` if the book can never be used.
        """
        self._adopted = {entry.id for entry in first}
        self._queue.put(first)
        self.alive = True
        self._thread.start()
        self._started.wait(wait_s)
        if self._unusable is not None:
            raise self._unusable

    def put(self, entries: Sequence[Entry]) -> None:
        """Queue entries to be written."""
        self._queue.put(entries)

    def use_jwt_teams(self, teams: frozenset[str]) -> None:
        """Set the teams that have clients with a JWT. Their keys are passed to `on_keys` too, unless the team does
        not exist."""
        if teams != self._jwt_teams:
            self._jwt_teams = teams
            self._jwt_teams_changed = True

    def look(self, then: Callable[[object], None]) -> None:
        """Look for changes of keys now. Then `on_keys` is called if there are any, and `then` in any case."""
        self._looks.put(then)
        self._queue.put(())

    def reread(self, account: str) -> None:
        """Read again what was spent in an account, because a call was booked that was not reserved in it."""
        self._reread_accounts.put(account)

    def warn(self, warnings: Sequence[BudgetWarning]) -> None:
        """Queue budget warnings to be stored, unless another process has stored them."""
        for warning in warnings:
            self._warnings.put(warning)
        self._queue.put(())

    def close(self, wait_s: float) -> None:
        """Write the queued entries, if possible, and stop."""
        self._ending.set()
        self._queue.put(())
        self._thread.join(wait_s)

    # Called in the thread.

    def _run_thread(self) -> None:
        try:
            self._run()
        finally:
            self.alive = False

    def _run(self) -> None:
        waiting: list[Entry] = []
        wait_s = _FIRST_RETRY_S
        while True:
            self._collect(waiting)
            looks = [self._looks.get() for _ in range(self._looks.qsize())]
            try:
                if waiting:
                    self._append(waiting)
                self._reload_keys()
                self._claim_warnings()
                if self.snapshot is not None:
                    self._update_snapshot(self.snapshot, self._open())
            except BookUnusableError as error:
                self._unusable = error
                self._fail(str(error), reported=not self._started.is_set())  # `start` raises it
            except BookError as error:
                self._fail(str(error))
                self._use_snapshot()
            except Exception as error:  # noqa: BLE001 - entries must not be lost, whatever the error is
                self._fail(f"the ledger failed: {error!r}")
                self._append_one_by_one(waiting)
            else:
                self._recover()
                wait_s = _FIRST_RETRY_S
            for look in looks:
                self._call_in_loop(look, None)
            if self._unusable is not None or self._book is not None:
                self._started.set()
            idle = not self.trouble and not self._ending.is_set()
            self._behind = idle and self._sum_up()
            if idle and not self._behind and self._retention is not None and time.monotonic() >= self._prune_at_s:
                self._prune(self._retention)
            if self._ending.is_set() and (not waiting or self.trouble) and self._queue.empty():
                break
            if self.trouble:
                self._ending.wait(wait_s)
                wait_s = min(2 * wait_s, _MAX_RETRY_S)
        if self._book is not None:
            self._book.close()

    def _collect(self, waiting: list[Entry]) -> None:
        """Wait for entries, then take all that are queued, up to a full batch."""
        if not waiting and self._started.is_set() and not self._ending.is_set():
            try:
                waiting += self._queue.get(timeout=self._pause_s())
            except queue.Empty:
                return
        while len(waiting) < _MAX_BATCH:
            try:
                waiting += self._queue.get_nowait()
            except queue.Empty:
                return

    def _pause_s(self) -> float:
        """How long to wait for entries before something else is due."""
        if self._behind:
            return _CATCH_UP_PAUSE_S
        if self._retention is None:
            return _KEYS_POLL_S
        return max(_MIN_PAUSE_S, min(_KEYS_POLL_S, self._prune_at_s - time.monotonic()))

    def _append(self, waiting: list[Entry]) -> None:
        batch = list(waiting)
        book = self._open()
        started = time.perf_counter()
        new = book.append(batch)
        if self.on_commit is not None:
            self._call_in_loop(self.on_commit, time.perf_counter() - started)
        waiting.clear()
        self._call_in_loop(self._on_booked, batch)
        self._log_adopted(new)

    def _append_one_by_one(self, waiting: list[Entry]) -> None:
        """Write entries one by one, because one of them fails. That one stays in the journal for an operator."""
        for entry in list(waiting):
            try:
                new = self._open().append([entry])
            except BookError:
                return
            except Exception as error:  # noqa: BLE001 - it is logged, and the entry is kept
                self._log(f"the entry {entry.id} cannot be booked, and is kept in the journal: {error!r}")
            else:
                self._call_in_loop(self._on_booked, [entry])
                self._log_adopted(new)
            waiting.remove(entry)

    def _log_adopted(self, new: Sequence[Entry]) -> None:
        """Log how many calls of dead gateways were not in the book yet."""
        if not self._adopted:
            return
        adopted = [entry for entry in new if entry.id in self._adopted]
        self._adopted.clear()  # they are all in the first batch
        if adopted:
            calls = "1 call" if len(adopted) == 1 else f"{len(adopted)} calls"
            orphans = sum(entry.outcome == "orphaned" for entry in adopted)
            self._log(
                f"the ledger takes over {calls} that a gateway had not booked when it died: "
                f"{len(adopted) - orphans} had ended, {orphans} orphaned"
            )

    def _reload_keys(self) -> None:
        book = self._open()
        version = book.keys_version()
        changed = version != self._keys_version or self._jwt_teams_changed
        self._jwt_teams_changed = False
        while not self._reread_accounts.empty():
            self._known.pop(self._reread_accounts.get(), None)
        if self._reread_s is not None and time.monotonic() - self._read_at_s >= self._reread_s:
            self._forget_spenders(book)
        if changed:
            self._keys_version = None  # until all that follows has succeeded
        keys = self._read_keys(book) if changed else None
        self._keys = keys or self._keys
        accounts = self._keys.accounts
        unknown = [each for each in accounts.values() if self._known.get(each.id) != each.period]
        for start in range(0, len(unknown), _SPENT_BATCH):
            found = self._read_spent(book, unknown[start : start + _SPENT_BATCH])
            if self.on_spent is not None:
                self._call_in_loop(self.on_spent, found)
        if keys is not None:
            self._known = {id: account.period for id, account in accounts.items()}
            self._keys_version = version
            self._has_keys = True
            self._call_in_loop(self._on_keys, keys)

    def _forget_spenders(self, book: Book) -> None:
        """Have the spending read again of accounts for which any gateway has booked calls since the last time."""
        first = not self._read_at_s
        self._read_place, spenders = book.spenders_after(book.last() if first else self._read_place)
        self._read_at_s = time.monotonic()
        if spenders:
            for id, account in self._keys.accounts.items():
                if account.budget is not None and account.spender.account in spenders:
                    self._known.pop(id, None)

    def _read_spent(self, book: Book, accounts: Sequence[Quota]) -> SpentAccounts:
        now = clock_ms()
        asked = [(each.spender, period_at(each.period, now).since) for each in accounts]
        spent = book.spent_by(asked, recent_since_ms=now - _RECENT_MS)
        self._known |= {account.id: account.period for account in accounts}
        return SpentAccounts(list(zip(accounts, spent, strict=True)), self._keys.budgets)

    def _read_keys(self, book: Book) -> Keys:
        known = KnownKeys(book.keys(), book.teams(), book.members())
        if self.snapshot is not None:
            self.snapshot.write_keys(known)
        return self._resolved(known, book.stopped_calls())

    def _use_snapshot(self) -> None:
        """Use the keys of the local snapshot, if none were read from the book yet."""
        if self.snapshot is None or self._has_keys or (known := self.snapshot.keys()) is None:
            return
        keys = self._resolved(known)
        stored = [key for key in keys.keys if self.snapshot_budgets or not key.budgeted]
        of_jwts = [key for key in keys.of_jwts if self.snapshot_budgets or not key.budgeted]
        self._log(f"the ledger does not answer: {len(stored)} keys are taken from the local snapshot")
        self._call_in_loop(self._on_keys, Keys(stored, of_jwts))
        self._has_keys = True
        self._started.set()

    def _update_snapshot(self, snapshot: LocalSnapshot, book: Book) -> None:
        """Store tokens and sessions if they have changed, and note from time to time that the book answers."""
        version = book.people.version()
        if version != self._people_version:
            sessions = book.people.sessions(clock_ms())
            snapshot.write_users(KnownUsers(book.people.tokens(), sessions))
            self._people_version = version
        if time.monotonic() >= self._confirm_at_s:
            snapshot.confirm()
            self._confirm_at_s = time.monotonic() + _CONFIRM_S

    def _resolved(self, known: KnownKeys, stopped: Mapping[str, int] | None = None) -> Keys:
        chain = Chain(known.teams, known.members)
        of_jwts = [chain.jwt_key(path) for path in sorted(self._jwt_teams & existing(known.teams))]
        return Keys([chain.client_key(key) for key in known.keys], of_jwts, stopped)

    def _claim_warnings(self) -> None:
        while not self._warnings.empty():
            self._unclaimed.append(self._warnings.get())
        if self._unclaimed:
            new = self._open().claim_warnings(self._unclaimed)
            self._unclaimed = []
            if new and self.on_warned is not None:
                self._call_in_loop(self.on_warned, new)

    def _sum_up(self) -> bool:
        """Add calls to the summary if there are enough; returns whether there were."""
        if time.monotonic() < self._sum_at_s:
            return False
        try:
            return self._open().sum_up(_SUM_BATCH)
        except Exception as error:  # noqa: BLE001 - entries can be written without the summary
            self._log(f"the ledger is not summed up, so that views of it are slow: {error}")
            self._sum_at_s = time.monotonic() + _SUM_RETRY_S
            return False

    def _prune(self, retention: Retention) -> None:
        """Archive some calls, or delete the sums of a day; and set the time of the next step."""
        started, now = time.monotonic(), clock_ms()
        try:
            book = self._open()
            moved = book.prune(retention.folder, now - retention.keep_days * DAY_MS, most=_PRUNE_BATCH)
            more = bool(moved)
            if moved == 0 and retention.keep_sums_days is not None:
                more = book.drop_sums(now - retention.keep_sums_days * DAY_MS)
            took = time.monotonic() - started
            otherwise_s = _PRUNE_EVERY_S if moved is not None else _PRUNE_RETRY_S  # another process is pruning
            self._prune_at_s = time.monotonic() + (_PRUNE_PAUSES * took if more else otherwise_s)
        except Exception as error:  # noqa: BLE001 - entries can be written without it
            self._log(f"old calls are not archived: {error}")
            self._prune_at_s = time.monotonic() + _PRUNE_RETRY_S

    def _open(self) -> Book:
        if self._book is None:
            self._book = self._open_book()
        return self._book

    def _call_in_loop(self, callback: "Callable[[object], None] | Callable[..., None]", argument: object) -> None:
        try:
            self._loop.call_soon_threadsafe(callback, argument)
        except RuntimeError:
            return  # the loop is closed

    def _fail(self, reason: str, *, reported: bool = False) -> None:
        if reason != self.trouble and not reported:
            self._log(f"the ledger cannot be written, its entries wait: {reason}")
        self.trouble = reason

    def _recover(self) -> None:
        if self.trouble:
            self.trouble = ""
            self._log("the ledger is written again")
