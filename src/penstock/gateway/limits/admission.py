"""Admission: checks a call against a quota: budget, requests, tokens, concurrent calls. Pure.

`reserve` and `extend` change the account if they grant, and leave it unchanged if they deny. A limit for something else
is added here and in `Quota`.
"""

from datetime import UTC, datetime
from typing import Literal, TypeAlias

from msgspec import Struct, structs

from penstock.amounts import dollars
from penstock.error_codes import ErrorCode
from penstock.gateway.keys.period import BudgetPeriod, period_at
from penstock.gateway.keys.quota import Quota
from penstock.gateway.limits.account import MINUTE_MS, Account, Hold, count, expire, put

Limit: TypeAlias = Literal["budget", "requests", "tokens", "concurrent", "ledger"]

# A running call continues only if it gets at least this share of the extension that it requests.
_LEAST_SHARE = 1 / 256
# The `Retry-After` if only running calls use the limit, whose end is unknown.
_RETRY_S = 1.0


class Reservation(Struct, frozen=True, gc=False):
    """The maximum cost and tokens of a call. It has ended by `until` in any case.

    With `least_cost` or `least_tokens` the call accepts less: it gets what is left, but not less than that. It counts
    as made `ahead` milliseconds later than `now`: by then it is sent.
    """

    id: str
    cost: int
    tokens: int
    now: int
    until: int
    least_cost: int | None = None
    least_tokens: int | None = None
    ahead: int = 0


class Gauge(Struct, frozen=True, gc=False):
    """A limit per minute, the remaining part of it, and the seconds until all of it is available again."""

    limit: int
    remaining: int
    reset_s: float


class Grant(Struct, frozen=True, gc=False):
    """The call is admitted and may cost this much. A gauge is None if there is no such limit."""

    requests: Gauge | None = None
    tokens: Gauge | None = None
    cost: int = 0


class Denial(Struct, frozen=True, kw_only=True):
    """The call is denied: the limit, and a message for the client. Without `retry_after_s` waiting does not help."""

    limit: Limit
    code: ErrorCode
    message: str
    retry_after_s: float | None = None
    requests: Gauge | None = None
    tokens: Gauge | None = None
    holder: str = "this key"
    """Whose limit it is."""
    exhausted: str = ""
    """The id of the account whose budget has too little left; empty if the budget alone is smaller than the call, or if
    the rest is only reserved."""


Decision: TypeAlias = Grant | Denial


def reserve(account: Account, quota: Quota, reservation: Reservation) -> Decision:
    """Admit a call and reserve its maximum cost, or return the limit that denies it."""
    now = reservation.now
    expire(account, now)
    if reservation.id in account.holds or reservation.id in account.seed_ids:
        return _grant(account, quota, now, reservation.id)
    period = period_at(quota.period, now)
    reservation = _reduced(account, quota, reservation, period)
    denial = (
        _over_budget(account, quota, reservation, period)
        or _too_many_open(account, quota)
        or _too_many_requests(account, quota, now)
        or _too_many_tokens(account, quota, reservation)
    )
    if denial is not None:
        grant = _grant(account, quota, now, reservation.id)
        return structs.replace(denial, requests=grant.requests, tokens=grant.tokens, holder=quota.holder)
    made = now + reservation.ahead
    second = made // 1000
    put(account, reservation.id, Hold(reservation.cost, reservation.tokens, second, period.label, reservation.until))
    count(account, made, 1, reservation.tokens)
    return _grant(account, quota, now, reservation.id)


def extend(account: Account, quota: Quota, id: str, cost: int, tokens: int, now: int) -> Decision:
    """Raise the reservation of a running call to this total, or to what is left, if that is at least `_LEAST_SHARE`.

    Only the budget can deny it: tokens are counted, but not limited.
    """
    expire(account, now)
    hold = account.holds.get(id)
    if hold is None or not hold.open:
        return _grant(account, quota, now, id)
    more = max(0, cost - hold.cost)
    # The sum of a period that ended before the account was created again is unknown.
    if more and quota.budget is not None and hold.period in account.spent:
        left = quota.budget - account.spent[hold.period] - account.owed.get(hold.period, 0)
        if more > left >= more * _LEAST_SHARE:
            more = left
        elif more > left:
            message = f"{_budget_of(quota, hold.period)} was used up while the call ran"
            exhausted = quota.id if hold.period == period_at(quota.period, now).label else ""
            return Denial(
                limit="budget", code="insufficient_quota", message=message, holder=quota.holder, exhausted=exhausted
            )
    late = max(0, tokens - hold.tokens)
    put(
        account,
        id,
        structs.replace(hold, cost=hold.cost + more, tokens=hold.tokens + late, late=hold.late + late),
    )
    if late:
        count(account, now, 0, late)
    return _grant(account, quota, now, id)


def with_share(account: Account, quota: Quota, share: float, now: int) -> Quota:
    """The quota with a share of what is left of each limit, for a process that cannot reach the shared accounts."""
    expire(account, now)
    label = period_at(quota.period, now).label
    used = account.spent.get(label, 0) + account.owed.get(label, 0)
    return structs.replace(
        quota,
        budget=None if quota.budget is None else int(max(0, quota.budget - used) * share),
        requests_per_minute=_share_of(quota.requests_per_minute, account.requests, share),
        tokens_per_minute=_share_of(quota.tokens_per_minute, account.tokens, share),
        concurrent=_share_of(quota.concurrent, account.open, share),
    )


def _share_of(limit: int | None, used: int, share: float) -> int | None:
    """A share of what is left of a limit: at least 1, if anything is left."""
    return None if limit is None else min(max(0, limit - used), max(1, int((limit - used) * share)))


def _reduced(account: Account, quota: Quota, reservation: Reservation, period: BudgetPeriod) -> Reservation:
    """The reservation, reduced to what is left, but not below its least cost and tokens."""
    cost, tokens = reservation.cost, reservation.tokens
    if reservation.least_cost is not None and quota.budget is not None:
        left = quota.budget - account.spent.get(period.label, 0) - account.owed.get(period.label, 0)
        cost = min(cost, max(left, reservation.least_cost))
    if reservation.least_tokens is not None and quota.tokens_per_minute is not None:
        tokens = min(tokens, max(quota.tokens_per_minute - account.tokens, reservation.least_tokens))
    if cost == reservation.cost and tokens == reservation.tokens:
        return reservation
    return structs.replace(reservation, cost=cost, tokens=tokens)


def _over_budget(account: Account, quota: Quota, reservation: Reservation, period: BudgetPeriod) -> Denial | None:
    if quota.budget is None:
        return None
    spent, owed = account.spent.get(period.label, 0), account.owed.get(period.label, 0)
    if reservation.cost <= quota.budget - spent - owed:
        return None
    what = _budget_of(quota, period.label)
    needs = f"this call may cost up to {dollars(reservation.cost)}"
    # The cost of calls that have ended but are not booked yet counts as spent: it is not returned.
    over = sum(hold.cost for hold in account.holds.values() if not hold.open and hold.period == period.label)
    if reservation.cost <= quota.budget - spent - over:
        message = f"{what} is reserved for calls that are still running, and {needs}: try again when they have ended"
        return Denial(limit="budget", code="insufficient_quota", message=message, retry_after_s=_RETRY_S)
    left = dollars(max(0, quota.budget - spent - owed))
    exhausted = quota.id if reservation.cost <= quota.budget else ""
    if period.until is None:
        message = f"{what} has {left} left, and {needs}: ask for fewer tokens, or for a larger budget"
        return Denial(limit="budget", code="insufficient_quota", message=message, exhausted=exhausted)
    renewal = _date(period.until)
    message = f"{what} has {left} left, and {needs}: ask for fewer tokens, or wait until {renewal}, or ask for more"
    wait = (period.until - reservation.now) / 1000 if reservation.cost <= quota.budget else None
    return Denial(limit="budget", code="insufficient_quota", message=message, retry_after_s=wait, exhausted=exhausted)


def _budget_of(quota: Quota, label: str) -> str:
    amount = dollars(quota.budget or 0)
    if quota.holder == "this key":
        return f"this key's budget of {amount} for {label}"
    return f"the budget of {quota.holder}, {amount} for {label},"


def _too_many_open(account: Account, quota: Quota) -> Denial | None:
    if quota.concurrent is None or account.open < quota.concurrent:
        return None
    message = f"{quota.holder} may have {quota.concurrent} concurrent calls: try again when one of them has ended"
    return Denial(limit="concurrent", code="too_many_concurrent_requests", message=message, retry_after_s=_RETRY_S)


def _too_many_requests(account: Account, quota: Quota, now: int) -> Denial | None:
    limit = quota.requests_per_minute
    if limit is None or account.requests < limit:
        return None
    wait = _seconds_until_free(account, 0, account.requests + 1 - limit, now)
    message = f"{quota.holder} may make {limit} requests per minute: {_retry_hint(wait)}"
    return Denial(limit="requests", code="rate_limit_exceeded", message=message, retry_after_s=wait)


def _too_many_tokens(account: Account, quota: Quota, reservation: Reservation) -> Denial | None:
    limit = quota.tokens_per_minute
    if limit is None or account.tokens + reservation.tokens <= limit:
        return None
    what = f"{quota.holder} may use {limit} tokens per minute, and this call may use up to {reservation.tokens}"
    if reservation.tokens > limit:
        message = f"{what}: it can never be admitted; shorten the prompt or lower max_tokens"
        return Denial(limit="tokens", code="rate_limit_exceeded", message=message)
    wait = _seconds_until_free(account, 1, account.tokens + reservation.tokens - limit, reservation.now)
    message = f"{what}: {_retry_hint(wait)}, or ask for fewer"
    return Denial(limit="tokens", code="rate_limit_exceeded", message=message, retry_after_s=wait)


def _seconds_until_free(account: Account, column: int, wanted: int, now: int) -> float | None:
    """The seconds until this many requests or tokens have left the window; None if it has fewer."""
    for bucket in sorted(account.minute.values(), key=lambda bucket: bucket[2]):
        wanted -= bucket[column]
        if wanted <= 0:
            return (bucket[2] + MINUTE_MS - now) / 1000
    return None


def _retry_hint(wait: float | None) -> str:
    return "it has none" if wait is None else f"try again in {wait:.3f} s"


def _grant(account: Account, quota: Quota, now: int, id: str) -> Grant:
    requests, tokens = quota.requests_per_minute, quota.tokens_per_minute
    hold = account.holds.get(id)
    reset = min(MINUTE_MS, max(0, account.newest + MINUTE_MS - now)) / 1000
    return Grant(
        None if requests is None else Gauge(requests, max(0, requests - account.requests), reset),
        None if tokens is None else Gauge(tokens, max(0, tokens - account.tokens), reset),
        hold.cost if hold is not None else 0,
    )


def _date(at: int) -> str:
    return f"{datetime.fromtimestamp(at / 1000, tz=UTC):%Y-%m-%d %H:%M} UTC"
