"""SharedCounters: the counters of one worker, in memory that outlives it.

    NUMBER.values   doubles: the numbers of all series, one series behind the other; mapped into the worker's memory
    NUMBER.keys     one line of JSON for each series, in the same order: its family and its labels

To count is to add to a mapped number: no system call, and `kill -9` takes nothing back. Whoever holds the lock of the
values is their worker. A worker that starts goes on with a tally that nobody holds, if there is one, so that what was
counted stays counted, and there are never more tallies than there were workers at a time.
"""

import fcntl
import mmap
import os
from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from itertools import count
from pathlib import Path
from typing import TypeAlias

import msgspec

from penstock.serve.telemetry.metric_specs import BY_NAME, FAMILIES, MetricSpec
from penstock.stores.preallocation import allocate

Labels: TypeAlias = tuple[str, ...]
# What was counted, by family and labels: as many numbers as the family is wide.
Counts: TypeAlias = dict[tuple[str, Labels], list[float]]

OTHER = "other"
# A family with more series than this counts what is new under `other`.
MOST_SERIES = 1_000
# Where that is counted of which no series can be told, because the disk is full.
LOST = MOST_SERIES * sum(family.width for family in FAMILIES)
_SLOTS = LOST + max(family.width for family in FAMILIES)


class SharedCounters:
    """Counts. Belongs to one thread. Without a folder, nobody else sees it and nothing outlives the process."""

    def __init__(self, folder: Path | None = None) -> None:
        """Raises `OSError` where the folder has no room."""
        self._at: dict[tuple[str, Labels], int] = {}
        self._series: dict[str, int] = {}
        self._next = 0
        self._keys: int | None = None
        if folder is None:
            self.values = memoryview(bytearray(_SLOTS * 8)).cast("d")
            return
        values, keys = _claim(folder)
        for family, labels in _read_keys(keys):
            self._add(family, labels)
        self._keys = os.open(keys, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        # Never unmapped: it is the process's own until its end, and so is the lock that the open file holds.
        self.values = memoryview(mmap.mmap(values, _SLOTS * 8)).cast("d")

    def begin(self, family: MetricSpec, labels: Labels = ()) -> None:
        """A series is there, though nothing was counted yet."""
        self.place(family, labels)

    def add(self, family: MetricSpec, labels: Labels = (), value: float = 1.0) -> None:
        """So much more of a counter."""
        self.values[self.place(family, labels)] += value

    def observe(self, family: MetricSpec, labels: Labels, value: float) -> None:
        """One more for a histogram."""
        self.observe_at(self.place(family, labels), family.bounds, [value])

    def observe_at(self, place: int, bounds: Sequence[float], observed: Sequence[float]) -> None:
        """The same, of several, where their place is known."""
        values = self.values
        for bucket, number in Counter(map(partial(bisect_left, bounds), observed)).items():
            values[place + bucket] += number
        values[place + len(bounds) + 1] += sum(observed)

    def merge(self, family: MetricSpec, labels: Labels, counts: Sequence[int], total: float) -> None:
        """What was counted elsewhere, for the same bounds."""
        self.merge_at(self.place(family, labels), counts, total)

    def merge_at(self, place: int, counts: Sequence[int], total: float) -> None:
        """The same, where its place is known."""
        values = self.values
        for slot, number in enumerate(counts, place):
            if number:
                values[slot] += number
        values[place + len(counts)] += total

    def counts(self) -> Counts:
        """All that was counted."""
        return {key: list(self.values[at : at + BY_NAME[key[0]].width]) for key, at in self._at.items()}

    def place(self, family: MetricSpec, labels: Labels) -> int:
        """Where the numbers of a series begin, in `values`. It stays there, unless it is `LOST`."""
        slot = self._at.get((family.name, labels))
        if slot is not None:
            return slot
        if self._series.get(family.name, 0) >= MOST_SERIES - 1 and labels != (OTHER,) * len(labels):
            return self.place(family, (OTHER,) * len(labels))
        if self._keys is not None and not _append(self._keys, msgspec.json.encode((family.name, labels)) + b"\n"):
            return LOST
        return self._add(family, labels)

    def _add(self, family: MetricSpec, labels: Labels) -> int:
        slot = self._at[family.name, labels] = self._next
        self._next += family.width
        self._series[family.name] = self._series.get(family.name, 0) + 1
        return slot


def read_all(folder: Path) -> list[Counts]:
    """What all workers have counted, those that are gone too."""
    return [_read(path) for path in sorted(folder.glob("*.keys"))]


def total(tallies: Sequence[Counts]) -> Counts:
    """What they come to together."""
    sums: Counts = {}
    for counts in tallies:
        for key, numbers in counts.items():
            before = sums.get(key)
            sums[key] = numbers if before is None else [a + b for a, b in zip(before, numbers, strict=True)]
    return sums


def _read(keys: Path) -> Counts:
    known = _read_keys(keys)
    values = memoryview(keys.with_suffix(".values").read_bytes()).cast("d")
    counts: Counts = {}
    at = 0
    for family, labels in known:
        counts[family.name, labels] = list(values[at : at + family.width])
        at += family.width
    return counts


def _read_keys(path: Path) -> list[tuple[MetricSpec, Labels]]:
    lines = path.read_bytes().split(b"\n")[:-1]
    found = (msgspec.json.decode(line, type=tuple[str, Labels]) for line in lines)
    return [(BY_NAME[name], labels) for name, labels in found]


def _append(file: int, line: bytes) -> bool:
    """Write a line, or nothing of it where there is no room: no call fails because it cannot be counted."""
    size = os.fstat(file).st_size
    with suppress(OSError):
        if os.write(file, line) == len(line):
            return True
    with suppress(OSError):
        os.ftruncate(file, size)
    return False


def _claim(folder: Path) -> tuple[int, Path]:
    """The first values that nobody holds, open and locked, and the path of their keys."""
    for number in count():
        path = folder / f"{number}.values"
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(file)
            continue
        # All of it is taken now: a full disk would end a process that writes to a mapped hole.
        allocate(file, _SLOTS * 8)
        keys = path.with_suffix(".keys")
        keys.touch(mode=0o600)
        return file, keys
    raise AssertionError("there is always a next number")
