"""Listing: the SQL that lists entries, newest first, one page at a time.

No page needs a scan of all calls. Each column that can be filtered by has an index in the order of the list. For
providers, repairs, losses and tags that index is `call_traits`, for calls up to the place to which they are summed up
(`summary.py`); the few later calls are scanned. Of several conditions, the rarest one drives the query.
"""

from typing import NamedTuple

from penstock.gateway.billing.book import Filter
from penstock.stores.book.database import Queryable, Value
from penstock.stores.book.rows import ATTEMPT, CALL, number
from penstock.stores.book.selection import Lead, Selection, leads
from penstock.stores.book.summary import SUMMED

NEWEST_FIRST = "c.at_ms DESC, c.place DESC"
AS_BOOKED = "c.place"
_FOUND = f"c.place, {', '.join(f'c.{column}' for column in CALL)}, {', '.join(f'a.{column}' for column in ATTEMPT)}"
# The limit is written out, not a parameter: PostgreSQL plans for a few rows only if it knows that they are few.
_ENTRIES = (
    f"SELECT {_FOUND} FROM (SELECT * FROM calls c {{where}} ORDER BY {{order}} LIMIT {{limit}}) c "
    "LEFT JOIN attempts a ON a.call = c.place ORDER BY {order}, a.number"
)
# CROSS JOIN keeps SQLite from reordering the join. The plus keeps it from scanning all calls by the index on time.
_BY_TRAIT = f"""
SELECT {_FOUND} FROM (
    SELECT * FROM (
        SELECT c.place AS place, c.at_ms AS at_ms FROM call_traits t CROSS JOIN calls c {{where}}
        ORDER BY t.at_ms DESC, t.call DESC LIMIT {{limit}}
    ) summed
    UNION ALL
    SELECT * FROM (
        SELECT c.place AS place, c.at_ms AS at_ms FROM calls c {{since}}
        ORDER BY +c.at_ms DESC, c.place DESC LIMIT {{limit}}
    ) since
    ORDER BY at_ms DESC, place DESC LIMIT {{limit}}
) p JOIN calls c ON c.place = p.place LEFT JOIN attempts a ON a.call = c.place ORDER BY {NEWEST_FIRST}, a.number
"""
# Conditions that match more calls than this are not compared any further: any of them may drive the query.
_ENOUGH = 10_000


class PageStart(NamedTuple):
    """The position of a page: it starts after this call."""

    at_ms: Value
    place: int


def in_order(selection: Selection, order: str, limit: int) -> tuple[str, list[Value]]:
    """A query of entries, and its parameters."""
    return _ENTRIES.format(where=selection.where, order=order, limit=number(limit)), selection.parameters


def newest(reader: Queryable, wanted: Filter, before: PageStart | None, limit: int) -> tuple[str, list[Value]]:
    """A query of the newest entries that match a filter, and its parameters."""
    lead = _lead(reader, wanted, before)
    if lead is None or not lead.trait:
        selection = Selection(wanted, lead=lead)
        if before is not None:
            selection.add("(c.at_ms, c.place) < (?, ?)", *before)
        return in_order(selection, NEWEST_FIRST, limit)
    summed, since = Selection(wanted, at="t.at_ms", lead=lead), Selection(wanted, at="+c.at_ms", after=SUMMED)
    summed.add("t.kind = ? AND t.name = ? AND c.place = t.call", *lead)
    if before is not None:
        summed.add("(t.at_ms, t.call) < (?, ?)", *before)
        since.add("(+c.at_ms, c.place) < (?, ?)", *before)
    query = _BY_TRAIT.format(where=summed.where, since=since.where, limit=number(limit))
    return query, summed.parameters + since.parameters


def _lead(reader: Queryable, wanted: Filter, before: PageStart | None) -> Lead | None:
    """The rarest condition; None if there are no conditions."""
    conditions = leads(wanted)
    if len(conditions) < 2:
        return conditions[0] if conditions else None
    return min(conditions, key=lambda lead: _frequency(reader, lead, wanted, before))


def _frequency(reader: Queryable, lead: Lead, wanted: Filter, before: PageStart | None) -> int:
    """How many calls match the condition within the filter's time range, counted up to a limit."""
    timed = Selection(Filter(since_ms=wanted.since_ms, until_ms=wanted.until_ms))
    if before is not None:
        timed.add("c.at_ms <= ?", before.at_ms)
    if lead.trait:
        timed.add("c.kind = ? AND c.name = ?", *lead)
    else:
        timed.add(f"c.{lead.kind} = ?", lead.name)
    table = "call_traits" if lead.trait else "calls"
    query = f"SELECT COUNT(*) FROM (SELECT 1 FROM {table} c {timed.where} LIMIT {_ENOUGH}) few"
    return int(reader.fetch(query, timed.parameters)[0][0] or 0)
