"""The summary changes no result, only its speed; and no view scans all of very many calls."""

import asyncio
import multiprocessing
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import product
from pathlib import Path

import pytest
from msgspec.structs import replace

from penstock.gateway.billing.queries import Filter, Grouping
from penstock.gateway.keys.quota import Spender
from penstock.gateway.record.entry import AttemptEntry
from penstock.stores.book.database import Queryable, Row, Value
from penstock.stores.book.sql_book import Book
from penstock.stores.book.sqlite import SqliteDatabase
from penstock.stores.book.time_histogram import BINS, BOUNDS
from penstock.stores.book.writer import BookWriter
from tests.stores.entries import DAY_MS, FULL, entry
from tests.stores.many_calls import OLD_PROVIDER, RARE_KEY, RARE_REPAIR, calls, entries
from tests.stores.places import Place, SqlitePlace

_HALF_HOUR = 1_800_000
_DAYS = 3
_GROUPS: tuple[list[Grouping], ...] = (
    [],
    ["team"],
    ["key"],
    ["model"],
    ["provider"],
    ["outcome"],
    ["day"],
    ["day", "key"],
)
_SPENDERS = (
    *(Spender(key=key) for key in ("key_000000000001", RARE_KEY, "never")),
    *(Spender(team=team) for team in ("acme", "acme/search", "acm")),
    Spender(key="key_000000000001", user="user_7"),
    Spender(team="acme", user="user_7"),
)
_FILTERS = (
    Filter(teams=("acme/search", "acme/support")),
    Filter(users=("user_7", "user_8"), outcomes=("completed", "failed")),
    Filter(attempts=("failed", "timed_out")),
    Filter(attempts=("failed", "completed"), targets=("groq/llama-3.3-70b-versatile", "openai/gpt-4.1")),
    Filter(text="OPEN"),
    Filter(text="is overloaded", keys=("key_000000000001", "key_000000000002")),
    Filter(text="search", text_keys=("key_000000000003",)),
    Filter(),
    Filter(providers=("openai",)),
    Filter(targets=("groq/llama-3.3-70b",), outcomes=("completed",)),
    Filter(repair="no-done"),
    Filter(loss="media-dropped"),
    Filter(loss="media-dropped", providers=("groq",), since_ms=DAY_MS),
    Filter(tags={"team": "search"}),
    Filter(tags={"team": "search"}, providers=("groq",), repair="no-done"),
    Filter(outcomes=("failed",), providers=("groq",)),
    Filter(keys=("key_000000000001",), models=("fast",), since_ms=DAY_MS, until_ms=2 * DAY_MS),
    Filter(repair="no-done", since_ms=DAY_MS, until_ms=2 * DAY_MS),
)


def answers(book: Book) -> list[object]:
    """All that views ask for, over times that begin and end anywhere."""
    spans = ((0, _DAYS * DAY_MS), (7, 7 + _HALF_HOUR), (12_345_678, 2 * DAY_MS + 1), (DAY_MS, DAY_MS + 10), (9, 9))
    buckets = (60_000, _HALF_HOUR, 3 * 3_600_000, 43_200_000, 7 * DAY_MS)
    reported: list[object] = [book.health(*span, bucket) for span, bucket in product(spans, buckets)]
    times = [Filter(), *(Filter(since_ms=since, until_ms=until) for since, until in spans), Filter(until_ms=DAY_MS)]
    reported += [book.usage(wanted, by) for wanted, by in product(times, _GROUPS)]
    asked = [(who, day * DAY_MS) for who, day in product(_SPENDERS, range(_DAYS))]
    reported.append(book.spent_by(asked, recent_since_ms=DAY_MS))
    return reported + [pages(book, wanted) for wanted in _FILTERS]


def pages(book: Book, wanted: Filter) -> list[str]:
    seen: list[str] = []
    before = None
    while page := book.entries(wanted, limit=50, before=before):
        before = page[-1][0]
        seen += [found.id for _, found in page]
    return seen


@pytest.mark.slow
def test_nothing_is_reported_differently_however_far_it_is_summed_up(book: Book) -> None:
    book.append(calls(600))
    expected = answers(book)
    for most in (1, 150, 300):
        assert book.sum_up(most)
        assert answers(book) == expected
    assert not book.sum_up(600), "so many do not wait"
    assert book.sum_up(149)
    assert not book.sum_up(1)
    assert answers(book) == expected


def test_a_sum_over_any_time_is_that_of_its_calls(book: Book) -> None:
    """The times begin and end anywhere in forty days, so that they are filled by slots of every width."""
    chance = random.Random(3)
    made = [replace(call, at_ms=chance.randrange(40 * DAY_MS)) for call in calls(500)]
    book.append(made)
    assert book.sum_up(400)
    for _ in range(60):
        since, until = sorted(chance.choices((chance.randrange(40 * DAY_MS), 0, 16 * DAY_MS, 40 * DAY_MS), k=2))
        found = [call for call in made if since <= call.at_ms < until]
        wanted = Filter(since_ms=since, until_ms=until)
        costs = Counter[str]()
        for call in found:
            costs[call.key] += call.priced
        assert {row.group[0]: row.cost for row in book.usage(wanted, ["key"])} == costs
        assert Counter({row.group: row.calls for row in book.usage(wanted, ["model"])}) == Counter(
            (call.model,) for call in found
        )
        assert sum(row.calls for row in book.usage(wanted, ["day"])) == len(found)


def test_the_most_expensive_groups_come_first(book: Book) -> None:
    made = calls(300)
    book.append(made)
    assert book.sum_up(200)
    groupings: tuple[list[Grouping], ...] = (["key"], ["provider"], ["day", "key"], ["key", "outcome"])
    for by, since_ms in product(groupings, (None, 12_345_678)):
        wanted = Filter(since_ms=since_ms)
        expected = sorted(book.usage(wanted, by), key=lambda row: (-row.cost, -row.calls, row.group))
        assert book.usage(wanted, by, most=4) == expected[:4]
        assert book.usage(wanted, by, most=1_000) == expected


def test_what_comes_late_or_twice_counts_once(book: Book) -> None:
    made = calls(300)
    for start in range(0, 300, 50):
        book.append(made[start : start + 50])
        book.append(made[: start + 20])  # again
        book.sum_up(40)
    while book.sum_up(1):
        pass
    (total,) = book.usage(Filter(), [])
    assert (total.calls, total.cost) == (300, sum(call.priced for call in made))
    rows = book.health(0, _DAYS * DAY_MS, _HALF_HOUR)
    attempts = Counter((attempt.provider, attempt.outcome) for call in made for attempt in call.attempts)
    reported = Counter({(row.provider, word): 0 for row in rows for word in row.outcomes})
    for row in rows:
        for word, count in row.outcomes.items():
            reported[row.provider, word] += count
    assert reported == attempts
    repairs = Counter[str]()
    for call in made:
        repairs.update(call.repairs)
    assert sum((Counter(row.repairs) for row in rows), Counter()) == repairs


def _sum_up(place: Place) -> None:
    book = place.open()
    while book.sum_up(7):
        pass
    book.close()


@pytest.mark.slow
def test_several_processes_may_sum_up_and_book_at_once(place: Place, book: Book) -> None:
    made = calls(280)
    book.append(made[:140])
    context = multiprocessing.get_context("fork")
    processes = [context.Process(target=_sum_up, args=(place,)) for _ in range(3)]
    for process in processes:
        process.start()
    for start in range(140, 280, 20):
        book.append(made[start : start + 20])
    for process in processes:
        process.join(30)
    assert [process.exitcode for process in processes] == [0, 0, 0]
    while book.sum_up(7):
        pass
    (total,) = book.usage(Filter(), [])
    assert (total.calls, total.cost) == (280, sum(call.priced for call in made))


def test_all_that_is_looked_at_together_is_of_one_moment(place: Place) -> None:
    one, other = place.open(), place.open()

    def look(reader: Queryable) -> Sequence[Row]:
        before = reader.fetch("SELECT COUNT(*) FROM calls")
        other.append([entry("meanwhile")])
        assert reader.fetch("SELECT COUNT(*) FROM calls") == before
        return before

    assert one.database.read(look) == [(0,)]
    assert one.usage(Filter(), [])[0].calls == 1
    one.close()
    other.close()


def test_names_as_long_as_they_may_be_are_summed_up(book: Book) -> None:
    long = AttemptEntry(provider="ü" * 600, model="\U0001f600" * 600, outcome="completed", cost=1)
    book.append([replace(FULL, attempts=(long,), repairs={"\U0001f600" * 600: 1}, tags={"ü" * 90: "\U0001f600" * 600})])
    expected = answers(book)
    assert book.sum_up(1)
    assert answers(book) == expected


@pytest.mark.slow
def test_the_writer_sums_up_once_enough_calls_wait(tmp_path: Path) -> None:
    place, sent_text = SqlitePlace(tmp_path), list[str]()

    async def run() -> None:
        writer = BookWriter(place.open, lambda _booked: None, lambda _keys: None, sent_text.append)
        writer.start((), 10)
        writer.put(calls(2_100))
        try:
            wait(place)
        finally:
            writer.close(5)

    asyncio.run(run())
    assert place_of(place) == 2_000
    assert not sent_text


def wait(place: SqlitePlace) -> None:
    deadline = time.monotonic() + 10
    while not place_of(place):
        assert time.monotonic() < deadline
        time.sleep(0.02)


def place_of(place: SqlitePlace) -> int:
    book = place.open(readonly=True)
    (summed,) = book.database.fetch("SELECT value FROM meta WHERE name = 'summed'")[0]
    book.close()
    return int(summed or 0)


def test_there_is_a_column_for_each_bin(book: Book) -> None:
    (row,) = book.database.fetch("SELECT COUNT(*) FROM summed_times")
    assert row == (0,)
    assert BINS == len(BOUNDS) == 83
    book.database.fetch(f"SELECT b{BINS - 1} FROM summed_times")


# At very many calls: what would take long is to search through all of them, or to sort them.


class Watched(SqliteDatabase):
    """Says how each question is answered, and how many steps of SQLite's machine that takes."""

    plans: list[str]
    steps: int

    def watch(self) -> None:
        """From now on."""
        self.plans, self.steps = [], 0
        self._connection.set_progress_handler(self._count, 100)

    def _count(self) -> None:
        self.steps += 100

    def fetch(self, sql: str, parameters: Sequence[Value] = ()) -> list[Row]:
        if sql.lstrip().startswith(("SELECT", "WITH")):
            self.plans += [str(row[-1]) for row in super().fetch(f"EXPLAIN QUERY PLAN {sql}", parameters)]
        return super().fetch(sql, parameters)


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Book]:
    """A book of 30,000 calls, all but the last thousand summed up."""
    place = SqlitePlace(tmp_path_factory.mktemp("many"))
    book = place.open()
    book.append(list(entries(_MANY, 30 * DAY_MS)))
    assert all(book.sum_up(2_900) for _ in range(10))
    book.close()
    watched = Watched(place.path, readonly=True)
    yield Book(watched)
    watched.close()


_MANY = 30_000
_LATE = 29 * DAY_MS
_TRAIT = "SEARCH t USING PRIMARY KEY (kind=? AND name=?"
# How each is looked up, and what is asked.
LISTS: dict[str, tuple[str, Filter]] = {
    "nothing": ("SCAN c USING INDEX calls_by_time", Filter()),
    "time": ("calls_by_time (at_ms>? AND at_ms<?)", Filter(since_ms=DAY_MS, until_ms=2 * DAY_MS)),
    "an outcome": ("calls_by_outcome (outcome=?)", Filter(outcomes=("timed_out",))),
    "an outcome that never was": ("calls_by_outcome (outcome=?)", Filter(outcomes=("orphaned",))),
    "a model": ("calls_by_model (model=?)", Filter(models=("fast",))),
    "a key": ("calls_by_key (key=?)", Filter(keys=("key_000000000001",))),
    "a provider": (_TRAIT, Filter(providers=("groq",))),
    "a provider of long ago": (_TRAIT, Filter(providers=(OLD_PROVIDER,))),
    "a provider that never was": (_TRAIT, Filter(providers=("nobody",))),
    "a target": (_TRAIT, Filter(targets=("groq/llama-3.3-70b",))),
    "a repair": (_TRAIT, Filter(repair="no-done")),
    "a loss that is rare": (_TRAIT, Filter(loss="seal-dropped")),
    "a repair that is rare": (_TRAIT, Filter(repair=RARE_REPAIR)),
    "a tag": (_TRAIT, Filter(tags={"team": "search"})),
    "a tag that never was": (_TRAIT, Filter(tags={"team": "nobody"})),
    "a provider and an outcome": ("calls_by_outcome", Filter(providers=("groq",), outcomes=("timed_out",))),
    "a provider, a repair and time": (_TRAIT, Filter(providers=("groq",), repair="no-done", since_ms=_LATE)),
    "a rare key and an outcome": ("calls_by_key", Filter(keys=(RARE_KEY,), outcomes=("completed",))),
    "two keys": ("calls_by_key (key=?)", Filter(keys=("key_000000000001", RARE_KEY))),
    "two models": ("calls_by_model (model=?)", Filter(models=("fast", "local/smollm2"))),
    "two outcomes": ("calls_by_outcome (outcome=?)", Filter(outcomes=("timed_out", "refused"))),
    "two providers": (_TRAIT, Filter(providers=("groq", OLD_PROVIDER))),
    "two targets": (_TRAIT, Filter(targets=("groq/llama-3.3-70b", "openai/gpt-4.1"))),
    "a failed attempt": (_TRAIT, Filter(attempts=("timed_out",))),
    "a failed attempt at a target": (_TRAIT, Filter(attempts=("timed_out",), targets=("openai/gpt-4.1",))),
    "a loss that is not known": (_TRAIT, Filter(loss="never-heard-of")),
    "a team": ("calls_by_team (team=?)", Filter(teams=("acme/search",))),
    "two teams": ("calls_by_team (team=?)", Filter(teams=("acme/search", "acme/support"))),
    "very many teams": (
        "calls_by_team (team=?)",
        Filter(teams=("acme/search", *(f"acme/team-{number}" for number in range(400)))),
    ),
    "an end user": ("calls_by_user (end_user=?)", Filter(users=("user_7",))),
    "two end users": ("calls_by_user (end_user=?)", Filter(users=("user_7", "user_8"))),
    "a text of a model": ("calls_by_model (model=?)", Filter(text="smollm")),
    "a text of an error": (_TRAIT, Filter(text="is overloaded")),
    "a text of a code": (_TRAIT, Filter(text="unavailab")),
    "a text of a provider": (_TRAIT, Filter(text=OLD_PROVIDER[:5])),
    "a text that is a tag": (_TRAIT, Filter(text="team=search")),
    "a text that is an end user": ("calls_by_user (end_user=?)", Filter(text="user_7")),
    "a text that is an id": ("sqlite_autoindex_calls_1 (id=?)", Filter(text=f"req_{5:024x}")),
    "a text of a key": ("calls_by_key (key=?)", Filter(text="seldom", text_keys=(RARE_KEY,))),
    "a text that is nowhere": (_TRAIT, Filter(text="zzz")),
    "a text and an outcome": (_TRAIT, Filter(text="is overloaded", outcomes=("failed",))),
}


@pytest.mark.slow
@pytest.mark.parametrize("before", [None, 9_000], ids=["first page", "deep in"])
@pytest.mark.parametrize(("how", "wanted"), LISTS.values(), ids=LISTS)
def test_a_list_is_looked_up_by(many: Book, how: str, wanted: Filter, before: int | None) -> None:
    database = many.database
    assert isinstance(database, Watched)
    database.watch()
    many.entries(wanted, limit=100, before=before)
    # To look at each of 30,000 calls takes at least ten times as many steps.
    assert database.steps < _MANY * 4, database.plans
    assert before or any(how in plan for plan in database.plans), database.plans


SUMS: dict[str, Callable[[Book], object]] = {
    "health of a day": lambda book: book.health(_LATE + 77, 30 * DAY_MS + 1, _HALF_HOUR),
    "health of a month": lambda book: book.health(77, 30 * DAY_MS + 1, 43_200_000),
    "spend by key": lambda book: book.usage(Filter(since_ms=77), ["key"]),
    "spend by model": lambda book: book.usage(Filter(since_ms=77), ["model"]),
    "spend by provider": lambda book: book.usage(Filter(since_ms=77), ["provider"]),
    "spend by day": lambda book: book.usage(Filter(since_ms=77), ["day"]),
    "spend by team": lambda book: book.usage(Filter(since_ms=77), ["team"]),
    "the budget of a key": lambda book: book.spent("key_000000000001", 0, recent_since_ms=30 * DAY_MS),
    "the budget of a team": lambda book: book.spent(Spender(team="acme"), 0, recent_since_ms=30 * DAY_MS),
    "the budget of an end user": lambda book: book.spent(
        Spender(key="key_000000000001", user="user_7"), 0, recent_since_ms=30 * DAY_MS
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("what", SUMS)
def test_a_sum_is_not_made_of_all_calls_or_hours(many: Book, what: str) -> None:
    database = many.database
    assert isinstance(database, Watched)
    database.watch()
    SUMS[what](many)
    # A month has 700 hours: the usage of each would take twice to seven times as many steps. Histograms are long rows.
    assert database.steps < _MANY * (100 if "health" in what else 4), database.plans
    scanned = [plan for plan in database.plans if plan.startswith("SCAN") and "USING" in plan and "teams" not in plan]
    assert not scanned, database.plans
    assert any("SEARCH calls USING INTEGER PRIMARY KEY (rowid>?)" in plan for plan in database.plans), database.plans
