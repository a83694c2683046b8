"""Looks at the book before a request is judged by keys that may be out of date: how many there are."""

import asyncio
from collections.abc import Callable
from pathlib import Path

from penstock.gateway.keys.changes import create
from penstock.gateway.keys.terms import KeyTerms
from penstock.serve.key_looks import _INTERVAL_S, _MAX_WAITING, KeyLooks
from penstock.stores.book.sqlite import SqliteBook, watch_changes
from penstock.stores.book.writer import BookWriter


class Book(BookWriter):
    """A book whose looks end when the test says so."""

    def __init__(self) -> None:
        self.trouble, self.alive = "", True
        self.looks: list[Callable[[object], None]] = []

    def look(self, then: Callable[[object], None]) -> None:
        """Note the look."""
        self.looks.append(then)


async def until(claim: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not claim():  # noqa: ASYNC110 - what it waits for has no event
            await asyncio.sleep(0.001)


def test_many_unknown_keys_share_one_look() -> None:
    async def guess() -> None:
        book, done = Book(), list[int]()
        looks = KeyLooks(book, None)
        begun = [looks.look(lambda number=number: done.append(number)) for number in range(1_000)]  # type: ignore[misc]
        assert begun.count(True) == _MAX_WAITING
        await until(lambda: len(book.looks) == 1)
        first_s = looks._last_s
        assert looks.look(lambda: done.append(-1))
        assert not done
        book.looks[0](None)
        await until(lambda: len(book.looks) == 2)
        assert looks._last_s - first_s >= _INTERVAL_S * 0.9
        assert done == list(range(_MAX_WAITING))
        book.looks[1](None)
        await until(lambda: done[-1] == -1)

    asyncio.run(guess())


def test_keys_are_current_until_the_mark_of_their_last_change_is_another(tmp_path: Path) -> None:
    async def ask() -> None:
        path = tmp_path / "state" / "ledger.db"
        book, done = Book(), list[str]()
        looks = KeyLooks(book, watch_changes(path))
        assert looks.is_current()
        ledger = SqliteBook.open(path)
        create(ledger, KeyTerms(name="first"), 0)
        ledger.close()
        assert not looks.is_current()
        assert looks.look(lambda: done.append("changed"))
        await until(lambda: len(book.looks) == 1)
        book.looks[0](None)
        await until(lambda: done == ["changed"])
        assert looks.is_current()
        book.trouble = "the database is away"
        assert not looks.look(lambda: done.append("trouble"))

    asyncio.run(ask())


def test_keys_of_a_book_without_a_mark_are_never_known_to_be_current() -> None:
    async def ask() -> None:
        assert not KeyLooks(Book(), None).is_current()

    asyncio.run(ask())
