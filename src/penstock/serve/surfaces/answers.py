"""Answers: the surface of any dialect that is offered, and the client's side of one call on it."""

from collections.abc import Callable, Mapping
from typing import ClassVar

from penstock.core.dialects.registry import surface_dialect
from penstock.core.request import ClientRequest
from penstock.gateway.calls.pipeline import Gateway
from penstock.http.exchange import HttpRequest
from penstock.serve.responses import JSON, STREAM_LINES, call_headers, call_lines
from penstock.serve.surfaces.client import CallSession
from penstock.serve.surfaces.surface import Surface


class Answers(Surface[ClientRequest]):
    """The API of one dialect."""

    def __init__(self, dialect: str, calls: dict[CallSession, None], over: Callable[[CallSession], None]) -> None:
        self._offered = surface_dialect(dialect)
        super().__init__(calls, over, AnswerSession, Gateway.answer)
        self.name = self._offered.name
        self.dialect = dialect

    def read(self, body: bytes, request: HttpRequest) -> ClientRequest:
        """The request in a body; raises `RequestError`."""
        return self._offered.read_request(body, request.headers, request.path)


class Playground(Answers):
    """The same, for calls that are made on the page: a tag tells them from others."""

    tags: ClassVar[Mapping[str, str]] = {"via": "playground"}


class AnswerSession(CallSession):
    """The client of one call for an answer."""

    def begin(self) -> None:
        """Send the head of a streamed answer, if it was not sent yet."""
        exchange = self._exchange
        if not exchange.begun:
            self.call.status = 200
            exchange.begin(STREAM_LINES + call_lines(self.call))

    def end(self, data: bytes) -> None:
        """Send the last bytes of the stream, and end the body."""
        self._settle()  # first: what the client has seen the end of is accounted for
        self._exchange.end(data)

    def answer(self, body: bytes) -> None:
        """Send a whole, unstreamed answer."""
        self.call.status = 200
        self._settle()
        self._exchange.respond(200, {"content-type": JSON} | call_headers(self.call), body)
