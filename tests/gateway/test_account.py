"""An account enforces its limits to the millisecond and the nanodollar, and every operation is idempotent."""

import copy
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.amounts import dollars
from penstock.gateway.keys.period import period_at
from penstock.gateway.keys.quota import Period, Quota
from penstock.gateway.keys.store import Spent
from penstock.gateway.limits.account import (
    Account,
    Hold,
    book,
    expire,
    release,
    restore_holds,
    seed,
    settle,
    wants_seed,
)
from penstock.gateway.limits.accounts import LocalAccounts
from penstock.gateway.limits.admission import Decision, Denial, Grant, Reservation, extend, reserve, with_share

NOW = int(datetime(2026, 11, 15, 12, tzinfo=UTC).timestamp() * 1000)
LONG = 3_600_000


def quota(**limits: Any) -> Quota:
    return Quota(**{"id": "key_1", "period": "month"} | limits)


def ask(account: Account, limited: Quota, id: str, cost: int = 0, tokens: int = 0, now: int = NOW) -> Decision:
    return reserve(account, limited, Reservation(id, cost, tokens, now, now + LONG))


def denied(answer: Decision) -> Denial:
    assert isinstance(answer, Denial)
    return answer


def granted(answer: Decision) -> Grant:
    assert isinstance(answer, Grant)
    return answer


def test_a_budget_is_spent_to_the_nanodollar() -> None:
    account, limited = Account(spent={"2026-11": 90}), quota(budget=100)
    granted(ask(account, limited, "a", 6))
    granted(ask(account, limited, "b", 4))
    assert denied(ask(account, limited, "c", 1)).code == "insufficient_quota"
    settle(account, "a", 5, 0, NOW)
    granted(ask(account, limited, "c", 1))
    assert account.owed == {"2026-11": 10}
    book(account, ["a"], NOW)
    assert account.spent == {"2026-11": 95}


def test_a_denied_budget_says_when_to_come_again() -> None:
    account, limited = Account(spent={"2026-11": 60}), quota(budget=100)
    december = int(datetime(2026, 12, 1, tzinfo=UTC).timestamp() * 1000)
    denial = denied(ask(account, limited, "a", 50))
    assert denial.retry_after_s == (december - NOW) / 1000
    assert "2026-12-01 00:00 UTC" in denial.message
    assert denied(ask(account, limited, "a", 100)).retry_after_s == (december - NOW) / 1000, "all of a month"
    assert denied(ask(account, limited, "a", 101)).retry_after_s is None, "no month has so much"
    granted(ask(account, limited, "a", 30))
    assert denied(ask(account, limited, "b", 30)).retry_after_s == 1, "only a running call stands in its way"
    assert denied(ask(account, limited, "b", 40)).retry_after_s == 1
    assert denied(ask(account, limited, "b", 41)).retry_after_s == (december - NOW) / 1000, (
        "it may cost all of its hold"
    )
    settle(account, "a", 30, 0, NOW)
    denial = denied(ask(account, limited, "b", 30))
    assert denial.retry_after_s == (december - NOW) / 1000, "it is over, though not booked: it gives nothing back"
    whole = Account(spent={"total": 60})
    assert denied(ask(whole, quota(budget=100, period="total"), "a", 50)).retry_after_s is None


def test_requests_are_limited_in_every_minute() -> None:
    account, limited = Account(), quota(requests_per_minute=2)
    granted(ask(account, limited, "a", now=NOW + 500))
    grant = granted(ask(account, limited, "b", now=NOW + 30_000))
    assert grant.requests
    assert (grant.requests.limit, grant.requests.remaining, grant.requests.reset_s) == (2, 0, 60)
    denial = denied(ask(account, limited, "c", now=NOW + 60_499))
    assert (denial.code, denial.limit, denial.retry_after_s) == ("rate_limit_exceeded", "requests", 0.001)
    granted(ask(account, limited, "c", now=NOW + 60_500))
    assert denied(ask(account, limited, "d", now=NOW + 60_500)).retry_after_s == 29.5
    assert denied(ask(Account(), quota(requests_per_minute=0), "a")).retry_after_s is None


@given(
    st.integers(1, 5),
    st.lists(st.tuples(st.integers(0, 20_000), st.integers(0, 40), st.booleans()), max_size=60),
)
def test_no_minute_has_more_than_the_limits_wherever_it_begins(most: int, waits: list[tuple[int, int, bool]]) -> None:
    account, limited = Account(), quota(requests_per_minute=most, tokens_per_minute=100)
    now, admitted = NOW, list[tuple[int, int]]()
    for number, (wait, tokens, settled) in enumerate(waits):
        now += wait
        inside = [each for each in admitted if each[0] > now - 60_000]
        answer = ask(account, limited, str(number), tokens=tokens, now=now)
        if isinstance(answer, Grant):
            if settled:
                settle(account, str(number), 0, tokens // 2, now)
            admitted.append((now, tokens // 2 if settled else tokens))
            assert len(inside) < most
            assert sum(each[1] for each in inside) + tokens <= 100
        elif answer.retry_after_s is not None:
            after = copy.deepcopy(account)
            then = now + round(answer.retry_after_s * 1000)
            late = reserve(after, limited, Reservation("x", 0, tokens, then, then + LONG))
            assert isinstance(late, Grant) or late.limit != answer.limit, "it is worth coming again then"
            early = reserve(account, limited, Reservation("x", 0, tokens, then - 1, then + LONG))
            assert isinstance(early, Denial), "and not before"
            now = then - 1


def test_tokens_are_limited_in_every_minute_and_given_back() -> None:
    account, limited = Account(), quota(tokens_per_minute=100)
    granted(ask(account, limited, "a", tokens=60))
    granted(ask(account, limited, "b", tokens=40, now=NOW + 10_000))
    assert denied(ask(account, limited, "c", tokens=60, now=NOW + 10_000)).retry_after_s == 50
    assert denied(ask(account, limited, "c", tokens=61, now=NOW + 10_000)).retry_after_s == 60
    settle(account, "a", 0, 20, NOW + 11_000)
    granted(ask(account, limited, "c", tokens=40, now=NOW + 11_000))
    settle(account, "b", 0, 45, NOW + 12_000)
    assert (account.tokens, account.minute[NOW // 1000 + 12][1]) == (105, 5), "a shortfall is counted when it is known"
    expire(account, NOW + 72_000)
    assert (account.tokens, account.requests, account.minute) == (0, 0, {})


def test_a_call_that_no_minute_has_room_for_is_reported() -> None:
    denial = denied(ask(Account(), quota(tokens_per_minute=100), "a", tokens=101))
    assert denial.retry_after_s is None
    assert "never" in denial.message


def test_a_running_stream_is_stopped_by_its_budget_only() -> None:
    account, limited = Account(spent={"2026-11": 0}), quota(budget=100, tokens_per_minute=10)
    granted(ask(account, limited, "a", 10, 10))
    granted(extend(account, limited, "a", 100, 50, NOW + 61_000))
    assert (account.tokens, account.owed) == (40, {"2026-11": 100})
    denial = denied(extend(account, limited, "a", 101, 50, NOW + 61_000))
    assert (denial.limit, account.holds["a"].cost) == ("budget", 100)
    settle(account, "a", 100, 40, NOW + 62_000)
    assert account.tokens == 40, "what left the window cannot be given back to another second"


def test_a_call_takes_what_is_left_if_it_can_do_with_less() -> None:
    account, limited = Account(spent={"2026-11": 60}), quota(budget=100, tokens_per_minute=50)

    def take(id: str, cost: int, least_cost: int | None, tokens: int = 0, least_tokens: int | None = None) -> Decision:
        wanted = Reservation(id, cost, tokens, NOW, NOW + LONG, least_cost, least_tokens)
        return reserve(copy.deepcopy(account), limited, wanted)

    assert granted(take("a", 30, 10)).cost == 30
    assert granted(take("a", 90, 10)).cost == 40
    assert granted(take("a", 90, 40)).cost == 40
    assert "up to $0.000000041" in denied(take("a", 90, 41)).message, "no less than its least"
    denied(take("a", 90, None))
    grant = granted(take("a", 90, 10, 80, 20))
    assert grant.tokens
    assert (grant.cost, grant.tokens.remaining) == (40, 0), "both are reduced"
    assert granted(take("a", 30, 10, 80, 50)).cost == 30
    assert denied(take("a", 30, 10, 80, 51)).limit == "tokens"
    assert denied(take("a", 30, 10, 80)).limit == "tokens"
    unlimited = reserve(Account(), quota(), Reservation("a", 90, 80, NOW, NOW + LONG, 10, 20))
    assert granted(unlimited).cost == 90


def test_an_extension_gets_what_is_left_unless_that_is_too_little() -> None:
    limited = quota(budget=1000)
    for spent, answer in ((0, 300), (700, 300), (701, 299), (987, 13), (998, 2), (999, None), (1000, None)):
        account = Account(spent={"2026-11": spent - 100})
        granted(ask(account, limited, "a", 100))
        extended = extend(account, limited, "a", 400, 0, NOW)
        assert (extended.cost - 100 if isinstance(extended, Grant) else None) == answer, spent
    assert extend(Account(), limited, "unknown", 400, 0, NOW) == Grant()
    unknown = Account()
    granted(ask(unknown, quota(), "a", 100))
    assert granted(extend(unknown, limited, "a", 4000, 0, NOW)).cost == 4000, "what was spent is not known"


def test_an_extension_is_no_request_and_its_tokens_count_when_they_are_used() -> None:
    account, limited = Account(), quota(requests_per_minute=9, tokens_per_minute=100)
    for id in ("a", "b"):
        granted(ask(account, limited, id, tokens=10))
    grant = granted(extend(account, limited, "a", 0, 30, NOW + 5_000))
    assert grant.requests
    assert grant.tokens
    assert (grant.requests.remaining, grant.tokens.remaining, grant.requests.reset_s) == (7, 60, 60)
    assert [account.minute[second][:2] for second in sorted(account.minute)] == [[2, 20], [0, 20]]
    release(account, "a", NOW + 6_000)
    assert account.tokens == 30, "what was counted later stays: the call has used it"
    later = granted(extend(account, limited, "b", 0, 10, NOW + 65_000))
    assert later.requests
    assert (later.requests.remaining, later.requests.reset_s) == (9, 0)


def test_a_second_counts_until_its_newest_request_is_a_minute_old() -> None:
    account, limited = Account(), quota(requests_per_minute=2)
    granted(ask(account, limited, "a"))
    granted(ask(account, limited, "b", now=NOW + 900))
    assert denied(ask(account, limited, "c", now=NOW + 60_500)).retry_after_s == 0.4
    granted(ask(account, limited, "c", now=NOW + 60_900))


def test_no_more_tokens_are_given_back_than_their_second_has() -> None:
    account, limited = Account(), quota(tokens_per_minute=100)
    granted(ask(account, limited, "a", tokens=60))
    expire(account, NOW - 86_400_000)
    granted(ask(account, limited, "b", tokens=10))
    release(account, "a", NOW)
    assert (account.tokens, account.minute[NOW // 1000][:2]) == (0, [1, 0])


def test_holds_that_are_restored_count_in_their_own_second() -> None:
    account, limited = Account(), quota(requests_per_minute=1)
    expire(account, NOW)
    restore_holds(account, {"a": Hold(7, 7, NOW // 1000 - 30, "2026-11", NOW + LONG)})
    assert (account.requests, account.tokens) == (1, 7)
    assert denied(ask(account, limited, "b", now=NOW + 29_999)).retry_after_s == 0.001
    granted(ask(account, limited, "b", now=NOW + 30_000))


def test_calls_under_way_are_counted() -> None:
    account, limited = Account(), quota(concurrent=2)
    granted(ask(account, limited, "a"))
    granted(ask(account, limited, "b"))
    assert denied(ask(account, limited, "c")).code == "too_many_concurrent_requests"
    settle(account, "a", 0, 0, NOW)
    granted(ask(account, limited, "c"))
    release(account, "b", NOW)
    granted(ask(account, limited, "d"))
    assert (account.open, account.requests) == (2, 4)


def test_a_call_counts_in_the_period_of_its_admission() -> None:
    account, limited = Account(spent={"2026-11": 0}), quota(budget=100)
    last = int(datetime(2026, 12, 1, tzinfo=UTC).timestamp() * 1000) - 1
    granted(ask(account, limited, "a", 100, now=last))
    denied(ask(account, limited, "b", 1, now=last))
    granted(ask(account, limited, "b", 100, now=last + 1))
    settle(account, "a", 70, 0, last + 5)
    seed(account, period_at("month", last + 5), Spent(total=0, recent=frozenset()), last + 5)
    book(account, ["a"], last + 5)
    assert account.spent == {"2026-11": 70, "2026-12": 0}


def test_what_is_never_settled_goes_and_makes_the_account_stale() -> None:
    account, limited = Account(spent={"2026-11": 0}), quota(budget=10, concurrent=1)
    granted(ask(account, limited, "a", 10))
    denied(ask(account, limited, "b", 1, now=NOW + LONG))
    before = account.stale
    granted(ask(account, limited, "b", 1, now=NOW + LONG + 1))
    assert (before, account.stale) == (False, True)
    assert wants_seed(account, limited, NOW)


@pytest.mark.parametrize(("late", "stale"), [(20_000, False), (20_001, True)])
def test_what_is_booked_late_makes_the_account_stale(late: int, stale: bool) -> None:
    account = Account(spent={"2026-11": 0})
    granted(ask(account, quota(budget=10), "a", 10))
    settle(account, "a", 9, 0, NOW + 5)
    book(account, ["a"], NOW + 5 + late)
    assert (account.spent, account.stale) == ({"2026-11": 9}, stale)


def test_a_clock_that_is_set_back_locks_no_one_out() -> None:
    account, limited = Account(), quota(requests_per_minute=1)
    granted(ask(account, limited, "a"))
    grant = granted(ask(account, limited, "b", now=NOW - 86_400_000))
    assert grant.requests
    assert grant.requests.reset_s <= 60


def test_seeding_takes_over_what_the_ledger_has() -> None:
    account = Account(spent={"2026-11": 5})
    limited = quota(budget=100)
    for id in ("a", "b", "c"):
        granted(ask(account, limited, id, 10))
    settle(account, "a", 8, 0, NOW)
    seed(account, period_at("month", NOW), Spent(total=13, recent=frozenset(("a",))), NOW)
    assert (account.spent, set(account.holds)) == ({"2026-11": 13}, {"b", "c"})
    before = copy.deepcopy(account)
    settle(account, "a", 8, 0, NOW)
    book(account, ["a"], NOW)
    restore_holds(account, {"a": Hold(8, 0, NOW // 1000, "2026-11", NOW + LONG, False)})
    assert account == before, "its sum has this call already"
    seed(account, period_at("day", NOW), Spent(total=13, recent=frozenset(("a",))), NOW)
    assert account.owed == {"2026-11-15": 20}, "calls under way count in the periods that the key now has"


def test_seeding_keeps_a_sum_only_while_something_is_owed_to_it() -> None:
    account, november = Account(spent={"2026-09": 1, "2026-10": 2}), period_at("month", NOW)
    october = NOW - 31 * 86_400_000
    granted(ask(account, quota(budget=100), "a", 10, now=october))
    seed(account, november, Spent(total=3, recent=frozenset()), NOW)
    assert account.spent == {"2026-10": 2, "2026-11": 3}
    assert account.owed == {"2026-10": 10}, "it was admitted in another month"
    seed(account, period_at("total", NOW), Spent(total=4, recent=frozenset()), NOW)
    assert (account.owed, account.spent) == ({"total": 10}, {"total": 4})


def test_the_ids_of_a_seed_are_known_for_a_minute() -> None:
    account = Account()
    seed(account, period_at("month", NOW), Spent(total=3, recent=frozenset(("a",))), NOW)
    expire(account, NOW + 60_000)
    assert account.seed_ids == {"a"}
    expire(account, NOW + 60_001)
    assert account.seed_ids == set()


def test_every_operation_may_come_twice() -> None:
    account, limited = Account(spent={"2026-11": 0}), quota(budget=1000)

    def twice(operation: Any) -> None:
        operation()
        before = copy.deepcopy(account)
        operation()
        assert account == before

    twice(lambda: ask(account, limited, "a", 10, 10))
    twice(lambda: extend(account, limited, "a", 20, 20, NOW))
    twice(lambda: settle(account, "a", 15, 15, NOW))
    twice(lambda: release(account, "a", NOW))
    twice(lambda: extend(account, limited, "a", 90, 90, NOW))
    ask(account, limited, "b", 10, 10)
    twice(lambda: release(account, "b", NOW))
    hold = Hold(7, 7, NOW // 1000, "2026-11", NOW + LONG)
    twice(lambda: restore_holds(account, {"c": hold}))
    twice(lambda: seed(account, period_at("month", NOW), Spent(total=1, recent=frozenset()), NOW))
    book(account, ["a"], NOW)
    book(account, ["a"], NOW)
    assert account.spent == {"2026-11": 16}
    assert account.stale, "a call that nobody knows of is a reason to ask the ledger"


@pytest.mark.parametrize(
    ("period", "at", "label", "since", "until"),
    [
        ("day", "2028-02-29T23:59:59", "2028-02-29", "2028-02-29", "2028-03-01"),
        ("month", "2028-02-29T00:00:00", "2028-02", "2028-02-01", "2028-03-01"),
        ("month", "2027-02-28T23:59:59", "2027-02", "2027-02-01", "2027-03-01"),
        ("month", "2026-12-31T23:59:59", "2026-12", "2026-12-01", "2027-01-01"),
        ("week", "2026-11-15T23:59:59", "2026-W46", "2026-11-09", "2026-11-16"),
        ("week", "2026-11-16T00:00:00", "2026-W47", "2026-11-16", "2026-11-23"),
        ("week", "2027-01-01T00:00:00", "2026-W53", "2026-12-28", "2027-01-04"),
    ],
)
def test_periods_follow_the_calendar(period: Period, at: str, label: str, since: str, until: str) -> None:
    def ms(text: str) -> int:
        return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1000)

    found = period_at(period, ms(at) + 999)
    assert (found.label, found.since, found.until) == (label, ms(since), ms(until))


def test_periods_follow_one_another() -> None:
    for period in ("day", "week", "month"):
        at = int(datetime(2023, 12, 25, tzinfo=UTC).timestamp() * 1000)
        found = period_at(period, at)
        for _ in range(800):
            at += int(timedelta(days=1).total_seconds() * 1000)
            following = period_at(period, at)
            assert following.since <= at < (following.until or 0)
            assert following == found or following.since == found.until
            found = following
    assert period_at("total", NOW).until is None


def test_a_share_is_taken_of_what_is_left() -> None:
    account = Account(spent={"2026-11": 60}, open=2, requests=10, newest=NOW)
    account.minute = {NOW // 1000: [10, 0, NOW]}
    share = with_share(
        account, quota(budget=100, requests_per_minute=20, tokens_per_minute=100, concurrent=3), 0.25, NOW
    )
    limits = (share.budget, share.requests_per_minute, share.tokens_per_minute, share.concurrent)
    assert limits == (10, 2, 25, 1), "one call at least, where one is left"
    assert with_share(account, quota(concurrent=2), 0.25, NOW).concurrent == 0
    assert with_share(account, quota(concurrent=5), 0.25, NOW).concurrent == 1
    assert with_share(account, quota(requests_per_minute=9), 0.25, NOW).requests_per_minute == 0
    assert with_share(account, quota(budget=50), 0.25, NOW).budget == 0
    assert with_share(account, quota(), 0.25, NOW) == quota()
    assert with_share(account, quota(requests_per_minute=20), 0.25, NOW + 61_000).requests_per_minute == 5, (
        "all are back"
    )


def test_an_account_is_the_same_when_it_is_read_again() -> None:
    account, limited = (
        Account(spent={"2026-11": 60}, seed_ids={"x"}, seeded=NOW),
        quota(budget=100, tokens_per_minute=9),
    )
    ask(account, limited, "a", 5, 5)
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(account), type=Account) == account


def test_one_process_keeps_its_accounts_itself() -> None:
    accounts, answers = LocalAccounts(clock=lambda: NOW), list[Decision]()
    limited = quota(budget=100)
    accounts.seed(limited, Spent(total=90, recent=frozenset()))
    accounts.reserve(limited, Reservation("a", 10, 0, NOW, NOW + LONG), answers.append)
    accounts.extend(limited, "a", 11, 0, answers.append)
    accounts.settle(limited.id, "a", 4, 0)
    accounts.booked([(limited.id, "a"), ("key_2", "b")])
    accounts.reserve(limited, Reservation("b", 7, 0, NOW, NOW + LONG), answers.append)
    accounts.reserve(limited, Reservation("c", 6, 0, NOW, NOW + LONG), answers.append)
    assert [type(answer) for answer in answers] == [Grant, Denial, Denial, Grant]
    accounts.release(limited.id, "c")
    accounts.reserve(limited, Reservation("d", 6, 0, NOW, NOW + LONG), answers.append)
    assert isinstance(answers.pop(), Grant)
    accounts.close()


def test_one_process_loses_no_call_however_long_it_takes_or_its_ledger_does() -> None:
    times, answers = [NOW], list[Decision]()
    accounts = LocalAccounts(clock=lambda: times[-1])
    limited = quota(budget=100)
    accounts.reserve(limited, Reservation("a", 60, 0, NOW, NOW + 1), answers.append)
    times.append(NOW + LONG)
    accounts.settle(limited.id, "a", 50, 0)
    times.append(NOW + 5 * LONG)
    accounts.reserve(limited, Reservation("b", 51, 0, times[-1], times[-1]), answers.append)
    accounts.booked([(limited.id, "a")])
    accounts.reserve(limited, Reservation("b", 51, 0, times[-1], times[-1]), answers.append)
    accounts.reserve(limited, Reservation("b", 50, 0, times[-1], times[-1]), answers.append)
    assert [type(answer) for answer in answers] == [Grant, Denial, Denial, Grant]


@pytest.mark.parametrize(
    ("amount", "text"),
    [(0, "$0.00"), (5_000_000_000, "$5.00"), (1_234_500, "$0.0012345"), (-1_500_000_000, "-$1.50")],
)
def test_money_is_written_as_people_read_it(amount: int, text: str) -> None:
    assert dollars(amount) == text
