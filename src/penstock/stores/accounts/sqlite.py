"""Accounts in a small database of their own, for several processes on one machine.

Nothing in it has to last: accounts are seeded from the ledger. So it never waits for the disk, and whoever starts the
processes begins with none (`begin`). A file that is damaged is replaced by the first who finds out; the others see that
theirs is no longer the one that lies there.
"""

import os
import random
import sqlite3
import time
from contextlib import closing, suppress
from pathlib import Path

from penstock.stores.accounts.storage import Found, StorageError
from penstock.stores.book.sqlite import make_file

FILE = "accounts.db"
# Writing takes a fraction of a millisecond; but a busy system may let a process wait in the middle of it, and all the
# others with it. Whoever gives up has but a share of each limit for seconds, which is worse than to wait for one.
_TIMEOUT_S = 1.0
_MOMENT_S = 0.002
_SCHEMA = "CREATE TABLE IF NOT EXISTS accounts (key TEXT PRIMARY KEY, version BLOB, data BLOB) WITHOUT ROWID"
_LOAD = "SELECT version, data FROM accounts WHERE key = ?"
_INSERT = "INSERT INTO accounts (version, data, key) VALUES (?, ?, ?) ON CONFLICT DO NOTHING"
_UPDATE = "UPDATE accounts SET version = ?, data = ? WHERE key = ? AND version = ?"


def begin(folder: str | Path) -> None:
    """Remove what an earlier run left. For whoever starts the processes, before they start."""
    for ending in ("-wal", "-shm", ""):
        with suppress(FileNotFoundError):
            os.unlink(os.path.join(folder, FILE + ending))


class SqliteAccounts:
    """See `Storage`."""

    name = "accounts"

    def __init__(self, folder: str | Path, timeout_s: float = _TIMEOUT_S) -> None:
        self._folder = folder
        self._path = os.path.join(folder, FILE)
        self._timeout_s = timeout_s
        self._connection: sqlite3.Connection | None = None
        self._inode = 0

    def load(self, key_id: str) -> Found:
        """See `Storage`."""
        try:
            return self._load(self._open(), key_id)
        except (sqlite3.Error, OSError) as error:
            raise self._failed(error) from None

    def swap(self, key_id: str, expected: bytes | None, version: bytes, data: bytes) -> tuple[bool, Found]:
        """See `Storage`."""
        try:
            connection = self._open()
            # Each statement is a transaction: while it runs, nobody else writes.
            if expected is None:
                changed = self._execute(connection, _INSERT, (version, data, key_id)).rowcount
            else:
                changed = self._execute(connection, _UPDATE, (version, data, key_id, expected)).rowcount
            return (True, None) if changed else (False, self._load(connection, key_id))
        except (sqlite3.Error, OSError) as error:
            raise self._failed(error) from None

    def probe(self) -> None:
        """See `Storage`. Replaces a file that is damaged."""
        try:
            try:
                self._check()
            except sqlite3.OperationalError:
                raise
            except sqlite3.DatabaseError:
                begin(self._folder)
                self._check()
        except (sqlite3.Error, OSError) as error:
            raise StorageError(f"{self._path}: {error}") from None

    def close(self) -> None:
        """See `Storage`."""
        if self._connection is not None:
            with suppress(sqlite3.Error):
                self._connection.close()
            self._connection = None

    def _check(self) -> None:
        with closing(self._connect()) as connection:
            found = self._execute(connection, "PRAGMA quick_check(1)").fetchone()
            if found != ("ok",):
                raise sqlite3.DatabaseError("it is damaged")
            self._execute(connection, "BEGIN IMMEDIATE")
            self._execute(connection, "COMMIT")

    def _open(self) -> sqlite3.Connection:
        if self._connection is not None and _inode(self._path) != self._inode:
            self.close()  # somebody put another in its place
        if self._connection is None:
            self._connection = self._connect()
            self._inode = _inode(self._path)
        return self._connection

    def _connect(self) -> sqlite3.Connection:
        make_file(self._path)
        connection = sqlite3.connect(self._path, timeout=0, isolation_level=None, check_same_thread=False)
        try:
            self._execute(connection, "PRAGMA synchronous=OFF")  # first, so that the next does not wait for the disk
            self._execute(connection, "PRAGMA journal_mode=WAL")
            self._execute(connection, _SCHEMA)
        except sqlite3.Error:
            connection.close()
            raise
        return connection

    def _execute(self, connection: sqlite3.Connection, sql: str, parameters: tuple[object, ...] = ()) -> sqlite3.Cursor:
        """Run a statement as soon as no other process is in the way.

        SQLite's own way is to look in ever longer steps, so that who has waited long comes too late again and again;
        and it does not wait at all for those who switch to WAL at the same moment.
        """
        until = time.monotonic() + self._timeout_s
        while True:
            try:
                return connection.execute(sql, parameters)
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > until:
                    raise
            time.sleep(random.random() * _MOMENT_S)

    def _load(self, connection: sqlite3.Connection, key_id: str) -> Found:
        row: tuple[bytes, bytes] | None = self._execute(connection, _LOAD, (key_id,)).fetchone()
        return row

    def _failed(self, error: sqlite3.Error | OSError) -> StorageError:
        self.close()
        return StorageError(f"{self._path}: {error}")


def _inode(path: str) -> int:
    try:
        return os.stat(path).st_ino
    except FileNotFoundError:
        return 0
