"""The rules of keys hold in every store, even if other processes change keys at the same time."""

import threading
from collections.abc import Callable, Iterable
from collections.abc import Set as AbstractSet
from contextlib import closing
from pathlib import Path
from typing import cast

import pytest
from msgspec import structs

from penstock.errors import AdminError
from penstock.gateway.keys.changes import KeyChange, create, revoke, rotate, update
from penstock.gateway.keys.key_ring import KeyRing
from penstock.gateway.keys.key_secret import digest_of
from penstock.gateway.keys.keys import Key
from penstock.gateway.keys.report import report
from penstock.gateway.keys.terms import KeyTerms, KeyUpdate
from penstock.gateway.teams.chain import Chain
from penstock.gateway.teams.changes import TeamTerms
from penstock.gateway.teams.changes import create as create_team
from penstock.stores.book.sql_book import Book
from penstock.stores.book.sqlite import SqliteBook
from tests.stores.places import Place

NOW = 1_800_000_000_000
HOUR_MS = 3_600_000


def test_what_is_made_is_what_is_kept(book: Book) -> None:
    terms = KeyTerms(name="a", budget=0.25, models=("x", "y/*"), tags={"t": ""}, expires="1d", concurrent=2)
    secret, key = create(book, terms, NOW)
    assert book.keys() == [key]
    assert key.digest == digest_of(secret)
    assert (key.budget, key.period, key.expires_ms) == (250_000_000, "month", NOW + 86_400_000)


def test_a_change_that_fails_changes_nothing(book: Book) -> None:
    create(book, KeyTerms(name="a"), NOW)
    before, version = book.keys(), book.keys_version()
    with pytest.raises(AdminError, match="with that name"):
        create(book, KeyTerms(name="a"), NOW)
    with pytest.raises(AdminError, match="no key"):
        rotate(book, "b", "0", NOW)
    assert (book.keys(), book.keys_version()) == (before, version)
    create(book, KeyTerms(name="b"), NOW)
    assert book.keys_version() != version


class _Overtaken(SqliteBook):
    """Another process deletes the team just before this one changes a key."""

    def change_keys(self, change: Callable[[list[Key], AbstractSet[str]], Iterable[Key]]) -> list[Key]:
        self.change_teams(lambda teams, _: [structs.replace(team, deleted_ms=NOW) for team in teams])
        return super().change_keys(change)


def test_a_key_gets_no_team_that_is_being_deleted(tmp_path: Path) -> None:
    with closing(SqliteBook.open(tmp_path / "book")) as book:
        key = create(book, KeyTerms(name="a"), NOW).key
    acts: list[Callable[[Book], object]] = [
        lambda book: create(book, KeyTerms(name="b", team="acme"), NOW),
        lambda book: update(book, [KeyChange("a", KeyUpdate(team="acme"))], NOW),
    ]
    for act in acts:
        with closing(_Overtaken.open(tmp_path / "book")) as book:
            create_team(book, TeamTerms(path="acme"), NOW)
            with pytest.raises(AdminError, match="there is no team acme"):
                act(book)
            assert book.keys() == [key]


def test_a_rotation_changes_the_secret_alone(book: Book) -> None:
    old = create(book, KeyTerms(name="a", budget="5", period="total", tags={"t": "x"}, expires="1d"), NOW).key
    version = book.keys_version()
    secret, new = rotate(book, "a", "1h", NOW + 1)
    assert book.keys() == [new]
    assert book.keys_version() != version
    secrets = {"digest": digest_of(secret), "hint": secret[-4:], "rotated_ms": NOW + 1}
    before = {"previous": old.digest, "previous_until_ms": NOW + 1 + HOUR_MS}
    assert new == structs.replace(old, **secrets, **before)


def test_a_key_has_one_secret_before_its_own(book: Book) -> None:
    first, _ = create(book, KeyTerms(name="a"), NOW)
    second, _ = rotate(book, "a", "1h", NOW + 1)
    ring = KeyRing(map(Chain([]).client_key, book.keys()))
    assert all(ring.find(digest_of(secret), NOW + HOUR_MS) for secret in (first, second))
    third, key = rotate(book, "a", "0", NOW + 2)
    ring = KeyRing(map(Chain([]).client_key, book.keys()))
    assert [ring.find(digest_of(secret), NOW + 2) for secret in (first, second, third)] == [
        None,
        None,
        Chain([]).client_key(key),
    ]
    assert [ring.rotated(secret, NOW + 2) is not None for secret in (first, second, third)] == [False, True, False]


def test_whoever_revokes_a_key_ends_both_its_secrets(book: Book) -> None:
    first, _ = create(book, KeyTerms(name="a"), NOW)
    second, _ = rotate(book, "a", "1h", NOW + 1)
    revoked = revoke(book, "a", NOW + 2)
    ring = KeyRing(map(Chain([]).client_key, book.keys()))
    assert [ring.find(digest_of(secret), NOW + 2) for secret in (first, second)] == [Chain([]).client_key(revoked)] * 2
    assert "was revoked" in revoked.unusable(NOW + 2)
    assert revoke(book, "a", NOW + 9).revoked_ms == NOW + 2
    with pytest.raises(AdminError, match="is revoked or expired"):
        rotate(book, "a", "0", NOW + 9)


def test_a_rotation_whose_confirmation_is_lost_is_done_once(book: Book) -> None:
    create(book, KeyTerms(name="a"), NOW)

    class Twice:
        def change_keys(self, change: Callable[[list[Key], AbstractSet[str]], Iterable[Key]]) -> list[Key]:
            book.change_keys(change)
            return book.change_keys(change)

    version = book.keys_version()
    secret, key = rotate(cast(Book, Twice()), "a", "1h", NOW + 1)
    assert (book.keys(), book.keys_version()) == ([key], version + 1)
    assert key.digest == digest_of(secret) != key.previous


def test_who_rotates_at_once_rotates_in_turn(place: Place, book: Book) -> None:
    create(book, KeyTerms(name="a"), NOW)
    failed: list[str] = []
    made: list[str] = []

    def turn() -> None:
        mine = place.open()
        try:
            made.append(rotate(mine, "a", "0", NOW + 1).secret)
        except AdminError as error:
            failed.append(str(error))
        finally:
            mine.close()

    threads = [threading.Thread(target=turn) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert failed == []
    (key,) = book.keys()
    assert {key.digest, key.previous} < {digest_of(secret) for secret in made}
    assert len(made) == 4


def test_an_update_changes_what_is_given_and_null_removes_it(book: Book) -> None:
    terms = KeyTerms(name="a", budget="5", requests_per_minute=3, models=("x",), expires="1d", tags={"t": "x"})
    key = create(book, terms, NOW).key
    version = book.keys_version()
    given = KeyUpdate(
        name="b", budget="7", period="day", requests_per_minute=None, models=(), expires=None, strict=True
    )
    (changed,) = update(book, [KeyChange("a", given)], NOW + 1)
    wanted = {"name": "b", "budget": 7 * 10**9, "period": "day", "requests_per_minute": None, "models": ()}
    assert changed == structs.replace(key, **wanted, expires_ms=None, strict=True)
    assert book.keys() == [changed]
    assert book.keys_version() != version
    (unlimited,) = update(book, [KeyChange("b", KeyUpdate(budget=None))], NOW + 2)
    assert unlimited == structs.replace(changed, budget=None)


def test_a_blocked_key_is_refused_and_keeps_its_name(book: Book) -> None:
    create(book, KeyTerms(name="a"), NOW)
    (blocked,) = update(book, [KeyChange("a", KeyUpdate(blocked=True))], NOW + 1)
    (still,) = update(book, [KeyChange("a", KeyUpdate(blocked=True))], NOW + 2)
    assert (blocked.blocked_ms, still.blocked_ms) == (NOW + 1, NOW + 1)
    assert (blocked.unusable(NOW + 2), Chain([]).client_key(blocked).refusal(NOW + 2)) == (
        "",
        "this key is blocked; ask its administrator",
    )
    assert report(book, still, NOW + 2)["state"] == "blocked"
    with pytest.raises(AdminError, match="with that name"):
        create(book, KeyTerms(name="a"), NOW + 2)
    (open_again,) = update(book, [KeyChange("a", KeyUpdate(blocked=False))], NOW + 3)
    assert (open_again.blocked_ms, Chain([]).client_key(open_again).refusal(NOW + 3)) == (None, "")


def test_several_changes_are_made_or_none(book: Book) -> None:
    for name in ("a", "b", "c"):
        create(book, KeyTerms(name=name), NOW + ord(name))
    before, version = book.keys(), book.keys_version()
    wrong = {
        "there is no key": [KeyChange("a", KeyUpdate(budget="1")), KeyChange("d", KeyUpdate(budget="1"), "line 2")],
        "a name that is taken": [KeyChange("a", KeyUpdate(name="b"))],
        "one name for two": [KeyChange("a", KeyUpdate(name="d")), KeyChange("b", KeyUpdate(name="d"))],
        "twice": [KeyChange("a", KeyUpdate(budget="1")), KeyChange("a", KeyUpdate(budget="2"))],
        "a period of nothing": [KeyChange("a", KeyUpdate(budget="1")), KeyChange("b", KeyUpdate(period="day"))],
    }
    for changes in wrong.values():
        with pytest.raises(AdminError):
            update(book, changes, NOW + 1)
    with pytest.raises(AdminError, match=r"^no key was changed: line 1: .*; line 2: there is no key"):
        update(book, [KeyChange("a", KeyUpdate(budget="x"), "line 1"), KeyChange("d", KeyUpdate(), "line 2")], NOW)
    assert (book.keys(), book.keys_version()) == (before, version)
    # Two keys can exchange their names.
    changed = update(book, [KeyChange("a", KeyUpdate(name="b")), KeyChange("b", KeyUpdate(name="a"))], NOW + 1)
    assert [(key.id, key.name) for key in changed] == [(before[0].id, "b"), (before[1].id, "a")]
