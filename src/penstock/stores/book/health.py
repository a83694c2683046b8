"""ModelHealth: how providers' models have answered over time, as SQL. The database counts; only its counts come back.

Attempts are of the time in which their call was made. Repairs are counted for a call: they are its last attempt's.
Percentiles are those of `bins.py`.

What was summed up (`summary.py`) is taken from there, as far as the parts of the time that was asked for are made of
whole slots; the rest is counted.
"""

from collections import defaultdict
from typing import cast

from penstock.gateway.billing.book import HealthBucket, ModelHealth
from penstock.stores.book.database import Queryable, Row, Value
from penstock.stores.book.summary import (
    ANSWERS,
    COARSE_MS,
    COUNTED,
    FINE_MS,
    GAP,
    NO_BIN,
    REPAIR,
    StaleRange,
    counted,
)
from penstock.stores.book.time_histogram import COLUMNS, TimeHistogram

_GAP_NAMES = f"SELECT number FROM summed_names WHERE what = '{GAP}'"


def _slots(table: str, columns: str) -> str:
    """Of slots of two widths, those of the wider one in the middle. Gaps are not told by time: all are in bucket 0."""
    return " UNION ALL ".join(
        f"SELECT name, CASE WHEN name IN ({_GAP_NAMES}) THEN 0 ELSE slot * {width} / ? END AS bucket, {columns} "
        f"FROM {table} WHERE width = {width} AND slot >= ? AND slot < ?"
        for width in (FINE_MS, COARSE_MS, FINE_MS)
    )


_SUMMED = f"""
SELECT n.provider, n.model, n.what, s.* FROM (
    SELECT bucket, SUM(count), SUM(estimated), name FROM ({_slots("summed_answers", "count, estimated")}) p
    GROUP BY name, bucket
) s JOIN summed_names n ON n.number = s.name
"""
_SUMMED_TIMES = f"""
SELECT n.provider, n.model, n.what, s.* FROM (
    SELECT bucket, MIN(least), MAX(most), {", ".join(f"SUM({column})" for column in COLUMNS)}, name
    FROM ({_slots("summed_times", ", ".join(("least", "most", *COLUMNS)))}) p GROUP BY name, bucket
) s JOIN summed_names n ON n.number = s.name
"""
# Numbers stand first in what is grouped by: they are sorted faster than names.
_COUNTED = f"""
WITH chosen AS ({COUNTED})
SELECT provider, model, what, at_ms / ?, bin, SUM(count), SUM(estimated), MIN(least), MAX(most)
FROM ({ANSWERS}) a GROUP BY 4, 5, 3, 2, 1
"""


def health(reader: Queryable, since_ms: int, until_ms: int, bucket_ms: int) -> list[ModelHealth]:
    """How each provider's models have answered in a time, in the order of their names. Reads more than once."""
    asked = StaleRange(since_ms, until_ms)
    fine = StaleRange(until_ms, until_ms) if bucket_ms % FINE_MS else asked.whole(FINE_MS)
    coarse = StaleRange(fine.until, fine.until) if bucket_ms % COARSE_MS else fine.whole(COARSE_MS)
    slots: list[Value] = []
    for part, width_ms in (
        (StaleRange(fine.since, coarse.since), FINE_MS),
        (coarse, COARSE_MS),
        (StaleRange(coarse.until, fine.until), FINE_MS),
    ):
        slots += (bucket_ms, *part.slots(width_ms))
    gathered: dict[tuple[Value, Value], _HealthSums] = {}

    def of(row: Row) -> _HealthSums:
        return gathered.setdefault((row[0], row[1]), _HealthSums())

    for row in reader.fetch(_SUMMED, slots):
        of(row).answered(str(row[2]), *_numbers(row[3:6]))
    for row in reader.fetch(_SUMMED_TIMES, slots):
        bucket, least, most, *bins = _numbers(row[3:-1])
        of(row).times(str(row[2]), bucket).add(least, most, bins)
    for row in reader.fetch(_COUNTED, (*counted(asked, fine), bucket_ms)):
        bucket, bin, count, estimated, least, most = _numbers(row[3:])
        of(row).answered(str(row[2]), bucket, count, estimated)
        if bin != NO_BIN:
            of(row).times(str(row[2]), bucket).add_one(least, most, bin, count)
    names = sorted(gathered, key=lambda name: [*map(str, name)])
    return [gathered[name].told(str(name[0]), str(name[1]), bucket_ms) for name in names]


class _Counts:
    """What was counted: outcomes, times to the first event by their bins, repairs, answers without usage."""

    def __init__(self) -> None:
        self.outcomes: defaultdict[str, int] = defaultdict(int)
        self.first_events = TimeHistogram()
        self.repairs: defaultdict[str, int] = defaultdict(int)
        self.usage_missing = 0

    def add(self, what: str, count: int, estimated: int) -> None:
        """An outcome, or a repair, was met so often."""
        if what.startswith(REPAIR):
            self.repairs[what.removeprefix(REPAIR)] += count
        else:
            self.outcomes[what] += count
            self.usage_missing += estimated

    def merge(self, other: "_Counts") -> None:
        """Count those too."""
        for mine, others in ((self.outcomes, other.outcomes), (self.repairs, other.repairs)):
            for name, count in others.items():
                mine[name] += count
        self.first_events.merge(other.first_events)
        self.usage_missing += other.usage_missing


class _HealthSums:
    """What was counted of one model of a provider."""

    def __init__(self) -> None:
        self._buckets: dict[int, _Counts] = {}
        self._gaps = TimeHistogram()

    def answered(self, what: str, bucket: int, count: int, estimated: int) -> None:
        """So many attempts were alike."""
        if what != GAP:
            self._bucket(bucket).add(what, count, estimated)

    def times(self, what: str, bucket: int) -> TimeHistogram:
        """Where such times are counted. Gaps are not told by time."""
        return self._gaps if what == GAP else self._bucket(bucket).first_events

    def _bucket(self, number: int) -> _Counts:
        return self._buckets.setdefault(number, _Counts())

    def told(self, provider: str, model: str, bucket_ms: int) -> ModelHealth:
        """All of it."""
        total = _Counts()
        for counts in self._buckets.values():
            total.merge(counts)
        return ModelHealth(
            provider=provider,
            model=model,
            attempts=sum(total.outcomes.values()),
            outcomes=dict(total.outcomes),
            first_event_ms=total.first_events.percentiles(),
            longest_gap_ms=self._gaps.percentiles(),
            repairs=dict(total.repairs),
            usage_missing=total.usage_missing,
            buckets=[
                HealthBucket(
                    at_ms=number * bucket_ms,
                    attempts=sum(counts.outcomes.values()),
                    outcomes=dict(counts.outcomes),
                    first_event_ms=counts.first_events.percentiles(),
                    repairs=dict(counts.repairs),
                    usage_missing=counts.usage_missing,
                )
                for number, counts in sorted(self._buckets.items())
            ],
        )


def _numbers(values: Row) -> tuple[int, ...]:
    return cast("tuple[int, ...]", values)
