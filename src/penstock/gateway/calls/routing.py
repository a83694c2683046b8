"""Routing: in which order the targets of a model are tried, and which of them cool down.

Each target has a circuit breaker. It opens after `_FAILURES_TO_COOL` consecutive failures, or when the target sends
`Retry-After` or 429. Then the target *cools down* and is not tried. After the cool-down (half-open) one call is
admitted, the *probe*; its outcome closes the breaker or opens it again.

An attempt can fail before its commit point, or break after it. The two are counted separately: a commit ends a sequence
of failures; only a complete answer ends a sequence of breaks, too. So a target that starts every answer and completes
none cools down. Its probe must then complete before the breaker closes.
"""

import random
from collections.abc import Callable, Sequence
from email.utils import parsedate_to_datetime
from hashlib import blake2b
from types import MappingProxyType

import msgspec

from penstock.core.failure import Failure
from penstock.gateway.calls.breakers import (
    BREAKS,
    COOLS_UNTIL,
    FAILURES,
    KEY_BYTES,
    MAX_TARGETS,
    PROBE_UNTIL,
    BreakerTable,
)
from penstock.gateway.calls.plan import Plan
from penstock.gateway.config import Provider, Retries, Secret, Target

# After this many consecutive failures a target cools down.
_FAILURES_TO_COOL = 5
# The prefix of the error codes that are the provider's fault, unlike those of the gateway, of clients and of budgets.
_PROVIDERS = "upstream_"
# Not the provider's fault: the limit is the gateway's, and the request decides whether the answer exceeds it.
_TOO_LARGE = "upstream_event_too_large"


class TargetHealth:
    """The circuit breakers of all targets of one configuration. Shared by all calls of a process.

    The table of the breakers outlives the configuration. A target's key in it is a digest of its model, of the dialect
    in which it is asked (one API of a provider may work while another fails), and of all settings of its provider. So a
    provider whose settings change starts with a closed breaker, and the others keep their state.
    """

    def __init__(
        self,
        retries: Retries,
        clock: Callable[[], float],
        wall_clock: Callable[[], float],
        table: BreakerTable | None = None,
    ) -> None:
        self._retries = retries
        self.retries = RetryBudget(retries.budget)
        self._clock = clock
        self._wall_clock = wall_clock
        self._table = BreakerTable() if table is None else table
        self._words = self._table.words
        self._seeds: dict[str, bytes] = {}
        self._keys: dict[tuple[str, str, str], int] = {}

    def committed(self, target: Target) -> None:
        """The target has started to answer: its attempt is committed."""
        if not self._words[0] or self._find(target, self._clock()) is None:
            return  # nearly always
        with self._table.lock:
            record, words = self._find(target, self._clock()), self._words
            if record is None:
                return
            words[record + FAILURES] = 0.0
            if not words[record + BREAKS]:
                self._table.free(record)
            elif words[record + BREAKS] < _FAILURES_TO_COOL:
                words[record + COOLS_UNTIL] = words[record + PROBE_UNTIL] = 0.0

    def completed(self, target: Target) -> None:
        """The target's answer is complete."""
        if not self._words[0] or self._find(target, self._clock()) is None:
            return  # nearly always
        with self._table.lock:
            record = self._find(target, self._clock())
            if record is not None:
                self._table.free(record)

    def tried(self, target: Target) -> bool:
        """An attempt at the target starts. Returns whether it is the probe after a cool-down.

        Until the probe has an outcome other calls skip the target, but not longer than the first event may take: a
        worker that dies during its probe must not block a target.
        """
        if not self._words[0] or self._find(target, now := self._clock()) is None:
            return False  # nearly always
        with self._table.lock:
            record = self._find(target, now)
            if record is None or not self._words[record + COOLS_UNTIL] or self._words[record + PROBE_UNTIL] > now:
                return False
            self._words[record + PROBE_UNTIL] = now + target.timeouts.first_event_s
            return True

    def release_probe(self, target: Target) -> None:
        """The probe ended without an outcome: another call may be the probe."""
        with self._table.lock:
            record = self._find(target, self._clock())
            if record is not None:
                self._words[record + PROBE_UNTIL] = 0.0

    def failed(self, target: Target, failure: Failure) -> None:
        """The target has failed before the commit point."""
        self._count(target, failure, FAILURES)

    def broke(self, target: Target, failure: Failure) -> None:
        """The target's answer failed after the commit point."""
        self._count(target, failure, BREAKS)

    def cooling_s(self, target: Target) -> float:
        """The seconds until the end of the target's cool-down; 0 if it may be tried."""
        if not self._words[0]:
            return 0.0  # nearly always
        now = self._clock()
        if not self._table.has_any(now):
            return 0.0
        record = self._find(target, now)
        if record is None:
            return 0.0
        remaining = self._words[record + COOLS_UNTIL] - now
        return remaining if remaining > 0 else 1.0 if self._words[record + PROBE_UNTIL] > now else 0.0

    def _count(self, target: Target, failure: Failure, kind: int) -> None:
        if not failure.retryable or not failure.code.startswith(_PROVIDERS) or failure.code == _TOO_LARGE:
            if self._words[0] and self._find(target, self._clock()) is not None:
                self.release_probe(target)
            return
        now, words = self._clock(), self._words
        with self._table.claim(self._key(target), now) as record:
            words[record + PROBE_UNTIL] = 0.0
            words[record + kind] += 1
            failures = words[record + kind]
            wait = self._wait_s(failure.retry_after)
            if wait is None and failure.status == 429:
                wait = min(2.0 ** min(failures, 30), self._retries.cooldown_s)
            if wait is None and failures >= _FAILURES_TO_COOL:
                wait = self._retries.cooldown_s
            if wait:
                words[record + COOLS_UNTIL] = now + min(wait, self._retries.max_cooldown_s)

    def _find(self, target: Target, now: float) -> int | None:
        return self._table.find(self._key(target), now)

    def _key(self, target: Target) -> int:
        """The target's key in the table. Keys are cached: while any target fails, each call needs some."""
        provider = target.provider
        key = self._keys.get((provider.name, target.model, target.dialect))
        if key is None:
            seed = self._seeds.get(provider.name)
            if seed is None:
                seed = self._seeds[provider.name] = _seed(provider)
            dialect = target.dialect or provider.dialect_for(target.model, "")
            model = f"{dialect}/{target.model}".encode(errors="surrogatepass")
            key = int.from_bytes(blake2b(model, key=seed, digest_size=KEY_BYTES).digest()) or 1
            if len(self._keys) >= MAX_TARGETS:
                self._keys.clear()
            self._keys[provider.name, target.model, target.dialect] = key
        return key

    def _wait_s(self, retry_after: str) -> float | None:
        """The seconds of a `Retry-After` header; None if it is missing, invalid or not positive.

        A target that fails and sends 0 would otherwise never cool down.
        """
        if not retry_after:
            return None
        try:
            seconds = float(retry_after)
        except ValueError:
            try:
                seconds = parsedate_to_datetime(retry_after).timestamp() - self._wall_clock()
            except (ValueError, TypeError, OverflowError):
                return None
        return seconds if seconds > 0 else None  # false for NaN, too


class RetryBudget:
    """A token bucket for the retries of all calls: a share of the number of calls, which prevents retry storms."""

    def __init__(self, share: float, burst: float = 10.0) -> None:
        self._share = share
        self._burst = burst
        self._tokens = burst

    def earn(self) -> None:
        """Add the share of one call."""
        self._tokens = min(self._tokens + self._share, self._burst)

    def spend(self) -> bool:
        """Take one retry from the budget; returns False if there is none."""
        if self._tokens < 1.0:
            return False
        self._tokens -= 1.0
        return True


def in_order(plans: Sequence[Plan], random_source: random.Random) -> Sequence[Plan]:
    """The plans of a route's targets in the order of the attempts: as listed, or in random order by weight."""
    if len(plans) < 2 or plans[0].target.weight is None:
        return plans
    remaining, ordered = list(plans), []
    while remaining:
        pick = random_source.choices(remaining, [plan.target.weight or 0.0 for plan in remaining])[0]
        remaining.remove(pick)
        ordered.append(pick)
    return ordered


def _seed(provider: Provider) -> bytes:
    """A digest of all settings of a provider."""
    return blake2b(msgspec.json.encode(provider, enc_hook=_plain), digest_size=32).digest()


def _plain(value: object) -> object:
    if isinstance(value, Secret):
        return value.reveal().encode(errors="surrogatepass")  # from the environment, which may contain any bytes
    assert isinstance(value, MappingProxyType)
    return dict(value)
