"""StatefulAnswers: the API of a dialect whose answers are kept, and whose requests may continue them."""

from collections.abc import Callable
from functools import partial
from typing import Protocol

from penstock.core.hub.failure import RequestError
from penstock.core.hub.request import ClientRequest
from penstock.gateway.calls.gateway import Gateway
from penstock.gateway.keys.client_key import ClientKey
from penstock.gateway.record.call import Call
from penstock.http.exchange import Exchange, HttpRequest
from penstock.serve.kept.background import BackgroundCalls
from penstock.serve.kept.continuations import Continuations
from penstock.serve.kept.keeper import AnswerKeeper
from penstock.serve.responses import refused
from penstock.serve.surfaces.answers import Answers
from penstock.serve.surfaces.call_session import CallSession
from penstock.serve.surfaces.surface import LARGE_BODY


class Triggered(Protocol):
    """Handles requests for an answer that ask to compact the conversation instead."""

    def takes(self, body: bytes) -> bool:
        """Whether a request is one of these."""

    def read(self, body: bytes, request: HttpRequest) -> ClientRequest:
        """Parse a request body. Raises `RequestError`."""

    def handle(
        self,
        exchange: Exchange,
        gateway: Gateway,
        request_id: str,
        key: ClientKey | None,
        parsed: Callable[[], ClientRequest] | None = None,
    ) -> None:
        """Start a call with that key; `parsed` returns a request that is expanded already."""


class StatefulAnswers(Answers):
    """The API of one dialect. `keeper` is None if the gateway keeps nothing."""

    compactions: Triggered | None = None
    background: BackgroundCalls | None = None
    """What makes calls in the background, if the API and this connection have them."""

    def __init__(
        self,
        dialect: str,
        continuations: Continuations,
        keeper: AnswerKeeper | None,
        calls: dict[CallSession, None],
        on_settled: Callable[[CallSession], None],
    ) -> None:
        super().__init__(dialect, calls, on_settled)
        self._continuations = continuations
        self._keeper = keeper

    def handle(
        self,
        exchange: Exchange,
        gateway: Gateway,
        request_id: str,
        key: ClientKey | None,
        parsed: Callable[[], ClientRequest] | None = None,
    ) -> None:
        """Start a call with that key. A request that continues an answer is expanded first."""
        start, body = partial(super().handle, exchange, gateway, request_id, key), exchange.body
        if parsed is not None:
            start(parsed)
        elif len(body) <= LARGE_BODY and not self._continuations.may_apply(body):
            start()  # nearly always
        elif self.compactions is not None and self.compactions.takes(body):
            read = partial(self.compactions.read, request=exchange.request)
            start = partial(self.compactions.handle, exchange, gateway, request_id, key)
            self._continuations.resolve(exchange, key, read, start, start)
        else:
            self._continuations.resolve(exchange, key, partial(self.read, request=exchange.request), start, start)

    def read(self, body: bytes, request: HttpRequest) -> ClientRequest:
        """Parse a request body. Raises `RequestError`."""
        read = super().read(body, request)
        if read.background:
            if self.background is None:
                message = "`background` is not possible on this connection; use HTTP"
                raise RequestError(refused(message, "invalid_request", param="background"))
            how, read = read.background, super().read(self.background.answers.as_stream(read), request)
            read.background = how
        return self._continuations.check(read)

    def receive(
        self, exchange: Exchange, request: ClientRequest, request_id: str, key: ClientKey | None, gateway: Gateway
    ) -> Exchange:
        """The exchange through which the call is answered."""
        if request.background and self.background is not None:
            return self.background.open(exchange, request, request_id, key, self._keeper)
        return super().receive(exchange, request, request_id, key, gateway)

    def may_share(self, request: ClientRequest) -> bool:
        """Not if it is kept: a client refers to it by an id of its own."""
        return super().may_share(request) and (self._keeper is None or request.fields.get("store") is False)

    def prepare(self, call: Call, request: ClientRequest) -> None:
        """Let the answer be kept, if the configuration and the client say so."""
        if self._keeper is not None:
            call.keeping = keeping = self._keeper.begin(self._continuations.stored, call, request)
            if request.background and self.background is not None and keeping is not None:
                keeping.announce(self.background.answers.overrides())
