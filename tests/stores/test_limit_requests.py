"""Requests of members for more, in both databases."""

import pytest

from penstock.errors import AdminError
from penstock.gateway.keys import changes
from penstock.gateway.keys.keys import KeyLimits
from penstock.gateway.keys.terms import KeyTerms
from penstock.gateway.people.audit import Actor, AuditFilter
from penstock.gateway.people.limit_requests import (
    MAX_OPEN,
    VALID_MS,
    ApprovalTerms,
    LimitRequest,
    Raised,
    RequestTerms,
    Subject,
    TakenRequest,
    approved,
    new_request,
)
from penstock.gateway.teams.team import Team
from penstock.stores.book.sql_book import Book

NOW = 1_800_000_000_000
ANN = Actor("ann <1>", "API token")
LEAD = Actor("lead <2>", "API token")


@pytest.fixture
def key(book: Book) -> str:
    members = KeyLimits(budgets={"month": 5})
    book.change_teams(lambda *_: [Team(path="acme", created_ms=NOW, members=members)])
    return changes.create(book, KeyTerms(name="ci", team="acme", budget=10), NOW).key.id


def ask(book: Book, key: str, at_ms: int = NOW, **wanted: object) -> LimitRequest:
    book.actor = ANN
    terms = RequestTerms(reason="a demo with ünïcödé", **(wanted or {"budgets": {"month": 20}}))  # type: ignore[arg-type]
    return book.limit_requests.ask(
        lambda subject: new_request(terms, ANN.who, subject, at_ms), key=key, team="" if key else "acme", now_ms=at_ms
    )


def approve(book: Book, id: str, at_ms: int = NOW + 1) -> LimitRequest:
    book.actor = LEAD

    def decide(asked: LimitRequest, subject: Subject) -> Raised:
        return approved(asked, ApprovalTerms(note="yes"), subject, None, LEAD.who, at_ms)

    return book.limit_requests.answer(id, decide, at_ms)


def test_an_approval_and_its_change_are_stored_together(book: Book, key: str) -> None:
    asked = ask(book, key)
    assert book.limit_requests.find(asked.id) == asked
    before = book.keys_version()
    answered = approve(book, asked.id)
    assert book.limit_requests.find(asked.id) == answered
    assert answered.state(NOW + 2) == "approved"
    assert book.keys([key])[0].budget == 20 * 10**9
    assert book.keys_version() > before, "gateways read the keys again"
    assert approve(book, asked.id) == answered, "the same answer again, after a lost connection"
    with pytest.raises(AdminError, match="was approved already"):
        approve(book, asked.id, NOW + 2)
    acts = [entry.action for _, entry in book.people.audit(AuditFilter(subject=key), limit=9)]
    assert acts == ["limits.approve", "key.update", "limits.ask", "key.create"]


def test_the_limits_of_a_member_are_raised(book: Book, key: str) -> None:
    asked = ask(book, "", budgets={"month": "9"})
    approve(book, asked.id)
    (own,) = book.members()
    assert (key[:4], own.member, own.budgets) == ("key_", "1", {"month": 9 * 10**9})


def test_open_requests_are_bounded_and_expire(book: Book, key: str) -> None:
    asked = [ask(book, key) for _ in range(MAX_OPEN)]
    with pytest.raises(AdminError, match="wait for an answer"):
        ask(book, key)
    late = NOW + VALID_MS
    assert book.limit_requests.newest(since_ms=late - VALID_MS, limit=9) == []
    with pytest.raises(AdminError, match="has expired already"):
        approve(book, asked[0].id, late)
    ask(book, key, late)
    listed = book.limit_requests.newest(limit=3)
    assert [each.state(late) for _, each in listed] == ["open", "expired", "expired"]
    older = book.limit_requests.newest(limit=9, before=listed[-1][0])
    assert [each.id for _, each in older] == [each.id for each in asked[2::-1]]


def test_what_fails_changes_nothing(book: Book, key: str) -> None:
    asked = ask(book, key)
    changes.revoke(book, key, NOW)
    with pytest.raises(AdminError, match="revoked or expired"):
        approve(book, asked.id)
    assert book.limit_requests.find(asked.id).state(NOW) == "open"
    book.limit_requests.withdraw(asked.id, NOW)
    with pytest.raises(AdminError, match="no request for more"):
        book.limit_requests.find(asked.id)
    assert ask(book, "", budgets={"month": 7}).key == ""


def test_each_new_request_is_taken_by_one_process(book: Book, key: str) -> None:
    asked = ask(book, key)
    lease = NOW + 30_000
    taken = book.limit_requests.take(NOW, lease)
    assert isinstance(taken, TakenRequest)
    assert (taken.request.id, taken.attempt) == (asked.id, 1)
    assert book.limit_requests.take(NOW, lease) == lease, "another process waits for the lease"
    again = book.limit_requests.take(lease, lease + 30_000)  # the first process has died
    assert isinstance(again, TakenRequest)
    book.limit_requests.end_delivery(taken, None)  # too late: another one has it
    assert book.limit_requests.take(lease, lease) == lease + 30_000
    book.limit_requests.end_delivery(again, None)
    assert book.limit_requests.take(lease, lease) is None
