"""Spending: what keys, teams and end users have spent per day (UTC). Budgets depend on it, so it is kept for good.

The table `spending` has one row per spender and day, for the calls up to the place `summed` (`summary.py`, which says
why such sums are exact). The few later calls are counted one by one, in the same snapshot. So the spending of a month
costs the same to read, however many calls it has, and archiving calls does not change it.

A spender is written as the ids of accounts are (`gateway/teams/chain.py`): `key_1`, `team:acme`, and end users by a
digest of their name: `user:key_1:DIGEST`; members of teams by one of their id: `member:acme:DIGEST`. A call of
`acme/search` counts for `team:acme` too. The owner of a key never changes, so calls have none of their own. A cost can
be negative: that of an imported correction (`cli/litellm/keys.py`).
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import cast

from penstock.amounts import DAY_MS
from penstock.gateway.keys.owner import user_parts
from penstock.gateway.keys.quota import Spender
from penstock.gateway.keys.store import Spent
from penstock.gateway.teams.chain import scopes
from penstock.stores.book.database import SUMMED, Queryable, Row, SqlDialect, Transaction, Value, addition
from penstock.stores.book.rows import number, text
from penstock.stores.book.selection import marks

_ADD = addition("spending", ("spender", "day"), ("cost",))
# Joined after they are summed up: otherwise SQLite reads all calls, in the order of an index.
_OF_CALLS = f"""
SELECT key, sums.team, end_user, COALESCE(owner, ''), day, cost FROM (
    SELECT key, team, end_user, at_ms / {DAY_MS} AS day, SUM(cost) AS cost FROM calls
    WHERE {{places}} AND cost <> 0 GROUP BY 1, 2, 3, 4
) AS sums LEFT JOIN keys ON keys.id = key
"""
_SINCE_DAY = "SELECT spender, SUM(cost) FROM spending WHERE day >= ? AND spender IN {spenders} GROUP BY spender"
# By key and by team, there is an index on the time of settling. A call of an end user that took more than a day is not
# found: then its reservation counts besides its cost, for some minutes.
_RECENT_OF_KEYS = "SELECT key, '', '', '', id FROM calls WHERE settled_ms >= ? AND key IN {names}"
_RECENT_OF_TEAMS = "SELECT '', team, '', '', id FROM calls WHERE settled_ms >= ? AND team <> '' AND team IN {names}"
_RECENT_OF_USERS = f"""
SELECT key, team, end_user, '', id FROM calls
WHERE settled_ms >= ? AND at_ms >= {{since}} - {DAY_MS} AND end_user <> '' AND end_user IN {{names}}
"""
_RECENT_OF_MEMBERS = """
SELECT calls.key, calls.team, '', owner, calls.id FROM calls JOIN keys ON keys.id = calls.key
WHERE settled_ms >= ? AND calls.team <> '' AND owner IN {names}
"""
_SPENDERS_AFTER = """
SELECT key, sums.team, COALESCE(owner, ''), last FROM (
    SELECT key, team, MAX(place) AS last FROM calls WHERE place > ? GROUP BY key, team
) AS sums LEFT JOIN keys ON keys.id = key
"""
_OWNERS = "SELECT DISTINCT owner FROM keys WHERE owner <> ''"
_BATCH = 500


def spending_tables(dialect: SqlDialect) -> Sequence[str]:
    """The statements that create the table."""
    return (
        f"""
        CREATE TABLE spending (
            spender TEXT NOT NULL,
            day BIGINT NOT NULL,
            cost BIGINT NOT NULL,
            PRIMARY KEY (spender, day)
        ) {dialect.clustered}
        """,
    )


def sum_spending(transaction: Transaction, after: int, until: int) -> None:
    """Add the calls at these places."""
    _add(transaction, transaction.fetch(_OF_CALLS.format(places="place > ? AND place <= ?"), (after, until)))


def _add(transaction: Transaction, rows: Iterable[Row]) -> None:
    costs: defaultdict[tuple[str, int], int] = defaultdict(int)
    for key, team, user, owner, day, cost in cast("Iterable[tuple[str, str, str, str, int, int]]", rows):
        for scope in scopes(key, team, user, owner):
            costs[scope, day] += int(cost)
    transaction.execute_each(_ADD, [(scope, day, number(cost)) for (scope, day), cost in sorted(costs.items())])


def spent(reader: Queryable, asked: Sequence[tuple[Spender, int]], recent_since_ms: int | None) -> list[Spent]:
    """What each spender has spent since a time, the start of a day; with the ids of calls that were settled since
    `recent_since_ms`. Runs several queries."""
    spenders = [Spender(*map(text, (who.key, who.team, who.user, who.member))) for who, _ in asked]
    names = [who.account for who in spenders]
    totals: dict[str, dict[int, int]] = {name: {} for name in names}
    for name, (_, since_ms) in zip(names, asked, strict=True):
        totals[name][number(since_ms) // DAY_MS] = 0
    for day in sorted({day for days in totals.values() for day in days}):
        for part in _batches([name for name, days in totals.items() if day in days]):
            for spender, cost in reader.fetch(_SINCE_DAY.format(spenders=marks(part)), (day, *part)):
                totals[str(spender)][day] = int(cost or 0)
    later = reader.fetch(_OF_CALLS.format(places=f"place > {SUMMED}"))
    for key, team, user, owner, at_day, cost in cast("list[tuple[str, str, str, str, int, int]]", later):
        for scope in scopes(key, team, user, owner):
            for day in totals.get(scope, ()):
                totals[scope][day] += int(cost) if at_day >= day else 0
    recent = _recent(reader, spenders, totals.keys(), number(recent_since_ms)) if recent_since_ms is not None else {}
    return [
        Spent(total=totals[name][number(since_ms) // DAY_MS], recent=frozenset(recent.get(name, ())))
        for name, (_, since_ms) in zip(names, asked, strict=True)
    ]


def _recent(
    reader: Queryable, spenders: Sequence[Spender], wanted: Iterable[str], since_ms: int
) -> dict[str, set[str]]:
    """The ids of calls that were settled since a time, by spender."""
    teams = [who.team for who in spenders if who.team and not who.user and not who.member]
    members = {who.member for who in spenders if who.member}
    owners = [str(owner) for (owner,) in reader.fetch(_OWNERS)] if members else []
    below = [str(path) for (path,) in reader.fetch("SELECT path FROM teams")] if teams else []
    lists = (
        (_RECENT_OF_KEYS, [who.key for who in spenders if not who.team and not who.user]),
        (_RECENT_OF_TEAMS, [path for path in below if any(f"{path}/".startswith(f"{team}/") for team in teams)]),
        (_RECENT_OF_USERS, [who.user for who in spenders if who.user]),
        (_RECENT_OF_MEMBERS, [owner for owner in owners if user_parts(owner)[1] in members]),
    )
    found: dict[str, set[str]] = {scope: set() for scope in wanted}
    for query, names in lists:
        for part in _batches(list(dict.fromkeys(names))):
            parameters: list[Value] = [since_ms, *part]
            for *call, id in reader.fetch(query.format(names=marks(part), since=since_ms), parameters):
                for scope in scopes(*map(str, call)):
                    if scope in found:
                        found[scope].add(str(id))
    return found


def spenders_after(reader: Queryable, place: int) -> tuple[int, set[str]]:
    """The place of the last call, and the keys, teams and members with calls after a place, as accounts name them."""
    rows = reader.fetch(_SPENDERS_AFTER, (place,))
    found = {scope for key, team, owner, _ in rows for scope in scopes(str(key), str(team), "", str(owner))}
    return max((cast(int, last) for *_, last in rows), default=place), found


def _batches(names: list[str]) -> Iterator[list[str]]:
    return (names[start : start + _BATCH] for start in range(0, len(names), _BATCH))
