"""QueryThread: a thread that queries a database, with its own connection, so that the event loop never waits for it.

The queue is bounded. A request that does not fit is refused with 503.
"""

import asyncio
import queue
import threading
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

from penstock.errors import BookError

T = TypeVar("T")
# A query takes milliseconds, or seconds over very many entries of the ledger.
MAX_QUEUED = 32
_IDLE_S = 2.0
_CLOSE_S = 1.0


class Closable(Protocol):
    """An open database: the book, or the store of kept content."""

    def close(self) -> None:
        """Close it."""


Store = TypeVar("Store", bound=Closable)


class QueueFullError(BookError):
    """Too many queries wait already."""


StoreQueried = TypeVar("StoreQueried", covariant=True)


class SubmitQuery(Protocol[StoreQueried]):
    """Starts work in a thread, and then passes on its result or error. Returns False if too much waits already."""

    def __call__(self, work: Callable[[StoreQueried], T], then: Callable[[T | Exception], None], /) -> bool | None: ...


async def awaited(submit: SubmitQuery[StoreQueried], work: Callable[[StoreQueried], T]) -> T | Exception:
    """The result of work in a thread, or why there is none."""
    done: asyncio.Future[T | Exception] = asyncio.get_running_loop().create_future()

    def then(result: T | Exception) -> None:
        if not done.done():
            done.set_result(result)

    if submit(work, then) is False:
        return QueueFullError("too many requests wait for the database")
    return await done


async def result_of(submit: SubmitQuery[StoreQueried], work: Callable[[StoreQueried], T]) -> T:
    """The result of work in a thread. Raises its error."""
    result = await awaited(submit, work)
    try:
        if isinstance(result, Exception):
            raise result
        return result
    finally:
        del result  # the traceback of an error refers to this frame: a cycle, which would keep what others refer to


class QueryThread(Generic[Store]):
    """Runs queries in its thread, and passes the results to the event loop that created it."""

    def __init__(self, open_store: Callable[[], Store], name: str, max_queued: int = MAX_QUEUED) -> None:
        self._loop = asyncio.get_running_loop()
        self._open_store = open_store
        self._store: Store | None = None
        self._queue: queue.Queue[Callable[[], None] | None] = queue.Queue(max_queued)
        self._thread = threading.Thread(target=self._run, daemon=True, name=name)
        self._thread.start()

    def submit(self, work: Callable[[Store], T], then: Callable[[T | Exception], None]) -> bool:
        """Run `work` in the thread, then call `then` in the event loop with its result or error.

        Returns False if the queue is full.
        """

        def job() -> None:
            result: T | Exception
            try:
                if self._store is None:
                    self._store = self._open_store()
                result = work(self._store)
            except BookError as error:
                result = error
                self._close_store()  # its file may have been moved; the next query opens it again
            except Exception as error:  # noqa: BLE001 - it is the result
                result = error
            try:
                self._loop.call_soon_threadsafe(then, result)
            except RuntimeError:
                return  # the loop is closed: the process ends
            finally:
                del result  # the traceback of an error refers to this frame: a cycle

        try:
            self._queue.put_nowait(job)
        except queue.Full:
            return False
        return True

    async def run(self, work: Callable[[Store], T]) -> T | Exception:
        """The result of work in the thread, or why there is none."""
        return await awaited(self.submit, work)

    def close(self) -> None:
        """End the thread; wait at most `_CLOSE_S` for it."""
        try:
            self._queue.put_nowait(None)
        except queue.Full:
            return
        self._thread.join(_CLOSE_S)

    def _run(self) -> None:
        while True:
            try:
                job = self._queue.get(timeout=None if self._store is None else _IDLE_S)
            except queue.Empty:
                self._close_store()  # so that its file can be moved while it is not in use
                continue
            if job is None:
                self._close_store()
                return
            job()
            del job  # so that nothing of it lives until the next one

    def _close_store(self) -> None:
        store, self._store = self._store, None
        if store is not None:
            try:
                store.close()
            except BookError:
                return  # it is not used any more
