"""Book: the ledger in an SQL database. The SQL is here, in `listing.py`, `sums.py`, `health.py` and `summary.py`."""

import contextlib
from collections.abc import Callable, Iterable, Sequence
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import cast

from penstock.amounts import clock_ms
from penstock.errors import AdminError, BookError
from penstock.gateway.billing.queries import Archived, Filter, Grouping, ModelHealth, TakenOver, UsageRow
from penstock.gateway.keys.keys import Key, KeyBudgets, KeyName
from penstock.gateway.keys.quota import Spender
from penstock.gateway.keys.store import Spent
from penstock.gateway.limits.warnings import BudgetWarning, Delivery, TakenWarning
from penstock.gateway.people.audit import GATEWAY, entry_of, key_change, team_change
from penstock.gateway.record.entry import Entry
from penstock.gateway.teams.members import MemberLimits
from penstock.gateway.teams.team import Team, existing
from penstock.stores.book.budget_warnings import claim, end_delivery, take
from penstock.stores.book.budget_warnings import newest as newest_warnings
from penstock.stores.book.database import SUMMED, Database, Queryable, Row, Transaction
from penstock.stores.book.directory import SqlDirectory
from penstock.stores.book.export import export
from penstock.stores.book.grouped_usage import usage
from penstock.stores.book.health import health
from penstock.stores.book.key_rows import STOPPED, put_keys, read_keys, stop_calls
from penstock.stores.book.limit_requests import SqlLimitRequests
from penstock.stores.book.listing import AS_BOOKED, PageStart, in_order, newest
from penstock.stores.book.people import SqlPeople, append, has_session
from penstock.stores.book.report_rows import TakenReport, end_report, take_report
from penstock.stores.book.retention import (
    Pruner,
    archived,
    drop_sums,
    prunable,
    without_archived,
)
from penstock.stores.book.rows import (
    ATTEMPT,
    CALL,
    RowMapper,
    attempt_rows,
    call_row,
    number,
    read_entries,
    text,
)
from penstock.stores.book.selection import Selection, marks
from penstock.stores.book.spending import spenders_after, spent
from penstock.stores.book.summary import sum_up
from penstock.stores.book.team_rows import change_member, put_teams, read_members, read_teams

_BOOK_ATTEMPT = f"INSERT INTO attempts (call, {', '.join(ATTEMPT)}) VALUES {marks(('call', *ATTEMPT))}"
_KEY_NAME = RowMapper(KeyName)
_KEY_NAMES = f"SELECT {', '.join(_KEY_NAME.columns)} FROM keys ORDER BY created_ms, id"
_KEY_BUDGETS = RowMapper(KeyBudgets)
_BUDGETS = f"SELECT {', '.join(_KEY_BUDGETS.columns)} FROM keys"
_STOPS = f"SELECT name, value FROM meta WHERE name LIKE '{STOPPED}%'"


class Book:
    """The ledger in a database whose schema is up to date.

    Every method blocks. A book may be opened by one thread and used by another, but never by two at the same time.
    `BookError` means that the store is unavailable: full, locked or unreachable. The caller may repeat the same
    operation, even if it did take effect: `append` is idempotent.
    """

    def __init__(self, database: Database) -> None:
        self.database = database
        self.actor = GATEWAY
        self._pruner: Pruner | None = None

    @property
    def people(self) -> SqlPeople:
        """The API tokens, the sessions and the audit log."""
        return SqlPeople(self.database)

    @property
    def directory(self) -> SqlDirectory:
        """The people and groups that an identity provider provisions."""
        return SqlDirectory(self.database, self.actor)

    @property
    def limit_requests(self) -> SqlLimitRequests:
        """The requests of members for more."""
        return SqlLimitRequests(self.database, self.actor)

    def append(self, entries: Sequence[Entry]) -> Sequence[Entry]:
        """Append entries, durably, all or none; returns the new ones. One whose id is known is not changed."""
        by_id: dict[str, Entry] = {}
        for entry in entries:
            by_id.setdefault(text(entry.id), entry)
        return self.database.write(lambda transaction: _book(transaction, by_id)) if by_id else ()

    def entries(self, wanted: Filter, *, limit: int, before: int | None = None) -> list[tuple[int, Entry]]:
        """Entries, newest first, each with its place in the book; `before` continues from such a place."""

        def read(reader: Queryable) -> list[tuple[int, Entry]]:
            at = None
            if before is not None:
                rows = reader.fetch("SELECT at_ms FROM calls WHERE place = ?", (number(before),))
                if not rows:
                    return []
                at = PageStart(rows[0][0], number(before))
            return newest(reader, wanted, at, limit)

        return self.database.read(read)

    def following(self, wanted: Filter, after: int, *, limit: int) -> list[tuple[int, Entry]]:
        """Entries in the order in which they were booked, after a place."""
        selection = Selection(wanted)
        selection.add("c.place > ?", number(after))
        return read_entries(self.database.fetch(*in_order(selection, AS_BOOKED, limit)))

    def entry(self, id: str) -> Entry | None:
        """The entry with that id, if it exists."""
        selection = Selection(Filter())
        selection.add("c.id = ?", text(id))
        rows = read_entries(self.database.fetch(*in_order(selection, AS_BOOKED, 1)))
        return rows[0][1] if rows else None

    def last(self) -> int:
        """The place of the last entry; 0 in an empty book."""
        return cast(int, self.database.fetch("SELECT COALESCE(MAX(place), 0) FROM calls")[0][0])

    def usage(
        self, wanted: Filter, by: Sequence[Grouping], *, tag: str = "", most: int | None = None
    ) -> list[UsageRow]:
        """The usage by groups, sorted by name, or of the `most` expensive ones; one row if there are no groups.

        `sums.py` and `grouped_usage.py` say what the groups are. Archived calls are included, in whole hours, where
        `covers_archived` of `wanted` is true.
        """
        return self.database.read(lambda reader: usage(reader, wanted, by, tag, most))

    def health(self, since_ms: int, until_ms: int, bucket_ms: int) -> list[ModelHealth]:
        """The health of each provider's models in a time range, in buckets of `bucket_ms`."""
        span = number(since_ms), number(until_ms), number(bucket_ms)
        return self.database.read(lambda reader: health(reader, *span))

    def sum_up(self, most: int) -> bool:
        """Add the next `most` calls to the summary, if there are as many; returns whether there were. The results of
        `usage` and `health` do not depend on it, only their speed."""
        return self._has_unsummed(most) and self.database.write(lambda transaction: sum_up(transaction, most)) == most

    def _has_unsummed(self, most: int) -> bool:
        ((ahead,),) = self.database.fetch(f"SELECT COALESCE(MAX(place), 0) - {SUMMED} FROM calls")
        if cast(int, ahead) < most:
            return False  # there cannot be as many calls, so there is no need to count them
        return bool(
            self.database.fetch(f"SELECT 1 FROM calls WHERE place > {SUMMED} LIMIT 1 OFFSET {number(most) - 1}")
        )

    def spent(self, who: str | Spender, since_ms: int, *, recent_since_ms: int | None = None) -> Spent:
        """The spending since `since_ms`, and the ids of calls that were settled since `recent_since_ms`."""
        spender = who if isinstance(who, Spender) else Spender(key=who)
        return self.spent_by([(spender, since_ms)], recent_since_ms=recent_since_ms)[0]

    def spent_by(self, asked: Sequence[tuple[Spender, int]], *, recent_since_ms: int | None = None) -> Sequence[Spent]:
        """The spending of several spenders, each since its own time, and the ids of their recent calls."""
        return self.database.read(lambda reader: spent(reader, asked, recent_since_ms)) if asked else []

    def spenders_after(self, place: int) -> tuple[int, set[str]]:
        """The place of the last entry, and who spent by entries after a place."""
        return spenders_after(self.database, place)

    def archived(self) -> Archived:
        """Which calls are archived."""
        return archived(self.database)

    def prune(self, folder: Path, before_ms: int, *, most: int = 100) -> int | None:
        """Archive and delete the next calls of days that ended before a time; returns how many.

        0 means that there are no more, None that another process is pruning. No sum and no spending changes.
        """
        if self._pruner is not None and self._pruner.database is not self.database:
            self._pruner.close()
            self._pruner = None
        if self._pruner is None:
            self._pruner = Pruner(self.database)
        return self._pruner.step(folder, before_ms, most)

    def prunable(self, before_ms: int) -> int:
        """How many calls `prune` would archive."""
        return prunable(self.database, before_ms)

    def drop_sums(self, before_ms: int) -> bool:
        """Delete the sums of the oldest day, if it ended before a time; returns whether there was one.

        Spending is kept. A late entry of a deleted day is not stored, because it may be an archived one.
        """
        return drop_sums(self.database, before_ms)

    def export(self, wanted: Filter, folder: Path, write: Callable[[Entry], None]) -> list[str]:
        """Pass all entries that match to `write`, the oldest first; returns the archives that are not in the folder."""
        return export(self.database, wanted, folder, write)

    def teams(self) -> list[Team]:
        """All teams, by path, including deleted ones."""
        return read_teams(self.database)

    def members(self) -> list[MemberLimits]:
        """The members of teams who have limits of their own."""
        return read_members(self.database)

    def change_member(self, changed: MemberLimits, now_ms: int) -> None:
        """Store the limits of one member of a team."""
        self.database.write(lambda transaction: change_member(transaction, changed, self.actor, now_ms))

    def change_teams(self, change: Callable[[list[Team], list[Key]], Iterable[Team]]) -> list[Team]:
        """Store what `change` returns for the current teams and keys, in one transaction, and return it."""
        return [*self.take_over(lambda teams, keys: TakenOver(teams=list(change(teams, keys)))).teams]

    def take_over(self, change: Callable[[list[Team], list[Key]], TakenOver]) -> TakenOver:
        """Store and return teams, keys and entries, all or none. An entry whose id exists is not changed."""

        def put(transaction: Transaction) -> TakenOver:
            teams = {team.path: team for team in read_teams(transaction)}
            keys = {key.id: key for key in read_keys(transaction)}
            new = change(list(teams.values()), list(keys.values()))
            made = any(key.owner and key.id not in keys for key in new.keys)
            if made and self.actor.via == "session" and not has_session(transaction, self.actor.who, clock_ms()):
                # It ended after the request was authenticated: who has left gets no new key.
                raise AdminError("this session has ended: sign in again", code="session_not_found")
            put_teams(transaction, new.teams)
            put_keys(transaction, new.keys)
            acts = [team_change(self.actor, clock_ms(), teams.get(team.path), team) for team in new.teams]
            acts += [key_change(self.actor, clock_ms(), keys.get(key.id), key) for key in new.keys]
            append(transaction, self.actor, *filter(None, acts))
            if new.entries:
                _book(transaction, {text(entry.id): entry for entry in new.entries})
            return new

        return self.database.write(put)

    def keys(self, ids: Sequence[str] | None = None) -> list[Key]:
        """All keys, or those with these ids, the oldest first, including revoked and expired ones."""
        return read_keys(self.database, ids)

    def key_names(self) -> list[KeyName]:
        """The names, teams and times of all keys, without their limits."""
        return [_KEY_NAME.read(row) for row in self.database.fetch(_KEY_NAMES)]

    def key_budgets(self) -> list[KeyBudgets]:
        """The budgets of all keys."""
        return [_KEY_BUDGETS.read(row) for row in self.database.fetch(_BUDGETS)]

    def keys_version(self) -> int:
        """A number that changes with every change of keys; cheap to read."""
        return cast(int, self.database.fetch("SELECT value FROM meta WHERE name = 'keys'")[0][0])

    def change_keys(self, change: Callable[[list[Key], AbstractSet[str]], Iterable[Key]]) -> list[Key]:
        """Store what `change` returns for the current keys and teams, in one transaction, and return it. It may be
        called twice."""
        return [*self.take_over(lambda teams, keys: TakenOver(keys=list(change(keys, existing(teams))))).keys]

    def stop_calls(self, keys: Sequence[Key], now_ms: int) -> None:
        """Ask every process that uses the book to stop the running calls of keys."""

        def put(transaction: Transaction) -> None:
            stop_calls(transaction, [key.id for key in keys], now_ms)
            for key in keys:
                append(transaction, self.actor, entry_of(self.actor, now_ms, "key.stop", key.id))

        self.database.write(put)

    def stopped_calls(self) -> dict[str, int]:
        """The time of the last `stop_calls` of each key, by its id, of the last day."""
        rows = cast("list[tuple[str, int]]", self.database.fetch(_STOPS))
        return {name.removeprefix(STOPPED): at_ms for name, at_ms in rows}

    def claim_warnings(self, warnings: Sequence[BudgetWarning]) -> list[BudgetWarning]:
        """Store budget warnings; returns those that no process has stored before."""
        return self.database.write(lambda transaction: claim(transaction, warnings))

    def warnings(self, limit: int) -> list[BudgetWarning]:
        """The budget warnings, the newest first."""
        return newest_warnings(self.database, number(limit))

    def take_warning(self, now_ms: int, until_ms: int) -> TakenWarning | int | None:
        """Take the budget warning that is due for the webhook, until a time; or when the next one is due."""
        return take(self.database, now_ms, until_ms)

    def end_delivery(self, taken: TakenWarning, delivery: Delivery, due_ms: int | None = None) -> None:
        """Store the result of an attempt to deliver a budget warning."""
        end_delivery(self.database, taken, delivery, due_ms)

    def take_report(self, now_ms: int, until_ms: int) -> TakenReport | int:
        """Take the monthly report that is due, until a time; or when to look again."""
        return take_report(self.database, now_ms, until_ms)

    def end_report(self, taken: TakenReport, due_ms: int | None = None) -> None:
        """Store the result of an attempt to deliver a monthly report."""
        end_report(self.database, taken, due_ms)

    def close(self) -> None:
        """Close the database."""
        if self._pruner is not None:
            with contextlib.suppress(BookError):  # the database may be gone
                self._pruner.end()
            self._pruner.close()
        self.database.close()


def _book(transaction: Transaction, entries: dict[str, Entry]) -> list[Entry]:
    """Insert new entries with their attempts, and return them.

    The rows of a call are inserted only together with the call itself, so appending an entry twice adds nothing.
    """
    entries = without_archived(transaction, entries)
    places = transaction.insert_new("calls", CALL, [call_row(entry) for entry in entries.values()])
    new = [(place, entries[cast(str, id)]) for id, place in places]
    attempts: list[Row] = [(place, *row) for place, entry in new for row in attempt_rows(entry)]
    transaction.execute_each(_BOOK_ATTEMPT, attempts)
    return [entry for _, entry in new]
