"""Account: the spending, the holds and the last minute's usage of one quota. Pure: the time is a parameter.

A call *reserves* its maximum cost, *extends* the reservation if necessary, and *settles* the actual cost, or *releases*
all of it. Its hold stays until its entry is in the book; then it is *booked*: the hold becomes a part of the sum.

    reserve ──► hold, open ──settle──► hold, closed ──book──► spent
                  │    ▲ extend
                  └──release──► gone

Every operation is idempotent, because a process may apply one to shared storage and lose the reply. A call belongs to
the period in which it was admitted. A second counts until its newest request is 60 seconds old (sliding window), so
that no 60 seconds have more than the limit. `reserve` and `extend`, which check the limits, are in `admission.py`.

The book is the source of truth, not the account. An account is *seeded* from the book: with the amount spent in a
period, and the ids of the calls that were booked recently. To settle or book one of those later changes nothing, and
its hold is not restored. So no call counts twice. An account is *stale* if something happened that only the book
knows; then it is seeded again.

Money is in nanodollars, time in milliseconds since 1970.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from msgspec import Struct, field, structs

from penstock.amounts import DAY_MS
from penstock.gateway.keys.period import BudgetPeriod, period_at
from penstock.gateway.keys.quota import Quota
from penstock.gateway.keys.store import Spent

MINUTE_MS = 60_000
# How long a settled call may wait until it is in the book. Longer than any outage of the book should last.
_BOOKED_WITHIN_MS = 3_600_000
# How long after seeding another process may still settle or book a call that is in the seed; and how soon after its end
# a call must be booked for the book to list it among the recent ones.
SEED_IDS_MS = 60_000
_BOOKED_LATE_MS = 20_000


class Hold(Struct, frozen=True, array_like=True, gc=False):
    """The amount reserved for a call: its maximum cost while it is `open`, its actual cost afterwards."""

    cost: int
    tokens: int
    second: int
    """The second of its admission, since 1970."""
    period: str
    until: int
    open: bool = True
    late: int = 0
    """The part of `tokens` that was counted after its admission."""


class Account(Struct, array_like=True):
    """The live state of a quota. Each newly created account has a new `generation`.

    Shared storage has it as an array: the order of the fields is part of the format, their names are not.
    """

    generation: str = ""
    spent: dict[str, int] = field(default_factory=dict)
    """By period, for the periods that it was seeded with."""
    holds: dict[str, Hold] = field(default_factory=dict)
    minute: dict[int, list[int]] = field(default_factory=dict)
    """By second: requests, tokens, and the time of the newest request."""
    seed_ids: set[str] = field(default_factory=set)
    seeded: int = 0
    stale: bool = False
    # Sums over `holds` and `minute`, and the earliest time at which an element of them expires.
    owed: dict[str, int] = field(default_factory=dict)
    open: int = 0
    requests: int = 0
    tokens: int = 0
    newest: int = 0
    expiry: int = 0
    window_expiry: int = 0
    never_expires: bool = False
    """Whether holds never expire, because the account exists only in the process that made them."""


class BudgetUse(NamedTuple):
    """What is spent by booked calls, if that is known, and what is reserved, in nanodollars."""

    spent: int | None = None
    reserved: int = 0


def settle(account: Account, id: str, cost: int, tokens: int, now: int) -> None:
    """Record the actual cost and tokens of a call. Unused tokens are returned to the second of its admission."""
    expire(account, now)
    hold = account.holds.get(id)
    if hold is None or not hold.open:
        return
    surplus = hold.tokens - tokens
    if surplus < 0:
        count(account, now, 0, -surplus)
    else:
        _give_back(account, hold, surplus)
    put(account, id, Hold(cost, tokens, hold.second, hold.period, now + _BOOKED_WITHIN_MS, False, hold.late))


def release(account: Account, id: str, now: int, *, undo: bool = False) -> None:
    """Remove the hold of a call that cost nothing. It still counts as a request, unless `undo` says that another
    account has refused it."""
    expire(account, now)
    hold = account.holds.get(id)
    if hold is not None and hold.open:
        _give_back(account, hold, hold.tokens)
        bucket = account.minute.get(hold.second)
        if undo and bucket is not None and bucket[0]:
            bucket[0] -= 1
            account.requests -= 1
        _drop(account, id)


def book(account: Account, ids: Iterable[str], now: int) -> None:
    """Turn the holds of these calls into spending: they are in the book.

    The account becomes stale if a call is unknown, was never settled, or is booked so late that a seed may contain its
    cost without its id.
    """
    for id in ids:
        hold = account.holds.get(id)
        if hold is not None:
            _drop(account, id)
            if hold.period in account.spent:
                account.spent[hold.period] += hold.cost
            if hold.open or hold.until + _BOOKED_LATE_MS < now + _BOOKED_WITHIN_MS:
                account.stale = True
        elif id not in account.seed_ids:
            account.stale = True


def wants_seed(account: Account, quota: Quota, now: int) -> bool:
    """Whether the account must be seeded before this budget can be checked."""
    return quota.budget is not None and (account.stale or period_at(quota.period, now).label not in account.spent)


def budget_use(account: Account | None, quota: Quota, now: int) -> BudgetUse:
    """What is used of the budget in the current period."""
    if account is None:
        return BudgetUse()
    label = period_at(quota.period, now).label
    return BudgetUse(account.spent.get(label), account.owed.get(label, 0))


def last_minute(account: Account | None, now: int) -> tuple[int, int]:
    """The requests and tokens of the last minute."""
    if account is None:
        return 0, 0
    expire(account, now)
    return account.requests, account.tokens


def seed(account: Account, period: BudgetPeriod, spent: Spent, now: int) -> None:
    """Set the amount spent in a period from the book. Holds of calls that are in the book are removed."""
    account.stale = False
    account.seeded = now
    account.seed_ids = set(spent.recent)
    for id, hold in list(account.holds.items()):
        if id in spent.recent:
            _drop(account, id)
        elif hold.period != period.label and hold.second in period:
            # The period was changed, for example from a month to a week, after this call was admitted.
            put(account, id, structs.replace(hold, period=period.label))
    account.spent = {label: total for label, total in account.spent.items() if label in account.owed}
    account.spent[period.label] = spent.total


def restore_holds(account: Account, holds: Mapping[str, Hold], requests: int = 1) -> None:
    """Restore holds that a process has kept, except those of calls that were in the seed. Each counts as
    `requests` requests."""
    for id, hold in holds.items():
        if id in account.seed_ids:
            continue
        if id not in account.holds:
            count(account, hold.second * 1000, requests, hold.tokens)
        put(account, id, hold)


def restore_requests(account: Account, window: Account, now: int) -> None:
    """Count the requests of the last minute that a process has made and the account lacks."""
    expire(window, now)
    for requests, _, newest in window.minute.values():
        count(account, newest, requests, 0)


def remove_holds(account: Account, ids: Iterable[str]) -> None:
    """Remove holds without booking them: the account is seeded next, from a book that has these calls."""
    for id in ids:
        if id in account.holds:
            _drop(account, id)


def expire(account: Account, now: int) -> None:
    """Remove what has expired: seconds outside the window, holds of calls that were never settled, old seed ids."""
    if not account.window_expiry - 2 * MINUTE_MS <= now < account.window_expiry:
        # Seconds more than a minute in the future were counted before the clock was set back.
        gone = [
            second
            for second, bucket in account.minute.items()
            if bucket[2] + MINUTE_MS <= now or bucket[2] > now + MINUTE_MS
        ]
        for second in gone:
            requests, tokens, _ = account.minute.pop(second)
            account.requests -= requests
            account.tokens -= tokens
        account.window_expiry = min((bucket[2] for bucket in account.minute.values()), default=now) + MINUTE_MS
    if now >= account.expiry and not account.never_expires:
        for id in [id for id, hold in account.holds.items() if hold.until < now]:
            account.stale = True
            _drop(account, id)
        account.expiry = min((hold.until + 1 for hold in account.holds.values()), default=now + DAY_MS)
    if account.seed_ids and now > account.seeded + SEED_IDS_MS:
        account.seed_ids = set()


def put(account: Account, id: str, hold: Hold) -> None:
    """Set the hold of a call."""
    _drop(account, id)
    account.holds[id] = hold
    account.owed[hold.period] = account.owed.get(hold.period, 0) + hold.cost
    account.open += hold.open
    account.expiry = min(account.expiry, hold.until + 1)


def _drop(account: Account, id: str) -> None:
    hold = account.holds.pop(id, None)
    if hold is None:
        return
    account.open -= hold.open
    owed = account.owed[hold.period] - hold.cost
    if owed or any(other.period == hold.period for other in account.holds.values()):
        account.owed[hold.period] = owed
    else:
        del account.owed[hold.period]


def count(account: Account, now: int, requests: int, tokens: int) -> None:
    """Add requests and tokens to the last minute."""
    bucket = account.minute.get(now // 1000)
    if bucket is None:
        account.minute[now // 1000] = [requests, tokens, now]
        account.window_expiry = min(account.window_expiry, now + MINUTE_MS)
    else:
        bucket[0] += requests
        bucket[1] += tokens
        bucket[2] = max(bucket[2], now)
    account.requests += requests
    account.tokens += tokens
    account.newest = max(account.newest, now)


def _give_back(account: Account, hold: Hold, tokens: int) -> None:
    bucket = account.minute.get(hold.second)
    if bucket is not None:
        given = min(tokens, hold.tokens - hold.late, bucket[1])
        bucket[1] -= given
        account.tokens -= given
