"""A book of an earlier release is migrated, and one of another version is left unchanged.

There is one schema yet. So a second migration, made up for these tests, shows that a later release can add one.
"""

import multiprocessing
import os
import signal
from collections.abc import Sequence
from multiprocessing.synchronize import Barrier

import pytest

from penstock.errors import BookError, BookUnusableError
from penstock.gateway.billing.queries import Filter
from penstock.stores.book.database import SqlDialect
from penstock.stores.book.schema import FIRST_SCHEMA, MIGRATIONS, newest_schema
from tests.stores.entries import FULL, KEY, PLAIN_KEY, entry
from tests.stores.places import Place, SqlitePlace


def _another(_words: SqlDialect) -> Sequence[str]:
    return ("ALTER TABLE calls ADD COLUMN added BIGINT NOT NULL DEFAULT 7", "CREATE TABLE later (id BIGINT)")


def _broken(_words: SqlDialect) -> Sequence[str]:
    return ("CREATE TABLE half (id BIGINT)", "CREATE TABLE half (id BIGINT)")


LATER = (*MIGRATIONS, _another)


def test_a_migration_keeps_what_is_there(place: Place) -> None:
    book = place.open()
    book.append([FULL])
    book.change_keys(lambda *_: [KEY])
    book.close()
    book = place.open(migrations=LATER)
    assert book.database.fetch("SELECT added FROM calls") == [(7,)]
    assert book.entry("call_1") == FULL
    assert book.keys() == [KEY]
    book.append([entry("b")])
    while book.sum_up(1):
        pass
    assert [(row.group, row.cost) for row in book.usage(Filter(), ["key"])] == [
        ((found.key,), found.priced) for found in sorted((FULL, entry("b")), key=lambda found: found.key)
    ]
    book.close()
    place.open(migrations=LATER).close()


def test_an_older_process_that_still_runs_can_book(place: Place) -> None:
    older = place.open()
    newer = place.open(migrations=LATER)
    older.append([FULL])
    older.change_keys(lambda *_: [KEY, PLAIN_KEY])
    assert newer.entry("call_1") == older.entry("call_1") == FULL
    assert newer.keys() == older.keys()
    older.close()
    newer.close()


def test_one_that_fails_changes_nothing(place: Place) -> None:
    place.open().close()
    with pytest.raises(BookError, match="half"):
        place.open(migrations=(*MIGRATIONS, _broken))
    book = place.open(migrations=LATER)
    assert book.database.fetch("SELECT value FROM meta WHERE name = 'schema'") == [(newest_schema(LATER),)]
    place.execute("CREATE TABLE half (id BIGINT)")
    book.close()


def _killed(_words: SqlDialect) -> Sequence[str]:
    class Statements(list[str]):
        def __iter__(self):  # type: ignore[no-untyped-def]
            yield "CREATE TABLE half (id BIGINT)"
            os.kill(os.getpid(), signal.SIGKILL)

    return Statements()


def _open(place: Place, barrier: Barrier | None = None, *, killed: bool = False) -> None:
    if barrier:
        barrier.wait(20)
    place.open(migrations=(*MIGRATIONS, _killed) if killed else LATER).close()


@pytest.mark.slow
def test_one_that_is_killed_in_the_middle_is_done_by_the_next(place: Place) -> None:
    book = place.open()
    book.append([FULL])
    book.close()
    process = multiprocessing.get_context("fork").Process(target=_open, args=(place,), kwargs={"killed": True})
    process.start()
    process.join(20)
    assert process.exitcode == -signal.SIGKILL
    book = place.open(migrations=LATER)
    assert book.entry("call_1") == FULL
    place.execute("CREATE TABLE half (id BIGINT)")
    book.close()


@pytest.mark.slow
def test_several_processes_may_start_at_once(place: Place) -> None:
    context = multiprocessing.get_context("fork")
    barrier = context.Barrier(6)
    processes = [context.Process(target=_open, args=(place, barrier)) for _ in range(6)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(30)
    assert [process.exitcode for process in processes] == [0] * 6
    book = place.open(migrations=LATER)
    assert book.entries(Filter(), limit=1) == []
    book.close()


@pytest.mark.parametrize("readonly", [False, True])
def test_a_book_of_a_newer_version_is_not_opened(place: Place, readonly: bool) -> None:
    place.open(migrations=LATER).close()
    known = newest_schema()
    message = rf"newer version of Penstock \(its schema is {known + 1}, this one knows {known}\): .* restore a backup"
    with pytest.raises(BookUnusableError, match=message):
        place.open(readonly=readonly)


@pytest.mark.parametrize("readonly", [False, True])
@pytest.mark.parametrize("schema", [1, FIRST_SCHEMA - 1])
def test_a_book_from_before_the_first_release_is_not_opened(place: Place, schema: int, readonly: bool) -> None:
    place.open().close()
    place.execute(f"UPDATE meta SET value = {schema} WHERE name = 'schema'")
    with pytest.raises(BookUnusableError, match=rf"its schema is {schema}, .*: move it away to start a new one"):
        place.open(readonly=readonly)


def test_a_reader_does_not_migrate(place: Place) -> None:
    place.open().close()
    with pytest.raises(BookUnusableError, match="let the gateway run on it once"):
        place.open(readonly=True, migrations=LATER)


def test_a_database_of_something_else_is_left_alone(place: Place) -> None:
    place.open().close()
    place.execute("DELETE FROM meta")
    with pytest.raises(BookUnusableError, match="holds something else"):
        place.open()


def test_so_is_one_with_other_tables(place: Place) -> None:
    if isinstance(place, SqlitePlace):
        place.execute("CREATE TABLE recipes (name TEXT)")
        with pytest.raises(BookUnusableError, match="holds something else"):
            place.open()
