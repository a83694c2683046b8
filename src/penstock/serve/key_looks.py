"""KeyLooks: has the keys of the book read again before a request is judged by keys that may be out of date.

The thread of the book reads changes of keys about once a second. That is too late for two requests:

- one with a well-formed key that is not known: the key may be new, created by any process on any machine;
- one without a key, while no key is required: the first key closes the gateway. A ledger in a file has a mark of
  its last change beside it, which is read from memory. Any other ledger has to be queried.

Such a request waits for a look at the book, which all that wait share. Looks are at least `_INTERVAL_S` apart, and few
requests may wait, so that guessing keys does not load the database.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from functools import partial

from penstock.stores.book.writer import BookWriter

_INTERVAL_S = 0.05
_MAX_WAITING = 200
# A request does not wait longer for a database that does not respond: it is judged by the keys that are known.
_MAX_WAIT_S = 1.0


class KeyLooks:
    """The looks of one process, in its event loop. `mark` reads what is another after each change of keys."""

    def __init__(self, book_writer: BookWriter, mark: Callable[[], bytes] | None) -> None:
        """Construct it before the book writer starts."""
        self._loop = asyncio.get_running_loop()
        self._book_writer = book_writer
        self._mark = mark
        self._seen = mark() if mark is not None else None
        self._waiting: list[Callable[[], None]] = []
        self._task: asyncio.Task[None] | None = None
        self._last_s = -_INTERVAL_S

    def is_current(self) -> bool:
        """Whether it is certain that no key has changed since the last look."""
        return self._mark is not None and self._mark() == self._seen

    def look(self, then: Callable[[], None]) -> bool:
        """Call `then` after a look at the book. Returns False if none is possible."""
        if self._book_writer.trouble or not self._book_writer.alive or len(self._waiting) >= _MAX_WAITING:
            return False
        self._waiting.append(then)
        if self._task is None:
            self._task = self._loop.create_task(self._run())
        return True

    async def _run(self) -> None:
        while self._waiting:
            await asyncio.sleep(self._last_s + _INTERVAL_S - self._loop.time())
            waiting, self._waiting = self._waiting, []
            self._last_s, mark = self._loop.time(), self._mark() if self._mark is not None else None
            looked: asyncio.Future[None] = self._loop.create_future()
            self._book_writer.look(partial(_resolve, looked))
            with suppress(TimeoutError):
                async with asyncio.timeout(_MAX_WAIT_S):
                    await looked
                self._seen = mark
            for then in waiting:
                then()
        self._task = None


def _resolve(looked: asyncio.Future[None], _: object) -> None:
    if not looked.done():
        looked.set_result(None)
