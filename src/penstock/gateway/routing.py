"""Routing: which targets may answer a model's name, in which order, and which of them are left alone for now."""

import random
from collections.abc import Callable, Sequence
from email.utils import parsedate_to_datetime

from penstock.gateway.config import Retries, Target
from penstock.gateway.failure import OURS, Failure
from penstock.gateway.plan import Plan

# So many failures in a row, and a target is left alone for a while.
_FAILURES_TO_COOL = 5


class Health:
    """Which targets fail, and until when they are left alone. Shared by all calls of a process.

    `retries` are the second tries that there may be.
    """

    def __init__(self, retries: Retries, clock: Callable[[], float], wall_clock: Callable[[], float]) -> None:
        self._retries = retries
        self.retries = RetryBudget(retries.budget)
        self._clock = clock
        self._wall_clock = wall_clock
        self._failures: dict[str, int] = {}
        self._cooling: dict[str, float] = {}
        self._probes: set[str] = set()

    def succeeded(self, target: Target) -> None:
        """The target has answered."""
        if self._failures or self._cooling or self._probes:
            name = target.name
            self._probes.discard(name)
            self._failures.pop(name, None)
            self._cooling.pop(name, None)

    def tried(self, target: Target) -> bool:
        """The target is asked now. After a cool-down this one call is the probe, and is told so: others wait for it."""
        if not self._cooling or target.name not in self._cooling:
            return False
        self._probes.add(target.name)
        return True

    def left(self, target: Target) -> None:
        """The probe does not wait for the target's answer any more."""
        self._probes.discard(target.name)

    def failed(self, target: Target, failure: Failure) -> None:
        """The target has not answered."""
        name = target.name
        self._probes.discard(name)
        if not failure.retryable or failure.code.startswith(OURS):
            return
        failures = self._failures[name] = self._failures.get(name, 0) + 1
        wait = self._wait_s(failure.retry_after)
        if wait is None and failure.status == 429:
            wait = min(2.0**failures, self._retries.cooldown_s)
        if wait is None and failures >= _FAILURES_TO_COOL:
            wait = self._retries.cooldown_s
        if wait:
            self._cooling[name] = self._clock() + min(wait, self._retries.max_cooldown_s)

    def cooling_s(self, target: Target) -> float:
        """For how many more seconds the target is to be left alone; one more failure after that begins them anew."""
        if not self._cooling:
            return 0.0  # nearly always
        until = self._cooling.get(target.name)
        if until is None:
            return 0.0
        left = until - self._clock()
        return left if left > 0 else 1.0 if target.name in self._probes else 0.0

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
