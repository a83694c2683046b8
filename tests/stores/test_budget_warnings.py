"""Budget warnings in every store: each is claimed once, and the old ones are deleted."""

from msgspec.structs import replace

from penstock.gateway.limits.warnings import TakenWarning
from penstock.stores.book.sql_book import Book
from tests.serve.webhooks import WARNING
from tests.stores.entries import DAY_MS


def test_a_warning_is_claimed_once_per_account_period_and_percentage(book: Book) -> None:
    others = [
        replace(WARNING, percent=80),
        replace(WARNING, label="2026-12"),
        replace(WARNING, account="key_1", refused=True),
    ]
    assert book.claim_warnings([WARNING, WARNING]) == [WARNING]
    assert book.claim_warnings([replace(WARNING, spent=1, at_ms=WARNING.at_ms + 1)]) == []
    assert book.claim_warnings([WARNING, *others]) == others
    assert sorted(book.warnings(9), key=repr) == sorted([WARNING, *others], key=repr)
    assert len(book.warnings(2)) == 2


def test_a_warning_waits_for_the_webhook_until_a_process_has_sent_it(book: Book) -> None:
    waiting = replace(WARNING, delivery="waiting", percent=80, at_ms=WARNING.at_ms + 5)
    now, lease = waiting.at_ms, waiting.at_ms + 1_000
    assert book.take_warning(now, lease) is None
    book.claim_warnings([WARNING, waiting])
    assert book.take_warning(now - 1, lease) == now
    taken, again, last = (TakenWarning(waiting, attempt) for attempt in (1, 2, 3))
    assert book.take_warning(now, lease) == taken
    assert book.take_warning(now, lease) == lease
    # The process died: another one takes the warning, and its result counts, not that of the first.
    assert book.take_warning(lease, 2 * lease) == again
    book.end_delivery(taken, "delivered")
    assert book.take_warning(lease, 3 * lease) == 2 * lease
    book.end_delivery(again, "waiting", lease + 7)
    assert book.take_warning(lease, 3 * lease) == lease + 7
    assert book.take_warning(lease + 7, 3 * lease) == last
    book.end_delivery(last, "delivered")
    assert book.take_warning(4 * lease, 5 * lease) is None
    assert {each.percent: each.delivery for each in book.warnings(9)} == {50: "none", 80: "delivered"}
    assert book.claim_warnings([waiting]) == []


def test_old_warnings_are_deleted_except_those_of_total_budgets(book: Book) -> None:
    lasting = replace(WARNING, account="key_1", label="total", period="total")
    new = replace(WARNING, label="2027-03", at_ms=WARNING.at_ms + 101 * DAY_MS)
    for warning in (WARNING, lasting, new):
        assert book.claim_warnings([warning]) == [warning]
    assert book.warnings(9) == [new, lasting]
    assert book.claim_warnings([lasting]) == []
