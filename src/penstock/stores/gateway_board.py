"""GatewayBoard: requests between gateways that use one ledger, through its database.

Gateways need not reach each other over the network. Each one renews its row in `gateways`, and looks for requests of
others in `gateway_requests`, which it answers in `gateway_replies`. A gateway whose row was not renewed for `LEASE_S`
is gone. All times are those of the database, so that the clocks of the machines may differ.

In PostgreSQL the tables are in the ledger's schema and not logged: they are lost if the server crashes, and need not be
backed up. With SQLite, they are in a small file beside the ledger, which is never synchronised with the disk.
"""

import secrets
import time
from collections.abc import Mapping
from typing import NamedTuple, cast

from penstock.gateway.config import LedgerSettings
from penstock.stores.book.database import Database, Transaction
from penstock.stores.book.open import state_folder
from penstock.stores.book.sqlite import SqliteDatabase

FILE = "gateways.db"
LEASE_S = 15.0
# How long to wait for the replies: a gateway looks for requests every second.
_TIMEOUT_S = 3.0
_POLL_S = 0.1
# Rows that are older belong to requests that have ended. Their sender did not delete them, because it died.
_KEEP_MS = 60_000
_TABLES = (
    "gateways (id TEXT PRIMARY KEY, seen_ms BIGINT NOT NULL)",
    "gateway_requests (id TEXT PRIMARY KEY, sender TEXT NOT NULL, at_ms BIGINT NOT NULL, target TEXT NOT NULL)",
    "gateway_replies (request TEXT, gateway TEXT, body TEXT NOT NULL, PRIMARY KEY (request, gateway))",
)
_PENDING = """
SELECT id, target FROM gateway_requests WHERE sender <> ? AND NOT EXISTS (
    SELECT * FROM gateway_replies WHERE request = gateway_requests.id AND gateway = ?
)
"""
_REPLY = "INSERT INTO gateway_replies (request, gateway, body) VALUES (?, ?, ?) ON CONFLICT DO NOTHING"


class BoardReplies(NamedTuple):
    """The replies to a request, and the number of gateways that should have answered it."""

    bodies: list[str]
    asked: int


class GatewayBoard:
    """The tables in an open database. Failures raise `BookError`."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._now = database.dialect.now_ms

        def create(transaction: Transaction) -> None:
            for table in _TABLES:
                transaction.fetch(f"CREATE {database.dialect.unlogged} TABLE IF NOT EXISTS {table}")

        database.write(create)

    def renew(self, gateway: str) -> None:
        """Note that a gateway runs, and delete old rows."""
        now = self._now
        self._database.fetch(
            f"INSERT INTO gateways (id, seen_ms) VALUES (?, {now}) "
            "ON CONFLICT (id) DO UPDATE SET seen_ms = excluded.seen_ms",
            (gateway,),
        )
        self._database.fetch(f"DELETE FROM gateways WHERE seen_ms < {now} - {_KEEP_MS}")
        self._database.fetch(f"DELETE FROM gateway_requests WHERE at_ms < {now} - {_KEEP_MS}")
        self._database.fetch("DELETE FROM gateway_replies WHERE request NOT IN (SELECT id FROM gateway_requests)")

    def leave(self, gateway: str) -> None:
        """Note that a gateway has ended."""
        self._database.fetch("DELETE FROM gateways WHERE id = ?", (gateway,))

    def pending(self, gateway: str) -> list[tuple[str, str]]:
        """The requests of others that a gateway has not answered: their ids and targets."""
        return cast("list[tuple[str, str]]", self._database.fetch(_PENDING, (gateway, gateway)))

    def reply(self, request: str, gateway: str, body: str) -> None:
        """Answer a request."""
        self._database.fetch(_REPLY, (request, gateway, body))

    def ask(self, sender: str, target: str) -> BoardReplies:
        """Send a request to all other gateways, and wait for their replies."""
        others = f"SELECT COUNT(*) FROM gateways WHERE id <> ? AND seen_ms > {self._now} - {round(LEASE_S * 1000)}"
        asked = cast(int, self._database.fetch(others, (sender,))[0][0])
        if not asked:
            return BoardReplies([], 0)
        request = secrets.token_hex(8)
        self._database.fetch(
            f"INSERT INTO gateway_requests (id, sender, at_ms, target) VALUES (?, ?, {self._now}, ?)",
            (request, sender, target),
        )
        deadline, bodies = time.monotonic() + _TIMEOUT_S, list[str]()
        while len(bodies) < asked and time.monotonic() < deadline:
            time.sleep(_POLL_S)
            rows = self._database.fetch("SELECT body FROM gateway_replies WHERE request = ?", (request,))
            bodies = [cast(str, body) for (body,) in rows]
        self._database.fetch("DELETE FROM gateway_requests WHERE id = ?", (request,))
        self._database.fetch("DELETE FROM gateway_replies WHERE request = ?", (request,))
        return BoardReplies(bodies, asked)

    def close(self) -> None:
        """Close the database."""
        self._database.close()


def open_board(settings: LedgerSettings, environment: Mapping[str, str]) -> GatewayBoard:
    """Open the board beside the ledger."""
    if settings.postgres is not None:
        from penstock.stores.book.postgres import PostgresBook  # noqa: PLC0415 - few ledgers are there

        # As a book, so that the schema of the ledger is there first.
        database: Database = PostgresBook.open(settings.postgres).database
    else:
        database = SqliteDatabase(state_folder(settings, environment) / FILE)
        database.fetch("PRAGMA synchronous = OFF")
    try:
        return GatewayBoard(database)
    except BaseException:
        database.close()
        raise
