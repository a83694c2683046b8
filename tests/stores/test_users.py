"""The pseudonyms of end users, in SQLite and in PostgreSQL."""

import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from msgspec import structs

from penstock.stores.content.sql_content import SqlContent
from tests.stores.contents import ContentPlace, record

ANN = "ann@example.com"


@pytest.fixture
def store(content_place: ContentPlace) -> Iterator[SqlContent]:
    with closing(content_place.open()) as opened:
        yield opened


def test_a_user_keeps_its_first_pseudonym(store: SqlContent, content_place: ContentPlace) -> None:
    assert store.users.claim({ANN: "u_1", "bob": "u_2"}, {}).by_name == {ANN: "u_1", "bob": "u_2"}
    with closing(content_place.open()) as other:
        assert other.users.claim({ANN: "u_3", "cy": "u_4"}, {}).by_name == {ANN: "u_1", "cy": "u_4"}
    assert [found.id for found in store.users.find(ANN)] == ["u_1"]
    assert [found.name for found in store.users.find("u_4")] == ["cy"]
    assert not store.users.find("u_3")


def test_a_pseudonym_that_calls_got_early_is_one_more_of_its_user(store: SqlContent) -> None:
    store.users.claim({ANN: "u_1"}, {})
    assert store.users.claim({"bob": "u_2"}, {"u_9": ANN}).by_name == {"bob": "u_2"}
    assert [found.id for found in store.users.find("u_9")] == ["u_1", "u_9"]
    assert store.users.claim({ANN: "u_3"}, {}).by_name == {ANN: "u_1"}


def test_erasing_a_user_deletes_its_names_and_records(store: SqlContent) -> None:
    before = store.users.claim({ANN: "u_1", "bob": "u_2"}, {"u_9": ANN}).erasures
    kept = [structs.replace(record(f"r{number}"), subject="u_1") for number in range(150)]
    kept += [structs.replace(record("late"), subject="u_9"), structs.replace(record("other"), subject="u_2")]
    store.put([*kept, record("nobody")])

    erased = store.users.erase("u_9")  # any of its pseudonyms names the user

    assert (erased.pseudonyms, erased.records) == (("u_1", "u_9"), 151)
    assert not store.users.find(ANN)
    assert store.users.erasures() != before
    assert store.record("answer", "key_a", "r1") is None
    assert {store.record("answer", "key_a", id) is None for id in ("other", "nobody")} == {False}
    assert store.database.fetch("SELECT SUM(size) FROM records") == [
        *store.database.fetch("SELECT SUM(bytes) FROM owners")
    ]
    assert store.users.claim({ANN: "u_5"}, {}).by_name == {ANN: "u_5"}
    assert store.users.erase("u_1") == type(erased)((), 0)


def test_a_record_that_comes_after_the_erasure_is_erased_by_its_pseudonym(store: SqlContent) -> None:
    store.users.claim({ANN: "u_1"}, {})
    store.users.erase(ANN)
    store.put([structs.replace(record("late"), subject="u_1")])
    assert store.users.erase("u_1").records == 1
    assert store.record("answer", "key_a", "late") is None


def test_names_that_are_not_used_are_deleted_in_batches(store: SqlContent) -> None:
    store.users.claim({f"user {number}": f"u_{number}" for number in range(5)}, {})
    now = time.time_ns() // 1_000_000
    assert store.users.prune(now - 1_000_000, 10) == 0
    store.database.fetch("UPDATE users SET used_ms = 5 WHERE pseudonym <> 'u_0'")
    assert store.users.claim({"user 1": "u_x"}, {}).by_name == {"user 1": "u_1"}  # it is used again
    assert [store.users.prune(now - 1_000_000, 2) for _ in range(3)] == [2, 1, 0]
    assert [bool(store.users.find(f"user {number}")) for number in range(5)] == [True, True, False, False, False]


def test_names_that_databases_do_not_accept_are_users_too(store: SqlContent) -> None:
    odd = "a\0b\ud800"
    assert store.users.claim({odd: "u_1"}, {}).by_name == {odd: "u_1"}
    assert store.users.claim({odd: "u_2"}, {}).by_name == {odd: "u_1"}


@pytest.mark.parametrize("erased", [False, True])
def test_an_erased_name_is_in_no_file(tmp_path: Path, erased: bool) -> None:
    place = ContentPlace(tmp_path / "content.db")
    with closing(place.open()) as store:
        store.users.claim({ANN: "u_1"}, {})
        store.put([structs.replace(record("r1", input=f"I am {ANN}"), subject="u_1")])
        if erased:
            store.users.erase(ANN)
        files = [path.read_bytes() for path in tmp_path.iterdir()]
    assert any(ANN.encode() in data for data in files) is not erased
