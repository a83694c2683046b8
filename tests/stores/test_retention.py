"""Old calls are moved to archives: no sum and no spending changes, and no call is lost or doubled."""

import asyncio
import gzip
import multiprocessing
import os
import random
import signal
import sys
import time
from collections.abc import Sequence
from itertools import combinations, count, product
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from msgspec.structs import replace

from penstock.errors import BookError
from penstock.gateway.billing.queries import Filter, Grouping
from penstock.gateway.keys.quota import Spender
from penstock.gateway.record.entry import Entry
from penstock.stores.book import archive, retention
from penstock.stores.book.archive import ArchiveFolder
from penstock.stores.book.retention import Pruner
from penstock.stores.book.sql_book import Book
from penstock.stores.book.writer import BookWriter, Retention
from tests.stores.entries import DAY_MS, FULL, entry
from tests.stores.many_calls import calls
from tests.stores.places import Place, SqlitePlace

HOUR_MS = 3_600_000
GROUPINGS: tuple[Grouping, ...] = ("key", "model", "provider", "day", "tag", "outcome")
ALL = [list(by) for size in (0, 1, 2, len(GROUPINGS)) for by in combinations(GROUPINGS, size)]
# What sums of archived calls can be filtered by.
FILTERS = (
    Filter(),
    Filter(since_ms=5 * HOUR_MS, until_ms=30 * HOUR_MS),
    Filter(keys=("key_000000000001", "key_000000000002"), outcomes=("completed",)),
    Filter(models=("fast", "smart"), tags={"team": "search"}),
    Filter(providers=("openai", "openrouter"), since_ms=DAY_MS),
)
OTHER_FILTERS = (
    Filter(targets=("groq/llama-3.3-70b-versatile",), outcomes=("completed",)),
    Filter(attempts=("failed",)),
    Filter(targets=("groq/llama-3.3-70b-versatile",), attempts=("failed",)),
    Filter(repair="no-done"),
    Filter(loss="media-dropped"),
    Filter(users=("somebody",)),
)
WHEN = 2 * DAY_MS


def sums(book: Book) -> list[object]:
    """All sums and all spending that anything asks for."""
    reported: list[object] = [book.usage(wanted, by, tag="team") for wanted, by in product(FILTERS, ALL)]
    reported += [book.health(0, 3 * DAY_MS, width) for width in (HOUR_MS, DAY_MS)]
    keys = [row.group[0] for row in book.usage(Filter(), ["key"])]
    return reported + [book.spent(key, day * DAY_MS).total for key, day in product(keys, (0, 1, 2))]


def exported(book: Book, folder: Path, wanted: Filter = Filter()) -> dict[str, Entry]:  # noqa: B008 - it is frozen
    found: list[Entry] = []
    assert book.export(wanted, folder, found.append) == []
    by_id = {entry.id: entry for entry in found}
    assert len(by_id) == len(found), "a call is exported twice"
    return by_id


def prune(book: Book, folder: Path, before_ms: int = WHEN) -> int:
    return sum(iter(lambda: book.prune(folder, before_ms) or 0, 0))


@pytest.mark.slow
def test_no_sum_changes_while_calls_are_archived(book: Book, tmp_path: Path) -> None:
    made = calls(260)
    book.append(made)
    expected = sums(book)
    assert book.prunable(WHEN) == len([call for call in made if call.at_ms + call.duration_ms < WHEN])
    assert [book.prune(tmp_path, WHEN + 5, most=30) for _ in range(2)] == [30, 30]
    assert sums(book) == expected
    archived = 60 + prune(book, tmp_path)
    assert (sums(book), book.prunable(WHEN)) == (expected, 0)
    state = book.archived()
    assert (state.calls, state.before_ms, state.no_sums_before_ms) == (archived, WHEN, 0)
    listed = {found.id for _, found in book.entries(Filter(), limit=500)}
    assert listed == {call.id for call in made if call.at_ms + call.duration_ms >= WHEN}
    assert book.database.fetch("SELECT 1 FROM call_traits WHERE call NOT IN (SELECT place FROM calls)") == []
    assert prune(book, tmp_path) == 0


def test_a_range_that_starts_where_calls_are_archived_is_extended_to_whole_hours(book: Book, tmp_path: Path) -> None:
    book.append([entry("a", 10), entry("b", HOUR_MS + 10), entry("c", 3 * DAY_MS)])
    prune(book, tmp_path)
    for by in (["key"], ["key", "model"]):
        assert book.usage(Filter(since_ms=HOUR_MS + 20), by)[0].calls == 2  # type: ignore[arg-type]
        assert book.usage(Filter(since_ms=HOUR_MS, until_ms=HOUR_MS + 1), by)[0].calls == 1  # type: ignore[arg-type]
    assert book.health(20, HOUR_MS, 60_000)[0].attempts == 1


@pytest.mark.slow
def test_an_export_has_every_call_once_wherever_it_is(book: Book, tmp_path: Path) -> None:
    made = [*calls(260), replace(FULL, at_ms=5)]
    book.append(made)
    expected = [exported(book, tmp_path, wanted) for wanted in (*FILTERS, *OTHER_FILTERS)]
    assert expected[0] == {call.id: call for call in made}
    assert min(map(len, expected)) > 0
    for _ in range(4):
        book.prune(tmp_path, WHEN, most=50)
        assert [exported(book, tmp_path, wanted) for wanted in (*FILTERS, *OTHER_FILTERS)] == expected
    files = sorted(tmp_path.glob("*.jsonl.gz"))
    assert [file.name[:10] for file in files] == ["1970-01-01", "1970-01-02"]
    assert {file.stat().st_mode & 0o777 for file in files} == {0o600}
    lines = [line for file in files for line in gzip.decompress(file.read_bytes()).splitlines()]
    assert len(lines) == book.archived().calls


def test_what_is_archived_is_not_booked_again_by_a_late_journal(book: Book, tmp_path: Path) -> None:
    book.append([entry("a", 10, key="k"), entry("b", DAY_MS + 10, key="k"), entry("c", 3 * DAY_MS, key="k")])
    prune(book, tmp_path)
    late = entry("late", 20, key="k")
    assert book.append([entry("a", 10, key="k"), late, entry("b", DAY_MS + 10, key="k"), entry("c", 3 * DAY_MS)]) == [
        late
    ]
    assert (book.spent("k", 0).total, book.spent("k", DAY_MS).total) == (4, 2)
    assert book.usage(Filter(), ["key"])[0].calls == book.usage(Filter(keys=("k",)), [])[0].calls == 4
    assert prune(book, tmp_path) == 1
    assert (book.append([late]), book.spent("k", 0).total) == ([], 4)
    assert exported(book, tmp_path).keys() == {"a", "b", "c", "late"}


def test_what_an_end_user_has_spent_outlasts_its_calls(book: Book, tmp_path: Path) -> None:
    who = (Spender(key="k", user="eve"), Spender(team="acme", user="eve"), Spender(key="k", user="bob"))
    calls = [entry("a", 10, key="k", user="eve", team="acme/x"), entry("b", 3 * DAY_MS, key="k", user="eve")]
    book.append(calls)
    before = [book.spent(each, 0).total for each in who]
    prune(book, tmp_path)
    assert book.archived().calls == 1
    assert [book.spent(each, 0).total for each in who] == before == [2, 1, 0]


def test_sums_can_be_deleted_too_but_not_what_was_spent(book: Book, tmp_path: Path) -> None:
    book.append([entry("a", 10, key="k"), entry("b", DAY_MS + 10, key="k"), entry("c", 3 * DAY_MS, key="k")])
    assert not book.drop_sums(WHEN)  # its calls are not archived
    prune(book, tmp_path)
    assert [book.drop_sums(DAY_MS) for _ in range(2)] == [True, False]
    assert book.archived().no_sums_before_ms == DAY_MS
    for by in (["key"], ["key", "model"]):
        assert book.usage(Filter(), by)[0].calls == 2  # type: ignore[arg-type]
    assert book.health(0, DAY_MS, HOUR_MS) == []
    assert book.spent("k", 0).total == 3
    # It cannot be known any more whether these were booked before.
    assert book.append([entry("a", 10, key="k"), entry("new", 20, key="k")]) == []
    assert len(exported(book, tmp_path)) == 3


def test_one_process_prunes_at_a_time(place: Place, book: Book, tmp_path: Path) -> None:
    book.append([entry(f"call {number}", number) for number in range(250)])
    other = place.open()
    assert book.prune(tmp_path / "a", WHEN) == 100
    assert other.prune(tmp_path / "a", WHEN) is None
    assert other.prune(tmp_path / "b", WHEN) is None
    book.close()  # which lets another one prune
    assert (prune(other, tmp_path / "a"), other.prune(tmp_path / "a", WHEN)) == (150, 0)
    other.close()


def test_a_process_that_slept_deletes_nothing_after_another_machine_took_over(
    place: Place, book: Book, tmp_path: Path
) -> None:
    made = [entry(f"call {number}", number) for number in range(250)]
    book.append(made)
    other = place.open()
    assert book.prune(tmp_path / "a", WHEN) == 100
    awake = Pruner(other.database, lambda: time.time_ns() // 1_000_000 + 61_000)
    assert awake.step(tmp_path / "b", WHEN, 100) == 100
    assert book.prune(tmp_path / "a", WHEN) is None
    assert [awake.step(tmp_path / "b", WHEN, 100) for _ in range(2)] == [50, 0]
    for file in (tmp_path / "a").glob("*.gz"):
        file.rename(tmp_path / "b" / file.name)
    assert exported(book, tmp_path / "b") == {call.id: call for call in made}
    awake.close()
    other.close()


def test_an_archive_that_was_moved_away_is_named_and_not_continued(book: Book, tmp_path: Path) -> None:
    book.append([entry("a", 10)])
    prune(book, tmp_path)
    (file,) = tmp_path.glob("*.gz")
    file.rename(tmp_path / "elsewhere")
    book.append([entry("late", 20)])
    prune(book, tmp_path)
    found: list[Entry] = []
    assert book.export(Filter(), tmp_path, found.append) == [file.name]
    assert [entry.id for entry in found] == ["late"]
    (tmp_path / "elsewhere").rename(file)
    assert exported(book, tmp_path).keys() == {"a", "late"}


def test_a_damaged_archive_is_an_error(book: Book, tmp_path: Path) -> None:
    book.append([entry("a", 10)])
    prune(book, tmp_path)
    (file,) = tmp_path.glob("*.gz")
    file.write_bytes(file.read_bytes()[:30])
    with pytest.raises(BookError, match="cannot be read"):
        book.export(Filter(), tmp_path, lambda _: None)


@pytest.mark.slow
def test_the_writer_prunes_and_drops_sums_by_itself(tmp_path: Path) -> None:
    place = SqlitePlace(tmp_path)
    now = time.time_ns() // 1_000_000
    made = [entry(f"call {number}", now - (number % 6) * DAY_MS, key="k") for number in range(300)]

    async def run() -> None:
        retention = Retention(folder=tmp_path / "archive", keep_days=2, keep_sums_days=4)
        writer = BookWriter(place.open, lambda _booked: None, lambda _keys: None, print, retention=retention)
        writer.start(made, 10)
        book = place.open(readonly=True)
        deadline = time.monotonic() + 20
        while not book.archived().no_sums_before_ms:
            assert time.monotonic() < deadline, "it does not prune"
            await asyncio.sleep(0.02)
        writer.close(10)
        left = [found.at_ms for _, found in book.entries(Filter(), limit=500)]
        assert 100 <= len(left) <= 200
        assert min(left) >= book.archived().before_ms
        assert 200 <= book.usage(Filter(), [])[0].calls < 300
        assert book.spent("k", 0).total == 300
        assert exported(book, tmp_path / "archive") == {call.id: call for call in made}
        book.close()

    asyncio.run(run())


def _prune_and_die(place: Place, folder: Path, line: int, now_ms: int) -> None:
    """Prune, and kill this process when it has run so many lines of the code that prunes."""
    files, left = {archive.__file__, retention.__file__}, count(line, -1)

    def trace(frame: FrameType, event: str, _argument: object) -> Any:
        if frame.f_code.co_filename not in files:
            return None
        if event == "line" and next(left) <= 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return trace

    book = place.open()
    pruner = Pruner(book.database, lambda: now_ms)
    sys.settrace(trace)
    while pruner.step(folder, WHEN, 20):
        pass
    sys.settrace(None)
    pruner.close()
    book.close()


@pytest.mark.slow
def test_a_kill_at_any_line_loses_and_doubles_nothing(place: Place, tmp_path: Path) -> None:
    made = calls(200)
    book = place.open()
    book.append(made)
    expected = [book.usage(wanted, ["key", "model"]) for wanted in FILTERS]
    book.close()
    chance = random.Random(3)
    killed, now_ms = 0, 10**12
    while True:
        now_ms += 100_000  # the reservation of the process that died is over
        arguments = (place, tmp_path, chance.randrange(1, 1_000), now_ms)
        process = multiprocessing.get_context("fork").Process(target=_prune_and_die, args=arguments)
        process.start()
        process.join(60)
        assert process.exitcode in (0, -signal.SIGKILL)
        book = place.open(readonly=True)
        assert exported(book, tmp_path) == {call.id: call for call in made}
        assert [book.usage(wanted, ["key", "model"]) for wanted in FILTERS] == expected
        book.close()
        if process.exitcode == 0:
            break
        killed += 1
    assert killed > 5
    book = place.open()
    assert (book.prunable(WHEN), book.archived().calls) == (0, sum(_lines(tmp_path)))
    book.close()


def _lines(folder: Path) -> Sequence[int]:
    return [len(gzip.decompress(file.read_bytes()).splitlines()) for file in folder.glob("*.gz")]


def _prune_all(place: Place, folder: Path) -> None:
    book = place.open()
    while book.prune(folder, WHEN) != 0:
        pass
    book.close()


@pytest.mark.slow
def test_several_processes_may_prune_while_others_book(place: Place, tmp_path: Path) -> None:
    made = [entry(f"call {number}", number * 1000, key="k") for number in range(1_500)]
    book = place.open()
    book.append(made[:1_000])
    context = multiprocessing.get_context("fork")
    processes = [context.Process(target=_prune_all, args=(place, tmp_path / str(number % 2))) for number in range(3)]
    for process in processes:
        process.start()
    for number in range(1_000, 1_500, 50):
        book.append(made[number : number + 50])
        assert book.usage(Filter(keys=("k",)), [])[0].calls == number + 50
    for process in processes:
        process.join(60)
    assert [process.exitcode for process in processes] == [0] * 3
    prune(book, tmp_path / "0")
    for file in (tmp_path / "1").glob("*.gz"):
        file.rename(tmp_path / "0" / file.name)
    assert exported(book, tmp_path / "0") == {call.id: call for call in made}
    assert book.spent("k", 0).total == 1_500
    book.close()


def test_a_folder_that_cannot_be_used_is_an_error_and_deletes_nothing(book: Book, tmp_path: Path) -> None:
    book.append([entry("a", 10)])
    (tmp_path / "file").write_text("")
    with pytest.raises(BookError, match="cannot be used for archives"):
        book.prune(tmp_path / "file", WHEN)
    assert book.prunable(WHEN) == 1
    assert ArchiveFolder(tmp_path).size("nothing") is None
