"""A file that is full, locked, damaged or not ours."""

import contextlib
import os
import pwd
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path
from tempfile import TemporaryFile
from typing import cast

import pytest

from penstock.errors import BookError, BookUnusableError, SlowQueryError
from penstock.gateway.billing.queries import Filter
from penstock.stores.book.sqlite import SqliteBook, SqliteDatabase
from tests.stores.entries import FULL, entry

ROOT = Path(__file__).parents[2]
BATCH = [entry(f"{index}", user="x" * 500) for index in range(200)]


def ids(book: SqliteBook) -> list[str]:
    return [found.id for _, found in book.following(Filter(), 0, limit=1000)]


def test_a_full_disk_is_reported_and_booking_goes_on_once_there_is_room(tmp_path: Path) -> None:
    book = SqliteBook.open(tmp_path / "ledger.db")
    book.append([FULL])
    pages = book.database.fetch("PRAGMA page_count")[0][0]
    book.database.fetch(f"PRAGMA max_page_count = {pages}")
    for _ in range(2):
        with pytest.raises(BookError, match="free space on its disk") as caught:
            book.append(BATCH)
        assert not isinstance(caught.value, BookUnusableError)
    assert ids(book) == ["call_1"]
    book.database.fetch("PRAGMA max_page_count = 1000000")
    book.append(BATCH)
    assert len(ids(book)) == 201
    book.close()


def test_the_columns_of_a_key_come_first_for_the_integrity_check_of_sqlite_3_40(tmp_path: Path) -> None:
    """Where they do not, SQLite 3.40 says of a table WITHOUT ROWID that its columns were NULL, though none is."""
    book = SqliteBook.open(tmp_path / "ledger.db")
    clustered = book.database.fetch("SELECT name FROM sqlite_master WHERE sql LIKE '%WITHOUT ROWID%' ORDER BY 1")
    wrong = [
        f"{table}.{column}"
        for (table,) in clustered
        for place, column, *_, of_key in book.database.fetch(f"PRAGMA table_info({table})")
        if of_key not in (0, cast(int, place) + 1)
    ]
    book.close()
    assert ("summed_times",) in clustered
    assert wrong == []


def test_a_locked_file_is_reported_after_the_time_out_and_then_it_goes_on(tmp_path: Path) -> None:
    book = SqliteBook.open(tmp_path / "ledger.db", timeout_s=0.1)
    other = sqlite3.connect(tmp_path / "ledger.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(BookError, match="is locked by another program"):
        book.append([FULL])
    assert ids(book) == []  # reading does not wait for a writer
    other.execute("ROLLBACK")
    book.append([FULL])
    assert ids(book) == ["call_1"]
    other.close()
    book.close()


_COUNT = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 300000) SELECT MAX(i) FROM n"


def test_a_slow_query_is_interrupted_with_advice_and_a_transaction_is_not(tmp_path: Path) -> None:
    SqliteBook.open(tmp_path / "book").close()
    database = SqliteDatabase(tmp_path / "book", query_s=0)
    with pytest.raises(SlowQueryError, match="longer than 0 s: ask for a shorter time range"):
        database.read(lambda reader: reader.fetch(_COUNT))
    assert database.write(lambda transaction: transaction.fetch(_COUNT)) == [(300_000,)]
    database.close()


def test_a_writer_waits_for_another(tmp_path: Path) -> None:
    book = SqliteBook.open(tmp_path / "ledger.db")
    other = sqlite3.connect(tmp_path / "ledger.db", isolation_level=None, check_same_thread=False)
    other.execute("BEGIN IMMEDIATE")
    timer = threading.Timer(0.1, lambda: other.execute("COMMIT"))
    timer.start()
    book.append([FULL])
    timer.join()
    other.close()
    book.close()


def test_it_is_durable_and_its_owners_alone(tmp_path: Path) -> None:
    book = SqliteBook.open(tmp_path / "ledger.db")
    book.append([FULL])
    assert book.database.fetch("PRAGMA journal_mode") == [("wal",)]
    assert book.database.fetch("PRAGMA synchronous") == [(2,)]
    assert {path.name: path.stat().st_mode & 0o777 for path in tmp_path.iterdir()} == {
        "ledger.db": 0o600,
        "ledger.db-wal": 0o600,
        "ledger.db-shm": 0o600,
    }
    book.close()


def test_a_reader_sees_what_a_gateway_books_and_changes_nothing(tmp_path: Path) -> None:
    book = SqliteBook.open(tmp_path / "ledger.db")
    reader = SqliteBook.open(tmp_path / "ledger.db", readonly=True)
    assert reader.entry("call_1") is None
    book.append([FULL])
    assert reader.entry("call_1") == FULL
    with pytest.raises(BookError, match="cannot be written to"):
        reader.append([entry("b")])
    book.close()
    assert reader.entry("call_1") == FULL
    reader.close()
    reader = SqliteBook.open(tmp_path / "ledger.db", readonly=True)
    assert ids(reader) == ["call_1"]
    reader.close()


def test_a_book_may_be_opened_by_one_thread_and_used_by_another(tmp_path: Path) -> None:
    book = SqliteBook.open(tmp_path / "ledger.db")
    thread = threading.Thread(target=lambda: book.append([FULL]))
    thread.start()
    thread.join()
    assert ids(book) == ["call_1"]
    book.close()


def test_a_path_may_have_any_characters(tmp_path: Path) -> None:
    folder = tmp_path / "50% a?b#c&mode=memory"
    folder.mkdir()
    book = SqliteBook.open(folder / "ledger.db")
    book.append([FULL])
    book.close()
    assert (folder / "ledger.db").stat().st_size > 0


@pytest.mark.parametrize("readonly", [False, True])
def test_what_is_no_database_is_left_alone(tmp_path: Path, readonly: bool) -> None:
    path = tmp_path / "ledger.db"
    path.write_text("Dear diary, " * 1000)
    with pytest.raises(BookUnusableError, match="is not a SQLite database: move it away"):
        SqliteBook.open(path, readonly=readonly)
    assert path.read_text() == "Dear diary, " * 1000


def test_a_damaged_file_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    book = SqliteBook.open(path)
    book.append(BATCH)
    book.close()
    damaged = bytearray(path.read_bytes())
    for start in range(4096, len(damaged), 4096):
        damaged[start : start + 64] = b"\xff" * 64
    path.write_bytes(damaged)
    with pytest.raises(BookUnusableError, match="is damaged: restore it from a backup"):
        read(path)


def read(path: Path) -> None:
    book = SqliteBook.open(path)
    try:
        ids(book)
    finally:
        book.close()


def test_a_folder_or_a_missing_one_is_reported(tmp_path: Path) -> None:
    with pytest.raises(BookError, match="cannot be opened: "):
        SqliteBook.open(tmp_path)
    with pytest.raises(BookError, match="cannot be opened: No such file or directory"):
        SqliteBook.open(tmp_path / "nowhere" / "ledger.db")
    with pytest.raises(BookError, match="no gateway has kept a ledger here yet"):
        SqliteBook.open(tmp_path / "ledger.db", readonly=True)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_a_file_of_another_program_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    SqliteBook.open(path).close()
    path.chmod(0o444)
    folder = os.open(tmp_path, os.O_RDONLY)
    with TemporaryFile() as reported:
        child = os.fork()
        if child == 0:
            with contextlib.suppress(BaseException):
                os.fchdir(folder)  # as root, pytest's folders are closed to others: go in first
                if os.geteuid() == 0:
                    os.setuid(pwd.getpwnam("nobody").pw_uid)
                try:
                    SqliteBook.open(Path("ledger.db")).close()
                except BookError as error:
                    reported.write(str(error).encode())
                    reported.flush()
            os._exit(0)
        os.waitpid(child, 0)
        reported.seek(0)
        assert reported.read() == b"ledger.db cannot be opened: Permission denied"
    os.close(folder)


def test_where_the_file_was_moved_away_a_new_one_is_begun(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    book = SqliteBook.open(path)
    book.append([FULL])
    (tmp_path / "old").mkdir()
    for part in tmp_path.glob("ledger.db*"):
        part.rename(tmp_path / "old" / part.name)
    book.append([entry("b")])
    assert ids(book) == ["b"]
    book.close()
    book = SqliteBook.open(tmp_path / "old" / "ledger.db")
    assert ids(book) == ["call_1"]
    book.close()


@pytest.mark.slow
def test_a_second_connection_takes_no_lock_from_the_first(tmp_path: Path) -> None:
    """Opening and closing the file would release the process's locks on it; the next closing would remove its log."""
    path = tmp_path / "ledger.db"
    first = SqliteBook.open(path)
    second = SqliteBook.open(path)
    book_elsewhere = (
        "import sys; from pathlib import Path; from penstock.stores.book.sqlite import SqliteBook\n"
        "from tests.stores.entries import KEY\n"
        "book = SqliteBook.open(Path(sys.argv[1])); book.change_keys(lambda *_: [KEY]); book.close()"
    )
    versions = []
    for _ in range(2):
        command = [sys.executable, "-c", book_elsewhere, str(path)]
        environment = os.environ | {"PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"}
        subprocess.run(command, check=True, env=environment, timeout=60)
        versions.append((first.keys_version(), second.keys_version()))
    assert versions == [(1, 1), (2, 2)]
    first.close()
    second.close()
