"""The rules of keys hold in every store, whoever else changes keys at the same time."""

import threading

import pytest

from penstock.errors import KeyTermsError
from penstock.gateway.book import Book
from penstock.gateway.key_changes import create, find, revoke, rotate
from penstock.gateway.key_terms import KeyTerms
from penstock.gateway.keys import digest_of
from tests.stores.places import Place

NOW = 1_800_000_000_000


def test_what_is_made_is_what_is_kept(book: Book) -> None:
    terms = KeyTerms(name="a", budget=0.25, models=("x", "y/*"), tags={"t": ""}, expires="1d", concurrent=2)
    secret, key, _ = create(book, terms, NOW)
    assert book.keys() == [key]
    assert key.digest == digest_of(secret)
    assert (key.budget, key.period, key.expires_ms) == (250_000_000, "month", NOW + 86_400_000)


def test_a_change_that_fails_changes_nothing(book: Book) -> None:
    create(book, KeyTerms(name="a"), NOW)
    before, version = book.keys(), book.keys_version()
    with pytest.raises(KeyTermsError, match="of that name"):
        create(book, KeyTerms(name="a"), NOW)
    with pytest.raises(KeyTermsError, match="no key"):
        rotate(book, "b", "0", NOW)
    assert (book.keys(), book.keys_version()) == (before, version)
    create(book, KeyTerms(name="b"), NOW)
    assert book.keys_version() != version


def test_rotation_sets_both_keys_at_once(book: Book) -> None:
    old = create(book, KeyTerms(name="a", budget="5", period="total"), NOW).key
    new = rotate(book, "a", "1h", NOW + 1)
    assert new.replaces is not None
    keys = book.keys()
    kept = {key.id: key for key in keys}
    assert kept == {new.key.id: new.key, old.id: new.replaces}
    assert kept[old.id].replaced_by == new.key.id
    assert not kept[old.id].unusable(NOW + 3_600_000)
    assert kept[old.id].unusable(NOW + 3_600_001)
    revoke(book, old.id, NOW + 2)
    assert find(book.keys(), "a", NOW + 2) == new.key
    assert revoke(book, old.id, NOW + 9).revoked_ms == NOW + 2


def test_who_rotates_at_once_rotates_in_turn(place: Place, book: Book) -> None:
    create(book, KeyTerms(name="a"), NOW)
    failed: list[str] = []

    def turn() -> None:
        mine = place.open()
        try:
            rotate(mine, "a", "0", NOW + 1)
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
    keys = book.keys()
    assert len([key for key in keys if not key.unusable(NOW + 2)]) == 1
    assert len({key.replaced_by for key in keys}) == len(keys) == 5
