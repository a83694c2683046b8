"""Pipeline: from an admitted request to an answer, over as many targets as it takes.

Targets are tried one after another until one commits. A second try costs a share of the retry budget; the one free
retry is on a fresh socket, when a pooled one turned out to be dead before the provider could have seen the request.
"""

import math
import random
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Protocol, TypeAlias

from msgspec import structs

from penstock.core.dialects.emulated_tools import ToolsError
from penstock.core.stream import Reader, StreamReader, StreamWriter
from penstock.gateway.call import Attempt, Call
from penstock.gateway.config import Config, Route, Target
from penstock.gateway.failure import Failure, from_transport
from penstock.gateway.here import Adapted, take_turn, unusable_tools
from penstock.gateway.passage import Passage, Whole
from penstock.gateway.relay import Client, Patience, Relay
from penstock.gateway.request import ChatRequest, EmbeddingsRequest
from penstock.gateway.routing import Health, RetryBudget, in_order
from penstock.http.client import UpstreamError
from penstock.upstream.local import Local
from penstock.upstream.remote import Endpoint, Remote

_MAX_ENDPOINTS = 1_000
# An unstreamed answer is one event to the reader, and may hold images or sound.
_MAX_BODY = 32_000_000


class Refusable(Protocol):
    """The client's side of a call, whatever it asks for."""

    def refuse(self, failure: Failure) -> None:
        """There is no answer: say why, with a real status if nothing was sent yet."""


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


TryOne: TypeAlias = Callable[[Route, Target], Awaitable[Failure | None]]


class Gateway:
    """Answers calls by a configuration. A reload makes a new one; calls under way keep theirs.

    `here` are the models on this machine, by the names of their providers.
    """

    def __init__(
        self, config: Config, remote: Remote, here: Mapping[str, Local], health: Health, budget: RetryBudget
    ) -> None:
        self.config = config
        self._remote = remote
        self._here = here
        self._endpoints: dict[tuple[str, str], Endpoint] = {}
        self._health = health
        self._budget = budget
        self._chance = random.Random()

    async def answer(self, call: Call, request: ChatRequest, client: CallClient) -> None:
        """Answer a chat: returns when the answer is committed, complete or refused."""

        async def try_one(route: Route, target: Target) -> Failure | None:
            if target.provider.embedded:
                return await self._try_here(call, request, route, target, client)
            return await self._try(call, request, route, target, client)

        await self._answer(request.model, client, try_one)

    async def embed(self, call: Call, request: EmbeddingsRequest, client: WholeClient) -> None:
        """Answer a request for embeddings: returns when the answer is passed on or refused."""

        async def try_one(route: Route, target: Target) -> Failure | None:
            return await self._try_embedding(call, request, route, target, client)

        await self._answer(request.model, client, try_one, able=lambda target: bool(target.provider.embeddings))

    async def _answer(
        self, model: str, client: Refusable, try_one: TryOne, able: Callable[[Target], bool] = lambda _: True
    ) -> None:
        """Try the targets of a model that are able to answer, until one does."""
        self._budget.earn()
        route = self.config.route(model)
        if route is None:
            client.refuse(_unknown_model(model))
            return
        targets = [target for target in in_order(route, self._chance) if able(target)]
        if not targets:
            client.refuse(_unable(model))
            return
        ready = [target for target in targets if not self._health.cooling_s(target)]
        if not ready:
            client.refuse(_all_cooling(min(map(self._health.cooling_s, targets))))
            return
        failure = _unknown_model(model)
        for number, target in enumerate(ready[: self.config.retries.max_attempts]):
            if number and not self._budget.spend():
                break
            self._health.tried(target)
            try:
                outcome = await try_one(route, target)
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
        attempt = _attempt(call, target)
        body = request.for_target(target.model, route.set, ask_for_usage=target.provider.include_usage)
        endpoint = self._endpoint(target, target.provider.url(target.model))
        patience = self._patience(call, target)
        failure: Failure | None = None
        for fresh in (False, True):
            max_event = route.max_event if request.stream else max(route.max_event, _MAX_BODY)
            reader = StreamReader(target.provider.dialect, max_event=max_event)
            relay = Relay(call, attempt, client, reader, _writer(call, request, target), patience)
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

    async def _try_here(
        self, call: Call, request: ChatRequest, route: Route, target: Target, client: CallClient
    ) -> Failure | None:
        """Ask a model on this machine. What it takes to have a turn there does not count as waiting for its answer."""
        attempt = _attempt(call, target)
        patience = self._patience(call, target)
        local = self._here[target.provider.name]
        try:
            turn = await take_turn(local, client, patience)
        except UpstreamError as error:
            attempt.code = error.code
            return from_transport(error.code, error.message, error.retry_after)
        try:
            adapted = Adapted(request.for_model_here(target.model, route.set), local, turn)
        except ToolsError as error:
            turn.close()
            return unusable_tools(error)
        reader: Reader = StreamReader(target.provider.dialect, max_event=route.max_event)
        reader = adapted.reader(reader, call.id)
        relay = Relay(call, attempt, client, reader, _writer(call, request, target), patience)
        client.attach(relay)
        relay.attach(turn.connection)
        turn.ask(adapted.body, relay)
        return await relay.outcome

    async def _try_embedding(
        self, call: Call, request: EmbeddingsRequest, route: Route, target: Target, client: WholeClient
    ) -> Failure | None:
        attempt = _attempt(call, target)
        body = request.for_target(target.model, route.set)
        endpoint = self._endpoint(target, target.provider.embeddings_url(target.model))
        failure: Failure | None = None
        for fresh in (False, True):
            passage = Passage(call, attempt, self._patience(call, target))
            client.attach(passage)
            try:
                connection = await self._remote.connect(endpoint, target.timeouts.connect_s, fresh=fresh)
            except UpstreamError as error:
                passage.on_error(error)
            else:
                passage.attach(connection)
                connection.send(endpoint.request(body), passage)
            outcome = await passage.outcome
            if isinstance(outcome, Whole):
                client.pass_on(outcome)
                return None
            failure = outcome
            if failure.code != "upstream_stale":
                break
            attempt.code = ""  # the provider has not seen the request
        return failure

    def _patience(self, call: Call, target: Target) -> Patience:
        return Patience(
            first_event_s=target.timeouts.first_event_s,
            gap_s=target.timeouts.gap_s,
            heartbeat_s=self.config.server.heartbeat_s,
            until=call.started + target.timeouts.total_s,
        )

    def _endpoint(self, target: Target, url: str) -> Endpoint:
        """Where the target is asked. Made once: the names of models that clients may ask for are bounded."""
        endpoint = self._endpoints.get((target.provider.name, url))
        if endpoint is None:
            endpoint = self._remote.endpoint(url, target.provider.credentials())
            if len(self._endpoints) < _MAX_ENDPOINTS:
                self._endpoints[target.provider.name, url] = endpoint
        return endpoint


def _attempt(call: Call, target: Target) -> Attempt:
    attempt = Attempt(target.provider.name, target.model, target.provider.secrets())
    call.attempts.append(attempt)
    return attempt


def _writer(call: Call, request: ChatRequest, target: Target) -> StreamWriter:
    return StreamWriter(
        include_usage=request.include_usage, id=f"chatcmpl-{call.id}", model=target.model, created=int(time.time())
    )


def _unknown_model(model: str) -> Failure:
    return Failure(
        code="model_not_found",
        message=f"there is no model {model!r} here; GET /v1/models lists those that there are",
        status=404,
        kind="invalid_request_error",
        param="model",
        retryable=False,
    )


def _unable(model: str) -> Failure:
    return Failure(
        code="model_without_embeddings",
        message=f"no provider of {model!r} has embeddings; one that has says so with `embeddings` in the configuration",
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
