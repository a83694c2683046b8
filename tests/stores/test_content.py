"""The store of kept content, in SQLite and in PostgreSQL."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import cast

import pytest

from penstock.errors import BookError, BookUnusableError
from penstock.gateway.content.kept_record import HistoryLimits, fair_share
from penstock.stores.content.open import open_file
from penstock.stores.content.sql_content import SqlContent
from tests.stores.contents import ContentPlace, record

ALL = HistoryLimits(("input", "output"), 100, 1_000_000)


@pytest.fixture
def store(content_place: ContentPlace) -> Iterator[SqlContent]:
    opened = content_place.open()
    yield opened
    opened.close()


def ids(store: SqlContent, id: str, owner: str = "key_a", limits: HistoryLimits = ALL) -> list[str]:
    return [kept.id for kept in store.history("answer", owner, id, limits).records]


def size_of(store: SqlContent) -> int:
    ((size,),) = store.database.fetch("SELECT COALESCE(SUM(bytes), 0) FROM owners WHERE kind = 'answer'")
    return int(cast(int, size))


def test_a_record_is_read_as_it_was_written(store: SqlContent) -> None:
    written = record("r1", input='["é \\u0000 \\ud800"]', output="[]")
    store.put([written])
    assert store.record("answer", "key_a", "r1") == written


def test_a_conversation_is_read_in_order_with_the_parts_that_are_asked_for(store: SqlContent) -> None:
    store.put([record("r1"), record("r2", "r1"), record("r3", "r2"), record("other")])
    found = store.history("answer", "key_a", "r3", ALL)
    assert [kept.id for kept in found.records] == ["r1", "r2", "r3"]
    assert found.records[1].parts == {"input": "in of r2", "output": "out of r2"}
    assert ids(store, "r2") == ["r1", "r2"]


def test_a_conversation_may_branch(store: SqlContent) -> None:
    store.put([record("r1"), record("r2", "r1"), record("r3", "r1")])
    assert ids(store, "r2") == ["r1", "r2"]
    assert ids(store, "r3") == ["r1", "r3"]


def test_other_owners_see_nothing(store: SqlContent) -> None:
    store.put([record("r1"), record("r2", "r1", owner="key_b")])
    assert store.record("answer", "key_b", "r1") is None
    assert ids(store, "r1", "key_b") == []
    assert not store.delete("answer", "key_b", "r1")
    assert not store.history("answer", "key_b", "r2", ALL).complete, "a record of another key is not part of it"
    assert store.record("answer", "key_a", "r1") is not None
    assert store.record("other", "key_a", "r1") is None


def test_a_record_that_is_put_twice_is_stored_and_counted_once(store: SqlContent) -> None:
    store.put([record("r1"), record("r1", input="changed")])
    before = size_of(store)
    store.put([record("r1", input="changed again")])
    assert size_of(store) == before > 0
    kept = store.record("answer", "key_a", "r1")
    assert kept is not None
    assert kept.parts["input"] == "in of r1"


def test_deletion_is_final_and_breaks_what_continues_it(store: SqlContent) -> None:
    store.put([record("r1"), record("r2", "r1"), record("r3", "r2")])
    assert store.delete("answer", "key_a", "r2")
    assert not store.delete("answer", "key_a", "r2")
    assert store.record("answer", "key_a", "r2") is None
    assert ids(store, "r1") == ["r1"]
    broken = store.history("answer", "key_a", "r3", ALL)
    assert (broken.records, broken.complete) == ((), False)
    assert store.database.fetch("SELECT COUNT(*) FROM parts WHERE record = ?", ("r2",)) == [(0,)]


def test_an_expired_thread_does_not_exist_and_is_deleted_in_batches(store: SqlContent) -> None:
    store.put([record(f"r{number}", hours=-1) for number in range(5)])
    store.put([record("stays")])
    assert store.record("answer", "key_a", "r1") is None
    assert ids(store, "r1") == []
    assert not store.delete("answer", "key_a", "r1")
    assert [store.prune("answer", 1_000_000, 2) for _ in range(4)] == [2, 2, 1, 0]
    assert store.database.fetch("SELECT id FROM records") == [("stays",)]
    assert store.database.fetch("SELECT id FROM threads") == [("stays",)]
    assert store.database.fetch("SELECT DISTINCT record FROM parts") == [("stays",)]


def test_a_thread_is_kept_as_long_as_its_last_record(store: SqlContent) -> None:
    store.put([record("r1", hours=-1)])
    store.put([record("r2", "r1", hours=1)])
    store.put([record("r3", "r2", hours=-1)])
    assert ids(store, "r3") == ["r1", "r2", "r3"]
    assert store.prune("answer", 1_000_000, 100) == 0


def test_beyond_the_total_size_the_oldest_threads_are_deleted_whole(store: SqlContent) -> None:
    store.put([record("r1", hours=1, input="x" * 5_000), record("s1", hours=2, input="x" * 5_000)])
    store.put([record("r2", "r1", hours=1.5, input="x" * 5_000), record("t1", hours=3, input="x" * 5_000)])
    assert store.prune("answer", 23_000, 100) == 0
    assert store.prune("answer", 21_000, 100) == 2
    assert sorted(store.database.fetch("SELECT id FROM records")) == [("s1",), ("t1",)]
    assert store.prune("answer", 0, 100) == 2
    assert size_of(store) == 0


def test_an_owner_that_adds_much_loses_its_own_oldest_threads(store: SqlContent) -> None:
    store.put([record("b1", owner="key_b", hours=1, input="x" * 5_000)])
    store.put([record(f"a{number}", hours=2 + number, input="x" * 5_000) for number in range(5)])
    store.put([record("c1", owner="key_c", hours=0.5, input="x" * 100)])
    assert store.prune("answer", 23_000, 100) == 2
    assert sorted(store.database.fetch("SELECT id FROM records")) == [("a2",), ("a3",), ("a4",), ("b1",), ("c1",)]
    assert store.prune("answer", 23_000, 100) == 0
    store.put([record("b2", owner="key_b", hours=9, input="x" * 5_000)])
    assert store.prune("answer", 23_000, 100) == 1
    assert sorted(store.database.fetch("SELECT id FROM records")) == [("a3",), ("a4",), ("b1",), ("b2",), ("c1",)]
    assert store.prune("answer", 0, 100) == 5
    assert store.database.fetch("SELECT * FROM owners") == []


SHARES: dict[str, tuple[list[int], int, int]] = {
    "none": ([], 10, 0),
    "within the total": ([3, 7], 10, 7),
    "one owner": ([11], 10, 10),
    "two beyond it": ([9, 8], 10, 5),
    "what some do not use": ([1, 2, 90, 80], 23, 10),
    "an odd rest": ([4, 4, 4], 11, 3),
    "as many as fit": ([5, 5], 10, 5),
    "nothing allowed": ([1, 2], 0, 0),
}


@pytest.mark.parametrize(("sizes", "total", "share"), SHARES.values(), ids=SHARES)
def test_the_share_of_owners_is_as_large_as_possible(sizes: list[int], total: int, share: int) -> None:
    assert fair_share(sizes, total) == share


def test_what_is_read_is_reserved_before(store: SqlContent) -> None:
    store.put([record("r1", input="é" * 10, output="[]"), record("r2", "r1", input="abc", output="[]")])
    reserved: list[int] = []
    limits = HistoryLimits(("input", "output"), 100, 1_000, reserved.append)
    assert ids(store, "r2", limits=limits) == ["r1", "r2"]
    assert reserved == [27]

    def refuse(_: int) -> None:
        raise MemoryError

    with pytest.raises(MemoryError):
        store.history("answer", "key_a", "r2", HistoryLimits(("input",), 100, 1_000, refuse))
    assert ids(store, "r2") == ["r1", "r2"], "the store can be used after that"


def test_the_total_size_is_per_kind(store: SqlContent) -> None:
    store.put([record("r1", input="x" * 5_000)])
    assert store.prune("sample", 0, 100) == 0
    assert ids(store, "r1") == ["r1"]


def test_a_thread_that_is_too_long_is_not_read(store: SqlContent) -> None:
    store.put([record(f"r{number}", f"r{number - 1}" if number else "") for number in range(10)])
    assert len(ids(store, "r9", limits=HistoryLimits(("input",), 10, 1_000))) == 10
    assert not store.history("answer", "key_a", "r9", HistoryLimits(("input",), 9, 1_000)).fits
    assert not store.history("answer", "key_a", "r9", HistoryLimits(("input",), 10, 10)).fits
    assert store.history("answer", "key_a", "r8", HistoryLimits(("input",), 9, 1_000)).fits


def test_all_users_share_a_secret(content_place: ContentPlace, store: SqlContent) -> None:
    with closing(content_place.open()) as other:
        assert len(store.secret("ids")) == 32
        assert other.secret("ids") == store.secret("ids")
        assert other.secret("else") != store.secret("ids")


def test_what_one_connection_has_put_another_reads(content_place: ContentPlace, store: SqlContent) -> None:
    with closing(content_place.open()) as other:
        store.put([record("r1")])
        other.put([record("r2", "r1")])
        assert ids(store, "r2") == ["r1", "r2"]


def test_the_file_is_private_and_deleted_content_is_not_in_it(tmp_path: Path) -> None:
    path = tmp_path / "content.db"
    with closing(open_file(path)) as store:
        store.put([record("r1", input="the secret plan " * 1_000), record("r2")])
        assert path.stat().st_mode & 0o077 == 0
        store.delete("answer", "key_a", "r1")
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    assert b"secret plan" not in path.read_bytes()


def test_a_file_of_another_program_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "content.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE theirs (id INTEGER)")
    with pytest.raises(BookUnusableError, match="holds something else"):
        open_file(path)


def test_the_ledger_is_not_a_store_of_content(tmp_path: Path) -> None:
    path = tmp_path / "content.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE meta (name TEXT, value INTEGER)")
        connection.execute("CREATE TABLE calls (id INTEGER)")
    with pytest.raises(BookError):
        open_file(path)
