"""CaptureDirectory: keeps a directory of captures within `[captures] max_total` and `max_age_days`. And finds captures.

Only files with the recorder's naming scheme are removed, so a user keeps a capture by renaming it.
"""

import os
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from penstock.errors import ConfigError, Problem
from penstock.gateway.config import Captures, Config
from penstock.serve.recording.capture_file import NAMES, suffix

_PRUNE_INTERVAL_S = 30.0
_DAY_S = 86_400


def prepare(config: Config) -> None:
    """Create the directories for captures. Raises `ConfigError` if one cannot be written to."""
    directories = {"server.record": config.server.record}
    directories |= {f"routes.{name}.record": route.record or "" for name, route in config.routes.items()}
    problems = []
    for key, directory in directories.items():
        if directory:
            try:
                _probe(directory)
            except OSError as error:
                is_file = isinstance(error, FileExistsError | NotADirectoryError)
                reason = "it is a file" if is_file else error.strerror
                message = f"captures cannot be written to {directory}: {reason}; name another directory"
                problems.append(Problem(config.source, None, key, message))
    if problems:
        raise ConfigError(tuple(problems))


def directories(config: Config) -> list[str]:
    """The directories in which captures are recorded; empty if nothing is."""
    given = (config.server.record, *(route.record or "" for route in config.routes.values()))
    return list(dict.fromkeys(os.path.expanduser(directory) for directory in given if directory))


def find_capture(folders: Iterable[str], call: str, attempt: int) -> Path | None:
    """The capture of an attempt, by its name; None if there is none."""
    wanted = suffix(call, attempt)
    for folder in folders:
        with suppress(OSError), os.scandir(folder) as listed:
            for file in listed:
                if file.name.endswith(wanted) and NAMES.fullmatch(file.name) and file.is_file(follow_symlinks=False):
                    return Path(file.path)
    return None


def _probe(directory: str) -> None:
    os.makedirs(os.path.expanduser(directory), mode=0o700, exist_ok=True)
    probe = os.path.join(os.path.expanduser(directory), f".penstock-{os.getpid()}")
    os.close(os.open(probe, os.O_WRONLY | os.O_CREAT, 0o600))
    os.unlink(probe)


class CaptureDirectory:
    """The total size of a directory of captures, and when it was last pruned."""

    def __init__(self) -> None:
        self.total = 0
        self._pruned_at = -_PRUNE_INTERVAL_S

    def is_due(self, limits: Captures) -> bool:
        """Whether it is time to prune."""
        return self.total > limits.max_total or time.monotonic() - self._pruned_at >= _PRUNE_INTERVAL_S

    def prune(self, directory: str, limits: Captures) -> None:
        """Remove captures that are too old, then the oldest while the total is too large."""
        self._pruned_at = time.monotonic()
        oldest = time.time() - limits.max_age_days * _DAY_S
        captures: list[tuple[float, int, str]] = []
        try:
            with os.scandir(directory) as listed:
                for file in listed:
                    if NAMES.fullmatch(file.name) and file.is_file(follow_symlinks=False):
                        status = file.stat(follow_symlinks=False)
                        captures.append((status.st_mtime, status.st_size, file.path))
        except OSError:
            return  # the next write to it reports the error
        self.total = sum(size for _, size, _ in captures)
        for modified, size, path in sorted(captures):
            if modified >= oldest and self.total <= limits.max_total:
                break
            with suppress(OSError):
                os.unlink(path)
            self.total -= size
