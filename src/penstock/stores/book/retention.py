"""Retention: moves old calls from the database to archives, in batches, and deletes old sums.

1. A batch is written to its archive (`archive.py`), durably. Then one transaction deletes its calls and records the new
   length of the archive. A process that dies before the transaction has changed nothing that counts.
2. The same transaction adds what remains of the calls: their usage (`archived_usage.py`), and digests of their ids, so
   that the journal of a gateway that died before cannot book them again, however late it is read. The other sums, and
   the spending on which budgets depend (`spending.py`), already have them: only calls that are summed up are deleted.
3. One process prunes at a time. It locks the folder of the archives, which excludes other processes of this machine.
   It sets `pruning` in `meta` to the time until which it reserves pruning for itself, which excludes other machines;
   the transaction fails if another machine has reserved it since. After any error, both are done anew, and the length
   of the archive is read again.
4. Calls are deleted by whole days (UTC), so that sums of hours, slots and days are those of all their calls or of none.
   A call belongs to the day on which it was received, and is archived if it has also ended before.

Digests have 64 bits: among a billion archived calls, a late call is taken for an archived one with a probability of
one in 10¹⁰.
"""

from collections.abc import Callable, Sequence
from functools import partial
from hashlib import blake2b
from itertools import count, product
from pathlib import Path
from typing import IO, NamedTuple, cast

from penstock.amounts import DAY_MS, clock_ms
from penstock.gateway.billing.queries import Archived, Filter
from penstock.gateway.record.entry import Entry
from penstock.stores.book.archive import ArchiveFolder
from penstock.stores.book.archived_usage import ADD_USAGE, usage_rows
from penstock.stores.book.database import SUMMED, Database, Queryable, Row, Transaction, addition
from penstock.stores.book.listing import in_order
from penstock.stores.book.rows import read_entries
from penstock.stores.book.selection import Selection
from penstock.stores.book.summary import COARSE_MS, FINE_MS, HOUR_MS, USAGE_WIDTHS_MS, kept_since, sum_up

# How long a process reserves pruning for itself. After its death, others wait as long.
_RESERVED_MS = 60_000
_SUM_BATCH = 2_000
_DIGITS = 16
_IN_TIME = "c.at_ms, c.place"
_ADD_ARCHIVE = addition("archives", ("name",), ("calls",), "bytes = excluded.bytes", fixed=("day", "bytes"))
_ADD_IDS = "INSERT INTO archived_ids (day, place, ids) VALUES (?, ?, ?)"
_DELETE_TRAIT = "DELETE FROM call_traits WHERE kind = ? AND name = ? AND at_ms = ? AND call = ?"
_RELEASE = "UPDATE meta SET value = 0 WHERE name = 'pruning' AND value = ?"
_PRUNABLE = "FROM calls WHERE at_ms < ? AND settled_ms < ?"
_OLDEST_DAY = f"SELECT MIN(slot) FROM summed_usage WHERE kind = 'outcome' AND width = {DAY_MS}"
_DELETE_USAGE = "DELETE FROM summed_usage WHERE kind = ? AND width = ? AND slot < ?"
_SUM_KINDS = ("key", "model", "outcome", "provider", "team")


class _OpenArchive(NamedTuple):
    """The archive to which the calls of a day are appended."""

    day: int
    file: str
    length: int


class _ReservationLostError(Exception):
    """Another process has reserved pruning for itself."""


class Pruner:
    """Prunes a database. `step` is repeated until there is nothing left to do."""

    def __init__(self, database: Database, now_ms: Callable[[], int] = clock_ms) -> None:
        self.database = database
        self._now_ms = now_ms
        self._lock: IO[bytes] | None = None
        self._reserved: int | None = None
        self._archive: _OpenArchive | None = None
        self._since_ms = 0

    def step(self, folder: Path, before_ms: int, most: int) -> int | None:
        """Archive and delete a batch; returns how many calls it had: 0 at the end, None if another process prunes."""
        before = before_ms // DAY_MS * DAY_MS
        archives = ArchiveFolder(folder)
        try:
            if self._reserved is None:
                if not self.database.fetch(f"SELECT 1 {_PRUNABLE} LIMIT 1", (before, before)):
                    return 0
                if not self._begin(archives, before):
                    self.close()
                    return None
            batch = self._next_batch(before, most)
            if batch:
                self._move(archives, batch)
            else:
                self.end()
            return len(batch)
        except _ReservationLostError:
            self.close()
            return None
        except BaseException:
            self.close()
            raise

    def end(self) -> None:
        """Let other processes prune."""
        reserved = self._reserved
        if reserved is not None:
            self.database.write(lambda transaction: transaction.fetch(_RELEASE, (reserved,)))
        self.close()

    def close(self) -> None:
        """Let other processes of this machine prune. Other machines wait until the reservation is over."""
        self._reserved = self._archive = None
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def _move(self, archives: ArchiveFolder, batch: Sequence[tuple[int, Entry]]) -> None:
        """Archive and delete a batch."""
        day = batch[0][1].at_ms // DAY_MS
        archive = self._archive
        if archive is None or archive.day != day:
            archive = self._open_archive(archives, day)
        length = archives.append(archive.file, archive.length, [entry for _, entry in batch])
        self._commit(_replacement(batch, archive, length))
        self._archive = archive._replace(length=length)
        self._since_ms = batch[-1][1].at_ms

    def _begin(self, archives: ArchiveFolder, before: int) -> bool:
        """Reserve pruning, and sum up all calls; returns False if another process is pruning."""
        self._lock = archives.lock()
        if self._lock is None:
            return False
        now, until = self._now_ms(), self._now_ms() + _RESERVED_MS

        def reserve(transaction: Transaction) -> bool:
            current = _number(transaction, "pruning")
            if current not in (0, until) and current > now:
                return False
            _set(transaction, "pruning", until)
            _set(transaction, "kept", max(before, kept_since(transaction)))
            return True

        if not self.database.write(reserve):
            return False
        self._reserved, self._archive, self._since_ms = until, None, 0
        while self.database.write(lambda transaction: sum_up(transaction, _SUM_BATCH)) == _SUM_BATCH:
            pass
        return True

    def _next_batch(self, before: int, most: int) -> list[tuple[int, Entry]]:
        """The oldest calls that ended before a time and are summed up, of one day."""
        selection = Selection(Filter(since_ms=self._since_ms, until_ms=before))
        selection.add(f"c.settled_ms < ? AND c.place <= {SUMMED}", before)
        batch = read_entries(self.database.fetch(*in_order(selection, _IN_TIME, most)))
        return [(place, entry) for place, entry in batch if entry.at_ms // DAY_MS == batch[0][1].at_ms // DAY_MS]

    def _open_archive(self, archives: ArchiveFolder, day: int) -> _OpenArchive:
        """The archive of a day. A file that is not ours, or is not complete any more, is left as it is."""
        for number in count():
            file = archives.file_name(day, number)
            size = archives.size(file)
            rows = self.database.fetch("SELECT bytes FROM archives WHERE name = ?", (file,))
            if rows:
                length = cast(int, rows[0][0])
                if not length or (size is not None and size >= length):
                    return _OpenArchive(day, file, length)
            elif size is None:
                # First, so that the file is ours even if this process dies before its first batch is deleted.
                self._commit(partial(_register, file=file, day=day))
                return _OpenArchive(day, file, 0)
        raise AssertionError("numbers do not end")

    def _commit(self, work: Callable[[Transaction], None]) -> None:
        """Run work in a transaction if pruning is still reserved for this process, and reserve it for longer.

        The database may repeat the transaction after a lost connection, without knowing whether it took effect.
        """
        reserved = cast(int, self._reserved)
        until = max(self._now_ms() + _RESERVED_MS, reserved + 1)

        def guarded(transaction: Transaction) -> bool:
            current = _number(transaction, "pruning")
            if current == reserved:
                _set(transaction, "pruning", until)
                work(transaction)
            return current in (reserved, until)

        if not self.database.write(guarded):
            raise _ReservationLostError
        self._reserved = until


def _register(transaction: Transaction, *, file: str, day: int) -> None:
    """Record an empty archive."""
    transaction.execute_each(_ADD_ARCHIVE, [(file, 0, day, 0)])


def _replacement(
    batch: Sequence[tuple[int, Entry]], archive: _OpenArchive, length: int
) -> Callable[[Transaction], None]:
    """Work that deletes calls and adds what remains of them. The rows are made before, so that the transaction, for
    which other writers wait, is short."""
    entries = [entry for _, entry in batch]
    usage = usage_rows(entries)
    ids = "".join(_digest(entry.id) for entry in entries)
    traits = [trait for place, entry in batch for trait in _traits(place, entry)]
    places: list[Row] = [(place,) for place, _ in batch]

    def replace(transaction: Transaction) -> None:
        transaction.execute_each(_ADD_ARCHIVE, [(archive.file, len(batch), archive.day, length)])
        transaction.execute_each(ADD_USAGE, usage)
        transaction.fetch(_ADD_IDS, (archive.day, batch[0][0], ids))
        transaction.execute_each(_DELETE_TRAIT, traits)
        transaction.execute_each("DELETE FROM calls WHERE place = ?", places)

    return replace


def _traits(place: int, entry: Entry) -> list[Row]:
    """The rows of `call_traits` that `summary.py` has made of a call."""
    traits = {("repair", code) for code in entry.repairs} | {("loss", code) for code in entry.losses}
    traits |= {(f"tag:{name}", value) for name, value in entry.tags.items()}
    traits |= {(kind, name) for kind, name in (("code", entry.code), ("error", entry.error)) if name}
    for attempt in entry.attempts:
        traits |= {("provider", attempt.provider), ("target", f"{attempt.provider}/{attempt.model}")}
        traits |= {("attempt", attempt.outcome)} - {("attempt", "completed")}
    return [(kind, name, entry.at_ms, place) for kind, name in traits]


def without_archived(transaction: Queryable, entries: dict[str, Entry]) -> dict[str, Entry]:
    """The entries, by id, without those that are archived already; only a journal that was left behind has such."""
    kept = kept_since(transaction)
    if not any(entry.at_ms < kept for entry in entries.values()):
        return entries
    forgotten = _number(transaction, "kept_sums")
    late = {id: entry for id, entry in entries.items() if entry.at_ms < kept}
    known: set[tuple[int, str]] = set()
    for day in {entry.at_ms // DAY_MS for entry in late.values()}:
        for (ids,) in transaction.fetch("SELECT ids FROM archived_ids WHERE day = ?", (day,)):
            text = str(ids)
            known.update((day, text[start : start + _DIGITS]) for start in range(0, len(text), _DIGITS))
    return {
        id: entry
        for id, entry in entries.items()
        if id not in late or (entry.at_ms >= forgotten and (entry.at_ms // DAY_MS, _digest(id)) not in known)
    }


def prunable(database: Database, before_ms: int) -> int:
    """How many calls can be archived."""
    before = before_ms // DAY_MS * DAY_MS
    return cast(int, database.fetch(f"SELECT COUNT(*) {_PRUNABLE}", (before, before))[0][0])


def drop_sums(database: Database, before_ms: int) -> bool:
    """Delete the sums and the ids of the oldest day, if it ended before a time and its calls are archived."""

    def drop(transaction: Transaction) -> bool:
        oldest = transaction.fetch(_OLDEST_DAY)[0][0]
        if oldest is None:
            return False
        end = (cast(int, oldest) + 1) * DAY_MS
        if end > before_ms or transaction.fetch("SELECT 1 FROM calls WHERE at_ms < ? LIMIT 1", (end,)):
            return False
        for kind, width in product(_SUM_KINDS, USAGE_WIDTHS_MS):
            transaction.fetch(_DELETE_USAGE, (kind, width, end // width))
        for width in (FINE_MS, COARSE_MS):
            for table in ("summed_answers", "summed_times"):
                transaction.fetch(f"DELETE FROM {table} WHERE width = ? AND slot < ?", (width, end // width))
        transaction.fetch("DELETE FROM archived_usage WHERE hour < ?", (end // HOUR_MS,))
        transaction.fetch("DELETE FROM archived_ids WHERE day < ?", (end // DAY_MS,))
        _set(transaction, "kept_sums", end)
        return True

    return database.write(drop)


def archived(reader: Queryable) -> Archived:
    """Which calls are archived."""
    ((calls, kept, sums),) = reader.fetch(
        "SELECT (SELECT COALESCE(SUM(calls), 0) FROM archives), (SELECT value FROM meta WHERE name = 'kept'), "
        "(SELECT value FROM meta WHERE name = 'kept_sums')"
    )
    count = int(calls or 0)
    return Archived(calls=count, before_ms=cast(int, kept) if count else 0, no_sums_before_ms=cast(int, sums))


def _number(reader: Queryable, name: str) -> int:
    return cast(int, reader.fetch("SELECT value FROM meta WHERE name = ?", (name,))[0][0])


def _set(transaction: Transaction, name: str, value: int) -> None:
    transaction.fetch("UPDATE meta SET value = ? WHERE name = ?", (value, name))


def _digest(id: str) -> str:
    return blake2b(id.encode(), digest_size=_DIGITS // 2).hexdigest()
