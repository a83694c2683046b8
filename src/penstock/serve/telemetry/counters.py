"""SharedCounters: the counters and histograms of one worker, in a memory-mapped file that outlives the worker.

    N.values   doubles: the numbers of all series, one series after the other, mapped into the worker's memory
    N.keys     one line of JSON per series, in the same order: the metric's name and its label values

Why a mapped file. Prometheus computes rates from counters that must not go down, and a scrape can reach any worker. So
every worker must be able to report the counts of all workers, including those that were killed. With a mapped file an
increment is an addition in memory: no system call, no lock, no message to another process. The pages belong to the
kernel, so `kill -9` loses nothing that was counted. (A crash of the machine may, but then the gateway itself restarts
and its counters start at zero, which Prometheus handles as a counter reset.)

Why it is correct:

1. One writer. The worker holds an exclusive `flock` on its `.values` file for as long as it lives. The kernel releases
   the lock when the process dies, however it dies.
2. No loss and no growth. A worker that starts takes over the first pair of files without a lock and continues its
   numbers. So counts never go down, and there are never more pairs than there were workers at the same time.
   (`prometheus_client`'s multiprocess mode adds files for every process id, and they accumulate with restarts.)
3. Readers need no lock. The key of a series is appended before its numbers are first written, and `_read` reads the
   keys before the values. So every number that a reader sees has a key; a series that is added in between is
   reported by the next scrape. Numbers of one scrape may be some microseconds apart from each other.
4. The layout only grows. The position of a series follows from the lines before its own, so lines are never removed.
5. A full disk costs a series, not a call. The values file is allocated in full at the start, because a write to a hole
   in a mapped file raises SIGBUS when the disk is full. A key that cannot be appended is counted in `LOST_SLOT`.
"""

import fcntl
import mmap
import os
from bisect import bisect_left
from collections.abc import Sequence
from contextlib import suppress
from itertools import compress, count
from pathlib import Path
from typing import TypeAlias

import msgspec

from penstock.serve.telemetry.metric_specs import BY_NAME, FAMILIES, MetricSpec
from penstock.stores.preallocation import allocate

Labels: TypeAlias = tuple[str, ...]
# The numbers of each series, by metric name and label values. There are `MetricSpec.width` numbers per series.
Counts: TypeAlias = dict[tuple[str, Labels], list[float]]

OTHER = "other"
# The position for counts of series whose key cannot be written because the disk is full. It is never reported.
LOST_SLOT = sum(family.most * family.width for family in FAMILIES)
_SLOTS = LOST_SLOT + max(family.width for family in FAMILIES)


class SharedCounters:
    """Counters and histograms of one worker. Used by one thread.

    Without a folder they are in private memory: no other process sees them and they end with this one.
    """

    def __init__(self, folder: Path | None = None) -> None:
        """Raises `OSError` if the folder's disk has no room."""
        self._slots: dict[tuple[str, Labels], int] = {}
        self._series_count: dict[str, int] = {}
        self._next_slot = 0
        self._keys: int | None = None
        self.worker = "0"
        """The number of this worker. One that takes the place of a dead worker has its number, and its counters."""
        if folder is None:
            # Not a bytearray: most pages are never used, and those of a mapping take no memory until they are.
            self.values = memoryview(mmap.mmap(-1, _SLOTS * 8)).cast("d")
            return
        values, keys = _claim(folder)
        self.worker = keys.stem
        for family, labels in _read_keys(keys):
            self._add_series(family, labels)
        self._keys = os.open(keys, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        # Neither unmapped nor closed: both the mapping and the lock of the open file last until the process ends.
        self.values = memoryview(mmap.mmap(values, _SLOTS * 8)).cast("d")

    def add(self, family: MetricSpec, labels: Labels = (), value: float = 1.0) -> None:
        """Add to a counter."""
        slot = self._slots.get((family.name, labels))
        self.values[self.slot(family, labels) if slot is None else slot] += value

    def observe(self, family: MetricSpec, labels: Labels, value: float) -> None:
        """Add one observation to a histogram."""
        self.observe_at(self.slot(family, labels), family, value)

    def observe_at(self, slot: int, family: MetricSpec, value: float) -> None:
        """Add one observation to the histogram whose first number has this index."""
        bounds, values = family.bounds, self.values
        values[slot + bisect_left(bounds, value)] += 1
        values[slot + len(bounds) + 1] += value

    def merge(self, family: MetricSpec, labels: Labels, counts: Sequence[int], total: float) -> None:
        """Add the bucket counts and the sum of another histogram with the same bounds."""
        slot, values = self.slot(family, labels), self.values
        for position in compress(count(slot), counts):  # most buckets have none
            values[position] += counts[position - slot]
        values[slot + len(counts)] += total

    def counts(self) -> Counts:
        """A copy of all numbers of this worker."""
        return {key: list(self.values[slot : slot + BY_NAME[key[0]].width]) for key, slot in self._slots.items()}

    def slot(self, family: MetricSpec, labels: Labels) -> int:
        """The index in `values` of a series' first number; creates the series. Constant, unless it is `LOST_SLOT`."""
        slot = self._slots.get((family.name, labels))
        if slot is not None:
            return slot
        if self._series_count.get(family.name, 0) >= family.most - 1 and labels != (OTHER,) * len(labels):
            return self.slot(family, (OTHER,) * len(labels))
        if self._keys is not None and not _append(self._keys, msgspec.json.encode((family.name, labels)) + b"\n"):
            return LOST_SLOT
        return self._add_series(family, labels)

    def _add_series(self, family: MetricSpec, labels: Labels) -> int:
        slot = self._slots[family.name, labels] = self._next_slot
        self._next_slot += family.width
        self._series_count[family.name] = self._series_count.get(family.name, 0) + 1
        return slot


def read_all(folder: Path) -> list[Counts]:
    """The counts of all workers, including those that have ended."""
    return [_read(path) for path in sorted(folder.glob("*.keys"))]


def total(workers: Sequence[Counts]) -> Counts:
    """The sum of several workers' counts."""
    sums: Counts = {}
    for counts in workers:
        for key, numbers in counts.items():
            before = sums.get(key)
            sums[key] = numbers if before is None else [a + b for a, b in zip(before, numbers, strict=True)]
    return sums


def _read(keys: Path) -> Counts:
    series = _read_keys(keys)  # before the values: see rule 3
    values = memoryview(keys.with_suffix(".values").read_bytes()).cast("d")
    counts: Counts = {}
    slot = 0
    for family, labels in series:
        counts[family.name, labels] = list(values[slot : slot + family.width])
        slot += family.width
    return counts


def _read_keys(path: Path) -> list[tuple[MetricSpec, Labels]]:
    lines = path.read_bytes().split(b"\n")[:-1]
    keys = (msgspec.json.decode(line, type=tuple[str, Labels]) for line in lines)
    return [(BY_NAME[name], labels) for name, labels in keys]


def _append(file: int, line: bytes) -> bool:
    """Append the whole line, or nothing if the disk is full. Never raises: a call must not fail because of a metric."""
    size = os.fstat(file).st_size
    with suppress(OSError):
        if os.write(file, line) == len(line):
            return True
    with suppress(OSError):
        os.ftruncate(file, size)
    return False


def _claim(folder: Path) -> tuple[int, Path]:
    """Open and lock the first values file that no live worker has locked. Returns it and the path of its keys."""
    for number in count():
        path = folder / f"{number}.values"
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(file)
            continue
        allocate(file, _SLOTS * 8)  # in full: see rule 5
        keys = path.with_suffix(".keys")
        keys.touch(mode=0o600)
        return file, keys
    raise AssertionError("there is always a next number")
