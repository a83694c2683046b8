"""API tokens, sessions and the audit log, in both databases."""

import time

import pytest
from msgspec import structs

from penstock.errors import AdminError
from penstock.gateway.keys import changes as key_changes
from penstock.gateway.keys.key_secret import digest_of
from penstock.gateway.keys.keys import Key, KeyLimits
from penstock.gateway.keys.terms import KeyTerms
from penstock.gateway.people.audit import Actor, AuditEntry, AuditFilter, entry_of, key_change
from penstock.gateway.people.roles import RoleGrant
from penstock.gateway.people.sessions import AdminSession
from penstock.gateway.people.tokens import TokenTerms
from penstock.stores.book.rows import KEYS
from penstock.stores.book.sql_book import Book
from tests.stores.places import Place, PostgresPlace

ANN = Actor("ann", "session", "192.0.2.1")
DAY_MS = 86_400_000


def now() -> int:
    return time.time_ns() // 1_000_000


def audit(book: Book, **wanted: str) -> list[AuditEntry]:
    return [entry for _, entry in book.people.audit(AuditFilter(**wanted), limit=100)]  # type: ignore[arg-type]


def test_a_token_is_valid_until_it_is_revoked_or_expires(book: Book) -> None:
    at = now()
    secret, token = book.people.create_token(TokenTerms(name="ci", role="viewer", expires="1h"), ANN, at)
    assert book.people.token(digest_of(secret), at) == token
    assert book.people.tokens() == [token]
    assert book.people.token(digest_of(secret + "x"), at) is None
    assert book.people.token(digest_of(secret), at + 3_600_000) is None
    with pytest.raises(AdminError, match="with that name"):
        book.people.create_token(TokenTerms(name="ci", role="admin"), ANN, at)
    book.people.revoke_token("ci", ANN, at + 1)
    assert book.people.token(digest_of(secret), at + 2) is None
    book.people.revoke_token(token.id, ANN, at + 5)  # stays as it is
    assert [entry.action for entry in audit(book)] == ["token.revoke", "token.create"]
    with pytest.raises(AdminError, match="no token"):
        book.people.revoke_token("other", ANN, at)


def test_a_session_ends(book: Book) -> None:
    at = now()
    session = AdminSession(id="d1", who="a", grants=(RoleGrant("member", "acme"),), created_ms=at, expires_ms=at + 1000)
    book.people.start_session(session, ANN)
    assert book.people.session("d1", at) == session
    assert book.people.session("d1", at + 1000) is None
    assert book.people.session("d2", at) is None
    book.people.end_session("d1", ANN, at + 1)
    assert book.people.session("d1", at + 2) is None
    assert [(entry.action, entry.who, entry.address) for entry in audit(book)] == [
        ("session.end", "ann", "192.0.2.1"),
        ("session.start", "ann", "192.0.2.1"),
    ]


def test_every_change_of_a_key_is_recorded_with_who_made_it(book: Book) -> None:
    book.actor = ANN
    at = now()
    new = key_changes.create(book, KeyTerms(name="mine", budget="5"), at)
    rotated = key_changes.rotate(book, "mine", "1h", at)
    book.actor = Actor("bob", "command line")
    key_changes.revoke(book, "mine", at)
    found = audit(book, subject=new.key.id)
    assert [(entry.who, entry.via, entry.action) for entry in found] == [
        ("bob", "command line", "key.revoke"),
        ("ann", "session", "key.rotate"),
        ("ann", "session", "key.create"),
    ]
    assert found[0].before == {"revoked": None}
    assert found[2].after["budget"] == "5.00"
    shown = str(found)
    for secret in (new.secret, rotated.secret, new.key.digest.hex(), str(new.key.digest)):
        assert secret not in shown
    assert audit(book, who="bob", action="key") == found[:1]
    assert audit(book, action="token") == []


def test_a_change_that_fails_is_not_recorded(book: Book) -> None:
    with pytest.raises(AdminError):
        key_changes.revoke(book, "nothing", now())
    assert audit(book) == []


@pytest.mark.parametrize("change", ["UPDATE audit SET who = 'eve'", "DELETE FROM audit", "TRUNCATE audit"])
def test_no_program_changes_the_audit_log(place: Place, book: Book, change: str) -> None:
    if change.startswith("TRUNCATE") and not isinstance(place, PostgresPlace):
        change = "DELETE FROM audit"  # SQLite has no TRUNCATE
    book.people.record(entry_of(ANN, now(), "call.stop", "call_1"))
    with pytest.raises(Exception, match="neither changed nor removed"):
        place.execute(change)
    assert [entry.who for entry in audit(book)] == ["ann"]


def test_entries_are_kept_as_long_as_configured(book: Book) -> None:
    at = now()
    for age in (40, 20, 0):
        book.people.record(entry_of(ANN, at - age * DAY_MS, "call.stop", f"call_{age}"))
    assert len(audit(book)) == 3
    book.people.record(entry_of(ANN, at, "call.stop", "last"), keep_days=30)
    assert [entry.subject for entry in audit(book)] == ["last", "call_0", "call_20"]


def test_pages_continue_and_texts_are_stored_as_they_can_be(book: Book) -> None:
    for number in range(5):
        book.people.record(entry_of(ANN, now(), "call.stop", f"call_{number}", after={"text": "\0" * 3, "n": number}))
    first = book.people.audit(AuditFilter(), limit=2)
    rest = book.people.audit(AuditFilter(), limit=9, before=first[-1][0])
    assert [entry.after["n"] for _, entry in (*first, *rest)] == [4, 3, 2, 1, 0]
    book.people.record(entry_of(ANN, now(), "key.update", "x" * 3000, after={"models": ["m" * 100] * 1000}))
    assert "omitted" in audit(book)[0].after


# What no user sees, or what never changes.
_UNSEEN = {"id", "digest", "previous", "created_ms"}


@pytest.mark.parametrize("column", sorted({*KEYS.columns} - _UNSEEN))
def test_a_change_of_each_stored_field_of_a_key_is_in_the_audit_log(column: str) -> None:
    """A field that a later version adds needs no other line than its column."""
    key = Key(id="key_1", name="a", digest=b"d", hint="h", created_ms=1)
    value = getattr(key, column)
    other = {dict: {"day": 5}, bool: True, tuple: ("m",), str: "x"}.get(type(value), 7)
    if column == "end_users":
        other = KeyLimits(concurrent=3)
    entry = key_change(ANN, 1, key, structs.replace(key, **{column: other}))
    assert entry is not None
    assert [*entry.before] == [*entry.after] == [column.removesuffix("_ms")]
