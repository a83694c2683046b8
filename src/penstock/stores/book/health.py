"""The SQL for `ModelHealth`: outcomes, latencies and repairs of providers' models over time.

The database aggregates, and returns only counts. An attempt belongs to the time of its call. The repairs of a call are
counted for its last attempt. Percentiles are those of `time_histogram.py`.

The whole slots of the requested time range are read from the summary (`summary.py`); the rest is counted from the
calls.
"""

from collections import defaultdict
from typing import cast

from penstock.gateway.billing.queries import HealthBucket, ModelHealth
from penstock.stores.book.database import Queryable, Row, Value
from penstock.stores.book.summary import (
    ANSWERS,
    COARSE_MS,
    COUNTED,
    FINE_MS,
    GAP,
    NO_BIN,
    REPAIR,
    TimeRange,
    counted,
    kept_since,
)
from penstock.stores.book.time_histogram import COLUMNS, TimeHistogram

_GAP_NAMES = f"SELECT number FROM summed_names WHERE what = '{GAP}'"


def _slots(table: str, columns: str) -> str:
    """Slots of two widths, with the wide ones in the middle. Gaps have no buckets: all are in bucket 0."""
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
# Numbers come first in GROUP BY: they are sorted faster than names.
_COUNTED = f"""
WITH chosen AS ({COUNTED})
SELECT provider, model, what, at_ms / ?, bin, SUM(count), SUM(estimated), MIN(least), MAX(most)
FROM ({ANSWERS}) a GROUP BY 4, 5, 3, 2, 1
"""


def health(reader: Queryable, since_ms: int, until_ms: int, bucket_ms: int) -> list[ModelHealth]:
    """The health of each provider's models in a time range, sorted by name. Runs several queries."""
    kept_ms = kept_since(reader)
    requested = TimeRange(since_ms, until_ms).widened(FINE_MS, kept_ms)
    # Slots do not fit into the buckets: each counts for the bucket in which it starts, where calls are deleted.
    deleted = TimeRange(requested.since, max(requested.since, min(requested.until, kept_ms)))
    fine = (deleted if bucket_ms % FINE_MS else requested).whole(FINE_MS)
    coarse = TimeRange(fine.until, fine.until) if bucket_ms % COARSE_MS else fine.whole(COARSE_MS)
    slots: list[Value] = []
    for part, width_ms in (
        (TimeRange(fine.since, coarse.since), FINE_MS),
        (coarse, COARSE_MS),
        (TimeRange(coarse.until, fine.until), FINE_MS),
    ):
        slots += (bucket_ms, *part.slots(width_ms))
    sums: dict[tuple[Value, Value], _HealthSums] = {}

    def sums_of(row: Row) -> _HealthSums:
        return sums.setdefault((row[0], row[1]), _HealthSums())

    for row in reader.fetch(_SUMMED, slots):
        sums_of(row).answered(str(row[2]), *_numbers(row[3:6]))
    for row in reader.fetch(_SUMMED_TIMES, slots):
        bucket, least, most, *bins = _numbers(row[3:-1])
        sums_of(row).times(str(row[2]), bucket).add(least, most, bins)
    for row in reader.fetch(_COUNTED, (*counted(requested, fine), bucket_ms)):
        bucket, bin, count, estimated, least, most = _numbers(row[3:])
        sums_of(row).answered(str(row[2]), bucket, count, estimated)
        if bin != NO_BIN:
            sums_of(row).times(str(row[2]), bucket).add_one(least, most, bin, count)
    names = sorted(sums, key=lambda name: [*map(str, name)])
    return [sums[name].to_health(str(name[0]), str(name[1]), bucket_ms) for name in names]


class _Counts:
    """Counts: outcomes, times to the first event, repairs, answers without usage."""

    def __init__(self) -> None:
        self.outcomes: defaultdict[str, int] = defaultdict(int)
        self.first_events = TimeHistogram()
        self.repairs: defaultdict[str, int] = defaultdict(int)
        self.usage_missing = 0

    def add(self, what: str, count: int, estimated: int) -> None:
        """Add a count of an outcome or of a repair."""
        if what.startswith(REPAIR):
            self.repairs[what.removeprefix(REPAIR)] += count
        else:
            self.outcomes[what] += count
            self.usage_missing += estimated

    def merge(self, other: "_Counts") -> None:
        """Add other counts."""
        for total, added in ((self.outcomes, other.outcomes), (self.repairs, other.repairs)):
            for name, count in added.items():
                total[name] += count
        self.first_events.merge(other.first_events)
        self.usage_missing += other.usage_missing


class _HealthSums:
    """The counts of one model of a provider."""

    def __init__(self) -> None:
        self._buckets: dict[int, _Counts] = {}
        self._gaps = TimeHistogram()

    def answered(self, what: str, bucket: int, count: int, estimated: int) -> None:
        """Add a count of attempts with the same outcome, or of a repair."""
        if what != GAP:
            self._bucket(bucket).add(what, count, estimated)

    def times(self, what: str, bucket: int) -> TimeHistogram:
        """The histogram for such durations. Gaps have no buckets."""
        return self._gaps if what == GAP else self._bucket(bucket).first_events

    def _bucket(self, number: int) -> _Counts:
        return self._buckets.setdefault(number, _Counts())

    def to_health(self, provider: str, model: str, bucket_ms: int) -> ModelHealth:
        """The health of the model, with its totals and its buckets."""
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
