"""LabelValues: bounds the values of each metric label. All further values are reported as `other`.

A client can send any model name, so unbounded labels would let a client exhaust memory and flood Prometheus. Names of
the configuration are registered in advance. Any other name becomes a label value only after a provider has answered a
call with it, and only while there is room. All workers of a gateway use the same values: there is one file per label
with a value per line, and a worker locks the file to add one.
"""

import fcntl
import os
from collections import defaultdict
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from penstock.serve.telemetry.counters import OTHER

# A hundred, together with `other`.
MAX_VALUES = 99
# The labels that may have more: teams, and the names of keys.
MAX_BY_LABEL = {"team": 199, "key": 499}
_MAX_CHARS = 100


class LabelValues:
    """The known values of each label. Without a folder they are private to this process."""

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder
        self._known: defaultdict[str, set[str]] = defaultdict(set)

    def register(self, label: str, values: Iterable[str]) -> None:
        """Add values that are known in advance, while there is room."""
        for value in values:
            self.of(label, value)

    def of(self, label: str, value: str, *, may_add: bool = True) -> str:
        """The label value for a name: the name itself if it is known or can be added, otherwise `other`."""
        known = self._known[label]
        if value in known:
            return value
        if not value:
            return ""
        value = "".join(character if character.isprintable() else "?" for character in value[:_MAX_CHARS])
        if value in known:
            return value
        if not may_add or len(known) >= MAX_BY_LABEL.get(label, MAX_VALUES):
            return OTHER
        if self._folder is None:
            known.add(value)
        else:
            with suppress(OSError):  # the disk is full: a later call may add it
                self._known[label] = known = _share(
                    self._folder / f"{label}.names", value, MAX_BY_LABEL.get(label, MAX_VALUES)
                )
        return value if value in known else OTHER


def _share(path: Path, value: str, most: int) -> set[str]:
    """Add a value to the file of a label, if there is room. Returns all values of the file."""
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    with os.fdopen(file, "r+b") as names:
        fcntl.flock(names, fcntl.LOCK_EX)
        known = set(names.read().decode().splitlines())
        if value not in known and len(known) < most:
            names.write(f"{value}\n".encode())
            known.add(value)
    return known
