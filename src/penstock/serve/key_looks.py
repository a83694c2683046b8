"""KeyLooks: has the keys of the book read again before a request is judged by keys that may be out of date.

The thread of the book reads changes of keys about once a second. That is too late for two requests:

- one with a well-formed key that is not known: the key may be new, created by any process on any machine;
- one without a key, while no key is required: the first key closes the gateway. A ledger in a file has a counter of
  changes beside it, which takes one `stat`. Any other ledger has to be queried.

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
    """The looks of one process, in its event loop. `changes` counts the changes of keys; None without a counter."""

    def __init__(self, book_writer: BookWriter, changes: Callable[[], int] | None) -> None:
        """Construct it before the book writer starts."""
        self._loop = asyncio.get_running_loop()
        self._book_writer = book_writer
        self._changes = changes
        self._seen = self._count()
        self._waiting: list[Callable[[], None]] = []
        self._task: asyncio.Task[None] | None = None
        self._last_s = -_INTERVAL_S

    def look(self, then: Callable[[], None], *, unknown_key: bool) -> bool:
        """Call `then` after a look at the book. Returns False if none is needed, or possible."""
        if self._book_writer.trouble or not self._book_writer.alive or len(self._waiting) >= _MAX_WAITING:
            return False
        if not unknown_key and self._changes is not None and self._changes() == self._seen:
            return False
        self._waiting.append(then)
        if self._task is None:
            self._task = self._loop.create_task(self._run())
        return True

    async def _run(self) -> None:
        while self._waiting:
            await asyncio.sleep(self._last_s + _INTERVAL_S - self._loop.time())
            waiting, self._waiting = self._waiting, []
            self._last_s, changes = self._loop.time(), self._count()
            looked: asyncio.Future[None] = self._loop.create_future()
            self._book_writer.look(partial(_resolve, looked))
            with suppress(TimeoutError):
                async with asyncio.timeout(_MAX_WAIT_S):
                    await looked
                self._seen = changes
            for then in waiting:
                then()
        self._task = None

    def _count(self) -> int:
        return self._changes() if self._changes is not None else 0


def _resolve(looked: asyncio.Future[None], _: object) -> None:
    if not looked.done():
        looked.set_result(None)
