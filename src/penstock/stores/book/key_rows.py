"""The rows of keys, as every change of keys writes them: with the version of the keys, which processes watch."""

from collections.abc import Iterable, Sequence

from penstock.amounts import DAY_MS
from penstock.gateway.keys.keys import Key
from penstock.stores.book.database import Queryable, Transaction, replacement
from penstock.stores.book.rows import KEYS, number, text
from penstock.stores.book.selection import marks

KEYS_CHANGED = "UPDATE meta SET value = value + 1 WHERE name = 'keys'"
# The names of these rows of `meta` have the id of the key.
STOPPED = "stop:"
_PUT = replacement("keys", "id", KEYS.columns)
_KEYS = f"SELECT {', '.join(KEYS.columns)} FROM keys {{where}} ORDER BY created_ms, id"
_STOP = replacement("meta", "name", ("name", "value"))
_FORGET_STOPS = f"DELETE FROM meta WHERE name LIKE '{STOPPED}%' AND value < ?"


def read_keys(reader: Queryable, ids: Sequence[str] | None = None) -> list[Key]:
    """All keys, or those with these ids, the oldest first, including revoked and expired ones."""
    if ids is None:
        return [KEYS.read(row) for row in reader.fetch(_KEYS.format(where=""))]
    where = f"WHERE id IN {marks(ids)}" if ids else "WHERE 1 = 0"
    return [KEYS.read(row) for row in reader.fetch(_KEYS.format(where=where), [*map(text, ids)])]


def put_keys(transaction: Transaction, keys: Iterable[Key]) -> None:
    """Store new and changed keys."""
    rows = [KEYS.write(key) for key in keys]
    if rows:
        transaction.execute_each(_PUT, rows)
        transaction.fetch(KEYS_CHANGED)


def stop_calls(transaction: Transaction, ids: Iterable[str], now_ms: int) -> None:
    """Ask every process that uses the book to stop the running calls of keys."""
    rows = [(f"{STOPPED}{text(id)}", number(now_ms)) for id in ids]
    if rows:
        transaction.fetch(_FORGET_STOPS, (number(now_ms - DAY_MS),))
        transaction.execute_each(_STOP, rows)
        transaction.fetch(KEYS_CHANGED)
