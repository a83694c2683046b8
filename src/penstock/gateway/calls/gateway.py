"""Gateway: from a request to the attempts at it.

`Gateway` chooses the targets of a model and their order. `ChatAttempts` and `EmbeddingAttempts` try them one after
another until one commits (`attempts.py`).
"""

import random
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, TypeAlias

from msgspec import structs

from penstock.core.dialects.dialect import RequestError
from penstock.core.dialects.registry import DIALECTS
from penstock.core.dialects.shared_state import find_route
from penstock.core.hub.request import ClientRequest
from penstock.gateway.billing.ledger import Ledger, NoLedger
from penstock.gateway.calls import refusals
from penstock.gateway.calls.attempts import Refusable
from penstock.gateway.calls.call import Call
from penstock.gateway.calls.chat_attempts import CallClient, ChatAttempts
from penstock.gateway.calls.embedding_attempts import BodyClient, EmbeddingAttempts
from penstock.gateway.calls.embeddings_request import EmbeddingsRequest
from penstock.gateway.calls.leaked_keys import LeakedKeys
from penstock.gateway.calls.plan import Plan, Plans, TargetEndpoint
from penstock.gateway.calls.routing import TargetHealth, from_account, in_order, with_state
from penstock.gateway.config import Config, ContentRule, Provider, Target
from penstock.gateway.content.answer_ids import issuer_of
from penstock.gateway.keys.keys import Key
from penstock.gateway.relay.recording import RecordedRequest, RecorderPort, RecordingReceiver
from penstock.gateway.relay.relay import Relay
from penstock.upstream.local.model import LocalModel
from penstock.upstream.media import MediaFetcher

Attempts: TypeAlias = ChatAttempts | EmbeddingAttempts


class Upstream(Protocol):
    """The upstream of a provider: its HTTP API, or a replay of captures."""

    def endpoint(self, url: str, headers: dict[str, str]) -> TargetEndpoint:
        """The endpoint at a URL, with these headers on every request to it."""


class ContentCollector(Protocol):
    """Collects the content of calls that may be kept for the operator."""

    def begin(self, call: Call, request: ClientRequest, rule: ContentRule) -> None:
        """Collect the content of a call from now on, if the rule and the client allow it."""


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
        self.retry_budget = health.retries
        self._upstream = upstream
        self._recorder = recorder
        self.collector: ContentCollector | None = None
        """What keeps the content of calls for the operator."""
        self.media: MediaFetcher | None = None
        """What fetches media for providers that take no URLs, if the operator allows it."""
        self._secrets = config.secrets()
        recorded = recorder is not None
        clients = [name for name, dialect in DIALECTS.items() if dialect.surface is not None]
        self._streamed = {name: Plans(config, "streamed", name, recorded=recorded) for name in clients}
        self._whole = {name: Plans(config, "whole", name, recorded=recorded) for name in clients}
        self._embeddings = Plans(config, "embeddings", recorded=recorded)
        self._all_plans = (*self._streamed.values(), *self._whole.values(), self._embeddings)
        self._leaked_keys = LeakedKeys(config)
        self._random = random.Random()
        self.keep_transcripts = config.admin.content and config.admin.enabled
        """Whether attempts keep a transcript, for the admin page."""

    def check(self, request: ClientRequest | EmbeddingsRequest) -> None:
        """Raise `RequestError` if the operator does not allow what a request refers to or chooses, or if the model's
        name contains an API key. A name that has plans was checked before."""
        if (route := find_route(request.members.values)) and not self.config.server.provider_routing:
            raise RequestError(refusals.provider_routing(route))
        if (reference := request.reference) is not None and not self.config.shared_state:
            raise RequestError(refusals.shared_state(reference.member))
        for plans in self._all_plans:
            if request.model in plans:
                return
        if self._leaked_keys.has_key(request.model):
            raise RequestError(refusals.key_in_model())

    def attempts_for(self, call: Call, request: ClientRequest, client: CallClient) -> Attempts | None:
        """The attempts at a chat request, which the caller must start; None if the request was refused at once."""
        call.failures_in_stream = request.failures_in_stream
        call.stream_type = request.stream_type
        if call.trace is not None:
            call.parameters = request.figures()
            if self.config.telemetry.content and not request.has_many_values:  # else a thread reads it
                call.request = request.read()
        known = self._streamed if request.stream else self._whole
        plans = self._select_plans(call, client, known[request.dialect], request)
        if plans is None:
            return None
        if self.collector is not None and plans[0].content != "never":
            self.collector.begin(call, request, plans[0].content)
        return ChatAttempts(self, call, client, request, plans)

    def embed(self, call: Call, request: EmbeddingsRequest, client: BodyClient) -> Attempts | None:
        """The attempts at a request for embeddings, which the caller must start; None if it was refused at once."""
        plans = self._select_plans(call, client, self._embeddings)
        return EmbeddingAttempts(self, call, client, request, plans) if plans is not None else None

    def _select_plans(
        self, call: Call, client: Refusable, known: Plans, request: ClientRequest | None = None
    ) -> Sequence[Plan] | None:
        """The plans to try, in order; None if the client was refused. `request` is that of a chat."""
        self.retry_budget.earn()
        model, key = call.model, call.key
        if key is not None and key.restricted:
            model = known.full_name(
                model
            )  # a key's patterns are for provider/model, also if the client sends a bare name
            if who := key.forbids(model):
                client.refuse(refusals.not_allowed(model, who))
                return None
        plans = known[call.model]
        if plans is None:
            suggestions = [name for name in self.config.suggestions(model) if key is None or key.allows(name)]
            client.refuse(refusals.unknown_model(model, suggestions))
            return None
        if plans:
            call.model = plans[0].route
            if plans[0].strict or (key is not None and key.strict):
                call.strict = True
        if len(plans) == 1 and (key is None or not key.budgeted) and not self.health.cooling_s(plans[0].target):
            return plans  # nearly always
        stateful = request is not None and bool(request.provider_state)
        return self._choose(call, client, with_state(plans) if stateful else plans, request)

    def _choose(
        self, call: Call, client: Refusable, plans: Sequence[Plan], request: ClientRequest | None
    ) -> Sequence[Plan] | None:
        """As `_select_plans`, if there are several targets or keys, a budget, or a target that cools down."""
        if not plans:
            client.refuse(refusals.no_embeddings(call.model))
            return None
        ready = [plan for plan in in_order(plans, self._random) if not self.health.cooling_s(plan.target)]
        if not ready:
            targets = plans[0].alternatives
            wait = min(map(self.health.cooling_s, targets))
            client.refuse(refusals.all_cooling(wait, limited=self.health.limited(targets)))
            return None
        if request is not None and any(plan.provider_key for plan in ready) and (issuer := _issuer(request)):
            ready = from_account(ready, issuer)
        if not call.strict and not any(plan.quota for plan in ready):  # else some may be skipped without an attempt
            places = list(dict.fromkeys(plan.place for plan in ready))[: self.config.retries.max_attempts]
            ready = [plan for plan in ready if plan.place in places]
        if call.key is not None and call.key.budgeted:
            ready = self.ledger.affordable(ready)
        if not ready:
            client.refuse(refusals.unpriced(call.model))
            return None
        return ready

    def plans_for(self, model: str, key: Key | None, dialect: str) -> Sequence[Plan]:
        """The plans of all targets of a model, for a request that is no call; raises `RequestError` as a call would."""
        known = self._whole[dialect]
        if key is not None and key.restricted and (who := key.forbids(name := known.full_name(model))):
            raise RequestError(refusals.not_allowed(name, who))
        plans = known[model]
        if plans is None:
            suggestions = [name for name in self.config.suggestions(model) if key is None or key.allows(name)]
            raise RequestError(refusals.unknown_model(model, suggestions))
        return plans

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

    def endpoint(self, target: Target, *, embeddings: bool = False) -> TargetEndpoint:
        """The endpoint of a target."""
        provider = target.provider
        if embeddings:
            return self._upstream(provider).endpoint(provider.embeddings_url(target.model), provider.credentials())
        url = provider.url(target.model, target.dialect)
        return self._upstream(provider).endpoint(url, provider.credentials(target.dialect))

    def endpoint_at(self, target: Target, path: str) -> TargetEndpoint:
        """Another endpoint of the API in which a target is asked."""
        provider = target.provider
        url = provider.url_beside(path, target.dialect, target.model)
        return self._upstream(provider).endpoint(url, provider.credentials(target.dialect))

    def recording(self, call: Call, plan: Plan, body: bytes, relay: Relay) -> RecordingReceiver | None:
        """A receiver that records the attempt; None if it is not recorded."""
        if self._recorder is None or not plan.record:
            return None
        secrets = call.attempts[-1].secrets
        request = RecordedRequest(
            directory=plan.record,
            at=time.time(),
            call=call.id,
            attempt=len(call.attempts),
            provider=plan.provider,
            model=plan.model,
            dialect=plan.dialect,
            url=plan.target.provider.url(plan.model, plan.dialect),
            body=body,
            secrets=self._secrets if secrets == plan.secrets else (*self._secrets, *secrets),
        )
        return self._recorder.record(request, relay)


def _issuer(request: ClientRequest) -> str:
    """The provider account that made the reasoning in a request, or the answer that it continues; empty if unknown."""
    issuer = request.issuer()
    if not issuer and request.continuation is not None:
        issuer = issuer_of(request.continuation.previous)
    return issuer
