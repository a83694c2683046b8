"""Routing: which targets, and which keys of their providers, cool down. `choice.py` has the order of the others.

Each target has a circuit breaker. It opens after `_FAILURES_TO_COOL` consecutive failures, or when the target sends
`Retry-After` or 429. Then the target *cools down* and is not tried. After the cool-down (half-open) one call is
admitted, the *probe*; its outcome closes the breaker or opens it again.

An attempt can fail before its commit point, or break after it. The two are counted separately: a commit ends a sequence
of failures; only a complete answer ends a sequence of breaks, too. So a target that starts every answer and completes
none cools down. Its probe must then complete before the breaker closes.

If the provider's account has no credit or no such model, the target cools down at once while another target of the
route can be tried. The last one does not, so that clients get the provider's own words.

If a provider has several keys, each key has a breaker for each target, beside the target's own. A refused key (401,
403), a rate limit (429) and a problem of the account count for the key, and every other failure for the target. A
refused key cools down at once while another key of the provider does not; the last one cools down as a target does,
because some providers refuse a request with the same status.
"""

from collections.abc import Callable, Iterable, Sequence
from hashlib import blake2b
from types import MappingProxyType

import msgspec
from msgspec import structs

from penstock.core.hub.failure import Failure
from penstock.gateway.calls.breakers import (
    BREAKS,
    COOLS_UNTIL,
    FAILURES,
    KEY_BYTES,
    LIMITED,
    MAX_TARGETS,
    PROBE_UNTIL,
    BreakerTable,
)
from penstock.gateway.calls.measures import Measures
from penstock.gateway.calls.plan import Plan
from penstock.gateway.config import Provider, Retries, Secret, Target

# After this many consecutive failures a target cools down.
_FAILURES_TO_COOL = 5
# The prefix of the error codes that are the provider's fault, unlike those of the gateway, of clients and of budgets.
_PROVIDERS = "upstream_"
# Not the provider's fault: the request decides whether an answer exceeds the gateway's limit, or how the model ends it.
_OF_REQUEST = frozenset(("upstream_event_too_large", "upstream_bad_finish", "upstream_refusal"))
_REFUSED = "upstream_auth"
_OF_ACCOUNT = frozenset(("upstream_no_credit", "upstream_model_not_found"))
_OF_KEY = frozenset((_REFUSED, "upstream_rate_limited", *_OF_ACCOUNT))


def is_of_key(failure: Failure, plan: Plan) -> bool:
    """Whether a failure is about the key of a provider that has several: another key may succeed."""
    return bool(plan.provider_key) and failure.code in _OF_KEY


class TargetHealth:
    """The circuit breakers of all targets of one configuration. Shared by all calls of a process.

    The table of the breakers outlives the configuration. A target's key in it is a digest of its model, of the dialect
    in which it is asked (one API of a provider may work while another fails), and of all settings of its provider. So a
    provider whose settings change starts with a closed breaker, and the others keep their state. If the provider has
    several API keys, they are no part of it; the record of each API key has its secret in the digest, so that a rotated
    one starts with a closed breaker.
    """

    def __init__(
        self,
        retries: Retries,
        clock: Callable[[], float],
        wall_clock: Callable[[], float],
        table: BreakerTable | None = None,
        measures: Measures | None = None,
    ) -> None:
        self._retries = retries
        self.retries = RetryBudget(retries.budget, retries.burst)
        self.measures = Measures(clock) if measures is None else measures
        """How soon and how fast the targets have answered lately."""
        self._clock = clock
        self._wall_clock = wall_clock
        self._table = BreakerTable() if table is None else table
        self._words = self._table.words
        self._seeds: dict[tuple[str, str], bytes] = {}
        self._keys: dict[tuple[str, str, str, str], tuple[int, ...]] = {}

    def committed(self, target: Target) -> None:
        """The target has started to answer: its attempt is committed."""
        if not self._words[0] or not self._find(target, self._clock()):
            return  # nearly always
        words = self._words
        with self._table.lock:
            for record in self._find(target, self._clock()):
                words[record + FAILURES] = 0.0
                if not words[record + BREAKS]:
                    self._table.free(record)
                elif words[record + BREAKS] < _FAILURES_TO_COOL:
                    words[record + COOLS_UNTIL] = words[record + PROBE_UNTIL] = 0.0

    def completed(self, target: Target) -> None:
        """The target's answer is complete."""
        if not self._words[0] or not self._find(target, self._clock()):
            return  # nearly always
        with self._table.lock:
            for record in self._find(target, self._clock()):
                self._table.free(record)

    def tried(self, target: Target) -> bool:
        """An attempt at the target starts. Returns whether it is the probe after a cool-down.

        Until the probe has an outcome other calls skip the target, but not longer than the first event may take: a
        worker that dies during its probe must not block a target.
        """
        if not self._words[0] or not self._find(target, now := self._clock()):
            return False  # nearly always
        is_probe = False
        with self._table.lock:
            for record in self._find(target, now):
                if self._words[record + COOLS_UNTIL] and self._words[record + PROBE_UNTIL] <= now:
                    self._words[record + PROBE_UNTIL] = now + target.timeouts.first_event_s
                    is_probe = True
        return is_probe

    def release_probe(self, target: Target) -> None:
        """The probe ended without an outcome: another call may be the probe."""
        with self._table.lock:
            for record in self._find(target, self._clock()):
                self._words[record + PROBE_UNTIL] = 0.0

    def failed(self, target: Target, failure: Failure, alternatives: Sequence[Target] = ()) -> None:
        """The target has failed before the commit point. `alternatives` are those of its plan."""
        self._count(target, failure, FAILURES, alternatives)

    def broke(self, target: Target, failure: Failure, alternatives: Sequence[Target] = ()) -> None:
        """The target's answer failed after the commit point."""
        self._count(target, failure, BREAKS, alternatives)

    def cooling_s(self, target: Target) -> float:
        """The seconds until the end of the target's cool-down; 0 if it may be tried."""
        if not self._words[0]:
            return 0.0  # nearly always
        now = self._clock()
        if not self._table.has_any(now):
            return 0.0
        return max((self._remaining_s(record, now) for record in self._find(target, now)), default=0.0)

    @property
    def any_failing(self) -> bool:
        """Whether any target may have failed lately."""
        return self._table.has_any(self._clock())

    def limited(self, targets: Iterable[Target]) -> bool:
        """Whether those of these targets that cool down all do so because of their provider's rate limit.

        The cool-downs may have ended since the caller has looked: then it was the reason of all that had one.
        """
        now = self._clock()
        records = [record for target in targets for record in self._find(target, now)]
        cooling = [record for record in records if self._remaining_s(record, now)] or records
        return bool(cooling) and all(self._words[record + LIMITED] for record in cooling)

    def _remaining_s(self, record: int, now: float) -> float:
        remaining = self._words[record + COOLS_UNTIL] - now
        return remaining if remaining > 0 else 1.0 if self._words[record + PROBE_UNTIL] > now else 0.0

    def _count(self, target: Target, failure: Failure, kind: int, alternatives: Sequence[Target]) -> None:
        of_account = failure.code in _OF_ACCOUNT
        if (
            not failure.retryable
            or not failure.code.startswith(_PROVIDERS)
            or failure.code in _OF_REQUEST
            or (of_account and not self._has_alternative(target, alternatives))
        ):
            if self._words[0] and self._find(target, self._clock()):
                self.release_probe(target)
            return
        now, words = self._clock(), self._words
        own, *of_key = self._record_keys(target)
        refused = of_account or (bool(of_key) and failure.code == _REFUSED and self._has_other_key(target, now))
        with self._table.claim(of_key[0] if of_key and failure.code in _OF_KEY else own, now) as record:
            for each in (record, *self._find(target, now)):
                words[each + PROBE_UNTIL] = 0.0
            words[record + kind] += 1
            words[record + LIMITED] = float(failure.status == 429 and not of_account)
            failures = words[record + kind]
            wait = self._wait_s(failure.retry_after)
            if wait is None and failure.status == 429 and not of_account:
                wait = min(2.0 ** min(failures, 30), self._retries.cooldown_s)
            if wait is None and (failures >= _FAILURES_TO_COOL or refused):
                wait = self._retries.cooldown_s
            if wait:
                words[record + COOLS_UNTIL] = now + min(wait, self._retries.max_cooldown_s)

    def _has_alternative(self, target: Target, alternatives: Sequence[Target]) -> bool:
        """Whether another target, or another key of the same one, can be tried."""
        own = self._record_keys(target)
        return any(self._record_keys(other) != own and not self.cooling_s(other) for other in alternatives)

    def _has_other_key(self, target: Target, now: float) -> bool:
        """Whether another key of the target's provider can be used."""
        others = [other for other in target.by_key() if other.provider.key != target.provider.key]
        return any(not self._cools(self._record_keys(other)[-1], now) for other in others)

    def _cools(self, key: int, now: float) -> bool:
        record = self._table.find(key, now)
        return record is not None and self._remaining_s(record, now) > 0

    def _find(self, target: Target, now: float) -> list[int]:
        """The records of a target and of the API key with which it is called."""
        found = [self._table.find(key, now) for key in self._record_keys(target)]
        return [record for record in found if record is not None]

    def _record_keys(self, target: Target) -> tuple[int, ...]:
        """The target's key in the table, and that of the API key with which it is called, if its provider has several.

        They are cached: while any target fails, each call needs some.
        """
        provider = target.provider
        name = provider.key.name if provider.key is not None else ""
        keys = self._keys.get((provider.name, name, target.model, target.dialect))
        if keys is None:
            dialect = target.dialect or provider.dialect_for(target.model, "")
            model = f"{dialect}/{target.model}".encode(errors="surrogatepass")
            seeds = [self._seed(provider, ""), *([self._seed(provider, name)] if name else [])]
            digests = [blake2b(model, key=seed, digest_size=KEY_BYTES).digest() for seed in seeds]
            keys = tuple(int.from_bytes(digest) or 1 for digest in digests)
            if len(self._keys) >= MAX_TARGETS:
                self._keys.clear()
            self._keys[provider.name, name, target.model, target.dialect] = keys
        return keys

    def _seed(self, provider: Provider, key: str) -> bytes:
        """A digest of all settings of a provider; if it has several API keys, with the one of this name or without."""
        seed = self._seeds.get((provider.name, key))
        if seed is None:
            secret = provider.api_key if key or not provider.keys else None
            seed = _digest(structs.replace(provider, api_key=secret, keys=(), key=None))
            self._seeds[provider.name, key] = seed
        return seed

    def _wait_s(self, retry_after: str) -> float | None:
        """The seconds of a `Retry-After` header; None if it is missing, invalid or not positive.

        A target that fails and sends 0 would otherwise never cool down.
        """
        if not retry_after:
            return None
        try:
            seconds = float(retry_after)
        except ValueError:
            from email.utils import parsedate_to_datetime  # noqa: PLC0415 - few providers send a date

            try:
                seconds = parsedate_to_datetime(retry_after).timestamp() - self._wall_clock()
            except (ValueError, TypeError, OverflowError):
                return None
        return seconds if seconds > 0 else None  # false for NaN, too


class NoHealth:
    """Null object for calls with a credential of the client's own, which are tried once: what becomes of them says
    nothing about calls with other credentials, nor the other way round."""

    def committed(self, target: Target) -> None:
        """Do nothing."""

    def completed(self, target: Target) -> None:
        """Do nothing."""

    def tried(self, target: Target) -> bool:  # noqa: ARG002
        """No attempt is a probe."""
        return False

    def release_probe(self, target: Target) -> None:
        """Do nothing."""

    def failed(self, target: Target, failure: Failure, alternatives: Sequence[Target] = ()) -> None:
        """Do nothing."""

    def broke(self, target: Target, failure: Failure, alternatives: Sequence[Target] = ()) -> None:
        """Do nothing."""

    def cooling_s(self, target: Target) -> float:  # noqa: ARG002
        """No target cools down."""
        return 0.0

    def limited(self, targets: Iterable[Target]) -> bool:  # noqa: ARG002
        """No target cools down."""
        return False

    @property
    def retries(self) -> "RetryBudget":
        """No retry is allowed."""
        return RetryBudget(0.0, 0.0)


class RetryBudget:
    """A token bucket for the retries of all calls: a share of the number of calls, which prevents retry storms."""

    def __init__(self, share: float, burst: float) -> None:
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


def _digest(provider: Provider) -> bytes:
    """A digest of all settings of a provider."""
    return blake2b(msgspec.json.encode(provider, enc_hook=_plain), digest_size=32).digest()


def _plain(value: object) -> object:
    if isinstance(value, Secret):
        return value.reveal().encode(errors="surrogatepass")  # from the environment, which may contain any bytes
    assert isinstance(value, MappingProxyType)
    return dict(value)
