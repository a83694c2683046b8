"""SqlContent: kept content in an SQL database."""

import secrets
from collections.abc import Callable, Sequence
from typing import cast

from penstock.amounts import clock_ms
from penstock.gateway.content.kept_record import History, HistoryLimits, KeptRecord, fair_share
from penstock.stores.book.database import Database, Queryable, Row, Transaction, Value, insertion
from penstock.stores.book.rows import RowMapper
from penstock.stores.book.selection import marks
from penstock.stores.content.sql_users import SqlUsers

# What a record takes besides its texts: its rows and their index entries. Many small records are counted, too.
_OVERHEAD = 512
# The same for each of its names.
_NAME_OVERHEAD = 256
_SECRET_BYTES = 32
_RECORD = ("id", "kind", "owner", "parent", "thread", "at_ms", "until_ms", "size", "subject")
_FOUND = RowMapper(KeptRecord, ("id", "parent", "at_ms", "until_ms"))
_NEW_RECORD = f"{insertion('records', _RECORD)} RETURNING id"
_NEW_NAME = """
INSERT INTO names (owner, name, record) VALUES (?, ?, ?)
ON CONFLICT (owner, name) DO UPDATE SET record = excluded.record
"""
_NEW_PART = "INSERT INTO parts (record, name, size, body) VALUES (?, ?, ?, ?)"
# A thread is kept until the latest time of its records.
_EXTEND = """
INSERT INTO threads (id, kind, owner, until_ms) VALUES (?, ?, ?, ?)
ON CONFLICT (id) DO UPDATE SET until_ms = excluded.until_ms WHERE excluded.until_ms > threads.until_ms
"""
_COUNT = """
INSERT INTO owners (kind, owner, bytes) VALUES (?, ?, ?)
ON CONFLICT (kind, owner) DO UPDATE SET bytes = owners.bytes + excluded.bytes
"""
# A record, then its parent, and so on. Each of them has the same owner: a parent is checked again.
_CHAIN = """
WITH RECURSIVE chain (id, parent, at_ms, until_ms, depth) AS (
    SELECT r.id, r.parent, r.at_ms, r.until_ms, 1
    FROM records r JOIN threads t ON t.id = r.thread
    WHERE r.id = ? AND r.kind = ? AND r.owner = ? AND t.until_ms > ?
    UNION ALL
    SELECT r.id, r.parent, r.at_ms, r.until_ms, chain.depth + 1
    FROM chain JOIN records r ON r.id = chain.parent AND r.kind = ? AND r.owner = ?
    WHERE chain.depth < ?
)
"""
_CHAIN_ROWS = f"{_CHAIN} SELECT id, parent, at_ms, until_ms FROM chain ORDER BY depth DESC"
_EXPIRED = """
SELECT r.id, r.owner, r.size FROM threads t JOIN records r ON r.thread = t.id
WHERE t.kind = ? AND t.until_ms <= ? ORDER BY t.until_ms LIMIT ?
"""
_OLDEST = """
SELECT t.id, SUM(r.size) FROM threads t JOIN records r ON r.thread = t.id
WHERE t.id IN (SELECT id FROM threads WHERE kind = ? AND owner = ? ORDER BY until_ms LIMIT ?)
GROUP BY t.id, t.until_ms ORDER BY t.until_ms
"""


class SqlContent:
    """An open database of kept content, whose schema is up to date. It blocks, so only threads use it.
    Failures raise `BookError`.

    `is_moved` tells whether its file was moved. `purge` removes deleted content from its files.
    """

    def __init__(
        self,
        database: Database,
        is_moved: Callable[[], bool] = lambda: False,
        purge: Callable[[], object] = lambda: None,
    ) -> None:
        self.database = database
        self._is_moved = is_moved
        self.users = SqlUsers(database, self._delete_about, purge)

    @property
    def moved(self) -> bool:
        """Whether its file is no longer at its path, so that it must be opened again."""
        return self._is_moved()

    def secret(self, name: str) -> bytes:
        """A random secret that all users of the database share."""
        query = "SELECT value FROM secrets WHERE name = ?"

        def make(transaction: Transaction) -> list[Row]:
            new = secrets.token_hex(_SECRET_BYTES)
            transaction.fetch("INSERT INTO secrets (name, value) VALUES (?, ?) ON CONFLICT DO NOTHING", (name, new))
            return transaction.fetch(query, (name,))

        rows = self.database.fetch(query, (name,)) or self.database.write(make)
        return bytes.fromhex(cast(str, rows[0][0]))

    def put(self, records: Sequence[KeptRecord]) -> None:
        """Add records, durably, all or none. A record whose id exists is not changed."""
        if records:
            self.database.write(lambda transaction: _put(transaction, records))

    def record(self, kind: str, owner: str, id: str) -> KeptRecord | None:
        """A record of this owner. Expired records do not exist."""
        parameters = (id, kind, owner, clock_ms(), kind, owner, 1)

        def read(reader: Queryable) -> KeptRecord | None:
            rows = reader.fetch(_CHAIN_ROWS, parameters)
            parts = reader.fetch("SELECT name, body FROM parts WHERE record = ?", (id,)) if rows else []
            return _record(kind, owner, rows[0], parts) if rows else None

        return self.database.read(read)

    def history(self, kind: str, owner: str, id: str, limits: HistoryLimits) -> History:
        """A record of this owner with those before it, with only the parts that `limits` names."""
        chain: Sequence[Value] = (id, kind, owner, clock_ms(), kind, owner, limits.records + 1)
        named = f"p.name IN {marks(limits.parts)}"

        def read(reader: Queryable) -> History:
            rows = reader.fetch(_CHAIN_ROWS, chain)
            if len(rows) > limits.records:
                return History(fits=False)
            if rows and rows[0][1] != "":
                return History(complete=False)
            joined = f"FROM chain JOIN parts p ON p.record = chain.id WHERE {named}"
            parameters = (*chain, *limits.parts)
            ((size,),) = reader.fetch(f"{_CHAIN} SELECT COALESCE(SUM(p.size), 0) {joined}", parameters)
            if cast(int, size) > limits.size:
                return History(fits=False)
            if limits.reserve is not None:
                limits.reserve(cast(int, size))
            parts: dict[Value, list[Row]] = {}
            for record, *part in reader.fetch(f"{_CHAIN} SELECT p.record, p.name, p.body {joined}", parameters):
                parts.setdefault(record, []).append(tuple(part))
            return History(tuple(_record(kind, owner, row, parts.get(row[0], [])) for row in rows))

        return self.database.read(read)

    def named(self, kind: str, owner: str, names: Sequence[str], limits: HistoryLimits) -> tuple[KeptRecord, ...]:
        """The records of this owner that have these names; none if there are more records or bytes than allowed."""
        chosen = (
            "FROM records r JOIN threads t ON t.id = r.thread "
            f"WHERE r.id IN (SELECT record FROM names WHERE owner = ? AND name IN {marks(names)}) "
            "AND r.kind = ? AND r.owner = ? AND t.until_ms > ?"
        )
        parameters: Sequence[Value] = (owner, *names, kind, owner, clock_ms())

        def read(reader: Queryable) -> tuple[KeptRecord, ...]:
            total = f"SELECT COALESCE(SUM(p.size), 0) FROM parts p WHERE p.name IN {marks(limits.parts)}"
            ((count,),) = reader.fetch(f"SELECT COUNT(*) {chosen}", parameters)
            ((size,),) = reader.fetch(f"{total} AND p.record IN (SELECT r.id {chosen})", (*limits.parts, *parameters))
            if cast(int, count) > limits.records or cast(int, size) > limits.size:
                return ()
            if limits.reserve is not None:
                limits.reserve(cast(int, size))
            rows = reader.fetch(f"SELECT r.id, r.parent, r.at_ms, r.until_ms {chosen}", parameters)
            query = f"SELECT name, body FROM parts WHERE record = ? AND name IN {marks(limits.parts)}"
            return tuple(
                _record(kind, owner, row, reader.fetch(query, (cast(str, row[0]), *limits.parts))) for row in rows
            )

        return self.database.read(read)

    def delete(self, kind: str, owner: str, id: str) -> bool:
        """Delete a record of this owner; returns whether it existed."""
        now = clock_ms()

        def delete(transaction: Transaction) -> bool:
            rows = transaction.fetch(
                "SELECT r.id, r.owner, r.size FROM records r JOIN threads t ON t.id = r.thread "
                "WHERE r.id = ? AND r.kind = ? AND r.owner = ? AND t.until_ms > ?",
                (id, kind, owner, now),
            )
            _delete(transaction, kind, rows)
            return bool(rows)

        return self.database.write(delete)

    def _delete_about(self, pseudonyms: Sequence[str], most: int) -> int:
        """Delete up to `most` records about these users, of any kind. Returns how many were deleted."""
        query = f"SELECT kind, id, owner, size FROM records WHERE subject IN {marks(pseudonyms)} LIMIT ?"

        def delete(transaction: Transaction) -> int:
            rows = transaction.fetch(query, (*pseudonyms, most))
            for kind in {cast(str, kind) for kind, *_ in rows}:
                _delete(transaction, kind, [row[1:] for row in rows if row[0] == kind])
            return len(rows)

        return self.database.write(delete)

    def prune(self, kind: str, max_total: int, most: int) -> int:
        """Delete expired threads, then the oldest ones of owners that exceed their share (`fair_share`) of `max_total`.

        Deletes at most `most` records, and returns how many it has deleted.
        """
        now = clock_ms()

        def prune(transaction: Transaction) -> int:
            rows = transaction.fetch(_EXPIRED, (kind, now, most))
            if not rows and _expire_excess(transaction, kind, max_total, most):
                rows = transaction.fetch(_EXPIRED, (kind, now, most))
            _delete(transaction, kind, rows)
            return len(rows)

        return self.database.write(prune)

    def close(self) -> None:
        """Close the database."""
        self.database.close()


def _put(transaction: Transaction, records: Sequence[KeptRecord]) -> None:
    """Insert records with their parts. Putting a record twice adds nothing."""
    for record in records:
        parts = [(record.id, name, len(text.encode()), text) for name, text in record.parts.items()]
        size = _OVERHEAD + sum(part[2] for part in parts) + _NAME_OVERHEAD * len(record.names)
        thread = _thread(transaction, record)
        times = (record.at_ms, record.until_ms)
        row = (record.id, record.kind, record.owner, record.parent, thread, *times, size, record.subject)
        if transaction.fetch(_NEW_RECORD, row):
            transaction.execute_each(_NEW_PART, parts)
            transaction.execute_each(_NEW_NAME, [(record.owner, name, record.id) for name in record.names])
            transaction.fetch(_EXTEND, (thread, record.kind, record.owner, record.until_ms))
            transaction.fetch(_COUNT, (record.kind, record.owner, size))


def _thread(transaction: Transaction, record: KeptRecord) -> str:
    """The thread of a new record: that of its parent, named after its first record."""
    rows = transaction.fetch("SELECT thread FROM records WHERE id = ?", (record.parent,)) if record.parent else []
    return cast(str, rows[0][0]) if rows else record.id


def _record(kind: str, owner: str, row: Row, parts: Sequence[Row]) -> KeptRecord:
    return _FOUND.read(row, kind=kind, owner=owner, parts=dict(cast("Sequence[tuple[str, str]]", parts)))


def _expire_excess(transaction: Transaction, kind: str, max_total: int, most: int) -> bool:
    """Let the oldest threads of each owner that exceeds its share expire. Returns whether any expire."""
    rows = transaction.fetch("SELECT owner, bytes FROM owners WHERE kind = ?", (kind,))
    used = {owner: cast(int, size) for owner, size in rows}
    share = fair_share(used.values(), max_total)
    expired: list[Row] = []
    for owner, size in used.items():
        excess = size - share
        if excess > 0:
            for id, thread_size in transaction.fetch(_OLDEST, (kind, owner, most)):
                expired.append((id,))
                excess -= cast(int, thread_size)
                if excess <= 0:
                    break
    transaction.execute_each("UPDATE threads SET until_ms = 0 WHERE id = ?", expired)
    return bool(expired)


def _delete(transaction: Transaction, kind: str, rows: Sequence[Row]) -> None:
    """Delete records, given their ids, owners and sizes, with their parts and the threads that are empty then."""
    if not rows:
        return
    ids = [id for id, _, _ in rows]
    threads = transaction.fetch(f"SELECT DISTINCT thread FROM records WHERE id IN {marks(ids)}", ids)
    transaction.fetch(f"DELETE FROM records WHERE id IN {marks(ids)}", ids)
    transaction.execute_each(
        "DELETE FROM threads WHERE id = ? AND NOT EXISTS (SELECT 1 FROM records WHERE thread = threads.id)", threads
    )
    transaction.execute_each(_COUNT, [(kind, owner, -cast(int, size)) for _, owner, size in rows])
    transaction.fetch("DELETE FROM owners WHERE kind = ? AND bytes <= 0", (kind,))
