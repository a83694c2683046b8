"""FileWatch: calls back when one of some files has changed, such as a secret that was rotated."""

import asyncio
from collections.abc import Callable, Iterable

from penstock.http.file_version import FileVersion, file_version

_LOOK_S = 10.0


class FileWatch:
    """Looks at files every ten seconds. A file that is gone is reported once, and has changed when it is back."""

    def __init__(self, on_change: Callable[[], None], on_missing: Callable[[str], None]) -> None:
        self._on_change = on_change
        self._on_missing = on_missing
        self._seen: dict[str, FileVersion] = {}
        self._missing: set[str] = set()
        self._timer: asyncio.TimerHandle | None = None

    def use(self, files: Iterable[str]) -> None:
        """Watch these files from now on, and no others.

        One that was watched before is compared with what was seen of it before these files were read: if it changed
        meanwhile, its new content may not be in use.
        """
        before = self._seen
        self._seen = {
            file: version for file in files if (version := before.get(file) or file_version(file)) is not None
        }
        if self._timer is None and self._seen:
            self._schedule()

    def close(self) -> None:
        """Stop."""
        if self._timer is not None:
            self._timer.cancel()

    def look(self) -> None:
        """Call back if a file has changed."""
        found = {file: file_version(file) for file in self._seen}
        missing = {file for file, version in found.items() if version is None}
        for file in sorted(missing - self._missing):
            self._on_missing(file)
        self._missing = missing
        now = {file: found[file] or before for file, before in self._seen.items()}
        if now != self._seen:
            self._seen = now
            self._on_change()

    def _schedule(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(_LOOK_S, self._on_timer)

    def _on_timer(self) -> None:
        self.look()
        self._schedule()
