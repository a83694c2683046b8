"""SqlUsers: the end users and their pseudonyms, in the SQL database of kept content.

An end user is the person that a client names in a request (`user`, or the dialect's own field). The ledger and its
archives have only the pseudonym, which is random: without this table it leads to no one. So erasing a user here covers
every copy of the ledger. A user has one pseudonym, and further ones only if calls got them while the store did not
answer.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import cast

from msgspec import Struct

from penstock.amounts import clock_ms
from penstock.stores.book.database import Database, Queryable, Transaction
from penstock.stores.book.rows import RowMapper, text
from penstock.stores.book.selection import marks

# The time of the last use is written again after this time.
_TOUCH_MS = 43_200_000
# Records that are deleted in one transaction.
_BATCH = 100
_ERASURES = "erasures of users"
_PSEUDONYMS = "SELECT pseudonym, name, at_ms, used_ms FROM users WHERE"
_OLDEST_FIRST = "ORDER BY at_ms, pseudonym"
_NEW_USER = """
INSERT INTO users (pseudonym, name, at_ms, used_ms) VALUES (?, ?, ?, ?) ON CONFLICT (pseudonym) DO NOTHING
"""
_COUNT_ERASURE = """
INSERT INTO meta (name, value) VALUES (?, 1) ON CONFLICT (name) DO UPDATE SET value = meta.value + 1
"""


class Pseudonym(Struct, frozen=True):
    """A pseudonym, the name of its user, and when it was first and last used, in milliseconds since 1970.

    The time of the last use is accurate to a day.
    """

    id: str
    name: str
    at_ms: int
    used_ms: int


_PSEUDONYM = RowMapper(Pseudonym)


class ClaimedPseudonyms(Struct, frozen=True):
    """The pseudonyms of users, by name. `erasures` is a number that changes with each erasure."""

    by_name: Mapping[str, str]
    erasures: int


class ErasedUser(Struct, frozen=True):
    """What was erased: the pseudonyms of the user, and the number of kept records."""

    pseudonyms: tuple[str, ...]
    records: int


class SqlUsers:
    """The users in an open content store. It blocks, so only threads use it. Failures raise `BookError`.

    `delete_about(pseudonyms, most)` deletes up to `most` records about these pseudonyms, and returns how
    many it deleted. `on_erased` is called after an erasure.
    """

    def __init__(
        self,
        database: Database,
        delete_about: Callable[[Sequence[str], int], int],
        on_erased: Callable[[], object],
    ) -> None:
        self._database = database
        self._delete_about = delete_about
        self._on_erased = on_erased

    def claim(self, proposed: Mapping[str, str], further: Mapping[str, str]) -> ClaimedPseudonyms:
        """The pseudonyms of users. A user without one gets the one that `proposed` has for its name.

        `further` are names by pseudonyms that calls got already: they are added to those of their users. Reads only, if
        all of them have one.
        """
        names = {name: text(name) for name in proposed}
        now = clock_ms()

        def read(reader: Queryable) -> tuple[dict[str, Pseudonym], int]:
            stored = list(names.values())
            rows = reader.fetch(f"{_PSEUDONYMS} name IN {marks(stored)} {_OLDEST_FIRST}", stored) if stored else []
            first: dict[str, Pseudonym] = {}
            for row in rows:
                found = _PSEUDONYM.read(row)
                first.setdefault(found.name, found)
            return first, _erasures(reader)

        def write(transaction: Transaction) -> tuple[dict[str, Pseudonym], int]:
            known, _ = read(transaction)
            new = [(proposed[name], stored, now, now) for name, stored in names.items() if stored not in known]
            late = [(id, text(name), now, now) for id, name in further.items()]
            transaction.execute_each(_NEW_USER, [*new, *late])
            used = [(now, found.name) for found in known.values() if _is_stale(found, now)]
            transaction.execute_each("UPDATE users SET used_ms = ? WHERE name = ?", used)
            return read(transaction)

        found, erasures = self._database.read(read)
        if further or any(stored not in found or _is_stale(found[stored], now) for stored in names.values()):
            found, erasures = self._database.write(write)
        return ClaimedPseudonyms({name: found[stored].id for name, stored in names.items()}, erasures)

    def erasures(self) -> int:
        """A number that changes with each erasure."""
        return _erasures(self._database)

    def find(self, name: str) -> Sequence[Pseudonym]:
        """The pseudonyms of a user, the one in use first. `name` can be a pseudonym, too."""
        return _find(self._database, name)

    def erase(self, name: str) -> ErasedUser:
        """Delete what is kept about a user, then its pseudonyms.

        If it is interrupted, the user can still be found and erased. Records that were added meanwhile are deleted in
        the end. A pseudonym that is erased already deletes the records about it.
        """
        ids = tuple(found.id for found in self.find(name))
        about = ids or (text(name),)
        records = self._delete_records(about)

        def erase(transaction: Transaction) -> None:
            transaction.fetch(f"DELETE FROM users WHERE pseudonym IN {marks(ids)}", ids)
            transaction.fetch(_COUNT_ERASURE, (_ERASURES,))

        if ids:
            self._database.write(erase)
            records += self._delete_records(about)
        if ids or records:
            self._on_erased()
        return ErasedUser(ids, records)

    def prune(self, unused_since_ms: int, most: int) -> int:
        """Delete pseudonyms that have not been used since then, at most `most`. Returns how many were deleted."""
        query = "SELECT pseudonym FROM users WHERE used_ms < ? ORDER BY used_ms LIMIT ?"
        if not self._database.fetch(query, (unused_since_ms, 1)):
            return 0

        def prune(transaction: Transaction) -> int:
            ids = [id for (id,) in transaction.fetch(query, (unused_since_ms, most))]
            if ids:
                transaction.fetch(f"DELETE FROM users WHERE pseudonym IN {marks(ids)}", ids)
            return len(ids)

        return self._database.write(prune)

    def _delete_records(self, about: Sequence[str]) -> int:
        total = 0
        while deleted := self._delete_about(about, _BATCH):
            total += deleted
        return total


def _find(reader: Queryable, name: str) -> Sequence[Pseudonym]:
    stored = text(name)
    rows = reader.fetch(
        f"{_PSEUDONYMS} name = ? OR name IN (SELECT name FROM users WHERE pseudonym = ?) {_OLDEST_FIRST}",
        (stored, stored),
    )
    return [_PSEUDONYM.read(row) for row in rows]


def _is_stale(found: Pseudonym, now_ms: int) -> bool:
    return found.used_ms < now_ms - _TOUCH_MS


def _erasures(reader: Queryable) -> int:
    rows = reader.fetch("SELECT value FROM meta WHERE name = ?", (_ERASURES,))
    return cast(int, rows[0][0]) if rows else 0
