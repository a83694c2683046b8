"""A process that cannot reach the storage uses its share, and repairs the accounts when it can again."""

from penstock.errors import BookError
from penstock.gateway.keys.period import period_at
from penstock.gateway.keys.quota import Quota, Spender
from penstock.gateway.keys.store import Spent
from penstock.gateway.limits.admission import Decision, Denial, Grant, Reservation
from penstock.stores.accounts.client import SharedAccountClient
from penstock.stores.accounts.operations import Booked, Extend, Invalidate, Operation, Release, Reserve, Settle
from tests.stores.accounts_together import KEY, MONTH, NOW, Ledger, MemoryStore, StoreLink, join_store, quota

LIMITED = quota(budget=1000)
LASTS = NOW + 3_600_000


def reserve(id: str, cost: int, limited: Quota = LIMITED) -> Operation:
    return Reserve(limited, Reservation(id, cost, 0, NOW, LASTS))


def ask(process: SharedAccountClient, id: str, cost: int, limited: Quota = LIMITED) -> Decision:
    answer = process.apply(KEY, [reserve(id, cost, limited)])[0]
    assert answer
    return answer


def test_alone_no_more_than_a_share_of_what_was_left_is_taken() -> None:
    memory, ledger = MemoryStore(), Ledger()
    process, link = join_store(memory, ledger)
    other, _ = join_store(memory, ledger)
    ask(other, "others", 500)
    ask(process, "mine", 100)
    link.shut = True
    assert [type(ask(process, str(number), 25)) for number in range(5)] == [Grant] * 4 + [Denial]
    assert process.degraded == "shelf"
    denial = ask(process, "5", 25)
    assert isinstance(denial, Denial)
    assert (denial.limit, denial.retry_after_s) == ("budget", 1)
    process.apply(KEY, [Settle("0", 5, 0, NOW), Settle("mine", 20, 0, NOW)])
    assert isinstance(ask(process, "6", 40), Grant), "what calls give back: 20, and a quarter of 80"
    assert isinstance(ask(process, "7", 1), Denial)
    assert isinstance(process.apply(KEY, [Extend(LIMITED, "6", 41, 0, NOW)])[0], Denial)
    link.shut = False
    process.recover()
    account = memory.account()
    assert account
    reserved = {id: hold.cost for id, hold in account.holds.items()}
    assert reserved == {"others": 500, "mine": 20, "0": 5, "1": 25, "2": 25, "3": 25, "6": 40}
    assert process.degraded == ""


def test_requests_count_for_a_minute_whatever_the_storage_loses() -> None:
    limited = quota(requests_per_minute=8)
    memory, ledger = MemoryStore(), Ledger()
    (process, link), (other, _) = join_store(memory, ledger), join_store(memory, ledger)

    def made(by: SharedAccountClient, *ids: str) -> list[type[Decision]]:
        """The answers to calls that have ended without a hold."""
        answers = []
        for id in ids:
            answers.append(type(ask(by, id, 0, limited)))
            by.apply(KEY, [Release(id, NOW)])
        return answers

    def counted() -> int:
        account = memory.account()
        assert account
        return account.requests

    assert made(process, "a", "b") + made(other, "c") == [Grant] * 3
    memory.lies.clear()
    assert made(other, "d") == [Grant]
    assert counted() == 2, "the other one knows its own"
    assert made(process, "e") == [Grant]
    assert counted() == 5
    link.shut = True
    assert made(process, "f", "g") == [Grant, Denial], "a quarter of the 3 that were left, at least 1"
    link.shut = False
    process.recover()
    assert made(process, "h") == [Grant]
    assert counted() == 7
    assert made(other, "i", "j") == [Grant, Denial]
    ledger.now += 60_000
    memory.lies.clear()
    process.apply(KEY, [Reserve(limited, Reservation("k", 0, 0, ledger.now, LASTS))])
    assert counted() == 1, "all others are older than a minute"


def test_each_outage_begins_with_the_last_that_was_seen() -> None:
    memory, ledger = MemoryStore(), Ledger()
    process, link = join_store(memory, ledger)
    other, _ = join_store(memory, ledger)
    ask(process, "a", 100)
    link.shut = True
    ask(process, "b", 100)
    link.shut = False
    process.recover()
    ask(other, "c", 400)
    ask(process, "d", 0)
    link.shut = True
    assert isinstance(ask(process, "e", 101), Denial), "a quarter of 400"
    assert isinstance(ask(process, "e", 100), Grant)


def test_a_new_period_is_seeded_of_its_own_and_the_old_one_still_gets_its_calls() -> None:
    memory, ledger, asked = MemoryStore(), Ledger(), list[int]()

    def ask_ledger(_: Spender, since: int, __: int) -> Spent:
        asked.append(since)
        return Spent(total=0, recent=frozenset())

    process = SharedAccountClient(StoreLink(memory), ask_ledger, 0.25, ledger.clock)
    december = period_at("month", NOW).until
    assert december
    ledger.now = december - 1
    process.apply(KEY, [Reserve(LIMITED, Reservation("old", 1000, 0, ledger.now, LASTS + december))])
    ledger.now = december
    process.apply(KEY, [Reserve(LIMITED, Reservation("new", 1000, 0, ledger.now, LASTS + december))])
    process.apply(KEY, [Settle("old", 900, 0, december), Booked("old", december)])
    account = memory.account()
    assert account
    assert (account.spent, account.owed) == ({MONTH: 900, "2026-12": 0}, {"2026-12": 1000})
    assert asked == [period_at("month", NOW).since, december]


def test_what_ended_while_alone_is_reserved_no_longer() -> None:
    unlimited = quota()
    memory, ledger = MemoryStore(), Ledger()
    process, link = join_store(memory, ledger)
    process.apply(KEY, [reserve("released", 10, unlimited), reserve("booked", 10, unlimited)])
    link.shut = True
    process.apply(KEY, [Release("released", NOW), Settle("booked", 5, 0, NOW), Booked("booked", NOW)])
    link.shut = False
    process.recover()
    account = memory.account()
    assert account
    assert (account.holds, account.open) == ({}, 0)


def test_a_call_that_was_denied_alone_is_not_reserved_though_the_storage_had_granted_it() -> None:
    memory, ledger = MemoryStore(), Ledger()
    process, link = join_store(memory, ledger)
    ask(process, "a", 1)
    link.swallowing = True
    assert isinstance(ask(process, "b", 900), Denial)
    account = memory.account()
    assert account
    assert set(account.holds) == {"a", "b"}
    link.shut = link.swallowing = False
    process.recover()
    account = memory.account()
    assert account
    assert set(account.holds) == {"a"}


def test_what_another_let_go_of_too_early_is_put_back() -> None:
    memory, ledger = MemoryStore(), Ledger()
    process, _ = join_store(memory, ledger)
    ahead, _ = join_store(memory, Ledger())
    ask(process, "a", 10)
    ahead.apply(KEY, [Reserve(LIMITED, Reservation("b", 10, 0, LASTS + 1, LASTS + 2))])
    account = memory.account()
    assert account
    assert set(account.holds) == {"b"}, "its clock is an hour ahead"
    process.apply(KEY, [Settle("a", 7, 0, NOW), Booked("a", NOW)])
    account = memory.account()
    assert account
    assert account.spent == {MONTH: 7}


def test_without_the_ledger_no_one_can_tell_what_is_left_of_a_budget() -> None:
    ledger, fails = Ledger(), [True]

    def ask_ledger(asked: Spender, since: int, recent: int) -> Spent:
        if fails:
            raise BookError("locked")
        return ledger.ask(asked, since, recent)

    process = SharedAccountClient(StoreLink(MemoryStore()), ask_ledger, 0.25, ledger.clock)
    denial = ask(process, "a", 1)
    assert isinstance(denial, Denial)
    assert (denial.limit, denial.code, denial.retry_after_s) == ("ledger", "ledger_unavailable", 5)
    assert isinstance(ask(process, "a", 1, quota(concurrent=1)), Grant), "no budget, no question"
    fails.clear()
    assert isinstance(ask(process, "b", 1), Denial), "it is left alone for a second"
    ledger.now += 1000
    assert isinstance(ask(process, "b", 1), Grant)
    fails.append(True)
    process.apply(KEY, [Invalidate(LIMITED)])
    assert isinstance(ask(process, "c", 1), Grant), "the sum that is known will do"


def test_a_storage_that_was_never_there_does_not_let_a_budget_be_spent_twice() -> None:
    ledger = Ledger()
    ledger.append("before", 800)
    process, link = join_store(MemoryStore(), ledger)
    link.shut = True
    assert isinstance(ask(process, "a", 51), Denial)
    assert isinstance(ask(process, "a", 50), Grant)


def test_what_another_version_wrote_is_seeded_anew() -> None:
    memory, ledger = MemoryStore(), Ledger()
    ledger.append("before", 800)
    memory.lies[KEY] = b"version.", b"\xff\x00"
    process, _ = join_store(memory, ledger)
    assert isinstance(ask(process, "a", 201), Denial)
    assert isinstance(ask(process, "a", 200), Grant)


def test_an_account_that_no_one_needs_is_not_made() -> None:
    memory, ledger = MemoryStore(), Ledger()
    process, _ = join_store(memory, ledger)
    assert process.apply(KEY, [Settle("a", 1, 0, NOW), Booked("a", NOW)]) == [None, None]
    assert memory.account() is None


def test_calls_that_take_long_are_put_back_without_any_message() -> None:
    memory, ledger = MemoryStore(), Ledger()
    process, link = join_store(memory, ledger)
    ask(process, "a", 10)
    memory.lies.clear()
    process.refresh()
    account = memory.account()
    assert account
    assert set(account.holds) == {"a"}
    link.shut = True
    process.refresh()
    assert process.degraded == "shelf"
