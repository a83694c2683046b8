"""Journal: what the book does not hold yet, where `kill -9` cannot take it away.

Before a provider is asked, the call is in the journal as *open*; before its client sees the end, it is there as
*settled*; once the book holds it, it is forgotten. Each is one write into the page cache, which a dead process does not
take with it: no request ever waits for the disk. What a gateway that died has left is read by the next one.

There are two files, whose blocks are taken beforehand, so that a full disk cannot stop what they have room for. Records
are appended to one of them; when it is full, those still needed are written to the other, and it goes on there. So the
room that a journal needs is that of the calls under way, and of those that the book could not take.

    file     a number (8 bytes): of two files the one with the higher number is in use; then records
    record   length (4 bytes), CRC-32 (4 bytes), then so many bytes of JSON; a length of zero ends them
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
from penstock.gateway.billing.entry import Entry
from penstock.stores.preallocation import allocate

SUFFIX = ".journal"
_HALVES = ("a", "b")
_NUMBER = struct.Struct("<Q")
_RECORD = struct.Struct("<II")
_END = bytes(_RECORD.size)
# Where a file was; no file ever has this number.
_NO_FILE = -1
# What the end of a call under way will need.
_ROOM_FOR_AN_END = 512


class OpenCall(Struct, frozen=True, tag="open"):
    """A call that is under way: what its entry would be, if nothing more were heard of it."""

    entry: Entry


class Progress(Struct, frozen=True, tag="mark"):
    """How far calls under way have come: events, and characters of the answer."""

    reached: dict[str, tuple[int, int]]


class SettledCall(Struct, frozen=True, tag="settled"):
    """A call that is over."""

    entry: Entry


Record: TypeAlias = OpenCall | Progress | SettledCall


class LeftoverCalls(Struct, frozen=True):
    """What a gateway has left behind: calls that it had settled; and calls that it had not, with how far they came."""

    settled: list[Entry]
    open: list[tuple[Entry, tuple[int, int]]]
    last_ms: int
    """When it wrote for the last time, since 1970."""


class Journal:
    """The journal of one process. Belongs to its event loop."""

    def __init__(self, folder: Path, room: int) -> None:
        """Make one with room for so many bytes; raises `BookError` where the disk has none."""
        self._room = room
        capacity = room + room // 2  # so that it turns over seldom, even when all that it has room for is needed
        self._last = capacity - len(_END)  # where the last record may end
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
        self.sound = True
        """Whether all that it was given is in its files."""

    @property
    def has_room(self) -> bool:
        """Whether one more call may begin: there is room for all ends that are still to come."""
        return self.sound and self._live_size + (len(self._open) + 1) * _ROOM_FOR_AN_END <= self._room

    @property
    def waiting(self) -> int:
        """How many calls are over that the book does not hold yet."""
        return len(self._live) - len(self._open)

    def opened(self, entry: Entry) -> None:
        """A call is under way, or has come to its next attempt."""
        self._open.add(entry.id)
        self._write(OpenCall(entry), entry.id)

    def marked(self, reached: Mapping[str, tuple[int, int]]) -> None:
        """Calls under way have come so far."""
        self._write(Progress(dict(reached)))

    def settled(self, entry: Entry) -> None:
        """A call is over."""
        self._open.discard(entry.id)
        self._write(SettledCall(entry), entry.id)

    def booked(self, ids: Iterable[str]) -> None:
        """The book holds these calls."""
        self._live_size -= sum(map(len, map(self._live.pop, ids, repeat(b""))))
        if not self.sound:
            self._turn_over()  # there may be room now

    def close(self) -> None:
        """Let go; where nothing is left to be booked, nothing is left behind."""
        for path in self._paths:
            if not self._live:
                with suppress(OSError):  # nothing is lost with it
                    path.unlink()
        for file in self._files:
            if file != _NO_FILE:
                os.close(file)
        # The numbers of files that are closed are given to others. Whatever comes now is refused by the system.
        self._files = [_NO_FILE, _NO_FILE]
        self._file = _NO_FILE

    def _write(self, record: Record, id: str = "") -> None:
        """Append a record. That of a call is what is still needed of it, in place of the one before."""
        data = self._encode(record)
        framed = _RECORD.pack(len(data), zlib.crc32(data)) + data
        size, at = len(framed), self._at
        if id:
            live = self._live
            self._live_size += size - len(live.get(id, b""))
            live[id] = framed
        if at + size > self._last:
            self._turn_over()
            return
        self._at = at + size
        try:
            if os.pwrite(self._file, framed + _END, at) != size + len(_END):
                self.sound = False
        except OSError:
            self.sound = False  # the book will get it all the same, unless the process dies first

    def _turn_over(self) -> None:
        """Go on in the other file, with what is still needed. It is the one in use once its number says so.

        Where it cannot be written, the one in use stays, with all that is in it.
        """
        other = self._files[1] if self._file == self._files[0] else self._files[0]
        data = b"".join((*self._live.values(), _END))
        try:
            self.sound = os.pwrite(other, data, _NUMBER.size) == len(data)
        except OSError:
            self.sound = False
        if self.sound:
            self._file = other
            self._at = _NUMBER.size + len(data) - len(_END)
            self._number += 1
            os.pwrite(other, _NUMBER.pack(self._number), 0)


def recover(folder: Path) -> Iterator[LeftoverCalls]:
    """What dead gateways have left. Their journals are gone once the caller asks for the next one, or for the end."""
    for first in sorted(folder.glob(f"*-{_HALVES[0]}{SUFFIX}")):
        paths = [first, first.with_name(first.name.replace(f"-{_HALVES[0]}{SUFFIX}", f"-{_HALVES[1]}{SUFFIX}"))]
        with ExitStack() as held:
            contents = []
            for path in paths:
                try:
                    file = held.enter_context(path.open("rb"))
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except FileNotFoundError:
                    continue
                except BlockingIOError:
                    break  # its process is alive
                contents.append((file.read(), os.fstat(file.fileno()).st_mtime_ns // 1_000_000))
            else:
                yield _left(*max(contents, key=lambda found: _number(found[0]), default=(b"", 0)))
                for path in paths:
                    path.unlink(missing_ok=True)


def _left(content: bytes, last_ms: int) -> LeftoverCalls:
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
            case Progress(marks):
                reached |= marks
            case SettledCall(entry):
                settled[entry.id] = entry
    unsettled = [(entry, reached.get(id, (0, 0))) for id, entry in opened.items() if id not in settled]
    return LeftoverCalls(list(settled.values()), unsettled, last_ms)


def _number(content: bytes) -> int:
    return _NUMBER.unpack_from(content)[0] if len(content) >= _NUMBER.size else -1


def _make(path: Path, size: int) -> int:
    """A file with room for so many bytes, locked before anybody else can see it by its name."""
    made = path.with_suffix(".new")
    file = os.open(made, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
        allocate(file, size)
        made.rename(path)
    except OSError:
        os.close(file)
        made.unlink(missing_ok=True)
        raise
    return file
