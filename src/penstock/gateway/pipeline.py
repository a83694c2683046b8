"""Pipeline: from an admitted request to an answer, over as many targets as it takes.

Targets are tried one after another until one commits. A second try costs a share of the retry budget; the one free
retry is on a fresh socket, when a pooled one turned out to be dead before the provider could have seen the request.
"""

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
from penstock.http.client import UpstreamError
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


class Gateway:
    """Answers calls by a configuration. A reload makes a new one; calls under way keep theirs."""

    def __init__(self, config: Config, remote: Remote, health: Health, budget: RetryBudget) -> None:
        self.config = config
        self._remote = remote
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
            failure = await self._ask(relay, endpoint, body, target.timeouts.connect_s, fresh=fresh)
            if failure is None or failure.code != "upstream_stale":
                return failure
            attempt.code = ""  # the provider has not seen the request
        return failure

    async def _ask(
        self, relay: Relay, endpoint: Endpoint, body: bytes, connect_s: float, *, fresh: bool
    ) -> Failure | None:
        try:
            connection = await self._remote.connect(endpoint, connect_s, fresh=fresh)
        except UpstreamError as error:
            failure = from_transport(error.code, error.message)
            relay.cancel(failure)
            return failure
        relay.attach(connection)
        connection.send(endpoint.request(body), relay)
        return await relay.outcome

    def _endpoint(self, target: Target) -> Endpoint:
        """Where the target is asked. Made once: the names of models that clients may ask for are bounded."""
        endpoint = self._endpoints.get(target.name)
        if endpoint is None:
            endpoint = self._remote.endpoint(target.provider.url(target.model), target.provider.credentials())
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
