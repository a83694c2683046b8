"""Budget warnings: 50, 80 and 100 % of a budget are spent. Pure: the time is always a parameter.

Each warning is made once per account, period and percentage. `BudgetWatch` finds what this process has not warned of
yet; the book decides which process was the first (`Book.claim_warnings`), so that each is made once. The book also has
which of them wait for the webhook, so that any process can send them (`serve/webhook.py`).

A reservation is refused before all of a budget is spent. So a refusal for want of money is a warning of 100 % too.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Literal, NamedTuple, TypeAlias

from msgspec import Struct

from penstock.gateway.keys.client_key import ClientKey
from penstock.gateway.keys.owner import user_parts
from penstock.gateway.keys.period import period_at
from penstock.gateway.keys.quota import Period, Quota
from penstock.gateway.keys.team_path import level_of
from penstock.gateway.limits.account import BudgetUse

PERCENTAGES = (50, 80, 100)
Delivery: TypeAlias = Literal["none", "waiting", "delivered", "failed"]
"""To the webhook: `none` if there was no webhook, `failed` if it was given up."""


class BudgetWarning(Struct, frozen=True, kw_only=True):
    """A part of a budget is spent. Money is in nanodollars, time in milliseconds since 1970."""

    account: str
    """The id of the account, as in `gateway/teams/chain.py`."""
    label: str
    """The period, such as `2026-11`."""
    percent: int
    period: Period
    kind: str
    """`key`, `member`, or the level of the team."""
    name: str
    """The id of the key, or the path of the team."""
    title: str
    """The name of the key or the member, or the path of the team."""
    budget: int
    spent: int
    refused: bool
    """Whether a call was refused because too little was left."""
    at_ms: int
    delivery: Delivery = "none"

    @property
    def id(self) -> str:
        """The id of the warning. All its deliveries have it, so that receivers can ignore a repeated one."""
        return f"{self.account}/{self.label}/{self.percent}"


class TakenWarning(NamedTuple):
    """A warning that one process sends to the webhook. No other process takes it until its lease ends."""

    warning: BudgetWarning
    attempt: int
    """Of all processes, from 1."""


class WatchedBudget(NamedTuple):
    """An account with a budget, and its name for people."""

    account: Quota
    budget: int
    title: str
    key: ClientKey
    """The key that has the account, or one of the keys of its team."""

    @property
    def kind(self) -> str:
        """`key`, `member`, or the level of the team."""
        spender = self.account.spender
        return "member" if spender.member else level_of(spender.team) if spender.team else "key"


def watched_budgets(keys: Iterable[ClientKey]) -> dict[str, WatchedBudget]:
    """The budgets of keys, and of their teams, by the id of the account."""
    return {
        account.id: WatchedBudget(account, account.budget, _title(account, key), key)
        for key in keys
        for account in key.quotas
        if account.budget
    }


def _title(account: Quota, key: ClientKey) -> str:
    if account.spender.member:
        return user_parts(key.owner)[0]
    return account.spender.team or key.name or key.id


class BudgetWatch:
    """Compares what is spent with the budgets of keys and teams."""

    def __init__(self) -> None:
        self._budgets: Mapping[str, WatchedBudget] = {}
        # By account: the period of which was last warned, and the percentages.
        self._warned: dict[str, tuple[str, set[int]]] = {}
        self.delivery: Delivery = "none"
        """Of new warnings: `waiting` if there is a webhook."""

    def use(self, budgets: Mapping[str, WatchedBudget]) -> None:
        """Replace the budgets."""
        self._budgets = budgets
        self._warned = {id: warned for id, warned in self._warned.items() if id in self._budgets}

    def __contains__(self, account: str) -> bool:
        return account in self._budgets

    def __bool__(self) -> bool:
        return bool(self._budgets)

    def account(self, id: str) -> Quota | None:
        """The account with a budget that has this id."""
        found = self._budgets.get(id)
        return found.account if found is not None else None

    def remaining(self, used: Callable[[Quota], BudgetUse], now_ms: float) -> dict[tuple[str, str, str], float]:
        """The share of each budget that is neither spent nor reserved, from 1 to 0, by kind, name and period. Those of
        members and of unusable keys, and those of which it is unknown, are left out."""
        shares: dict[tuple[str, str, str], float] = {}
        for found in self._budgets.values():
            spent, reserved = used(found.account)
            if spent is None or found.kind == "member":  # people's names are no labels
                continue
            if found.kind != "key" or not found.key.unusable(now_ms):
                share = max(0.0, 1 - (spent + reserved) / found.budget)
                shares[found.kind, found.title, found.account.period] = share
        return shares

    def check(self, id: str, spent: int, now_ms: int, *, refused: bool = False) -> list[BudgetWarning]:
        """The warnings that are new in this process, now that so much of a budget is spent."""
        found = self._budgets.get(id)
        if found is None:
            return []
        account, budget, title, _ = found
        reached = [
            percent for percent in PERCENTAGES if spent * 100 >= budget * percent or (refused and percent == 100)
        ]
        if not reached:
            return []
        label = period_at(account.period, now_ms).label
        before, warned = self._warned.get(id, ("", set[int]()))
        if before != label:
            warned = set()
        new = [percent for percent in reached if percent not in warned]
        self._warned[id] = (label, warned.union(new))
        return [
            BudgetWarning(
                account=id,
                label=label,
                percent=percent,
                period=account.period,
                kind=found.kind,
                name=account.spender.team or account.spender.key,
                title=title,
                budget=budget,
                spent=spent,
                refused=refused and percent == 100,
                at_ms=now_ms,
                delivery=self.delivery,
            )
            for percent in new
        ]
