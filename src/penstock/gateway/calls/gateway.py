"""Gateway: from a request to the attempts at it.

`Gateway` chooses the targets of a model and their order. An `AttemptLoop` tries them one after another until one
commits (`attempt_loop.py`).
"""

import random
import time
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from typing import Any, Protocol

from msgspec import structs

from penstock.core.dialects.dialect import CACHE_KEY, RequestError
from penstock.core.dialects.registry import DIALECTS, clients_speak
from penstock.core.dialects.shared_state import find_route, further_models
from penstock.core.hub.failure import Failure
from penstock.core.hub.request import ClientRequest
from penstock.gateway.billing.ledger import Ledger, NoLedger
from penstock.gateway.calls import refusals
from penstock.gateway.calls.affinity import affinity_headers, tenant_of
from penstock.gateway.calls.attempt_loop import Asker, AttemptLoop, TargetSubstitute
from penstock.gateway.calls.chat_asker import ChatAsker, ChatClient
from penstock.gateway.calls.choice import Chooser, Excluded, facts_of, unmet, within_attempts
from penstock.gateway.calls.continuing import Continuing, rule_for
from penstock.gateway.calls.embeddings_asker import EmbeddingsAsker, EmbeddingsClient
from penstock.gateway.calls.leaked_keys import LeakedKeys
from penstock.gateway.calls.local_asker import LocalAsker
from penstock.gateway.calls.plan import Plan, Plans, TargetEndpoint, with_credentials
from penstock.gateway.calls.routing import TargetHealth
from penstock.gateway.calls.strategies import TargetEvidence
from penstock.gateway.config import Config, ContentRule, Provider, Target
from penstock.gateway.keys.client_key import ClientKey
from penstock.gateway.record.call import Call
from penstock.gateway.record.embeddings_request import EmbeddingsRequest
from penstock.gateway.relay.recording import RecordedRequest, RecorderPort, RecordingReceiver
from penstock.gateway.relay.relay import Relay
from penstock.upstream.local.model import LocalModel
from penstock.upstream.media import MediaFetcher

# The tag of calls with a credential of the client's own.
_WITH_CREDENTIALS = {"credentials": "client"}


class Upstream(Protocol):
    """The upstream of a provider: its HTTP API, or a replay of captures."""

    def endpoint(self, url: str, headers: dict[str, str]) -> TargetEndpoint:
        """The endpoint at a URL, with these headers on every request to it."""


class ContentCollector(Protocol):
    """Collects the content of calls that may be kept for the operator."""

    def begin(self, call: Call, request: ClientRequest, rule: ContentRule) -> None:
        """Collect the content of a call from now on, if the rule and the client allow it."""


class ShadowPort(Protocol):
    """Repeats calls at other targets, to compare these."""

    def begin(self, gateway: "Gateway", call: Call, request: ClientRequest, plan: Plan) -> None:
        """A call begins whose route has a shadow, which is this plan: decide whether it is repeated."""


class CopySource(TargetSubstitute, Protocol):
    """Another call, whose answer a call gets."""

    @property
    def certain(self) -> bool:
        """Whether the answer is there as a whole."""


class CopySources(Protocol):
    """What answers calls with the answers of others."""

    def take(self, call: Call, client: Any, /) -> CopySource | None:
        """What answers a call in place of a provider; None if it asks one."""


class Gateway:
    """Answers calls with one configuration. A reload makes a new gateway; calls in progress keep theirs.

    `local_models` are the models on this machine, by the names of their providers.
    """

    def __init__(
        self,
        config: Config,
        upstream: Callable[[Provider], Upstream],
        local_models: Mapping[str, LocalModel],
        health: TargetHealth,
        ledger: Ledger | NoLedger,
        recorder: RecorderPort | None = None,
    ) -> None:
        self.config = config
        self.ledger = ledger
        self.local_models = local_models
        self.health = health
        self.chooser = Chooser(health, TargetEvidence(health.measures, ledger.price, random.Random()))
        self._upstream = upstream
        self._recorder = recorder
        self.collector: ContentCollector | None = None
        """What keeps the content of calls for the operator."""
        self.shadows: ShadowPort | None = None
        """What repeats calls at other targets."""
        self.media: MediaFetcher | None = None
        """What fetches media for providers that take no URLs, if the operator allows it."""
        self._secrets = config.secrets()
        recorded = recorder is not None
        clients = clients_speak()
        self._streamed = {name: Plans(config, "streamed", name, recorded=recorded) for name in clients}
        self._whole = {name: Plans(config, "whole", name, recorded=recorded) for name in clients}
        self._embeddings = Plans(config, "embeddings", recorded=recorded)
        self._all_plans = (*self._streamed.values(), *self._whole.values(), self._embeddings)
        self._leaked_keys = LeakedKeys(config)
        rules = (config.streams.durable, *(route.durable for route in config.routes.values()))
        self.copies: CopySources | None = None
        """What answers calls with the answers of others, if a route allows it."""
        self.shares = any(route.sharing is not None for route in config.routes.values())
        """Whether a route lets calls share answers."""
        self.logs_answers = self.shares or "always" in rules
        """Whether answers go through logs that no client asks for."""
        forwarded = (name.lower() for provider in config.providers.values() for name in provider.forward_headers)
        self.routing_headers = affinity_headers(config.routes.values()).union(forwarded)
        """The headers of clients by which routes recognise a conversation, and those that providers get."""
        self.keep_transcripts = config.admin.content and config.admin.enabled
        """Whether attempts keep a transcript, for the admin page."""

    def check(self, request: ClientRequest | EmbeddingsRequest) -> None:
        """Raise `RequestError` if the operator does not allow what a request refers to or chooses, or if the model's
        name contains an API key. A name that has plans was checked before."""
        server = self.config.server
        dialect = request.dialect if isinstance(request, ClientRequest) and not server.only_routes else ""
        if not server.provider_routing and (route := find_route(request.members.values, dialect)):
            raise RequestError(refusals.provider_routing(route))
        if (reference := request.reference) is not None and not self.config.server.shared_state:
            raise RequestError(refusals.shared_state(reference.member))
        named = (request.model, *request.fallbacks) if isinstance(request, ClientRequest) else (request.model,)
        for model in named:
            if not any(model in plans for plans in self._all_plans) and self._leaked_keys.has_key(model):
                raise RequestError(refusals.key_in_model())

    def attempts_for(self, call: Call, request: ClientRequest, client: ChatClient) -> AttemptLoop:
        """The attempts at a chat request, which the caller must start. Raises `RequestError` if there is no target."""
        call.failures_in_stream = request.failures_in_stream
        call.stream_type = request.stream_type
        if call.trace is not None:
            call.trace.parameters = request.figures()
        source = self.copies.take(call, client) if self.copies is not None else None
        known = self._streamed if request.stream else self._whole
        with_fallbacks = request.fallbacks and call.credentials is None  # which are for one target
        if source is not None and source.certain:
            plans = self._choose(call, known[request.dialect], request, copied=True)
        else:
            choose = self._choose_with_fallbacks if with_fallbacks else self._choose
            plans = choose(call, known[request.dialect], request)
        key = call.key
        salts = plans[0].salts_cache or (with_fallbacks and any(plan.salts_cache for plan in plans))
        if key is not None and (salts or CACHE_KEY in request.members.values):
            request.tenant = tenant_of(key)
        if self.collector is not None and plans[0].content != "never":
            self.collector.begin(call, request, plans[0].content)
        if plans[0].settings.leave_late:
            call.may_leave = _may_leave(call, request)
        shadow = plans[0].shadow if self.shadows is not None and source is None else None
        if self.shadows is not None and shadow is not None and not unmet(call.requirements, shadow, self.ledger.price):
            self.shadows.begin(self, call, request, shadow)
        attempts = self.attempts_at(call, plans, request, client, continues=request.stream)
        if source is not None:
            attempts.source = source
        return attempts

    def attempts_at(
        self, call: Call, plans: Sequence[Plan], request: ClientRequest, client: ChatClient, *, continues: bool = False
    ) -> AttemptLoop:
        """The attempts at a chat request with these plans, which the caller must start.

        `continues`: if the route allows it, another target goes on with an answer that breaks off."""
        rule = rule_for(plans[0].settings.continues, request.continues)
        asker: Asker = (chat := ChatAsker(self, call, client, request, plans))
        if any(plan.is_local for plan in (*plans, *chain.from_iterable(plans[0].fallbacks.values()))):
            asker = LocalAsker(self, call, client, chat)
        loop = AttemptLoop(self, call, plans, asker, client)
        if rule != "no" and continues:
            loop.continuing = chat.continuing = Continuing(call, client, request, rule, shown=self.keep_transcripts)
        return loop

    def embed(self, call: Call, request: EmbeddingsRequest, client: EmbeddingsClient) -> AttemptLoop:
        """The attempts at a request for embeddings, which the caller must start. Raises `RequestError` if there is no
        target."""
        plans = self._choose(call, self._embeddings)
        call.progress.losses = [*request.dropped]
        return AttemptLoop(self, call, plans, EmbeddingsAsker(self, call, client, request), client)

    def _choose(
        self, call: Call, known: Plans, request: ClientRequest | None = None, *, copied: bool = False
    ) -> Sequence[Plan]:
        """The plans to try, in order; any if the answer is `copied`, also those that cool down. `request` is that of a
        chat. Raises `RequestError` if there is none."""
        self.health.retries.earn()
        key = call.key
        plans = self._find(known, call.model, key)
        if request is not None and key is not None and key.restricted:
            self._check_further(request, plans, key)
        if plans:
            call.model = plans[0].route
            if plans[0].strict or (key is not None and key.strict):
                call.strict = True
        budgeted = key is not None and key.budgeted
        plans = self._required(call, plans)
        if call.credentials is not None:
            plans = with_credentials(plans, call.credentials, call.dialect, key)
            if plans and plans[0].client_credentials:
                if budgeted and not self.ledger.affordable(list(plans)):
                    raise RequestError(refusals.unpriced(call.model))
                call.tags = {**call.tags, **_WITH_CREDENTIALS}
                return plans
        if len(plans) == 1 and not budgeted and not plans[0].client_only and not self.health.cooling_s(plans[0].target):
            return plans  # nearly always
        if not plans:
            raise RequestError(refusals.no_embeddings(call.model))
        if copied:
            return plans
        ranking = self.chooser.rank(plans, facts_of(plans, request, key, call.routing_headers))
        ready, call.reasons = ranking.plans, ranking.reasons
        if not ready:
            raise RequestError(self._no_target(call.model, ranking.excluded))
        if not call.strict and not any(plan.quota for plan in ready):  # else some may be skipped without an attempt
            ready = within_attempts(ready, self.config.retries.max_attempts)
        return ready

    def _required(self, call: Call, plans: Sequence[Plan]) -> Sequence[Plan]:
        """The plans that meet what a call and its route require. Raises `RequestError` if there is none."""
        if plans and (required := plans[0].settings.require) is not None:
            call.requirements = (*call.requirements, required)
        if not call.requirements or not plans:
            return plans  # nearly always
        reasons = [unmet(call.requirements, plan, self.ledger.price) for plan in plans]
        if all(reasons):
            named = [f"{plan.target.name} {reason}" for plan, reason in zip(plans, reasons, strict=True)]
            raise RequestError(refusals.requirements_unmet(call.model, list(dict.fromkeys(named))))
        return [plan for plan, reason in zip(plans, reasons, strict=True) if not reason]

    def _choose_with_fallbacks(self, call: Call, known: Plans, request: ClientRequest) -> Sequence[Plan]:
        """The plans of the request's model, then of those that the client names as fallbacks, each of which must exist
        and be allowed. A model without a target that may be tried now is left out, unless that is so of all."""
        for name in request.fallbacks:
            self._find(known, name, call.key)
        found, reasons, route, refusal = list[Plan](), dict[int, str](), "", None
        for name in (call.model, *request.fallbacks):
            call.model, call.reasons = name, {}
            try:
                plans = self._choose(call, known, request)
            except RequestError as error:
                refusal = refusal or error
                call.model = known.full_name(name)
                plans = ()
            first = max((plan.place for plan in found), default=-1) + 1
            found += [structs.replace(plan, place=first + plan.place) for plan in plans] if first else plans
            reasons |= {first + place: why for place, why in call.reasons.items()}
            route = route or call.model
        call.model, call.reasons = route, reasons
        if refusal is not None and not found:
            raise refusal
        return found

    def _no_target(self, model: str, excluded: Sequence[Excluded]) -> Failure:
        """Why none of the plans of a model may be tried."""
        causes = {each.cause for each in excluded}
        if causes == {"client_only"}:
            return refusals.no_client_credentials(model)
        if "unpriced" in causes:
            return refusals.unpriced(model)
        targets = excluded[0].plan.alternatives
        wait = min(map(self.health.cooling_s, targets))
        return refusals.all_cooling(wait, limited=self.health.limited(targets))

    def _find(self, known: Plans, model: str, key: ClientKey | None) -> Sequence[Plan]:
        """The plans of all targets of a model. Raises `RequestError` if there is no such model, or if the key does not
        allow it."""
        if key is not None and key.restricted:
            name = known.full_name(model)  # patterns of keys are for provider/model, not for bare names
            if who := key.forbids(name):
                raise RequestError(refusals.not_allowed(name, who))
        plans = known[model]
        if plans is None:
            suggestions = [name for name in self.config.suggestions(model) if key is None or key.allows(name)]
            raise RequestError(refusals.unknown_model(model, suggestions))
        return plans

    def _check_further(self, request: ClientRequest, plans: Sequence[Plan], key: ClientKey) -> None:
        """Raise `RequestError` if a model that may go on with the answer is not allowed, at any of the targets."""
        for model in further_models(request.dialect, request.fields):
            for plan in plans:
                if who := key.forbids(name := f"{plan.provider}/{model}"):
                    raise RequestError(refusals.not_allowed(name, who))

    def plans_for(self, call: Call) -> Sequence[Plan]:
        """The plans of all targets of a model, for a count of tokens. Raises `RequestError` as a call does."""
        plans = self._required(call, self._find(self._whole[call.dialect], call.model, call.key))
        if call.credentials is None:
            return plans
        return with_credentials(plans, call.credentials, call.dialect, call.key)

    def plans(self, model: str, dialect: str, *, stream: bool) -> Sequence[Plan]:
        """The plans of all targets of a model for clients of a dialect, including those that cool down."""
        return (self._streamed if stream else self._whole)[dialect][model] or ()

    def is_available(self, target: Target) -> bool:
        """Whether a target would be tried now."""
        return any(not self.health.cooling_s(each) for each in target.by_key())

    def cooling_models(self, provider: Provider) -> dict[str, float]:
        """The models of a provider that cool down for the key with which it is called, and the seconds that are left.

        Only models of the configuration are known; the breakers have no names.
        """
        routed = (target for route in self.config.routes.values() for target in route.targets)
        named = [target for target in routed if target.provider.name == provider.name]
        named += [
            Target(provider=provider, model=model, timeouts=provider.timeouts)
            for model in dict.fromkeys(provider.models).keys() - {target.model for target in named}
        ]
        cooling: dict[str, float] = {}
        for target in named:
            for dialect in dict.fromkeys((target.dialect, *DIALECTS)):
                asked = structs.replace(target, provider=provider).for_client(dialect)
                if wait := self.health.cooling_s(asked):
                    cooling[target.model] = max(round(wait, 1), cooling.get(target.model, 0.0))
        return cooling

    def cooling_with_all_keys(self, provider: Provider) -> dict[str, float]:
        """The models of a provider that cool down with all of its keys, and the seconds that are left."""
        states = [self.cooling_models(provider.with_key(key)) for key in provider.keys]
        states = states or [self.cooling_models(provider)]
        return {model: min(state[model] for state in states) for model in set(states[0]).intersection(*states)}

    def cooling_targets(self) -> dict[tuple[str, str], bool]:
        """Whether each target of the configuration cools down, by provider and model."""
        routed = [target for route in self.config.routes.values() for target in route.targets if not route.is_pattern]
        targets = {(target.provider.name, target.model): False for target in routed}
        for provider in self.config.providers.values() if self.health.any_failing else ():
            targets |= {(provider.name, model): True for model in self.cooling_with_all_keys(provider)}
        return targets

    def endpoint(self, plan: Plan, *, embeddings: bool = False) -> TargetEndpoint:
        """The endpoint of a target."""
        target, provider = plan.target, plan.target.provider
        url = provider.embeddings_url(target.model) if embeddings else provider.url(target.model, target.dialect)
        return self._endpoint(plan, url, "" if embeddings else target.dialect)

    def endpoint_at(self, plan: Plan, path: str) -> TargetEndpoint:
        """Another endpoint of the API in which a target is asked."""
        target = plan.target
        return self._endpoint(plan, target.provider.url_beside(path, target.dialect, target.model), target.dialect)

    def _endpoint(self, plan: Plan, url: str, dialect: str) -> TargetEndpoint:
        provider = plan.target.provider
        return self._upstream(provider).endpoint(url, {**plan.client_headers, **provider.credentials(dialect)})

    def recording(self, call: Call, plan: Plan, body: bytes, relay: Relay) -> RecordingReceiver | None:
        """A receiver that records the attempt; None if it is not recorded."""
        if self._recorder is None or not plan.record:
            return None
        secrets = call.progress.attempts[-1].secrets
        request = RecordedRequest(
            directory=plan.record,
            at=time.time(),
            call=call.id,
            attempt=len(call.progress.attempts),
            provider=plan.provider,
            model=plan.model,
            dialect=plan.dialect,
            url=plan.target.provider.url(plan.model, plan.dialect),
            body=body,
            secrets=(
                self._secrets if secrets == plan.secrets and not plan.client_credentials else (*self._secrets, *secrets)
            ),
        )
        return self._recorder.record(request, relay)


def _may_leave(call: Call, request: ClientRequest) -> bool:
    """Whether a target may be left for the next one, although it bills its input: not if the request has tools that a
    provider executes, which may act twice; nor if a budget limits the call, which is reserved for one attempt."""
    if not request.stream or call.strict or request.has_many_values or (call.key is not None and call.key.budgeted):
        return False
    try:
        return all(tool.kind != "server" for tool in request.read().tools)
    except RequestError:
        return False
