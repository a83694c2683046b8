"""Shared accounts in one process: answers reach the loop, an outage is noticed and ends, and closing loses nothing."""

import asyncio
import threading
from collections.abc import Awaitable, Callable

from penstock.gateway.keys.quota import Quota, Spender
from penstock.gateway.keys.store import Spent
from penstock.gateway.limits.account import BudgetUse
from penstock.gateway.limits.admission import Decision, Denial, Grant, Reservation
from penstock.stores.accounts.shared_accounts import SharedAccounts
from tests.stores.accounts_together import KEY, MONTH, NOW, Ledger, MemoryStore, StoreLink, quota

WAIT_S = 10.0
LIMITED = quota(budget=1000, requests_per_minute=10)


class ClosingLink(StoreLink):
    """Notes that it was closed."""

    closed = False

    def close(self) -> None:
        self.closed = True


class Shared:
    """Accounts on a storage in memory, as the loop sees them."""

    def __init__(self, memory: MemoryStore, ask: Callable[[Spender, int, int], Spent] | None = None) -> None:
        self.ledger, self.link = Ledger(), ClosingLink(memory)
        self.accounts = SharedAccounts(self.link, ask or self.ledger.ask, 0.25, self.ledger.clock, retry_s=0.01)
        self.changes: list[tuple[str, bool]] = []
        self.accounts.on_change = lambda name, answers: self.changes.append((name, answers))

    async def reserve(self, id: str, cost: int, limited: Quota = LIMITED) -> Decision:
        answer: asyncio.Future[Decision] = asyncio.get_running_loop().create_future()
        self.accounts.reserve(limited, Reservation(id, cost, 5, NOW, NOW + 3_600_000), answer.set_result)
        return await asyncio.wait_for(answer, WAIT_S)

    async def extend(self, id: str, cost: int) -> Decision:
        answer: asyncio.Future[Decision] = asyncio.get_running_loop().create_future()
        self.accounts.extend(LIMITED, id, cost, 5, answer.set_result)
        return await asyncio.wait_for(answer, WAIT_S)

    async def until(self, holds: Callable[[], bool]) -> None:
        deadline = asyncio.get_running_loop().time() + WAIT_S
        while not holds():
            assert asyncio.get_running_loop().time() < deadline
            await asyncio.sleep(0.002)


def run(
    test: Callable[[Shared], Awaitable[None]], ask: Callable[[Spender, int, int], Spent] | None = None
) -> MemoryStore:
    memory = MemoryStore()

    async def inside() -> None:
        shared = Shared(memory, ask)
        try:
            await test(shared)
        finally:
            shared.accounts.close()
        assert shared.link.closed
        assert "penstock-accounts" not in {thread.name for thread in threading.enumerate()}

    asyncio.run(inside())
    return memory


def test_a_budget_is_shared_and_what_is_left_of_it_is_known() -> None:
    async def test(shared: Shared) -> None:
        accounts = shared.accounts
        assert (accounts.store, accounts.degraded, accounts.used(LIMITED)) == ("shelf", "", BudgetUse())
        shared.ledger.append("before", 100)
        first = await shared.reserve("a", 600)
        assert isinstance(first, Grant)
        assert first.requests is not None
        assert (first.cost, first.requests.remaining) == (600, 9)
        assert accounts.used(LIMITED) == BudgetUse(spent=100, reserved=600)
        assert isinstance(await shared.reserve("b", 301), Denial)
        more = await shared.extend("a", 900)
        assert isinstance(more, Grant)
        assert more.cost == 900
        accounts.settle(KEY, "a", 200, 5)
        later = await shared.reserve("c", 700)
        assert isinstance(later, Grant), later
        accounts.release(KEY, "c")
        assert isinstance(await shared.reserve("d", 700), Grant)

    account = run(test).account()
    assert account is not None
    assert {id: hold.cost for id, hold in account.holds.items()} == {"a": 200, "d": 700}


def test_what_is_booked_is_spent() -> None:
    async def test(shared: Shared) -> None:
        await shared.reserve("a", 600)
        shared.accounts.settle(KEY, "a", 200, 5)
        shared.ledger.append("a", 200)
        shared.accounts.booked([(KEY, "a")])
        await shared.reserve("b", 1)

    account = run(test).account()
    assert account is not None
    assert (account.spent[MONTH], list(account.holds)) == (200, ["b"])


def test_an_outage_is_reported_and_so_is_its_end() -> None:
    async def test(shared: Shared) -> None:
        await shared.reserve("a", 100)
        shared.link.shut = True
        alone = await shared.reserve("b", 200)
        assert isinstance(alone, Grant), "a share of what was left is enough"
        assert isinstance(await shared.reserve("c", 200), Denial), "it is not enough for two"
        await shared.until(lambda: shared.changes == [("shelf", False)])
        assert shared.accounts.degraded == "shelf"
        await asyncio.sleep(0.05)  # some probes find it shut
        assert shared.changes == [("shelf", False)]
        shared.link.shut = False
        await shared.until(lambda: len(shared.changes) == 2)
        assert (shared.changes[1], shared.accounts.degraded) == (("shelf", True), "")
        assert isinstance(await shared.reserve("c", 200), Grant)

    account = run(test).account()
    assert account is not None
    assert {id: hold.cost for id, hold in account.holds.items()} == {"a": 100, "b": 200, "c": 200}


def test_whatever_goes_wrong_a_call_gets_an_answer() -> None:
    def ask(_who: Spender, _since: int, _recent: int) -> Spent:
        raise ZeroDivisionError

    async def test(shared: Shared) -> None:
        denial = await shared.reserve("a", 100)
        assert isinstance(denial, Denial)
        assert (denial.limit, denial.code, denial.retry_after_s) == ("ledger", "ledger_unavailable", 5.0)
        assert isinstance(await shared.reserve("b", 100, quota()), Grant), "without a budget, nothing has to be asked"

    run(test, ask)
