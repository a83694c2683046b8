"""Statistics of two gateways that are measured in pairs: ratios, their median, its 95 % range, and when to stop.

For each pair both gateways are started anew. Two processes that run the same code can differ by some percent for as
long as they live, because of where their memory lies: only new processes average that out, and make pairs independent.
"""

import random
import statistics
from collections.abc import Callable
from typing import NamedTuple

# How far the 95 % range of the CPU ratio may reach from the median, as a share of it, for measuring to stop.
PRECISION = 0.015
# With fewer values than this the range of a median is too narrow (bootstrap).
MIN_PAIRS = 10
_DRAWS = 2_000


class Figures(NamedTuple):
    """What one gateway took, in microseconds."""

    cpu: float
    """CPU for an event, or for a call: what the load is about. Decides when measuring stops."""
    cpu_alone: float
    """The same while the whole load goes through this gateway alone."""
    first: float
    """From the request to the first event, median."""
    p99: float
    """99th percentile of a latency."""


class Pair(NamedTuple):
    """The two gateways, measured within the same seconds."""

    new: Figures
    old: Figures


class Estimate(NamedTuple):
    """The median of the pairs' ratios new/old, and the range in which it lies with 95 % certainty."""

    ratio: float
    low: float
    high: float

    @property
    def error(self) -> float:
        """How far the range reaches from the median, as a share of it, on the wider side."""
        return max(self.high - self.ratio, self.ratio - self.low) / self.ratio


def estimate(pairs: list[Pair], figure: str) -> Estimate:
    """The ratio new/old of one of the `Figures`."""
    ratios = [getattr(pair.new, figure) / getattr(pair.old, figure) for pair in pairs]
    return Estimate(statistics.median(ratios), *median_range(ratios))


def is_precise(pairs: list[Pair]) -> bool:
    """Whether the CPU ratio is known to within PRECISION."""
    return len(pairs) >= MIN_PAIRS and estimate(pairs, "cpu").error <= PRECISION


def measure(pair: Callable[[], Pair], time_left: Callable[[], bool]) -> list[Pair]:
    """Measure pairs until the CPU ratio is precise, or no time is left; at least one."""
    pairs = [pair()]
    while not is_precise(pairs) and time_left():
        pairs.append(pair())
    return pairs


def median_range(values: list[float]) -> tuple[float, float]:
    """The 95 % range of the median of independent values (bootstrap)."""
    chance = random.Random(1)
    drawn = sorted(statistics.median(chance.choices(values, k=len(values))) for _ in range(_DRAWS))
    return drawn[_DRAWS // 40], drawn[-_DRAWS // 40]
