"""The writer reports whether its thread is booking, whatever happened to that thread."""

import asyncio
import time
from contextlib import closing
from pathlib import Path

import pytest
from msgspec.structs import replace

from penstock.errors import BookError
from penstock.gateway.keys.changes import KeyChange, create, update
from penstock.gateway.keys.terms import KeyTerms, KeyUpdate
from penstock.gateway.teams.changes import TeamTerms, TeamUpdate
from penstock.gateway.teams.changes import create as create_team
from penstock.gateway.teams.changes import update as update_team
from penstock.stores.book.sql_book import Book
from penstock.stores.book.writer import BookWriter, Keys, SpentAccounts
from tests.stores.entries import entry
from tests.stores.places import SqlitePlace


def test_it_is_alive_from_its_start_to_its_end(tmp_path: Path) -> None:
    async def run() -> list[bool]:
        writer = BookWriter(SqlitePlace(tmp_path).open, lambda _booked: None, lambda _keys: None, print)
        alive = [writer.alive]
        writer.start([], 10)
        alive.append(writer.alive)
        writer.close(10)
        return [*alive, writer.alive]

    assert asyncio.run(run()) == [False, True, False]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_one_that_dies_of_an_error_is_not_alive() -> None:
    def no_book() -> Book:
        raise BookError("there is none")

    def fail(_reported: str) -> None:
        raise OSError("nobody can be told")

    async def run() -> None:
        writer = BookWriter(no_book, lambda _booked: None, lambda _keys: None, fail)
        writer.start([], 0.01)
        deadline = time.monotonic() + 10
        while writer.alive:
            assert time.monotonic() < deadline, "it is taken for alive"
            await asyncio.sleep(0.01)
        writer.close(10)  # its thread has ended, so that its exception belongs to no later test

    asyncio.run(run())


def test_a_key_outside_the_book_has_the_limits_of_its_team(tmp_path: Path) -> None:
    now_ms = time.time_ns() // 1_000_000
    place = SqlitePlace(tmp_path)
    with closing(place.open()) as book:
        create_team(book, TeamTerms(path="acme", budgets={"day": 5}), now_ms)
        book.append([replace(entry("new", key="jwt:acme", at_ms=now_ms), team="acme")])

    seeded: list[SpentAccounts] = []

    async def run() -> tuple[Keys, Keys]:
        seeds: asyncio.Queue[Keys] = asyncio.Queue()
        writer = BookWriter(place.open, lambda _booked: None, seeds.put_nowait, print)
        writer.on_spent = seeded.append
        writer.use_jwt_teams(frozenset({"acme", "never-created"}))
        writer.start([], 10)
        first = await asyncio.wait_for(seeds.get(), 10)
        with closing(place.open()) as book:
            update_team(book, "acme", TeamUpdate(blocked=True), now_ms)
        writer.put(())  # so that it looks for changes now
        second = await asyncio.wait_for(seeds.get(), 10)
        writer.close(10)
        return first, second

    first, second = asyncio.run(run())
    (limited,) = first.of_jwts  # the team of the other key does not exist
    assert [(account.id, account.budget) for account in limited.quotas[1:]] == [("team:acme:day", 5 * 10**9)]
    spent = {account.id: spent.total for found in seeded for account, spent in found.accounts}
    assert spent["team:acme:day"] == entry("new").priced
    assert "is blocked" in second.of_jwts[0].refusal(now_ms)


def test_a_key_with_another_period_is_seeded_again(tmp_path: Path) -> None:
    now_ms = time.time_ns() // 1_000_000
    place = SqlitePlace(tmp_path)
    with closing(place.open()) as book:
        key = create(book, KeyTerms(name="a", budget="5", period="day"), now_ms).key
        book.append([entry("old", key=key.id, at_ms=now_ms - 40 * 86_400_000), entry("new", key=key.id, at_ms=now_ms)])
        cost = entry("new").priced

    async def run() -> list[int]:
        seeds: asyncio.Queue[Keys] = asyncio.Queue()
        seeded: list[SpentAccounts] = []
        writer = BookWriter(place.open, lambda _booked: None, seeds.put_nowait, print)
        writer.on_spent = seeded.append
        writer.start([], 10)
        await asyncio.wait_for(seeds.get(), 10)
        with closing(place.open()) as book:
            update(book, [KeyChange("a", KeyUpdate(period="total", tokens_per_minute=5))], now_ms)
        writer.put(())
        await asyncio.wait_for(seeds.get(), 10)
        with closing(place.open()) as book:
            update(book, [KeyChange("a", KeyUpdate(budget="7"))], now_ms)
        writer.put(())
        await asyncio.wait_for(seeds.get(), 10)
        writer.close(10)
        return [spent.total for found in seeded for _, spent in found.accounts]

    assert asyncio.run(run()) == [cost, 2 * cost]


def test_only_spending_that_another_gateway_has_booked_is_read_again(tmp_path: Path) -> None:
    now_ms = time.time_ns() // 1_000_000
    place = SqlitePlace(tmp_path)
    with closing(place.open()) as book:
        create_team(book, TeamTerms(path="acme", budgets={"month": "5"}), now_ms)
        first, second, other = (
            create(book, KeyTerms(name=name, budget="5", team=team), now_ms).key
            for name, team in (("a", "acme"), ("b", "acme"), ("c", ""))
        )

    async def run() -> list[list[tuple[str, int]]]:
        keys: asyncio.Queue[Keys] = asyncio.Queue()
        seeded: asyncio.Queue[SpentAccounts] = asyncio.Queue()
        writer = BookWriter(place.open, lambda _booked: None, keys.put_nowait, print, reread_s=0.0)
        writer.on_spent = seeded.put_nowait
        writer.start([], 10)
        found = [await asyncio.wait_for(seeded.get(), 10)]
        with closing(place.open()) as book:
            book.append([replace(entry("new", key=first.id, at_ms=now_ms), team="acme")])
        writer.put(())
        found.append(await asyncio.wait_for(seeded.get(), 10))
        writer.close(10)
        assert keys.qsize() == 1, "the keys have not changed, so the event loop does not get them again"
        return [[(account.id, spent.total) for account, spent in each.accounts] for each in found]

    start, later = asyncio.run(run())
    assert sorted(start) == sorted((id, 0) for id in (first.id, second.id, other.id, "team:acme:month"))
    assert sorted(later) == sorted((id, entry("new").priced) for id in (first.id, "team:acme:month"))
