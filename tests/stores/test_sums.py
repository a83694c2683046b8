"""For any entries, `usage` returns the sum of the entries, by every grouping."""

from collections import defaultdict
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import combinations, count
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from penstock.gateway.billing.queries import Filter, Grouping, UsageRow
from penstock.gateway.record.entry import AttemptEntry, Entry
from penstock.stores.book.sql_book import Book
from tests.stores.entries import many_entries
from tests.stores.places import Place, PostgresPlace, SqlitePlace

pytestmark = pytest.mark.slow

GROUPINGS: tuple[Grouping, ...] = ("key", "model", "provider", "day", "tag", "outcome", "team")
ALL = [list(by) for size in range(len(GROUPINGS) + 1) for by in combinations(GROUPINGS, size)]


def expected(entries: list[Entry], by: list[Grouping]) -> list[UsageRow]:
    """The same by adding up."""
    groups: dict[tuple[str, ...], list[tuple[str, AttemptEntry | None]]] = defaultdict(list)
    for entry in entries:
        for attempt in entry.attempts or [None]:
            groups[tuple(name(entry, attempt, group) for group in by)].append((entry.id, attempt))
    if not by and not groups:
        groups[()] = []
    return [add_up(group, parts) for group, parts in sorted(groups.items())]


def add_up(group: tuple[str, ...], parts: list[tuple[str, AttemptEntry | None]]) -> UsageRow:
    attempts = [(id, attempt) for id, attempt in parts if attempt]
    return UsageRow(
        group=group,
        calls=len({id for id, _ in parts}),
        input=sum(attempt.tokens.input for _, attempt in attempts),
        output=sum(attempt.tokens.output for _, attempt in attempts),
        cached=sum(attempt.tokens.cached for _, attempt in attempts),
        cache_write=sum(attempt.tokens.cache_write for _, attempt in attempts),
        reasoning=sum(attempt.tokens.reasoning for _, attempt in attempts),
        cost=sum(attempt.cost or 0 for _, attempt in attempts),
        saved=sum(attempt.saved for _, attempt in attempts),
        unpriced=len({id for id, attempt in attempts if attempt.cost is None}),
        approximate=len({id for id, attempt in attempts if attempt.approximate}),
        estimated=len({id for id, attempt in attempts if attempt.measure == "estimated"}),
    )


def name(entry: Entry, attempt: AttemptEntry | None, group: Grouping) -> str:
    match group:
        case "key":
            return entry.key
        case "model":
            return entry.model
        case "provider":
            return attempt.provider if attempt else ""
        case "day":
            return datetime.fromtimestamp(entry.at_ms / 1000, UTC).date().isoformat()
        case "tag":
            return entry.tags.get("team", "")
        case "outcome":
            return entry.outcome
        case "team":
            return entry.team
        case _:
            raise AssertionError(f"tests of {group} are in test_grouped_usage.py")


def kept(entries: list[Entry], wanted: Filter) -> list[Entry]:
    return [
        entry
        for entry in entries
        if (wanted.since_ms is None or entry.at_ms >= wanted.since_ms)
        and (not wanted.keys or entry.key in wanted.keys)
        and (not wanted.repair or wanted.repair in entry.repairs)
        and (not wanted.loss or wanted.loss in entry.losses)
        and wanted.tags.items() <= entry.tags.items()
    ]


FILTERS = st.builds(
    Filter,
    since_ms=st.none() | st.integers(0, 10**9),
    keys=st.lists(st.sampled_from(["", "key_a", "key_b"])).map(tuple),
    repair=st.sampled_from(["", "no-done"]),
    loss=st.sampled_from(["", "", "media-dropped"]),
    tags=st.dictionaries(st.sampled_from(["team", "env"]), st.sampled_from(["x", "y"])),
)


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def fresh(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Book]:
    """One book for all examples: each has a tag of its own. A book for each would take ten times as long."""
    place: Place
    if request.param == "sqlite":
        place = SqlitePlace(Path(tmp_path_factory.mktemp("sums")))
    else:
        place = PostgresPlace(request.getfixturevalue("postgres"))
    book = place.open()
    yield book
    book.close()


NUMBERS = count()


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(entries=many_entries(), wanted=FILTERS)
def test_usage_is_the_sum_of_the_entries(fresh: Book, entries: list[Entry], wanted: Filter) -> None:
    example = f"example {next(NUMBERS)}"
    entries = [replace(entry, id=f"{example} {entry.id}", tags={**entry.tags, "run": example}) for entry in entries]
    wanted = replace(wanted, tags={**wanted.tags, "run": example})
    fresh.append(entries)
    for by in ALL:
        assert fresh.usage(wanted, by, tag="team") == expected(kept(entries, wanted), by), by
    listed = [entry for _, entry in fresh.entries(wanted, limit=100)]
    assert sorted(listed, key=lambda entry: entry.id) == sorted(kept(entries, wanted), key=lambda entry: entry.id)
    for key in ("", "key_a"):
        here = replace(wanted, keys=(key,), since_ms=None, repair="", tags={"run": example})
        assert fresh.usage(here, [])[0].cost == sum(entry.priced for entry in kept(entries, here))
