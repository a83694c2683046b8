"""Choice: which targets of a model may be tried for a call, in which order, and why. `Chooser` makes it.

    all plans ─ usable? ─▶ candidates ─ strategy, affinity ─▶ in order ─▶ the plans to try
                  └─▶ excluded, each with the reason

One function decides, for calls and for `penstock explain`: `Chooser.rank`. The same
facts and the same evidence give the same ranking; what is left to chance comes from the random source of the evidence.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain, groupby
from operator import attrgetter
from typing import Literal, TypeAlias

from msgspec import Struct

from penstock.core.hub.request import ClientRequest
from penstock.gateway.calls.affinity import affinity_key, by_affinity, key_weight, target_name
from penstock.gateway.calls.plan import Plan
from penstock.gateway.calls.routing import TargetHealth
from penstock.gateway.calls.strategies import STRATEGIES, RankedTarget, TargetEvidence, drawn, weight_of
from penstock.gateway.content.answer_ids import issuer_of
from penstock.gateway.keys.client_key import ClientKey
from penstock.gateway.record.price import PricedModel
from penstock.gateway.record.requirements import Requirements

Exclusion: TypeAlias = Literal["client_only", "required", "state", "cooling", "unpriced"]


class Facts(Struct, frozen=True, kw_only=True):
    """What a choice depends on, of the call."""

    affinity: bytes = b""
    """What its conversation is recognised by; empty if its route has no affinity."""
    issuer: str = ""
    """The account of a provider that made what the request has in it; empty if none did, or if it is unknown."""
    provider_state: bool = False
    """Whether the request refers to what a provider keeps."""
    requirements: tuple[Requirements, ...] = ()
    """What it requires of providers."""
    priced_only: bool = False
    """Whether only targets with a known price may be tried, because a budget limits the call."""


def facts_of(
    plans: Sequence[Plan], request: ClientRequest | None, key: ClientKey | None, headers: Mapping[str, str]
) -> Facts:
    """What the choice between plans depends on, of a call. `headers`: those of the client that may recognise it."""
    rule, required = plans[0].settings.affinity, plans[0].settings.require
    return Facts(
        requirements=(required,) if required is not None else (),
        affinity=affinity_key(rule, request, key, headers) if rule else b"",
        issuer=_issuer(request) if request is not None and any(plan.provider_key for plan in plans) else "",
        provider_state=request is not None and bool(request.provider_state),
        priced_only=key is not None and key.budgeted,
    )


def _issuer(request: ClientRequest) -> str:
    """The provider account that made the reasoning in a request, or the answer that it continues; empty if unknown."""
    issuer = request.issuer()
    if not issuer and request.continuation is not None:
        issuer = issuer_of(request.continuation.previous)
    return issuer


class Excluded(Struct, frozen=True):
    """A plan that may not be tried, and why: by a word for code, and by a sentence without its subject for people."""

    plan: Plan
    cause: Exclusion
    why: str


class Ranking(Struct, frozen=True):
    """The targets that may be tried, in order, and those that may not."""

    candidates: Sequence[RankedTarget]
    excluded: Sequence[Excluded]

    @property
    def plans(self) -> list[Plan]:
        """The plans to try, in order."""
        return list(chain.from_iterable(candidate.plans for candidate in self.candidates))

    @property
    def reasons(self) -> dict[int, str]:
        """The reason for the place of each target, by its place in the route."""
        return {candidate.plan.place: candidate.why for candidate in self.candidates}


class Chooser:
    """Puts the targets of a route in order."""

    def __init__(self, health: TargetHealth, evidence: TargetEvidence) -> None:
        self._health = health
        self._evidence = evidence

    def rank(self, plans: Sequence[Plan], facts: Facts) -> Ranking:
        """The plans of a route's targets (all of one kind of call), ranked for a call."""
        usable, excluded = self._usable(plans, facts)
        if not usable:
            return Ranking((), excluded)
        settings = usable[0].settings
        strategy, evidence = STRATEGIES[settings.strategy], self._evidence
        candidates = [RankedTarget([*group]) for _, group in groupby(usable, attrgetter("place"))]
        if len(candidates) > 1:
            ordered = strategy.order(candidates, evidence)
            if facts.affinity and strategy.by_affinity:
                ordered = self._by_affinity(ordered, facts.affinity)
        else:
            candidates[0].why = f"{settings.strategy}: no other target"
            ordered = candidates
        for candidate in ordered:
            if len(candidate.plans) > 1:
                candidate.plans = self._keys(candidate.plans, facts)
        return Ranking(ordered, excluded)

    def _usable(self, plans: Sequence[Plan], facts: Facts) -> tuple[list[Plan], list[Excluded]]:
        """The plans that may be tried, and the others."""
        usable: list[Plan] = []
        excluded: list[Excluded] = []
        accounts = {plan.place: plan.issuer for plan in reversed(plans) if not plan.client_only}
        for plan in plans:
            if (obstacle := self._obstacle(plan, facts, accounts.get(plan.place, ""))) is not None:
                excluded.append(obstacle)
            else:
                usable.append(plan)
        return usable, excluded

    def _obstacle(self, plan: Plan, facts: Facts, account: str) -> Excluded | None:
        """Why a plan may not be tried; None if it may. `account` is that of the target's first key."""
        if plan.client_only:
            return Excluded(plan, "client_only", "is called with credentials of clients only")
        if facts.requirements and (why := unmet(facts.requirements, plan, self._evidence.price)):
            return Excluded(plan, "required", why)
        # Which account keeps what a request refers to is unknown, so it must always be the same one.
        if facts.provider_state and plan.issuer != account:
            return Excluded(plan, "state", "may not have what the request refers to: another account may keep it")
        if wait := self._health.cooling_s(plan.target):
            return Excluded(plan, "cooling", f"cools down for {wait:.1f} s")
        if facts.priced_only and self._evidence.price(plan) is None:
            return Excluded(plan, "unpriced", "has no known price, and a budget limits the call")
        return None

    def _by_affinity(self, ordered: list[RankedTarget], key: bytes) -> list[RankedTarget]:
        """The candidates, with the one first at which the conversation stays."""
        tolerable = STRATEGIES[ordered[0].plan.settings.strategy].tolerable(ordered, self._evidence)
        staying = by_affinity(tolerable, key, lambda candidate: target_name(candidate.plan), weight_of)
        for candidate in staying:
            candidate.why = f"affinity; {candidate.why}"
        return staying + [candidate for candidate in ordered if candidate not in staying]

    def _keys(self, plans: list[Plan], facts: Facts) -> list[Plan]:
        """The plans with the keys of one provider, in order: those of the account that made the request's reasoning
        first, because only it accepts its seals; then by affinity, by weight, or as listed."""
        key = plans[0].target.provider.key
        if facts.affinity:
            plans = by_affinity(plans, facts.affinity, attrgetter("provider_key"), key_weight)
        elif key is not None and key.weight is not None:
            plans = drawn(plans, key_weight, self._evidence.random)
        return sorted(plans, key=lambda plan: plan.issuer != facts.issuer) if facts.issuer else plans


def unmet(requirements: Iterable[Requirements], plan: Plan, price: Callable[[Plan], PricedModel | None]) -> str:
    """The first requirement that a plan does not meet, as the rest of a sentence; empty if it meets all."""
    provider = plan.target.provider
    return next(filter(None, (each.unmet(provider, price(plan)) for each in requirements)), "")


def within_attempts(plans: Iterable[Plan], most: int) -> list[Plan]:
    """The plans of the first `most` targets: a call tries no more of them."""
    plans = list(plans)
    places = list(dict.fromkeys(plan.place for plan in plans))[:most]
    return [plan for plan in plans if plan.place in places]
