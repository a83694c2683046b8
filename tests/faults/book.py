"""BookReader: reads what a gateway has booked, and compares it with the gateway's log and journal."""

import struct
import time
import zlib
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, BinaryIO

import msgspec
from msgspec import Struct

from penstock.gateway.billing.queries import Filter, Grouping
from penstock.gateway.record.entry import AttemptEntry, Entry
from penstock.stores.book.sqlite import SqliteBook
from tests.faults.dialects import PROVIDERS

# What `settings` says that a token costs, in nanodollars.
INPUT_COST = 1_000
OUTPUT_COST = 2_000
# The providers of `settings`, and what sets each of them apart.
ROLES: dict[str, tuple[str, ...]] = {
    "main": (),
    "spare": (),
    "hasty": ("timeouts = { first_event_s = 0.25, answer_s = 0.25 }",),
    "hasty-gap": ("timeouts = { gap_s = 0.25 }",),
    "hasty-total": ("timeouts = { total_s = 0.5 }",),
    "heard": ('abort = "drain"', "drain_s = 30.0"),
    "briefly": ('abort = "drain"', "drain_s = 0.6"),
}
_PRICED = {f"{role}{provider.suffix}" for role in ROLES for provider in PROVIDERS.values()}

_BOOKED_S = 30.0
_MANY = 1_000_000
_NUMBER = struct.Struct("<Q")
_RECORD = struct.Struct("<II")
_GROUPINGS: tuple[tuple[Grouping, ...], ...] = ((), ("key",), ("model",), ("provider",), ("day",), ("outcome",))


class BookReader:
    """Reads the book in a state folder. Each `check` continues where the last one ended."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._after = 0
        self._journals: dict[Path, _JournalFile] = {}

    def entries(self) -> list[Entry]:
        """All that is booked, in order."""
        return [entry for _, entry in self._following(0)]

    def entry(self, id: str, timeout_s: float = _BOOKED_S) -> Entry:
        """The entry of one call, which may be on its way."""
        deadline = time.monotonic() + timeout_s
        while not (found := [entry for entry in self.entries() if entry.id == id]):
            assert time.monotonic() < deadline, f"{id} is not booked"
            time.sleep(0.01)
        assert len(found) == 1
        return found[0]

    def skip(self) -> None:
        """Skip everything that is booked so far."""
        self._after = self._last()

    def check(self, lines: Sequence[Any]) -> list[Entry]:
        """The entries since the last check are exactly those of these lines of the log. Returns them."""
        deadline = time.monotonic() + _BOOKED_S
        while len(found := self._following(self._after)) < len(lines) and time.monotonic() < deadline:
            time.sleep(0.004)  # booking happens beside the calls
        ids = [entry.id for _, entry in found]
        assert sorted(ids) == sorted(line["request_id"] for line in lines), "the book and the log differ"
        by_id = {line["request_id"]: line for line in lines}
        for _, entry in found:
            assert_same(entry, by_id[entry.id])
        self._after = max([self._after, *(place for place, _ in found)])
        assert not self.open_calls(), "the journal has calls that nobody has settled"
        return [entry for _, entry in found]

    def check_sums(self) -> None:
        """However entries are grouped, their sums are those of the entries."""
        entries = self.entries()
        expected = (
            sum(entry.tokens.input for entry in entries),
            sum(entry.tokens.output for entry in entries),
            sum(entry.priced for entry in entries),
        )
        with closing(SqliteBook.open(self.path, readonly=True)) as book:
            found = book.database.fetch("PRAGMA integrity_check")
            assert found == [("ok",)], f"SQLite says of {self.path}: {found}"
            for by in _GROUPINGS:
                rows = book.usage(Filter(), by)
                assert (sum(r.input for r in rows), sum(r.output for r in rows), sum(r.cost for r in rows)) == expected
                if by != ("provider",):  # by provider, a call that tried two is counted with both
                    assert sum(row.calls for row in rows) == len(entries)

    @property
    def path(self) -> Path:
        return self.folder / "ledger.db"

    def open_calls(self) -> set[str]:
        """The calls in progress, according to the journals."""
        files = [self._journals.setdefault(path, _JournalFile(path)) for path in self.journals()]
        return {id for file in files for id in file.open_calls()}

    def journals(self) -> list[Path]:
        """The journals' files."""
        return list((self.folder / "journal").glob("*"))

    def _following(self, place: int) -> list[tuple[int, Entry]]:
        if not self.path.exists():
            return []
        with closing(SqliteBook.open(self.path, readonly=True)) as book:
            return book.following(Filter(), place, limit=_MANY)

    def _last(self) -> int:
        with closing(SqliteBook.open(self.path, readonly=True)) as book:
            return book.last()


def assert_same(entry: Entry, line: Any) -> None:
    """An entry says what the line of the log says, and its figures fit together."""
    assert entry.outcome == line["ending"], (entry, line)
    assert (entry.status, entry.code) == (line["status"], line["code"] or "")
    assert entry.stream == line["stream"]
    assert entry.repairs == line["repairs"] | line["findings"] | line["notices"]
    assert entry.losses == line["losses"]
    assert abs(entry.at_ms / 1000 - time.time()) < 600, "it was not admitted when it was"
    tried = [(f"{attempt.provider}/{attempt.model}", attempt.status, attempt.code) for attempt in entry.attempts]
    assert [(target[:200], *rest) for target, *rest in tried] == [
        (attempt["target"][:200].replace("\0", "\ufffd"), attempt["status"], attempt["code"])
        for attempt in line["attempts"]
    ]
    for attempt in entry.attempts:
        assert_fits(attempt)
    if entry.attempts and (last := entry.attempts[-1]).measure == "reported":
        assert (last.tokens.input, last.tokens.output) == (max(line["input"] or 0, 0), max(line["output"] or 0, 0))


def assert_fits(attempt: AttemptEntry) -> None:
    """Tokens and cost exist exactly if something was consumed, and the cost is that of the tokens."""
    tokens = attempt.tokens
    copied = attempt.price in ("shared", "cache")
    if attempt.measure == "void":
        assert (tokens.input, tokens.output, attempt.cost) == (0, 0, 0), attempt
        assert copied or not attempt.price, attempt
    elif attempt.price == "replay":
        assert attempt.cost == 0
    elif attempt.provider in _PRICED:
        assert tokens.input + tokens.output > 0, attempt
        assert attempt.cost == tokens.input * INPUT_COST + tokens.output * OUTPUT_COST, attempt
        assert attempt.price
    else:
        assert attempt.cost is None
    assert attempt.outcome != "completed" or copied or attempt.measure != "void", attempt


class _Identified(Struct):
    id: str


class _JournalRecord(Struct):
    """What a test wants of a record. Of thousands, decoding the rest takes longer than the test."""

    type: str
    entry: _Identified | None = None


class _JournalFile:
    """A file of a journal, read without Penstock. Each look continues where the last one ended."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._number = -1
        self._at = 0
        self._found: dict[str, set[str]] = {}

    def open_calls(self) -> set[str]:
        """What it has as open and not as settled."""
        try:
            file = self._path.open("rb")
        except FileNotFoundError:
            return set()
        with file:
            (number,) = _NUMBER.unpack(file.read(_NUMBER.size).ljust(_NUMBER.size, b"\0"))
            if number != self._number:  # it is used anew
                self._number, self._at = number, _NUMBER.size
                self._found = {"open": set(), "settled": set(), "mark": set()}
            file.seek(self._at)
            while record := _record(file):
                self._at = file.tell()
                if record.entry is not None:
                    self._found[record.type].add(record.entry.id)
        return self._found["open"] - self._found["settled"]


def _record(file: BinaryIO) -> _JournalRecord | None:
    head = file.read(_RECORD.size)
    if len(head) < _RECORD.size:
        return None
    length, checksum = _RECORD.unpack(head)
    payload = file.read(length)
    return _DECODER.decode(payload) if length and zlib.crc32(payload) == checksum else None


_DECODER = msgspec.json.Decoder(_JournalRecord)
