"""A book of an earlier version is migrated, and one of a newer version is left unchanged."""

import multiprocessing
import os
import signal
import sqlite3
from collections.abc import Sequence
from multiprocessing.synchronize import Barrier
from pathlib import Path

import pytest
from msgspec import structs

from penstock.errors import BookError, BookUnusableError
from penstock.gateway.billing.book import Filter
from penstock.gateway.keys.changes import rotate
from penstock.gateway.keys.keys import digest_of
from penstock.stores.book.database import SqlDialect
from penstock.stores.book.schema import MIGRATIONS
from tests.stores.entries import FULL, KEY, PLAIN_KEY, entry
from tests.stores.first_book import FIRST_CALL, FIRST_KEY, FIRST_ROWS, begin
from tests.stores.places import Place, SqlitePlace


def _another(_words: SqlDialect) -> Sequence[str]:
    return ("ALTER TABLE calls ADD COLUMN added BIGINT NOT NULL DEFAULT 7", "CREATE TABLE later (id BIGINT)")


def _broken(_words: SqlDialect) -> Sequence[str]:
    return ("CREATE TABLE half (id BIGINT)", "CREATE TABLE half (id BIGINT)")


LATER = (*MIGRATIONS, _another)


def test_a_migration_keeps_what_is_there(place: Place) -> None:
    book = place.open()
    book.append([FULL])
    book.change_keys(lambda _: [KEY])
    book.close()
    book = place.open(migrations=LATER)
    assert book.database.fetch("SELECT added FROM calls") == [(7,)]
    assert book.entry("call_1") == FULL
    assert book.keys() == [KEY]
    book.append([entry("b")])
    book.close()
    place.open(migrations=LATER).close()


def test_one_that_fails_changes_nothing(place: Place) -> None:
    place.open().close()
    with pytest.raises(BookError, match="half"):
        place.open(migrations=(*MIGRATIONS, _broken))
    book = place.open(migrations=LATER)
    assert book.database.fetch("SELECT value FROM meta WHERE name = 'schema'") == [(len(LATER),)]
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
    with pytest.raises(BookUnusableError, match="was made by a newer version of Penstock"):
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


# What version 1 made of SQLite, and a call in it: never to be changed. Whatever comes later has to read it.
FIRST_TABLES = """
CREATE TABLE meta (name TEXT PRIMARY KEY, value BIGINT NOT NULL);
INSERT INTO meta (name, value) VALUES ('schema', 1), ('keys', 3), ('kept', 0);
CREATE TABLE calls (
    place INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, at_ms BIGINT NOT NULL,
    settled_ms BIGINT NOT NULL, key TEXT NOT NULL, surface TEXT NOT NULL, model TEXT NOT NULL, stream BIGINT NOT NULL,
    outcome TEXT NOT NULL, status BIGINT NOT NULL, code TEXT NOT NULL, first_event_ms BIGINT,
    duration_ms BIGINT NOT NULL, input BIGINT NOT NULL, output BIGINT NOT NULL, cached BIGINT NOT NULL,
    cache_write BIGINT NOT NULL, reasoning BIGINT NOT NULL, cost BIGINT NOT NULL, unpriced BIGINT NOT NULL,
    measure TEXT NOT NULL, repairs TEXT NOT NULL, tags TEXT NOT NULL, end_user TEXT NOT NULL
);
CREATE TABLE attempts (
    call BIGINT NOT NULL REFERENCES calls (place) ON DELETE CASCADE, number BIGINT NOT NULL, provider TEXT NOT NULL,
    model TEXT NOT NULL, outcome TEXT NOT NULL, status BIGINT NOT NULL, code TEXT NOT NULL, measure TEXT NOT NULL,
    input BIGINT NOT NULL, output BIGINT NOT NULL, cached BIGINT NOT NULL, cache_write BIGINT NOT NULL,
    reasoning BIGINT NOT NULL, cost BIGINT, price TEXT NOT NULL, began_ms BIGINT NOT NULL, first_event_ms BIGINT,
    duration_ms BIGINT NOT NULL, events BIGINT NOT NULL, PRIMARY KEY (call, number)
) WITHOUT ROWID;
CREATE TABLE call_tags (
    call BIGINT NOT NULL REFERENCES calls (place) ON DELETE CASCADE, name TEXT NOT NULL, value TEXT NOT NULL,
    PRIMARY KEY (call, name)
) WITHOUT ROWID;
CREATE TABLE call_repairs (
    call BIGINT NOT NULL REFERENCES calls (place) ON DELETE CASCADE, code TEXT NOT NULL, count BIGINT NOT NULL,
    PRIMARY KEY (call, code)
) WITHOUT ROWID;
CREATE TABLE keys (
    id TEXT PRIMARY KEY, name TEXT NOT NULL, digest TEXT NOT NULL, hint TEXT NOT NULL, created_ms BIGINT NOT NULL,
    budget BIGINT, period TEXT NOT NULL, requests_per_minute BIGINT, tokens_per_minute BIGINT, concurrent BIGINT,
    models TEXT NOT NULL, tags TEXT NOT NULL, expires_ms BIGINT, revoked_ms BIGINT, replaced_by TEXT NOT NULL
);
"""


def test_the_first_version_is_still_read(tmp_path: Path) -> None:
    place = SqlitePlace(tmp_path)
    connection = sqlite3.connect(place.path)
    connection.executescript(FIRST_TABLES + FIRST_ROWS)
    connection.close()
    book = place.open()
    assert book.following(Filter(), 0, limit=9) == [(5, FIRST_CALL)]
    assert book.usage(Filter(tags=FULL.tags, repair="no-done"), [])[0].cost == FULL.priced
    assert (book.keys(), book.keys_version()) == ([FIRST_KEY], 3)
    book.append([FULL, entry("b")])
    assert [found.id for _, found in book.following(Filter(), 5, limit=9)] == ["b"]
    book.close()


def test_what_the_first_version_booked_gets_the_columns_of_the_second(place: Place) -> None:
    begin(place)
    book = place.open()
    assert book.database.fetch("SELECT value FROM meta WHERE name = 'schema'") == [(len(MIGRATIONS),)]
    assert book.entry("call_1") == FIRST_CALL
    later = structs.replace(FULL, id="call_2")
    book.append([later])
    assert book.entry("call_2") == later
    with pytest.raises(BookError, match="neither changed nor removed"):
        book.database.write(lambda transaction: transaction.fetch("UPDATE attempts SET longest_gap_ms = 1"))
    book.close()


def test_keys_of_the_first_versions_can_be_rotated_and_keep_what_replaced_them(place: Place) -> None:
    begin(place)
    place.open(migrations=MIGRATIONS[:2]).close()
    book = place.open()
    assert book.keys() == [FIRST_KEY]
    # That one ends at 98: it was rotated when a rotation made another key.
    secret, key = rotate(book, "key_abc", "1s", 90)
    assert book.keys() == [key]
    assert (key.digest, key.previous, key.previous_until_ms) == (digest_of(secret), FIRST_KEY.digest, 1_090)
    assert (key.revoked_ms, key.unusable(98)) == (98, FIRST_KEY.unusable(98))
    book.change_keys(lambda _: [PLAIN_KEY])
    assert book.database.fetch("SELECT id, replaced_by FROM keys ORDER BY id") == [
        ("key_abc", "key_def"),
        ("key_def", ""),
    ]
    book.close()
