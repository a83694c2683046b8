"""Database: the small interface over SQLite and PostgreSQL, so that the ledger's SQL is the same for both.

SQL has `?` for each parameter. Values are text, integers and None only.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Protocol, TypeAlias, TypeVar

from penstock.errors import SlowQueryError

Value: TypeAlias = str | int | None
Row: TypeAlias = tuple[Value, ...]
T = TypeVar("T")
# How long one query may take.
QUERY_S = 15.0
# The place up to which calls are in the sums (`summary.py`, `spending.py`), in SQL.
SUMMED = "(SELECT value FROM meta WHERE name = 'summed')"


def slow_query(limit_s: float) -> SlowQueryError:
    """The error of a query that took too long."""
    return SlowQueryError(
        f"the query took longer than {limit_s:g} s: ask for a shorter time range, or for fewer conditions"
    )


def insertion(table: str, columns: Sequence[str]) -> str:
    """A statement that inserts a row unless its id exists."""
    marks = ", ".join("?" * len(columns))
    return f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({marks}) ON CONFLICT (id) DO NOTHING"


def texts(names: str) -> str:
    """The definitions of columns of texts, of which the names are given."""
    return ", ".join(f"{name} TEXT NOT NULL" for name in names.split())


def numbers(names: str) -> str:
    """The definitions of columns of numbers."""
    return ", ".join(f"{name} BIGINT NOT NULL" for name in names.split())


def replacement(table: str, key: str, columns: Sequence[str], *changing: str) -> str:
    """A statement that inserts a row, or changes columns of the one with the same key: all, or those that are named."""
    changed = ", ".join(f"{column} = excluded.{column}" for column in changing or columns)
    return (
        f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({', '.join('?' * len(columns))}) "
        f"ON CONFLICT ({key}) DO UPDATE SET {changed}"
    )


def addition(table: str, key: Sequence[str], sums: Sequence[str], *further: str, fixed: Sequence[str] = ()) -> str:
    """A statement that adds sums to the row with a key, or inserts the row, with the columns `fixed` last."""
    columns = (*key, *sums, *fixed)
    added = (f"{column} = {table}.{column} + excluded.{column}" for column in sums if column not in ("least", "most"))
    return (
        f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({', '.join('?' * len(columns))}) "
        f"ON CONFLICT ({', '.join(key)}) DO UPDATE SET {', '.join((*added, *further))}"
    )


class SqlDialect(Protocol):
    """The SQL that differs between the two databases. The schema inserts it where it is needed."""

    serial: str
    """The type of an auto-increment primary key."""
    clustered: str
    """The option of a table that is stored in the order of its primary key."""
    clustered_updated: str
    """The option of a table that is stored in the order of its primary key, and whose rows are often updated."""
    unlogged: str
    """The option of a table whose rows may be lost in a crash."""
    now_ms: str
    """An expression: the time of the database, in milliseconds since 1970."""
    tables: str
    """A query for the names of all tables."""
    functions: Sequence[str]
    """Statements that define `json_each`, a table function, if the database has none: the `key` and `value` of each
    member of a JSON object, which is a text."""

    def protect(self, table: str, *, unless: str) -> tuple[str, ...]:
        """Statements that make a table reject updates, and deletions except of rows for which `unless` is true."""


class Queryable(Protocol):
    """Runs queries."""

    def fetch(self, sql: str, parameters: Sequence[Value] = ()) -> list[Row]:
        """Run one statement; returns its rows."""


class Transaction(Queryable, Protocol):
    """An open transaction."""

    def fetch_each(self, sql: str, rows: Sequence[Row]) -> list[Row]:
        """Run a statement once for each row of parameters; returns all rows."""

    def insert_new(self, table: str, columns: Sequence[str], rows: Sequence[Row]) -> list[Row]:
        """Insert the rows whose id does not exist; returns the ids and places of the inserted ones."""

    def execute_each(self, sql: str, rows: Sequence[Row]) -> None:
        """Run a statement once for each row of parameters."""


class Database(Queryable, Protocol):
    """An open database. Failures raise `BookError`; a query that takes too long raises `SlowQueryError`. Each statement
    reads one snapshot."""

    name: str
    """A name for people, without a password."""
    dialect: SqlDialect
    readonly: bool

    def read(self, work: Callable[[Queryable], T]) -> T:
        """Run read-only work in one snapshot. It may be run again after a lost connection."""

    def write(self, work: Callable[[Transaction], T]) -> T:
        """Run work in a durable transaction. Writers are serialised; work may be run again after a lost connection."""

    def unlimited(self) -> AbstractContextManager[None]:
        """A context without time limits, for migrations: those of a large ledger take minutes."""

    def close(self) -> None:
        """Close the database."""
