"""EventGaps: histogram of the time between consecutive events of an attempt. Updated for every event: keep it cheap.

A gap lies between two reads that brought events; those of one read have none between them. While a slow client holds
the provider up, no time counts.
"""

from msgspec import Struct, field

# The upper bounds of the buckets, in seconds; one more bucket has what is longer. They are OpenTelemetry's for such.
BOUNDS = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92)
# A gap beyond this is a stall: readers look up.
STALL_S = 1.0
# More are counted, but not kept one by one.
MAX_STALLS = 32
_NONE = [0] * (len(BOUNDS) + 1)


class EventGaps(Struct, eq=False):
    """The gaps of one attempt. Whoever counts one adds to `counts`, and tells `note` if it is beyond `notable_s`."""

    counts: list[int] = field(default_factory=_NONE.copy)
    total_s: float = 0.0
    """All of them together; known when the attempt is over."""
    longest_s: float = 0.0
    notable_s: float = 0.0
    """A gap beyond this is the longest so far, or a stall."""
    stalls: list[tuple[int, int]] = []
    """The first stalls: at which millisecond of the attempt each began, and how many it took."""

    def note(self, gap_s: float, at_s: float) -> None:
        """A gap is notable. It began `at_s` after the attempt did."""
        self.longest_s = max(self.longest_s, gap_s)
        self.notable_s = min(self.longest_s, STALL_S)
        if gap_s > STALL_S and len(self.stalls) < MAX_STALLS:
            self.stalls.append((round(at_s * 1000), round(gap_s * 1000)))
