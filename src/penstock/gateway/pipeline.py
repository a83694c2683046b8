"""Pipeline: from an admitted request to an answer, over as many targets as it takes.

Targets are tried one after another until one commits. A second try costs a share of the retry budget; the one free
retry is on a fresh socket, when a pooled one turned out to be dead before the provider could have seen the request.
"""

import asyncio
import random
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, NamedTuple, Protocol

from msgspec import structs

from penstock.core.dialects.emulated_tools import ToolsError
from penstock.core.dialects.openai_chat_habit import Habit
from penstock.core.stream import Reader, StreamReader, StreamWriter
from penstock.gateway import refusals
from penstock.gateway.call import Attempt, Call
from penstock.gateway.config import Config, Provider, Route, Target
from penstock.gateway.failure import Failure, from_transport
from penstock.gateway.heard import Heard
from penstock.gateway.here import Adapted, take_turn, unusable_tools
from penstock.gateway.ledger import Ledger, NoLedger
from penstock.gateway.passage import Passage, Whole
from penstock.gateway.relay import Relay
from penstock.gateway.request import ChatRequest, EmbeddingsRequest
from penstock.gateway.routing import Health, in_order
from penstock.gateway.sides import Client, Connection, Patience
from penstock.gateway.tape import Asked, Recorder, Tape
from penstock.gateway.trace import HEADER, new_span
from penstock.gateway.wish import Wish, of_chat, of_embeddings
from penstock.http.client import Receiver, UpstreamError
from penstock.upstream.local import Local

_MAX_ENDPOINTS = 1_000
# An unstreamed answer is one event to the reader, and may hold images or sound.
_MAX_BODY = 32_000_000


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


class WholeClient(Refusable, Protocol):
    """The client's side of a call whose answer is passed on whole."""

    def attach(self, passage: Passage) -> None:
        """The passage by which the answer will come: whoever leaves must tell it."""

    def pass_on(self, whole: Whole) -> None:
        """Send the answer."""


class AskedConnection(Connection, Protocol):
    """A connection, as the pipeline sees it."""

    def send(self, request: bytes, receiver: Receiver) -> None:
        """Send a request; its answer goes to the receiver."""


class Endpoint(Protocol):
    """Where a target is asked."""

    def request(self, body: bytes) -> bytes:
        """The whole request that carries the body."""

    def kept(self) -> AskedConnection | None:
        """A connection to it that was kept, if there is one."""

    async def open(self, timeout_s: float) -> AskedConnection:
        """A fresh connection to it; raises `UpstreamError`."""


class Upstream(Protocol):
    """Who answers for a provider."""

    def endpoint(self, url: str, headers: dict[str, str]) -> Endpoint:
        """The endpoint at a URL, with these headers on every request to it."""


class Gateway:
    """Answers calls by a configuration. A reload makes a new one; calls under way keep theirs.

    `here` are the models on this machine, by the names of their providers.
    """

    def __init__(
        self,
        config: Config,
        upstream: Callable[[Provider], Upstream],
        here: Mapping[str, Local],
        health: Health,
        ledger: Ledger | NoLedger,
        recorder: Recorder | None = None,
    ) -> None:
        self.config = config
        self.ledger = ledger
        self.here = here
        self.health = health
        self.budget = health.retries
        self._upstream = upstream
        self._recorder = recorder
        self._secrets = config.secrets()
        self._endpoints: dict[tuple[str, bool], Endpoint] = {}
        self._habits: dict[str, Habit] = {}
        self._chance = random.Random()

    def answer(self, call: Call, request: ChatRequest, client: CallClient) -> "Attempts | None":
        """The attempts that will answer a chat, which are to be begun; None if it was refused at once."""
        if call.trace is not None:
            call.parameters = request.figures()
            call.messages = request.fields["messages"] if self.config.telemetry.content else None
        admitted = self._admit(call, client)
        return ChatAttempts(self, call, client, admitted, request) if admitted is not None else None

    def embed(self, call: Call, request: EmbeddingsRequest, client: WholeClient) -> "Attempts | None":
        """The same for a request for embeddings."""
        admitted = self._admit(call, client, able=lambda target: bool(target.provider.embeddings))
        return EmbeddingAttempts(self, call, client, admitted, request) if admitted is not None else None

    def _admit(self, call: Call, client: Refusable, able: Callable[[Target], bool] | None = None) -> "Admitted | None":
        """The targets to try for a model, of those that are able to answer; None if the client was refused."""
        self.budget.earn()
        model = call.model
        if call.key is not None and not call.key.may_ask_for(model):
            client.refuse(refusals.not_allowed(model))
            return None
        route = self.config.route(model)
        if route is None:
            client.refuse(refusals.unknown_model(model))
            return None
        targets = [target for target in in_order(route, self._chance) if able is None or able(target)]
        if not targets:
            client.refuse(refusals.unable(model))
            return None
        ready = [target for target in targets if not self.health.cooling_s(target)]
        if not ready:
            client.refuse(refusals.all_cooling(min(map(self.health.cooling_s, targets))))
            return None
        ready = self.ledger.affordable(call.key, ready[: self.config.retries.max_attempts])
        if not ready:
            client.refuse(refusals.unpriced(model))
            return None
        return Admitted(route, targets, ready)

    def is_available(self, target: Target) -> bool:
        """Whether a target would be tried now."""
        return not self.health.cooling_s(target)

    def endpoint(self, target: Target, *, embeddings: bool = False) -> Endpoint:
        """Where the target is asked. Made once: the names of models that clients may ask for are bounded."""
        endpoint = self._endpoints.get((target.name, embeddings))
        if endpoint is None:
            provider = target.provider
            url = provider.embeddings_url(target.model) if embeddings else provider.url(target.model)
            endpoint = self._upstream(provider).endpoint(url, provider.credentials())
            if len(self._endpoints) < _MAX_ENDPOINTS:
                self._endpoints[target.name, embeddings] = endpoint
        return endpoint

    def habit(self, target: Target) -> Habit | None:
        """How the target's answers begin; None where so many are known that there is no room for it."""
        habit = self._habits.get(target.name)
        if habit is None and len(self._habits) < _MAX_ENDPOINTS:
            habit = self._habits[target.name] = Habit()
        return habit

    def patience(self, call: Call, target: Target) -> Patience:
        """How long an attempt at a target may take. A chat that is not streamed may be silent until it is whole."""
        timeouts = target.timeouts
        whole = call.surface == "chat" and not call.stream
        return Patience(
            first_event_s=timeouts.answer_s if whole else timeouts.first_event_s,
            gap_s=timeouts.gap_s,
            heartbeat_s=self.config.server.heartbeat_s,
            until=call.started + timeouts.total_s,
            drain_s=target.provider.drain_s if target.provider.abort == "drain" else 0.0,
        )

    def tape(self, call: Call, route: Route, target: Target, body: bytes, relay: Relay) -> Tape | None:
        """A tape to record the attempt on, if it is to be recorded."""
        directory = self.config.server.record if route.record is None else route.record
        if self._recorder is None or not directory:
            return None
        asked = Asked(
            directory=directory,
            at=time.time(),
            call=call.id,
            attempt=len(call.attempts),
            provider=target.provider.name,
            model=target.model,
            url=target.provider.url(target.model),
            body=body,
            secrets=self._secrets,
        )
        return self._recorder.tape(asked, relay)


class Admitted(NamedTuple):
    """A route, the targets of it that can answer, and those of them that are to be tried, in order."""

    route: Route
    targets: list[Target]
    ready: list[Target]


class Attempts(ABC):
    """The attempts at one call, one after another, until a target commits or there is none left.

    Where a connection was kept the provider is asked at once, without a task: that is nearly always.
    """

    def __init__(self, gateway: Gateway, call: Call, client: Refusable, admitted: Admitted) -> None:
        self._gateway = gateway
        self._call = call
        self._refusable = client
        self._route, self._targets, self._listed = admitted
        self._ready = iter(self._listed)
        self._target = next(self._ready)
        self._fresh = False
        self._probe = False
        self._opening: asyncio.Task[None] | None = None
        self._stopped = False

    def begin(self) -> None:
        """Try the first target, once the ledger has admitted the call."""
        try:
            self._gateway.ledger.admit(self._call, self._wish(), self._listed, self._on_admitted)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is told
            self._refusable.fail(error)

    def _on_admitted(self, failure: Failure | None) -> None:
        if self._stopped:
            return
        if failure is not None:
            self._refusable.refuse(failure)
            return
        try:
            self._try()
        except Exception as error:  # noqa: BLE001 - whatever it is, it is told
            self._refusable.fail(error)

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
            self._gateway.health.left(self._target)

    @abstractmethod
    def _wish(self) -> Wish:
        """What the request asks for."""

    @abstractmethod
    def _ask(self) -> None:
        """Ask the target: on a connection that was kept, unless a fresh one is wanted or there is none."""

    def _try(self) -> None:
        target = self._target
        self._probe = self._gateway.health.tried(target)
        if not self._call.attempts:
            self._call.overhead_s = time.perf_counter() - self._call.read_s
        attempt = Attempt(target.provider.name, target.model, target.provider.secrets())
        if self._call.trace is not None and self._gateway.config.telemetry.propagate:
            attempt.span = new_span()
        self._call.attempts.append(attempt)
        self._gateway.ledger.trying(self._call, target)
        self._fresh = False
        self._ask()

    def _traced(self, request: bytes) -> bytes:
        """The request, with the name of this attempt in its trace where providers are to be told of it."""
        span, trace = self._call.attempts[-1].span, self._call.trace
        if not span or trace is None or self._target.provider.replay:
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
            self._refusable.fail(error)

    def _on_outcome(self, failure: Failure | None) -> None:
        """The target has committed, or it has failed before it could."""
        if self._stopped:
            return
        try:
            self._go_on(failure)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is told
            self._refusable.fail(error)

    def _go_on(self, failure: Failure | None) -> None:
        health = self._gateway.health
        if failure is not None and failure.code == "upstream_stale" and not self._fresh:
            attempt = self._call.attempts[-1]
            attempt.code, attempt.sent = "", False  # the provider has not seen the request
            self._fresh = True
            self._ask()
            return
        self._leave()
        if failure is None:
            health.succeeded(self._target)
            return
        health.failed(self._target, failure)
        following = next(self._ready, None) if failure.retryable else None
        if following is not None and self._gateway.budget.spend():
            self._target = following
            self._try()
            return
        wait = min(map(health.cooling_s, self._targets))
        if wait and not failure.retry_after:
            failure = structs.replace(failure, retry_after=refusals.whole_seconds(wait))
        self._refusable.refuse(failure)


class ChatAttempts(Attempts):
    """The attempts at a chat."""

    def __init__(
        self, gateway: Gateway, call: Call, client: CallClient, admitted: Admitted, request: ChatRequest
    ) -> None:
        super().__init__(gateway, call, client, admitted)
        self._client = client
        self._request = request

    def _wish(self) -> Wish:
        return of_chat(self._request, self._route.set)

    def _ask(self) -> None:
        target, request, route = self._target, self._request, self._route
        if target.provider.embedded:
            self._run(self._ask_here())
            return
        max_event = route.max_event if request.stream else max(route.max_event, _MAX_BODY)
        habit = self._gateway.habit(target) if request.stream else None
        relay = self._relay(StreamReader(target.provider.dialect, max_event=max_event, habit=habit))
        endpoint = self._gateway.endpoint(target)
        connection = None if self._fresh else endpoint.kept()
        if connection is not None:
            self._send(relay, endpoint, connection)
        else:
            self._run(self._open(relay, endpoint))

    async def _open(self, relay: Relay, endpoint: Endpoint) -> None:
        try:
            connection = await endpoint.open(self._target.timeouts.connect_s)
        except UpstreamError as error:
            failure = from_transport(error.code, error.message)
            relay.cancel(failure, "timed_out" if failure.status == 504 else "failed")
        else:
            self._send(relay, endpoint, connection)

    def _send(self, relay: Relay, endpoint: Endpoint, connection: AskedConnection) -> None:
        target = self._target
        body = self._request.for_target(target.model, self._route.set, ask_for_usage=target.provider.include_usage)
        tape = self._gateway.tape(self._call, self._route, target, body, relay)
        relay.attach(connection, tape)
        connection.send(self._traced(endpoint.request(body)), relay if tape is None else tape)

    async def _ask_here(self) -> None:
        """Ask a model on this machine. What it takes to have a turn there does not count as waiting for its answer."""
        target, call = self._target, self._call
        local = self._gateway.here[target.provider.name]
        try:
            wait_s, beat_s = target.timeouts.first_event_s, self._gateway.config.server.heartbeat_s
            turn = await take_turn(local, self._client, wait_s, beat_s)
        except UpstreamError as error:
            call.attempts[-1].code = error.code
            self._on_outcome(from_transport(error.code, error.message, error.retry_after))
            return
        try:
            adapted = Adapted(self._request.for_model_here(target.model, self._route.set), local, turn)
        except ToolsError as error:
            turn.close()
            self._on_outcome(unusable_tools(error))
            return
        reader = StreamReader(target.provider.dialect, max_event=self._route.max_event)
        relay = self._relay(adapted.reader(reader, call.id))
        tape = self._gateway.tape(call, self._route, target, adapted.body, relay)
        relay.attach(turn.connection, tape)
        turn.ask(adapted.body, relay if tape is None else tape)

    def _relay(self, reader: Reader) -> Relay:
        call, target = self._call, self._target
        writer = StreamWriter(
            include_usage=self._request.include_usage,
            id=f"chatcmpl-{call.id}",
            model=target.model,
            created=int(time.time()),
        )
        patience = self._gateway.patience(call, target)
        if self._gateway.config.admin.content and self._gateway.config.admin.enabled:
            call.attempts[-1].keep()
        if call.messages is not None:
            call.attempts[-1].heard = reader = Heard(reader)
        relay = Relay(call, self._client, reader, writer, patience, self._on_outcome)
        self._client.attach(relay)
        return relay


class EmbeddingAttempts(Attempts):
    """The attempts at a request for embeddings."""

    def __init__(
        self, gateway: Gateway, call: Call, client: WholeClient, admitted: Admitted, request: EmbeddingsRequest
    ) -> None:
        super().__init__(gateway, call, client, admitted)
        self._client = client
        self._request = request

    def _wish(self) -> Wish:
        return of_embeddings(self._request)

    def _ask(self) -> None:
        target = self._target
        passage = Passage(self._call, self._gateway.patience(self._call, target), self._on_whole)
        self._client.attach(passage)
        endpoint = self._gateway.endpoint(target, embeddings=True)
        connection = None if self._fresh else endpoint.kept()
        if connection is not None:
            self._send(passage, endpoint, connection)
        else:
            self._run(self._open(passage, endpoint))

    async def _open(self, passage: Passage, endpoint: Endpoint) -> None:
        try:
            connection = await endpoint.open(self._target.timeouts.connect_s)
        except UpstreamError as error:
            passage.on_error(error)
        else:
            self._send(passage, endpoint, connection)

    def _send(self, passage: Passage, endpoint: Endpoint, connection: AskedConnection) -> None:
        passage.attach(connection)
        body = self._request.for_target(self._target.model, self._route.set)
        connection.send(self._traced(endpoint.request(body)), passage)

    def _on_whole(self, outcome: Failure | Whole) -> None:
        if isinstance(outcome, Failure):
            self._on_outcome(outcome)
        elif not self._stopped:
            self._on_outcome(None)
            self._client.pass_on(outcome)
