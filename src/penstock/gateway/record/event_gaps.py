"""EventGaps: histogram of the time between consecutive events of an attempt. Updated for every event: keep it cheap.

A gap is the time between two reads that brought events; events of the same read have no gap. The time of a pause
(backpressure) does not count.
"""

from msgspec import Struct, field

# The upper bounds of the buckets in seconds, as OpenTelemetry defines them. One more bucket counts longer gaps.
BOUNDS = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92)
# A longer gap is a stall: a person who reads the answer notices it.
STALL_S = 1.0
# More stalls are counted in the histogram, but not stored one by one.
MAX_STALLS = 32
_NONE = [0] * (len(BOUNDS) + 1)


class EventGaps(Struct, eq=False):
    """The gaps of one attempt. The caller adds a gap to `counts`, and calls `note` if it exceeds `notable_s`."""

    counts: list[int] = field(default_factory=_NONE.copy)
    total_s: float = 0.0
    """The sum of all gaps; set when the attempt has ended."""
    longest_s: float = 0.0
    notable_s: float = 0.0
    """A longer gap is the longest so far, or a stall."""
    stalls: list[tuple[int, int]] = []
    """The first stalls: the start since that of the attempt, and the duration, in milliseconds."""

    def note(self, gap_s: float, at_s: float) -> None:
        """Note a gap that exceeds `notable_s`. It started `at_s` after the attempt."""
        self.longest_s = max(self.longest_s, gap_s)
        self.notable_s = min(self.longest_s, STALL_S)
        if gap_s > STALL_S and len(self.stalls) < MAX_STALLS:
            self.stalls.append((round(at_s * 1000), round(gap_s * 1000)))
