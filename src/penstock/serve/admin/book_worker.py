"""BookWorker: a thread that queries the book for the admin API, with its own connection. The event loop never waits.

The queue is bounded. A request that does not fit is refused with 503.
"""

import asyncio
import queue
import threading
from collections.abc import Callable
from typing import TypeVar

from penstock.errors import BookError
from penstock.gateway.billing.book import Book

T = TypeVar("T")
# A query takes milliseconds, or seconds over very many entries.
_MAX_QUEUED = 32
_IDLE_S = 2.0
_CLOSE_S = 1.0


class BookWorker:
    """Runs queries in its thread, and passes the results to the event loop that created it."""

    def __init__(self, open_book: Callable[[], Book]) -> None:
        self._loop = asyncio.get_running_loop()
        self._open_book = open_book
        self._book: Book | None = None
        self._queue: queue.Queue[Callable[[], None] | None] = queue.Queue(_MAX_QUEUED)
        self._thread = threading.Thread(target=self._run, daemon=True, name="penstock-admin")
        self._thread.start()

    def submit(self, work: Callable[[Book], T], then: Callable[[T | Exception], None]) -> bool:
        """Run `work` in the thread, then call `then` in the event loop with its result or error.

        Returns False if the queue is full.
        """

        def job() -> None:
            result: T | Exception
            try:
                if self._book is None:
                    self._book = self._open_book()
                result = work(self._book)
            except BookError as error:
                result = error
                self._close_book()  # its file may have been moved; the next query opens it again
            except Exception as error:  # noqa: BLE001 - it is the result
                result = error
            try:
                self._loop.call_soon_threadsafe(then, result)
            except RuntimeError:
                return  # the loop is closed: the process ends

        try:
            self._queue.put_nowait(job)
        except queue.Full:
            return False
        return True

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
                job = self._queue.get(timeout=None if self._book is None else _IDLE_S)
            except queue.Empty:
                self._close_book()  # so that its file can be moved while it is not in use
                continue
            if job is None:
                self._close_book()
                return
            job()

    def _close_book(self) -> None:
        book, self._book = self._book, None
        if book is not None:
            try:
                book.close()
            except BookError:
                return  # it is not used any more
