"""StatefulAnswers: the API of a dialect whose answers are kept, and whose requests may continue them."""

from collections.abc import Callable
from functools import partial

from penstock.core.hub.request import ClientRequest
from penstock.gateway.calls.call import Call
from penstock.gateway.calls.gateway import Gateway
from penstock.gateway.keys.keys import Key
from penstock.http.exchange import Exchange, HttpRequest
from penstock.serve.kept.continuations import Continuations
from penstock.serve.kept.keeper import AnswerKeeper
from penstock.serve.surfaces.answers import Answers
from penstock.serve.surfaces.call_session import CallSession


class StatefulAnswers(Answers):
    """The API of one dialect. `keeper` is None if the gateway keeps nothing."""

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
        key: Key | None,
        parsed: Callable[[], ClientRequest] | None = None,
    ) -> None:
        """Start a call with that key. A request that continues an answer is expanded first."""
        start = partial(super().handle, exchange, gateway, request_id, key)
        if parsed is None:
            self._continuations.resolve(exchange, key, partial(self.read, request=exchange.request), start, start)
        else:
            start(parsed)

    def read(self, body: bytes, request: HttpRequest) -> ClientRequest:
        """Parse a request body. Raises `RequestError`."""
        return self._continuations.check(super().read(body, request))

    def prepare(self, call: Call, request: ClientRequest) -> None:
        """Let the answer be kept, if the configuration and the client say so."""
        if self._keeper is not None:
            call.keeping = self._keeper.begin(self._continuations.stored, call, request)
