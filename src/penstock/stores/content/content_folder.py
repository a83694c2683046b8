"""ContentFolder: the kept content of calls once more, as JSON lines in files that other programs collect.

A process appends to a file of its own, and begins another one when it is large or old. It then deletes files of all
processes that are older than content is kept, or beyond the total size, the oldest first. Only the operator's user can
read the files. A line is written in one piece: if that fails, what was written of it is removed.
"""

import os
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from penstock.amounts import moment
from penstock.gateway.record.entry import Entry
from penstock.stores.content.call_record import CallRecord

_PREFIX, _SUFFIX = "penstock-content-", ".jsonl"
# A file of this size, or a tenth of the total, is followed by another one; so is a file of an hour.
_LARGEST = 64_000_000
_LONGEST_MS = 3_600_000


class ContentFolder:
    """The files of one process in a folder. Used by one thread."""

    def __init__(self, folder: Path, max_total: int, keep_ms: int) -> None:
        self._folder = folder
        self._max_total = max_total
        self._keep_ms = keep_ms
        self._file: Path | None = None
        self._since_ms = self._size = self._number = 0

    def append(self, records: Sequence[tuple[Entry, CallRecord]], now_ms: int) -> None:
        """Write the content of calls. Raises `OSError`."""
        for entry, record in records:
            line = _line(entry, record)
            largest = min(_LARGEST, self._max_total // 10)
            if self._file is None or self._size + len(line) > largest or now_ms - self._since_ms > _LONGEST_MS:
                self._rotate(now_ms)
            self._write(line)

    def _write(self, line: bytes) -> None:
        assert self._file is not None
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0)
        descriptor = os.open(self._file, flags, 0o600)
        try:
            size = os.fstat(descriptor).st_size
            if os.write(descriptor, line) < len(line):
                os.ftruncate(descriptor, size)
                raise OSError("the disk is full")
        finally:
            os.close(descriptor)
        self._size += len(line)

    def _rotate(self, now_ms: int) -> None:
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._prune(now_ms)
        now = datetime.fromtimestamp(now_ms / 1000, UTC)
        self._number += 1
        self._file = self._folder / f"{_PREFIX}{now:%Y%m%dT%H%M%SZ}-{os.getpid()}-{self._number:06}{_SUFFIX}"
        self._since_ms, self._size = now_ms, 0

    def _prune(self, now_ms: int) -> None:
        total = 0
        for file in sorted(self._folder.glob(f"{_PREFIX}*{_SUFFIX}"), reverse=True):  # the newest first, by name
            with suppress(FileNotFoundError):  # another process or the collector has deleted it
                found = file.lstat()
                total += found.st_size
                if total > self._max_total * 9 // 10 or found.st_mtime * 1000 < now_ms - self._keep_ms:
                    file.unlink()


def _line(entry: Entry, record: CallRecord) -> bytes:
    fields = {
        "id": record.id,
        "at": moment(record.at_ms),
        "model": entry.model,
        "outcome": entry.outcome,
        "team": entry.team or None,
        "key": record.key,
        "user": record.user,
        "left_out": list(record.left_out),
        "request": record.request,
        "answer": record.answer,
    }
    return msgspec.json.encode(fields) + b"\n"
