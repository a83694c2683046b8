"""Pipeline: from a request to an answer, with fallback over the targets of the model.

`Gateway` chooses the targets; `ChatAttempts` and `EmbeddingAttempts` try them one after another until one commits. Each
attempt after the first is taken from the retry budget. Two kinds of retries are free: on a new connection, if a pooled
one fails so soon that the provider has presumably not seen the request (`http/client.py`, rule 3); and with another key
of the same provider, if the provider refuses one, which then cools down.

A key of a provider that is at its own limit (`gateway/limits/provider_keys.py`) is skipped without an attempt. If no
target is left because of that, the client gets a 429.
"""

import asyncio
import math
import random
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import partial
from itertools import chain
from types import MappingProxyType
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

import msgspec
from msgspec import structs

from penstock.core.dialects.dialect import AnswerFacts, OutgoingRequest, RequestError
from penstock.core.dialects.registry import DIALECTS
from penstock.core.failure import Failure
from penstock.core.losses import Loss, changes_meaning
from penstock.core.request import ClientRequest
from penstock.core.seals import last_issuer
from penstock.core.stream import EventReader, StreamReader, StreamWriter
from penstock.gateway.billing.ledger import Ledger, NoLedger
from penstock.gateway.calls import refusals
from penstock.gateway.calls.call import Attempt, Call
from penstock.gateway.calls.embeddings_request import EmbeddingsRequest
from penstock.gateway.calls.failure import from_request_losses, from_transport
from penstock.gateway.calls.leaked_keys import LeakedKeys
from penstock.gateway.calls.local_call import AdaptedRequest, take_turn, unusable_tools
from penstock.gateway.calls.local_errors import check, rewrite_error
from penstock.gateway.calls.plan import PendingConnection, Plan, Plans, TargetEndpoint, header_lines
from penstock.gateway.calls.routing import TargetHealth, from_account, in_order, is_of_key, with_state
from penstock.gateway.calls.trace import HEADER, new_span
from penstock.gateway.config import Config, ContentRule, Provider, Target
from penstock.gateway.content.answer_ids import issuer_of
from penstock.gateway.keys.keys import Key
from penstock.gateway.limits.demand import TokenDemand, chat_demand, embeddings_demand
from penstock.gateway.limits.provider_keys import Yielded
from penstock.gateway.relay.accumulating_reader import AccumulatingReader
from penstock.gateway.relay.body_relay import BodyRelay, WholeResponse
from penstock.gateway.relay.control import AttemptControl
from penstock.gateway.relay.ports import Client
from penstock.gateway.relay.recording import RecordedRequest, RecorderPort, RecordingReceiver
from penstock.gateway.relay.relay import Relay
from penstock.gateway.relay.renaming_reader import RenamingReader
from penstock.http.client import UpstreamError
from penstock.upstream.local.emulated_tools import ToolsError
from penstock.upstream.local.model import LocalModel


class Refusable(Protocol):
    """The client's side of any call."""

    def refuse(self, failure: Failure) -> None:
        """Send the failure: with its HTTP status if nothing is sent yet, else as an error frame."""

    def fail(self, error: BaseException) -> None:
        """Report an internal error, so that the client does not wait for an answer."""


class CallClient(Client, Refusable, Protocol):
    """The client's side of a chat, as the pipeline uses it."""

    def attach(self, relay: Relay) -> None:
        """Set the relay of the current attempt. The client must pass pauses, resumes and disconnects to it."""


class BodyClient(Refusable, Protocol):
    """The client's side of a call whose answer is forwarded as a whole."""

    def attach(self, relay: BodyRelay) -> None:
        """Set the relay of the current attempt. The client must pass a disconnect to it."""

    def forward(self, whole: WholeResponse) -> None:
        """Send the answer."""


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

    def check_model(self, model: str) -> None:
        """Raise `RequestError` if a model's name contains an API key. A name that has plans was checked before."""
        for plans in self._all_plans:
            if model in plans:
                return
        if self._leaked_keys.has_key(model):
            raise RequestError(refusals.key_in_model())

    def answer(self, call: Call, request: ClientRequest, client: CallClient) -> "Attempts | None":
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

    def embed(self, call: Call, request: EmbeddingsRequest, client: BodyClient) -> "Attempts | None":
        """As `answer`, for a request for embeddings."""
        plans = self._select_plans(call, client, self._embeddings)
        return EmbeddingAttempts(self, call, client, request, plans) if plans is not None else None

    def _select_plans(
        self, call: Call, client: Refusable, known: Plans, request: ClientRequest | None = None
    ) -> Sequence[Plan] | None:
        """The plans to try, in order; None if the client was refused. `request` is that of a chat."""
        self.retry_budget.earn()
        model, key = call.model, call.key
        if key is not None and key.models:
            model = known.full_name(
                model
            )  # a key's patterns are for provider/model, also if the client sends a bare name
            if not key.allows(model):
                client.refuse(refusals.not_allowed(model))
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
        if len(plans) == 1 and (key is None or key.budget is None) and not self.health.cooling_s(plans[0].target):
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
            client.refuse(refusals.all_cooling(min(map(self.health.cooling_s, plans[0].alternatives))))
            return None
        if request is not None and any(plan.provider_key for plan in ready) and (issuer := _issuer(request)):
            ready = from_account(ready, issuer)
        if not call.strict and not any(plan.quota for plan in ready):  # else some may be skipped without an attempt
            places = list(dict.fromkeys(plan.place for plan in ready))[: self.config.retries.max_attempts]
            ready = [plan for plan in ready if plan.place in places]
        if call.key is not None and call.key.budget is not None:
            ready = self.ledger.affordable(ready)
        if not ready:
            client.refuse(refusals.unpriced(call.model))
            return None
        return ready

    def plans_for(self, model: str, key: Key | None, dialect: str) -> Sequence[Plan]:
        """The plans of all targets of a model, for a request that is no call; raises `RequestError` as a call would."""
        known = self._whole[dialect]
        if key is not None and key.models and not key.allows(name := known.full_name(model)):
            raise RequestError(refusals.not_allowed(name))
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
            secrets=self._secrets,
        )
        return self._recorder.record(request, relay)


T = TypeVar("T")
ClientType = TypeVar("ClientType", bound=Refusable)
Request = TypeVar("Request")


class AnyAttempts(ABC, Generic[ClientType, Request]):
    """The attempts at one call, one after another, until a target commits or no target is left.

    Nearly always the pool has an idle connection. Then the request is sent at once, without a task.
    """

    _tried = 0  # plans before the current one
    _place = -1  # that of the target of the last attempt
    _targets_tried = 0
    _needs_fresh_connection = False
    _is_probe = False
    _committed = False
    _task: asyncio.Task[None] | None = None
    _stopped = False
    _demanded: TokenDemand | None = None
    _yielded: Yielded | None = None  # the limit of a provider's key that is free again soonest

    def __init__(
        self, gateway: Gateway, call: Call, client: ClientType, request: Request, plans: Sequence[Plan]
    ) -> None:
        self._gateway = gateway
        self._call = call
        self._client = client
        self._request = request
        self._plans = plans
        self._plan = plans[0]

    def start(self) -> None:
        """Try the first target, once the ledger has admitted the call."""
        try:
            self._demanded = self._demand()
            if self._gateway.ledger.admit(self._call, self._demanded, self._plans, self._on_decided):
                self._try()
        except Exception as error:  # noqa: BLE001 - the client gets an error
            self._client.fail(error)

    def _on_decided(self, failure: Failure | None) -> None:
        """The ledger has admitted or refused the call."""
        if self._stopped:
            return
        if failure is not None:
            self._client.refuse(failure)
            return
        try:
            self._try()
        except Exception as error:  # noqa: BLE001 - the client gets an error
            self._client.fail(error)

    def stop(self) -> None:
        """Stop: the client has disconnected or got an error."""
        self._stopped = True
        self._release_probe()
        if self._task is not None:
            self._task.cancel()

    def _release_probe(self) -> None:
        """Let another call be the probe, if this one was it."""
        if self._is_probe:
            self._is_probe = False
            self._gateway.health.release_probe(self._plan.target)

    @abstractmethod
    def _demand(self) -> TokenDemand:
        """What the request may consume, for the key's limits."""

    @abstractmethod
    def _ask(self) -> None:
        """Send the request to the target: on an idle connection of the pool, or on a new one."""

    def _prepare(self) -> Failure | None:
        """Write the request for the current target; returns a failure if that is not possible."""
        return None

    def _cooling_s(self) -> float:
        """The shortest cool-down of the targets that the request can be written for; 0 if there is none."""
        return 0.0

    def _try(self, failed: Failure | None = None) -> None:
        """Try the current target, or the next one that the request can be written for.

        `failed` is the failure of the previous target. The client gets it if no target is left.
        """
        losses = self._call.losses
        while (failure := self._prepare()) is not None:  # the target gets no request: not an attempt
            if self._tried + 1 >= len(self._plans):
                if failed is not None:
                    self._call.losses, failure = losses, failed
                elif self._yielded is not None:
                    failure = self._keys_at_limit(self._yielded)
                elif wait := self._cooling_s():
                    failure = refusals.all_cooling(wait)
                self._client.refuse(failure)
                return
            self._tried += 1
            self._plan = self._plans[self._tried]
        plan = self._plan
        if plan.quota is None:
            self._begin()
        else:
            assert self._demanded is not None  # since the start
            then, limits = partial(self._on_key_decided, failed), self._gateway.ledger.provider_keys
            limits.reserve(plan.quota, self._call, self._demanded, plan.timeouts.total_s, then)

    def _on_key_decided(self, failed: Failure | None, yielded: Yielded | None) -> None:
        """The provider's key may be used, or is at its limit. `failed` is as in `_try`."""
        if self._stopped:
            return
        try:
            if yielded is None:
                self._begin()
            else:
                self._skip_key(failed, yielded)
        except Exception as error:  # noqa: BLE001 - the client gets an error
            self._client.fail(error)

    def _skip_key(self, failed: Failure | None, yielded: Yielded) -> None:
        """Try the next key or target: the key of the current one is at its limit."""
        self._call.yielded.append((self._plan.provider, self._plan.provider_key, yielded.limit))
        if self._yielded is None or (yielded.wait_s or math.inf) < (self._yielded.wait_s or math.inf):
            self._yielded = yielded
        if self._tried + 1 < len(self._plans):
            self._tried += 1
            self._plan = self._plans[self._tried]
            # Not at once: the number of keys must not be a depth of calls.
            asyncio.get_running_loop().call_soon(self._continue, failed)
        elif failed is None or is_of_key(failed, self._plan):
            self._client.refuse(self._keys_at_limit(self._yielded))
        else:
            self._client.refuse(failed)

    def _continue(self, failed: Failure | None) -> None:
        if not self._stopped:
            try:
                self._try(failed)
            except Exception as error:  # noqa: BLE001 - the client gets an error
                self._client.fail(error)

    def _keys_at_limit(self, yielded: Yielded) -> Failure:
        """The failure if keys are at their limits, and all other targets cool down."""
        waits = [wait for wait in map(self._gateway.health.cooling_s, self._plan.alternatives) if wait]
        if yielded.wait_s is not None:
            waits.append(yielded.wait_s)
        return refusals.keys_at_limit(min(waits, default=None))

    def _begin(self) -> None:
        """Start an attempt at the current target."""
        gateway, call, plan = self._gateway, self._call, self._plan
        self._is_probe = gateway.health.tried(plan.target)
        if not call.attempts:
            call.overhead_s = time.perf_counter() - call.read_s
        attempt = Attempt(plan.provider, plan.model, plan.secrets, plan.dialect, provider_key=plan.provider_key)
        if call.trace is not None and gateway.config.telemetry.propagate:
            attempt.span = new_span()
        call.attempts.append(attempt)
        if plan.place != self._place:
            self._place, self._targets_tried = plan.place, self._targets_tried + 1
        call.control = AttemptControl(attempt)
        gateway.ledger.start_attempt(call, attempt, plan)
        self._ask()

    def _traced(self, request: bytes) -> bytes:
        """The request, with a `traceparent` header if the configuration propagates traces to providers."""
        span, trace = self._call.attempts[-1].span, self._call.trace
        if not span or trace is None or self._plan.target.provider.replay:
            return request
        first, _, rest = request.partition(b"\r\n")
        return b"%b\r\n%b: %b\r\n%b" % (first, HEADER.encode(), trace.header(span).encode(), rest)

    def _run_task(self, work: Coroutine[Any, Any, None]) -> None:
        """Continue in a task: something has to be awaited."""
        self._task = asyncio.get_running_loop().create_task(work)
        self._task.add_done_callback(self._on_task_done)

    def _on_task_done(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._client.fail(error)

    def _on_outcome(self, failure: Failure | None) -> None:
        """Handle the outcome of an attempt: its commit or failure, and after a commit how the answer ended."""
        if self._stopped:
            return
        try:
            if self._committed:
                self._conclude(failure)
            else:
                self._on_attempt_outcome(failure)
        except Exception as error:  # noqa: BLE001 - the client gets an error
            self._client.fail(error)

    def _on_attempt_outcome(self, failure: Failure | None) -> None:
        health = self._gateway.health
        if failure is not None and failure.code == "upstream_stale" and not self._needs_fresh_connection:
            attempt = self._call.attempts[-1]
            attempt.code, attempt.sent = "", False  # presumably the provider has not seen the request
            self._gateway.ledger.guard(self._call)  # `AttemptControl.release` has removed the limit
            self._needs_fresh_connection = True
            self._ask()
            return
        if failure is None:
            self._committed = True
            health.committed(self._plan.target)
            return
        self._is_probe = False
        health.failed(self._plan.target, failure)
        following = self._following(failure) if failure.retryable else None
        if following is not None:
            self._tried = following
            self._plan = self._plans[following]
            self._needs_fresh_connection = False
            self._try(failure)
            return
        wait = min(map(health.cooling_s, self._plan.alternatives))
        if wait and not failure.retry_after:
            failure = structs.replace(failure, retry_after=refusals.whole_seconds(wait))
        self._client.refuse(failure)

    def _following(self, failure: Failure) -> int | None:
        """The number of the plan to try after a failure; None if there is none, or the retry budget is used up."""
        place, following = self._plan.place, self._tried + 1
        if is_of_key(failure, self._plan) and following < len(self._plans) and self._plans[following].place == place:
            return following  # another key of the same target
        while following < len(self._plans) and self._plans[following].place == place:
            following += 1
        if following == len(self._plans) or self._targets_tried >= self._gateway.config.retries.max_attempts:
            return None
        return following if self._gateway.retry_budget.spend() else None

    def _conclude(self, failure: Failure | None) -> None:
        """The committed answer is complete, or failed."""
        self._is_probe = False
        if failure is None:
            self._gateway.health.completed(self._plan.target)
        else:
            self._gateway.health.broke(self._plan.target, failure)


class ChatAttempts(AnyAttempts[CallClient, ClientRequest]):
    """The attempts at a chat request."""

    _outgoing: OutgoingRequest  # for the current target
    _lost: Mapping[str, Sequence[Loss]] = MappingProxyType({})  # by target that strict mode skipped
    # Whether the request has many values: then a thread does what takes time for each of them, so that no call waits.
    _many = False
    # What that thread has made of the request, beside its demand: the request for the current target and for those that
    # it cannot be written for.
    _written: Mapping[Plan, OutgoingRequest | Failure] = MappingProxyType({})
    _cooling: Sequence[Plan] | None = None  # the plans of targets that cool down, once they are known

    def start(self) -> None:
        """As in the base class."""
        self._many = self._request.has_many_values
        if self._many:
            self._run_task(self._start_in_thread())
        else:
            super().start()

    async def _start_in_thread(self) -> None:
        call, telemetry = self._call, self._gateway.config.telemetry

        def work() -> None:
            if call.trace is not None and telemetry.content:
                call.request = self._request.read()
            self._demanded = self._demand()

        await self._in_thread(work)
        await self._write_in_thread()
        super().start()

    def _try(self, failed: Failure | None = None) -> None:
        if self._many and self._plan not in self._written:
            self._run_task(self._try_later(failed))
        else:
            super()._try(failed)

    async def _try_later(self, failed: Failure | None) -> None:
        await self._write_in_thread()
        super()._try(failed)

    async def _write_in_thread(self) -> None:
        """Write the request for the current target, or the next one that it can be written for; if there is none, also
        for those that cool down, as `_cooling_s` does."""
        cooling = self._cooling = self._cooling_plans()
        written: dict[Plan, OutgoingRequest | Failure] = {}

        def work() -> None:
            for plan in self._plans[self._tried :]:
                outgoing = written[plan] = self._write(plan)
                if self._is_usable(outgoing):
                    return
            written.update((plan, self._write(plan)) for plan in cooling)

        await self._in_thread(work)
        self._written = written

    async def _in_thread(self, work: Callable[[], T]) -> T:
        """Do work whose time depends on the size of the request: in a thread, if that is large."""
        return await asyncio.get_running_loop().run_in_executor(None, work) if self._many else work()

    def _demand(self) -> TokenDemand:
        plan = self._plan
        if self._demanded is not None:
            return self._demanded
        return chat_demand(self._request, plan.upstream.limits(self._request, plan.destination))

    def _ask(self) -> None:
        plan = self._plan
        if plan.is_local:
            self._run_task(self._ask_local())
            return
        opening = plan.opening if plan.dialect == self._request.dialect else None
        reader = StreamReader(plan.dialect, max_event=plan.max_event, opening=opening)
        relay = self._relay(reader, self._writer(), self._on_outcome)
        endpoint = plan.endpoint
        if endpoint is None:
            endpoint = plan.endpoint = self._gateway.endpoint(plan.target)
        connection = None if self._needs_fresh_connection else endpoint.idle_connection()
        if connection is not None:
            self._send(relay, endpoint, connection)
        else:
            self._run_task(self._open(relay, endpoint))

    async def _open(self, relay: Relay, endpoint: TargetEndpoint) -> None:
        try:
            connection = await endpoint.open(self._plan.target.timeouts.connect_s)
        except UpstreamError as error:
            failure = from_transport(error.code, error.message)
            relay.cancel(failure, "timed_out" if failure.status == 504 else "failed")
        else:
            self._send(relay, endpoint, connection)

    def _send(self, relay: Relay, endpoint: TargetEndpoint, connection: PendingConnection) -> None:
        call, plan = self._call, self._plan
        body = self._outgoing.body
        recording = self._gateway.recording(call, plan, body, relay) if plan.record else None
        relay.attach(connection, recording)
        headers = self._outgoing.headers
        request = endpoint.request(body, header_lines(headers, plan) if headers else b"")
        if call.trace is not None:
            request = self._traced(request)
        connection.send(request, relay if recording is None else recording)

    async def _ask_local(self) -> None:
        """Send the request to the local model. The wait for a turn counts towards the total timeout only."""
        plan, call = self._plan, self._call
        local = self._gateway.local_models[plan.provider]
        writer = self._writer()
        try:
            fields = await self._in_thread(partial(_checked, self._outgoing.body, plan.target.name))
        except RequestError as error:
            self._on_local_outcome(error.failure)
            return
        try:
            wait_s, beat_s = plan.target.timeouts.first_event_s, self._gateway.config.server.heartbeat_s
            turn = await take_turn(local, self._client, partial(self._heartbeat, writer), wait_s, beat_s)
        except UpstreamError as error:
            call.attempts[-1].code = error.code
            self._on_outcome(from_transport(error.code, error.message, error.retry_after))
            return
        try:
            adapted = await self._in_thread(partial(AdaptedRequest, fields, local, turn))
        except ToolsError as error:
            turn.close()
            self._on_local_outcome(unusable_tools(error))
            return
        except asyncio.CancelledError:
            turn.close()
            raise
        reader = StreamReader(plan.dialect, max_event=plan.max_event)
        relay = self._relay(adapted.reader(reader, call.id), writer, self._on_local_outcome)
        recording = self._gateway.recording(call, plan, adapted.body, relay)
        relay.attach(turn.connection, recording)
        turn.ask(adapted.body, relay if recording is None else recording)

    def _heartbeat(self, writer: StreamWriter) -> bytes:
        self._call.heartbeats += 1
        return writer.heartbeat()

    def _on_local_outcome(self, failure: Failure | None) -> None:
        """As `_on_outcome`, for the local model, whose error messages are rewritten."""
        if failure is not None:
            failure = rewrite_error(failure, self._plan.target.name, self._request.fields)
            self._call.attempts[-1].code = failure.code
        self._on_outcome(failure)

    def _prepare(self) -> Failure | None:
        written, call = self._write(self._plan), self._call
        if isinstance(written, Failure):
            return from_request_losses(self._lost) if self._lost else written
        self._outgoing = written
        call.losses = [*written.losses]
        if not call.strict or not changes_meaning(written.losses):
            return None
        self._lost = {**self._lost, self._plan.target.name: written.losses}
        self._call.losses = list(chain.from_iterable(self._lost.values()))
        return from_request_losses(self._lost)

    def _write(self, plan: Plan) -> OutgoingRequest | Failure:
        """The request for a target, or the failure if it cannot be written."""
        request = self._request
        if request.provider_state and plan.dialect != request.dialect:
            return refusals.state_elsewhere(request.provider_state, plan.target.name)
        if (written := self._written.get(plan)) is not None:
            return written
        try:
            return plan.upstream.write_request(request, plan.destination)
        except RequestError as error:
            return error.failure

    def _cooling_s(self) -> float:
        health, cooling = self._gateway.health, self._cooling_plans() if self._cooling is None else self._cooling
        waits = (health.cooling_s(plan.target) for plan in cooling if self._is_usable(self._write(plan)))
        return min(filter(None, waits), default=0.0)

    def _cooling_plans(self) -> list[Plan]:
        plans = self._gateway.plans(self._call.model, self._request.dialect, stream=self._request.stream)
        return [plan for plan in plans if self._gateway.health.cooling_s(plan.target)]

    def _is_usable(self, written: OutgoingRequest | Failure) -> bool:
        return not isinstance(written, Failure) and not (self._call.strict and changes_meaning(written.losses))

    def _writer(self) -> StreamWriter:
        """The writer of the answer for the client."""
        call, plan, request = self._call, self._plan, self._request
        facts = AnswerFacts(
            call_id=call.id,
            model=plan.model,
            created=int(time.time()),
            include_usage=request.include_usage,
            input_estimate=call.input_estimate,
            same_dialect=plan.dialect == request.dialect,
            issuer=plan.issuer,
            echo=request.echo,
            heartbeats=call.heartbeats,
            stream_type=call.stream_type,
            overrides=call.keeping.overrides(plan.issuer) if call.keeping is not None else {},
        )
        return StreamWriter.for_call(request.dialect, facts)

    def _relay(self, reader: EventReader, writer: StreamWriter, on_outcome: Callable[[Failure | None], None]) -> Relay:
        call, plan, client = self._call, self._plan, self._client
        if self._gateway.keep_transcripts and call.control is not None:
            call.control.keep_transcript()
        if self._outgoing.tools:
            reader = RenamingReader(reader, self._outgoing.tools)
        if call.request is not None or call.content is not None:
            reader = self._accumulating(reader)
        relay = Relay(call, client, reader, writer, plan.timeouts, on_outcome)
        client.attach(relay)
        return relay

    def _accumulating(self, reader: EventReader) -> AccumulatingReader:
        """A reader that collects the answer, for traces or to be kept."""
        call = self._call
        grow = call.content.grow if call.content is not None and call.request is None else None
        call.attempts[-1].answer = accumulating = AccumulatingReader(reader, grow)
        if call.content is not None:
            call.content.restart(accumulating)
        return accumulating


class EmbeddingAttempts(AnyAttempts[BodyClient, EmbeddingsRequest]):
    """The attempts at a request for embeddings."""

    def _demand(self) -> TokenDemand:
        return embeddings_demand(self._request)

    def _ask(self) -> None:
        plan = self._plan
        relay = BodyRelay(self._call, plan.timeouts, self._on_whole)
        self._client.attach(relay)
        if plan.endpoint is None:
            plan.endpoint = self._gateway.endpoint(plan.target, embeddings=True)
        connection = None if self._needs_fresh_connection else plan.endpoint.idle_connection()
        if connection is not None:
            self._send(relay, plan.endpoint, connection)
        else:
            self._run_task(self._open(relay, plan.endpoint))

    async def _open(self, relay: BodyRelay, endpoint: TargetEndpoint) -> None:
        try:
            connection = await endpoint.open(self._plan.target.timeouts.connect_s)
        except UpstreamError as error:
            relay.on_error(error)
        else:
            self._send(relay, endpoint, connection)

    def _send(self, relay: BodyRelay, endpoint: TargetEndpoint, connection: PendingConnection) -> None:
        relay.attach(connection)
        body = self._request.members.edited(self._plan.destination.members)
        connection.send(self._traced(endpoint.request(body)), relay)

    def _on_whole(self, outcome: Failure | WholeResponse) -> None:
        if isinstance(outcome, Failure):
            self._on_outcome(outcome)
        elif not self._stopped:
            self._on_outcome(None)
            self._client.forward(outcome)


Attempts: TypeAlias = ChatAttempts | EmbeddingAttempts


def _issuer(request: ClientRequest) -> str:
    """The provider account that made the reasoning in a request, or the answer that it continues; empty if unknown."""
    issuer = last_issuer(request.members.body)
    if not issuer and request.continuation is not None:
        issuer = issuer_of(request.continuation.previous)
    return issuer


def _checked(body: bytes, model: str) -> dict[str, Any]:
    """The fields of a request for the local model; raises `RequestError`."""
    fields: dict[str, Any] = msgspec.json.decode(body)
    check(fields, model)
    return fields
