"""Pipeline: from an admitted request to an answer, over as many targets as it takes.

Targets are tried one after another until one commits. A second try costs a share of the retry budget; the one free
retry is on a fresh socket, when a pooled one turned out to be dead before the provider could have seen the request.
"""

import math
import random
import time
from collections.abc import Callable
from functools import partial
from typing import Protocol

from msgspec import structs

from penstock.core.stream import StreamReader, StreamWriter
from penstock.gateway.call import Attempt, Call
from penstock.gateway.config import Config, Provider, Route, Target
from penstock.gateway.failure import Failure, from_transport
from penstock.gateway.relay import Client, Connection, Patience, Relay
from penstock.gateway.request import ChatRequest
from penstock.gateway.routing import Health, RetryBudget, in_order
from penstock.gateway.tape import Asked, Recorder, Tape
from penstock.http.client import Receiver, UpstreamError

_MAX_ENDPOINTS = 1_000
# An unstreamed answer is one event to the reader, and may hold images or sound.
_MAX_BODY = 32_000_000


class CallClient(Client, Protocol):
    """The client's side of a call, as the pipeline sees it."""

    def attach(self, relay: Relay) -> None:
        """The relay that will answer: whoever pauses, resumes or leaves must tell it."""

    def refuse(self, failure: Failure) -> None:
        """There is no answer: say why, with a real status if nothing was sent yet."""


class AskedConnection(Connection, Protocol):
    """A connection, as the pipeline sees it."""

    def send(self, request: bytes, receiver: Receiver) -> None:
        """Send a request; its answer goes to the receiver."""


class Endpoint(Protocol):
    """Where a target is asked."""

    def request(self, body: bytes) -> bytes:
        """The whole request that carries the body."""

    async def connect(self, timeout_s: float, *, fresh: bool) -> AskedConnection:
        """A connection to it; raises `UpstreamError`."""


class Upstream(Protocol):
    """Who answers for a provider."""

    def endpoint(self, url: str, headers: dict[str, str]) -> Endpoint:
        """The endpoint at a URL, with these headers on every request to it."""


class Gateway:
    """Answers calls by a configuration. A reload makes a new one; calls under way keep theirs."""

    def __init__(
        self,
        config: Config,
        upstream: Callable[[Provider], Upstream],
        health: Health,
        budget: RetryBudget,
        recorder: Recorder | None = None,
    ) -> None:
        self.config = config
        self._upstream = upstream
        self._recorder = recorder
        self._secrets = config.secrets()
        self._endpoints: dict[str, Endpoint] = {}
        self._health = health
        self._budget = budget
        self._chance = random.Random()

    async def answer(self, call: Call, request: ChatRequest, client: CallClient) -> None:
        """Answer a call: returns when the answer is committed, complete or refused."""
        self._budget.earn()
        route = self.config.route(request.model)
        if route is None:
            client.refuse(_unknown_model(request.model))
            return
        targets = in_order(route, self._chance)
        ready = [target for target in targets if not self._health.cooling_s(target)]
        if not ready:
            client.refuse(_all_cooling(min(map(self._health.cooling_s, targets))))
            return
        failure = _unknown_model(request.model)
        for number, target in enumerate(ready[: self.config.retries.max_attempts]):
            if number and not self._budget.spend():
                break
            self._health.tried(target)
            try:
                outcome = await self._try(call, request, route, target, client)
            finally:
                self._health.left(target)
            if outcome is None:
                self._health.succeeded(target)
                return
            failure = outcome
            self._health.failed(target, failure)
            if not failure.retryable:
                break
        wait = min(map(self._health.cooling_s, targets))
        if wait and not failure.retry_after:
            failure = structs.replace(failure, retry_after=_whole_seconds(wait))
        client.refuse(failure)

    async def _try(
        self, call: Call, request: ChatRequest, route: Route, target: Target, client: CallClient
    ) -> Failure | None:
        attempt = Attempt(target.provider.name, target.model, target.provider.secrets())
        call.attempts.append(attempt)
        body = request.for_target(target.model, route.set, ask_for_usage=target.provider.include_usage)
        endpoint = self._endpoint(target)
        patience = Patience(
            first_event_s=target.timeouts.first_event_s,
            gap_s=target.timeouts.gap_s,
            heartbeat_s=self.config.server.heartbeat_s,
            until=call.started + target.timeouts.total_s,
        )
        failure: Failure | None = None
        for fresh in (False, True):
            max_event = route.max_event if request.stream else max(route.max_event, _MAX_BODY)
            reader = StreamReader(target.provider.dialect, max_event=max_event)
            writer = StreamWriter(
                include_usage=request.include_usage,
                id=f"chatcmpl-{call.id}",
                model=target.model,
                created=int(time.time()),
            )
            relay = Relay(call, attempt, client, reader, writer, patience)
            client.attach(relay)
            tape = partial(self._tape, call, route, target, body, relay)
            failure = await self._ask(relay, endpoint, body, target.timeouts.connect_s, fresh=fresh, tape=tape)
            if failure is None or failure.code != "upstream_stale":
                return failure
            attempt.code = ""  # the provider has not seen the request
        return failure

    async def _ask(
        self,
        relay: Relay,
        endpoint: Endpoint,
        body: bytes,
        connect_s: float,
        *,
        fresh: bool,
        tape: Callable[[], Tape | None],
    ) -> Failure | None:
        try:
            connection = await endpoint.connect(connect_s, fresh=fresh)
        except UpstreamError as error:
            failure = from_transport(error.code, error.message)
            relay.cancel(failure)
            return failure
        recorded = tape()
        relay.attach(connection, recorded)
        connection.send(endpoint.request(body), relay if recorded is None else recorded)
        return await relay.outcome

    def _tape(self, call: Call, route: Route, target: Target, body: bytes, relay: Relay) -> Tape | None:
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

    def _endpoint(self, target: Target) -> Endpoint:
        """Where the target is asked. Made once: the names of models that clients may ask for are bounded."""
        endpoint = self._endpoints.get(target.name)
        if endpoint is None:
            upstream = self._upstream(target.provider)
            endpoint = upstream.endpoint(target.provider.url(target.model), target.provider.credentials())
            if len(self._endpoints) < _MAX_ENDPOINTS:
                self._endpoints[target.name] = endpoint
        return endpoint


def _unknown_model(model: str) -> Failure:
    return Failure(
        code="model_not_found",
        message=f"there is no model {model!r} here; GET /v1/models lists those that there are",
        status=404,
        kind="invalid_request_error",
        param="model",
        retryable=False,
    )


def _all_cooling(seconds: float) -> Failure:
    return Failure(
        code="no_healthy_target",
        message="every provider of this model has failed and is left alone for a while",
        status=503,
        retry_after=_whole_seconds(seconds),
    )


def _whole_seconds(seconds: float) -> str:
    """At least so many, as a header says it; what a clock adds in its last digits does not count."""
    return str(math.ceil(round(seconds, 3)))
