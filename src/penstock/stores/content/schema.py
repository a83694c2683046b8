"""Schema: the tables of kept content. The rules for migrations are those of the ledger (`stores/book/schema.py`).

threads   the owner of a thread, and when its records may be deleted
owners    the bytes of each owner's records, for each kind
records   one row per record: its owner, its parent, the pseudonym of the user that it is about, its size
parts     the texts of records. They are apart, because a change of a row copies the whole row.
names     further names of records, by their owner
users     the pseudonyms of end users
secrets   random keys that all users of the database share
meta      numbers: the version of the `schema`
"""

from collections.abc import Sequence

from penstock.stores.book.database import SqlDialect, numbers, texts
from penstock.stores.book.schema import Migration


def _first(_dialect: SqlDialect) -> Sequence[str]:
    return (
        "CREATE TABLE meta (name TEXT PRIMARY KEY, value BIGINT NOT NULL)",
        "INSERT INTO meta (name, value) VALUES ('schema', 0)",
        "CREATE TABLE secrets (name TEXT PRIMARY KEY, value TEXT NOT NULL)",
        f"CREATE TABLE threads (id TEXT PRIMARY KEY, {texts('kind owner')}, until_ms BIGINT NOT NULL)",
        "CREATE INDEX threads_by_time ON threads (kind, until_ms)",
        "CREATE INDEX threads_by_owner ON threads (kind, owner, until_ms)",
        f"CREATE TABLE owners ({texts('kind owner')}, bytes BIGINT NOT NULL, PRIMARY KEY (kind, owner))",
        f"""
        CREATE TABLE records (
            id TEXT PRIMARY KEY,
            {texts("kind owner parent thread subject")},
            {numbers("at_ms until_ms size")}
        )
        """,
        "CREATE INDEX records_by_thread ON records (thread)",
        "CREATE INDEX records_by_subject ON records (subject) WHERE subject <> ''",
        """
        CREATE TABLE parts (
            record TEXT NOT NULL REFERENCES records (id) ON DELETE CASCADE,
            name TEXT NOT NULL,
            size BIGINT NOT NULL,
            body TEXT NOT NULL,
            PRIMARY KEY (record, name)
        )
        """,
        """
        CREATE TABLE names (
            owner TEXT NOT NULL,
            name TEXT NOT NULL,
            record TEXT NOT NULL REFERENCES records (id) ON DELETE CASCADE,
            PRIMARY KEY (owner, name)
        )
        """,
        "CREATE INDEX names_by_record ON names (record)",
        """
        CREATE TABLE users (
            pseudonym TEXT PRIMARY KEY, name TEXT NOT NULL, at_ms BIGINT NOT NULL, used_ms BIGINT NOT NULL
        )
        """,
        "CREATE INDEX users_by_name ON users (name, at_ms)",
        "CREATE INDEX users_by_use ON users (used_ms)",
    )


CONTENT_MIGRATIONS: tuple[Migration, ...] = (_first,)
