"""Measures: how soon and how fast each target has answered lately, and how many of its answers are in progress.

    records    `_WORDS` doubles each, in sets of eight: KEY, FIRST_S, PACE, AT, EXPLORED, then a histogram of FIRST_S

1. The memory has a fixed size and can be shared by worker processes, as that of the circuit breakers (`breakers.py`).
   A new record takes the lock; an update does not: two that meet lose one sample, and no word is ever torn.
2. FIRST_S and PACE are moving averages: the newest sample has the weight `_NEWEST`. An average that is older than
   `FRESH_S` says nothing about now; then one call per `_EXPLORE_S` tries the target, and measures it.
3. The histogram has the times of the last few hundred answers: at `_MOST_SAMPLES` all counts are halved.
4. Calls in progress are counted by each process for itself. The kernel spreads connections over the workers, and a
   count in shared memory would never end for a worker that dies.
5. Only targets of routes that need it are measured (`Route.measured`). Answers that are streamed and those that are not
   are measured apart: the first event of the latter is the whole answer.
"""

from bisect import bisect_left
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from hashlib import blake2b

KEY, FIRST_S, PACE, AT, EXPLORED = range(5)
_HISTOGRAM = 5
# The upper bounds of the buckets in seconds: each is half as long again as the one before. One more has what is longer.
BOUNDS = tuple(round(0.02 * 1.5**place, 4) for place in range(22))
_WORDS = _HISTOGRAM + len(BOUNDS) + 1
_WAYS = 8
_SETS = 64
SIZE = 8 * _SETS * _WAYS * _WORDS
"""The bytes of the memory: of 512 targets."""
_KEY_BYTES = 6  # the most whole bytes that a double represents exactly
_NEWEST = 0.2
FRESH_S = 60.0
"""How long an average says something about now."""
_EXPLORE_S = 10.0
_MOST_SAMPLES = 256
# Fewer answers do not tell what is unusual.
_LEAST_SAMPLES = 20
# In characters: the pace of a shorter answer is mostly chance.
_LEAST_OUTPUT = 200


class Measures:
    """The measures of all targets. A target is named by its `measure_key`."""

    def __init__(
        self,
        clock: Callable[[], float],
        memory: memoryview | None = None,
        lock: AbstractContextManager[object] | None = None,
    ) -> None:
        """`memory` has `SIZE` bytes and is shared under `lock`. Without them the measures belong to this process. All
        processes must have the same `clock`."""
        self._clock = clock
        self._words = (memoryview(bytearray(SIZE)) if memory is None else memory).cast("d")
        self._lock = lock if lock is not None else nullcontext()
        self._busy: dict[int, int] = {}

    # What attempts report.

    def begin(self, key: int) -> None:
        """An attempt at a target has begun."""
        self._busy[key] = self._busy.get(key, 0) + 1

    def end(self, key: int) -> None:
        """An attempt at a target is over."""
        left = self._busy.get(key, 0) - 1
        if left > 0:
            self._busy[key] = left
        else:
            self._busy.pop(key, None)

    def answered(self, key: int, first_s: float) -> None:
        """A target has answered this long after its attempt began."""
        words, place = self._words, self._claim(key)
        words[place + FIRST_S] = self._average(place, FIRST_S, first_s)
        words[place + AT] = self._clock()
        histogram = range(place + _HISTOGRAM, place + _WORDS)
        words[place + _HISTOGRAM + bisect_left(BOUNDS, first_s)] += 1.0
        if sum(words[each] for each in histogram) >= _MOST_SAMPLES:
            for each in histogram:
                words[each] //= 2

    def late(self, key: int, waited_s: float) -> None:
        """A target has failed after this long without an answer: it would have taken longer still."""
        place = self._find(key)
        if place is None or waited_s > self._words[place + FIRST_S]:
            self.answered(key, waited_s)

    def completed(self, key: int, chars: int, seconds: float) -> None:
        """Record the pace of an answer: its characters, and the seconds from its first event to its end."""
        if chars < _LEAST_OUTPUT or seconds <= 0:
            return
        place = self._claim(key)
        self._words[place + PACE] = self._average(place, PACE, chars / seconds)

    # What is known.

    def busy(self, key: int) -> int:
        """How many attempts of this process at a target are in progress."""
        return self._busy.get(key, 0)

    def first_s(self, key: int) -> float | None:
        """How long the first event of a target takes; None if that is not known of the last minute."""
        place = self._find(key)
        if place is None or self._clock() - self._words[place + AT] > FRESH_S:
            return None
        return self._words[place + FIRST_S]

    def pace(self, key: int) -> float:
        """The characters per second of a target's answers after the first event; 0 if it is not known."""
        place = self._find(key)
        return self._words[place + PACE] if place is not None else 0.0

    def p95_s(self, key: int) -> float | None:
        """The time within which 95 of 100 first events of a target came; None if too few are known."""
        place = self._find(key)
        if place is None:
            return None
        counts = self._words[place + _HISTOGRAM : place + _WORDS].tolist()
        total, seen = sum(counts), 0.0
        if total < _LEAST_SAMPLES:
            return None
        for bound, count in zip(BOUNDS, counts, strict=False):
            seen += count
            if seen >= 0.95 * total:
                return bound
        return None

    def explore(self, key: int) -> bool:
        """Whether this call should measure a target of which nothing is known now: one call in a while does."""
        now, place = self._clock(), self._claim(key)
        if now - self._words[place + AT] <= FRESH_S and self._words[place + AT]:
            return False
        if self._words[place + EXPLORED] and now - self._words[place + EXPLORED] < _EXPLORE_S:
            return False
        self._words[place + EXPLORED] = now
        return True

    # Records.

    def _average(self, place: int, word: int, sample: float) -> float:
        before = self._words[place + word]
        stale = word == FIRST_S and self._clock() - self._words[place + AT] > FRESH_S
        return sample if not before or stale else before + _NEWEST * (sample - before)

    def _find(self, key: int) -> int | None:
        first = key % _SETS * _WAYS * _WORDS
        keys = self._words[first : first + _WAYS * _WORDS : _WORDS].tolist()
        return first + keys.index(key) * _WORDS if key in keys else None

    def _claim(self, key: int) -> int:
        """The record of a target. A new one replaces the one of its set that was measured longest ago."""
        place = self._find(key)
        if place is not None:
            return place
        words, first = self._words, key % _SETS * _WAYS * _WORDS
        with self._lock:
            place = self._find(key)  # another process may have made it
            if place is None:
                places = range(first, first + _WAYS * _WORDS, _WORDS)
                place = min(places, key=lambda each: (words[each] != 0, words[each + AT]))
                for word in range(_WORDS):
                    words[place + word] = 0.0
                words[place] = key
        return place


def measure_key(*identity: str) -> int:
    """The name of a target in the measures, which is the same in every process."""
    digest = blake2b("\n".join(identity).encode(errors="surrogatepass"), digest_size=_KEY_BYTES)
    return int.from_bytes(digest.digest()) or 1
