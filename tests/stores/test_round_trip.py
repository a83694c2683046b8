"""What is booked is what is read, and it is booked once."""

from penstock.gateway.billing.queries import Filter
from penstock.gateway.record.entry import AttemptEntry, Entry
from penstock.stores.book.sql_book import Book
from tests.stores.entries import FULL, KEY, PLAIN_KEY, entry


def test_every_field_comes_back(book: Book) -> None:
    plain = Entry(id="call_2", at_ms=1, model="m", outcome="refused")
    book.append([FULL, plain])
    assert book.entry("call_1") == FULL
    assert book.entry("call_2") == plain
    assert book.entry("call_3") is None
    assert [found for _, found in book.entries(Filter(), limit=10)] == [FULL, plain]


def test_every_field_of_a_key_comes_back(book: Book) -> None:
    book.change_keys(lambda *_: [KEY, PLAIN_KEY])
    assert book.keys() == [PLAIN_KEY, KEY]


def test_a_key_takes_the_place_of_its_former_self(book: Book) -> None:
    before = book.keys_version()
    book.change_keys(lambda *_: [PLAIN_KEY])
    then = book.keys_version()
    book.change_keys(lambda *_: [KEY, KEY])
    assert book.keys_version() not in (before, then)
    changed = PLAIN_KEY.__class__(id=PLAIN_KEY.id, name="other", digest=b"1", hint="", created_ms=4)
    book.change_keys(lambda *_: [changed])
    assert book.keys() == [changed, KEY]


def test_an_entry_is_booked_once(book: Book) -> None:
    book.append([FULL, entry("other"), FULL])
    book.append([entry("another"), FULL])
    assert [found.id for _, found in book.following(Filter(), 0, limit=10)] == ["call_1", "other", "another"]
    assert book.entry("call_1") == FULL


def test_who_comes_second_with_an_id_adds_nothing(book: Book) -> None:
    bare = Entry(id="call_1", at_ms=1, model="m", outcome="orphaned")
    book.append([bare])
    book.append([FULL])
    assert book.entry("call_1") == bare
    assert [row.cost for row in book.usage(Filter(), ["provider"])] == [0]


def test_nothing_is_appended_of_nothing(book: Book) -> None:
    book.append([])
    book.change_keys(lambda *_: [])
    assert book.last() == 0
    assert book.entries(Filter(), limit=10) == []


def test_what_no_database_takes_is_mended_and_not_lost(book: Book) -> None:
    tokens = FULL.attempts[1].tokens.__class__(input=10**30)
    attempt = AttemptEntry(provider="p\0", model="m", outcome="completed", tokens=tokens, cost=10**30)
    book.append([entry("odd", user="a\0b", model="\ud800", tags={"x\0": "\udfff"}, attempts=(attempt,)), FULL])
    odd = book.entry("odd")
    assert odd is not None
    assert (odd.user, odd.model, odd.tags, odd.attempts[0].provider) == ("a\ufffdb", "?", {"x\ufffd": "?"}, "p\ufffd")
    assert odd.attempts[0].tokens.input == odd.cost == 10**18
    assert book.entry("call_1") == FULL
