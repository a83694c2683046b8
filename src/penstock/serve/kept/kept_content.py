"""KeptContent: the content store of one process: its threads, and the pseudonyms of end users in it.

The threads start with the process if it keeps content, otherwise when they are first needed.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TypeVar

from penstock.amounts import DAY_MS
from penstock.gateway.config import Config
from penstock.gateway.content.kept_record import History, HistoryLimits, KeptRecord
from penstock.serve.kept.answer_store import KIND
from penstock.stores.content import call_record
from penstock.stores.content.end_users import EndUsers
from penstock.stores.content.open import has_content, open_content
from penstock.stores.content.sql_content import SqlContent
from penstock.stores.content.writer import ContentStoreWriter, OnKept
from penstock.stores.query_thread import QueryThread, result_of

_SECRET = "answer ids"
# How long the start waits for the database, and how long the last writes may take.
_START_S = 5.0
_CLOSE_S = 5.0
# Reads that wait at the same time. A read takes about a millisecond.
_MAX_READS = 1_000

T = TypeVar("T")


class KeptContent:
    """The content store of one process. Used by the event loop's thread.

    It is an `AnswerStore`: an answer continues the one before it, and has only what is new.
    """

    whole = False
    max_record: int | None = None
    missing = ""

    def __init__(self, config: Config, environment: Mapping[str, str], warn: Callable[[str], None]) -> None:
        """Raises `BookError` if the store is needed and can never work."""
        self._loop = asyncio.get_running_loop()
        self._open = partial(open_content, config.ledger, environment)
        self._writer = ContentStoreWriter(self._open, self._on_open, warn)
        self._call_writer: ContentStoreWriter | None = None
        self._warn = warn
        self._reader: QueryThread[SqlContent] | None = None
        self._started = False
        self.users = EndUsers(self.change)
        self.secret = b""
        """The secret of the ids of kept answers; empty until the store has been opened."""
        self.use(config)
        if config.responses.store:
            self._start(_START_S)
        else:
            # What was kept before is deleted in its time.
            found = self._loop.run_in_executor(None, has_content, config.ledger, environment)
            found.add_done_callback(lambda done: self._start() if done.result() else None)

    def use(self, config: Config) -> None:
        """Apply a configuration."""
        self._writer.limits = {KIND: config.responses.max_total, call_record.KIND: config.content.max_total}
        self._writer.keep_users_ms = round(config.users.keep_days * DAY_MS)

    @property
    def trouble(self) -> str:
        """Why content cannot be written now; empty while it can."""
        return self._writer.trouble

    @property
    def calls_trouble(self) -> str:
        """Why the content of calls cannot be written now; empty while it can."""
        return self._call_writer.trouble if self._call_writer is not None else ""

    def put(self, record: KeptRecord, then: OnKept) -> None:
        """Write a record, durably, and call `then`."""
        self._start()
        self._writer.put(record, then)

    def change(self, work: Callable[[SqlContent], T], then: Callable[[T | Exception], None]) -> None:
        """Run `work` in the thread that writes, then call `then` with its result or error."""
        self._start()
        self._writer.change(work, then)

    def change_calls(self, work: Callable[[SqlContent], T], then: Callable[[T | Exception], None]) -> None:
        """Run `work` in the thread that writes the content of calls, for which no client waits; then call `then`."""
        self._start()
        if self._call_writer is None:
            self._call_writer = ContentStoreWriter(self._open, lambda _: None, self._warn)
            self._call_writer.start(0.0)
        self._call_writer.change(work, then)

    def read(self, work: Callable[[SqlContent], T], then: Callable[[T | Exception], None]) -> bool:
        """Run `work` in the thread that reads, then call `then`. Returns False if too many reads wait."""
        if self._reader is None:
            self._reader = QueryThread(self._open, "penstock-content-reader", _MAX_READS)
        return self._reader.submit(work, then)

    async def record(self, owner: str, id: str) -> KeptRecord | None:
        """An answer."""
        return await result_of(self.read, lambda store: store.record(KIND, owner, id))

    async def history(self, owner: str, id: str, limits: HistoryLimits) -> History:
        """An answer and those before it."""
        return await result_of(self.read, lambda store: store.history(KIND, owner, id, limits))

    async def named(self, owner: str, names: Sequence[str], limits: HistoryLimits) -> tuple[KeptRecord, ...]:
        """The answers with these names."""
        return await result_of(self.read, lambda store: store.named(KIND, owner, names, limits))

    async def delete(self, owner: str, id: str) -> bool:
        """Delete an answer; returns whether it existed."""
        return await result_of(self.change, lambda store: store.delete(KIND, owner, id))

    async def named_secret(self, name: str) -> bytes:
        """A random secret that all users of the database share."""
        return await result_of(self.change, lambda store: store.secret(name))

    def close(self) -> None:
        """Write what is queued, and end the threads. It blocks for some seconds at most."""
        if self._call_writer is not None:
            self._call_writer.close(_CLOSE_S)
        self._writer.close(_CLOSE_S)
        if self._reader is not None:
            self._reader.close()

    def _start(self, wait_s: float = 0.0) -> None:
        if not self._started:
            self._started = True
            self._writer.start(wait_s)

    def _on_open(self, store: SqlContent) -> None:
        """Called in the writer's thread. Another store than before may have other users."""
        self.secret = store.secret(_SECRET)
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self.users.forget)
