"""The report on a key, for the command line and the admin API: its limits, state and spending. Never a digest.

Money is an exact string of dollars: `"0.000125"`. Times are in UTC: `"2027-01-01T00:00:00Z"`.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from msgspec import Struct, structs

from penstock.amounts import moment, money
from penstock.gateway.keys.keys import Key, KeyLimits
from penstock.gateway.keys.period import period_at
from penstock.gateway.keys.quota import Period, Spender
from penstock.gateway.keys.store import KeyStore


def report(store: KeyStore, key: Key, now_ms: int) -> dict[str, object]:
    """The public data of a key, as JSON fields."""
    return reports(store, [key], now_ms)[0]


def reports(store: KeyStore, keys: Sequence[Key], now_ms: int) -> list[dict[str, object]]:
    """The public data of keys. Their spending is read together."""
    spent = spent_in(store, [(Spender(key=key.id), (key.period, *key.budgets)) for key in keys], now_ms)
    return [_report(key, each, now_ms) for key, each in zip(keys, spent, strict=True)]


def spent_in(
    store: KeyStore, asked: Sequence[tuple[Spender, Iterable[Period]]], now_ms: int
) -> list[dict[Period, int]]:
    """What each has spent in the current one of each of its periods."""
    flat = [(index, who, period) for index, (who, periods) in enumerate(asked) for period in dict.fromkeys(periods)]
    found: list[dict[Period, int]] = [{} for _ in asked]
    spent = store.spent_by([(who, period_at(period, now_ms).since) for _, who, period in flat])
    for (index, _, period), each in zip(flat, spent, strict=True):
        found[index][period] = each.total
    return found


def _report(key: Key, spent_by_period: Mapping[Period, int], now_ms: int) -> dict[str, object]:
    spent, state = spent_by_period[key.period], key.state(now_ms)
    return facts(key) | {
        "state": "blocked" if state == "active" and key.blocked_ms is not None else state,
        "spent": money(spent),
        "left": money(max(0, key.budget - spent)) if key.budget is not None else None,
        "renewed": moment(period_at(key.period, now_ms).until) if key.budget is not None else None,
        "team": key.team or None,
        "owner": key.owner or None,
        "managed_by": key.managed_by or None,
        "budgets": budgets(key.budgets, spent_by_period, now_ms),
    }


def facts(subject: Struct) -> dict[str, Any]:
    """The fields of a key, a team, a token, or the limits of end users. Never a digest."""
    shown: dict[str, Any] = {}
    for name, value in structs.asdict(subject).items():
        if name.endswith("_ms"):
            shown[name.removesuffix("_ms")] = moment(value)
        elif name == "budget":
            shown[name] = money(value)
        elif name == "budgets":
            shown[name] = {period: money(budget) for period, budget in value.items()}
        elif not isinstance(value, bytes):  # a digest of a secret
            shown[name] = facts(value) if isinstance(value, KeyLimits) else value
    return shown


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
