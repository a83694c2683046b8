"""BookWriter: books entries, many at a time, in a thread of its own; and reads the keys again whenever they change.

In between it sums up what is booked, so that no view has to count it: some thousand calls at a time, once as many wait.

The book belongs to this thread: nobody else waits for the disk or the database. While the book cannot take entries they
wait here and in the journal, and are tried again until it can.
"""

import asyncio
import queue
import threading
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from penstock.errors import BookError, BookUnusableError
from penstock.gateway.billing.book import Book, Spent
from penstock.gateway.billing.entry import Entry
from penstock.gateway.keys.keys import Key
from penstock.gateway.limits.period import span

# So many are booked together, and those that came with the last of them.
_MOST_AT_ONCE = 2_000
# How soon a key that was made or revoked counts.
_LOOK_S = 1.0
# Calls that were booked so long ago are nobody's any more.
_RECENT_MS = 300_000
# Calls that are summed up together. Fewer would cost more for each; the last that are not yet are counted by who asks.
_SUMMED_AT_ONCE = 2_000
# Between two such while more wait, as after an upgrade: others have something to do, too.
_BREATH_S = 0.05
# If that fails, it is tried again after so long. Views are right without, but slow.
_SUM_AGAIN_S = 60.0
_FIRST_WAIT_S = 0.05
_LONGEST_WAIT_S = 2.0


class Keys(NamedTuple):
    """All keys, and what each has spent in its period, by the book."""

    keys: list[Key]
    spent: dict[str, Spent]


class BookWriter:
    """Writes one process's entries into the book. `on_booked` and `on_keys` are called in its event loop."""

    def __init__(
        self,
        open_book: Callable[[], Book],
        on_booked: Callable[[Sequence[Entry]], None],
        on_keys: Callable[[Keys], None],
        say: Callable[[str], None],
        again_s: float | None = None,
    ) -> None:
        """`again_s`: how often to ask what keys have spent, if others may write the book too."""
        self._loop = asyncio.get_running_loop()
        self._open_book = open_book
        self._on_booked = on_booked
        self._on_keys = on_keys
        self._say = say
        self._queue: queue.SimpleQueue[Sequence[Entry]] = queue.SimpleQueue()
        self._book: Book | None = None
        self._keys_version: int | None = None
        self._known: set[str] = set()
        self._again_s = again_s
        self._asked_s = 0.0
        self._sum_at_s = 0.0
        self._behind = False
        self._ending = threading.Event()
        self._began = threading.Event()
        self._adopted: set[str] = set()
        self._unusable: BookUnusableError | None = None
        self.on_commit: Callable[[float], None] | None = None
        """Told in the event loop how many seconds the book took for some entries."""
        self.trouble = ""
        """Why the book takes nothing now; empty while it does."""
        self.alive = False
        """Whether anybody is booking."""
        self._thread = threading.Thread(target=self._live, daemon=True, name="penstock-ledger")

    def start(self, first: Sequence[Entry], wait_s: float) -> None:
        """Begin, with entries that others have left; returns when these and the keys are through, or time is up.

        Raises `BookUnusableError` if the book never will be.
        """
        self._adopted = {entry.id for entry in first}
        self._queue.put(first)
        self.alive = True
        self._thread.start()
        self._began.wait(wait_s)
        if self._unusable is not None:
            raise self._unusable

    def put(self, entries: Sequence[Entry]) -> None:
        """Book entries, soon."""
        self._queue.put(entries)

    def close(self, wait_s: float) -> None:
        """Book what waits, if that is possible, and end."""
        self._ending.set()
        self._queue.put(())
        self._thread.join(wait_s)

    # What runs in the thread.

    def _live(self) -> None:
        try:
            self._run()
        finally:
            self.alive = False

    def _run(self) -> None:
        waiting: list[Entry] = []
        wait_s = _FIRST_WAIT_S
        while True:
            self._gather(waiting)
            try:
                if waiting:
                    self._append(waiting)
                self._look_at_keys()
            except BookUnusableError as error:
                self._unusable = error
                self._fail(str(error), told=not self._began.is_set())  # by whoever hears of it from `start`
            except BookError as error:
                self._fail(str(error))
            except Exception as error:  # noqa: BLE001 - whatever it is, entries must not be lost by it
                self._fail(f"the ledger failed: {error!r}")
                self._set_aside(waiting)
            else:
                self._recover()
                wait_s = _FIRST_WAIT_S
            if self._unusable is not None or self._book is not None:
                self._began.set()
            self._behind = not self.trouble and not self._ending.is_set() and self._sum_up()
            if self._ending.is_set() and (not waiting or self.trouble) and self._queue.empty():
                break
            if self.trouble:
                self._ending.wait(wait_s)
                wait_s = min(2 * wait_s, _LONGEST_WAIT_S)
        if self._book is not None:
            self._book.close()

    def _gather(self, waiting: list[Entry]) -> None:
        """Wait for entries; then take those, too, that have come meanwhile."""
        if not waiting and self._began.is_set() and not self._ending.is_set():
            try:
                waiting += self._queue.get(timeout=_BREATH_S if self._behind else _LOOK_S)
            except queue.Empty:
                return
        while len(waiting) < _MOST_AT_ONCE:
            try:
                waiting += self._queue.get_nowait()
            except queue.Empty:
                return

    def _append(self, waiting: list[Entry]) -> None:
        batch = list(waiting)
        book = self._opened()
        began = time.perf_counter()
        new = book.append(batch)
        if self.on_commit is not None:
            self._tell(self.on_commit, time.perf_counter() - began)
        waiting.clear()
        self._tell(self._on_booked, batch)
        self._say_adopted(new)

    def _set_aside(self, waiting: list[Entry]) -> None:
        """One of these cannot be booked at all: book the others. It stays in the journal, for somebody to look at."""
        for entry in list(waiting):
            try:
                new = self._opened().append([entry])
            except BookError:
                return
            except Exception as error:  # noqa: BLE001 - it is told, and kept
                self._say(f"the entry {entry.id} cannot be booked, and is kept in the journal: {error!r}")
            else:
                self._tell(self._on_booked, [entry])
                self._say_adopted(new)
            waiting.remove(entry)

    def _say_adopted(self, new: Sequence[Entry]) -> None:
        """Say how many of the calls that others have left were not in the book."""
        if not self._adopted:
            return
        adopted = [entry for entry in new if entry.id in self._adopted]
        self._adopted.clear()  # they are booked together
        if adopted:
            calls = "1 call" if len(adopted) == 1 else f"{len(adopted)} calls"
            orphans = sum(entry.outcome == "orphaned" for entry in adopted)
            self._say(
                f"the ledger takes over {calls} that a gateway had not booked when it died: "
                f"{len(adopted) - orphans} had ended, {orphans} orphaned"
            )

    def _look_at_keys(self) -> None:
        book = self._opened()
        version = book.keys_version()
        again = self._again_s is not None and time.monotonic() - self._asked_s >= self._again_s
        if version == self._keys_version and not again:
            return
        keys = book.keys()
        now = time.time_ns() // 1_000_000
        asked = [key for key in keys if key.id not in self._known or (again and key.budget is not None)]
        recent_ms = now - (_RECENT_MS if again else 0)
        spent = {key.id: book.spent(key.id, span(key.period, now).since, recent_since_ms=recent_ms) for key in asked}
        self._known |= spent.keys()
        self._keys_version = version
        self._asked_s = time.monotonic()
        self._tell(self._on_keys, Keys(keys, spent))

    def _sum_up(self) -> bool:
        """Sum up calls, if enough wait for it; whether they did."""
        if time.monotonic() < self._sum_at_s:
            return False
        try:
            return self._opened().sum_up(_SUMMED_AT_ONCE)
        except Exception as error:  # noqa: BLE001 - entries are booked all the same
            self._say(f"the ledger is not summed up, so that views of it are slow: {error}")
            self._sum_at_s = time.monotonic() + _SUM_AGAIN_S
            return False

    def _opened(self) -> Book:
        if self._book is None:
            self._book = self._open_book()
        return self._book

    def _tell(self, whom: "Callable[[object], None] | Callable[..., None]", what: object) -> None:
        try:
            self._loop.call_soon_threadsafe(whom, what)
        except RuntimeError:
            return  # the loop is closed: nobody is there to be told

    def _fail(self, reason: str, *, told: bool = False) -> None:
        if reason != self.trouble and not told:
            self._say(f"the ledger cannot be written, its entries wait: {reason}")
        self.trouble = reason

    def _recover(self) -> None:
        if self.trouble:
            self.trouble = ""
            self._say("the ledger is written again")
