"""Summary: sums of the calls up to a place in the book, kept beside it, so that no view has to count a million rows.

Calls are never changed, and a place is never taken twice: what is summed up to a place stays true. The place is
`summed` in `meta`. The scribe goes on from there, some thousand calls at a time, in one transaction with the place that
it has come to. Whoever asks adds what was booked since, in the same snapshot. So the answers are the same as if every
call were counted, whoever books, however late, and whether the summary has come far or has not begun.

    summed_answers  how often which outcome and which repair was met in a time of so many milliseconds (`width`)
    summed_times    how many waited how long for the first event, and for any other; `bins.py` says in which bins
    summed_names    a provider, its model, and an outcome, `repair:CODE`, `first` or `gap`: the `name` in these two
    summed_usage    what calls of an hour have used, by key, by model, by outcome, and attempts by provider
    call_traits     by which provider, target, repair, loss or tag calls are found, in the order of lists

Where calls are removed the database empties all of it, and it is made anew.
"""

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias, cast

from penstock.core.losses import LOSSES
from penstock.stores.book.database import Row, Transaction, Value
from penstock.stores.book.rows import has_loss
from penstock.stores.book.time_histogram import BINS, COLUMNS, bin_of

# Attempts are summed up by half hours, for charts of a day, and by three hours, for those of weeks.
FINE_MS = 1_800_000
COARSE_MS = 10_800_000
HOUR_MS = 3_600_000
SUMMED = "(SELECT value FROM meta WHERE name = 'summed')"
FIRST = "first"
GAP = "gap"
REPAIR = "repair:"
NO_BIN = -1
_FOREVER = 2**61
# A provider, its model, and what is counted of it.
Name: TypeAlias = tuple[str, str, str]

# What became of the attempts of the calls in `chosen`, which has their places and times: an outcome and the wait for
# the first event, the longest gap, and what was repaired, which is the last attempt's. That a call which ended with its
# gateway has no usage is not its provider's fault.
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
SELECT a.provider, a.model, '{REPAIR}' || r.code, c.at_ms, {NO_BIN}, r.count, 0, 0, 0
FROM chosen c JOIN call_repairs r ON r.call = c.place
    JOIN attempts a ON a.call = c.place AND a.number = (SELECT MAX(b.number) FROM attempts b WHERE b.call = r.call)
"""
# Usage by these is summed up; by whatever else, each call is counted.
USED = (
    "calls",
    "input",
    "output",
    "cached",
    "cache_write",
    "reasoning",
    "cost",
    "unpriced",
    "estimated",
    "approximate",
)
_TOKENS = USED[1:7]
OF_CALLS = (
    "COUNT(*)",
    *(f"COALESCE(SUM(c.{column}), 0)" for column in _TOKENS),
    "COALESCE(SUM(c.unpriced), 0)",
    "COUNT(CASE WHEN c.measure = 'estimated' THEN 1 END)",
    "COALESCE(SUM(c.approximate), 0)",
)
OF_ATTEMPTS = (
    "COUNT(DISTINCT c.place)",
    *(f"COALESCE(SUM(a.{column}), 0)" for column in _TOKENS),
    "COUNT(DISTINCT CASE WHEN a.number IS NOT NULL AND a.cost IS NULL THEN c.place END)",
    "COUNT(DISTINCT CASE WHEN a.measure = 'estimated' THEN c.place END)",
    "COUNT(DISTINCT CASE WHEN a.approximate > 0 THEN c.place END)",
)

# Who removes calls waits for it, or is waited for.
_HOLD = "UPDATE meta SET value = value WHERE name = 'summed' RETURNING value"
_NEXT = """
SELECT COUNT(*), MAX(place) FROM (SELECT place FROM calls WHERE place > ? ORDER BY place LIMIT {most}) following
"""
_ALIKE = f"""
WITH chosen AS (SELECT place, at_ms FROM calls WHERE place > ? AND place <= ?)
SELECT provider, model, what, at_ms / {FINE_MS}, bin, SUM(count), SUM(estimated), MIN(least), MAX(most)
FROM ({ANSWERS}) x GROUP BY 4, 5, 3, 2, 1
"""
_KNOWN = "SELECT provider, model, what, number FROM summed_names WHERE model = ? AND provider = ? AND what = ?"
_NAME = "INSERT INTO summed_names (provider, model, what) VALUES (?, ?, ?) RETURNING provider, model, what, number"


def _add(table: str, key: Sequence[str], sums: Sequence[str], *further: str) -> str:
    columns = (*key, *sums)
    added = (f"{column} = {table}.{column} + excluded.{column}" for column in sums if column not in ("least", "most"))
    return (
        f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({', '.join('?' * len(columns))}) "
        f"ON CONFLICT ({', '.join(key)}) DO UPDATE SET {', '.join((*added, *further))}"
    )


_KEY = ("width", "slot", "name")
_ADD_ANSWERS = _add("summed_answers", _KEY, ("count", "estimated"))
_ADD_TIMES = _add(
    "summed_times",
    _KEY,
    ("least", "most", *COLUMNS),
    "least = CASE WHEN excluded.least < summed_times.least THEN excluded.least ELSE summed_times.least END",
    "most = CASE WHEN excluded.most > summed_times.most THEN excluded.most ELSE summed_times.most END",
)


def _sum_usage(kind: str, name: str, columns: tuple[str, ...], tables: str) -> str:
    return f"""
    INSERT INTO summed_usage (kind, hour, name, {", ".join(USED)})
    SELECT '{kind}', c.at_ms / {HOUR_MS}, {name}, {", ".join(columns)} FROM {tables}
    WHERE c.place > ? AND c.place <= ? GROUP BY 2, 3
    ON CONFLICT (kind, hour, name) DO UPDATE SET
        {", ".join(f"{column} = summed_usage.{column} + excluded.{column}" for column in USED)}
    """


def _note_trait(kind: str, name: str, table: str) -> str:
    return f"""
    INSERT INTO call_traits (kind, name, at_ms, call) SELECT DISTINCT {kind}, {name}, c.at_ms, c.place
    FROM calls c JOIN {table} x ON x.call = c.place WHERE c.place > ? AND c.place <= ?
    """


def note_losses(places: str) -> str:
    """A statement that has calls at these places found by their losses, as far as this version knows them."""
    codes = " UNION ALL ".join(f"SELECT '{code}' AS code" for code in LOSSES)
    return f"""
    INSERT INTO call_traits (kind, name, at_ms, call) SELECT 'loss', x.code, c.at_ms, c.place
    FROM calls c JOIN ({codes}) x ON {has_loss("x.code")} WHERE {places}
    """


_WORK = (
    _sum_usage("key", "c.key", OF_CALLS, "calls c"),
    _sum_usage("model", "c.model", OF_CALLS, "calls c"),
    _sum_usage("outcome", "c.outcome", OF_CALLS, "calls c"),
    _sum_usage("provider", "COALESCE(a.provider, '')", OF_ATTEMPTS, "calls c LEFT JOIN attempts a ON a.call = c.place"),
    _note_trait("'provider'", "x.provider", "attempts"),
    _note_trait("'target'", "x.provider || '/' || x.model", "attempts"),
    _note_trait("'repair'", "x.code", "call_repairs"),
    note_losses("c.place > ? AND c.place <= ?"),
    _note_trait("'tag:' || x.name", "x.value", "call_tags"),
)


def sum_up(transaction: Transaction, most: int) -> int:
    """Take the next calls into the summary, so many; fewer only if there are no more. How many were taken."""
    place = transaction.fetch(_HOLD)[0][0]
    (count, last), *_ = transaction.fetch(_NEXT.format(most=most), (place,))
    if not count:
        return 0
    _sum_answers(transaction, transaction.fetch(_ALIKE, (place, last)))
    for statement in _WORK:
        transaction.fetch(statement, (place, last))
    transaction.fetch("UPDATE meta SET value = ? WHERE name = 'summed'", (last,))
    return cast(int, count)


def _sum_answers(transaction: Transaction, rows: Sequence[Row]) -> None:
    """Add attempts, of which those that are alike are one row, for both widths."""
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
    """The numbers of names. Those that have none get one."""
    known = transaction.fetch_each(_KNOWN, [(model, provider, what) for provider, model, what in names])
    numbers = {cast(Name, tuple(name)): cast(int, number) for *name, number in known}
    new = transaction.fetch_each(_NAME, sorted(names - numbers.keys()))
    return numbers | {cast(Name, tuple(name)): cast(int, number) for *name, number in new}


class StaleRange(NamedTuple):
    """A time, from a moment to another, which is not meant any more. There may be nothing in it."""

    since: int
    until: int

    def whole(self, width_ms: int) -> "StaleRange":
        """The part of it that slots of such a width fill."""
        since, until = -(-self.since // width_ms) * width_ms, self.until // width_ms * width_ms
        return StaleRange(since, until) if since < until else StaleRange(self.until, self.until)

    def slots(self, width_ms: int) -> tuple[int, int]:
        """Of a time that slots fill: the first, and the one behind the last."""
        return self.since // width_ms, self.until // width_ms


def span(since_ms: int | None, until_ms: int | None) -> StaleRange:
    """A time, which may have no beginning, or no end."""
    return StaleRange(-_FOREVER if since_ms is None else since_ms, _FOREVER if until_ms is None else until_ms)


# The plus keeps both databases from looking calls up by their time: they lie together, at the end of the table.
COUNTED = f"""
SELECT place, at_ms FROM calls WHERE at_ms >= ? AND at_ms < ?
UNION ALL SELECT place, at_ms FROM calls WHERE at_ms >= ? AND at_ms < ?
UNION ALL SELECT place, at_ms FROM calls WHERE place > {SUMMED} AND +at_ms >= ? AND +at_ms < ?
"""


def counted(asked: StaleRange, summed: StaleRange) -> list[Value]:
    """The parameters of `COUNTED`: calls that are counted one by one, where a part of the time is summed up.

    They are those before it and behind it, and of it those that were booked since.
    """
    return [asked.since, summed.since, summed.until, asked.until, *summed]
