"""Opens the store of kept content, beside the ledger: a file in the state folder, or a schema in PostgreSQL."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from penstock.errors import BookError
from penstock.gateway.config import LedgerSettings
from penstock.providers.secret import Secret
from penstock.stores.book.open import state_folder
from penstock.stores.book.schema import Migration, migrate
from penstock.stores.book.sqlite import SqliteDatabase
from penstock.stores.content.schema import CONTENT_MIGRATIONS
from penstock.stores.content.sql_content import SqlContent

CONTENT_FILE = "content.db"
CONTENT_SCHEMA = "penstock_content"
# The advisory lock of its writers, another than that of the ledger: the two do not wait for each other.
_LOCK = 0x70656E2D74657874
_TABLE = "records"


def open_content(settings: LedgerSettings, environment: Mapping[str, str]) -> SqlContent:
    """Open the store; it is created if it is missing."""
    if settings.postgres is not None:
        return open_in_postgres(settings.postgres)
    return open_file(state_folder(settings, environment) / CONTENT_FILE)


def has_content(settings: LedgerSettings, environment: Mapping[str, str]) -> bool:
    """Whether there is a store already. False if that is not known."""
    if settings.postgres is None:
        return (state_folder(settings, environment) / CONTENT_FILE).exists()
    from penstock.stores.book.postgres import PostgresDatabase  # noqa: PLC0415 - few ledgers are there

    try:
        database = PostgresDatabase(settings.postgres, readonly=True)
        try:
            return database.fetch(f"SELECT to_regnamespace('{CONTENT_SCHEMA}')::text") != [(None,)]
        finally:
            database.close()
    except BookError:
        return False


def open_in_postgres(url: Secret, migrations: Sequence[Migration] = CONTENT_MIGRATIONS) -> SqlContent:
    """Open the store in a PostgreSQL database."""
    from penstock.stores.book.postgres import PostgresDatabase  # noqa: PLC0415

    database = PostgresDatabase(url, schema=CONTENT_SCHEMA, lock=_LOCK)
    try:
        database.make_schema()
        migrate(database, migrations, table=_TABLE)
    except BaseException:
        database.close()
        raise
    return SqlContent(database)


def open_file(path: Path, migrations: Sequence[Migration] = CONTENT_MIGRATIONS) -> SqlContent:
    """Open the store in a file."""
    database = SqliteDatabase(path)
    try:
        migrate(database, migrations, table=_TABLE)
        database.fetch("PRAGMA secure_delete = ON")  # deleted content is overwritten in the file
    except BaseException:
        database.close()
        raise
    # Names and content that were deleted are in the write-ahead log, too, until it is copied into the file.
    return SqlContent(database, lambda: database.moved, lambda: database.fetch("PRAGMA wal_checkpoint(TRUNCATE)"))
