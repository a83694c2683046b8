"""Upgrade and rollback: ledgers that earlier versions have written, and processes of two versions on one ledger.

`old_ledgers/` has ledgers of the schema versions 1 to 8, 12 and 15 as SQL, written by the code of that version:
four calls, of which three are summed up where a version has sums, and a key. They are never changed; a release with
another schema adds one.
"""

import re
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from penstock.errors import BookUnusableError
from penstock.gateway.billing.book import Book, Filter, Grouping
from penstock.stores.book.backup import restore
from penstock.stores.book.schema import MIGRATIONS
from penstock.stores.book.sqlite import SqliteBook
from tests.cli.support import invoke
from tests.stores.entries import entry

OLD = {int(path.stem.removeprefix("schema-")): path for path in (Path(__file__).parent / "old_ledgers").glob("*.sql")}
# Cost, and the number of calls, by group. By provider, a call that tried two is counted with both.
SUMS: dict[tuple[Grouping, ...], dict[tuple[str, ...], tuple[int, int]]] = {
    (): {(): (7_300, 4)},
    ("key",): {("key_a",): (3_300, 2), ("key_b",): (4_000, 2)},
    ("model",): {("smart",): (7_300, 4)},
    ("provider",): {("openai",): (7_000, 3), ("groq",): (300, 2)},
    ("outcome",): {("completed",): (7_300, 3), ("truncated",): (0, 1)},
    ("team",): {("",): (7_300, 4)},
    ("day",): {("2026-09-22",): (3_300, 2), ("2026-09-23",): (4_000, 2)},
}


assert 1 in OLD


@pytest.fixture(params=sorted(OLD), ids=lambda version: f"schema-{version}")
def old(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A ledger of an earlier version."""
    path = tmp_path / "ledger.db"
    with closing(sqlite3.connect(path)) as database:
        database.executescript(OLD[request.param].read_text())
    return path


def sums(book: Book) -> dict[tuple[Grouping, ...], dict[tuple[str, ...], tuple[int, int]]]:
    return {by: {row.group: (row.cost, row.calls) for row in book.usage(Filter(), by)} for by in SUMS}


def test_an_upgrade_keeps_entries_sums_and_keys(old: Path) -> None:
    with closing(SqliteBook.open(old)) as book:
        assert sums(book) == SUMS
        assert book.spent("key_a", 0).total == 3_300
        assert [found.id for _, found in book.following(Filter(), 0, limit=9)] == [f"call_{n}" for n in (1, 2, 3, 4)]
        (key,) = book.keys()
        assert (key.id, key.name, key.budget, key.digest) == ("key_a", "Search", 10**10, bytes(range(32)))
        assert book.usage(Filter(tags={"team": "search"}), [])[0].cost == 1_000
        assert book.usage(Filter(repair="no-done"), [])[0].cost == 2_300
        # What is booked and summed up from now on is added to that.
        book.append([entry("new")])
        assert book.sum_up(1)
        while book.sum_up(1):
            pass
        expected = SUMS[()][()]
        assert sums(book)[()][()] == (expected[0] + entry("new").priced, expected[1] + 1)
        assert {group: sums(book)[("key",)][group] for group in SUMS[("key",)]} == SUMS[("key",)]


def test_a_backup_before_an_upgrade_is_for_both_versions(old: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_STATE", str(old.parent))
    monkeypatch.chdir(old.parent)
    before = dump(old)
    result = invoke("ledger", "backup", "copy.db")
    assert (result.stdout, result.stderr) == ("copy.db: 4 calls\n", "")
    assert dump(Path("copy.db")) == dump(old) == before
    restore(Path("copy.db"), old.parent)
    with closing(SqliteBook.open(old, readonly=True)) as book:
        assert sums(book) == SUMS


def dump(ledger: Path) -> list[str]:
    with closing(sqlite3.connect(ledger)) as database:
        return list(database.iterdump())


def test_an_older_process_that_still_runs_can_book(old: Path) -> None:
    """It knows only the columns of its version. A migration must not add one that has no default."""
    with closing(sqlite3.connect(old)) as database:
        columns = {
            table: [name for _, name, *_ in database.execute(f"PRAGMA table_info({table})")]
            for table in ("calls", "attempts", "keys")
        }
    SqliteBook.open(old).close()
    with closing(sqlite3.connect(old)) as database:
        for table, copied in (("calls", "4, 'call_4'"), ("attempts", "4"), ("keys", "'key_a'")):
            names = ", ".join(columns[table])
            select = ", ".join(columns[table][1 + copied.count(",") :])
            renamed = re.sub(r"4|key_a", lambda found: {"4": "5", "key_a": "key_c"}[found[0]], copied)
            identity = "call = 4" if table == "attempts" else "id IN ('call_4', 'key_a')"
            database.execute(f"INSERT INTO {table} ({names}) SELECT {renamed}, {select} FROM {table} WHERE {identity}")
        database.commit()
    with closing(SqliteBook.open(old)) as book:
        found = book.entry("call_5")
        assert found is not None
        assert (found.key, found.priced) == ("key_b", 4_000)
        assert sums(book)[()][()] == (SUMS[()][()][0] + 4_000, 5)
        first, second = book.keys()
        assert (first.id, second.id) == ("key_a", "key_c")


def test_an_older_version_says_how_to_go_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_STATE", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    ledger = tmp_path / "ledger.db"
    SqliteBook.open(ledger, migrations=(*MIGRATIONS, lambda _: ("CREATE TABLE later (id BIGINT)",))).close()
    known = len(MIGRATIONS)
    message = rf"newer version of Penstock \(its schema is {known + 1}, this one knows {known}\): .* restore a backup"
    with pytest.raises(BookUnusableError, match=message):
        SqliteBook.open(ledger)
    result = invoke("ledger")
    assert result.exit_code == 1
    assert re.search(message, result.stderr)
