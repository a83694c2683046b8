"""Pipeline: from an admitted request to an answer, over as many targets as it takes.

Targets are tried one after another until one commits. A second try costs a share of the retry budget; the one free
retry is on a fresh socket, when a pooled one turned out to be dead before the provider could have seen the request.
"""

import asyncio
import random
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Mapping, Sequence
from itertools import chain
from types import MappingProxyType
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

import msgspec
from msgspec import structs

from penstock.core.dialects.dialect import AnswerFacts, OutgoingRequest, RequestError
from penstock.core.failure import Failure
from penstock.core.losses import Loss, changes_meaning
from penstock.core.request import ClientRequest
from penstock.core.stream import EventReader, StreamReader, StreamWriter
from penstock.gateway.billing.ledger import Ledger, NoLedger
from penstock.gateway.calls import refusals
from penstock.gateway.calls.call import Attempt, Call
from penstock.gateway.calls.embeddings_request import EmbeddingsRequest
from penstock.gateway.calls.failure import from_request_losses, from_transport
from penstock.gateway.calls.leaked_keys import LeakedKeys
from penstock.gateway.calls.local_call import AdaptedRequest, take_turn, unusable_tools
from penstock.gateway.calls.local_errors import check, in_our_words
from penstock.gateway.calls.plan import PendingConnection, Plan, Plans, TargetEndpoint
from penstock.gateway.calls.routing import TargetHealth, in_order
from penstock.gateway.calls.trace import HEADER, new_span
from penstock.gateway.config import Config, Provider, Target
from penstock.gateway.limits.demand import TokenDemand, of_embeddings, of_request
from penstock.gateway.relay.accumulating_reader import AccumulatingReader
from penstock.gateway.relay.body_relay import BodyRelay, WholeResponse
from penstock.gateway.relay.control import AttemptControl
from penstock.gateway.relay.ports import Client
from penstock.gateway.relay.recording import RecordedRequest, RecorderPort, RecordingReceiver
from penstock.gateway.relay.relay import Relay
from penstock.http.client import UpstreamError
from penstock.upstream.local.emulated_tools import ToolsError
from penstock.upstream.local.model import LocalModel


class Refusable(Protocol):
    """The client's side of a call, whatever it asks for."""

    def refuse(self, failure: Failure) -> None:
        """There is no answer: say why, with a real status if nothing was sent yet."""

    def fail(self, error: BaseException) -> None:
        """An error of ours: it must not leave the client waiting."""


class CallClient(Client, Refusable, Protocol):
    """The client's side of a chat, as the pipeline sees it."""

    def attach(self, relay: Relay) -> None:
        """The relay that will answer: whoever pauses, resumes or leaves must tell it."""


class BodyClient(Refusable, Protocol):
    """The client's side of a call whose answer is passed on whole."""

    def attach(self, passage: BodyRelay) -> None:
        """The passage by which the answer will come: whoever leaves must tell it."""

    def pass_on(self, whole: WholeResponse) -> None:
        """Send the answer."""


class Upstream(Protocol):
    """Who answers for a provider."""

    def endpoint(self, url: str, headers: dict[str, str]) -> TargetEndpoint:
        """The endpoint at a URL, with these headers on every request to it."""


class Gateway:
    """Answers calls by a configuration. A reload makes a new one; calls under way keep theirs.

    `here` are the models on this machine, by the names of their providers.
    """

    def __init__(
        self,
        config: Config,
        upstream: Callable[[Provider], Upstream],
        here: Mapping[str, LocalModel],
        health: TargetHealth,
        ledger: Ledger | NoLedger,
        recorder: RecorderPort | None = None,
    ) -> None:
        self.config = config
        self.ledger = ledger
        self.here = here
        self.health = health
        self.budget = health.retries
        self._upstream = upstream
        self._recorder = recorder
        self._secrets = config.secrets()
        recorded = recorder is not None
        self._streamed = Plans(config, "streamed", recorded=recorded)
        self._whole = Plans(config, "whole", recorded=recorded)
        self._embeddings = Plans(config, "embeddings", recorded=recorded)
        self._leaked_keys = LeakedKeys(config)
        self._chance = random.Random()
        self.keeps = config.admin.content and config.admin.enabled
        """Whether what models say is kept, as long as it comes, for whoever reads along."""

    def check_model(self, model: str) -> None:
        """Raise `RequestError` if a model's name has an API key in it. What has plans was checked before."""
        if model in self._streamed or model in self._whole or model in self._embeddings:
            return
        if self._leaked_keys.has_key(model):
            raise RequestError(refusals.key_in_model())

    def answer(self, call: Call, request: ClientRequest, client: CallClient) -> "Attempts | None":
        """The attempts that will answer a request, which are to be begun; None if it was refused at once."""
        if call.trace is not None:
            call.parameters = request.figures()
            call.request = request.read() if self.config.telemetry.content else None
        plans = self._admit(call, client, self._streamed if request.stream else self._whole)
        return ChatAttempts(self, call, client, request, plans) if plans is not None else None

    def embed(self, call: Call, request: EmbeddingsRequest, client: BodyClient) -> "Attempts | None":
        """The same for a request for embeddings."""
        plans = self._admit(call, client, self._embeddings)
        return EmbeddingAttempts(self, call, client, request, plans) if plans is not None else None

    def _admit(self, call: Call, client: Refusable, known: Plans) -> Sequence[Plan] | None:
        """What to try for a model, in order; None if the client was refused."""
        self.budget.earn()
        model, key = call.model, call.key
        if key is not None and key.models:
            model = known.full_name(model)  # a key is for provider/model, however a client names that
            if not key.may_ask_for(model):
                client.refuse(refusals.not_allowed(model))
                return None
        plans = known[call.model]
        if plans is None:
            meant = [name for name in self.config.meant(model) if key is None or key.may_ask_for(name)]
            client.refuse(refusals.unknown_model(model, meant))
            return None
        if plans:
            call.model = plans[0].route
            if plans[0].strict or (key is not None and key.strict):
                call.strict = True
        if len(plans) == 1 and (key is None or key.budget is None) and not self.health.cooling_s(plans[0].target):
            return plans  # nearly always
        return self._choose(call, client, plans)

    def _choose(self, call: Call, client: Refusable, plans: Sequence[Plan]) -> Sequence[Plan] | None:
        """The same, of those that are able to answer, where there is a choice or a doubt."""
        if not plans:
            client.refuse(refusals.unable(call.model))
            return None
        ready = [plan for plan in in_order(plans, self._chance) if not self.health.cooling_s(plan.target)]
        if not ready:
            client.refuse(refusals.all_cooling(min(map(self.health.cooling_s, plans[0].among))))
            return None
        if not call.strict:  # else targets may be skipped without an attempt
            ready = ready[: self.config.retries.max_attempts]
        if call.key is not None and call.key.budget is not None:
            ready = self.ledger.affordable(ready)
        if not ready:
            client.refuse(refusals.unpriced(call.model))
            return None
        return ready

    def plans(self, model: str, *, stream: bool) -> Sequence[Plan]:
        """Those of all targets that may answer to a model's name, whether or not they cool down."""
        return (self._streamed if stream else self._whole)[model] or ()

    def is_available(self, target: Target) -> bool:
        """Whether a target would be tried now."""
        return not self.health.cooling_s(target)

    def endpoint(self, target: Target, *, embeddings: bool = False) -> TargetEndpoint:
        """Where the target is asked."""
        provider = target.provider
        url = provider.embeddings_url(target.model) if embeddings else provider.url(target.model)
        return self._upstream(provider).endpoint(url, provider.credentials())

    def recording(self, call: Call, plan: Plan, body: bytes, relay: Relay) -> RecordingReceiver | None:
        """A tape to record the attempt on, if it is to be recorded."""
        if self._recorder is None or not plan.record:
            return None
        asked = RecordedRequest(
            directory=plan.record,
            at=time.time(),
            call=call.id,
            attempt=len(call.attempts),
            provider=plan.provider,
            model=plan.model,
            dialect=plan.dialect,
            url=plan.target.provider.url(plan.model),
            body=body,
            secrets=self._secrets,
        )
        return self._recorder.record(asked, relay)


Side = TypeVar("Side", bound=Refusable)
Request = TypeVar("Request")


class AnyAttempts(ABC, Generic[Side, Request]):
    """The attempts at one call, one after another, until a target commits or there is none left.

    Where a connection was kept the provider is asked at once, without a task: that is nearly always.
    """

    _tried = 0  # targets before the present one
    _fresh = False
    _probe = False
    _committed = False
    _opening: asyncio.Task[None] | None = None
    _stopped = False

    def __init__(self, gateway: Gateway, call: Call, client: Side, request: Request, plans: Sequence[Plan]) -> None:
        self._gateway = gateway
        self._call = call
        self._client = client
        self._request = request
        self._plans = plans
        self._plan = plans[0]

    def begin(self) -> None:
        """Try the first target, once the ledger has admitted the call."""
        try:
            if self._gateway.ledger.admit(self._call, self._wish(), self._plans, self._on_decided):
                self._try()
        except Exception as error:  # noqa: BLE001 - whatever it is, it is told
            self._client.fail(error)

    def _on_decided(self, failure: Failure | None) -> None:
        """The ledger has admitted the call, or refused it."""
        if self._stopped:
            return
        if failure is not None:
            self._client.refuse(failure)
            return
        try:
            self._try()
        except Exception as error:  # noqa: BLE001 - whatever it is, it is told
            self._client.fail(error)

    def stop(self) -> None:
        """Nobody waits for an answer any more."""
        self._stopped = True
        self._leave()
        if self._opening is not None:
            self._opening.cancel()

    def _leave(self) -> None:
        """Let another call be the probe, if this one was it."""
        if self._probe:
            self._probe = False
            self._gateway.health.left(self._plan.target)

    @abstractmethod
    def _wish(self) -> TokenDemand:
        """What the request asks for."""

    @abstractmethod
    def _ask(self) -> None:
        """Ask the target: on a connection that was kept, unless a fresh one is wanted or there is none."""

    def _prepare(self) -> Failure | None:
        """Make the request for the present target; returns why it cannot be made, if it cannot."""
        return None

    def _cooling_s(self) -> float:
        """How long a target still cools down that the request could be written for; 0 if there is none."""
        return 0.0

    def _try(self, failed: Failure | None = None) -> None:
        """Try the present target, or the next one that the request can be written for.

        `failed` is why the target before it has failed. The client is told that, if there is no further one.
        """
        losses = self._call.losses
        while (failure := self._prepare()) is not None:  # the target is not asked: that is no attempt
            if self._tried + 1 >= len(self._plans):
                if failed is not None:
                    self._call.losses, failure = losses, failed
                elif wait := self._cooling_s():
                    failure = refusals.all_cooling(wait)
                self._client.refuse(failure)
                return
            self._tried += 1
            self._plan = self._plans[self._tried]
        gateway, call, plan = self._gateway, self._call, self._plan
        self._probe = gateway.health.tried(plan.target)
        if not call.attempts:
            call.overhead_s = time.perf_counter() - call.read_s
        attempt = Attempt(plan.provider, plan.model, plan.secrets, plan.dialect)
        if call.trace is not None and gateway.config.telemetry.propagate:
            attempt.span = new_span()
        call.attempts.append(attempt)
        call.control = AttemptControl(attempt)
        gateway.ledger.trying(call, attempt, plan)
        self._ask()

    def _traced(self, request: bytes) -> bytes:
        """The request, with the name of this attempt in its trace where providers are to be told of it."""
        span, trace = self._call.attempts[-1].span, self._call.trace
        if not span or trace is None or self._plan.target.provider.replay:
            return request
        first, _, rest = request.partition(b"\r\n")
        return b"%b\r\n%b: %b\r\n%b" % (first, HEADER.encode(), trace.header(span).encode(), rest)

    def _run(self, opening: Coroutine[Any, Any, None]) -> None:
        """Go on when something has been waited for."""
        self._opening = asyncio.get_running_loop().create_task(opening)
        self._opening.add_done_callback(self._on_opened)

    def _on_opened(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._client.fail(error)

    def _on_outcome(self, failure: Failure | None) -> None:
        """The target has committed, or it has failed before it could; and, once it has committed, how it ended."""
        if self._stopped:
            return
        try:
            if self._committed:
                self._conclude(failure)
            else:
                self._go_on(failure)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is told
            self._client.fail(error)

    def _go_on(self, failure: Failure | None) -> None:
        health = self._gateway.health
        if failure is not None and failure.code == "upstream_stale" and not self._fresh:
            attempt = self._call.attempts[-1]
            attempt.code, attempt.sent = "", False  # the provider has not seen the request
            self._gateway.ledger.guard(self._call)  # who watched it has been let go
            self._fresh = True
            self._ask()
            return
        if failure is None:
            self._committed = True
            health.committed(self._plan.target)
            return
        self._probe = False
        health.failed(self._plan.target, failure)
        following = self._plans[self._tried + 1 : self._tried + 2] if failure.retryable else ()
        if len(self._call.attempts) >= self._gateway.config.retries.max_attempts:
            following = ()
        if following and self._gateway.budget.spend():
            self._tried += 1
            self._plan = following[0]
            self._fresh = False
            self._try(failure)
            return
        wait = min(map(health.cooling_s, self._plan.among))
        if wait and not failure.retry_after:
            failure = structs.replace(failure, retry_after=refusals.whole_seconds(wait))
        self._client.refuse(failure)

    def _conclude(self, failure: Failure | None) -> None:
        """The answer of the target that has committed is complete, or broke off."""
        self._probe = False
        if failure is None:
            self._gateway.health.completed(self._plan.target)
        else:
            self._gateway.health.broke(self._plan.target, failure)


class ChatAttempts(AnyAttempts[CallClient, ClientRequest]):
    """The attempts at a request for an answer."""

    _outgoing: OutgoingRequest  # for the present target
    _lost: Mapping[str, Sequence[Loss]] = MappingProxyType({})  # by target that was skipped, what strict mode refused

    def _wish(self) -> TokenDemand:
        plan = self._plan
        return of_request(self._request, plan.upstream.limits(self._request, plan.destination))

    def _ask(self) -> None:
        plan = self._plan
        if plan.here:
            self._run(self._ask_here())
            return
        opening = plan.opening if plan.dialect == self._request.dialect else None
        reader = StreamReader(plan.dialect, max_event=plan.max_event, opening=opening)
        relay = self._relay(reader, self._writer(), self._on_outcome)
        endpoint = plan.endpoint
        if endpoint is None:
            endpoint = plan.endpoint = self._gateway.endpoint(plan.target)
        connection = None if self._fresh else endpoint.idle_connection()
        if connection is not None:
            self._send(relay, endpoint, connection)
        else:
            self._run(self._open(relay, endpoint))

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
        request = endpoint.request(body)
        if call.trace is not None:
            request = self._traced(request)
        connection.send(request, relay if recording is None else recording, recorded=recording is not None)

    async def _ask_here(self) -> None:
        """Ask a model on this machine. What it takes to have a turn there does not count as waiting for its answer."""
        plan, call = self._plan, self._call
        local = self._gateway.here[plan.provider]
        fields: dict[str, Any] = msgspec.json.decode(self._outgoing.body)
        writer = self._writer()
        try:
            check(fields, plan.target.name)
        except RequestError as error:
            self._on_outcome_here(error.failure)
            return
        try:
            wait_s, beat_s = plan.target.timeouts.first_event_s, self._gateway.config.server.heartbeat_s
            turn = await take_turn(local, self._client, writer.heartbeat, wait_s, beat_s)
        except UpstreamError as error:
            call.attempts[-1].code = error.code
            self._on_outcome(from_transport(error.code, error.message, error.retry_after))
            return
        try:
            adapted = AdaptedRequest(fields, local, turn)
        except ToolsError as error:
            turn.close()
            self._on_outcome_here(unusable_tools(error))
            return
        reader = StreamReader(plan.dialect, max_event=plan.max_event)
        relay = self._relay(adapted.reader(reader, call.id), writer, self._on_outcome_here)
        recording = self._gateway.recording(call, plan, adapted.body, relay)
        relay.attach(turn.connection, recording)
        turn.ask(adapted.body, relay if recording is None else recording)

    def _on_outcome_here(self, failure: Failure | None) -> None:
        """The same as `_on_outcome`, for a model on this machine: its errors are told in our words."""
        if failure is not None:
            failure = in_our_words(failure, self._plan.target.name, self._request.fields)
            self._call.attempts[-1].code = failure.code
        self._on_outcome(failure)

    def _prepare(self) -> Failure | None:
        written = self._write(self._plan)
        if isinstance(written, Failure):
            return from_request_losses(self._lost) if self._lost else written
        self._outgoing = written
        self._call.losses = list(written.losses)
        if not self._call.strict or not changes_meaning(written.losses):
            return None
        self._lost = {**self._lost, self._plan.target.name: written.losses}
        self._call.losses = list(chain.from_iterable(self._lost.values()))
        return from_request_losses(self._lost)

    def _write(self, plan: Plan) -> OutgoingRequest | Failure:
        """The request for a target, or why it cannot be written."""
        try:
            return plan.upstream.write_request(self._request, plan.destination)
        except RequestError as error:
            return error.failure

    def _cooling_s(self) -> float:
        health, waits = self._gateway.health, []
        for plan in self._gateway.plans(self._call.model, stream=self._request.stream):
            if wait := health.cooling_s(plan.target):
                written = self._write(plan)
                if not isinstance(written, Failure) and not (self._call.strict and changes_meaning(written.losses)):
                    waits.append(wait)
        return min(waits, default=0.0)

    def _writer(self) -> StreamWriter:
        """What writes the answer for the client."""
        facts = AnswerFacts(
            call_id=self._call.id,
            model=self._plan.model,
            created=int(time.time()),
            include_usage=self._request.include_usage,
            input_estimate=self._call.input_estimate,
        )
        return StreamWriter.for_call(self._request.dialect, facts)

    def _relay(self, reader: EventReader, writer: StreamWriter, on_outcome: Callable[[Failure | None], None]) -> Relay:
        call, plan, client = self._call, self._plan, self._client
        if self._gateway.keeps and call.control is not None:
            call.control.keep_transcript()
        if call.request is not None:
            call.attempts[-1].answer = reader = AccumulatingReader(reader)
        relay = Relay(call, client, reader, writer, plan.timeouts, on_outcome)
        client.attach(relay)
        return relay


class EmbeddingAttempts(AnyAttempts[BodyClient, EmbeddingsRequest]):
    """The attempts at a request for embeddings."""

    def _wish(self) -> TokenDemand:
        return of_embeddings(self._request)

    def _ask(self) -> None:
        plan = self._plan
        passage = BodyRelay(self._call, plan.timeouts, self._on_whole)
        self._client.attach(passage)
        if plan.endpoint is None:
            plan.endpoint = self._gateway.endpoint(plan.target, embeddings=True)
        connection = None if self._fresh else plan.endpoint.idle_connection()
        if connection is not None:
            self._send(passage, plan.endpoint, connection)
        else:
            self._run(self._open(passage, plan.endpoint))

    async def _open(self, passage: BodyRelay, endpoint: TargetEndpoint) -> None:
        try:
            connection = await endpoint.open(self._plan.target.timeouts.connect_s)
        except UpstreamError as error:
            passage.on_error(error)
        else:
            self._send(passage, endpoint, connection)

    def _send(self, passage: BodyRelay, endpoint: TargetEndpoint, connection: PendingConnection) -> None:
        passage.attach(connection)
        body = self._request.members.edited(self._plan.destination.members)
        connection.send(self._traced(endpoint.request(body)), passage)

    def _on_whole(self, outcome: Failure | WholeResponse) -> None:
        if isinstance(outcome, Failure):
            self._on_outcome(outcome)
        elif not self._stopped:
            self._on_outcome(None)
            self._client.pass_on(outcome)


Attempts: TypeAlias = ChatAttempts | EmbeddingAttempts
