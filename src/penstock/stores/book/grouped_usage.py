"""GroupedUsage: the usage of calls by any groups, also by those that are made of others.

| group | made of |
|---|---|
| `month` | the sums of each month of the calendar (UTC), one after another |
| `owner` | the sums of its keys; "" for keys that no user owns |
| `tree` | the sums of a team and of all teams below it. So these rows overlap, and their sum is not the total |

All other groups are those of `sums.py`, whose sums are exact. So these are too: everything is read in one snapshot.
"""

import heapq
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import product
from typing import TypeAlias, cast

from msgspec.structs import replace

from penstock.amounts import DAY_MS
from penstock.gateway.billing.queries import Filter, Grouping, UsageRow
from penstock.gateway.keys.period import period_at
from penstock.gateway.keys.team_path import ancestry
from penstock.stores.book.database import Queryable
from penstock.stores.book.rows import number
from penstock.stores.book.summary import USED, span
from penstock.stores.book.sums import sums

# What these groups are made of.
_MADE_OF: Mapping[Grouping, Grouping] = {"owner": "key", "tree": "team"}
# The times of calls are those of clocks, which may be wrong: later months have no names.
_LAST_MS = 250_000_000_000_000
_NEXT = f"""
SELECT MIN(at_ms) FROM (
    SELECT MIN(at_ms) AS at_ms FROM calls WHERE at_ms >= ? AND at_ms < ?
    UNION ALL SELECT MIN(slot) * {DAY_MS} FROM summed_usage
    WHERE kind = 'outcome' AND width = {DAY_MS} AND slot >= ? AND slot < ?
) x
"""
# The names of the groups that a row of `sums` belongs to, from the name of what they are made of.
_Names: TypeAlias = Callable[[str], Sequence[str]]


def usage(
    reader: Queryable, wanted: Filter, by: Sequence[Grouping], tag: str, most: int | None = None
) -> list[UsageRow]:
    """The usage by groups, sorted by their names; or the `most` expensive, sorted by cost. Runs several queries."""
    made = _MADE_OF.keys() & by
    if not made and "month" not in by:
        return sums(reader, wanted, by, tag, most)
    parts = list(dict.fromkeys(_MADE_OF.get(group, group) for group in by if group != "month"))
    names = {group: _names_of(reader, group, wanted) for group in by if group != "month"}
    groups: dict[tuple[str, ...], list[int]] = {}
    for month, within in _months(reader, wanted) if "month" in by else [("", wanted)]:
        for row in sums(reader, within, parts, tag, None if made else most):
            if not row.calls:
                continue  # without groups, a month has a row even if no call matches
            values = dict(zip(parts, row.group, strict=True))
            used = [getattr(row, name) for name in USED]
            each = [[month] if group == "month" else names[group](values[_MADE_OF.get(group, group)]) for group in by]
            for group in product(*each):
                total = groups.get(group)
                groups[group] = used if total is None else [one + other for one, other in zip(total, used, strict=True)]
    rows = (UsageRow(group=group, **dict(zip(USED, used, strict=True))) for group, used in groups.items())
    if most is None:
        return sorted(rows, key=lambda row: row.group)
    return heapq.nsmallest(most, rows, key=lambda row: (-row.cost, -row.calls, row.group))


def _names_of(reader: Queryable, group: Grouping, wanted: Filter) -> _Names:
    if group == "owner":
        owners = {str(id): str(owner) for id, owner in reader.fetch("SELECT id, owner FROM keys WHERE owner <> ''")}
        return lambda key: [owners.get(key, "")]
    if group == "tree":
        # Where the filter names teams, the teams above them have other calls, too.
        return lambda team: [each for each in ancestry(team) if not wanted.teams or each in wanted.teams] or [""]
    return lambda name: [name]


def _months(reader: Queryable, wanted: Filter) -> Iterator[tuple[str, Filter]]:
    """The months with calls, and the filter for each."""
    bounds = (None if moment is None else number(moment) for moment in (wanted.since_ms, wanted.until_ms))
    since, until = span(*bounds)
    until = min(until, _LAST_MS)
    while since < until:
        ((found,),) = reader.fetch(_NEXT, (since, until, since // DAY_MS, -(-until // DAY_MS)))
        if found is None:
            return
        month = period_at("month", max(since, cast(int, found)))
        end = min(cast(int, month.until), until)
        yield month.label, replace(wanted, since_ms=max(since, month.since), until_ms=end)
        since = end
