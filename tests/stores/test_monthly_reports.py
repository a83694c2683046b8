"""Which months are reported: each once, by whichever process, also after a time without one."""

from contextlib import closing
from datetime import UTC, datetime
from threading import Thread

import pytest

from penstock.amounts import moment
from penstock.stores.book.report_rows import GRACE_MS, TakenReport
from penstock.stores.book.sql_book import Book
from tests.stores.places import Place


def at(text: str) -> int:
    return round(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1000)


def taken(book: Book, now_ms: int) -> list[str]:
    """The months that are due; each is delivered at once."""
    months = []
    while isinstance(found := book.take_report(now_ms, now_ms + 60_000), TakenReport):
        months.append(found.month)
        book.end_report(found)
    assert found > now_ms, moment(found)
    return months


def test_every_month_is_due_once_and_missed_ones_are_caught_up(book: Book) -> None:
    assert taken(book, at("2026-11-03")) == ["2026-10"]
    assert taken(book, at("2026-11-30")) == []
    assert taken(book, at("2026-12-01") + GRACE_MS - 1) == []
    assert taken(book, at("2026-12-01") + GRACE_MS) == ["2026-11"]
    assert taken(book, at("2027-03-15")) == ["2026-12", "2027-01", "2027-02"]
    assert taken(book, at("2026-01-01")) == [], "a clock that was set back"
    assert taken(book, at("2029-01-15")) == [f"2028-{month:02}" for month in range(1, 13)]


def test_a_report_of_a_process_that_died_is_taken_after_its_lease(book: Book) -> None:
    now = at("2026-11-03")
    first = book.take_report(now, now + 1_000)
    assert first == TakenReport("2026-10", 1)
    assert book.take_report(now + 999, now + 9_000) == now + 1_000
    again = book.take_report(now + 1_000, now + 9_000)
    assert again == TakenReport("2026-10", 2)
    book.end_report(first)  # too late: it is another process's now
    assert book.take_report(now + 2_000, now + 9_999) == now + 9_000
    book.end_report(again, now + 3_000)
    assert book.take_report(now + 3_000, now + 9_999) == TakenReport("2026-10", 3)


@pytest.mark.slow
def test_of_many_processes_one_takes_each_month(place: Place) -> None:
    now, found = at("2027-03-15"), list[str]()
    with closing(place.open()) as book:
        assert taken(book, at("2026-09-15")) == ["2026-08"]

    def work() -> None:
        with closing(place.open()) as own:
            while isinstance(report := own.take_report(now, now + 60_000), TakenReport) or report <= now:
                if isinstance(report, TakenReport):
                    found.append(report.month)
                    own.end_report(report)

    threads = [Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(found) == ["2026-09", "2026-10", "2026-11", "2026-12", "2027-01", "2027-02"]
