"""The dialect of Cohere, as an API to offer: `POST /v2/chat`.

A request is checked as far as the gateway acts on it. Every other field goes to a provider of the same dialect as the
client wrote it.
"""

from collections.abc import Mapping

from penstock.core.dialects.bodies import check_integer, check_lengths, read_client
from penstock.core.dialects.cohere.body import write_body, write_error
from penstock.core.dialects.cohere.reader import NAME
from penstock.core.dialects.cohere.request import read_request
from penstock.core.dialects.cohere.writer import CohereWriter
from penstock.core.dialects.dialect import SurfaceDialect
from penstock.core.hub.request import ClientRequest

_CAP = "max_tokens"
_LISTS = ("tools", "stop_sequences", "documents")


def read_call(body: bytes, headers: Mapping[str, str], path: str) -> ClientRequest:  # noqa: ARG001
    """Read a request; raises `RequestError`."""
    request = read_client(NAME, body, read_request, (_CAP,), messages="messages")
    check_integer(request.fields, _CAP)
    check_lengths(request.fields, _LISTS)
    return request


COHERE_SURFACE = SurfaceDialect(
    path="/v2/chat",
    read_request=read_call,
    writer=CohereWriter,
    write_body=write_body,
    write_error=write_error,
)
