"""Summary: rollups of the calls up to a place in the book, so that no view has to aggregate a million rows.

Why the rollups are exact: calls are append-only, and a place is never used twice, so the sums up to a place stay
true. The place is `summed` in `meta`. `BookWriter` continues from there, some thousand calls at a time, and updates the
sums and the place in one transaction. A query adds the calls after that place, in the same snapshot. So the result is
the same as if every call were counted, whichever process books, however late, and however far the summary is.

    summed_answers  counts of outcomes and repairs per slot of `width` milliseconds
    summed_times    histograms of the time to the first event and of the longest gap; `time_histogram.py` has the bins
    summed_names    a provider, its model, and an outcome, `repair:CODE`, `first` or `gap`: the `name` in these two
    summed_usage    the usage per slot of `width` milliseconds (`USAGE_WIDTHS_MS`), by key, by model, by outcome, by
                    team, and of attempts by provider
    call_traits     an index of calls in the order in which they are listed: by provider, target, repair, loss, tag,
                    error code, error, and outcome of an attempt

Calls are deleted only after they are summed up (`retention.py`). Their sums remain, and their traits are deleted. So in
the time of deleted calls, sums are known for whole hours and slots only.
"""

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias, cast

from penstock.amounts import DAY_MS
from penstock.stores.book.database import SUMMED, Queryable, Row, Transaction, Value, addition
from penstock.stores.book.spending import sum_spending
from penstock.stores.book.time_histogram import BINS, COLUMNS, bin_of

# Attempts are summed up per half hour, for charts of a day, and per three hours, for charts of weeks.
FINE_MS = 1_800_000
COARSE_MS = 10_800_000
HOUR_MS = 3_600_000
# Usage is summed up per hour, and per day, four days and sixteen days: a month of ten thousand keys has 900,000 rows of
# hours, and 300,000 of days, but it is covered by at most 110,000 rows if the widest slots that fit are read.
USAGE_WIDTHS_MS = (HOUR_MS, DAY_MS, 4 * DAY_MS, 16 * DAY_MS)
FIRST = "first"
GAP = "gap"
REPAIR = "repair:"
NO_BIN = -1
_FOREVER = 2**61
# A provider, its model, and what is counted: an outcome, a repair, or a kind of duration.
Name: TypeAlias = tuple[str, str, str]

# The attempts of the calls in `chosen`, which has their places, times and repairs: outcome and time to the first event,
# the longest gap, and the repairs, which belong to the last attempt. An orphaned call does not count as one without
# usage: its gateway died, and its provider is not at fault.
ANSWERS = f"""
SELECT a.provider AS provider, a.model AS model, a.outcome AS what, c.at_ms AS at_ms,
    CASE WHEN a.first_event_ms IS NULL THEN {NO_BIN} ELSE {bin_of("a.first_event_ms")} END AS bin, 1 AS count,
    CASE WHEN a.measure = 'estimated' AND a.outcome <> 'orphaned' THEN 1 ELSE 0 END AS estimated,
    COALESCE(a.first_event_ms, 0) AS least, COALESCE(a.first_event_ms, 0) AS most
FROM chosen c JOIN attempts a ON a.call = c.place
UNION ALL
SELECT a.provider, a.model, '{GAP}', c.at_ms, {bin_of("a.longest_gap_ms")}, 1, 0, a.longest_gap_ms, a.longest_gap_ms
FROM chosen c JOIN attempts a ON a.call = c.place WHERE a.first_event_ms IS NOT NULL AND a.events > 1
UNION ALL
SELECT a.provider, a.model, '{REPAIR}' || r.key, c.at_ms, {NO_BIN}, CAST(r.value AS BIGINT), 0, 0, 0
FROM chosen c CROSS JOIN json_each(c.repairs) r
    JOIN attempts a ON a.call = c.place AND a.number = (SELECT MAX(b.number) FROM attempts b WHERE b.call = c.place)
WHERE c.repairs <> '{{}}'
"""
# The columns of a usage.
USED = (
    "calls",
    "input",
    "output",
    "cached",
    "cache_write",
    "reasoning",
    "cost",
    "saved",
    "unpriced",
    "estimated",
    "approximate",
)
_SUMS = USED[1:8]
OF_CALLS = (
    "COUNT(*)",
    *(f"COALESCE(SUM(c.{column}), 0)" for column in _SUMS),
    "COALESCE(SUM(c.unpriced), 0)",
    "COUNT(CASE WHEN c.measure = 'estimated' THEN 1 END)",
    "COALESCE(SUM(c.approximate), 0)",
)
OF_ATTEMPTS = (
    "COUNT(DISTINCT c.place)",
    *(f"COALESCE(SUM(a.{column}), 0)" for column in _SUMS),
    "COUNT(DISTINCT CASE WHEN a.number IS NOT NULL AND a.cost IS NULL THEN c.place END)",
    "COUNT(DISTINCT CASE WHEN a.measure = 'estimated' THEN c.place END)",
    "COUNT(DISTINCT CASE WHEN a.approximate > 0 THEN c.place END)",
)

# Locks the row of the place, so that two processes never sum up the same calls.
_HOLD = "UPDATE meta SET value = value WHERE name = 'summed' RETURNING value"
_NEXT = """
SELECT COUNT(*), MAX(place) FROM (SELECT place FROM calls WHERE place > ? ORDER BY place LIMIT {most}) following
"""
_ALIKE = f"""
WITH chosen AS (SELECT place, at_ms, repairs FROM calls WHERE place > ? AND place <= ?)
SELECT provider, model, what, at_ms / {FINE_MS}, bin, SUM(count), SUM(estimated), MIN(least), MAX(most)
FROM ({ANSWERS}) x GROUP BY 4, 5, 3, 2, 1
"""
_KNOWN = "SELECT provider, model, what, number FROM summed_names WHERE model = ? AND provider = ? AND what = ?"
_NAME = "INSERT INTO summed_names (provider, model, what) VALUES (?, ?, ?) RETURNING provider, model, what, number"


_KEY = ("width", "slot", "name")
_ADD_ANSWERS = addition("summed_answers", _KEY, ("count", "estimated"))
_ADD_TIMES = addition(
    "summed_times",
    _KEY,
    ("least", "most", *COLUMNS),
    "least = CASE WHEN excluded.least < summed_times.least THEN excluded.least ELSE summed_times.least END",
    "most = CASE WHEN excluded.most > summed_times.most THEN excluded.most ELSE summed_times.most END",
)


def _sum_calls(kind: str, name: str, columns: Sequence[str] = OF_CALLS, tables: str = "calls c") -> str:
    """A statement that adds the usage of calls, by `name`, to the slots of all widths.

    New rows are in the order in which they are read, because PostgreSQL leaves them in the order of insertion.
    """
    widths = " UNION ALL ".join(f"SELECT {width} AS width" for width in USAGE_WIDTHS_MS)
    used = ", ".join(f"{expression} AS {column}" for expression, column in zip(columns, USED, strict=True))
    return f"""
    INSERT INTO summed_usage (kind, width, slot, name, {", ".join(USED)})
    SELECT '{kind}', w.width, hour * {HOUR_MS} / w.width, name, {", ".join(f"SUM({column})" for column in USED)}
    FROM (
        SELECT c.at_ms / {HOUR_MS} AS hour, {name} AS name, {used} FROM {tables}
        WHERE c.place > ? AND c.place <= ? GROUP BY 1, 2
    ) x CROSS JOIN ({widths}) w WHERE 1 = 1 GROUP BY 1, 2, 3, 4 ORDER BY 2, 3, 4
    ON CONFLICT (kind, width, slot, name) DO UPDATE SET
        {", ".join(f"{column} = summed_usage.{column} + excluded.{column}" for column in USED)}
    """


def _note_trait(kind: str, name: str, joined: str = "", condition: str = "1 = 1") -> str:
    return f"""
    INSERT INTO call_traits (kind, name, at_ms, call) SELECT DISTINCT {kind}, {name}, c.at_ms, c.place
    FROM calls c {joined} WHERE c.place > ? AND c.place <= ? AND {condition}
    """


_ATTEMPTS = "JOIN attempts x ON x.call = c.place"
_WORK = (
    _sum_calls("key", "c.key"),
    _sum_calls("model", "c.model"),
    _sum_calls("outcome", "c.outcome"),
    _sum_calls("team", "c.team"),
    _sum_calls("provider", "COALESCE(a.provider, '')", OF_ATTEMPTS, "calls c LEFT JOIN attempts a ON a.call = c.place"),
    _note_trait("'provider'", "x.provider", _ATTEMPTS),
    _note_trait("'target'", "x.provider || '/' || x.model", _ATTEMPTS),
    # Most attempts complete, so a list of completed ones is found quickly without an index.
    _note_trait("'attempt'", "x.outcome", _ATTEMPTS, "x.outcome <> 'completed'"),
    _note_trait("'code'", "c.code", condition="c.code <> ''"),
    _note_trait("'error'", "c.error", condition="c.error <> ''"),
    _note_trait("'repair'", "x.key", "CROSS JOIN json_each(c.repairs) x"),
    _note_trait("'loss'", "x.key", "CROSS JOIN json_each(c.losses) x"),
    _note_trait("'tag:' || x.key", "x.value", "CROSS JOIN json_each(c.tags) x"),
)


def sum_up(transaction: Transaction, most: int) -> int:
    """Add the next `most` calls to the summary, or fewer if there are no more; returns how many were added."""
    place = transaction.fetch(_HOLD)[0][0]
    (count, last), *_ = transaction.fetch(_NEXT.format(most=most), (place,))
    if not count:
        return 0
    _sum_answers(transaction, transaction.fetch(_ALIKE, (place, last)))
    for statement in _WORK:
        transaction.fetch(statement, (place, last))
    sum_spending(transaction, cast(int, place), cast(int, last))
    transaction.fetch("UPDATE meta SET value = ? WHERE name = 'summed'", (last,))
    return cast(int, count)


def _sum_answers(transaction: Transaction, rows: Sequence[Row]) -> None:
    """Add counts of attempts to the slots of both widths; attempts with equal values come as one row."""
    answers: dict[tuple[int, int, Name], list[int]] = {}
    times: dict[tuple[int, int, Name], list[int]] = {}
    for provider, model, what, slot, bin, *numbers in cast(
        "list[tuple[str, str, str, int, int, int, int, int, int]]", rows
    ):
        count, estimated, least, most = map(int, numbers)
        for width in (FINE_MS, COARSE_MS):
            at = (width, slot * FINE_MS // width)
            if what != GAP:
                answer = answers.setdefault((*at, (provider, model, what)), [0, 0])
                answer[0] += count
                answer[1] += estimated
            if bin != NO_BIN:
                name = (provider, model, GAP if what == GAP else FIRST)
                time = times.setdefault((*at, name), [least, most, *[0] * BINS])
                time[0], time[1] = min(time[0], least), max(time[1], most)
                time[2 + bin] += count
    named = _numbered(transaction, {name for *_, name in (*answers, *times)})
    transaction.execute_each(_ADD_ANSWERS, [(*at, named[name], *sums) for (*at, name), sums in answers.items()])
    transaction.execute_each(_ADD_TIMES, [(*at, named[name], *sums) for (*at, name), sums in times.items()])


def _numbered(transaction: Transaction, names: set[Name]) -> dict[Name, int]:
    """The numbers of names; new names are inserted."""
    known = transaction.fetch_each(_KNOWN, [(model, provider, what) for provider, model, what in names])
    numbers = {cast(Name, tuple(name)): cast(int, number) for *name, number in known}
    new = transaction.fetch_each(_NAME, sorted(names - numbers.keys()))
    return numbers | {cast(Name, tuple(name)): cast(int, number) for *name, number in new}


class TimeRange(NamedTuple):
    """A half-open time range: `until` is not included. It may be empty."""

    since: int
    until: int

    def whole(self, width_ms: int) -> "TimeRange":
        """The part of the range that consists of whole slots of that width."""
        since, until = -(-self.since // width_ms) * width_ms, self.until // width_ms * width_ms
        return TimeRange(since, until) if since < until else TimeRange(self.until, self.until)

    def widened(self, width_ms: int, kept_ms: int) -> "TimeRange":
        """The range, with bounds before `kept_ms` moved outwards to whole slots: calls of that time may be deleted."""
        since = self.since // width_ms * width_ms if self.since < kept_ms else self.since
        until = -(-self.until // width_ms) * width_ms if self.until < kept_ms else self.until
        return TimeRange(since, until)

    def slots(self, width_ms: int) -> tuple[int, int]:
        """For a range of whole slots: the number of the first slot, and of the one after the last."""
        return self.since // width_ms, self.until // width_ms

    def filled(self, widths_ms: Sequence[int]) -> list[tuple[int, int, int]]:
        """The whole slots of these widths, in ascending order, that fill the range: as wide as possible. For each
        width, the numbers of the first slot and of the one after the last; there may be two such runs of a width."""
        if not widths_ms or self.since >= self.until:
            return []
        *narrower, width = widths_ms
        widest = self.whole(width)
        before, after = TimeRange(self.since, widest.since), TimeRange(widest.until, self.until)
        runs = [*before.filled(narrower), (width, *widest.slots(width)), *after.filled(narrower)]
        return [(of, first, end) for of, first, end in runs if first < end]


def span(since_ms: int | None, until_ms: int | None) -> TimeRange:
    """A time range, which may have no start or no end."""
    return TimeRange(-_FOREVER if since_ms is None else since_ms, _FOREVER if until_ms is None else until_ms)


def kept_since(reader: Queryable) -> int:
    """The time since which all calls are in the book: the start of a day, 0 if none were deleted."""
    return cast(int, reader.fetch("SELECT value FROM meta WHERE name = 'kept'")[0][0])


# The plus keeps both databases from using the index on time: the calls after the place are together, at the end of the
# table.
COUNTED = f"""
SELECT place, at_ms, repairs FROM calls WHERE at_ms >= ? AND at_ms < ?
UNION ALL SELECT place, at_ms, repairs FROM calls WHERE at_ms >= ? AND at_ms < ?
UNION ALL SELECT place, at_ms, repairs FROM calls WHERE place > {SUMMED} AND +at_ms >= ? AND +at_ms < ?
"""


def counted(requested: TimeRange, summed: TimeRange) -> list[Value]:
    """The parameters of `COUNTED`: the calls to count one by one, if the range `summed` is read from the summary.

    These are the calls before and after that range, and those within it that were booked after the summary's place.
    """
    return [requested.since, summed.since, summed.until, requested.until, *summed]
