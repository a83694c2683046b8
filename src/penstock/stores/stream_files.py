"""StreamFiles: the durable streams of one process in files, which survive `kill -9`.

Each process has a folder with a lock, and in it a file for each of its streams. A record is written before a reader
gets the event: into the page cache, which survives the death of the process (not of the machine). A process that starts
takes over the folders whose lock is free (`adopt`).

    record   length (4 bytes, its highest bit set for JSON), then that many bytes: an event, or JSON

The first record is the header; later ones have the head of the response, the outcome of the call, and the end. A record
that is cut off, because the disk was full, ends what can be read.
"""

import fcntl
import os
import secrets
import shutil
import struct
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec
from msgspec import Struct

from penstock.errors import BookError
from penstock.gateway.streams.stream_store import FoundStream, StreamHeader

_LOCK = "lock"
_SUFFIX = ".stream"
_LENGTH = struct.Struct(">I")
_JSON = 1 << 31
# More than a stream has.
_MAX_FILE = 1_000_000_000


class _State(Struct, frozen=True, omit_defaults=True):
    """A change of a stream."""

    head: str = ""
    ended_ms: int = 0
    outcome: str = ""
    whole: bool = False


_HEADER = msgspec.json.Decoder(StreamHeader)
_STATE = msgspec.json.Decoder(_State)


class StreamFile:
    """The file of one stream. After an error, such as a full disk, it takes nothing more, and `intact` is False."""

    def __init__(self, path: Path, file: int | None, *, intact: bool = True) -> None:
        self._path = path
        self._file = file
        self.intact = intact

    def append(self, events: Sequence[bytes]) -> None:
        """Add events."""
        self._write(b"".join([_LENGTH.pack(len(event)) + event for event in events]))

    def begin(self, head: str) -> None:
        """The answer begins, with these lines of the response."""
        self._write(_json(_State(head=head)))

    def settle(self, outcome: str) -> None:
        """The call of the stream is settled, before its end."""
        self._write(_json(_State(outcome=outcome)))

    def end(self, now_ms: int, *, whole: bool) -> None:
        """The stream has ended; `whole` if the last event says how."""
        self._write(_json(_State(ended_ms=now_ms, whole=whole)))
        self.close()

    def remove(self) -> None:
        """Delete it."""
        self.close()
        self._path.unlink(missing_ok=True)

    def close(self) -> None:
        """Close the file, which stays."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _write(self, data: bytes) -> None:
        if self._file is None:
            return
        try:
            written = os.write(self._file, data)
        except OSError:
            written = -1
        if written != len(data):
            self.intact = False
            self.close()


class StreamFiles:
    """The files of one process. Raises `BookError` if its folder cannot be made."""

    def __init__(self, folder: Path) -> None:
        self._parent = folder
        self._folder = folder / secrets.token_hex(8)
        try:
            folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            folder.mkdir(mode=0o700, exist_ok=True)
            self._folder.mkdir(mode=0o700)
        except OSError as error:
            raise BookError(
                f"no streams can be kept in {folder}: {error.strerror}; set folder in [ledger], or PENSTOCK_STATE"
            ) from error
        self._lock = _take(self._folder)

    def create(self, header: StreamHeader) -> StreamFile:
        """The file of a new stream."""
        path = self._folder / f"{header.id}{_SUFFIX}"
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o600)
        except OSError:
            return StreamFile(path, None, intact=False)
        file = StreamFile(path, descriptor)
        file._write(_json(header))
        return file

    def adopt(self) -> Iterator[FoundStream]:
        """The streams of processes that have ended, each once. Their files are this process's now."""
        for folder in sorted(self._parent.iterdir()):
            if folder == self._folder or not folder.is_dir() or (lock := _take(folder)) is None:
                continue
            try:
                for path in sorted(folder.glob(f"*{_SUFFIX}")):
                    own = self._folder / path.name
                    path.rename(own)
                    if (found := _read(own)) is not None:
                        yield found
                    else:
                        own.unlink()
                shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(lock)

    def close(self) -> None:
        """Release the lock. The files stay for the next process; the folder goes if it has none."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None
            with suppress(OSError):
                (self._folder / _LOCK).unlink()
                self._folder.rmdir()


def _take(folder: Path) -> int | None:
    """The lock of a folder; None if a living process has it, or the folder is gone."""
    try:
        lock = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError:
        return None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(lock)
        return None
    return lock


def _json(value: Struct) -> bytes:
    data = msgspec.json.encode(value)
    return _LENGTH.pack(_JSON | len(data)) + data


def _read(path: Path) -> FoundStream | None:
    """The stream in a file; None if it has none."""
    found: FoundStream | None = None
    try:
        if path.stat().st_size > _MAX_FILE:
            return None
        for is_json, data in _records(path.read_bytes()):
            if found is None:
                found = FoundStream(header=_HEADER.decode(data), record=StreamFile(path, None), events=[])
            elif is_json:
                state = _STATE.decode(data)
                found.head = state.head or found.head
                found.outcome = state.outcome or found.outcome
                if state.ended_ms:
                    found.ended_ms, found.whole = state.ended_ms, state.whole
            else:
                found.events.append(data)
    except (OSError, msgspec.MsgspecError):
        return None
    return found


def _records(data: bytes) -> Iterator[tuple[bool, bytes]]:
    """The complete records, and whether each is JSON."""
    at = 0
    while at + _LENGTH.size <= len(data):
        (length,) = _LENGTH.unpack_from(data, at)
        is_json, size = bool(length & _JSON), length & (_JSON - 1)
        at += _LENGTH.size
        if not size or at + size > len(data):
            return
        yield is_json, data[at : at + size]
        at += size
