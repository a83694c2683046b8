"""Accounts in a small database of their own, for several processes on one machine.

Nothing in it has to last: accounts are seeded from the ledger. So it never waits for the disk, and whoever starts the
processes begins with none (`begin`). A file that is damaged is replaced by the first who finds out; the others see that
theirs is no longer the one that lies there.
"""

import os
import sqlite3
import time
from contextlib import closing, suppress
from pathlib import Path

from penstock.stores.sqlite import make_file
from penstock.stores.storage import Found, StorageError

FILE = "accounts.db"
# Writing takes a fraction of a millisecond. A process that the system lets wait in the middle of it takes longer.
_TIMEOUT_S = 0.25
_MOMENT_S = 0.001
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
                changed = connection.execute(_INSERT, (version, data, key_id)).rowcount
            else:
                changed = connection.execute(_UPDATE, (version, data, key_id, expected)).rowcount
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
            found = connection.execute("PRAGMA quick_check(1)").fetchone()
            if found != ("ok",):
                raise sqlite3.DatabaseError("it is damaged")
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("COMMIT")

    def _open(self) -> sqlite3.Connection:
        if self._connection is not None and _inode(self._path) != self._inode:
            self.close()  # somebody put another in its place
        if self._connection is None:
            self._connection = self._connect()
            self._inode = _inode(self._path)
        return self._connection

    def _connect(self) -> sqlite3.Connection:
        make_file(self._path)
        connection = sqlite3.connect(self._path, timeout=self._timeout_s, isolation_level=None, check_same_thread=False)
        try:
            self._share(connection)
            connection.execute("PRAGMA synchronous=OFF")
            connection.execute(_SCHEMA)
        except sqlite3.Error:
            connection.close()
            raise
        return connection

    def _share(self, connection: sqlite3.Connection) -> None:
        """Let many read while one writes. SQLite does not wait for others who begin to at the same moment."""
        until = time.monotonic() + self._timeout_s
        while True:
            try:
                connection.execute("PRAGMA journal_mode=WAL")
            except sqlite3.OperationalError:
                if time.monotonic() > until:
                    raise
                time.sleep(_MOMENT_S)
            else:
                return

    def _load(self, connection: sqlite3.Connection, key_id: str) -> Found:
        row: tuple[bytes, bytes] | None = connection.execute(_LOAD, (key_id,)).fetchone()
        return row

    def _failed(self, error: sqlite3.Error | OSError) -> StorageError:
        self.close()
        return StorageError(f"{self._path}: {error}")


def _inode(path: str) -> int:
    try:
        return os.stat(path).st_ino
    except FileNotFoundError:
        return 0
