"""The thread that writes kept content."""

import asyncio
import sqlite3
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path

import pytest

from penstock.errors import BookError, BookUnusableError
from penstock.gateway.content.kept_record import KeptRecord
from penstock.stores.content.open import open_file
from penstock.stores.content.sql_content import SqlContent
from penstock.stores.content.writer import ContentStoreWriter
from tests.stores.contents import record


class Disk:
    """Opens the store, unless the test says that it fails; counts transactions."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.failing = ""
        self.batches: list[int] = []
        self.gate = threading.Event()
        self.gate.set()
        self.entered = threading.Event()

    def open(self) -> SqlContent:
        if self.failing:
            raise BookError(self.failing)
        return _Watched(open_file(self.path), self)


class _Watched(SqlContent):
    def __init__(self, store: SqlContent, disk: Disk) -> None:
        super().__init__(store.database, lambda: store.moved)
        self._disk = disk

    def put(self, records: Sequence[KeptRecord]) -> None:
        self._disk.entered.set()
        self._disk.gate.wait()
        if self._disk.failing:
            raise BookError(self._disk.failing)
        self._disk.batches.append(len(records))
        super().put(records)


class Writing:
    """A writer, with what it has logged and answered."""

    def __init__(self, disk: Disk) -> None:
        self.log: list[str] = []
        self.secrets: list[bytes] = []
        self.writer = ContentStoreWriter(
            disk.open, lambda store: self.secrets.append(store.secret("ids")), self.log.append
        )
        self.writer.limits = {"answer": 1_000_000}

    def on_open(self, store: SqlContent) -> None:
        self.secrets.append(store.secret("ids"))

    def put(self, kept: KeptRecord) -> "asyncio.Future[str]":
        future: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.writer.put(kept, future.set_result)
        return future


def run(disk: Disk, test: Callable[[Writing], object]) -> Writing:
    async def main() -> Writing:
        writing = Writing(disk)
        writing.writer.start(5.0)
        try:
            await asyncio.wait_for(test(writing), 20)  # type: ignore[arg-type]
        finally:
            disk.gate.set()
            writing.writer.close(5.0)
        return writing

    return asyncio.run(main())


async def until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110 - another thread changes it
        await asyncio.sleep(0.02)


@pytest.fixture
def disk(tmp_path: Path) -> Disk:
    return Disk(tmp_path / "content.db")


def stored(disk: Disk) -> list[str]:
    with closing(sqlite3.connect(disk.path)) as connection:
        return [id for (id,) in connection.execute("SELECT id FROM records ORDER BY id")]


def test_a_record_is_on_the_disk_when_the_writer_says_so(disk: Disk) -> None:
    async def test(writing: Writing) -> None:
        assert await writing.put(record("r1")) == ""
        assert stored(disk) == ["r1"]

    assert run(disk, test).secrets


def test_records_that_wait_are_written_together(disk: Disk) -> None:
    async def test(writing: Writing) -> None:
        disk.gate.clear()
        first = writing.put(record("r0"))
        await asyncio.to_thread(disk.entered.wait, 5.0)
        others = [writing.put(record(f"r{number}")) for number in range(1, 50)]
        disk.gate.set()
        assert await asyncio.gather(first, *others) == [""] * 50

    run(disk, test)
    assert disk.batches == [1, 49]


def test_no_more_than_so_many_bytes_wait(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.stores.content.writer._MAX_QUEUED", 30)

    async def test(writing: Writing) -> None:
        disk.gate.clear()
        first = writing.put(record("r0", input="x" * 20))
        await asyncio.to_thread(disk.entered.wait, 5.0)
        fits = writing.put(record("r1", input="x" * 10))
        assert "too slow" in await writing.put(record("r2", input="x"))
        disk.gate.set()
        assert list(await asyncio.gather(first, fits)) == ["", ""]
        assert await writing.put(record("r3", input="x" * 30)) == "", "there is room again"

    run(disk, test)
    assert stored(disk) == ["r0", "r1", "r3"]


def test_a_defective_record_does_not_harm_the_others(disk: Disk) -> None:
    async def test(writing: Writing) -> None:
        disk.gate.clear()
        first = writing.put(record("r0"))
        await asyncio.to_thread(disk.entered.wait, 5.0)
        bad, good = writing.put(record("bad", input="\ud800")), writing.put(record("good"))
        disk.gate.set()
        results = list(await asyncio.gather(first, bad, good))
        assert results == ["", "it cannot be stored (UnicodeEncodeError)", ""]

    run(disk, test)
    assert stored(disk) == ["good", "r0"]


def test_while_the_database_fails_callers_learn_it_at_once(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.stores.content.writer._RETRY_S", 0.1)

    async def test(writing: Writing) -> None:
        disk.failing = "the disk is full"
        assert await writing.put(record("r1")) == "the disk is full"
        assert await writing.put(record("r2")) == "the disk is full"
        assert writing.writer.trouble == "the disk is full"
        disk.failing = ""
        await until(lambda: not writing.writer.trouble)  # without any job
        assert await writing.put(record("r3")) == ""

    log = run(disk, test).log
    assert log == [
        "kept content cannot be written: the disk is full",
        "kept content is written again",
    ]
    assert stored(disk) == ["r3"]


def test_changes_return_their_result_or_error(disk: Disk) -> None:
    async def test(writing: Writing) -> None:
        assert await writing.put(record("r1")) == ""
        results: asyncio.Queue[object] = asyncio.Queue()
        for _ in range(2):
            writing.writer.change(lambda store: store.delete("answer", "key_a", "r1"), results.put_nowait)
        assert [await results.get(), await results.get()] == [True, False]
        disk.failing = "gone"
        writing.writer.change(lambda store: store.put([record("r9")]), results.put_nowait)
        assert str(await results.get()) == "gone"

    run(disk, test)


def test_expired_content_is_deleted_without_any_job(disk: Disk) -> None:
    with closing(open_file(disk.path)) as store:
        store.put([record(f"r{number}", hours=-1) for number in range(250)])
        store.put([record("stays")])

    async def test(_: Writing) -> None:
        await until(lambda: stored(disk) == ["stays"])

    run(disk, test)


def test_content_that_expires_later_is_deleted_then(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.stores.content.writer._PRUNE_S", 0.05)

    async def test(writing: Writing) -> None:
        assert await writing.put(record("stays")) == ""
        assert await writing.put(record("goes", hours=0.1 / 3_600)) == ""
        assert await writing.put(record("large", input="x" * 2_000_000, hours=0.5)) == "", "beyond the total size"
        await until(lambda: stored(disk) == ["stays"])

    run(disk, test)


def test_a_file_that_was_moved_away_is_made_again(disk: Disk) -> None:
    async def test(writing: Writing) -> None:
        assert await writing.put(record("r1")) == ""
        for file in disk.path.parent.glob("content.db*"):
            file.rename(file.with_name(f"old-{file.name}"))
        assert await writing.put(record("r2")) == ""
        assert len(set(writing.secrets)) == 2, "ids of the old file are not valid in the new one"

    run(disk, test)
    assert stored(disk) == ["r2"]


def test_a_file_of_another_program_ends_the_start(disk: Disk) -> None:
    with closing(sqlite3.connect(disk.path)) as connection:
        connection.execute("CREATE TABLE theirs (id INTEGER)")

    async def main() -> None:
        writing = Writing(disk)
        with pytest.raises(BookUnusableError):
            writing.writer.start(5.0)
        writing.writer.close(5.0)

    asyncio.run(main())


def test_what_is_queued_is_written_before_the_end(disk: Disk) -> None:
    async def test(writing: Writing) -> None:
        disk.gate.clear()
        futures = [writing.put(record(f"r{number}")) for number in range(3)]
        threading.Timer(0.1, disk.gate.set).start()
        await asyncio.to_thread(writing.writer.close, 5.0)
        assert await asyncio.gather(*futures) == [""] * 3

    start = time.monotonic()
    run(disk, test)
    assert time.monotonic() - start < 10
    assert stored(disk) == ["r0", "r1", "r2"]


def test_an_error_that_stays_does_not_keep_a_processor_busy(tmp_path: Path) -> None:
    class Broken(Disk):
        opened = 0

        def open(self) -> SqlContent:
            self.opened += 1
            raise TypeError("a mistake of ours")

    disk = Broken(tmp_path / "content.db")

    async def run() -> None:
        writing = Writing(disk)
        writing.writer.start(5.0)
        await asyncio.sleep(0.2)
        writing.writer.close(5.0)

    asyncio.run(run())
    assert disk.opened < 10
