"""The pseudonyms that a process remembers, and what it does while the store does not answer."""

import asyncio
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from penstock.errors import BookError
from penstock.stores.content.end_users import MAX_KNOWN, PREFIX, EndUsers
from penstock.stores.content.open import open_file
from penstock.stores.content.sql_content import SqlContent


class StoreThread:
    """Runs work at once, or fails it, or holds it back. `jobs` counts the work."""

    def __init__(self, store: SqlContent) -> None:
        self.store = store
        self.failing = self.holding = False
        self.jobs = 0
        self._queued: list[Callable[[], None]] = []

    def __call__(self, work: Callable[[SqlContent], Any], then: Callable[[Any], None]) -> None:
        self.jobs += 1

        def job() -> None:
            then(BookError("the disk is full") if self.failing else work(self.store))

        if self.holding:
            self._queued.append(job)
        else:
            asyncio.get_running_loop().call_soon(job)

    def release(self) -> None:
        self.holding, queued, self._queued = False, self._queued, []
        for job in queued:
            job()


class World:
    def __init__(self, store: SqlContent) -> None:
        self.thread = StoreThread(store)
        self.users = EndUsers(self.thread)

    async def ask(self, name: str) -> str:
        """The pseudonym that a call gets."""
        if known := self.users.known(name):
            return known
        found: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.users.find(name, found.set_result)
        return await asyncio.wait_for(found, 30)


def run(tmp_path: Path, test: Callable[[World], Any]) -> None:
    async def main() -> None:
        with closing(open_file(tmp_path / "content.db")) as store:
            await test(World(store))

    asyncio.run(main())


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """No timer fires during a test, on however busy a machine."""
    for name in ("_WAIT_S", "_CHECK_S"):
        monkeypatch.setattr(f"penstock.stores.content.end_users.{name}", 60.0)


@pytest.mark.usefixtures("patient")
def test_a_user_is_looked_up_once_and_has_one_pseudonym_everywhere(tmp_path: Path) -> None:
    async def test(world: World) -> None:
        first, *more = await asyncio.gather(*(world.ask("ann") for _ in range(3)))
        assert first.startswith(PREFIX)
        assert more == [first, first]
        assert await world.ask("ann") == first
        assert world.thread.jobs == 1
        assert await World(world.thread.store).ask("ann") == first
        assert await world.ask("bob") != first

    run(tmp_path, test)


@pytest.mark.usefixtures("patient")
def test_users_that_come_together_are_looked_up_together(tmp_path: Path) -> None:
    async def test(world: World) -> None:
        found = await asyncio.gather(*(world.ask(f"user {number}") for number in range(300)))
        assert len(set(found)) == 300
        assert world.thread.jobs == 2  # the first alone, then all that came meanwhile

    run(tmp_path, test)


def test_a_call_does_not_wait_for_a_slow_store_and_its_user_is_found_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.stores.content.end_users._WAIT_S", 0.05)

    async def test(world: World) -> None:
        elsewhere = await World(world.thread.store).ask("ann")
        world.thread.holding = True
        early = await world.ask("ann")
        assert early != elsewhere
        assert await world.ask("ann") == early
        monkeypatch.setattr("penstock.stores.content.end_users._WAIT_S", 60.0)
        await world.ask("bob")  # no other call waits
        world.thread.release()
        while len(found := world.thread.store.users.find("ann")) < 2:  # noqa: ASYNC110 - the store changes it
            await asyncio.sleep(0.01)
        assert [each.id for each in found] == [elsewhere, early]
        assert await world.ask("ann") == elsewhere

    run(tmp_path, test)


def test_a_store_that_fails_delays_no_call_and_loses_no_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.stores.content.end_users._RETRY_S", 0.02)
    monkeypatch.setattr("penstock.stores.content.end_users._WAIT_S", 60.0)

    async def test(world: World) -> None:
        world.thread.failing = True
        first = await world.ask("ann")
        second = await world.ask("bob")
        world.thread.failing = False
        while not all(world.thread.store.users.find(name) for name in ("ann", "bob")):  # noqa: ASYNC110 - a timer changes it
            await asyncio.sleep(0.01)
        found = {name: world.thread.store.users.find(name)[0].id for name in ("ann", "bob")}
        assert found == {"ann": first, "bob": second}
        assert world.users.known("ann") == first

    run(tmp_path, test)


def test_an_erasure_elsewhere_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.stores.content.end_users._CHECK_S", 0.02)

    async def test(world: World) -> None:
        before = await world.ask("ann")
        await asyncio.sleep(0.05)
        assert world.users.known("ann") == before
        world.thread.store.users.erase("ann")
        while world.users.known("ann"):  # noqa: ASYNC110 - a timer of the tested code changes it
            await asyncio.sleep(0.01)
        assert await world.ask("ann") != before

    run(tmp_path, test)


@pytest.mark.slow
def test_the_names_in_memory_are_bounded(tmp_path: Path) -> None:
    async def test(world: World) -> None:
        world.thread.failing = True
        for number in range(MAX_KNOWN + 500):
            world.users.find(f"user {number}", lambda _: None)
        assert world.users.size == MAX_KNOWN
        await asyncio.sleep(0.01)
        assert (await world.ask("one more")).startswith(PREFIX)

    run(tmp_path, test)
