"""Journal: a write-ahead journal of the calls that are not in the book yet. It survives `kill -9`.

A call is written as *open* before its provider is called, and as *settled* before its client sees the end of the
answer. Once the book has the call, its record is no longer needed. Each record is one write into the page cache, which
survives the death of the process (not of the machine), so no request ever waits for the disk. The next gateway reads
the journals of one that has died (`recover`). A file lock shows whether the process of a journal is alive.

A journal has two files, whose blocks are allocated in advance, so that a full disk cannot stop it within its capacity.
Records are appended to one file. When it is full, the records that are still needed are copied to the other file, which
is then used. So the capacity is needed only for the running calls, and for those that the book could not take.

    file     a number (8 bytes): of the two files, the one with the higher number is in use; then records
    record   length (4 bytes), CRC-32 (4 bytes), then that many bytes of JSON; a length of zero ends the records

The copy is safe at any moment of a kill: the number of the other file is written last. A record that was cut off has a
wrong CRC, and reading stops before it.
"""

import fcntl
import os
import secrets
import struct
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, suppress
from itertools import repeat
from pathlib import Path
from typing import TypeAlias

import msgspec
from msgspec import Struct

from penstock.errors import BookError
from penstock.gateway.record.entry import Entry
from penstock.stores.preallocation import allocate

SUFFIX = ".journal"
_HALVES = ("a", "b")
_NUMBER = struct.Struct("<Q")
_RECORD = struct.Struct("<II")
_END = bytes(_RECORD.size)
# In place of a closed file descriptor; no file ever has this number.
_NO_FILE = -1
# The space that is reserved for the end of each running call.
_MAX_END_SIZE = 512


class OpenCall(Struct, frozen=True, tag="open"):
    """A running call: the entry that is booked if the process dies now."""

    entry: Entry


class JournalMark(Struct, frozen=True, tag="mark"):
    """The progress of running calls: events, and characters of the answer."""

    reached: dict[str, tuple[int, int]]


class SettledCall(Struct, frozen=True, tag="settled"):
    """A call that has ended."""

    entry: Entry


Record: TypeAlias = OpenCall | JournalMark | SettledCall


class LeftoverCalls(Struct, frozen=True):
    """The calls in the journal of a dead gateway: those that it had settled, and the open ones with their progress."""

    settled: list[Entry]
    open: list[tuple[Entry, tuple[int, int]]]
    last_ms: int
    """The time of its last write, since 1970."""


class Journal:
    """The journal of one process. Used in its event loop only."""

    def __init__(self, folder: Path, room: int) -> None:
        """Make a journal with space for `room` bytes of needed records; raises `BookError` if the disk is full."""
        self._room = room
        capacity = room + room // 2  # so that files are switched seldom, even when all records are needed
        self._last = capacity - len(_END)  # the last record must end before this offset
        self._live: dict[str, bytes] = {}
        self._live_size = 0
        self._open: set[str] = set()
        self._encode = msgspec.json.Encoder().encode
        self._number = 0
        self._at = _NUMBER.size
        name = secrets.token_hex(8)
        self._paths = [folder / f"{name}-{half}{SUFFIX}" for half in _HALVES]
        self._files: list[int] = []
        try:
            folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            folder.mkdir(mode=0o700, exist_ok=True)
            for path in self._paths:
                self._files.append(_make(path, capacity))
            self._file = self._files[0]
        except OSError as error:
            self.close()
            raise BookError(
                f"no journal can be kept in {folder}: {error.strerror}; set folder in [ledger], or PENSTOCK_STATE"
            ) from error
        self.intact = True
        """Whether all records have been written to its files."""

    @property
    def has_room(self) -> bool:
        """Whether one more call may start: there is space for the ends of all running calls and of this one."""
        return self.intact and self._live_size + (len(self._open) + 1) * _MAX_END_SIZE <= self._room

    @property
    def waiting(self) -> int:
        """The number of ended calls that are not in the book yet."""
        return len(self._live) - len(self._open)

    def opened(self, entry: Entry) -> None:
        """Record a call that starts, or starts its next attempt."""
        self._open.add(entry.id)
        self._write(OpenCall(entry), entry.id)

    def marked(self, reached: Mapping[str, tuple[int, int]]) -> None:
        """Record the progress of running calls."""
        self._write(JournalMark(dict(reached)))

    def settled(self, entry: Entry) -> None:
        """Record the end of a call."""
        self._open.discard(entry.id)
        self._write(SettledCall(entry), entry.id)

    def booked(self, ids: Iterable[str]) -> None:
        """Drop the records of calls that are in the book now."""
        self._live_size -= sum(map(len, map(self._live.pop, ids, repeat(b""))))
        if not self.intact:
            self._switch_files()  # there may be space now

    def close(self) -> None:
        """Close the files; remove them if no call is left to be booked."""
        for path in self._paths:
            if not self._live:
                with suppress(OSError):  # a file that stays has no needed records
                    path.unlink()
        for file in self._files:
            if file != _NO_FILE:
                os.close(file)
        # The kernel reuses the numbers of closed descriptors. With -1, a later write fails, and hits no other file.
        self._files = [_NO_FILE, _NO_FILE]
        self._file = _NO_FILE

    def _write(self, record: Record, id: str = "") -> None:
        """Append a record. The record of a call replaces the earlier one, which is no longer needed."""
        data = self._encode(record)
        framed = _RECORD.pack(len(data), zlib.crc32(data)) + data
        size, at = len(framed), self._at
        if id:
            live = self._live
            self._live_size += size - len(live.get(id, b""))
            live[id] = framed
        if at + size > self._last:
            self._switch_files()
            return
        self._at = at + size
        try:
            if os.pwrite(self._file, framed + _END, at) != size + len(_END):
                self.intact = False
        except OSError:
            self.intact = False  # the call is still in memory, and is booked unless the process dies first

    def _switch_files(self) -> None:
        """Copy the needed records to the other file and use it. Writing its number last makes the switch atomic.

        If it cannot be written, the current file stays in use, with all its records.
        """
        other = self._files[1] if self._file == self._files[0] else self._files[0]
        data = b"".join((*self._live.values(), _END))
        try:
            self.intact = os.pwrite(other, data, _NUMBER.size) == len(data)
        except OSError:
            self.intact = False
        if self.intact:
            self._file = other
            self._at = _NUMBER.size + len(data) - len(_END)
            self._number += 1
            os.pwrite(other, _NUMBER.pack(self._number), 0)


def recover(folder: Path) -> Iterator[LeftoverCalls]:
    """Read the journals of dead gateways. Each is removed when the caller continues the iteration after it."""
    for first in sorted(folder.glob(f"*-{_HALVES[0]}{SUFFIX}")):
        paths = [first, first.with_name(first.name.replace(f"-{_HALVES[0]}{SUFFIX}", f"-{_HALVES[1]}{SUFFIX}"))]
        with ExitStack() as open_files:
            contents = []
            for path in paths:
                try:
                    file = open_files.enter_context(path.open("rb"))
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except FileNotFoundError:
                    continue
                except BlockingIOError:
                    break  # locked: its process is alive
                contents.append((file.read(), os.fstat(file.fileno()).st_mtime_ns // 1_000_000))
            else:
                yield _read_leftovers(*max(contents, key=lambda content: _number(content[0]), default=(b"", 0)))
                for path in paths:
                    path.unlink(missing_ok=True)


def in_use(folder: Path) -> bool:
    """Whether a journal in the folder belongs to a running process."""
    for path in folder.glob(f"*{SUFFIX}"):
        with suppress(FileNotFoundError), path.open("rb") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
    return False


def _read_leftovers(content: bytes, last_ms: int) -> LeftoverCalls:
    decoder: msgspec.json.Decoder[Record] = msgspec.json.Decoder(Record)
    settled: dict[str, Entry] = {}
    opened: dict[str, Entry] = {}
    reached: dict[str, tuple[int, int]] = {}
    at = _NUMBER.size
    while at + _RECORD.size <= len(content):
        length, checksum = _RECORD.unpack_from(content, at)
        at += _RECORD.size
        payload = content[at : at + length]
        if not length or zlib.crc32(payload) != checksum:
            break
        at += length
        match decoder.decode(payload):
            case OpenCall(entry):
                opened[entry.id] = entry
            case JournalMark(marks):
                reached |= marks
            case SettledCall(entry):
                settled[entry.id] = entry
    unsettled = [(entry, reached.get(id, (0, 0))) for id, entry in opened.items() if id not in settled]
    return LeftoverCalls(list(settled.values()), unsettled, last_ms)


def _number(content: bytes) -> int:
    return _NUMBER.unpack_from(content)[0] if len(content) >= _NUMBER.size else -1


def _make(path: Path, size: int) -> int:
    """Make a preallocated file, and lock it before it appears under its final name."""
    temporary = path.with_suffix(".new")
    file = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
        allocate(file, size)
        temporary.rename(path)
    except OSError:
        os.close(file)
        temporary.unlink(missing_ok=True)
        raise
    return file
