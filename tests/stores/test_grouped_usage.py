"""Usage by months, owners, end users and the tree of teams: it is what the entries add up to, on every store."""

import random
from collections import defaultdict
from datetime import UTC, datetime
from itertools import combinations, product
from pathlib import Path

import pytest
from msgspec.structs import replace

from penstock.gateway.billing.queries import Filter, Grouping
from penstock.gateway.keys.keys import Key
from penstock.gateway.record.entry import AttemptEntry, Entry
from penstock.stores.book.sql_book import Book
from tests.stores.entries import PLAIN_KEY, entry

OWNERS = {"key_1": "ann@acme.com <8f3e>", "key_2": "ann@acme.com <8f3e>", "key_3": "bob@acme.com <77aa>", "key_4": ""}
TEAMS = ("", "acme", "acme/search", "acme/search/prod", "acme/other", "zeta/one")
MADE: tuple[Grouping, ...] = ("month", "owner", "tree", "user")
OTHERS: tuple[Grouping, ...] = ("key", "team", "model", "provider", "day", "outcome")
GROUPINGS: list[list[Grouping]] = [
    *([one] for one in MADE),
    *(list(two) for two in combinations(MADE, 2)),
    *([one, other] for one, other in product(MADE, OTHERS)),
    ["model", "month", "tree"],
    [*MADE],
]


def moment(text: str) -> int:
    return round(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1000)


# The first and last milliseconds of months, of a leap year's February too, are among the times.
EDGES = [moment(text) - late for text in ("2024-03-01", "2026-01-01", "2026-11-01") for late in (1, 0)]
FILTERS = (
    Filter(),
    Filter(since_ms=moment("2025-12-20"), until_ms=moment("2026-11-01")),
    Filter(since_ms=EDGES[2], until_ms=EDGES[2] + 1),
    Filter(since_ms=moment("2030-01-01")),
    Filter(teams=("acme/search", "acme/search/prod")),
    Filter(keys=("key_1", "key_4"), until_ms=moment("2026-01-15")),
)


def made(number: int) -> list[Entry]:
    chance = random.Random(7)

    def attempt() -> AttemptEntry:
        cost = chance.choice((None, chance.randrange(10**12), -5))
        return AttemptEntry(provider=chance.choice("pq"), model="m", outcome="completed", cost=cost)

    return [
        entry(
            f"call_{place}",
            chance.choice([*EDGES, chance.randrange(EDGES[0], EDGES[-1])]),
            key=chance.choice(("", *OWNERS)),
            team=chance.choice(TEAMS),
            user=chance.choice(("", "usr_1", "usr_2")),
            model=chance.choice(("smart", "fast")),
            attempts=tuple(attempt() for _ in range(chance.randrange(3))),
        )
        for place in range(number)
    ]


def matches(call: Entry, wanted: Filter) -> bool:
    return (
        (wanted.since_ms is None or call.at_ms >= wanted.since_ms)
        and (wanted.until_ms is None or call.at_ms < wanted.until_ms)
        and (not wanted.teams or call.team in wanted.teams)
        and (not wanted.keys or call.key in wanted.keys)
    )


def names(call: Entry, group: Grouping, wanted: Filter) -> list[str]:
    at = datetime.fromtimestamp(call.at_ms / 1000, UTC)
    match group:
        case "month":
            return [at.strftime("%Y-%m")]
        case "day":
            return [at.strftime("%Y-%m-%d")]
        case "owner":
            return [OWNERS.get(call.key, "")]
        case "tree":
            parts = call.team.split("/")
            above = ["/".join(parts[: length + 1]) for length in range(len(parts))]
            return [each for each in above if not wanted.teams or each in wanted.teams]
        case "provider":
            return sorted({each.provider for each in call.attempts}) or [""]
        case _:
            return [str(getattr(call, group))]


def expected(calls: list[Entry], by: list[Grouping], wanted: Filter) -> dict[tuple[str, ...], tuple[int, int]]:
    sums: dict[tuple[str, ...], list[int]] = defaultdict(lambda: [0, 0])
    for call in calls:
        for group in product(*(names(call, each, wanted) for each in by)):
            tried = [each for each in call.attempts if "provider" not in by or each.provider in group]
            sums[group][0] += 1
            sums[group][1] += sum(each.cost or 0 for each in tried)
    return {group: (number, cost) for group, (number, cost) in sums.items()}


@pytest.fixture
def filled(book: Book) -> tuple[Book, list[Entry]]:
    calls = made(400)
    keys = [replace(PLAIN_KEY, id=id, owner=owner, digest=id.encode()) for id, owner in OWNERS.items()]
    book.change_keys(lambda *_: list[Key](keys))
    book.append(calls)
    return book, calls


def check(book: Book, calls: list[Entry]) -> None:
    for wanted in FILTERS:
        found = [call for call in calls if matches(call, wanted)]
        for by in GROUPINGS:
            rows = book.usage(wanted, by)
            assert {row.group: (row.calls, row.cost) for row in rows} == expected(found, by, wanted), (by, wanted)
            assert rows == sorted(rows, key=lambda row: row.group)
            by_cost = sorted(rows, key=lambda row: (-row.cost, -row.calls, row.group))
            assert book.usage(wanted, by, most=3) == by_cost[:3]


@pytest.mark.slow
def test_sums_are_those_of_the_entries_however_far_they_are_summed_up(filled: tuple[Book, list[Entry]]) -> None:
    book, calls = filled
    check(book, calls)
    assert book.sum_up(250)
    check(book, calls)


@pytest.mark.slow
def test_archived_calls_stay_in_sums_by_month_owner_and_tree(filled: tuple[Book, list[Entry]], tmp_path: Path) -> None:
    book, calls = filled
    by_all = [by for by in GROUPINGS if "user" not in by]
    before = [book.usage(Filter(), by) for by in by_all]
    while book.sum_up(1):
        pass
    while book.prune(tmp_path / "archives", moment("2026-06-01")):
        pass
    assert book.archived().calls > 200
    assert [book.usage(Filter(), by) for by in by_all] == before
    kept = [call for call in calls if call.at_ms >= moment("2026-06-01")]
    rows = {row.group: (row.calls, row.cost) for row in book.usage(Filter(), ["user"])}
    assert rows == expected(kept, ["user"], Filter())
    assert not Filter().covers_archived(["user"])


def test_a_wrong_clock_does_not_hang_a_report_by_month(book: Book) -> None:
    book.append([entry("now", moment("2026-11-03")), entry("late", 10**18)])
    assert [row.group for row in book.usage(Filter(), ["month"])] == [("2026-11",)]
