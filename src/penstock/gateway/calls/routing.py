"""Routing: which targets may answer a model's name, in which order, and which of them cool down.

Each target has a circuit breaker. It opens when the target has failed so often in a row, or asks to be left alone: the
target *cools down*, and is not tried. After the cool-down one call is let through, the *probe*; its outcome closes the
breaker or opens it again.

An attempt can fail before its commit point, or break after it. Both are counted, each on its own: a commit ends a row
of failures, a complete answer ends a row of breaks too. So a target that begins to answer every call, and breaks every
answer, cools down. Its probe then has to be complete before the breaker closes.
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
    MOST_TARGETS,
    PROBE_UNTIL,
    BreakerTable,
)
from penstock.gateway.calls.plan import Plan
from penstock.gateway.config import Provider, Retries, Secret, Target

# So many failures in a row, and a target cools down.
_FAILURES_TO_COOL = 5
# Failures of the provider have codes that begin so. Those of the gateway, of clients and of budgets do not.
_PROVIDERS = "upstream_"
# The limit is ours, and whether an answer exceeds it depends on what was asked for.
_TOO_LARGE = "upstream_event_too_large"


class TargetHealth:
    """The circuit breakers of all targets, by one configuration. Shared by all calls of a process.

    The table of the breakers outlives the configuration. A target is known in it by its model and all settings of its
    provider: so a provider whose settings change starts afresh, and every other one stays as it was.
    `retries` are the second tries that there may be.
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
        self._keys: dict[tuple[str, str], int] = {}

    def committed(self, target: Target) -> None:
        """The target has begun to answer."""
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
        """The target has answered, from beginning to end."""
        if not self._words[0] or self._find(target, self._clock()) is None:
            return  # nearly always
        with self._table.lock:
            record = self._find(target, self._clock())
            if record is not None:
                self._table.free(record)

    def tried(self, target: Target) -> bool:
        """The target is asked now. Returns whether this call is the probe after a cool-down; other calls wait for it.

        They wait as long as the first event may take: a worker that dies with its probe must not keep a target out.
        """
        if not self._words[0] or self._find(target, now := self._clock()) is None:
            return False  # nearly always
        with self._table.lock:
            record = self._find(target, now)
            if record is None or not self._words[record + COOLS_UNTIL] or self._words[record + PROBE_UNTIL] > now:
                return False
            self._words[record + PROBE_UNTIL] = now + target.timeouts.first_event_s
            return True

    def left(self, target: Target) -> None:
        """The probe does not wait for the target's answer any more."""
        with self._table.lock:
            record = self._find(target, self._clock())
            if record is not None:
                self._words[record + PROBE_UNTIL] = 0.0

    def failed(self, target: Target, failure: Failure) -> None:
        """The target has failed before the commit point."""
        self._count(target, failure, FAILURES)

    def broke(self, target: Target, failure: Failure) -> None:
        """The target's answer has broken off after the commit point."""
        self._count(target, failure, BREAKS)

    def cooling_s(self, target: Target) -> float:
        """For how many more seconds the target cools down. It takes only one more failure to begin that anew."""
        if not self._words[0]:
            return 0.0  # nearly always
        now = self._clock()
        if not self._table.has_any(now):
            return 0.0
        record = self._find(target, now)
        if record is None:
            return 0.0
        left = self._words[record + COOLS_UNTIL] - now
        return left if left > 0 else 1.0 if self._words[record + PROBE_UNTIL] > now else 0.0

    def _count(self, target: Target, failure: Failure, kind: int) -> None:
        if not failure.retryable or not failure.code.startswith(_PROVIDERS) or failure.code == _TOO_LARGE:
            if self._words[0] and self._find(target, self._clock()) is not None:
                self.left(target)
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
        """The target's key in the table. The latest are remembered: while any target fails, each call asks for some."""
        provider = target.provider
        key = self._keys.get((provider.name, target.model))
        if key is None:
            seed = self._seeds.get(provider.name)
            if seed is None:
                seed = self._seeds[provider.name] = _seed(provider)
            model = target.model.encode(errors="surrogatepass")
            key = int.from_bytes(blake2b(model, key=seed, digest_size=KEY_BYTES).digest()) or 1
            if len(self._keys) >= MOST_TARGETS:
                self._keys.clear()
            self._keys[provider.name, target.model] = key
        return key

    def _wait_s(self, retry_after: str) -> float | None:
        """The seconds that a Retry-After header asks for; None where it says nothing that can be used.

        "At once" is such a nothing: a target that fails and says so would never be left alone.
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
        return seconds if seconds > 0 else None  # nor is what is no number more than that


class RetryBudget:
    """How many second tries all calls together may have: a share of the calls, so that retries never make a storm."""

    def __init__(self, share: float, burst: float = 10.0) -> None:
        self._share = share
        self._burst = burst
        self._tokens = burst

    def earn(self) -> None:
        """A call has come."""
        self._tokens = min(self._tokens + self._share, self._burst)

    def spend(self) -> bool:
        """Whether one more second try is within the budget; it is taken from it."""
        if self._tokens < 1.0:
            return False
        self._tokens -= 1.0
        return True


def in_order(plans: Sequence[Plan], chance: random.Random) -> Sequence[Plan]:
    """The plans of a route's targets in the order in which to try them: as listed, or drawn by weight, each once."""
    if len(plans) < 2 or plans[0].target.weight is None:
        return plans
    left, ordered = list(plans), []
    while left:
        pick = chance.choices(left, [plan.target.weight or 0.0 for plan in left])[0]
        left.remove(pick)
        ordered.append(pick)
    return ordered


def _seed(provider: Provider) -> bytes:
    """A digest of all that a provider is configured to be."""
    return blake2b(msgspec.json.encode(provider, enc_hook=_plain), digest_size=32).digest()


def _plain(value: object) -> object:
    if isinstance(value, Secret):
        return value.reveal().encode(errors="surrogatepass")  # of the environment, where any bytes may stand
    assert isinstance(value, MappingProxyType)
    return dict(value)
