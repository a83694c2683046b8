"""Accounts in a small SQLite database of their own, for several processes on one machine.

The database is only a cache: accounts are seeded from the ledger. So it never waits for the disk (`synchronous=OFF`),
and the parent process removes it before it starts the workers (`remove_old`). The first process that finds the file
damaged replaces it; the others notice by its inode that the file at the path is another one.
"""

import os
import random
import sqlite3
import time
from contextlib import closing, suppress
from pathlib import Path

from penstock.gateway.keys.quota import END_USER
from penstock.stores.accounts.storage import StorageError, StoredValue
from penstock.stores.book.sqlite import make_file

FILE = "accounts.db"
# A write takes a fraction of a millisecond, but a busy system may suspend a process in the middle of it, and all others
# wait for its lock. A process that gives up has only its share of each limit for seconds, which is worse than waiting.
_TIMEOUT_S = 1.0
_POLL_S = 0.002
_SCHEMA = (
    "CREATE TABLE IF NOT EXISTS accounts (key TEXT PRIMARY KEY, version BLOB, data BLOB, used_s INTEGER) WITHOUT ROWID"
)
_LOAD = "SELECT version, data FROM accounts WHERE key = ?"
_INSERT = "INSERT INTO accounts (version, data, used_s, key) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING"
_UPDATE = "UPDATE accounts SET version = ?, data = ?, used_s = ? WHERE key = ? AND version = ?"
# Clients choose the names of end users, so their accounts are removed when they are not used for an hour, or when there
# are too many: of those, the ones that were not used for longest. They can be seeded again at any time.
_USERS = f"key >= '{END_USER}' AND key < '{END_USER[:-1]};'"
_EXPIRE = f"DELETE FROM accounts WHERE {_USERS} AND used_s < ?"
_REMOVE_OLDEST = f"""
DELETE FROM accounts WHERE key IN (
    SELECT key FROM accounts WHERE {_USERS} ORDER BY used_s DESC LIMIT -1 OFFSET ?
)
"""
_USERS_EXPIRE_S = 3_600
_MAX_USERS = 100_000
# This process removes old accounts of end users each time that it has added this many new ones.
_NEW_USERS = 1_000


def remove_old(folder: str | Path) -> None:
    """Remove the database of an earlier run. The parent process calls it before it starts the workers."""
    for suffix in ("-wal", "-shm", ""):
        with suppress(FileNotFoundError):
            os.unlink(os.path.join(folder, FILE + suffix))


class SqliteAccounts:
    """See `Storage`."""

    name = "accounts"

    def __init__(
        self,
        folder: str | Path,
        timeout_s: float = _TIMEOUT_S,
        max_users: int = _MAX_USERS,
        check_after: int = _NEW_USERS,
    ) -> None:
        self._folder = folder
        self._path = os.path.join(folder, FILE)
        self._timeout_s = timeout_s
        self._connection: sqlite3.Connection | None = None
        self._inode = 0
        self._max_users = max_users
        self._check_after = check_after
        self._new_users = 0

    def load(self, account_id: str) -> StoredValue:
        """See `Storage`."""
        try:
            return self._load(self._open(), account_id)
        except (sqlite3.Error, OSError) as error:
            raise self._failed(error) from None

    def swap(self, account_id: str, expected: bytes | None, version: bytes, data: bytes) -> tuple[bool, StoredValue]:
        """See `Storage`."""
        try:
            connection = self._open()
            # Each statement is a transaction of its own, so it is a compare-and-set: no other process writes meanwhile.
            now_s = int(time.time())
            if expected is None:
                if account_id.startswith(END_USER):
                    self._make_room(connection, now_s)
                changed = self._execute(connection, _INSERT, (version, data, now_s, account_id)).rowcount
            else:
                changed = self._execute(connection, _UPDATE, (version, data, now_s, account_id, expected)).rowcount
            return (True, None) if changed else (False, self._load(connection, account_id))
        except (sqlite3.Error, OSError) as error:
            raise self._failed(error) from None

    def _make_room(self, connection: sqlite3.Connection, now_s: int) -> None:
        """Remove old accounts of end users, from time to time."""
        self._new_users += 1
        if self._new_users >= self._check_after:
            self._new_users = 0
            self._execute(connection, _EXPIRE, (now_s - _USERS_EXPIRE_S,))
            self._execute(connection, _REMOVE_OLDEST, (self._max_users,))

    def probe(self) -> None:
        """See `Storage`. Replaces a file that is damaged."""
        try:
            try:
                self._check()
            except sqlite3.OperationalError:
                raise
            except sqlite3.DatabaseError:
                remove_old(self._folder)
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
            result = self._execute(connection, "PRAGMA quick_check(1)").fetchone()
            if result != ("ok",):
                raise sqlite3.DatabaseError("the file is damaged")
            self._execute(connection, "BEGIN IMMEDIATE")
            self._execute(connection, "COMMIT")

    def _open(self) -> sqlite3.Connection:
        if self._connection is not None and _inode(self._path) != self._inode:
            self.close()  # another process has replaced the file
        if self._connection is None:
            self._connection = self._connect()
            self._inode = _inode(self._path)
        return self._connection

    def _connect(self) -> sqlite3.Connection:
        make_file(self._path)
        connection = sqlite3.connect(self._path, timeout=0, isolation_level=None, check_same_thread=False)
        try:
            self._execute(connection, "PRAGMA synchronous=OFF")  # first: otherwise the next one waits for the disk
            self._execute(connection, "PRAGMA journal_mode=WAL")
            self._execute(connection, _SCHEMA)
        except sqlite3.Error:
            connection.close()
            raise
        return connection

    def _execute(self, connection: sqlite3.Connection, sql: str, parameters: tuple[object, ...] = ()) -> sqlite3.Cursor:
        """Run a statement as soon as no other process has the lock.

        SQLite's own busy handler polls at growing intervals, so that a process that has waited long is overtaken again
        and again; and it does not wait at all while another process switches to WAL.
        """
        deadline = time.monotonic() + self._timeout_s
        while True:
            try:
                return connection.execute(sql, parameters)
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                    raise
            time.sleep(random.random() * _POLL_S)

    def _load(self, connection: sqlite3.Connection, account_id: str) -> StoredValue:
        row: tuple[bytes, bytes] | None = self._execute(connection, _LOAD, (account_id,)).fetchone()
        return row

    def _failed(self, error: sqlite3.Error | OSError) -> StorageError:
        self.close()
        return StorageError(f"{self._path}: {error}")


def _inode(path: str) -> int:
    try:
        return os.stat(path).st_ino
    except FileNotFoundError:
        return 0
