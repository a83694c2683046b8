"""Bins: times, counted by how long they are, so that percentiles can be told of millions, and of sums of sums.

Each bin is a fifth wider than the one before, and a percentile is told as the middle of its bin, or of the part of it
that lies between the least time and the greatest: it is right within a tenth, and where there was one time, it is that.
"""

from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate
from operator import add

from penstock.gateway.billing.book import Percentiles

_STEP = 1.2
_LONGEST_MS = 4_000_000


def _bounds() -> tuple[int, ...]:
    """Where bins begin: each millisecond at first."""
    bounds = [0, 1]
    while bounds[-1] < _LONGEST_MS:
        bounds.append(max(bounds[-1] + 1, int(bounds[-1] * _STEP)))
    return tuple(bounds)


# Released tables have a column for each: they are never changed.
BOUNDS = _bounds()
BINS = len(BOUNDS)
COLUMNS = tuple(f"b{number}" for number in range(BINS))


def bin_of(column: str, low: int = 0, high: int = BINS) -> str:
    """The number of the bin that a time is in, by halving: a few comparisons, in any SQL."""
    if high - low == 1:
        return str(low)
    middle = (low + high) // 2
    less, more = bin_of(column, low, middle), bin_of(column, middle, high)
    return f"CASE WHEN {column} < {BOUNDS[middle]} THEN {less} ELSE {more} END"


class TimeHistogram:
    """Times, counted by their bins; with the least and the greatest."""

    def __init__(self) -> None:
        self._least, self._most = BOUNDS[-1], 0
        self._bins = [0] * BINS

    def add(self, least: int, most: int, bins: Sequence[int]) -> None:
        """So many were in each bin."""
        self._least, self._most = min(self._least, least), max(self._most, most)
        self._bins = list(map(add, self._bins, bins))

    def add_one(self, least: int, most: int, bin: int, count: int) -> None:
        """So many were in one bin."""
        self._least, self._most = min(self._least, least), max(self._most, most)
        self._bins[bin] += count

    def merge(self, other: "TimeHistogram") -> None:
        """Count those too."""
        self.add(other._least, other._most, other._bins)

    def percentiles(self) -> Percentiles:
        """The middle, and what only one in twenty exceeds."""
        reached = list(accumulate(self._bins))
        return Percentiles(p50=self._percentile(reached, 0.50), p95=self._percentile(reached, 0.95))

    def _percentile(self, reached: list[int], part: float) -> int | None:
        """`reached`: how many are in each bin and in those before."""
        if not reached[-1]:
            return None
        number = bisect_left(reached, part * reached[-1])
        least = max(BOUNDS[number], self._least)
        most = BOUNDS[number + 1] - 1 if number + 1 < BINS else BOUNDS[-1]  # the last one has no end
        return (least + max(least, min(most, self._most))) // 2
