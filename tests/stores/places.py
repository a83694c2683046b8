"""Place: where a test's book is stored. Opens it any number of times, and reads its content without Penstock."""

import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from penstock.providers.secret import Secret
from penstock.stores.book.postgres import PostgresBook
from penstock.stores.book.schema import MIGRATIONS, Migration
from penstock.stores.book.sql_book import Book
from penstock.stores.book.sqlite import SqliteBook
from tests.stores.postgres import PostgresServer


class Place(Protocol):
    def open(self, *, readonly: bool = False, migrations: Sequence[Migration] = MIGRATIONS) -> Book: ...

    def execute(self, *statements: str) -> None:
        """Run SQL as anybody could."""


class SqlitePlace:
    def __init__(self, folder: Path) -> None:
        self.path = folder / "ledger.db"

    def open(self, *, readonly: bool = False, migrations: Sequence[Migration] = MIGRATIONS) -> Book:
        return SqliteBook.open(self.path, readonly=readonly, migrations=migrations)

    def execute(self, *statements: str) -> None:
        connection = sqlite3.connect(self.path)
        try:
            connection.execute("PRAGMA foreign_keys = ON")
            for statement in statements:
                connection.execute(statement)
            connection.commit()
        finally:
            connection.close()


class PostgresPlace:
    def __init__(self, server: PostgresServer) -> None:
        self.server = server
        self.url = server.new_database()

    def open(self, *, readonly: bool = False, migrations: Sequence[Migration] = MIGRATIONS) -> Book:
        return PostgresBook.open(Secret(self.url), readonly=readonly, migrations=migrations)

    def execute(self, *statements: str) -> None:
        self.server.execute(self.url, "SET search_path TO penstock", *statements)
