"""TimeHistogram: a histogram of durations, for percentiles of millions of values; histograms can be merged.

Each bin is a fifth wider than the previous one. A percentile is the middle of its bin, or of the part of the bin
between the minimum and the maximum. So its error is at most a tenth, and it is exact for a single value.
"""

from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate
from operator import add

from penstock.gateway.billing.queries import Percentiles

_STEP = 1.2
_LONGEST_MS = 4_000_000


def _bounds() -> tuple[int, ...]:
    """The lower bounds of the bins; the first bins are one millisecond wide."""
    bounds = [0, 1]
    while bounds[-1] < _LONGEST_MS:
        bounds.append(max(bounds[-1] + 1, int(bounds[-1] * _STEP)))
    return tuple(bounds)


# The tables have a column for each bin, and a released schema never changes: so the bins never change either.
BOUNDS = _bounds()
BINS = len(BOUNDS)
COLUMNS = tuple(f"b{number}" for number in range(BINS))


def bin_of(column: str, low: int = 0, high: int = BINS) -> str:
    """A SQL expression for the number of the bin of a duration: a binary search by nested CASE."""
    if high - low == 1:
        return str(low)
    middle = (low + high) // 2
    less, more = bin_of(column, low, middle), bin_of(column, middle, high)
    return f"CASE WHEN {column} < {BOUNDS[middle]} THEN {less} ELSE {more} END"


class TimeHistogram:
    """The counts of durations by bin, with the minimum and the maximum."""

    def __init__(self) -> None:
        self._least, self._most = BOUNDS[-1], 0
        self._bins = [0] * BINS

    def add(self, least: int, most: int, bins: Sequence[int]) -> None:
        """Add counts for all bins."""
        self._least, self._most = min(self._least, least), max(self._most, most)
        self._bins = list(map(add, self._bins, bins))

    def add_one(self, least: int, most: int, bin: int, count: int) -> None:
        """Add a count for one bin."""
        self._least, self._most = min(self._least, least), max(self._most, most)
        self._bins[bin] += count

    def merge(self, other: "TimeHistogram") -> None:
        """Add the counts of another histogram."""
        self.add(other._least, other._most, other._bins)

    def percentiles(self) -> Percentiles:
        """The median and the 95th percentile."""
        reached = list(accumulate(self._bins))
        return Percentiles(p50=self._percentile(reached, 0.50), p95=self._percentile(reached, 0.95))

    def _percentile(self, reached: list[int], part: float) -> int | None:
        """The percentile for a fraction; `reached` are the cumulative counts."""
        if not reached[-1]:
            return None
        number = bisect_left(reached, part * reached[-1])
        least = max(BOUNDS[number], self._least)
        most = BOUNDS[number + 1] - 1 if number + 1 < BINS else BOUNDS[-1]  # the last bin has no upper bound
        return (least + max(least, min(most, self._most))) // 2
