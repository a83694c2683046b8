"""ProviderKeyLimits: the limits of the keys with which the gateway calls providers: requests and tokens per minute.

Each such key has an account, as clients' keys have (`accounts.py`), but without a budget. Its id is made of the names
of provider and key: a rotated key keeps its account, and gateways that share the store and use the same names share
the limits.

No 60 seconds have more requests than the limit. A request counts from the time by which it is sent, `_SENT_MS` after
its admission, until 60 seconds later. A grant that arrives after that time is not used.
"""

from collections.abc import Callable
from functools import partial

from msgspec import Struct

from penstock.amounts import clock_ms
from penstock.gateway.keys.quota import Quota
from penstock.gateway.limits.accounts import Accounts
from penstock.gateway.limits.admission import Denial, Reservation
from penstock.gateway.limits.demand import TokenDemand
from penstock.gateway.limits.reservation import GRACE_S, LEAST_OUTPUT, USUAL_OUTPUT
from penstock.gateway.record.call import Call
from penstock.gateway.record.entry import Entry
from penstock.providers.provider import Provider

# More than a shared store and a new connection take, and clocks differ; little of a minute.
_SENT_MS = 1_000


class KeyAtLimit(Struct, frozen=True):
    """A key is at its limit: which one, and the seconds until it may be free; None if the request alone exceeds it."""

    limit: str
    wait_s: float | None


def quota_of(provider: Provider) -> Quota | None:
    """The limits of the key with which a provider is called; None if it has none."""
    key = provider.key
    if key is None or (key.rpm is None and key.tpm is None):
        return None
    return Quota(id=f"provider/{provider.name}/{key.name}", requests_per_minute=key.rpm, tokens_per_minute=key.tpm)


class ProviderKeyLimits:
    """Admits attempts within the limits of providers' keys."""

    def __init__(self, accounts: Accounts, clock: Callable[[], int] = clock_ms) -> None:
        self._accounts = accounts
        self._clock = clock
        self.holds: dict[str, dict[int, str]] = {}
        """By id of the call: the account that has tokens reserved for each attempt, by its number."""
        # By key: its limit of requests, and until when it is reached. Until then the accounts need not be asked.
        self._full: dict[str, tuple[int, int]] = {}

    def reserve(
        self, quota: Quota, call: Call, demand: TokenDemand, total_s: float, then: Callable[[KeyAtLimit | None], None]
    ) -> None:
        """Admit an attempt at a call, which takes at most `total_s`. `then` gets the limit that is reached, or None."""
        now = self._clock()
        limit, until = self._full.get(quota.id, (None, 0))
        if limit == quota.requests_per_minute and now < until:
            then(KeyAtLimit("requests", (until - now) / 1000))
            return
        limited = quota.tokens_per_minute is not None
        output = demand.output if demand.output is not None else USUAL_OUTPUT
        least = demand.output if demand.output is not None else LEAST_OUTPUT
        reservation = Reservation(
            id=_id(call, len(call.progress.attempts)),
            cost=0,
            tokens=demand.input + output if limited else 0,
            least_tokens=demand.input + least if limited else None,
            now=now,
            until=now + int((total_s + GRACE_S) * 1000),
            ahead=_SENT_MS,
        )
        self._accounts.reserve(quota, reservation, call.guarded(partial(self._decided, quota, call, now, then)))

    def _decided(
        self, quota: Quota, call: Call, asked: int, then: Callable[[KeyAtLimit | None], None], answer: object
    ) -> None:
        now, attempt = self._clock(), len(call.progress.attempts)
        if isinstance(answer, Denial):
            wait_s = answer.retry_after_s
            if wait_s is not None:
                # It is a wait from the time of the question, which shared accounts may have answered much later.
                until = asked + int(wait_s * 1000)
                wait_s = max(0, until - now) / 1000
                if answer.limit == "requests" and quota.requests_per_minute:
                    self._full[quota.id] = quota.requests_per_minute, until
            then(KeyAtLimit(answer.limit, wait_s))
        elif now > asked + _SENT_MS:
            self._accounts.release(quota.id, _id(call, attempt))
            then(KeyAtLimit("requests", 1.0))
        else:
            if quota.tokens_per_minute is None or call.progress.over:
                self._accounts.release(quota.id, _id(call, attempt))  # the request counts, and no tokens do
            else:
                self.holds.setdefault(call.id, {})[attempt] = quota.id
            then(None)

    def settle(self, call: Call, entry: Entry) -> None:
        """A call with reserved tokens has ended: count those that its attempts have used."""
        holds = self.holds.pop(call.id)
        for attempt, id in holds.items():
            used = entry.attempts[attempt].tokens if attempt < len(entry.attempts) else None
            self._accounts.settle(id, _id(call, attempt), 0, used.input + used.output if used is not None else 0)
        # Its hold ends here: nothing else books it.
        self._accounts.booked([(id, _id(call, attempt)) for attempt, id in holds.items()])

    def used(self, quota: Quota) -> tuple[int, int]:
        """The requests and tokens of the last minute, as this process last saw them."""
        return self._accounts.last_minute(quota.id)


def _id(call: Call, attempt: int) -> str:
    """The id of the hold for an attempt at a call. Two attempts may use the same key for two models."""
    return f"{call.id}.{attempt}"
