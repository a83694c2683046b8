"""EmbeddingAttempts: the attempts at a request for embeddings (`attempts.py`)."""

from typing import Protocol

from penstock.core.hub.failure import Failure
from penstock.gateway.calls.attempts import AnyAttempts, Refusable
from penstock.gateway.calls.embeddings_request import EmbeddingsRequest
from penstock.gateway.calls.plan import PendingConnection, TargetEndpoint
from penstock.gateway.limits.demand import TokenDemand, embeddings_demand
from penstock.gateway.relay.body_relay import BodyRelay, WholeResponse
from penstock.http.upstream_connection import RequestBytes, UpstreamError

# Bytes of a body, of which an estimate and a copy take a nanosecond each.
_LARGE = 262_144


class BodyClient(Refusable, Protocol):
    """The client's side of a call whose answer is forwarded as a whole."""

    def attach(self, relay: BodyRelay) -> None:
        """Set the relay of the current attempt. The client must pass a disconnect to it."""

    def forward(self, whole: WholeResponse) -> None:
        """Send the answer."""


class EmbeddingAttempts(AnyAttempts[BodyClient, EmbeddingsRequest]):
    """The attempts at a request for embeddings."""

    def start(self) -> None:
        """As in the base class; a thread estimates a large request first."""
        self._many = len(self._request.members.body) > _LARGE
        if self._many:
            self._run_task(self._start_in_thread())
        else:
            super().start()

    async def _start_in_thread(self) -> None:
        self._demanded = await self._in_thread(self._demand)
        super().start()

    def _demand(self) -> TokenDemand:
        return embeddings_demand(self._request)

    def _ask(self) -> None:
        plan = self._plan
        relay = BodyRelay(self._call, plan.timeouts, self._on_whole)
        self._client.attach(relay)
        if plan.endpoint is None:
            plan.endpoint = self._gateway.endpoint(plan.target, embeddings=True)
        connection = None if self._many else self._idle_connection(plan.endpoint)
        if connection is not None:
            self._send(relay, plan.endpoint, connection, plan.endpoint.request(*self._content()))
        else:
            self._run_task(self._open(relay, plan.endpoint))

    async def _open(self, relay: BodyRelay, endpoint: TargetEndpoint) -> None:
        try:
            connection, request = await self._connect(endpoint)
        except UpstreamError as error:
            relay.on_error(error)
        else:
            self._send(relay, endpoint, connection, request)

    def _content(self) -> tuple[bytes, bytes]:
        return self._request.members.edited(self._plan.destination.members), b""

    def _send(
        self, relay: BodyRelay, endpoint: TargetEndpoint, connection: PendingConnection, request: RequestBytes
    ) -> None:
        self._hide_secrets(endpoint)
        relay.attach(connection)
        connection.send(self._traced(request), relay)

    def _on_whole(self, outcome: Failure | WholeResponse) -> None:
        if isinstance(outcome, Failure):
            self._on_outcome(outcome)
        elif not self._stopped:
            self._on_outcome(None)
            self._client.forward(outcome)
