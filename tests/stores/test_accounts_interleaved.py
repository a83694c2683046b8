"""Flushing, booking and seeding interleave in every possible order: no call counts twice, and none is lost."""

import threading
from collections.abc import Callable, Iterator

import pytest

from penstock.gateway.keys.quota import Spender
from penstock.gateway.keys.store import Spent
from penstock.gateway.limits.account import Account
from penstock.gateway.limits.admission import Reservation
from penstock.stores.accounts.client import SharedAccountClient
from penstock.stores.accounts.operations import Booked, Operation, Reserve, Settle
from tests.stores.accounts_together import KEY, MONTH, NOW, Ledger, MemoryStore, StoreLink, quota

pytestmark = pytest.mark.slow

LIMITED = quota(budget=1000)
LASTS = NOW + 3_600_000


class Actor:
    """A task that runs in steps, one at each call."""

    def __init__(self, does: Callable[["Actor"], None]) -> None:
        self._go, self._stands = threading.Semaphore(0), threading.Semaphore(0)
        self.ended = False
        self.failure: Exception | None = None
        self._thread = threading.Thread(target=self._run, args=(does,), daemon=True)
        self._thread.start()

    def step(self) -> None:
        self._go.release()
        assert self._stands.acquire(timeout=10)
        if self.failure:
            raise self.failure

    def pause(self) -> None:
        if threading.current_thread() is self._thread:
            self._stands.release()
            self._go.acquire()

    def _run(self, does: Callable[["Actor"], None]) -> None:
        self._go.acquire()
        try:
            does(self)
        except Exception as error:  # noqa: BLE001 - told to the test
            self.failure = error
        self.ended = True
        self._stands.release()


class SlowLink(StoreLink):
    """Something else may happen before anything is done."""

    def __init__(self, memory: MemoryStore, pause: Callable[[], None]) -> None:
        super().__init__(memory)
        self._pause = pause

    def pause(self) -> None:
        self._pause()


class World:
    """Two processes, one of which has a call to book, and what is to happen at once."""

    def __init__(self, swallowing: bool) -> None:
        self.memory, self.ledger = MemoryStore(), Ledger()
        self.actors: list[Actor] = []
        self.links: list[StoreLink] = []
        first, second = self.process(), self.process()
        first.apply(KEY, [reserve("a"), Settle("a", 70, 0, NOW), reserve("open")])
        second.apply(KEY, [reserve("other")])
        self.first, self.second = first, second
        if swallowing:
            self.links[0].swallowing = True
        self.actors += [Actor(self.books), Actor(self.asks), Actor(self.flushes)]

    def process(self) -> SharedAccountClient:
        self.links.append(SlowLink(self.memory, self.pause))
        return SharedAccountClient(self.links[-1], self.ask, 0.25, self.ledger.clock)

    def pause(self) -> None:
        for actor in self.actors:
            actor.pause()

    def ask(self, asked: Spender, since: int, recent: int) -> Spent:
        self.pause()
        answer = self.ledger.ask(asked, since, recent)
        self.pause()
        return answer

    def books(self, actor: Actor) -> None:
        self.ledger.append("a", 70)
        actor.pause()
        self.first.apply(KEY, [Booked("a", NOW)])

    def asks(self, _: Actor) -> None:
        self.second.apply(KEY, [reserve("b")])

    def flushes(self, _: Actor) -> None:
        self.memory.lies.clear()

    def run(self, choices: list[int]) -> list[int]:
        """Continue in the chosen order, then with the first task; returns how many there were at each choice."""
        numbers: list[int] = []
        while runnable := [actor for actor in self.actors if not actor.ended]:
            place = len(numbers)
            numbers.append(len(runnable))
            runnable[choices[place] if place < len(choices) else 0].step()
        return numbers

    def account(self) -> Account:
        """The account, once all have been heard."""
        self.actors.clear()
        for link, process in zip(self.links, (self.first, self.second), strict=True):
            link.shut = link.swallowing = False
            if process.degraded:
                process.recover()
            process.refresh()
        account = self.memory.account()
        assert account
        return account


def reserve(id: str) -> Operation:
    return Reserve(LIMITED, Reservation(id, 100, 0, NOW, LASTS))


def worlds(swallowing: bool) -> Iterator[tuple[World, list[int]]]:
    """Every order there is: each is run from the beginning, with the last choice that can be another changed."""
    choices: list[int] = []
    while True:
        world = World(swallowing)
        numbers = world.run(choices)
        choices += [0] * (len(numbers) - len(choices))
        yield world, choices
        while choices and choices[-1] + 1 >= numbers[len(choices) - 1]:
            choices.pop()
        if not choices:
            return
        choices[-1] += 1


@pytest.mark.parametrize("swallowing", [False, True], ids=["answered", "unanswered"])
def test_in_every_order_each_call_counts_once(swallowing: bool) -> None:
    orders = seeded = 0
    for world, choices in worlds(swallowing):
        account = world.account()
        assert account.spent == {MONTH: 70}, choices
        assert {id: hold.cost for id, hold in account.holds.items()} == {"open": 100, "other": 100, "b": 100}, choices
        assert account.owed == {MONTH: 300}, choices
        orders += 1
        seeded += "a" in account.seed_ids
    assert orders > 100
    assert 0 < seeded <= orders
