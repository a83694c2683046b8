"""Account: what one key has spent, holds and has used in the last minute. Pure: the time is always handed in.

A call *reserves* what it may cost at most, *extends* that if it must, and *settles* what it really cost, or *releases*
all of it. Its hold stays until its entry is in the ledger; then it is *booked*: the hold becomes a part of the sum.

    reserve ──► hold, open ──settle──► hold, closed ──book──► spent
                  │    ▲ extend
                  └──release──► gone

Every operation may be applied twice, since whoever applies it may not learn that it did. A call belongs to the period
in which it was admitted. A second counts until its newest request is 60 seconds old, so that no minute, wherever it
begins, has more than the limit. `admission.py` has `reserve` and `extend`, which know the limits.

An account is not the book. It is *seeded* from the ledger: with what was spent in a period, and the ids of the calls
that were booked of late. Whoever settles or books one of those later adds nothing, and a hold of it is not put back.
So no call counts twice. An account is *stale* if something happened that only the ledger knows of; it is seeded anew.

Money is in nanodollars, time in milliseconds since 1970.
"""

from collections.abc import Iterable, Mapping

from msgspec import Struct, field, structs

from penstock.gateway.billing.book import Spent
from penstock.gateway.keys.keys import Key
from penstock.gateway.limits.period import DAY_MS, BudgetPeriod, span

MINUTE_MS = 60_000
# How long a settled call may wait for its place in the ledger. Longer than any ledger should be out of order.
_BOOKED_WITHIN_MS = 3_600_000
# How long a call that was booked before seeding may still be settled or booked by those who do not know; and how soon
# after its end it has to be booked for the ledger to name it among the latest.
SEED_IDS_MS = 60_000
_BOOKED_LATE_MS = 20_000


class Hold(Struct, frozen=True, array_like=True, gc=False):
    """What is set aside for a call: at first what it may cost, and once it is no longer `open`, what it did."""

    cost: int
    tokens: int
    second: int
    """When it was admitted, since 1970."""
    period: str
    until: int
    open: bool = True
    late: int = 0
    """Those of the tokens that were counted after its admission."""


class Account(Struct, array_like=True):
    """The live state of a key. `generation` is new whenever it was made anew."""

    generation: str = ""
    spent: dict[str, int] = field(default_factory=dict)
    """By period: those that it was seeded with."""
    holds: dict[str, Hold] = field(default_factory=dict)
    minute: dict[int, list[int]] = field(default_factory=dict)
    """By second: requests, tokens, and the time of the newest of them."""
    seed_ids: set[str] = field(default_factory=set)
    seeded: int = 0
    stale: bool = False
    # Sums over `holds` and `minute`, and the earliest time at which something in them has to go.
    owed: dict[str, int] = field(default_factory=dict)
    open: int = 0
    requests: int = 0
    tokens: int = 0
    newest: int = 0
    expiry: int = 0
    leaving: int = 0
    lasting: bool = False
    """Whether holds never expire: those who hold can only end together with the account."""


def settle(account: Account, id: str, cost: int, tokens: int, now: int) -> None:
    """The call is over, and this is what it took. Tokens it did not need are given back to when it was admitted."""
    touch(account, now)
    hold = account.holds.get(id)
    if hold is None or not hold.open:
        return
    surplus = hold.tokens - tokens
    if surplus < 0:
        count(account, now, 0, -surplus)
    else:
        _give_back(account, hold, surplus)
    put(account, id, Hold(cost, tokens, hold.second, hold.period, now + _BOOKED_WITHIN_MS, False, hold.late))


def release(account: Account, id: str, now: int) -> None:
    """The call took nothing. It still counts as a request."""
    touch(account, now)
    hold = account.holds.get(id)
    if hold is not None and hold.open:
        _give_back(account, hold, hold.tokens)
        _drop(account, id)


def book(account: Account, ids: Iterable[str], now: int) -> None:
    """The calls are in the ledger. What is odd about one makes the account stale: it is unknown, or never settled,
    or so late that the account may have been seeded with it under no name.
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


def wants_seed(account: Account, key: Key, now: int) -> bool:
    """Whether the ledger has to be asked before this key's budget can be judged."""
    return key.budget is not None and (account.stale or span(key.period, now).label not in account.spent)


def left_of_budget(account: Account, key: Key, now: int) -> float | None:
    """Which part of a key's budget is neither spent nor held, from 1 to 0; None where that is not known."""
    label = span(key.period, now).label
    if not key.budget or label not in account.spent:
        return None if key.budget != 0 else 0.0
    return max(0.0, 1 - (account.spent[label] + account.owed.get(label, 0)) / key.budget)


def reserved_cost(account: Account, key: Key, now: int) -> int:
    """What is held for calls in a key's present period, in nanodollars."""
    return account.owed.get(span(key.period, now).label, 0)


def seed(account: Account, period: BudgetPeriod, spent: Spent, now: int) -> None:
    """Take from the ledger what was spent in a period. What it knows of is held no longer."""
    account.stale = False
    account.seeded = now
    account.seed_ids = set(spent.recent)
    for id, hold in list(account.holds.items()):
        if id in spent.recent:
            _drop(account, id)
        elif hold.period != period.label and hold.second in period:
            # The key counts by other periods than it did when this call was admitted.
            put(account, id, structs.replace(hold, period=period.label))
    account.spent = {label: total for label, total in account.spent.items() if label in account.owed}
    account.spent[period.label] = spent.total


def rehold(account: Account, holds: Mapping[str, Hold]) -> None:
    """Put back what is held by those who know: all but what was in the ledger already when the account was seeded."""
    for id, hold in holds.items():
        if id in account.seed_ids:
            continue
        if id not in account.holds:
            count(account, hold.second * 1000, 1, hold.tokens)
        put(account, id, hold)


def unhold(account: Account, ids: Iterable[str]) -> None:
    """Forget holds without a trace: the account is about to be seeded from a ledger that has them."""
    for id in ids:
        if id in account.holds:
            _drop(account, id)


def touch(account: Account, now: int) -> None:
    """Let go of what is over: seconds that left the window, calls that were never settled, ids that have served."""
    if not account.leaving - 2 * MINUTE_MS <= now < account.leaving:
        # What lies more than a minute ahead was counted before somebody set the clock back.
        gone = [
            second
            for second, bucket in account.minute.items()
            if bucket[2] + MINUTE_MS <= now or bucket[2] > now + MINUTE_MS
        ]
        for second in gone:
            requests, tokens, _ = account.minute.pop(second)
            account.requests -= requests
            account.tokens -= tokens
        account.leaving = min((bucket[2] for bucket in account.minute.values()), default=now) + MINUTE_MS
    if now >= account.expiry and not account.lasting:
        for id in [id for id, hold in account.holds.items() if hold.until < now]:
            account.stale = True
            _drop(account, id)
        account.expiry = min((hold.until + 1 for hold in account.holds.values()), default=now + DAY_MS)
    if account.seed_ids and now > account.seeded + SEED_IDS_MS:
        account.seed_ids = set()


def put(account: Account, id: str, hold: Hold) -> None:
    """Hold this for a call, in place of what was held for it."""
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
    """Count requests and tokens in the last minute."""
    bucket = account.minute.get(now // 1000)
    if bucket is None:
        account.minute[now // 1000] = [requests, tokens, now]
        account.leaving = min(account.leaving, now + MINUTE_MS)
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
