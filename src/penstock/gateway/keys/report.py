"""The report on a key, for the command line and the admin API: its limits, state and spending. Never a digest.

Money is an exact string of dollars: `"0.000125"`. Times are in UTC: `"2027-01-01T00:00:00Z"`.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, TypeAlias

from penstock.amounts import moment, money
from penstock.gateway.billing.book import Book
from penstock.gateway.keys.keys import EndUserLimits, Key, Period, Spender
from penstock.gateway.limits.period import period_at

State: TypeAlias = Literal["active", "blocked", "revoked", "expired"]


def report(book: Book, key: Key, now_ms: int) -> dict[str, object]:
    """The public data of a key, as JSON fields."""
    return reports(book, [key], now_ms)[0]


def reports(book: Book, keys: Sequence[Key], now_ms: int) -> list[dict[str, object]]:
    """The public data of keys. Their spending is read together."""
    spent = spent_in(book, [(Spender(key=key.id), (key.period, *key.budgets)) for key in keys], now_ms)
    return [_report(key, each, now_ms) for key, each in zip(keys, spent, strict=True)]


def spent_in(book: Book, asked: Sequence[tuple[Spender, Iterable[Period]]], now_ms: int) -> list[dict[Period, int]]:
    """What each has spent in the current one of each of its periods."""
    flat = [(index, who, period) for index, (who, periods) in enumerate(asked) for period in dict.fromkeys(periods)]
    found: list[dict[Period, int]] = [{} for _ in asked]
    spent = book.spent_by([(who, period_at(period, now_ms).since) for _, who, period in flat])
    for (index, _, period), each in zip(flat, spent, strict=True):
        found[index][period] = each.total
    return found


def _report(key: Key, spent_by_period: Mapping[Period, int], now_ms: int) -> dict[str, object]:
    period = period_at(key.period, now_ms)
    spent = spent_by_period[key.period]
    remaining = None if key.budget is None else max(0, key.budget - spent)
    return {
        "id": key.id,
        "name": key.name,
        "hint": key.hint,
        "state": state(key, now_ms),
        "created": moment(key.created_ms),
        "rotated": moment(key.rotated_ms),
        "previous_until": moment(key.previous_until_ms),
        "expires": moment(key.expires_ms),
        "revoked": moment(key.revoked_ms),
        "blocked": moment(key.blocked_ms),
        "budget": money(key.budget),
        "period": key.period,
        "spent": money(spent),
        "left": money(remaining),
        "renewed": moment(period.until) if key.budget is not None else None,
        "requests_per_minute": key.requests_per_minute,
        "tokens_per_minute": key.tokens_per_minute,
        "concurrent": key.concurrent,
        "models": list(key.models),
        "strict": key.strict,
        "team": key.team or None,
        "owner": key.owner or None,
        "budgets": budgets(key.budgets, spent_by_period, now_ms),
        "end_users": end_users(key.end_users),
        "tags": dict(key.tags),
    }


def budgets(given: Mapping[Period, int], spent_by_period: Mapping[Period, int], now_ms: int) -> list[dict[str, object]]:
    """The budgets of a key or a team by period, with what is spent and left of each."""
    found: list[dict[str, object]] = []
    for name, budget in given.items():
        period = period_at(name, now_ms)
        spent = spent_by_period[name]
        found.append(
            {
                "period": name,
                "budget": money(budget),
                "spent": money(spent),
                "left": money(max(0, budget - spent)),
                "renewed": moment(period.until),
            }
        )
    return found


def end_users(limits: EndUserLimits) -> dict[str, object]:
    """The limits of end users."""
    return {
        "budgets": {period: money(budget) for period, budget in limits.budgets.items()},
        "requests_per_minute": limits.requests_per_minute,
        "tokens_per_minute": limits.tokens_per_minute,
        "concurrent": limits.concurrent,
    }


def state(key: Key, now_ms: int) -> State:
    """The state of a key."""
    if key.revoked_ms is not None and key.revoked_ms <= now_ms:
        return "revoked"
    if key.unusable(now_ms):
        return "expired"
    return "active" if key.blocked_ms is None else "blocked"
