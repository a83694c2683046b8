"""Strategies: in which order the targets of a route are tried, and the reason for each place. One table: `STRATEGIES`.

A strategy looks at what is known of the targets (`TargetEvidence`): measures of their last answers (`measures.py`), and
prices. It leaves out no target. What may not be tried at all is decided before (`choice.py`).
"""

import random
from collections.abc import Callable, Mapping, Sequence
from math import inf
from typing import Protocol, TypeVar

from msgspec import Struct

from penstock.gateway.calls.measures import Measures
from penstock.gateway.calls.plan import Plan
from penstock.gateway.config.route_settings import StrategyName
from penstock.gateway.record.price import PricedModel

T = TypeVar("T")

# In characters: some 250 tokens. By this, a target that begins soon and one that writes fast are compared.
_USUAL_ANSWER = 1_000
# In characters per second, of a target whose pace is not known: some 50 tokens.
_USUAL_PACE = 200.0
# The usual share of input and output in what agents and chats cost, for one price out of two.
_INPUT_SHARE, _OUTPUT_SHARE = 3, 1
_PICO_PER_TOKEN = 1_000_000  # picodollars per token, of a dollar per million tokens
# How many times as much as the best target one may have, so that a conversation stays there for its cache.
_TOLERATED = 2.0


class RankedTarget(Struct, eq=False):
    """A target that may be tried: its plans, one for each key of the provider, and the reason for its place."""

    plans: list[Plan]
    why: str = ""

    @property
    def plan(self) -> Plan:
        """The first of its plans. What they have in common is in each."""
        return self.plans[0]


class TargetEvidence(Struct, eq=False):
    """What strategies know of targets."""

    measures: Measures
    price: Callable[[Plan], PricedModel | None]
    random: random.Random


class Strategy(Protocol):
    """How the targets of a route are put in order."""

    by_affinity: bool
    """Whether the affinity of a conversation decides between targets; if not, only between the keys of each."""

    def order(self, candidates: Sequence[RankedTarget], evidence: TargetEvidence) -> list[RankedTarget]:
        """The candidates in the order of the attempts, each with its reason."""

    def tolerable(self, candidates: Sequence[RankedTarget], evidence: TargetEvidence) -> Sequence[RankedTarget]:
        """Those at which a conversation may stay, although another one would be first now."""


class InOrder:
    """As listed in the configuration."""

    by_affinity = False

    def order(self, candidates: Sequence[RankedTarget], evidence: TargetEvidence) -> list[RankedTarget]:  # noqa: ARG002
        """The candidates as they are."""
        for candidate in candidates:
            candidate.why = f"order: {candidate.plan.place + 1}"
        return [*candidates]

    def tolerable(self, candidates: Sequence[RankedTarget], evidence: TargetEvidence) -> Sequence[RankedTarget]:  # noqa: ARG002
        """All."""
        return candidates


class ByWeight:
    """In random order, by the weights of the targets. Without weights, all are equal."""

    by_affinity = True

    def order(self, candidates: Sequence[RankedTarget], evidence: TargetEvidence) -> list[RankedTarget]:
        """The candidates in random order."""
        for candidate in candidates:
            candidate.why = f"weights: {weight_of(candidate):g}"
        return drawn(candidates, weight_of, evidence.random)

    def tolerable(self, candidates: Sequence[RankedTarget], evidence: TargetEvidence) -> Sequence[RankedTarget]:  # noqa: ARG002
        """All."""
        return candidates


class LeastBusy:
    """The target with the fewest answers in progress first; of several, a random one."""

    by_affinity = True

    def order(self, candidates: Sequence[RankedTarget], evidence: TargetEvidence) -> list[RankedTarget]:
        """The candidates by their answers in progress."""
        busy = evidence.measures.busy
        for candidate in candidates:
            candidate.why = f"least_busy: {busy(candidate.plan.measure_key)} in progress"
        return sorted(candidates, key=lambda candidate: (busy(candidate.plan.measure_key), evidence.random.random()))

    def tolerable(self, candidates: Sequence[RankedTarget], evidence: TargetEvidence) -> Sequence[RankedTarget]:
        """Those with at most twice as many as the least busy one."""
        counts = [evidence.measures.busy(candidate.plan.measure_key) for candidate in candidates]
        most = (min(counts) + 1) * _TOLERATED
        return [candidate for candidate, count in zip(candidates, counts, strict=True) if count <= most]


class ByLatency:
    """The target that completes an answer soonest: of two random ones the better (power of two choices), so that not
    all calls go to the one that was best a moment ago. The others follow from the best to the worst.

    A target of which nothing is known now gets one call in a while (`Measures.explore`), and comes last for the others.
    """

    by_affinity = True

    def order(self, candidates: Sequence[RankedTarget], evidence: TargetEvidence) -> list[RankedTarget]:
        """The candidates, the better of two first."""
        scores = self._scores(candidates, evidence)
        unknown = [candidate for candidate, score in scores.items() if score == inf]
        explored = next((one for one in unknown if evidence.measures.explore(one.plan.measure_key)), None)
        if explored is not None:
            explored.why = "latency: measured now"
        ranked = sorted(candidates, key=lambda candidate: (candidate is not explored, scores[candidate]))
        if explored is None and len(known := [one for one in ranked if scores[one] < inf]) > 2:
            first = min(evidence.random.sample(known, 2), key=scores.__getitem__)
            ranked.remove(first)
            ranked.insert(0, first)
        return ranked

    def tolerable(self, candidates: Sequence[RankedTarget], evidence: TargetEvidence) -> Sequence[RankedTarget]:
        """Those that take at most twice as long as the best, and those of which nothing is known now: the conversations
        that return to such a target measure it."""
        scores = self._scores(candidates, evidence)
        most = min(scores.values()) * _TOLERATED
        return [candidate for candidate in candidates if scores[candidate] <= most or scores[candidate] == inf]

    def _scores(self, candidates: Sequence[RankedTarget], evidence: TargetEvidence) -> dict[RankedTarget, float]:
        """How long a usual answer of each takes, in seconds; infinitely long if that is not known now."""
        scores: dict[RankedTarget, float] = {}
        measures = evidence.measures
        for candidate in candidates:
            first, pace = measures.first_s(key := candidate.plan.measure_key), measures.pace(key)
            scores[candidate] = first + _USUAL_ANSWER / (pace or _USUAL_PACE) if first is not None else inf
            known = f"first event {first:.2f} s" + (f", {pace:.0f} characters/s" if pace else "") if first else ""
            candidate.why = f"latency: {known or 'not measured lately'}"
        return scores


class ByCost:
    """The target with the lowest price first, in the usual mix of input and output; one without a price is last."""

    by_affinity = False

    def order(self, candidates: Sequence[RankedTarget], evidence: TargetEvidence) -> list[RankedTarget]:
        """The candidates by price."""
        return sorted(candidates, key=lambda candidate: self._price(candidate, evidence))

    def tolerable(self, candidates: Sequence[RankedTarget], evidence: TargetEvidence) -> Sequence[RankedTarget]:  # noqa: ARG002
        """All."""
        return candidates

    def _price(self, candidate: RankedTarget, evidence: TargetEvidence) -> float:
        price = usual_price(evidence.price(candidate.plan))
        candidate.why = f"cost: ${price:.3g} per million tokens" if price < inf else "cost: price unknown"
        return price


class Cheapest(ByCost):
    """The lowest price of those whose first event comes soon enough; then the others, the soonest first.

    A target of which nothing is known now counts as soon enough: it is measured by being tried.
    """

    def order(self, candidates: Sequence[RankedTarget], evidence: TargetEvidence) -> list[RankedTarget]:
        """The candidates by price, those that are too late last."""
        most = candidates[0].plan.settings.max_first_event_s
        first = {one: evidence.measures.first_s(one.plan.measure_key) or 0.0 for one in candidates}
        soon = super().order([one for one in candidates if first[one] <= most], evidence)
        late = sorted((one for one in candidates if first[one] > most), key=first.__getitem__)
        for candidate in late:
            candidate.why = f"cheapest: late, first event {first[candidate]:.2f} s"
        return soon + late


def usual_price(priced: PricedModel | None) -> float:
    """Dollars per million tokens, in the usual mix of input and output; infinite if the price is unknown."""
    if priced is None:
        return inf
    rates = priced.price.rates
    total = rates.input * _INPUT_SHARE + rates.output * _OUTPUT_SHARE
    return total / (_INPUT_SHARE + _OUTPUT_SHARE) / _PICO_PER_TOKEN


def weight_of(candidate: RankedTarget) -> float:
    """The weight of a target; 1 without weights."""
    return candidate.plan.target.weight or 1.0


def drawn(items: Sequence[T], weight: Callable[[T], float], random_source: random.Random) -> list[T]:
    """The items in random order by weight."""
    remaining, ordered = list(items), []
    while len(remaining) > 1:
        pick = random_source.choices(range(len(remaining)), [weight(item) for item in remaining])[0]
        ordered.append(remaining.pop(pick))
    return ordered + remaining


STRATEGIES: Mapping[StrategyName, Strategy] = {
    "order": InOrder(),
    "weights": ByWeight(),
    "least_busy": LeastBusy(),
    "latency": ByLatency(),
    "cost": ByCost(),
    "cheapest": Cheapest(),
}
