"""Explanation: what would happen to a request, without a call: which targets, in which order, why, at which price, and
what each would get of it.

The order is that of calls (`choice.py`), and requests are written as for calls. What only a running gateway knows is
not in it: cool-downs, measures, limits that are used up.
"""

import random
import time
from collections.abc import Mapping, Sequence

from msgspec import Struct

from penstock.core.dialects.dialect import RequestError
from penstock.core.hub.losses import Loss
from penstock.core.hub.request import ClientRequest
from penstock.gateway.billing.prices import PriceBook
from penstock.gateway.calls import refusals
from penstock.gateway.calls.choice import Chooser, facts_of
from penstock.gateway.calls.plan import Plan, Plans
from penstock.gateway.calls.routing import TargetHealth
from penstock.gateway.calls.strategies import TargetEvidence
from penstock.gateway.config import Config
from penstock.gateway.keys.client_key import ClientKey
from penstock.gateway.record.price import PricedModel


class ExplainedTarget(Struct, frozen=True, kw_only=True):
    """What a target would get. `tried` is its number in the order of the attempts; None if it would not be tried."""

    tried: int | None
    target: str
    provider_key: str
    dialect: str
    why: str
    price: PricedModel | None
    obstacle: str = ""
    """Why the request cannot be written for it."""
    losses: tuple[Loss, ...] = ()
    breakpoints: tuple[str, ...] = ()
    set: Mapping[str, object] = {}
    """The members that its route sets."""


def explain(
    config: Config, prices: PriceBook, request: ClientRequest, key: ClientKey | None
) -> tuple[str, list[ExplainedTarget]]:
    """The name of the route, and its targets. Raises `RequestError` as a call does: if there is no such model, or if
    the key does not allow it."""
    known = Plans(config, "streamed" if request.stream else "whole", request.dialect, recorded=False)
    name = known.full_name(request.model)
    if key is not None and key.restricted and (who := key.forbids(name)):
        raise RequestError(refusals.not_allowed(name, who))
    plans = known[request.model]
    if plans is None:
        raise RequestError(refusals.unknown_model(request.model, config.suggestions(request.model)))

    def price(plan: Plan) -> PricedModel | None:
        return prices.find(plan.target.provider, plan.model, time.time(), key.team if key is not None else "")

    health = TargetHealth(config.retries, time.monotonic, time.time)
    chooser = Chooser(health, TargetEvidence(health.measures, price, random.Random(0)))
    ranking = chooser.rank(plans, facts_of(plans, request, key, {}))
    chosen = [(plan, ranking.reasons[plan.place]) for plan in ranking.plans]
    rows = [_target(request, plan, why, price(plan), number) for number, (plan, why) in enumerate(chosen, 1)]
    return name, rows + [_target(request, each.plan, each.why, price(each.plan), None) for each in ranking.excluded]


def _target(
    request: ClientRequest, plan: Plan, why: str, price: PricedModel | None, tried: int | None
) -> ExplainedTarget:
    losses: Sequence[Loss] = ()
    breakpoints: tuple[str, ...] = ()
    obstacle = ""
    if plan.dialect != request.dialect and request.provider_state:
        obstacle = refusals.state_elsewhere(request.provider_state, plan.target.name).message
    else:
        try:
            written = plan.upstream.write_request(request, plan.destination)
            losses, breakpoints = written.losses, written.breakpoints
        except RequestError as error:
            obstacle = error.failure.message
    return ExplainedTarget(
        tried=tried,
        target=plan.target.name,
        provider_key=plan.provider_key,
        dialect=plan.dialect,
        why=why,
        price=price,
        obstacle=obstacle,
        losses=tuple(losses),
        breakpoints=breakpoints,
        set=plan.destination.overrides,
    )
