"""The health of providers' models: counts and percentiles of the database, compared with a book made by hand."""

import math
import random

from penstock.gateway.record.entry import AttemptEntry, Entry, Outcome
from penstock.stores.book.sql_book import Book
from penstock.stores.book.time_histogram import BOUNDS

_MINUTE = 60_000


def attempt(outcome: Outcome = "completed", first: int | None = 100, **fields: object) -> AttemptEntry:
    given = {"provider": "groq", "model": "m", "outcome": outcome, "first_event_ms": first, "events": 9, "cost": 1}
    return AttemptEntry(**(given | fields))  # type: ignore[arg-type]


def call(number: int, at_ms: int, *attempts: AttemptEntry, **fields: object) -> Entry:
    given = {"id": f"req_{number}", "at_ms": at_ms, "model": "fast", "outcome": "completed", "attempts": attempts}
    return Entry(**(given | fields))  # type: ignore[arg-type]


def test_a_book_made_by_hand(book: Book) -> None:
    at = 10 * _MINUTE
    failed = attempt("failed", None, provider="a", code="upstream_error", measure="void")
    book.append(
        [
            call(1, at - 1, attempt()),  # too early
            call(2, at, attempt(first=10, longest_gap_ms=5), repairs={"no-done": 1}),
            call(3, at + 1, failed, attempt(first=20, measure="estimated"), repairs={"no-done": 2, "bom": 1}),
            call(4, at + 2 * _MINUTE, attempt("truncated", 30, longest_gap_ms=2_000)),
            call(5, at + 2 * _MINUTE, outcome="refused"),  # no provider was called
            call(6, at + 3 * _MINUTE, attempt()),  # too late
            call(7, at, attempt("orphaned", None, measure="estimated", provider="z"), outcome="orphaned"),
        ]
    )
    first, second, killed = book.health(at, at + 3 * _MINUTE, _MINUTE)
    assert (first.provider, first.model, first.attempts, first.outcomes) == ("a", "m", 1, {"failed": 1})
    assert (first.first_event_ms.p50, first.longest_gap_ms.p95, first.repairs) == (None, None, {})
    assert (second.provider, second.attempts) == ("groq", 3)
    assert second.outcomes == {"completed": 2, "truncated": 1}
    assert second.repairs == {"no-done": 3, "bom": 1}
    assert second.usage_missing == 1
    assert near(second.first_event_ms.p50, 20)
    assert near(second.first_event_ms.p95, 30)
    assert near(second.longest_gap_ms.p95, 2_000)
    early, late = second.buckets
    assert (early.at_ms, early.attempts, early.outcomes) == (at, 2, {"completed": 2})
    assert early.repairs == {"no-done": 3, "bom": 1}
    assert (late.at_ms, late.attempts, late.outcomes) == (at + 2 * _MINUTE, 1, {"truncated": 1})
    assert near(late.first_event_ms.p50, 30)
    assert late.repairs == {}
    assert (early.usage_missing, late.usage_missing) == (1, 0)
    assert (killed.outcomes, killed.usage_missing) == ({"orphaned": 1}, 0)  # which is not its provider's fault


def test_percentiles_are_right_within_a_tenth(book: Book) -> None:
    chance = random.Random(7)
    times = [int(chance.lognormvariate(6, 1.2)) for _ in range(3_000)]
    book.append([call(number, number, attempt(first=time)) for number, time in enumerate(times)])
    (row,) = book.health(0, 3_000, 3_000)
    times.sort()
    for reported, part in ((row.first_event_ms.p50, 0.5), (row.first_event_ms.p95, 0.95)):
        exact = times[math.ceil(part * len(times)) - 1]
        assert reported is not None
        assert abs(reported - exact) <= 0.1 * exact + 1
    assert row.buckets[0].first_event_ms == row.first_event_ms


def test_what_was_seen_once_is_reported_as_it_was(book: Book) -> None:
    book.append([call(1, 0, attempt(first=298, longest_gap_ms=27))])
    (row,) = book.health(0, 1, 1)
    assert (row.first_event_ms.p50, row.first_event_ms.p95) == (298, 298)
    assert (row.longest_gap_ms.p50, row.longest_gap_ms.p95) == (27, 27)
    book.append([call(2, 0, attempt(first=302)), call(3, 0, attempt(first=305))])  # in the same bin
    (row,) = book.health(0, 1, 1)
    reported = row.first_event_ms.p50 or 0, row.first_event_ms.p95 or 0
    assert 298 <= reported[0] <= reported[1] <= 305


def test_times_beyond_reason_are_in_the_last_bin(book: Book) -> None:
    book.append([call(1, 0, attempt(first=10**15)), call(2, 0, attempt(first=0))])
    (row,) = book.health(0, 1, 1)
    assert (row.first_event_ms.p50, row.first_event_ms.p95) == (0, BOUNDS[-1])
    assert book.health(5, 6, 1) == []


def near(reported: int | None, exact: int) -> bool:
    return reported is not None and abs(reported - exact) <= 0.25 * exact + 1
