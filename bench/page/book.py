"""A book of very many calls (`tests/stores/many_calls.py`), written by the store itself."""

import time
from pathlib import Path

from penstock.gateway.config import LedgerSettings
from penstock.gateway.keys.keys import Key
from penstock.gateway.record.entry import Entry
from penstock.stores.book.open import open_book
from tests.stores.many_calls import KEYS, RARE_KEY, entries

BATCH = 5_000


def make(folder: Path, calls: int) -> None:
    """Write a book with this many calls until now, and its keys."""
    book = open_book(LedgerSettings(folder=str(folder)), {})
    try:
        book.change_keys(lambda *_: _keys())
        batch: list[Entry] = []
        for entry in entries(calls, time.time_ns() // 1_000_000):
            batch.append(entry)
            if len(batch) == BATCH:
                book.append(batch)
                batch.clear()
        book.append(batch)
        while book.sum_up(BATCH):  # as the book writer does
            continue
    finally:
        book.close()


def _keys() -> list[Key]:
    ids = [*(f"key_{number:012d}" for number in range(KEYS + 1)), RARE_KEY]
    return [
        Key(
            id=id,
            name=f"client {id[-2:]}",
            digest=index.to_bytes(32, "big"),
            hint="abcd",
            created_ms=index,
            budget=10**13,
        )
        for index, id in enumerate(ids)
    ]
