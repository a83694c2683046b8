"""RecentRecords: kept content in the memory of one process, bounded in bytes and in age.

As in the database, a record belongs to one owner, and no lookup crosses owners. But each record has its whole
conversation and continues no other, so losing one affects no other. If all records together exceed the limit, each
owner that uses more than its share (max-min fairness) loses some: first the least recently used inputs, which are
nearly all of the bytes, because each request of a conversation repeats the one before; then the least recently used
records. Nothing of it is written to a disk.
"""

from collections.abc import Callable, Iterable, Sequence

from msgspec import Struct

from penstock.gateway.content.kept_record import fair_share

# What a record and each of its names take besides the parts.
_OVERHEAD = 1_000
_NAME_OVERHEAD = 250
# If there is too much, a sixteenth of the limit is freed at once: all owners are compared once for many records.
_FREED = 16


class RecentRecord(Struct, eq=False):
    """A record. `names` are the names by which its owner finds it, its id among them."""

    id: str
    names: tuple[str, ...]
    input: bytes | None
    """None if only the memory for it was needed."""
    output: bytes | None
    answer: bytes
    used_s: float = 0.0

    @property
    def input_size(self) -> int:
        """The bytes of the input."""
        return len(self.input or b"")

    @property
    def size(self) -> int:
        """The bytes that it takes besides its input."""
        return len(self.output or b"") + len(self.answer) + _OVERHEAD + _NAME_OVERHEAD * len(self.names)


class _Owner:
    """The records of one owner. Both tables have the least recently used first."""

    __slots__ = ("by_name", "records", "size", "with_input")

    def __init__(self) -> None:
        self.records: dict[str, RecentRecord] = {}
        self.with_input: dict[str, RecentRecord] = {}
        self.by_name: dict[str, RecentRecord] = {}
        self.size = 0

    def add(self, record: RecentRecord) -> None:
        self.remove(record.id)
        self.records[record.id] = record
        self.by_name |= dict.fromkeys(record.names, record)
        self.size += record.size
        if record.input is not None:
            self.with_input[record.id] = record
            self.size += record.input_size

    def touch(self, record: RecentRecord, now_s: float) -> None:
        record.used_s = now_s
        self.records[record.id] = self.records.pop(record.id)
        if record.input is not None:
            self.with_input[record.id] = self.with_input.pop(record.id)

    def remove(self, id: str) -> bool:
        record = self.records.pop(id, None)
        if record is None:
            return False
        self.with_input.pop(id, None)
        for name in record.names:
            if self.by_name.get(name) is record:
                del self.by_name[name]
        self.size -= record.size + record.input_size
        return True

    def shrink(self, limit: int) -> None:
        while self.size > limit and self.with_input:
            record = self.with_input.pop(next(iter(self.with_input)))
            self.size -= record.input_size
            record.input = None
        while self.size > limit and self.records:
            self.remove(next(iter(self.records)))

    def expire(self, before_s: float) -> None:
        while self.records and (oldest := next(iter(self.records.values()))).used_s <= before_s:
            self.remove(oldest.id)


class RecentRecords:
    """The records of all owners. `clock` returns seconds."""

    def __init__(self, limit: int, clock: Callable[[], float]) -> None:
        self._limit = limit
        self._clock = clock
        self._owners: dict[str, _Owner] = {}
        self._size = 0

    @property
    def size(self) -> int:
        """The bytes of all records."""
        return self._size

    def put(self, owner: str, record: RecentRecord) -> None:
        """Add a record. The limit holds afterwards."""
        record.used_s = self._clock()
        self._change(owner, lambda records: records.add(record))
        if self._size > self._limit:
            sizes = [records.size for records in self._owners.values()]
            share = fair_share(sizes, self._limit - self._limit // _FREED)
            for name in [name for name, records in self._owners.items() if records.size > share]:
                self._change(name, lambda records: records.shrink(share))

    def find(self, owner: str, names: Iterable[str]) -> Sequence[RecentRecord]:
        """The records of this owner with these names, each once. They are used now, and so kept longer."""
        records = self._owners.get(owner)
        if records is None:
            return ()
        found = {record.id: record for name in names if (record := records.by_name.get(name)) is not None}
        for record in found.values():
            records.touch(record, self._clock())
        return tuple(found.values())

    def delete(self, owner: str, id: str) -> bool:
        """Delete a record of this owner; returns whether it existed."""
        existed = owner in self._owners and id in self._owners[owner].records
        if existed:
            self._change(owner, lambda records: records.remove(id))
        return existed

    def expire(self, age_s: float) -> None:
        """Delete the records that have not been used for so long."""
        before_s = self._clock() - age_s
        for owner in list(self._owners):
            self._change(owner, lambda records: records.expire(before_s))

    def _change(self, owner: str, change: Callable[[_Owner], object]) -> None:
        records = self._owners.setdefault(owner, _Owner())
        before = records.size
        change(records)
        self._size += records.size - before
        if not records.records:
            del self._owners[owner]
