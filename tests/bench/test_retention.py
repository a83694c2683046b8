"""The ledger of `scripts/bench-retention`: its copied sums are those that the store would have made of its calls."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from bench.page.book import BATCH
from bench.retention import fill
from penstock.gateway.config import LedgerSettings
from penstock.stores.book.open import open_book

pytestmark = pytest.mark.slow

_COPIES = 2
_NAMED = "SELECT provider, model, what, s.* FROM {table} s JOIN summed_names n ON n.number = s.name"
_SUMS = (
    "SELECT * FROM summed_usage",
    "SELECT * FROM call_traits",
    _NAMED.format(table="summed_answers"),
    _NAMED.format(table="summed_times"),
)


def _sums(path: Path) -> list[list[str]]:
    with closing(sqlite3.connect(path)) as ledger:
        return [sorted(map(repr, _without_numbers(ledger.execute(query)))) for query in _SUMS]


def _without_numbers(rows: sqlite3.Cursor) -> list[dict[str, object]]:
    """The rows; a name of `summed_names` may have any number."""
    columns = [name for name, *_ in rows.description]
    dropped = {"name"} if "what" in columns else set()
    return [{name: value for name, value in zip(columns, row, strict=True) if name not in dropped} for row in rows]


def test_copied_sums_are_those_of_the_calls(tmp_path: Path) -> None:
    assert fill(tmp_path, _COPIES * BATCH, templates=BATCH) == _COPIES * BATCH
    copied = _sums(tmp_path / "ledger.db")
    with closing(sqlite3.connect(tmp_path / "ledger.db")) as ledger:
        assert ledger.execute("SELECT COUNT(*), COUNT(DISTINCT id) FROM calls").fetchall() == [(2 * BATCH, 2 * BATCH)]
        for table in ("summed_usage", "call_traits", "summed_answers", "summed_times", "summed_names"):
            ledger.execute(f"DELETE FROM {table}")
        ledger.execute("UPDATE meta SET value = 0 WHERE name = 'summed'")
        ledger.commit()
    book = open_book(LedgerSettings(folder=str(tmp_path)), {})
    while book.sum_up(BATCH):
        continue
    book.close()
    assert _sums(tmp_path / "ledger.db") == copied
