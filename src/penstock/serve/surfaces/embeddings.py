"""`POST /v1/embeddings`: passes requests and responses through; only the model's name is replaced."""

from collections.abc import Callable

from penstock.gateway.calls.gateway import Gateway
from penstock.gateway.record.call import EMBEDDINGS
from penstock.gateway.record.embeddings_request import EmbeddingsRequest, parse_embeddings
from penstock.gateway.relay.body_relay import WholeResponse
from penstock.http.exchange import HttpRequest
from penstock.serve.responses import JSON, call_headers
from penstock.serve.surfaces.call_session import CallSession
from penstock.serve.surfaces.surface import Surface

# Response headers that describe the body, and are passed on with it.
_PASSED_HEADERS = ("content-type", "content-encoding")


class Embeddings(Surface[EmbeddingsRequest]):
    """The surface for embeddings."""

    name = EMBEDDINGS

    def __init__(self, calls: dict[CallSession, None], on_settled: Callable[[CallSession], None]) -> None:
        super().__init__(calls, on_settled, EmbeddingsSession, Gateway.embed)

    def read(self, body: bytes, request: HttpRequest) -> EmbeddingsRequest:  # noqa: ARG002
        """Parse a request body. Raises `RequestError`."""
        return parse_embeddings(body)


class EmbeddingsSession(CallSession):
    """The client's side of one request for embeddings."""

    def forward(self, whole: WholeResponse) -> None:
        """Send the provider's response."""
        self.call.progress.status = 200
        self.call.progress.ending = "completed"
        passed = {name: value for name, value in whole.headers.items() if name in _PASSED_HEADERS}
        self._settle()
        self._exchange.respond(200, {"content-type": JSON} | passed | call_headers(self.call), whole.body)
