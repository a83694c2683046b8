"""Database: the little that the ledger asks of SQLite and PostgreSQL alike, so that both are asked in the same words.

SQL has `?` for each parameter. Text, whole numbers and None are all that goes in and comes out.
"""

from collections.abc import Callable, Sequence
from typing import Protocol, TypeAlias, TypeVar

Value: TypeAlias = str | int | None
Row: TypeAlias = tuple[Value, ...]
T = TypeVar("T")


def insertion(table: str, columns: Sequence[str]) -> str:
    """A statement that inserts a row, unless its id is there already."""
    marks = ", ".join("?" * len(columns))
    return f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({marks}) ON CONFLICT (id) DO NOTHING"


class SqlDialect(Protocol):
    """What the two databases have different words for. Each is put into the SQL of the schema by its name."""

    serial: str
    """A number that grows from row to row, and is the table's key."""
    clustered: str
    """A table that lies in the order of its key."""
    tables: str
    """Asks for the names of all tables."""

    def refuse(self, table: str, *, but: str) -> tuple[str, ...]:
        """Statements that make a table refuse changes, and removals but of rows of which `but` is true."""

    def removed(self, table: str, statements: Sequence[str]) -> tuple[str, ...]:
        """Statements that have others run whenever rows of a table were removed."""


class Queryable(Protocol):
    """Who can be asked."""

    def fetch(self, sql: str, parameters: Sequence[Value] = ()) -> list[Row]:
        """Run one statement; the rows that it gives."""


class Transaction(Queryable, Protocol):
    """Statements that take effect together, or not at all."""

    def fetch_each(self, sql: str, rows: Sequence[Row]) -> list[Row]:
        """Run a statement once for each row of parameters; all rows that they give."""

    def insert_new(self, table: str, columns: Sequence[str], rows: Sequence[Row]) -> list[Row]:
        """Insert rows, but none whose id is there already; the ids and places of those that were not."""

    def execute_each(self, sql: str, rows: Sequence[Row]) -> None:
        """Run a statement once for each row of parameters."""


class Database(Queryable, Protocol):
    """An open database. What it cannot do it says as `BookError`. What one statement reads is one snapshot."""

    name: str
    """As people are told; never has a password in it."""
    words: SqlDialect
    readonly: bool

    def look(self, work: Callable[[Queryable], T]) -> T:
        """Do work that only reads, all of it in one snapshot. It may be done anew after a loss."""

    def write(self, work: Callable[[Transaction], T]) -> T:
        """Do work in a transaction, durably. Writers wait for each other; work may be done anew after a loss."""

    def close(self) -> None:
        """Let go of it."""
