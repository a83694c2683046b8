"""FileWatch: calls back when one of some files has changed, such as a secret that was rotated."""

import asyncio
from collections.abc import Callable, Iterable

from penstock.http.file_version import FileVersion, file_version

_LOOK_S = 10.0


class FileWatch:
    """Looks at files every ten seconds. A file that is gone has changed when it is back."""

    def __init__(self, on_change: Callable[[], None]) -> None:
        self._on_change = on_change
        self._seen: dict[str, FileVersion] = {}
        self._timer: asyncio.TimerHandle | None = None

    def use(self, files: Iterable[str]) -> None:
        """Watch these files from now on, as they are now, and no others."""
        self._seen = {file: version for file in files if (version := file_version(file)) is not None}
        if self._timer is None and self._seen:
            self._schedule()

    def close(self) -> None:
        """Stop."""
        if self._timer is not None:
            self._timer.cancel()

    def look(self) -> None:
        """Call back if a file has changed."""
        now = {file: file_version(file) or before for file, before in self._seen.items()}
        if now != self._seen:
            self._seen = now
            self._on_change()

    def _schedule(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(_LOOK_S, self._on_timer)

    def _on_timer(self) -> None:
        self.look()
        self._schedule()
