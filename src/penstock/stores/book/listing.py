"""Listing: reads entries, newest first, one page at a time.

No page needs a scan of all calls. Every filter has an index in the order of the list: an index of `calls` for each of
its columns, and `call_traits` for the rest, for calls up to the place to which they are summed up (`summary.py`); the
few later calls are scanned. Of several conditions, the rarest one leads: it drives the query, and the others are
checked for each call that it finds.

A condition may have several values: two teams, or all models whose name contains a text. No index has the calls of two
values in the order of time. So the newest calls are read for each value, and merged here.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple, cast

from msgspec import structs

from penstock.gateway.billing.queries import Filter
from penstock.gateway.record.entry import Entry
from penstock.stores.book.database import SUMMED, Queryable, Value
from penstock.stores.book.rows import ATTEMPT, CALL, LONGEST_NAME, number, read_entries, text
from penstock.stores.book.selection import COLUMNS, SPARSE_COLUMNS, Selection, marks, pattern, split_tag, split_target

NEWEST_FIRST = "c.at_ms DESC, c.place DESC"
AS_BOOKED = "c.place"
_FOUND = f"c.place, {', '.join(f'c.{column}' for column in CALL)}, {', '.join(f'a.{column}' for column in ATTEMPT)}"
# The limit is written out, not a parameter: PostgreSQL plans for a few rows only if it knows that they are few.
_ENTRIES = (
    f"SELECT {_FOUND} FROM (SELECT * FROM calls c {{where}} ORDER BY {{order}} LIMIT {{limit}}) c "
    "LEFT JOIN attempts a ON a.call = c.place ORDER BY {order}, a.number"
)
_AT_PLACES = (
    f"SELECT {_FOUND} FROM calls c LEFT JOIN attempts a ON a.call = c.place WHERE c.place IN {{places}} "
    f"ORDER BY {NEWEST_FIRST}, a.number"
)
_BY_COLUMN = f"SELECT c.at_ms AS at_ms, c.place AS place FROM calls c {{where}} ORDER BY {NEWEST_FIRST} LIMIT {{limit}}"
# CROSS JOIN keeps SQLite from reordering the join.
_BY_TRAIT = """
SELECT t.at_ms AS at_ms, t.call AS place FROM call_traits t CROSS JOIN calls c {where}
ORDER BY t.at_ms DESC, t.call DESC LIMIT {limit}
"""
# The plus keeps SQLite from scanning all calls by the index on time.
_LATER = """
SELECT c.at_ms AS at_ms, c.place AS place FROM calls c {where} ORDER BY +c.at_ms DESC, c.place DESC LIMIT {limit}
"""
# The distinct values of an indexed column, each found by one search in the index.
_DISTINCT = """
WITH RECURSIVE known (name) AS (
    SELECT MIN({column}) FROM {table} WHERE {where}
    UNION ALL
    SELECT (SELECT MIN({column}) FROM {table} WHERE {where} AND {column} > known.name) FROM known
    WHERE known.name IS NOT NULL
)
SELECT name FROM known WHERE name IS NOT NULL AND LOWER(name) LIKE ? ESCAPE '~'
"""
# Conditions that match more calls than this are not compared any further: any of them may lead.
_ENOUGH = 10_000
# Values that are counted to compare conditions; of more, it is assumed that they match many calls.
_MAX_COUNTED = 20
# Values of one condition. A text that is a part of more names is found in the newest calls.
_MAX_VALUES = 500
# SQLite joins at most 500 queries.
_BATCH = 50


class Lead(NamedTuple):
    """One value of a condition: of a column of `calls`, or a trait's kind and name."""

    kind: str
    name: str

    @property
    def trait(self) -> bool:
        """Whether its index is `call_traits`."""
        return self.kind not in _LEADING_COLUMNS


_LEADING_COLUMNS = frozenset({"id", *COLUMNS.values()})


class _Condition(NamedTuple):
    """Values, of which a call must have one; and the filter without this condition."""

    leads: Sequence[Lead]
    rest: Filter


class PageStart(NamedTuple):
    """The position of a page: it starts after this call."""

    at_ms: Value
    place: int


def in_order(selection: Selection, order: str, limit: int) -> tuple[str, list[Value]]:
    """A query of entries, and its parameters."""
    return _ENTRIES.format(where=selection.where, order=order, limit=number(limit)), selection.parameters


def newest(reader: Queryable, wanted: Filter, before: PageStart | None, limit: int) -> list[tuple[int, Entry]]:
    """The newest entries that match a filter, each with its place. Runs several queries."""
    leading = _leading(reader, wanted, before)
    if leading is None:
        selection = Selection(wanted)
        if before is not None:
            selection.add("(c.at_ms, c.place) < (?, ?)", *before)
        return read_entries(reader.fetch(*in_order(selection, NEWEST_FIRST, limit)))
    queries = [_of_lead(lead, leading.rest, before, limit) for lead in leading.leads]
    if any(lead.trait for lead in leading.leads) or wanted.text:
        queries.append(_later(wanted, before, limit))
    found: set[tuple[int, int]] = set()
    for start in range(0, len(queries), _BATCH):
        part = queries[start : start + _BATCH]
        sql = " UNION ALL ".join(f"SELECT * FROM ({query}) x{index}" for index, (query, _) in enumerate(part))
        rows = reader.fetch(sql, [value for _, values in part for value in values])
        found.update(cast("list[tuple[int, int]]", rows))
    places = [place for _, place in sorted(found, reverse=True)[:limit]]
    return read_entries(reader.fetch(_AT_PLACES.format(places=marks(places)), places)) if places else []


def _of_lead(lead: Lead, rest: Filter, before: PageStart | None, limit: int) -> tuple[str, list[Value]]:
    """A query of the newest calls with a value, and its parameters."""
    if lead.trait:
        selection = Selection(rest, at="t.at_ms", indexed=False)
        selection.add("t.kind = ? AND t.name = ? AND c.place = t.call", *lead)
        if before is not None:
            selection.add("(t.at_ms, t.call) < (?, ?)", *before)
        return _BY_TRAIT.format(where=selection.where, limit=number(limit)), selection.parameters
    selection = Selection(rest, indexed=False)
    selection.add(_has(lead), lead.name)
    if before is not None:
        selection.add("(c.at_ms, c.place) < (?, ?)", *before)
    return _BY_COLUMN.format(where=selection.where, limit=number(limit)), selection.parameters


def _has(lead: Lead) -> str:
    """The condition that a column has a value. A sparse index is used only if the condition excludes empty values."""
    return f"c.{lead.kind} = ?" + (f" AND c.{lead.kind} <> ''" if lead.kind in SPARSE_COLUMNS else "")


def _later(wanted: Filter, before: PageStart | None, limit: int) -> tuple[str, list[Value]]:
    """A query of the newest calls among those that are not summed up yet."""
    selection = Selection(wanted, at="+c.at_ms", indexed=False, after=SUMMED)
    if before is not None:
        selection.add("(+c.at_ms, c.place) < (?, ?)", *before)
    return _LATER.format(where=selection.where, limit=number(limit)), selection.parameters


def _leading(reader: Queryable, wanted: Filter, before: PageStart | None) -> _Condition | None:
    """The rarest condition; None if there are no conditions."""
    conditions = [condition for condition in _conditions(reader, wanted) if len(condition.leads) <= _MAX_VALUES]
    if len(conditions) < 2:
        return conditions[0] if conditions else None
    return min(conditions, key=lambda condition: _frequency(reader, condition.leads, wanted, before))


def _conditions(reader: Queryable, wanted: Filter) -> Iterable[_Condition]:
    """The conditions of a filter, besides the time."""
    for field, column in COLUMNS.items():
        if names := getattr(wanted, field):
            yield _Condition([Lead(column, text(name)) for name in names], structs.replace(wanted, **{field: ()}))
    if wanted.providers:
        leads = [Lead("provider", text(name)) for name in wanted.providers]
        yield _Condition(leads, structs.replace(wanted, providers=()))
    # A target and the outcome of an attempt are conditions on the same attempt, so neither is left out.
    if wanted.targets:
        leads = [Lead("target", "/".join(split_target(target))) for target in wanted.targets]
        yield _Condition(leads, wanted if wanted.attempts else structs.replace(wanted, targets=()))
    if wanted.attempts and "completed" not in wanted.attempts:
        leads = [Lead("attempt", text(outcome)) for outcome in wanted.attempts]
        yield _Condition(leads, wanted if wanted.targets else structs.replace(wanted, attempts=()))
    for kind, name in (("repair", wanted.repair), ("loss", wanted.loss)):
        if name:
            yield _Condition([Lead(kind, text(name))], structs.replace(wanted, **{kind: ""}))
    for name, value in wanted.tags.items():
        tags = {other: given for other, given in wanted.tags.items() if other != name}
        lead = Lead(f"tag:{text(name, most=LONGEST_NAME)}", text(value))
        yield _Condition([lead], structs.replace(wanted, tags=tags))
    if wanted.text:
        leads = list(dict.fromkeys(_containing(reader, wanted)))
        yield _Condition(leads, structs.replace(wanted, text="", text_keys=()))


def _containing(reader: Queryable, wanted: Filter) -> Iterable[Lead]:
    """The values of calls that contain the text of a filter: the same as its `Selection` finds."""
    part, whole, (tag, value) = pattern(wanted.text), text(wanted.text), split_tag(wanted.text)
    yield Lead("id", whole)
    yield Lead("end_user", whole)
    yield from (Lead("key", text(key)) for key in wanted.text_keys)
    models = reader.fetch(_DISTINCT.format(table="calls", column="model", where="1 = 1"), (part,))
    yield from (Lead("model", str(name)) for (name,) in models)
    names = _DISTINCT.format(table="call_traits", column="name", where="kind = ?")
    for kind in ("code", "error", "provider"):
        yield from (Lead(kind, str(name)) for (name,) in reader.fetch(names, (kind, kind, part)))
    kinds = _DISTINCT.format(table="call_traits", column="kind", where="1 = 1")
    yield from (Lead(str(kind), whole) for (kind,) in reader.fetch(kinds, (pattern("tag:"),)))
    if tag:
        yield Lead(f"tag:{tag}", value)


def _frequency(reader: Queryable, leads: Sequence[Lead], wanted: Filter, before: PageStart | None) -> int:
    """How many calls match a condition within the filter's time range, counted up to a limit."""
    if len(leads) > _MAX_COUNTED:
        return _ENOUGH
    total = 0
    for lead in leads:
        timed = Selection(Filter(since_ms=wanted.since_ms, until_ms=wanted.until_ms))
        if before is not None:
            timed.add("c.at_ms <= ?", before.at_ms)
        if lead.trait:
            timed.add("c.kind = ? AND c.name = ?", *lead)
        else:
            timed.add(_has(lead), lead.name)
        table = "call_traits" if lead.trait else "calls"
        query = f"SELECT COUNT(*) FROM (SELECT 1 FROM {table} c {timed.where} LIMIT {_ENOUGH}) few"
        total += int(reader.fetch(query, timed.parameters)[0][0] or 0)
    return total
