"""Measures how many entries per second the ledger can write durably: `scripts/bench-ledger`.

Entries are booked in batches, as the book writer does it: each batch is one transaction, which is on the disk when it
counts. The time of the journal is measured too, because a call itself waits only for the journal. Figures are medians
of rounds that take turns.
"""

import argparse
import statistics
import sys
import tempfile
import time
from pathlib import Path

from penstock.core.hub.usage import Tokens
from penstock.errors import BookError
from penstock.gateway.config import LedgerSettings, Secret
from penstock.gateway.record.entry import AttemptEntry, Entry
from penstock.stores.book.open import open_book
from penstock.stores.book.sql_book import Book
from penstock.stores.journal import Journal

BATCHES = (1, 10, 50, 200)
# The approximate duration of a round of one kind.
SECONDS = 0.5
SUMMED_AT_ONCE = 2_000
MOST_SUMMED = 40_000


def entry(number: int) -> Entry:
    attempt = AttemptEntry(
        provider="groq",
        model="llama-3.3-70b-versatile",
        outcome="completed",
        status=200,
        measure="reported",
        tokens=Tokens(input=812, output=240, cached=512),
        cost=1_234_000,
        price="genai-prices 0.2.1",
        first_event_ms=231,
        duration_ms=2_430,
        events=243,
    )
    return Entry(
        id=f"req_{number:024x}",
        at_ms=1_790_000_000_000 + number,
        key="key_0123456789ab",
        model="fast",
        stream=True,
        outcome="completed",
        status=200,
        first_event_ms=233,
        duration_ms=2_433,
        tags={"team": "search"},
        attempts=(attempt,),
    )


def book_round(book: Book, batch: int, first: int) -> tuple[float, int]:
    """Entries per second, and the number of the next one."""
    began = time.perf_counter()
    number = first
    while (passed := time.perf_counter() - began) < SECONDS:
        book.append([entry(number + index) for index in range(batch)])
        number += batch
    return (number - first) / passed, number


def journal_round(journal: Journal, first: int) -> tuple[float, int]:
    """Microseconds for a call: opened, settled and forgotten; and the number of the next one."""
    began = time.perf_counter()
    count = 20_000
    for number in range(first, first + count):
        kept = entry(number)
        journal.opened(kept)
        journal.settled(kept)
        journal.booked((kept.id,))
    return (time.perf_counter() - began) / count * 1e6, first + count


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/bench-ledger", description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--rounds", type=int, default=5, help="how often each has its turn (default: 5)")
    parser.add_argument("--folder", type=Path, help="where to write (default: a temporary folder beside the project)")
    parser.add_argument(
        "--postgres", help="the URL of a PostgreSQL database to measure too; it is left with the entries"
    )
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix=".bench-ledger-", dir=options.folder or Path.cwd()) as folder:
        books: dict[str, Book] = {"SQLite": open_book(LedgerSettings(folder=folder), {})}
        if options.postgres:
            try:
                books["PostgreSQL"] = open_book(LedgerSettings(postgres=Secret(options.postgres, "--postgres")), {})
            except BookError as error:
                print(f"penstock: {error}", file=sys.stderr)
                return 2
        measure(books, Journal(Path(folder) / "journal", 16_000_000), options.rounds)
        for name, book in books.items():
            print(f"summed up for the views, {name}: {sum_up(book):.1f} microseconds for a call")
            book.close()
    return 0


def sum_up(book: Book) -> float:
    """Microseconds per call of the rollups, which the book writer makes after booking; no call waits for them."""
    began, calls = time.perf_counter(), 0
    while calls < MOST_SUMMED and book.sum_up(SUMMED_AT_ONCE):
        calls += SUMMED_AT_ONCE
    return (time.perf_counter() - began) / max(1, calls) * 1e6


def measure(books: dict[str, Book], journal: Journal, rounds: int) -> None:
    figures: dict[tuple[str, int], list[float]] = {}
    calls: list[float] = []
    number = time.time_ns()
    for _ in range(rounds):
        figure, number = journal_round(journal, number)
        calls.append(figure)
        for name, book in books.items():
            for batch in BATCHES:
                figure, number = book_round(book, batch, number)
                figures.setdefault((name, batch), []).append(figure)
    journal.close()
    print(f"the journal: {statistics.median(calls):.1f} microseconds for a call\n")
    print("durable entries per second, by how many are booked together")
    print(f"{'':12}" + "".join(f"{batch:>10}" for batch in BATCHES))
    for name in books:
        medians = (statistics.median(figures[name, batch]) for batch in BATCHES)
        print(f"{name:12}" + "".join(f"{median:>10,.0f}" for median in medians))


if __name__ == "__main__":
    sys.exit(main())
