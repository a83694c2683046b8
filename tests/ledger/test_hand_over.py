"""Ended calls are passed to the book writer in batches: soon, and when the gateway shuts down."""

import asyncio
from pathlib import Path

from penstock.gateway.billing.queries import Filter
from penstock.gateway.config.load import load
from penstock.gateway.record.attempt import Attempt
from penstock.gateway.record.call import Call
from penstock.serve.bookkeeping import Bookkeeping
from penstock.stores.book.open import open_book

CALLS = 30


def settled(books: Bookkeeping, number: int) -> None:
    """A call that has ended."""
    call = Call(f"call-{number}", "m", stream=True, started=0.0, at_ms=number)
    call.progress.attempts = [Attempt("main", "m", ending="completed")]
    call.progress.ending = "completed"
    books.ledger.settle(call)


def test_calls_are_booked_soon_and_together(tmp_path: Path) -> None:
    config, took = load(_written(tmp_path), env={}), list[float]()

    async def run() -> tuple[int, int]:
        books, booked = Bookkeeping(config, {}, print), asyncio.Event()

        def committed(seconds: float) -> None:
            took.append(seconds)
            booked.set()

        books.watch(committed, lambda _store, _up: None)
        for number in range(CALLS):
            settled(books, number)
        waited = books.waiting[0]
        await asyncio.wait_for(booked.wait(), 30)
        await books.close()
        return waited, books.waiting[0]

    assert asyncio.run(run()) == (CALLS, 0)
    assert len(took) == 1


def test_who_ends_at_once_has_them_booked(tmp_path: Path) -> None:
    config = load(_written(tmp_path), env={})

    async def run() -> None:
        books = Bookkeeping(config, {}, print)
        for number in range(CALLS):
            settled(books, number)
        await books.close()

    asyncio.run(run())
    book = open_book(config.ledger, {})
    assert len(book.entries(Filter(), limit=100)) == CALLS
    book.close()
    assert not list((tmp_path / "state" / "journal").iterdir())


def _written(folder: Path) -> Path:
    file = folder / "penstock.toml"
    file.write_text(f'[ledger]\nfolder = "{folder / "state"}"\n')
    return file
