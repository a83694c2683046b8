"""Archive: files of compressed JSON lines in one folder, one file per UTC day, with old calls of the ledger.

A file is a sequence of gzip members, one for each batch of calls; any gzip program reads it. It counts only up to the
length that the database has for it (table `archives`), which changes in the transaction that deletes the calls. What
follows is of a process that died before this transaction: it is not read, and the next batch overwrites it. So a call
is either in the database or in an archive, never in both, at whatever moment a process dies.

Each folder has a random name, which is in the names of its files: gateways on several machines have different folders.
"""

import contextlib
import fcntl
import gzip
import io
import os
import secrets
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import IO, Any

import msgspec

from penstock.errors import BookError
from penstock.gateway.record.entry import Entry

# Faster compression costs a third more space.
_LEVEL = 6
_NAME = "name"
_LOCK = "lock"


class ArchiveFolder:
    """The folder with the archives of one gateway."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def file_name(self, day: int, number: int) -> str:
        """The name of the n-th file of a day. There are several only if the first one was moved away."""
        date = (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(days=day)).date().isoformat()
        return f"{date}-{self._name()}{f'-{number}' if number else ''}.jsonl.gz"

    def lock(self) -> IO[bytes] | None:
        """Lock the folder until the returned file is closed, or this process ends; None if it is locked already."""
        self._name()
        with self._errors():
            file = (self.path / _LOCK).open("ab")
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                file.close()
                return None
            return file

    def size(self, file: str) -> int | None:
        """The size of a file in bytes; None if it does not exist."""
        try:
            return (self.path / file).stat().st_size
        except FileNotFoundError:
            return None

    def append(self, file: str, length: int, entries: Iterable[Entry]) -> int:
        """Write entries to a file, durably, after its first `length` bytes. Returns its new length."""
        lines = b"".join(msgspec.json.encode(entry) + b"\n" for entry in entries)
        packed = gzip.compress(lines, _LEVEL, mtime=0)
        with self._errors():
            new = self.size(file) is None
            descriptor = os.open(self.path / file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            with os.fdopen(descriptor, "r+b") as opened:
                opened.truncate(length)
                opened.seek(length)
                opened.write(packed)
                opened.flush()
                os.fsync(opened.fileno())
            if new:
                _sync(self.path)
        return length + len(packed)

    def read(self, file: str, length: int) -> Iterator[Entry]:
        """The entries in the first `length` bytes of a file."""
        decoder = msgspec.json.Decoder(Entry)
        try:
            with (self.path / file).open("rb") as opened, gzip.GzipFile(fileobj=_Prefix(opened, length)) as lines:
                for line in lines:
                    yield decoder.decode(line)
        except (OSError, EOFError, msgspec.DecodeError) as error:
            raise BookError(f"the archive {self.path / file} cannot be read: {error}") from error

    def _name(self) -> str:
        """The random name of the folder. The folder is created if it is missing."""
        with self._errors():
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            path = self.path / _NAME
            if not path.exists():
                temporary = self.path / f".{_NAME}-{secrets.token_hex(4)}"
                temporary.write_text(secrets.token_hex(4))
                with contextlib.suppress(FileExistsError):
                    os.link(temporary, path)  # unlike renaming, it never replaces the name that another process made
                temporary.unlink()
                _sync(self.path)
            return path.read_text().strip()

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise BookError(f"{self.path} cannot be used for archives: {error.strerror}") from error


class _Prefix(io.RawIOBase):
    """The first bytes of a file."""

    def __init__(self, file: io.BufferedIOBase, length: int) -> None:
        self._file = file
        self._left = length

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._file.read(min(len(buffer), self._left))
        buffer[: len(data)] = data
        self._left -= len(data)
        return len(data)


def _sync(folder: Path) -> None:
    """Make new names in a folder durable."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
