"""A call is reserved at every level above its key, all or none; and never is any budget exceeded, whatever races."""

import asyncio
import random
import threading
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from penstock.gateway.keys.client_key import ClientKey
from penstock.gateway.keys.keys import Key, KeyLimits
from penstock.gateway.keys.quota import Quota, Spender
from penstock.gateway.keys.store import Spent
from penstock.gateway.keys.team_path import ancestry
from penstock.gateway.limits.accounts import LocalAccounts
from penstock.gateway.limits.admission import Decision, Denial, Grant, Reservation
from penstock.gateway.limits.chained import ChainedAccounts
from penstock.gateway.teams.chain import Chain, account_ids, end_user_quotas
from penstock.gateway.teams.members import MemberLimits
from penstock.gateway.teams.team import Team
from penstock.stores.accounts.shared_accounts import SharedAccounts
from tests.stores.accounts_together import NOW, MemoryStore, StoreLink

LASTS = NOW + 3_600_000
TEAMS = (
    Team(path="acme", created_ms=1, budgets={"day": 900, "month": 1000}, requests_per_minute=100, models=("a*", "b")),
    Team(path="acme/search", created_ms=1, budgets={"month": 600}, models=("*1",)),
    Team(path="acme/search/prod", created_ms=1, budgets={"total": 400}, concurrent=3),
    Team(
        path="acme/ads",
        created_ms=1,
        end_users=KeyLimits(budgets={"day": 50}, requests_per_minute=9),
        members=KeyLimits(budgets={"month": 120}, concurrent=2),
    ),
)


def key(id: str, team: str = "", **settings: object) -> Key:
    return Key(id=id, name=id, digest=b"", hint="", created_ms=1, team=team, **settings)  # type: ignore[arg-type]


def resolved(key: Key, *teams: Team) -> ClientKey:
    return Chain(teams).client_key(key)


def chain(key: ClientKey, user: str = "") -> tuple[Quota, ...]:
    return key.quotas + (end_user_quotas(key, user) if user else ())


KEYS = [
    resolved(key, *TEAMS)
    for key in (
        key("plain", budget=100, requests_per_minute=5),
        key("ci", "acme/search/prod", budget=300, budgets={"day": 250}),
        key("web", "acme/search", budget=500),
        key("ads", "acme/ads", end_users=KeyLimits(concurrent=1)),
    )
]
PLAIN, CI, WEB, ADS = KEYS
OF_MEMBERS = [
    resolved(key(id, "acme/ads", owner=owner), *TEAMS) for id, owner in (("a1", "ann <1>"), ("a2", "Ann <1>"))
]
ANN1, ANN2 = OF_MEMBERS


def test_a_chain_goes_from_the_key_to_its_organisation() -> None:
    assert [account.id for account in chain(CI)] == [
        "ci",
        "ci:day",
        "team:acme/search/prod",
        "team:acme/search/prod:total",
        "team:acme/search:month",
        "team:acme",
        "team:acme:day",
        "team:acme:month",
    ]
    users = [account.id.rpartition(":")[0] if account.budget else account.id for account in chain(ADS, "eve")[4:]]
    assert [id[: id.rindex(":")] for id in users] == ["user:ads", "user:team:acme/ads", "user:team:acme/ads"]
    assert chain(ADS, "eve")[4:] != chain(ADS, "bob")[4:]
    own = Quota(
        id="plain", spender=Spender(key="plain"), budget=100, period="month", requests_per_minute=5, holder="this key"
    )
    assert chain(PLAIN) == (own,)
    # A process that takes over the calls of another knows only what their entries say.
    for key, user in ((CI, ""), (ADS, "eve")):
        assert {account.id for account in chain(key, user)} <= set(account_ids(key.id, key.team, user, key.owner))


def test_a_member_has_one_account_for_all_its_keys_beside_that_of_its_team() -> None:
    ids = [account.id for account in ANN1.quotas]
    assert ids[0] == "a1"
    assert ids[1:] == [account.id for account in ANN2.quotas[1:]]
    assert [id.rpartition(":")[0] if "member" in id else id for id in ids[1:]] == [
        "member:acme/ads",
        ids[1],
        "team:acme",
        "team:acme:day",
        "team:acme:month",
    ]
    assert ids[2] == f"{ids[1]}:month"
    assert set(ids) <= set(account_ids("a1", "acme/ads", "", "ann <1>"))
    raised = MemberLimits(team="acme/ads", member="1", who="ann <1>", budgets={"month": 500})
    chains = Chain(TEAMS, [raised])
    hers, his = (chains.client_key(key("k", "acme/ads", owner=owner)).quotas for owner in ("ann <1>", "ann <2>"))
    assert [(each.budget, each.concurrent) for each in hers[1:3]] == [(None, 2), (500, None)]
    assert [(each.budget, each.concurrent) for each in his[1:3]] == [(None, 2), (120, None)]
    assert {each.id for each in hers[1:3]} & {each.id for each in his[1:3]} == set()


def test_a_model_must_be_allowed_at_every_level() -> None:
    own = structs.replace(WEB, models=("a1", "b"))
    assert [model for model in ("a1", "a2", "b", "b1") if own.allows(model)] == ["a1"]
    assert [model for model in ("a1", "a2", "b", "b1") if WEB.allows(model)] == ["a1"]
    assert [model for model in ("a1", "b", "c") if ADS.allows(model)] == ["a1", "b"]
    assert PLAIN.allows("anything")
    assert [own.forbids(model) for model in ("a1", "a2", "b")] == ["", "this key", "the team of this key"]
    assert WEB.forbids("b") == "the team of this key"
    assert (WEB.restricted, PLAIN.restricted) == (True, False)


def test_a_budget_of_any_level_is_a_budget() -> None:
    assert [each.budgeted for each in KEYS] == [True] * 4
    free = resolved(key("free", "acme"), Team(path="acme", created_ms=1, concurrent=3))
    assert not free.budgeted
    users = resolved(key("free", end_users=KeyLimits(budgets={"day": 1})))
    assert users.budgeted


@pytest.mark.parametrize("blocked", ancestry("acme/search/prod"))
def test_a_team_that_is_blocked_or_deleted_closes_its_keys(blocked: str) -> None:
    def changed(**state: int) -> str:
        teams = [structs.replace(team, **state) if team.path == blocked else team for team in TEAMS]
        return resolved(key("ci", "acme/search/prod"), *teams).refusal(NOW)

    assert f"{blocked} of this key is blocked" in changed(blocked_ms=1)
    assert "was deleted" in changed(deleted_ms=1)
    assert resolved(key("ci", "gone"), *TEAMS).refusal(NOW) == (
        "the team gone of this key was deleted; ask for another key"
    )


def test_a_refusal_names_the_level_what_is_left_and_when_it_resets() -> None:
    accounts = ChainedAccounts(LocalAccounts(lambda: NOW))
    answers: list[Decision] = []
    accounts.reserve(chain(WEB), Reservation("one", 500, 10, NOW, LASTS), answers.append)
    accounts.reserve(chain(CI), Reservation("two", 150, 10, NOW, LASTS), answers.append)
    granted, denied = answers
    assert isinstance(granted, Grant)
    assert isinstance(denied, Denial)
    assert denied.holder == "the team acme/search"
    assert denied.message.startswith(
        "the budget of the team acme/search, $0.0000006 for 2026-11, is reserved for calls"
    )
    settled: list[Decision] = []
    local = LocalAccounts(lambda: NOW)
    local.seed(WEB.quotas[1], Spent(total=590, recent=frozenset()))
    ChainedAccounts(local).reserve(chain(WEB), Reservation("one", 50, 10, NOW, LASTS), settled.append)
    assert isinstance(settled[0], Denial)
    assert "has $0.00000001 left, and this call may cost up to $0.00000005" in settled[0].message
    assert "wait until 2026-12-01 00:00 UTC" in settled[0].message


def test_what_is_granted_is_what_all_levels_have() -> None:
    accounts = ChainedAccounts(LocalAccounts(lambda: NOW))
    answers: list[Decision] = []
    accounts.reserve(chain(CI), Reservation("one", 999, 10, NOW, LASTS, least_cost=1), answers.append)
    accounts.extend(chain(CI), "one", 9_999, 20, answers.append)
    first, more = answers
    assert isinstance(first, Grant)
    assert (first.cost, first.requests and first.requests.remaining) == (250, 99)
    assert isinstance(more, Denial)  # its own further budget is used up


@dataclass
class Tree:
    """What all calls of all keys have reserved and spent, by account, kept by the test itself."""

    holds: dict[str, tuple[tuple[Quota, ...], int]] = field(default_factory=dict)
    spent: dict[str, int] = field(default_factory=dict)

    def exposed(self, account: Quota) -> int:
        reserved = sum(cost for accounts, cost in self.holds.values() if account in accounts)
        return reserved + self.spent.get(account.id, 0)


COMMANDS = st.lists(
    st.tuples(
        st.sampled_from(("reserve", "reserve", "extend", "settle", "release")),
        st.integers(0, 4),
        st.integers(0, 300),
        st.integers(0, 99),
    ),
    max_size=60,
)


@given(COMMANDS)
@settings(max_examples=100)
def test_no_budget_is_exceeded_and_a_refused_call_leaves_nothing(commands: list[tuple[str, int, int, int]]) -> None:
    local, tree = LocalAccounts(lambda: NOW), Tree()
    accounts = ChainedAccounts(local)
    keys = [*KEYS[1:], *OF_MEMBERS]
    for number, (command, which, cost, pick) in enumerate(commands):
        answers: list[Decision] = []
        ids = sorted(tree.holds)
        if command == "reserve":
            levels, id = chain(keys[which]), f"call_{number}"
            # What is held, and not what the test counts: a denied extension may hold more (below).
            amounts = {level.id: local.used(level).reserved + tree.spent.get(level.id, 0) for level in levels}
            fits = all(level.budget is None or amounts[level.id] + cost <= level.budget for level in levels)
            accounts.reserve(levels, Reservation(id, cost, 1, NOW, LASTS), answers.append)
            busy = any(
                level.concurrent is not None
                and sum(level in accounts for accounts, _ in tree.holds.values()) >= level.concurrent
                for level in levels
            )
            assert isinstance(answers[0], Grant) == (fits and not busy)
            if isinstance(answers[0], Grant):
                tree.holds[id] = levels, answers[0].cost
        elif ids:
            id = ids[pick % len(ids)]
            levels, reserved = tree.holds[id]
            if command == "extend":
                accounts.extend(levels, id, reserved + cost, 1, answers.append)
                if isinstance(answers[0], Grant):
                    tree.holds[id] = levels, max(reserved, answers[0].cost)
            else:
                del tree.holds[id]
                spent = reserved * pick // 99 if command == "settle" else 0
                for level in levels:
                    if command == "settle":
                        local.settle(level.id, id, spent, 1)
                        local.booked([(level.id, id)])
                        tree.spent[level.id] = tree.spent.get(level.id, 0) + spent
                    else:
                        local.release(level.id, id)
        for level in {level.id: level for each in keys for level in chain(each)}.values():
            if level.budget is not None:
                exposed = tree.exposed(level)
                assert exposed <= level.budget
                # An account before the one that denied an extension may hold more, until the call is settled.
                assert local.used(level).reserved + tree.spent.get(level.id, 0) >= exposed
    for id, (levels, cost) in tree.holds.items():
        for level in levels:
            local.settle(level.id, id, cost, 1)
    for level in (level for each in keys for level in chain(each)):
        if level.budget is not None:
            assert local.used(level).reserved + tree.spent.get(level.id, 0) == tree.exposed(level)


class LockedLink(StoreLink):
    """A link to the storage for the thread of one process."""

    def __init__(self, memory: MemoryStore, lock: threading.Lock) -> None:
        super().__init__(memory)
        self._lock = lock

    def load(self, account_id: str) -> tuple[bytes, bytes] | None:
        with self._lock:
            return super().load(account_id)

    def swap(
        self, account_id: str, expected: bytes | None, version: bytes, data: bytes
    ) -> tuple[bool, tuple[bytes, bytes] | None]:
        with self._lock:
            return super().swap(account_id, expected, version, data)


def test_calls_that_race_in_three_processes_never_exceed_their_organisation() -> None:
    """Each thread is a process. A call may be refused although it would fit a moment later, but none is too many."""
    memory, lock, chance = MemoryStore(), threading.Lock(), random.Random(20)
    ledger: dict[str, int] = {}
    running: dict[str, int] = {}
    most = 0

    def fetch(_who: Spender, _since: int, _recent: int) -> Spent:
        return Spent(total=0, recent=frozenset())

    async def call(process: SharedAccounts, number: int) -> bool:
        nonlocal most
        levels, id, cost = (
            chain((CI, WEB, ADS, ANN1, ANN2)[number % 5], "eve"[: number % 2]),
            f"call_{number}",
            chance.randrange(90),
        )
        answer: asyncio.Future[Decision] = asyncio.get_running_loop().create_future()
        ChainedAccounts(process).reserve(levels, Reservation(id, cost, 1, NOW, LASTS), answer.set_result)
        if isinstance(await answer, Denial):
            return False
        running[id] = cost
        hers = [cost for id, cost in (running | ledger).items() if int(id.removeprefix("call_")) % 5 >= 3]
        assert sum(hers) <= 120
        most = max(most, sum(running.values()) + sum(ledger.values()))
        await asyncio.sleep(0)
        spent = chance.randrange(cost + 1)
        del running[id]
        ledger[id] = spent
        for level in levels:
            process.settle(level.id, id, spent, 1)
            process.booked([(level.id, id)])
        return True

    async def race() -> list[bool]:
        processes = [SharedAccounts(LockedLink(memory, lock), fetch, 0.25, lambda: NOW) for _ in range(3)]
        results = await asyncio.gather(*(call(processes[number % 3], number) for number in range(60)))
        for process in processes:
            process.close()
        return results

    admitted = asyncio.run(race())
    assert True in admitted
    assert False in admitted
    assert 0 < most <= 900
    organisation = next(account for account in WEB.quotas if account.id == "team:acme:day")
    seen = LocalAccounts(lambda: NOW)
    assert seen.used(organisation).reserved == 0
    stored = {id: SharedAccountsReader(memory).spent(id) for id in ("team:acme:day", "team:acme:month")}
    assert stored == {"team:acme:day": sum(ledger.values()), "team:acme:month": sum(ledger.values())}


class SharedAccountsReader:
    """Reads accounts from the storage."""

    def __init__(self, memory: MemoryStore) -> None:
        self._memory = memory

    def spent(self, id: str) -> int:
        account = self._memory.account(id)
        assert account is not None
        assert account.holds == {}
        return sum(account.spent.values())


def test_a_call_that_an_organisation_refuses_does_not_count_as_a_request_of_its_key() -> None:
    team = Team(path="acme", created_ms=1, requests_per_minute=2)
    limited = resolved(key("a", "acme", requests_per_minute=5), team)
    accounts = LocalAccounts(lambda: NOW)
    answers: list[Decision] = []
    for number in range(9):
        ChainedAccounts(accounts).reserve(chain(limited), Reservation(f"c{number}", 0, 7, NOW, LASTS), answers.append)
    assert [isinstance(answer, Grant) for answer in answers] == [True, True] + [False] * 7
    assert accounts.last_minute("a") == (2, 14)
    assert isinstance(answers[-1], Denial)
    assert answers[-1].message.startswith("the organisation acme may make 2 requests per minute: try again in 60.000 s")


# End users


def test_each_end_user_has_its_own_limits() -> None:
    memory = MemoryStore()
    spent = {"eve": 45}

    def fetch(who: Spender, _since: int, _recent: int) -> Spent:
        return Spent(total=spent.get(who.user, 0), recent=frozenset())

    async def run() -> list[Decision]:
        def open_users() -> SharedAccounts:
            return SharedAccounts(StoreLink(memory), fetch, 1.0, lambda: NOW)

        accounts = LocalAccounts(lambda: NOW, open_users)
        chained, answers = ChainedAccounts(accounts), []
        for number, user in enumerate(("eve", "bob", "bob", "")):
            answer: asyncio.Future[Decision] = asyncio.get_running_loop().create_future()
            chained.reserve(chain(ADS, user), _call(number), answer.set_result)
            answers.append(await asyncio.wait_for(answer, 10))
        for account in chain(ADS, "bob"):
            accounts.settle(account.id, "call_1", 20, 1)
            accounts.booked([(account.id, "call_1")])
        answer = asyncio.get_running_loop().create_future()
        chained.reserve(chain(ADS, "bob"), _call(9), answer.set_result)
        answers.append(await asyncio.wait_for(answer, 10))
        accounts.close()
        return answers

    eve, bob, again, without, afterwards = asyncio.run(run())
    assert isinstance(eve, Denial)
    assert eve.message.startswith("the budget of this end user of the team acme/ads, $0.00000005 for 2026-11-15, has $")
    assert isinstance(bob, Grant)
    assert isinstance(again, Denial)  # one at a time
    assert again.limit == "concurrent"
    assert (isinstance(without, Grant), isinstance(afterwards, Grant)) == (True, True)


def _call(number: int) -> Reservation:
    return Reservation(f"call_{number}", 10, 1, NOW, LASTS)
