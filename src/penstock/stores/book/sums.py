"""Sums: the SQL for the usage of calls by groups.

`key`, `model`, `outcome`, `day`, `team`, `user` and `tag` are properties of the call: `model` is the name that the
client requested, `day` is the UTC day on which the call was admitted, and a call without the tag is in the group "".

`provider` is a property of the attempts. A call that tried two providers is counted with both, each with its own usage,
and a call without attempts is in the group "". Where the filter names providers, only these are groups.

If the filter is only a time range, and the groups are one of these, or days, or both, whole hours are read from the
summary, in the widest slots that fit. The most expensive groups are found by their costs alone, before the rest of
their usage is read: there may be very many keys. Otherwise calls are counted one by one, and the usage of archived
calls is added (`archived_usage.py`).

A time range that starts or ends where calls are archived is extended to whole hours.
"""

import heapq
from collections.abc import Sequence
from datetime import date, timedelta

from msgspec.structs import replace

from penstock.amounts import DAY_MS
from penstock.gateway.billing.queries import Filter, Grouping, UsageRow
from penstock.stores.book.archived_usage import archived_sums
from penstock.stores.book.database import Queryable, Row, Value
from penstock.stores.book.rows import LONGEST_NAME, number, text
from penstock.stores.book.selection import Selection, marks
from penstock.stores.book.summary import (
    COUNTED,
    HOUR_MS,
    OF_ATTEMPTS,
    OF_CALLS,
    USAGE_WIDTHS_MS,
    USED,
    TimeRange,
    counted,
    kept_since,
    span,
)

_EPOCH = date(1970, 1, 1)
_GROUPS: dict[Grouping, str] = {
    "key": "c.key",
    "model": "c.model",
    "provider": "COALESCE(a.provider, '')",
    "day": f"c.at_ms / {DAY_MS}",
    "tag": "COALESCE(t.value, '')",
    "outcome": "c.outcome",
    "team": "c.team",
    "user": "c.end_user",
}
_ATTEMPTS = "LEFT JOIN attempts a ON a.call = c.place"
# The groups that the summary has, alone or with the day. For days alone any of them will do: the one with fewest names.
_SUMMED: tuple[Grouping, ...] = ("key", "model", "provider", "outcome", "team")
_FEWEST: Grouping = "outcome"


def sums(reader: Queryable, wanted: Filter, by: Sequence[Grouping], tag: str, most: int | None) -> list[UsageRow]:
    """The usage by groups, sorted by their names; or the `most` expensive, sorted by cost. Runs several queries."""
    kinds = [group for group in by if group != "day"]
    bounds = (None if moment is None else number(moment) for moment in (wanted.since_ms, wanted.until_ms))
    requested = span(*bounds).widened(HOUR_MS, kept_since(reader))
    timed = Filter(since_ms=wanted.since_ms, until_ms=wanted.until_ms)
    if wanted == timed and (not kinds or (len(kinds) == 1 and kinds[0] in _SUMMED)):
        # A wide slot may have usage from before this time.
        ((kept_sums,),) = reader.fetch("SELECT value FROM meta WHERE name = 'kept_sums'")
        requested = TimeRange(max(requested.since, int(kept_sums or 0)), requested.until)
        rows = reader.fetch(*_summed(requested, by, kinds[0] if kinds else _FEWEST, most))
    else:
        extended = replace(
            wanted,
            since_ms=requested.since if wanted.since_ms is not None else None,
            until_ms=requested.until if wanted.until_ms is not None else None,
        )
        rows = [*reader.fetch(*_counted(extended, by, tag)), *archived_sums(reader, wanted, requested, by, tag)]
    found = _read_sums(by, rows)
    if most is None:
        return sorted(found, key=lambda row: row.group)
    # Not sorted: the interpreter's lock (GIL) is not released while very many are.
    return heapq.nsmallest(most, found, key=lambda row: (-row.cost, -row.calls, row.group))


def _summed(requested: TimeRange, by: Sequence[Grouping], kind: Grouping, most: int | None) -> tuple[str, list[Value]]:
    """Whole hours from the summary, plus the calls before and after them, and those booked since the summary."""
    hours = requested.whole(HOUR_MS)
    runs = hours.filled([width for width in USAGE_WIDTHS_MS if width <= DAY_MS or "day" not in by])
    labels = ["day" if group == "day" else "name" for group in by]
    of_calls = dict(zip(USED, OF_ATTEMPTS if "provider" in by else OF_CALLS, strict=True))

    def parts(used: Sequence[str], only: str = "") -> str:
        """The usage of groups, which may have several rows each. `only` is a condition on the name of a group."""
        queries = []
        for width, first, end in runs:
            groups = (f"slot / {DAY_MS // width} AS day" if group == "day" else "name" for group in by)
            slots = f"kind = '{kind}' AND width = {width} AND slot >= {first} AND slot < {end}"
            queries.append(f"SELECT {', '.join((*groups, *used))} FROM summed_usage WHERE {slots} {only}")
        groups = (f"{_GROUPS[group]} AS {label}" for group, label in zip(by, labels, strict=True))
        columns = ", ".join((*groups, *(f"CAST({of_calls[column]} AS BIGINT) AS {column}" for column in used)))
        tables = f"chosen h CROSS JOIN calls c {_ATTEMPTS if 'provider' in by else ''}"
        queries.append(f"SELECT {columns} FROM {tables} WHERE c.place = h.place {_grouped(by)}")
        return " UNION ALL ".join(queries)

    query, only = f"WITH chosen AS ({COUNTED})", ""
    if most is not None and labels == ["name"]:
        query += f""", top AS (
        SELECT name FROM ({parts(("calls", "cost"))}) x GROUP BY name
        ORDER BY SUM(cost) DESC, SUM(calls) DESC, name LIMIT {most})"""
        only = "AND name IN (SELECT name FROM top)"
    total = ", ".join((*labels, *(f"SUM({column})" for column in USED)))
    query += f"SELECT {total} FROM ({parts(USED, only)}) x {only.replace('AND', 'WHERE')} {_grouped(by)}"
    return query, counted(requested, hours)


def _counted(wanted: Filter, by: Sequence[Grouping], tag: str) -> tuple[str, list[Value]]:
    """The sums over the calls themselves, without the summary."""
    tables, parameters = ["calls c"], list[Value]()
    if "provider" in by:
        only = f" AND a.provider IN {marks(wanted.providers)}" if wanted.providers else ""
        tables.append(f"{_ATTEMPTS}{only}")
        parameters += map(text, wanted.providers)
    if "tag" in by:
        tables.append("LEFT JOIN json_each(c.tags) t ON t.key = ?")
        parameters.append(text(tag, most=LONGEST_NAME))
    selection = Selection(wanted)
    query = f"SELECT {_columns(by)} FROM {' '.join(tables)} {selection.where} {_grouped(by)}"
    return query, parameters + selection.parameters


def _columns(by: Sequence[Grouping]) -> str:
    return ", ".join((*(_GROUPS[group] for group in by), *(OF_ATTEMPTS if "provider" in by else OF_CALLS)))


def _grouped(by: Sequence[Grouping]) -> str:
    return f"GROUP BY {', '.join(str(1 + index) for index in range(len(by)))}" if by else ""


def _read_sums(by: Sequence[Grouping], rows: Sequence[Row]) -> list[UsageRow]:
    """The usage in rows, of which a group may have several."""
    groups: dict[Row, list[int]] = {}
    for row in rows:
        group, used = row[: len(by)], row[len(by) :]
        added = groups.setdefault(group, [0] * len(used))
        for index, value in enumerate(used):
            added[index] += int(value or 0)
    return [_read(by, group, used) for group, used in groups.items()]


def _read(by: Sequence[Grouping], group: Row, used: Sequence[int]) -> UsageRow:
    names = tuple(_name(kind, value) for kind, value in zip(by, group, strict=True))
    return UsageRow(group=names, **dict(zip(USED, used, strict=True)))


def _name(group: Grouping, value: Value) -> str:
    return (_EPOCH + timedelta(days=int(value or 0))).isoformat() if group == "day" else str(value)
