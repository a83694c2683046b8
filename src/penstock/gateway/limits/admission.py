"""Admission: whether a call may go on by the limits of its key, and what its client is told. Pure.

`reserve` and `extend` change the account if they grant, and leave it as it is if they deny.
"""

from datetime import UTC, datetime
from typing import Literal, TypeAlias

from msgspec import Struct, structs

from penstock.error_codes import ErrorCode
from penstock.gateway.billing.entry import NANODOLLARS
from penstock.gateway.keys.keys import Key
from penstock.gateway.limits.account import MINUTE_MS, Account, Hold, count, put, touch
from penstock.gateway.limits.period import BudgetPeriod, span

Limit: TypeAlias = Literal["budget", "requests", "tokens", "concurrent", "ledger"]

# Less than this share of what a running call asks for is not worth going on with.
_WORTHWHILE = 1 / 256
# When to ask again where only running calls stand in the way: nobody knows when they end.
_SOON_S = 1.0


class Reservation(Struct, frozen=True, gc=False):
    """What a call asks for: what it may cost, and the tokens it may use. `until` is when it will surely be over.

    Where a call can do with less, it says with how little: it gets what there is.
    """

    id: str
    cost: int
    tokens: int
    now: int
    until: int
    least_cost: int | None = None
    least_tokens: int | None = None


class Gauge(Struct, frozen=True, gc=False):
    """A limit per minute, what is left of it, and the seconds until all of it is there again."""

    limit: int
    remaining: int
    reset_s: float


class Grant(Struct, frozen=True, gc=False):
    """The call may go on, and may cost so much. None where there is no limit."""

    requests: Gauge | None = None
    tokens: Gauge | None = None
    cost: int = 0


class Denial(Struct, frozen=True, kw_only=True):
    """The call may not go on: which limit it is, and what the client may do. No `retry_after_s`: waiting won't help."""

    limit: Limit
    code: ErrorCode
    message: str
    retry_after_s: float | None = None
    requests: Gauge | None = None
    tokens: Gauge | None = None


Answer: TypeAlias = Grant | Denial


def reserve(account: Account, key: Key, demand: Reservation) -> Answer:
    """Admit a call and hold what it may cost, or say which limit forbids it."""
    now = demand.now
    touch(account, now)
    if demand.id in account.holds or demand.id in account.seed_ids:
        return _grant(account, key, now, demand.id)
    period = span(key.period, now)
    demand = _with_less(account, key, demand, period)
    denial = (
        _over_budget(account, key, demand, period)
        or _too_many_open(account, key)
        or _too_many_requests(account, key, now)
        or _too_many_tokens(account, key, demand)
    )
    if denial is not None:
        grant = _grant(account, key, now, demand.id)
        return structs.replace(denial, requests=grant.requests, tokens=grant.tokens)
    second = now // 1000
    put(account, demand.id, Hold(demand.cost, demand.tokens, second, period.label, demand.until))
    count(account, now, 1, demand.tokens)
    return _grant(account, key, now, demand.id)


def extend(account: Account, key: Key, id: str, cost: int, tokens: int, now: int) -> Answer:
    """Hold this much in all for a running call, or what there is, if that is not next to nothing.

    Only the budget can forbid it: tokens are counted, and no more.
    """
    touch(account, now)
    hold = account.holds.get(id)
    if hold is None or not hold.open:
        return _grant(account, key, now, id)
    more = max(0, cost - hold.cost)
    # Of a period that ended before the account was made anew, nothing is known.
    if more and key.budget is not None and hold.period in account.spent:
        left = key.budget - account.spent[hold.period] - account.owed.get(hold.period, 0)
        if more > left >= more * _WORTHWHILE:
            more = left
        elif more > left:
            message = f"this key's budget of {dollars(key.budget)} for {hold.period} was used up while the call ran"
            return Denial(limit="budget", code="insufficient_quota", message=message)
    late = max(0, tokens - hold.tokens)
    put(
        account,
        id,
        structs.replace(hold, cost=hold.cost + more, tokens=hold.tokens + late, late=hold.late + late),
    )
    if late:
        count(account, now, 0, late)
    return _grant(account, key, now, id)


def portion(account: Account, key: Key, share: float, now: int) -> Key:
    """The key, with a share of what is left of each limit: for a process that cannot ask what others use meanwhile."""
    touch(account, now)
    label = span(key.period, now).label
    gone = account.spent.get(label, 0) + account.owed.get(label, 0)
    return structs.replace(
        key,
        budget=None if key.budget is None else int(max(0, key.budget - gone) * share),
        requests_per_minute=_some(key.requests_per_minute, account.requests, share),
        tokens_per_minute=_some(key.tokens_per_minute, account.tokens, share),
        concurrent=_some(key.concurrent, account.open, share),
    )


def _some(limit: int | None, used: int, share: float) -> int | None:
    """A share of what is left of a limit. A small limit is not cut down to nothing."""
    return None if limit is None else min(max(0, limit - used), max(1, int((limit - used) * share)))


def _with_less(account: Account, key: Key, demand: Reservation, period: BudgetPeriod) -> Reservation:
    """What a call asks for, cut down to what there is, but not to less than it can do with."""
    cost, tokens = demand.cost, demand.tokens
    if demand.least_cost is not None and key.budget is not None:
        left = key.budget - account.spent.get(period.label, 0) - account.owed.get(period.label, 0)
        cost = min(cost, max(left, demand.least_cost))
    if demand.least_tokens is not None and key.tokens_per_minute is not None:
        tokens = min(tokens, max(key.tokens_per_minute - account.tokens, demand.least_tokens))
    if cost == demand.cost and tokens == demand.tokens:
        return demand
    return structs.replace(demand, cost=cost, tokens=tokens)


def _over_budget(account: Account, key: Key, demand: Reservation, period: BudgetPeriod) -> Denial | None:
    if key.budget is None:
        return None
    spent, owed = account.spent.get(period.label, 0), account.owed.get(period.label, 0)
    if demand.cost <= key.budget - spent - owed:
        return None
    what = f"this key's budget of {dollars(key.budget)} for {period.label}"
    needs = f"this call may cost up to {dollars(demand.cost)}"
    # What is over, and not booked yet, is as good as spent: nobody gets it back.
    over = sum(hold.cost for hold in account.holds.values() if not hold.open and hold.period == period.label)
    if demand.cost <= key.budget - spent - over:
        message = f"{what} is held by calls that are still running, and {needs}: try again when they are over"
        return Denial(limit="budget", code="insufficient_quota", message=message, retry_after_s=_SOON_S)
    left = dollars(max(0, key.budget - spent - owed))
    if period.until is None:
        message = f"{what} has {left} left, and {needs}: ask for fewer tokens, or for a larger budget"
        return Denial(limit="budget", code="insufficient_quota", message=message)
    begins = _date(period.until)
    message = f"{what} has {left} left, and {needs}: ask for fewer tokens, or wait until {begins}, or ask for more"
    wait = (period.until - demand.now) / 1000 if demand.cost <= key.budget else None
    return Denial(limit="budget", code="insufficient_quota", message=message, retry_after_s=wait)


def _too_many_open(account: Account, key: Key) -> Denial | None:
    if key.concurrent is None or account.open < key.concurrent:
        return None
    message = f"this key may have {key.concurrent} calls under way at a time: try again when one of them is over"
    return Denial(limit="concurrent", code="too_many_concurrent_requests", message=message, retry_after_s=_SOON_S)


def _too_many_requests(account: Account, key: Key, now: int) -> Denial | None:
    limit = key.requests_per_minute
    if limit is None or account.requests < limit:
        return None
    wait = _until_left(account, 0, account.requests + 1 - limit, now)
    message = f"this key may make {limit} requests per minute: {_try_again(wait)}"
    return Denial(limit="requests", code="rate_limit_exceeded", message=message, retry_after_s=wait)


def _too_many_tokens(account: Account, key: Key, demand: Reservation) -> Denial | None:
    limit = key.tokens_per_minute
    if limit is None or account.tokens + demand.tokens <= limit:
        return None
    what = f"this key may use {limit} tokens per minute, and this call may use up to {demand.tokens}"
    if demand.tokens > limit:
        message = f"{what}: it can never be admitted; shorten the prompt or lower max_tokens"
        return Denial(limit="tokens", code="rate_limit_exceeded", message=message)
    wait = _until_left(account, 1, account.tokens + demand.tokens - limit, demand.now)
    message = f"{what}: {_try_again(wait)}, or ask for fewer"
    return Denial(limit="tokens", code="rate_limit_exceeded", message=message, retry_after_s=wait)


def _until_left(account: Account, column: int, wanted: int, now: int) -> float | None:
    """The seconds until this many requests or tokens have left the window; None if there are not so many in it."""
    for bucket in sorted(account.minute.values(), key=lambda bucket: bucket[2]):
        wanted -= bucket[column]
        if wanted <= 0:
            return (bucket[2] + MINUTE_MS - now) / 1000
    return None


def _try_again(wait: float | None) -> str:
    return "it has none" if wait is None else f"try again in {wait:.3f} s"


def _grant(account: Account, key: Key, now: int, id: str) -> Grant:
    requests, tokens = key.requests_per_minute, key.tokens_per_minute
    hold = account.holds.get(id)
    reset = min(MINUTE_MS, max(0, account.newest + MINUTE_MS - now)) / 1000
    return Grant(
        None if requests is None else Gauge(requests, max(0, requests - account.requests), reset),
        None if tokens is None else Gauge(tokens, max(0, tokens - account.tokens), reset),
        hold.cost if hold is not None else 0,
    )


def dollars(amount: int) -> str:
    """Nanodollars, as people read them: with two digits after the point, or as many as it takes."""
    whole, rest = divmod(abs(amount), NANODOLLARS)
    return f"{'-' if amount < 0 else ''}${whole}.{f'{rest:09}'.rstrip('0').ljust(2, '0')}"


def _date(at: int) -> str:
    return f"{datetime.fromtimestamp(at / 1000, tz=UTC):%Y-%m-%d %H:%M} UTC"
