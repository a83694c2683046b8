"""Backup and restore of a ledger in SQLite. (PostgreSQL has its own programs for that: docs/deploy.md.)

A backup is one consistent copy, made by SQLite while a gateway may write. It has the schema of the ledger, also if that
is older than the one of this version: after a rollback, the older version reads the backup. Restoring replaces the
ledger's file, and keeps the old one beside it. Two things are left to the next start of the gateway:

- Journals stay. They hold calls that the old file did not have yet; the restored one gets them. Booking is idempotent,
  so a call that the backup has already is not booked again.
- Accounts are rebuilt from the restored ledger.
"""

import contextlib
import os
import sqlite3
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from penstock.errors import BookError, OldBookError
from penstock.stores.accounts.sqlite import remove_old
from penstock.stores.book.open import FILE
from penstock.stores.book.schema import MIGRATIONS, Migration
from penstock.stores.book.sqlite import SqliteBook, make_file
from penstock.stores.journal import in_use
from penstock.stores.state_lock import claim

_WAL_FILES = ("-wal", "-shm")


def back_up(ledger: Path, target: Path, migrations: Sequence[Migration] = MIGRATIONS) -> int:
    """Copy a ledger to a new file, which is complete and checked when it appears. Returns the number of its calls."""
    with contextlib.suppress(OldBookError):  # copied as it is
        SqliteBook.open(ledger, readonly=True, migrations=migrations).close()  # its other errors say what to do
    if target.exists():
        raise BookError(f"{target} exists already: choose another name")
    return _copy(ledger, target)


def restore(backup: Path, folder: Path, migrations: Sequence[Migration] = MIGRATIONS) -> tuple[int, Path | None]:
    """Replace the ledger in a state folder by a backup, while no gateway uses it.

    Returns the number of calls of the backup, and where the old ledger is now; None if there was none. Raises
    `BookError` if a gateway runs, or if the backup is no ledger, is damaged, or was made by a newer version.
    """
    claimed = claim(folder)
    try:
        if in_use(folder / "journal"):  # gateways that share limits through Redis do not lock the folder
            raise BookError(f"a gateway uses {folder}: stop it first")
        if not backup.is_file():
            raise BookError(f"{backup} is not there")
        ledger, old, new = folder / FILE, _aside(folder / FILE), folder / f"{FILE}.restoring"
        new.unlink(missing_ok=True)  # of a restore that was interrupted
        calls = _copy(backup, new)
        SqliteBook.open(new, migrations=migrations).close()  # migrates it, if an earlier version made it
        had_ledger = ledger.exists()
        # The write-ahead log first: beside another database, SQLite would apply it to that one.
        for suffix in (*_WAL_FILES, ""):
            with contextlib.suppress(FileNotFoundError):
                Path(f"{ledger}{suffix}").rename(f"{old}{suffix}")
        new.rename(ledger)
        remove_old(folder)
        return calls, old if had_ledger else None
    except OSError as error:
        raise BookError(f"{folder}: {error.strerror}") from error
    finally:
        os.close(claimed)


def _aside(ledger: Path) -> Path:
    return ledger.with_name(f"{ledger.name}.replaced-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}")


def _copy(source: Path, target: Path) -> int:
    """Copy a database to a file that does not exist. Returns the number of its calls."""
    partial = target.with_name(f"{target.name}.partial")
    try:
        partial.unlink(missing_ok=True)
        make_file(partial)
        with (
            closing(sqlite3.connect(f"{source.absolute().as_uri()}?mode=ro", uri=True)) as reading,
            closing(sqlite3.connect(partial)) as writing,
        ):
            reading.backup(writing)  # in one step, which is one read transaction
            writing.execute("PRAGMA journal_mode = DELETE")  # one file, with no write-ahead log beside it
            if writing.execute("PRAGMA quick_check(1)").fetchall() != [("ok",)]:
                raise BookError(f"{source} is damaged")
            ((calls,),) = writing.execute("SELECT count(*) FROM calls").fetchall()
        partial.rename(target)
    except sqlite3.Error as error:
        raise BookError(f"{source} cannot be copied to {target}: {error}") from error
    except OSError as error:
        raise BookError(f"{target} cannot be written: {error.strerror}") from error
    finally:
        with contextlib.suppress(OSError):
            partial.unlink()
    return int(calls)
