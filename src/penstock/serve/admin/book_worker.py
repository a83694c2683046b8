"""BookWorker: one thread that asks the book for the admin API, on a connection of its own. The event loop never waits.

Who finds too many before them is told to come again.
"""

import asyncio
import queue
import threading
from collections.abc import Callable
from typing import TypeVar

from penstock.errors import BookError
from penstock.gateway.billing.book import Book

T = TypeVar("T")
# A question takes milliseconds, or seconds over very many entries.
_MOST_WAITING = 32
_IDLE_S = 2.0
_CLOSE_S = 1.0


class BookWorker:
    """Belongs to an event loop, which is told the answers."""

    def __init__(self, open_book: Callable[[], Book]) -> None:
        self._loop = asyncio.get_running_loop()
        self._open_book = open_book
        self._book: Book | None = None
        self._waiting: queue.Queue[Callable[[], None] | None] = queue.Queue(_MOST_WAITING)
        self._thread = threading.Thread(target=self._run, daemon=True, name="penstock-admin")
        self._thread.start()

    def ask(self, work: Callable[[Book], T], then: Callable[[T | Exception], None]) -> bool:
        """Have work done with the book, and `then` told what came of it; False if too many wait already."""

        def job() -> None:
            answer: T | Exception
            try:
                if self._book is None:
                    self._book = self._open_book()
                answer = work(self._book)
            except BookError as error:
                answer = error
                self._let_go()  # it may have been moved away, or have come back
            except Exception as error:  # noqa: BLE001 - it is told
                answer = error
            try:
                self._loop.call_soon_threadsafe(then, answer)
            except RuntimeError:
                return  # the loop is closed: nobody is there to be told

        try:
            self._waiting.put_nowait(job)
        except queue.Full:
            return False
        return True

    def close(self) -> None:
        """End, soon."""
        try:
            self._waiting.put_nowait(None)
        except queue.Full:
            return
        self._thread.join(_CLOSE_S)

    def _run(self) -> None:
        while True:
            try:
                job = self._waiting.get(timeout=None if self._book is None else _IDLE_S)
            except queue.Empty:
                self._let_go()  # it may be moved away until somebody asks again
                continue
            if job is None:
                self._let_go()
                return
            job()

    def _let_go(self) -> None:
        book, self._book = self._book, None
        if book is not None:
            try:
                book.close()
            except BookError:
                return  # it was of no use any more
