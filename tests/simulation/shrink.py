"""Shrink: finds a smaller world that still shows a violation, by leaving out faults, clients and calls."""

import re
import time
from collections.abc import Callable, Sequence

from tests.simulation.plan import Plan
from tests.simulation.simulation import Outcome, simulate

_DETAILS = re.compile(r"'[^']*'|\d+|gateway-\S+|\([^)]*\)")


def kind_of(violation: str) -> str:
    """A violation without what differs between worlds."""
    return _DETAILS.sub("#", violation)[:60]


def shrink(plan: Plan, outcome: Outcome, *, seconds: float = 120.0) -> tuple[Plan, Outcome]:
    """The smallest plan found within a time, and what came of it."""
    wanted = kind_of(outcome.violations[0])
    until = time.monotonic() + seconds
    best = (plan, outcome)

    def shows(candidate: Plan) -> bool:
        nonlocal best
        if time.monotonic() > until:
            return False
        found = simulate(candidate)
        if not any(kind_of(violation) == wanted for violation in found.violations):
            return False
        best = (candidate, found)
        return True

    _reduce(
        [fault.number for fault in plan.faults], lambda kept: shows(best[0].with_parts(None, frozenset(kept), None))
    )
    _reduce([each.number for each in plan.clients], lambda kept: shows(best[0].with_parts(frozenset(kept), None, None)))
    _reduce([call.id for call in best[0].calls], lambda kept: shows(best[0].with_parts(None, None, frozenset(kept))))
    return best


def _reduce(items: list[int], shows: Callable[[Sequence[int]], bool]) -> None:
    """Leave out as many items as possible: first large groups, then single ones."""
    if items and shows([]):
        return
    size = max(1, len(items) // 2)
    while items:
        at = 0
        while at < len(items):
            rest = items[:at] + items[at + size :]
            if rest and shows(rest):
                items = rest
            else:
                at += size
        if size == 1:
            return
        size = max(1, size // 2)
