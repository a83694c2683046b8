"""`POST /v1/embeddings`: passed on to a provider that has them, as they are but for the model's name."""

from collections.abc import Callable

from penstock.gateway.calls.embeddings_request import EmbeddingsRequest, parse_embeddings
from penstock.gateway.calls.pipeline import Gateway
from penstock.gateway.relay.body_relay import WholeResponse
from penstock.http.exchange import HttpRequest
from penstock.serve.responses import JSON, call_headers
from penstock.serve.surfaces.client import CallSession
from penstock.serve.surfaces.surface import Surface

# What says how to read the body, and so goes with it.
_KEPT = ("content-type", "content-encoding")


class Embeddings(Surface[EmbeddingsRequest]):
    """The surface for embeddings."""

    name = "embeddings"

    def __init__(self, calls: dict[CallSession, None], over: Callable[[CallSession], None]) -> None:
        super().__init__(calls, over, EmbeddingsSession, Gateway.embed)

    def read(self, body: bytes, request: HttpRequest) -> EmbeddingsRequest:  # noqa: ARG002
        """The request in a body; raises `RequestError`."""
        return parse_embeddings(body)


class EmbeddingsSession(CallSession):
    """The client of one request for embeddings."""

    def pass_on(self, whole: WholeResponse) -> None:
        """Send the provider's answer."""
        self.call.status = 200
        self.call.ending = "completed"
        kept = {name: value for name, value in whole.headers.items() if name in _KEPT}
        self._settle()
        self._exchange.respond(200, {"content-type": JSON} | kept | call_headers(self.call), whole.body)
