"""ArchivedUsage: the usage of archived calls per hour, by everything that reports group and filter by.

`summary.py` has sums by one property of a call each. Reports by several properties, by tags, or with filters count the
calls themselves. When calls are archived, what such reports need is added here, in the same transaction that deletes
the calls. So no report changes by it. There is a row for each combination that occurred in an hour:

    part = call     the usage of calls; `provider` is the JSON list of the providers that they tried
    part = attempt  the usage of attempts; `provider` is their provider, "" for calls without attempts

The tags are JSON too. Rows are combined here and not in SQL, which differs between the databases for JSON.

Filters by target, outcome of attempts, repair, loss and end user, and groups by end user, find no archived calls:
these combinations are too many, and sums outlast an end user's erasure.
"""

from collections.abc import Iterable, Sequence
from hashlib import blake2b

import msgspec

from penstock.core.hub.usage import Tokens
from penstock.gateway.billing.queries import Filter, Grouping
from penstock.gateway.record.entry import AttemptEntry, Entry
from penstock.stores.book.database import Queryable, Row, Value, addition
from penstock.stores.book.rows import LONGEST_NAME, text
from penstock.stores.book.selection import marks
from penstock.stores.book.summary import HOUR_MS, USED, TimeRange

_HOURS_OF_DAY = 24
_DIMENSIONS = ("part", "key", "model", "outcome", "provider", "tags", "team")
ADD_USAGE = addition("archived_usage", ("hour", "id"), USED, fixed=_DIMENSIONS)


def usage_rows(entries: Iterable[Entry]) -> list[Row]:
    """The parameters of `ADD_USAGE` for these calls."""
    sums: dict[tuple[int, tuple[str, ...]], list[int]] = {}

    def add(entry: Entry, part: str, provider: str, attempts: Sequence[AttemptEntry]) -> None:
        tags = msgspec.json.encode(entry.tags, order="sorted").decode()
        group = entry.at_ms // HOUR_MS, (part, entry.key, entry.model, entry.outcome, provider, tags, entry.team)
        total = sums.setdefault(group, [0] * len(USED))
        for index, value in enumerate(_used(attempts)):
            total[index] += value

    for entry in entries:
        providers = sorted({attempt.provider for attempt in entry.attempts})
        add(entry, "call", msgspec.json.encode(providers).decode(), entry.attempts)
        for provider in providers or [""]:
            add(entry, "attempt", provider, [tried for tried in entry.attempts if tried.provider == provider])
    return [(hour, _digest(group), *total, *group) for (hour, group), total in sums.items()]


def _used(attempts: Sequence[AttemptEntry]) -> tuple[int, ...]:
    """The usage of one call, in the order of `USED`."""
    tokens = Tokens.sum(attempt.tokens for attempt in attempts)
    return (
        1,
        tokens.input,
        tokens.output,
        tokens.cached,
        tokens.cache_write,
        tokens.reasoning,
        sum(attempt.cost or 0 for attempt in attempts),
        sum(attempt.saved for attempt in attempts),
        int(any(attempt.cost is None for attempt in attempts)),
        int(any(attempt.measure == "estimated" for attempt in attempts)),
        int(any(attempt.approximate for attempt in attempts)),
    )


def _digest(group: tuple[str, ...]) -> str:
    return blake2b(msgspec.json.encode(group), digest_size=16).hexdigest()


def archived_sums(
    reader: Queryable, wanted: Filter, requested: TimeRange, by: Sequence[Grouping], tag: str
) -> list[Row]:
    """The usage of archived calls: the names of the groups, then the columns of `USED`. A group may have many rows."""
    if not wanted.covers_archived(by):
        return []
    of_attempts = "provider" in by
    conditions, parameters = ["part = ?"], list[Value](["attempt" if of_attempts else "call"])
    names = {"key": wanted.keys, "model": wanted.models, "outcome": wanted.outcomes, "team": wanted.teams}
    if of_attempts:
        names["provider"] = wanted.providers
    for column, values in names.items():
        if values:
            conditions.append(f"{column} IN {marks(values)}")
            parameters += map(text, values)
    first, end = requested.slots(HOUR_MS)
    # Only what is needed, so that the database returns few rows.
    columns: dict[str, str] = {group: group for group in by if group not in ("day", "tag")}
    if "day" in by:
        columns["day"] = f"hour / {_HOURS_OF_DAY}"
    if wanted.tags or "tag" in by:
        columns["tag"] = "tags"
    if wanted.providers:
        columns["provider"] = "provider"
    grouped = ", ".join(str(1 + index) for index in range(len(columns)))
    rows = reader.fetch(
        f"SELECT {', '.join((*columns.values(), *(f'SUM({column})' for column in USED)))} FROM archived_usage "
        f"WHERE {' AND '.join(conditions)} AND hour >= ? AND hour < ? {f'GROUP BY {grouped}' if grouped else ''}",
        (*parameters, first, end),
    )
    tag = text(tag, most=LONGEST_NAME)
    wanted_tags = {text(name, most=LONGEST_NAME): text(value) for name, value in wanted.tags.items()}
    found: list[Row] = []
    for row in rows:
        properties = dict(zip(columns, row, strict=False))
        if "tag" in columns:
            tags = msgspec.json.decode(str(properties["tag"]), type=dict[str, str])
            if not wanted_tags.items() <= tags.items():
                continue
            properties["tag"] = tags.get(tag, "")
        if wanted.providers and not of_attempts:
            tried = msgspec.json.decode(str(properties["provider"]), type=list[str])
            if not set(tried).intersection(map(text, wanted.providers)):
                continue
        found.append((*(properties[group] for group in by), *row[len(columns) :]))
    return found
