"""ContentStoreWriter: a thread that writes kept content and deletes what has expired. The event loop never waits.

Records that wait are written in one transaction. A record is not retried: the caller waits for it, and learns at once
that it is not kept. While the database fails, the thread tries to reach it again every two seconds.
"""

import asyncio
import queue
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias, TypeVar

from msgspec import Struct

from penstock.amounts import clock_ms
from penstock.errors import BookError, BookUnusableError
from penstock.gateway.content.kept_record import KeptRecord
from penstock.stores.content.sql_content import SqlContent

# Records in one transaction.
_MAX_BATCH = 100
# Bytes that may wait to be written. A record may have ten million; a disk writes more than that in a second.
_MAX_QUEUED = 100_000_000
# How often expired content is looked for; how many records are deleted at once; and the pause if there are more.
_PRUNE_S = 10.0
_PRUNE_BATCH = 100
_PRUNE_PAUSE_S = 0.05
_RETRY_S = 2.0

T = TypeVar("T")
OnKept: TypeAlias = Callable[[str], None]
"""Called in the event loop, with the reason if a record is not kept; empty if it is."""


class _NewRecord(Struct, frozen=True, eq=False):
    record: KeptRecord
    then: OnKept


class _Change(Struct, frozen=True, eq=False):
    """`work`, whose result or error is passed to `then`."""

    work: Callable[[SqlContent], object]
    then: Callable[..., None]


_Job: TypeAlias = _NewRecord | _Change


class ContentStoreWriter:
    """Writes the content of one process. All callbacks are called in its event loop."""

    def __init__(
        self,
        open_store: Callable[[], SqlContent],
        on_open: Callable[[SqlContent], None],
        log: Callable[[str], None],
    ) -> None:
        """`on_open` is called in the thread with the store, each time it was opened."""
        self._loop = asyncio.get_running_loop()
        self._open_store = open_store
        self._on_open = on_open
        self._log = log
        self._store: SqlContent | None = None
        self._queue: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._put_bytes = 0  # written by the event loop's thread only, as `_taken_bytes` by this one
        self._taken_bytes = 0
        self._ending = threading.Event()
        self._started = threading.Event()
        self._unusable: BookUnusableError | None = None
        self._prune_at_s = 0.0
        self.limits: Mapping[str, int] = {}
        """The maximum bytes of each kind of record. Replace it, never mutate it."""
        self.keep_users_ms: int | None = None
        """How long the name of an end user is kept after its last call; None keeps it."""
        self._awaited = False
        self.trouble = ""
        """Why content cannot be written now; empty while it can."""
        self._thread = threading.Thread(target=self._run, daemon=True, name="penstock-content")

    def start(self, wait_s: float) -> None:
        """Start; returns when the store is open, or after `wait_s`. Raises `BookUnusableError` if it never can be."""
        self._awaited = wait_s > 0
        self._thread.start()
        self._started.wait(wait_s)
        if self._unusable is not None:
            raise self._unusable

    def put(self, record: KeptRecord, then: OnKept) -> None:
        """Write a record, durably, and call `then`; at once, if too much waits already."""
        size = _size(record)
        if self._put_bytes - self._taken_bytes + size > _MAX_QUEUED:
            then("the database is too slow for the responses that are waiting")
            return
        self._put_bytes += size
        self._queue.put(_NewRecord(record, then))

    def change(self, work: Callable[[SqlContent], T], then: Callable[[T | Exception], None]) -> None:
        """Run `work` in the thread, then call `then` with its result or error."""
        self._queue.put(_Change(work, then))

    def close(self, wait_s: float) -> None:
        """Write what is queued, and stop."""
        self._ending.set()
        self._queue.put(None)
        if self._thread.is_alive():
            self._thread.join(wait_s)

    # Called in the thread.

    def _run(self) -> None:
        while True:
            batch = self._collect()
            try:
                self._perform(self._open(), batch)
                self._prune(self._open())
            except BookError as error:
                self._fail(error)
            except Exception as error:  # noqa: BLE001 - callers wait, and the next batch may be written
                self._log(f"kept content cannot be written: {type(error).__name__}")
                self._prune_at_s = time.monotonic() + _RETRY_S  # not at once: it may fail for ever
            else:
                self._recover()
            for job in batch[:]:  # what has not been done
                reason = self.trouble or "the gateway failed"
                self._finish(batch, job, reason if isinstance(job, _NewRecord) else BookError(reason))
            self._started.set()
            if self._ending.is_set() and self._queue.empty():
                break
        self._close_store()

    def _collect(self) -> list[_Job]:
        """Wait for jobs, or until it is time to look for expired content."""
        wait_s = _RETRY_S if self.trouble else max(0.0, self._prune_at_s - time.monotonic())
        batch: list[_Job] = []
        try:
            job = self._queue.get(timeout=wait_s)
            while job is not None:
                batch.append(job)
                if len(batch) >= _MAX_BATCH:
                    break
                job = self._queue.get_nowait()
        except queue.Empty:
            pass
        return batch

    def _perform(self, store: SqlContent, batch: list[_Job]) -> None:
        """Do the jobs, and remove those that are done from the batch."""
        new = [job for job in batch if isinstance(job, _NewRecord)]
        if new and self._put_all(store, new):
            for written in new:
                self._finish(batch, written, "")
        for job in batch[:]:
            self._finish(batch, job, self._put_one(store, job) if isinstance(job, _NewRecord) else job.work(store))

    def _put_all(self, store: SqlContent, new: Sequence[_NewRecord]) -> bool:
        """Write records together. Returns False if one of them is defective: the others are written without it."""
        try:
            store.put([job.record for job in new])
        except BookError:
            raise
        except Exception:  # noqa: BLE001 - `_put_one` reports it
            return False
        return True

    def _put_one(self, store: SqlContent, job: _NewRecord) -> str:
        """Write one record. Returns the reason if it cannot be stored, without text that may be content."""
        try:
            store.put([job.record])
        except BookError:
            raise
        except Exception as error:  # noqa: BLE001 - the caller reports it
            return f"it cannot be stored ({type(error).__name__})"
        return ""

    def _finish(self, batch: list[_Job], job: _Job, result: object) -> None:
        batch.remove(job)
        if isinstance(job, _NewRecord):
            self._taken_bytes += _size(job.record)
        self._call_in_loop(job.then, result)

    def _prune(self, store: SqlContent) -> None:
        if time.monotonic() < self._prune_at_s:
            return
        deleted = sum(store.prune(kind, max_total, _PRUNE_BATCH) for kind, max_total in self.limits.items())
        if self.keep_users_ms is not None:
            deleted += store.users.prune(clock_ms() - self.keep_users_ms, _PRUNE_BATCH)
        self._prune_at_s = time.monotonic() + (_PRUNE_PAUSE_S if deleted else _PRUNE_S)

    def _open(self) -> SqlContent:
        if self._store is not None and self._store.moved:
            self._close_store()
        if self._store is None:
            self._store = self._open_store()
            self._on_open(self._store)
        return self._store

    def _close_store(self) -> None:
        store, self._store = self._store, None
        if store is not None:
            try:
                store.close()
            except BookError:
                return  # it is not used any more

    def _fail(self, error: BookError) -> None:
        if isinstance(error, BookUnusableError) and self._awaited and not self._started.is_set():
            self._unusable = error  # `start` raises it
        elif str(error) != self.trouble:
            self._log(f"kept content cannot be written: {error}")
        self.trouble = str(error)
        self._close_store()

    def _recover(self) -> None:
        if self.trouble:
            self.trouble = ""
            self._log("kept content is written again")

    def _call_in_loop(self, callback: Callable[..., None], argument: object) -> None:
        try:
            self._loop.call_soon_threadsafe(callback, argument)
        except RuntimeError:
            return  # the loop is closed


def _size(record: KeptRecord) -> int:
    return sum(map(len, record.parts.values()))
