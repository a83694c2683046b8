"""Copies of a ledger in SQLite: what they have, what is refused, and that a refusal changes nothing."""

import os
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest

from penstock.errors import BookError
from penstock.gateway.billing.queries import Filter
from penstock.gateway.record.entry import Entry
from penstock.stores.book.backup import back_up, restore
from penstock.stores.book.database import SqlDialect
from penstock.stores.book.schema import MIGRATIONS
from penstock.stores.book.sqlite import SqliteBook
from penstock.stores.journal import Journal
from penstock.stores.state_lock import claim
from tests.cli.support import invoke
from tests.stores.entries import KEY, entry


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A state folder, whose ledger has two calls and a key."""
    (tmp_path / "state").mkdir()
    with closing(SqliteBook.open(tmp_path / "state" / "ledger.db")) as book:
        book.append([entry("a"), entry("b")])
        book.change_keys(lambda *_: [KEY])
    return tmp_path / "state"


def booked(ledger: Path) -> list[Entry]:
    with closing(SqliteBook.open(ledger, readonly=True)) as book:
        return [found for _, found in book.following(Filter(), 0, limit=100)]


def test_a_backup_has_what_is_booked_while_the_ledger_is_written(folder: Path, tmp_path: Path) -> None:
    with closing(SqliteBook.open(folder / "ledger.db")) as book:
        book.append([entry("c")])  # only in the write-ahead log yet
        assert back_up(folder / "ledger.db", tmp_path / "copy.db") == 3
        book.append([entry("d")])
    assert [found.id for found in booked(tmp_path / "copy.db")] == ["a", "b", "c"]
    assert (tmp_path / "copy.db").stat().st_mode & 0o777 == 0o600
    assert sorted(path.name for path in tmp_path.iterdir()) == ["copy.db", "state"]


def test_a_restored_ledger_replaces_the_other_and_keeps_it(folder: Path, tmp_path: Path) -> None:
    back_up(folder / "ledger.db", tmp_path / "copy.db")
    later = SqliteBook.open(folder / "ledger.db")
    later.append([entry("later")])  # never closed, as after a kill: its write-ahead log stays
    calls, old = restore(tmp_path / "copy.db", folder)
    assert calls == 2
    assert old is not None
    assert [found.id for found in booked(folder / "ledger.db")] == ["a", "b"]
    assert [found.id for found in booked(old)] == ["a", "b", "later"]
    with closing(SqliteBook.open(folder / "ledger.db")) as book:
        assert book.keys() == [KEY]
        assert book.append([entry("b"), entry("c")]) == [entry("c")]  # from a journal: no call is booked twice
    later.close()


def _another(_dialect: SqlDialect) -> Sequence[str]:
    return ("CREATE TABLE later (id BIGINT)",)


LATER = (*MIGRATIONS, _another)


def test_a_backup_before_an_upgrade_is_for_both_versions(folder: Path, tmp_path: Path) -> None:
    before = dump(folder / "ledger.db")
    assert back_up(folder / "ledger.db", tmp_path / "copy.db", LATER) == 2
    assert dump(tmp_path / "copy.db") == dump(folder / "ledger.db") == before
    restore(tmp_path / "copy.db", tmp_path / "older")
    assert dump(tmp_path / "older" / "ledger.db") == before
    restore(tmp_path / "copy.db", tmp_path / "newer", LATER)
    with closing(SqliteBook.open(tmp_path / "newer" / "ledger.db", readonly=True, migrations=LATER)) as book:
        assert book.keys() == [KEY]


def dump(ledger: Path) -> list[str]:
    with closing(sqlite3.connect(ledger)) as database:
        return list(database.iterdump())


def newer(path: Path) -> None:
    SqliteBook.open(path, migrations=LATER).close()


def unreleased(path: Path) -> None:
    SqliteBook.open(path).close()
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("UPDATE meta SET value = 16 WHERE name = 'schema'")


def another(path: Path) -> None:
    with closing(sqlite3.connect(path)) as database:
        database.execute("CREATE TABLE recipes (name TEXT)")


REFUSED = {
    "a newer version": (newer, "was made by a newer version of Penstock"),
    "one before the first release": (unreleased, "move it away to start a new one"),
    "another program's": (another, "no such table: calls"),
    "no database": (lambda path: path.write_text("rubbish" * 1000), "file is not a database"),
    "nothing": (lambda _: None, "is not there"),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_what_is_no_backup_is_refused_and_nothing_changes(folder: Path, tmp_path: Path, kind: str) -> None:
    make, message = REFUSED[kind]
    make(tmp_path / "copy.db")
    before = booked(folder / "ledger.db")
    with pytest.raises(BookError, match=message):
        restore(tmp_path / "copy.db", folder)
    assert booked(folder / "ledger.db") == before


def test_nothing_is_restored_while_a_gateway_runs(folder: Path, tmp_path: Path) -> None:
    back_up(folder / "ledger.db", tmp_path / "copy.db")
    claimed = claim(folder)
    with pytest.raises(BookError, match="another gateway"):
        restore(tmp_path / "copy.db", folder)
    os.close(claimed)
    journal = Journal(folder / "journal", 10_000)  # gateways that share Redis lock only this
    with pytest.raises(BookError, match="stop it first"):
        restore(tmp_path / "copy.db", folder)
    journal.close()
    assert restore(tmp_path / "copy.db", folder)[0] == 2


def test_a_backup_overwrites_nothing(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "copy.db").write_text("precious")
    with pytest.raises(BookError, match="exists already"):
        back_up(folder / "ledger.db", tmp_path / "copy.db")
    assert (tmp_path / "copy.db").read_text() == "precious"


@pytest.mark.parametrize(("command", "program"), [("backup", "pg_dump"), ("restore", "pg_restore")])
def test_the_commands_refer_users_of_postgres_to_its_programs(tmp_path: Path, command: str, program: str) -> None:
    (tmp_path / "penstock.toml").write_text('[ledger]\npostgres = "postgresql://penstock@127.0.0.1:1/none"\n')
    result = invoke("ledger", command, str(tmp_path / "copy.db"), "--config", str(tmp_path / "penstock.toml"))
    assert result.exit_code == 1
    assert program in result.stderr


def test_the_commands_say_what_they_did(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_STATE", str(folder))
    monkeypatch.chdir(tmp_path)
    assert invoke("ledger", "backup", "copy.db").stdout == "copy.db: 2 calls\n"
    result = invoke("ledger", "restore", "copy.db")
    assert result.stdout == "restored 2 calls\n"
    assert "ledger.db.replaced-" in result.stderr
