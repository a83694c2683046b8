"""The writer reports whether its thread is booking, whatever happened to that thread."""

import asyncio
import time
from pathlib import Path

import pytest

from penstock.errors import BookError
from penstock.gateway.billing.book import Book
from penstock.stores.book.writer import BookWriter
from tests.stores.places import SqlitePlace


def test_it_is_alive_from_its_start_to_its_end(tmp_path: Path) -> None:
    async def run() -> list[bool]:
        writer = BookWriter(SqlitePlace(tmp_path).open, lambda _booked: None, lambda _keys: None, print)
        alive = [writer.alive]
        writer.start([], 10)
        alive.append(writer.alive)
        writer.close(10)
        return [*alive, writer.alive]

    assert asyncio.run(run()) == [False, True, False]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_one_that_dies_of_an_error_is_not_alive() -> None:
    def no_book() -> Book:
        raise BookError("there is none")

    def fail(_reported: str) -> None:
        raise OSError("nobody can be told")

    async def run() -> None:
        writer = BookWriter(no_book, lambda _booked: None, lambda _keys: None, fail)
        writer.start([], 0.01)
        deadline = time.monotonic() + 10
        while writer.alive:
            assert time.monotonic() < deadline, "it is taken for alive"
            await asyncio.sleep(0.01)

    asyncio.run(run())
