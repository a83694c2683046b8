"""EmbeddingsAsker: asks for embeddings. Both bodies are forwarded; only the model's name is replaced."""

from collections.abc import Callable, Sequence
from typing import Protocol

from penstock.gateway.calls.attempt_loop import LoopClient, Work
from penstock.gateway.calls.plan import PendingConnection, Plan, TargetEndpoint
from penstock.gateway.calls.sending import connect, redact_credentials, traced
from penstock.gateway.limits.demand import TokenDemand, embeddings_demand
from penstock.gateway.record.call import Call
from penstock.gateway.record.embeddings_request import EmbeddingsRequest
from penstock.gateway.relay.body_relay import BodyRelay, WholeClient
from penstock.gateway.relay.outcome import Outcome
from penstock.http.upstream_connection import RequestBytes, UpstreamError

# Bytes of a body, of which an estimate and a copy take a nanosecond each.
_LARGE = 262_144


class EmbeddingsServices(Protocol):
    """What the asker uses of the gateway."""

    def endpoint(self, plan: Plan, *, embeddings: bool = False) -> TargetEndpoint:
        """The endpoint of a target."""


class EmbeddingsClient(WholeClient, LoopClient, Protocol):
    """The client's side of a request for embeddings, as attempts use it."""

    def attach(self, relay: BodyRelay) -> None:
        """Set the relay of the current attempt. The client must pass a disconnect to it."""


class EmbeddingsAsker:
    """Asks the targets of one request for embeddings."""

    def __init__(
        self, services: EmbeddingsServices, call: Call, client: EmbeddingsClient, request: EmbeddingsRequest
    ) -> None:
        self._services = services
        self._call = call
        self._client = client
        self._request = request
        self.large = len(request.members.body) > _LARGE

    def demand(self) -> TokenDemand:
        """What the request may consume."""
        return embeddings_demand(self._request)

    def prepare(self, plan: Plan) -> None:
        """Do nothing: the request can be written for every target."""

    def cooling_plans(self) -> Sequence[Plan]:
        """Nothing: `prepare` leaves out no target."""
        return ()

    def ask(self, plan: Plan, report: Callable[[Outcome], None], *, fresh: bool) -> Work | None:
        """Send the request: on an idle connection of the pool, or on a new one."""
        relay = BodyRelay(self._call, self._client, plan.timeouts, report)
        self._client.attach(relay)
        endpoint = plan.endpoint
        if endpoint is None:
            endpoint = plan.endpoint = self._services.endpoint(plan, embeddings=True)
        connection = None if self.large or fresh else endpoint.idle_connection()
        if connection is None:
            return self._open(plan, relay, endpoint, fresh=fresh)
        self._send(plan, relay, connection, endpoint.request(self._body(plan)))
        return None

    async def _open(self, plan: Plan, relay: BodyRelay, endpoint: TargetEndpoint, *, fresh: bool) -> None:
        def content() -> tuple[bytes, bytes]:
            return self._body(plan), b""

        try:
            connection, request = await connect(plan, endpoint, content, large=self.large, fresh=fresh)
        except UpstreamError as error:
            relay.on_error(error)
        else:
            self._send(plan, relay, connection, request)

    def _body(self, plan: Plan) -> bytes:
        return self._request.members.edited(plan.destination.members)

    def _send(self, plan: Plan, relay: BodyRelay, connection: PendingConnection, request: RequestBytes) -> None:
        assert plan.endpoint is not None  # since `ask`
        redact_credentials(self._call, plan, plan.endpoint)
        relay.attach(connection)
        connection.send(traced(request, self._call, plan), relay)
