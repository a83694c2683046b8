"""The rules of keys hold in every store, even if other processes change keys at the same time."""

import threading
from collections.abc import Callable, Iterable
from typing import cast

import pytest
from msgspec import structs

from penstock.errors import KeyTermsError
from penstock.gateway.billing.book import Book
from penstock.gateway.keys.changes import create, revoke, rotate
from penstock.gateway.keys.keys import Key, KeyRing, digest_of
from penstock.gateway.keys.terms import KeyTerms
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
    with pytest.raises(KeyTermsError, match="with that name"):
        create(book, KeyTerms(name="a"), NOW)
    with pytest.raises(KeyTermsError, match="no key"):
        rotate(book, "b", "0", NOW)
    assert (book.keys(), book.keys_version()) == (before, version)
    create(book, KeyTerms(name="b"), NOW)
    assert book.keys_version() != version


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
    ring = KeyRing(book.keys())
    assert all(ring.find(digest_of(secret), NOW + HOUR_MS) for secret in (first, second))
    third, key = rotate(book, "a", "0", NOW + 2)
    ring = KeyRing(book.keys())
    assert [ring.find(digest_of(secret), NOW + 2) for secret in (first, second, third)] == [None, None, key]
    assert [ring.was_rotated(secret, NOW + 2) for secret in (first, second, third)] == [False, True, False]


def test_whoever_revokes_a_key_ends_both_its_secrets(book: Book) -> None:
    first, _ = create(book, KeyTerms(name="a"), NOW)
    second, _ = rotate(book, "a", "1h", NOW + 1)
    revoked = revoke(book, "a", NOW + 2)
    ring = KeyRing(book.keys())
    assert [ring.find(digest_of(secret), NOW + 2) for secret in (first, second)] == [revoked, revoked]
    assert "was revoked" in revoked.unusable(NOW + 2)
    assert revoke(book, "a", NOW + 9).revoked_ms == NOW + 2
    with pytest.raises(KeyTermsError, match="is revoked or expired"):
        rotate(book, "a", "0", NOW + 9)


def test_a_rotation_whose_confirmation_is_lost_is_done_once(book: Book) -> None:
    create(book, KeyTerms(name="a"), NOW)

    class Twice:
        def change_keys(self, change: Callable[[list[Key]], Iterable[Key]]) -> None:
            book.change_keys(change)
            book.change_keys(change)

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
        except KeyTermsError as error:
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
