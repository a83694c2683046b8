"""BreakerTable: the state of each failing target's circuit breaker, in memory that worker processes can share.

    word 0          when the last record expires, by the monotonic clock; 0 while no target fails
    then records    seven words each: KEY, FAILURES, BREAKS, COOLS_UNTIL, PROBE_UNTIL, EXPIRES, LIMITED; all of them
                    doubles. LIMITED is 1 if the last failure was a rate limit of the provider

1. The table has a fixed size, because model names come from clients. A key belongs to one set of eight records. If all
   of them are in use, a new key replaces one that does not cool down, else the one whose cool-down ends first.
2. A record expires `REMEMBERED_S` after its last failure, or after its cool-down. An expired record counts as free.
3. While no target fails, word 0 is 0, and readers read nothing else. A call to a target without a record takes no lock.
4. Writers hold the lock. Readers do not: reading one word is atomic. In the worst case a record is replaced while a
   reader reads it, which misjudges one target for one call.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

# How long a failure is remembered: "in a row" means within this time.
REMEMBERED_S = 300.0
KEY, FAILURES, BREAKS, COOLS_UNTIL, PROBE_UNTIL, EXPIRES, LIMITED = range(7)
_WORDS = 7
_WAYS = 8
_SETS = 128
MAX_TARGETS = _SETS * _WAYS
SIZE = 8 * (1 + MAX_TARGETS * _WORDS)
# The size of a key: the most whole bytes that a double represents exactly.
KEY_BYTES = 6


class BreakerTable:
    """The records of failing targets. A record is named by the place of its first word in `words`."""

    def __init__(self, memory: memoryview | None = None, lock: AbstractContextManager[object] | None = None) -> None:
        """`memory` has `SIZE` bytes and is shared under `lock`. Without them the table belongs to this process."""
        self.words = (memoryview(bytearray(SIZE)) if memory is None else memory).cast("d")
        self.lock = lock if lock is not None else nullcontext()

    def find(self, key: int, now: float) -> int | None:
        """The record of a key, if it has one that has not expired. Called for every call while any target fails."""
        first = _first(key)
        keys = self.words[first : first + _WAYS * _WORDS : _WORDS].tolist()
        if key not in keys:
            return None
        place = first + keys.index(key) * _WORDS
        return place if self.words[place + EXPIRES] > now else None

    def has_any(self, now: float) -> bool:
        """Whether any record may be unexpired. Resets word 0 when all have expired."""
        if not self.words[0]:
            return False
        if self.words[0] > now:
            return True
        with self.lock:
            if self.words[0] <= now:
                self.words[0] = 0.0
        return False

    @contextmanager
    def claim(self, key: int, now: float) -> Iterator[int]:
        """The record of a key, for writing. A new one replaces the least important one of its set."""
        words = self.words
        with self.lock:
            place = self.find(key, now)
            if place is None:
                # Prefer the key's own expired record: no key may be in two records.
                place = min(_places(key), key=lambda each: (words[each] != key, *self._importance(each, now)))
                for word in range(_WORDS):
                    words[place + word] = 0.0
                words[place] = key
            yield place
            words[place + EXPIRES] = expires = max(now, words[place + COOLS_UNTIL]) + REMEMBERED_S
            words[0] = max(words[0], expires)

    def free(self, place: int) -> None:
        """Delete a record. The caller holds the lock."""
        self.words[place + EXPIRES] = 0.0

    def __len__(self) -> int:
        """How many records there are, expired ones included."""
        return sum(self.words[place + EXPIRES] > 0 for place in range(1, len(self.words), _WORDS))

    def _importance(self, place: int, now: float) -> tuple[bool, float, float]:
        words = self.words
        return words[place + EXPIRES] > now, words[place + COOLS_UNTIL], words[place + EXPIRES]


def _first(key: int) -> int:
    """The first record of a key's set."""
    return 1 + key % _SETS * _WAYS * _WORDS


def _places(key: int) -> range:
    """All records of its set."""
    first = _first(key)
    return range(first, first + _WAYS * _WORDS, _WORDS)
