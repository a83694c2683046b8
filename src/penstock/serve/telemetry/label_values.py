"""LabelValues: the values that labels may have. At most a hundred for each label; whatever else there is, is `other`.

Clients may ask for any model. So a name of theirs gets a value of its own only once somebody has answered to it, while
there is room; names of the configuration have theirs beforehand. All workers of a gateway use the same names: they are
lines of a file for each label, which whoever adds one holds alone.
"""

import fcntl
import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from penstock.serve.telemetry.counters import OTHER

# One hundred, with `other`.
MOST = 99
_LONGEST = 100


class LabelValues:
    """The values of labels. Without a folder, those of this process alone."""

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder
        self._known: dict[str, set[str]] = {}

    def expect(self, label: str, values: Iterable[str]) -> None:
        """These will be asked for."""
        for value in values:
            self.of(label, value)

    def of(self, label: str, value: str, *, deserves: bool = True) -> str:
        """What to call a value. One that is new gets a name only if it deserves one."""
        known = self._known.setdefault(label, set())
        if value in known:
            return value
        if not value:
            return ""
        value = _plain(value)
        if value in known:
            return value
        if not deserves or len(known) >= MOST:
            return OTHER
        if self._folder is None:
            known.add(value)
        else:
            with suppress(OSError):  # the disk is full: it may get its name later
                self._known[label] = known = _share(self._folder / f"{label}.names", value)
        return value if value in known else OTHER


def _share(path: Path, value: str) -> set[str]:
    """Put a value beside those that others have put there, if there is room; all of them."""
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    with os.fdopen(file, "r+b") as names:
        fcntl.flock(names, fcntl.LOCK_EX)
        known = set(names.read().decode().splitlines())
        if value not in known and len(known) < MOST:
            names.write(f"{value}\n".encode())
            known.add(value)
    return known


def _plain(value: str) -> str:
    """On one line, not too long, and in any encoding."""
    return "".join(character if character.isprintable() else "?" for character in value[:_LONGEST])
