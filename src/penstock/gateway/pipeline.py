"""Pipeline: from an admitted request to an answer, over as many targets as it takes.

Targets are tried one after another until one commits. A second try costs a share of the retry budget; the one free
retry is on a fresh socket, when a pooled one turned out to be dead before the provider could have seen the request.
"""

import asyncio
import math
import random
import time
from typing import Protocol

from msgspec import structs

from penstock.core.stream import StreamReader, StreamWriter
from penstock.gateway.call import Attempt, Call
from penstock.gateway.config import Config, Route, Target
from penstock.gateway.failure import Failure, from_transport
from penstock.gateway.relay import Client, Patience, Relay
from penstock.gateway.request import ChatRequest
from penstock.gateway.routing import Health, RetryBudget, in_order
from penstock.http.client import UpstreamConnection, UpstreamError
from penstock.upstream.remote import Endpoint, Remote

_MAX_ENDPOINTS = 1_000
# An unstreamed answer is one event to the reader, and may hold images or sound.
_MAX_BODY = 32_000_000


class CallClient(Client, Protocol):
    """The client's side of a call, as the pipeline sees it."""

    def attach(self, relay: Relay) -> None:
        """The relay that will answer: whoever pauses, resumes or leaves must tell it."""

    def refuse(self, failure: Failure) -> None:
        """There is no answer: say why, with a real status if nothing was sent yet."""

    def fail(self, error: BaseException) -> None:
        """An error of ours: it must not leave the client waiting."""


class Gateway:
    """Answers calls by a configuration. A reload makes a new one; calls under way keep theirs."""

    def __init__(self, config: Config, remote: Remote, health: Health, budget: RetryBudget) -> None:
        self.config = config
        self.health = health
        self.budget = budget
        self.remote = remote
        self._endpoints: dict[str, Endpoint] = {}
        self._chance = random.Random()

    def answer(self, call: Call, request: ChatRequest, client: CallClient) -> "Attempts | None":
        """The attempts that will answer a call, which are to be begun; None if it was refused at once."""
        self.budget.earn()
        route = self.config.route(request.model)
        if route is None:
            client.refuse(_unknown_model(request.model))
            return None
        targets = in_order(route, self._chance)
        ready = [target for target in targets if not self.health.cooling_s(target)]
        if not ready:
            client.refuse(_all_cooling(min(map(self.health.cooling_s, targets))))
            return None
        return Attempts(self, call, request, client, route, ready[: self.config.retries.max_attempts])

    def endpoint(self, target: Target) -> Endpoint:
        """Where the target is asked. Made once: the names of models that clients may ask for are bounded."""
        endpoint = self._endpoints.get(target.name)
        if endpoint is None:
            endpoint = self.remote.endpoint(target.provider.url(target.model), target.provider.credentials())
            if len(self._endpoints) < _MAX_ENDPOINTS:
                self._endpoints[target.name] = endpoint
        return endpoint


class Attempts:
    """The attempts at one call, one after another, until a target commits or there is none left.

    Where a connection was kept the provider is asked at once, without a task: that is nearly always.
    """

    def __init__(
        self,
        gateway: Gateway,
        call: Call,
        request: ChatRequest,
        client: CallClient,
        route: Route,
        ready: list[Target],
    ) -> None:
        self._gateway = gateway
        self._call = call
        self._request = request
        self._client = client
        self._route = route
        self._ready = iter(ready)
        self._target = next(self._ready)
        self._fresh = False
        self._opening: asyncio.Task[None] | None = None
        self._stopped = False

    def begin(self) -> None:
        """Try the first target."""
        try:
            self._try()
        except Exception as error:  # noqa: BLE001 - whatever it is, it is told
            self._client.fail(error)

    def _try(self) -> None:
        target = self._target
        self._gateway.health.tried(target)
        self._call.attempts.append(Attempt(target.provider.name, target.model, target.provider.secrets()))
        self._fresh = False
        self._ask()

    def stop(self) -> None:
        """Nobody waits for an answer any more."""
        self._stopped = True
        self._gateway.health.left(self._target)
        if self._opening is not None:
            self._opening.cancel()

    def _ask(self) -> None:
        """Ask the target: on a connection that was kept, unless a fresh one is wanted or there is none."""
        gateway, call, request, target, route = self._gateway, self._call, self._request, self._target, self._route
        max_event = route.max_event if request.stream else max(route.max_event, _MAX_BODY)
        writer = StreamWriter(
            include_usage=request.include_usage,
            id=f"chatcmpl-{call.id}",
            model=target.model,
            created=int(time.time()),
        )
        patience = Patience(
            first_event_s=target.timeouts.first_event_s,
            gap_s=target.timeouts.gap_s,
            heartbeat_s=gateway.config.server.heartbeat_s,
            until=call.started + target.timeouts.total_s,
        )
        reader = StreamReader(target.provider.dialect, max_event=max_event)
        relay = Relay(call, self._client, reader, writer, patience, self._on_outcome)
        self._client.attach(relay)
        endpoint = gateway.endpoint(target)
        connection = None if self._fresh else gateway.remote.kept(endpoint)
        if connection is not None:
            self._send(relay, endpoint, connection)
        else:
            self._opening = asyncio.get_running_loop().create_task(self._open(relay, endpoint))
            self._opening.add_done_callback(self._on_opened)

    def _on_opened(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._client.fail(error)

    async def _open(self, relay: Relay, endpoint: Endpoint) -> None:
        try:
            connection = await self._gateway.remote.open(endpoint, self._target.timeouts.connect_s)
        except UpstreamError as error:
            relay.cancel(from_transport(error.code, error.message))
        else:
            self._send(relay, endpoint, connection)

    def _send(self, relay: Relay, endpoint: Endpoint, connection: UpstreamConnection) -> None:
        target = self._target
        body = self._request.for_target(target.model, self._route.set, ask_for_usage=target.provider.include_usage)
        relay.attach(connection)
        connection.send(endpoint.request(body), relay)

    def _on_outcome(self, failure: Failure | None) -> None:
        """The target has committed, or it has failed before it could."""
        if self._stopped:
            return
        try:
            self._go_on(failure)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is told
            self._client.fail(error)

    def _go_on(self, failure: Failure | None) -> None:
        health = self._gateway.health
        if failure is not None and failure.code == "upstream_stale" and not self._fresh:
            self._call.attempts[-1].code = ""  # the provider has not seen the request
            self._fresh = True
            self._ask()
            return
        health.left(self._target)
        if failure is None:
            health.succeeded(self._target)
            return
        health.failed(self._target, failure)
        following = next(self._ready, None) if failure.retryable else None
        if following is not None and self._gateway.budget.spend():
            self._target = following
            self._try()
            return
        wait = min(map(health.cooling_s, self._route.targets))
        if wait and not failure.retry_after:
            failure = structs.replace(failure, retry_after=_whole_seconds(wait))
        self._client.refuse(failure)


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
