"""CaptureDirectory: a directory of captures. It holds no more bytes, and no older captures, than the settings say.

Only files that are named as the recorder names them are ever removed: who renames one keeps it.
"""

import os
import time
from contextlib import suppress

from penstock.errors import ConfigError, Problem
from penstock.gateway.config import Captures, Config
from penstock.serve.recording.capture_file import NAMES

_TIDY_EVERY_S = 30.0
_DAY_S = 86_400


def prepare(config: Config) -> None:
    """Make the directories that captures go to; raises `ConfigError` where they cannot be written to."""
    wanted = {"server.record": config.server.record}
    wanted |= {f"routes.{name}.record": route.record or "" for name, route in config.routes.items()}
    problems = []
    for key, directory in wanted.items():
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


def _probe(directory: str) -> None:
    os.makedirs(os.path.expanduser(directory), mode=0o700, exist_ok=True)
    probe = os.path.join(os.path.expanduser(directory), f".penstock-{os.getpid()}")
    os.close(os.open(probe, os.O_WRONLY | os.O_CREAT, 0o600))
    os.unlink(probe)


class CaptureDirectory:
    """What is known of a directory of captures."""

    def __init__(self) -> None:
        self.total = 0
        self._tidied = -_TIDY_EVERY_S

    def is_due(self, limits: Captures) -> bool:
        """Whether it is time to look."""
        return self.total > limits.max_total or time.monotonic() - self._tidied >= _TIDY_EVERY_S

    def tidy(self, directory: str, limits: Captures) -> None:
        """Remove what is too old, and the oldest of what is too much."""
        self._tidied = time.monotonic()
        oldest = time.time() - limits.max_age_days * _DAY_S
        found: list[tuple[float, int, str]] = []
        try:
            with os.scandir(directory) as listed:
                for file in listed:
                    if NAMES.fullmatch(file.name) and file.is_file(follow_symlinks=False):
                        status = file.stat(follow_symlinks=False)
                        found.append((status.st_mtime, status.st_size, file.path))
        except OSError:
            return  # whoever writes to it next is told
        self.total = sum(size for _, size, _ in found)
        for modified, size, path in sorted(found):
            if modified >= oldest and self.total <= limits.max_total:
                break
            with suppress(OSError):
                os.unlink(path)
            self.total -= size
