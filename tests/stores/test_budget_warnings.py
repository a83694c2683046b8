"""Budget warnings in every store: each is claimed once, and the old ones are deleted."""

from msgspec.structs import replace

from penstock.gateway.billing.book import Book
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


def test_old_warnings_are_deleted_except_those_of_total_budgets(book: Book) -> None:
    lasting = replace(WARNING, account="key_1", label="total", period="total")
    new = replace(WARNING, label="2027-03", at_ms=WARNING.at_ms + 101 * DAY_MS)
    for warning in (WARNING, lasting, new):
        assert book.claim_warnings([warning]) == [warning]
    assert book.warnings(9) == [new, lasting]
    assert book.claim_warnings([lasting]) == []
