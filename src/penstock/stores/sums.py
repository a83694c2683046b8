"""Sums: what was used by groups of calls, as SQL.

`key`, `model`, `outcome`, `day` and `tag` are of the call: `model` is the name that the client asked for, `day` is
the one in UTC on which the call was admitted, and a call without the tag is in the group "".

`provider` is of the attempts. A call that tried two is counted with both, each with what it used itself, and one that
tried none is in the group "". Where the filter names providers, only they are groups.
"""

from collections.abc import Sequence
from datetime import date, timedelta

from penstock.gateway.book import Filter, Grouping, UsageRow
from penstock.stores.database import Row, Value
from penstock.stores.rows import LONGEST_NAME, text
from penstock.stores.selection import Selection, marks

_DAY_MS = 86_400_000
_EPOCH = date(1970, 1, 1)
_GROUPS: dict[Grouping, str] = {
    "key": "c.key",
    "model": "c.model",
    "provider": "COALESCE(a.provider, '')",
    "day": f"c.at_ms / {_DAY_MS}",
    "tag": "COALESCE(t.value, '')",
    "outcome": "c.outcome",
}
_TOKENS = ("input", "output", "cached", "cache_write", "reasoning", "cost")
_OF_CALLS = (
    "COUNT(*)",
    *(f"COALESCE(SUM(c.{column}), 0)" for column in _TOKENS),
    "COALESCE(SUM(c.unpriced), 0)",
    "COUNT(CASE WHEN c.measure = 'estimated' THEN 1 END)",
)
_OF_ATTEMPTS = (
    "COUNT(DISTINCT c.place)",
    *(f"COALESCE(SUM(a.{column}), 0)" for column in _TOKENS),
    "COUNT(DISTINCT CASE WHEN a.number IS NOT NULL AND a.cost IS NULL THEN c.place END)",
    "COUNT(DISTINCT CASE WHEN a.measure = 'estimated' THEN c.place END)",
)


def sums(wanted: Filter, by: Sequence[Grouping], tag: str) -> tuple[str, list[Value]]:
    """The query, and its parameters."""
    tables, parameters = ["calls c"], list[Value]()
    if "provider" in by:
        only = f" AND a.provider IN {marks(wanted.providers)}" if wanted.providers else ""
        tables.append(f"LEFT JOIN attempts a ON a.call = c.place{only}")
        parameters += map(text, wanted.providers)
    if "tag" in by:
        tables.append("LEFT JOIN call_tags t ON t.call = c.place AND t.name = ?")
        parameters.append(text(tag, most=LONGEST_NAME))
    selection = Selection(wanted)
    columns = ", ".join((*(_GROUPS[group] for group in by), *(_OF_ATTEMPTS if "provider" in by else _OF_CALLS)))
    groups = f"GROUP BY {', '.join(str(1 + index) for index in range(len(by)))}" if by else ""
    return f"SELECT {columns} FROM {' '.join(tables)} {selection.where} {groups}", parameters + selection.parameters


def read_sums(by: Sequence[Grouping], rows: Sequence[Row]) -> list[UsageRow]:
    """What the query says, in the order of the groups' names."""
    return sorted((_read(by, row) for row in rows), key=lambda row: row.group)


def _read(by: Sequence[Grouping], row: Row) -> UsageRow:
    calls, input, output, cached, cache_write, reasoning, cost, unpriced, estimated = (
        int(value or 0) for value in row[len(by) :]
    )
    return UsageRow(
        group=tuple(_name(group, value) for group, value in zip(by, row, strict=False)),
        calls=calls,
        input=input,
        output=output,
        cached=cached,
        cache_write=cache_write,
        reasoning=reasoning,
        cost=cost,
        unpriced=unpriced,
        estimated=estimated,
    )


def _name(group: Grouping, value: Value) -> str:
    return (_EPOCH + timedelta(days=int(value or 0))).isoformat() if group == "day" else str(value)
