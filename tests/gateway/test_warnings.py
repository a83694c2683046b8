"""Budget warnings: which percentages of which budgets are reached, and that each is found once per period."""

import msgspec
import pytest

from penstock.gateway.keys.keys import Key
from penstock.gateway.limits.account import Account, BudgetUse
from penstock.gateway.limits.admission import Denial, Reservation, extend, reserve
from penstock.gateway.limits.warnings import BudgetWatch, watched_budgets
from penstock.gateway.teams.chain import Chain
from penstock.gateway.teams.team import Team

NOW = 1_794_700_800_000  # 2026-11-15
DAY_MS = 86_400_000
KEY = Key(id="key_1", name="ci", digest=b"", hint="", created_ms=1, budget=1_000, period="month", team="acme/search")
QUOTA = Chain([]).client_key(KEY).quotas[0]


def watch() -> BudgetWatch:
    teams = [
        Team(path="acme", created_ms=1, budgets={"total": 5_000, "day": 100}),
        Team(path="acme/search", created_ms=1, budgets={"month": 0}, requests_per_minute=5),
    ]
    key = msgspec.structs.replace(KEY, budgets={"day": 200})
    watch = BudgetWatch()
    watch.use(watched_budgets([Chain(teams).client_key(key)]))
    return watch


def test_each_percentage_is_found_once_per_period() -> None:
    found = watch()

    def percentages(spent: int, now_ms: int = NOW) -> list[int]:
        return [warning.percent for warning in found.check("key_1", spent, now_ms)]

    assert percentages(499) == []
    assert percentages(500) == [50]
    assert percentages(799) == []
    assert percentages(1_000) == [80, 100]
    assert percentages(1_200) == []
    assert percentages(0, NOW + 30 * DAY_MS) == []
    assert percentages(800, NOW + 30 * DAY_MS) == [50, 80]


def test_a_warning_names_the_level_and_the_budget() -> None:
    found = watch()
    for account, expected in {
        "key_1": ("key", "key_1", "ci", "month", "2026-11", 1_000),
        "key_1:day": ("key", "key_1", "ci", "day", "2026-11-15", 200),
        "team:acme:total": ("organisation", "acme", "acme", "total", "total", 5_000),
        "team:acme:day": ("organisation", "acme", "acme", "day", "2026-11-15", 100),
    }.items():
        (warning,) = found.check(account, expected[-1] // 2, NOW)
        assert warning.account == account
        named = (warning.kind, warning.name, warning.title, warning.period, warning.label, warning.budget)
        assert named == expected


def test_what_is_left_is_reported_by_name_for_keys_and_teams() -> None:
    found = watch()
    used = {
        "key_1": BudgetUse(300, 200),
        "key_1:day": BudgetUse(150),
        "team:acme:total": BudgetUse(0, 6_000),
        "team:acme:day": BudgetUse(None, 10),
    }
    assert found.remaining(lambda account: used[account.id], NOW) == {
        ("key", "ci", "month"): 0.5,
        ("key", "ci", "day"): 0.25,
        ("organisation", "acme", "total"): 0.0,
    }
    found.use(watched_budgets([Chain([]).client_key(msgspec.structs.replace(KEY, revoked_ms=1))]))
    assert found.remaining(lambda _: BudgetUse(1), NOW) == {}


def test_accounts_without_a_budget_and_of_end_users_are_not_watched() -> None:
    found = watch()
    for account in ("team:acme/search", "team:acme/search:month", "user:key_1:abc:day", "key_2"):
        assert account not in found
        assert found.account(account) is None
        assert found.check(account, 10**12, NOW, refused=True) == []
    assert found
    assert "key_1:day" in found
    assert (quota := found.account("key_1:day")) is not None
    assert quota.budget == 200
    found.use({})
    assert not found
    assert "key_1:day" not in found


def test_a_refusal_is_a_warning_of_all() -> None:
    found = watch()
    (warning,) = found.check("key_1", 400, NOW, refused=True)
    assert (warning.percent, warning.refused, warning.spent) == (100, True, 400)
    assert found.check("key_1", 400, NOW, refused=True) == []
    assert [(each.percent, each.refused) for each in found.check("key_1", 1_000, NOW)] == [(50, False), (80, False)]


@pytest.mark.parametrize(
    ("spent", "reserved", "cost", "exhausted"),
    [
        (900, 0, 200, "key_1"),
        (0, 900, 200, ""),  # the rest is only reserved
        (0, 0, 1_001, ""),  # more than the whole budget
    ],
)
def test_only_a_budget_that_is_spent_is_exhausted(spent: int, reserved: int, cost: int, exhausted: str) -> None:
    account = Account(never_expires=True, spent={"2026-11": spent})
    if reserved:
        reserve(account, QUOTA, Reservation("a", reserved, 0, NOW, NOW + 1_000))
    denial = reserve(account, QUOTA, Reservation("b", cost, 0, NOW, NOW + 1_000))
    assert isinstance(denial, Denial)
    assert denial.exhausted == exhausted


def test_a_stream_that_gets_no_more_exhausts_the_budget() -> None:
    account = Account(never_expires=True, spent={"2026-11": 900})
    reserve(account, QUOTA, Reservation("a", 100, 0, NOW, NOW + 1_000))
    denial = extend(account, QUOTA, "a", 200, 0, NOW)
    assert isinstance(denial, Denial)
    assert denial.exhausted == "key_1"
