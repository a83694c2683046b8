"""Looks at the book before a request is judged by keys that may be out of date: how many there are."""

import asyncio
from collections.abc import Callable

from penstock.serve.key_looks import _INTERVAL_S, _MAX_WAITING, KeyLooks
from penstock.stores.book.writer import BookWriter


class Book(BookWriter):
    """A book whose looks end when the test says so."""

    def __init__(self) -> None:
        self.trouble, self.alive = "", True
        self.looks: list[Callable[[object], None]] = []
        self.times_s: list[float] = []

    def look(self, then: Callable[[object], None]) -> None:
        """Note the look."""
        self.looks.append(then)
        self.times_s.append(asyncio.get_running_loop().time())


async def until(claim: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not claim():  # noqa: ASYNC110 - what it waits for has no event
            await asyncio.sleep(0.001)


def test_many_unknown_keys_share_one_look() -> None:
    async def guess() -> None:
        book, done = Book(), list[int]()
        looks = KeyLooks(book, None)
        begun = [looks.look(lambda number=number: done.append(number), unknown_key=True) for number in range(1_000)]  # type: ignore[misc]
        assert begun.count(True) == _MAX_WAITING
        await until(lambda: len(book.looks) == 1)
        assert looks.look(lambda: done.append(-1), unknown_key=True)
        assert not done
        book.looks[0](None)
        await until(lambda: len(book.looks) == 2)
        assert book.times_s[1] - book.times_s[0] >= _INTERVAL_S * 0.9
        assert done == list(range(_MAX_WAITING))
        book.looks[1](None)
        await until(lambda: done[-1] == -1)

    asyncio.run(guess())


def test_a_request_without_a_key_looks_only_if_keys_have_changed() -> None:
    async def ask() -> None:
        book, changes, done = Book(), [7], list[str]()
        looks = KeyLooks(book, lambda: changes[0])
        assert not looks.look(lambda: done.append("unchanged"), unknown_key=False)
        changes[0] = 8
        assert looks.look(lambda: done.append("changed"), unknown_key=False)
        await until(lambda: len(book.looks) == 1)
        book.looks[0](None)
        await until(lambda: done == ["changed"])
        assert not looks.look(lambda: done.append("unchanged"), unknown_key=False)
        book.trouble = "the database is away"
        assert not looks.look(lambda: done.append("trouble"), unknown_key=True)

    asyncio.run(ask())
