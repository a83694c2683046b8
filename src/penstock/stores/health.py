"""Health: how providers' models have answered over time, as SQL. The database counts; only its counts come back.

Times are counted in bins, each a quarter wider than the one before, and a percentile is looked up in them: it is right
within a tenth, and as fast for a million attempts as counting them is. It is never below the least time of its bin nor
above the greatest: where there was one call, it is that call's own.

Attempts are of the time in which their call was made. Repairs are counted for a call: they are its last attempt's.
"""

from collections import Counter
from typing import cast

from penstock.gateway.book import Health, HealthBucket, Percentiles
from penstock.stores.database import Reader, Row, Value

_STEP = 1.25
_LONGEST_MS = 4_000_000
# Of more calls than this, some stand for all where only percentiles are wanted.
_SAMPLE = 100_000


def _bounds() -> tuple[int, ...]:
    """Where bins begin: each millisecond at first."""
    bounds = [0, 1]
    while bounds[-1] < _LONGEST_MS:
        bounds.append(max(bounds[-1] + 1, int(bounds[-1] * _STEP)))
    return tuple(bounds)


BOUNDS = _bounds()


def _bin(column: str, low: int = 0, high: int = len(BOUNDS)) -> str:
    """The number of the bin that a time is in, by halving: a few comparisons, in any SQL."""
    if high - low == 1:
        return str(low)
    middle = (low + high) // 2
    less, more = _bin(column, low, middle), _bin(column, middle, high)
    return f"CASE WHEN {column} < {BOUNDS[middle]} THEN {less} ELSE {more} END"


_EXTENT = "SELECT COUNT(*), COALESCE(MIN(place), 0) FROM calls WHERE at_ms >= ? AND at_ms < ?"
# Numbers stand first in what is grouped by: they are sorted faster than names.
_ANSWERS = f"""
SELECT a.provider, a.model, c.at_ms / ?, a.outcome,
    CASE WHEN a.first_event_ms IS NULL THEN -1 ELSE {_bin("a.first_event_ms")} END,
    COUNT(*), SUM(CASE WHEN a.measure = 'estimated' THEN 1 ELSE 0 END), MIN(a.first_event_ms), MAX(a.first_event_ms)
FROM calls c JOIN attempts a ON a.call = c.place
WHERE c.at_ms >= ? AND c.at_ms < ? GROUP BY 3, 5, 4, 2, 1
"""
_GAPS = f"""
SELECT a.provider, a.model, {_bin("a.longest_gap_ms")}, COUNT(*), MIN(a.longest_gap_ms), MAX(a.longest_gap_ms)
FROM calls c JOIN attempts a ON a.call = c.place
WHERE c.at_ms >= ? AND c.at_ms < ? AND a.first_event_ms IS NOT NULL AND a.events > 1 AND c.place % ? = 0
GROUP BY 3, 2, 1
"""
_REPAIRS = """
SELECT a.provider, a.model, c.at_ms / ?, r.code, SUM(r.count)
FROM calls c JOIN call_repairs r ON r.call = c.place JOIN attempts a ON a.call = c.place
WHERE r.call >= ? AND c.at_ms >= ? AND c.at_ms < ?
    AND a.number = (SELECT MAX(b.number) FROM attempts b WHERE b.call = r.call)
GROUP BY 3, 4, 2, 1
"""


def health(reader: Reader, since_ms: int, until_ms: int, bucket_ms: int) -> list[Health]:
    """How each provider's models have answered in a time, in the order of their names."""
    gathered: dict[tuple[Value, Value], _Gathered] = {}
    calls, first = map(_int, reader.fetch(_EXTENT, (since_ms, until_ms))[0])
    for row in reader.fetch(_ANSWERS, (bucket_ms, since_ms, until_ms)):
        gathered.setdefault((row[0], row[1]), _Gathered()).answered(row)
    for provider, model, *bin in reader.fetch(_GAPS, (since_ms, until_ms, calls // _SAMPLE + 1)):
        gathered.setdefault((provider, model), _Gathered()).gaps.add(*map(_int, bin))
    for row in reader.fetch(_REPAIRS, (bucket_ms, first, since_ms, until_ms)):
        gathered.setdefault((row[0], row[1]), _Gathered()).repaired(row)
    return [
        gathered[name].told(str(name[0]), str(name[1]), bucket_ms)
        for name in sorted(gathered, key=lambda name: [*map(str, name)])
    ]


class _Times:
    """Times, counted by their bins; with the least and the greatest of each."""

    def __init__(self) -> None:
        self._bins: dict[int, tuple[int, int, int]] = {}

    def add(self, bin: int, count: int, least: int, most: int) -> None:
        """So many were in a bin."""
        counted, low, high = self._bins.get(bin, (0, least, most))
        self._bins[bin] = (counted + count, min(low, least), max(high, most))

    def percentiles(self) -> Percentiles:
        """The middle, and what only one in twenty exceeds."""
        return Percentiles(p50=self._percentile(0.50), p95=self._percentile(0.95))

    def _percentile(self, part: float) -> int | None:
        wanted = part * sum(count for count, _, _ in self._bins.values())
        for _, (count, low, high) in sorted(self._bins.items()):
            if wanted <= count:
                return min(round(low + (high - low) * wanted / count), BOUNDS[-1])
            wanted -= count
        return None


class _Counts:
    """What was counted: outcomes, times to the first event by their bins, repairs, answers without usage."""

    def __init__(self) -> None:
        self.outcomes: Counter[str] = Counter()
        self.first_events = _Times()
        self.repairs: Counter[str] = Counter()
        self.usage_missing = 0


class _Gathered:
    """What was counted of one model of a provider."""

    def __init__(self) -> None:
        self._all = _Counts()
        self._buckets: dict[int, _Counts] = {}
        self.gaps = _Times()

    def answered(self, row: Row) -> None:
        """So many attempts were alike."""
        bucket, outcome, bin, count, missing, least, most = row[2:]
        for counts in (self._all, self._bucket(bucket)):
            counts.outcomes[str(outcome)] += _int(count)
            if _int(bin) >= 0:
                counts.first_events.add(_int(bin), _int(count), _int(least), _int(most))
            counts.usage_missing += _int(missing)

    def repaired(self, row: Row) -> None:
        """A defect was repaired so often."""
        bucket, code, count = row[2:]
        for counts in (self._all, self._bucket(bucket)):
            counts.repairs[str(code)] += _int(count)

    def told(self, provider: str, model: str, bucket_ms: int) -> Health:
        """All of it."""
        return Health(
            provider=provider,
            model=model,
            attempts=self._all.outcomes.total(),
            outcomes=dict(self._all.outcomes),
            first_event_ms=self._all.first_events.percentiles(),
            longest_gap_ms=self.gaps.percentiles(),
            repairs=dict(self._all.repairs),
            usage_missing=self._all.usage_missing,
            buckets=[
                HealthBucket(
                    at_ms=number * bucket_ms,
                    attempts=counts.outcomes.total(),
                    outcomes=dict(counts.outcomes),
                    first_event_ms=counts.first_events.percentiles(),
                    repairs=dict(counts.repairs),
                    usage_missing=counts.usage_missing,
                )
                for number, counts in sorted(self._buckets.items())
            ],
        )

    def _bucket(self, number: Value) -> _Counts:
        return self._buckets.setdefault(_int(number), _Counts())


def _int(value: Value) -> int:
    return int(cast("int | str", value))
