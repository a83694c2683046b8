"""SqliteBook: the ledger in one file, for the processes of one machine.

It is in WAL mode, so that readers and the writer do not wait for each other. Each transaction is on the disk before it
returns (`synchronous = FULL`). Only its owner can read the file and its `-wal` and `-shm` files.
"""

import contextlib
import math
import mmap
import os
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO
from urllib.parse import quote

from penstock.errors import BookError, BookUnusableError
from penstock.gateway.billing.queries import TakenOver
from penstock.gateway.keys.keys import Key
from penstock.gateway.record.entry import Entry
from penstock.gateway.teams.team import Team
from penstock.stores.book.database import (
    QUERY_S,
    Queryable,
    Row,
    SqlDialect,
    T,
    Transaction,
    Value,
    insertion,
    slow_query,
)
from penstock.stores.book.schema import MIGRATIONS, Migration, migrate
from penstock.stores.book.sql_book import Book

# The advice for an error, by SQLite's primary result code.
_ADVICE: dict[int, str] = {
    sqlite3.SQLITE_PERM: "may not be used: check its owner and its mode",
    sqlite3.SQLITE_BUSY: "is locked by another program: end that program",
    sqlite3.SQLITE_LOCKED: "is locked by another program: end that program",
    sqlite3.SQLITE_READONLY: "cannot be written to: check its owner and mode, and those of its folder",
    sqlite3.SQLITE_IOERR: "cannot be read or written: check its disk",
    sqlite3.SQLITE_FULL: "cannot grow: free space on its disk",
    sqlite3.SQLITE_CANTOPEN: "cannot be opened: check that its folder is there, and its owner and mode",
    sqlite3.SQLITE_AUTH: "may not be used: check its owner and its mode",
}
_UNUSABLE: dict[int, str] = {
    sqlite3.SQLITE_CORRUPT: "is damaged: restore it from a backup, or move it away to start a new one",
    sqlite3.SQLITE_NOTADB: "is not a SQLite database: move it away, or choose another place for the ledger",
}

# Steps of SQLite's virtual machine between two looks at the clock: some milliseconds.
_STEPS = 100_000
_MARK_SIZE = 8
# Whether a database belongs to another program: it is rejected, and not changed.
_FOREIGN = "SELECT 1 WHERE EXISTS (SELECT * FROM sqlite_master) AND 'meta' NOT IN (SELECT name FROM sqlite_master)"


class SqliteDialect:
    """The SQL that is specific to SQLite."""

    serial = "INTEGER PRIMARY KEY AUTOINCREMENT"
    clustered = clustered_updated = "WITHOUT ROWID"
    unlogged = ""
    now_ms = "CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)"
    tables = "SELECT name FROM sqlite_master WHERE type = 'table'"
    functions: Sequence[str] = ()

    def protect(self, table: str, *, unless: str) -> tuple[str, ...]:
        """Two triggers."""
        stop = "BEGIN SELECT RAISE(ABORT, 'entries are neither changed nor removed'); END"
        return (
            f"CREATE TRIGGER {table}_stay BEFORE UPDATE ON {table} {stop}",
            f"CREATE TRIGGER {table}_remain BEFORE DELETE ON {table} WHEN NOT ({unless}) {stop}",
        )


class SqliteDatabase:
    """One connection to one file. Another thread than the one that opened it may use it, but only one at a time."""

    def __init__(self, path: Path, *, readonly: bool = False, timeout_s: float = 5.0, query_s: float = QUERY_S) -> None:
        """`timeout_s`: how long to wait for other writers. `query_s`: how long one query may take."""
        self.name = str(path)
        self._query_s = query_s
        # When the running query is interrupted. Transactions that write have no limit.
        self._deadline = math.inf
        self._writing = False
        self.dialect: SqlDialect = SqliteDialect()
        self.readonly = readonly
        self._path = path
        with self._book_errors():
            self._connection = _connect(path, readonly=readonly, timeout_s=timeout_s)
            self._connection.set_progress_handler(self._is_late, _STEPS)
            self._file = path.stat()
        self._closed = False

    @property
    def moved(self) -> bool:
        """Whether the file is no longer at its path: what is written to it would be lost."""
        try:
            return self._closed or not os.path.samestat(self._path.stat(), self._file)
        except FileNotFoundError:
            return True
        except OSError:
            return False

    def fetch(self, sql: str, parameters: Sequence[Value] = ()) -> list[Row]:
        """Run one statement."""
        self._deadline = math.inf if self._writing else time.monotonic() + self._query_s
        with self._book_errors():
            return self._connection.execute(sql, parameters).fetchall()

    def _is_late(self) -> bool:
        return time.monotonic() > self._deadline

    def fetch_each(self, sql: str, rows: Sequence[Row]) -> list[Row]:
        """Run a statement for each row."""
        with self._book_errors():
            return [result for row in rows for result in self._connection.execute(sql, row)]

    def insert_new(self, table: str, columns: Sequence[str], rows: Sequence[Row]) -> list[Row]:
        """Insert rows. The transaction excludes other writers, so the rows after the last place are the new ones.
        Reading them costs half as much as RETURNING for each row."""
        ((last,),) = self.fetch(f"SELECT COALESCE(MAX(place), 0) FROM {table}")
        self.execute_each(insertion(table, columns), rows)
        return self.fetch(f"SELECT id, place FROM {table} WHERE place > ? ORDER BY place", (last,))

    def execute_each(self, sql: str, rows: Sequence[Row]) -> None:
        """Run a statement for each row."""
        with self._book_errors():
            self._connection.executemany(sql, rows)

    def read(self, work: Callable[[Queryable], T]) -> T:
        """Run read-only work in one snapshot."""
        return self._transact("BEGIN", work)

    def write(self, work: Callable[[Transaction], T]) -> T:
        """Run work in a transaction."""
        self._writing = True
        try:
            return self._transact("BEGIN IMMEDIATE", work)
        finally:
            self._writing = False

    def unlimited(self) -> contextlib.AbstractContextManager[None]:
        """Transactions that write have no time limit anyway."""
        return contextlib.nullcontext()

    def _transact(self, begin: str, work: "Callable[[SqliteDatabase], T]") -> T:
        try:
            self.fetch(begin)
            done = work(self)
            self.fetch("COMMIT")
        finally:
            # SQLite has already rolled back by itself if the disk was full.
            if self._connection.in_transaction:
                with contextlib.suppress(sqlite3.Error):
                    self._connection.rollback()
        return done

    def close(self) -> None:
        """Close the connection."""
        self._closed = True
        with self._book_errors():
            self._connection.close()

    @contextlib.contextmanager
    def _book_errors(self) -> Iterator[None]:
        """Turn SQLite's errors into a `BookError` with advice."""
        try:
            yield
        except sqlite3.Error as error:
            code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
            if code == sqlite3.SQLITE_INTERRUPT:
                raise slow_query(self._query_s) from None
            if code in _UNUSABLE:
                raise BookUnusableError(f"{self.name} {_UNUSABLE[code]}") from error
            raise BookError(f"{self.name} {_ADVICE.get(code, 'could not be used')} ({error})") from error
        except OSError as error:
            raise BookError(f"{self.name} cannot be opened: {error.strerror}") from error


class SqliteBook(Book):
    """The ledger in a file."""

    @classmethod
    def open(
        cls,
        path: Path,
        *,
        readonly: bool = False,
        timeout_s: float = 5.0,
        migrations: Sequence[Migration] = MIGRATIONS,
    ) -> "SqliteBook":
        """Open the file, or create it. `readonly` opens an existing one only, while a gateway may write to it."""
        if readonly and not path.exists():
            raise BookError(f"{path} is not there: no gateway has kept a ledger here yet")

        def connect() -> SqliteDatabase:
            database = SqliteDatabase(path, readonly=readonly, timeout_s=timeout_s)
            try:
                migrate(database, migrations)
            except BaseException:
                database.close()
                raise
            return database

        return cls(connect)

    def __init__(self, connect: Callable[[], SqliteDatabase]) -> None:
        super().__init__(connect())
        self._connect = connect

    def append(self, entries: Sequence[Entry]) -> Sequence[Entry]:
        """Append entries as any book does; if the file was moved away, start a new one."""
        if isinstance(self.database, SqliteDatabase) and self.database.moved:
            self.database.close()
            self.database = self._connect()
        return super().append(entries)

    def take_over(self, change: Callable[[list[Team], list[Key]], TakenOver]) -> TakenOver:
        """Store teams, keys and entries as any book does, and count the change."""
        new = super().take_over(change)
        self._mark_change()
        return new

    def _mark_change(self) -> None:
        """Tell running gateways that keys have changed. If it fails, they look after a second."""
        with contextlib.suppress(OSError), _open_mark(Path(self.database.name)) as file:
            file.write(os.urandom(_MARK_SIZE))


def watch_changes(path: Path) -> Callable[[], bytes]:
    """Reads the mark of the last change of a book's keys: from memory that is mapped to the file, in no time."""
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with _open_mark(path) as file:
            if len(file.read()) < _MARK_SIZE:
                file.write(bytes(_MARK_SIZE))
            return memoryview(mmap.mmap(file.fileno(), _MARK_SIZE, access=mmap.ACCESS_READ)).tobytes
    except OSError:
        return bytes  # no change is ever seen: the gateway looks once a second


def _open_mark(path: Path) -> BinaryIO:
    """Open the file beside a book that has random bytes, others after each change of its keys."""
    file = os.open(path.with_suffix(".keys"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    return os.fdopen(file, "r+b", buffering=0)


def make_file(path: str | Path) -> None:
    """Create a database's file, readable by its owner only, if it does not exist.

    An existing file is never opened here. Closing it would release every POSIX lock that this process has on it through
    its other connections. Another process could then take itself for the last user, and remove the write-ahead log.
    """
    with contextlib.suppress(FileExistsError):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600))


def _connect(path: Path, *, readonly: bool, timeout_s: float) -> sqlite3.Connection:
    if not readonly:
        make_file(path)
    connection = sqlite3.connect(
        f"file:{quote(str(path))}?mode={'ro' if readonly else 'rw'}",
        uri=True,
        timeout=timeout_s,
        isolation_level=None,
        check_same_thread=False,
    )
    try:
        connection.execute("PRAGMA foreign_keys = ON")
        connection.execute("PRAGMA synchronous = FULL")
        if not readonly and not connection.execute(_FOREIGN).fetchall():
            _write_ahead(connection, timeout_s)
    except BaseException:
        connection.close()
        raise
    return connection


def _write_ahead(connection: sqlite3.Connection, timeout_s: float) -> None:
    """Switch to WAL mode. If several processes do so at once, SQLite does not wait but fails, so this retries."""
    until = time.monotonic() + timeout_s
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL").fetchall()
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > until:
                raise
            time.sleep(0.01)
