"""Listing and filtering entries, and what keys have spent."""

from collections.abc import Callable
from typing import TypeAlias

import pytest
from msgspec.structs import replace

from penstock.gateway.billing.queries import Filter
from penstock.gateway.record.entry import AttemptEntry
from penstock.stores.book.sql_book import Book
from tests.stores.entries import DAY_MS, FULL, entry

# The book of these tests: each a call of its own kind.
CALLS = (
    entry("early", 100, key="k1", model="fast", tags={"team": "a", "env": "x"}),
    entry("groq", 200, key="k2", attempts=(AttemptEntry(provider="groq", model="m", outcome="completed"),)),
    entry("refused", 300, key="k1", outcome="refused", attempts=()),
    entry("repaired", 400, repairs={"no-done": 2}, losses={"stop-dropped": 1}, tags={"team": "a%"}),
    entry("late", 500, key="k2", model="fast", tags={"team": "b"}),
)
FILTERS: dict[str, tuple[Filter, list[str]]] = {
    "everything": (Filter(), ["late", "repaired", "refused", "groq", "early"]),
    "since": (Filter(since_ms=300), ["late", "repaired", "refused"]),
    "until": (Filter(until_ms=300), ["groq", "early"]),
    "far away": (Filter(since_ms=-(10**40), until_ms=10**40, keys=("k1",)), ["refused", "early"]),
    "keys": (Filter(keys=("k1", "k2")), ["late", "refused", "groq", "early"]),
    "no key": (Filter(keys=("",)), ["repaired"]),
    "model": (Filter(models=("fast",)), ["late", "early"]),
    "provider": (Filter(providers=("groq", "other")), ["groq"]),
    "target": (Filter(targets=("groq/m", "p/other", "m", "groq")), ["groq"]),
    "one target": (Filter(targets=("groq/m",)), ["groq"]),
    "one target, and not its provider's others": (Filter(targets=("groq/other",)), []),
    "how an attempt at a target ended": (Filter(targets=("groq/m",), attempts=("completed", "failed")), ["groq"]),
    "how none ended there": (Filter(targets=("groq/m",), attempts=("orphaned",)), []),
    "how any attempt ended": (Filter(attempts=("orphaned",)), []),
    "a target, and not its parts": (Filter(targets=("groq/other", "p/m/m")), []),
    "outcome": (Filter(outcomes=("refused",)), ["refused"]),
    "repair": (Filter(repair="no-done"), ["repaired"]),
    "loss": (Filter(loss="stop-dropped"), ["repaired"]),
    "a part of a loss": (Filter(loss="stop"), []),
    "another loss": (Filter(loss="seal-dropped"), []),
    "a loss and a repair": (Filter(loss="stop-dropped", repair="no-done"), ["repaired"]),
    "tag": (Filter(tags={"team": "a"}), ["early"]),
    "two tags": (Filter(tags={"team": "a", "env": "x"}), ["early"]),
    "tags that no call has together": (Filter(tags={"team": "b", "env": "x"}), []),
    "no wildcards": (Filter(tags={"team": "%"}), []),
    "no SQL": (Filter(keys=("' OR 1=1 --",), models=("?",), repair="$1", loss="%", tags={"'": '"'}), []),
    "a part of a name": (Filter(text="FAS"), ["late", "early"]),
    "a part of a provider's name": (Filter(text="gro"), ["groq"]),
    "an id, and keys by name": (Filter(text="repaired", text_keys=("k2",)), ["late", "repaired", "groq"]),
    "a part of an id": (Filter(text="repaire"), []),
    "a text that is a tag": (Filter(text="env=x"), ["early"]),
    "a text that is the value of a tag": (Filter(text="x"), ["early"]),
    "a part of a tag": (Filter(text="nv=x"), []),
    "a wildcard is a character": (Filter(text="f%t"), []),
    "a text in no call": (Filter(text="_"), []),
    "all at once": (
        Filter(since_ms=1, until_ms=999, keys=("k1",), models=("fast",), providers=("p",), outcomes=("completed",)),
        ["early"],
    ),
}


@pytest.mark.parametrize(("wanted", "expected"), FILTERS.values(), ids=FILTERS)
def test_a_filter_means(book: Book, wanted: Filter, expected: list[str]) -> None:
    book.append(CALLS)
    assert [found.id for _, found in book.entries(wanted, limit=10)] == expected
    assert [found.id for _, found in book.following(wanted, 0, limit=10)] == expected[::-1]
    assert book.usage(wanted, [])[0].calls == len(expected)


def test_pages_follow_one_another_whatever_is_booked_meanwhile(book: Book) -> None:
    # Many at the same moment, booked in another order than they came in.
    times = [index * 7 % 10 for index in range(40)]
    book.append([entry(f"{index}", at_ms) for index, at_ms in enumerate(times)])
    expected = sorted(range(40), key=lambda index: (times[index], index), reverse=True)
    seen: list[str] = []
    before = None
    while page := book.entries(Filter(), limit=7, before=before):
        assert len(page) <= 7
        before = page[-1][0]
        seen += [found.id for _, found in page]
        book.append([entry(f"new {len(seen)}", at_ms=100)])
    assert seen == list(map(str, expected))


def test_a_page_goes_on_from_no_place_that_there_never_was(book: Book) -> None:
    book.append(CALLS)
    assert book.entries(Filter(), limit=5, before=99) == []
    assert book.following(Filter(), 99, limit=5) == []


def test_a_limit_is_of_calls_and_not_of_attempts(book: Book) -> None:
    book.append([FULL, *CALLS])
    assert [found for _, found in book.entries(Filter(), limit=2)] == [FULL, CALLS[-1]]


def test_a_key_has_spent_what_its_calls_cost(book: Book) -> None:
    late = DAY_MS + 20
    book.append([FULL, entry("a", 10, key="k"), entry("b", late, key="k", duration_ms=5), entry("c", 30, key="other")])
    assert book.spent("k", 0).total == 2
    assert book.spent("k", DAY_MS).total == 1
    assert book.spent("k", 2 * DAY_MS).total == 0
    assert book.spent("nobody", 0).total == 0
    assert book.spent("key_abc", 0).total == FULL.priced > 0
    assert book.spent("k", 0).recent == frozenset()
    assert book.spent("k", 0, recent_since_ms=10).recent == {"a", "b"}
    assert book.spent("k", 5 * DAY_MS, recent_since_ms=late + 5).recent == {"b"}


# A group's names, its calls, and what they cost.
Used: TypeAlias = list[tuple[tuple[str, ...], int, int]]
GROUPS: dict[str, tuple[Callable[[Book], Used], Used]] = {
    "provider": (
        lambda book: used(book, "provider"),
        [(("",), 1, 0), (("groq",), 1, 0), (("openai",), 1, 123_456_789), (("p",), 3, 3)],
    ),
    "model and day": (
        lambda book: used(book, "model", "day"),
        [
            (("fast", "1970-01-01"), 2, 2),
            (("m", "1970-01-01"), 3, 1),
            (("smart", "2023-11-14"), 1, 123_456_789),
        ],
    ),
    "tag": (
        lambda book: used(book, "tag", tag="team"),
        [(("",), 2, 0), (("a",), 1, 1), (("a%",), 1, 1), (("b",), 1, 1), (("search",), 1, 123_456_789)],
    ),
}


@pytest.mark.parametrize(("ask", "expected"), GROUPS.values(), ids=GROUPS)
def test_usage_by(book: Book, ask: Callable[[Book], Used], expected: Used) -> None:
    book.append([*CALLS, replace(FULL, attempts=FULL.attempts[1:])])
    assert ask(book) == expected


def used(book: Book, *by: str, tag: str = "") -> Used:
    return [(row.group, row.calls, row.cost) for row in book.usage(Filter(), by, tag=tag)]  # type: ignore[arg-type]


def test_by_provider_a_call_counts_with_each_that_it_tried(book: Book) -> None:
    book.append([FULL])
    groq, openai = book.usage(Filter(), ["provider"])
    assert (groq.group, groq.calls, groq.cost, groq.unpriced, groq.estimated) == (("groq",), 1, 0, 0, 0)
    assert (openai.group, openai.calls, openai.unpriced, openai.estimated) == (("openai",), 1, 1, 1)
    assert (openai.input, openai.output, openai.cached, openai.cache_write, openai.reasoning) == (100, 51, 20, 10, 7)
    assert book.usage(Filter(providers=("openai",)), ["provider"]) == [openai]
    assert [row.calls for row in book.usage(Filter(providers=("openai",)), [])] == [1]
