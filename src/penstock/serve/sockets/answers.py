"""SocketAnswers: the API of a dialect on one WebSocket. Its answers can be continued there if they are not kept."""

import time
from collections.abc import Callable
from functools import partial
from typing import Any

from penstock.core.dialects.dialect import AnswerFacts
from penstock.core.hub.events import End, Event, Finish, Start, UsageReport
from penstock.core.hub.failure import Failure
from penstock.core.hub.request import ClientRequest
from penstock.core.hub.usage import Usage
from penstock.core.stream_writer import StreamWriter
from penstock.gateway.calls.gateway import Gateway
from penstock.gateway.limits.demand import TokenDemand
from penstock.gateway.record.call import Call
from penstock.http.exchange import HttpRequest
from penstock.serve.kept.connection_answers import ConnectionAnswers, ConnectionKeeping
from penstock.serve.kept.continuations import Continuations
from penstock.serve.kept.keeper import AnswerKeeper
from penstock.serve.kept.stateful_answers import StatefulAnswers
from penstock.serve.surfaces.answers import AnswerSession
from penstock.serve.surfaces.call_session import Attempts, CallSession

# What a client gets of a stream, as the content type that stands for messages without the framing of one.
_MESSAGES = "application/json"


class SocketAnswers(StatefulAnswers):
    """The surface of one connection. One request at a time is handled."""

    prewarm = False
    """Whether the request that is handled only announces the next one."""

    def __init__(
        self,
        answers: ConnectionAnswers,
        dialect: str,
        continuations: Continuations,
        keeper: AnswerKeeper | None,
        calls: dict[CallSession, None],
        on_settled: Callable[[CallSession], None],
    ) -> None:
        super().__init__(dialect, continuations, keeper, calls, on_settled)
        self._answers = answers
        self._attempts = self._begin

    def read(self, body: bytes, request: HttpRequest) -> ClientRequest:
        """Parse a request body. Raises `RequestError`."""
        read = super().read(body, request)
        read.stream_type = _MESSAGES
        return read

    def prepare(self, call: Call, request: ClientRequest) -> None:
        """Let the answer be kept: as over HTTP, else for this connection."""
        keeping = self._keeper.begin(self._continuations.stored, call, request) if self._keeper is not None else None
        stored, previous = self._continuations.stored, request.continuation.previous if request.continuation else ""
        input = stored.new_input(request.members)
        call.keeping = ConnectionKeeping(stored, self._answers, keeping, previous, input)

    def close(self) -> None:
        """The connection has closed: break the reference cycle."""
        self._attempts = Gateway.attempts_for

    def _begin(self, gateway: Gateway, call: Call, request: ClientRequest, client: Any) -> Attempts:
        if self.prewarm:
            return Prewarm(gateway, call, request, client)
        return gateway.attempts_for(call, request, client)


class Prewarm:
    """Answers a request without a provider: the answer is complete and empty, and the next request continues it.

    It is a call as any other: its key's limits apply, and the ledger has an entry of it, without attempts or tokens.
    """

    _stopped = False

    def __init__(self, gateway: Gateway, call: Call, request: ClientRequest, client: AnswerSession) -> None:
        """Raises `RequestError` if there is no such model."""
        self._call, self._request, self._client = call, request, client
        self._ledger = gateway.ledger
        self._plans = gateway.plans_for(call)
        call.model = self._plans[0].route
        call.stream_type = request.stream_type

    def start(self) -> None:
        """Answer, once the ledger has admitted the call."""
        request = self._request
        demand = TokenDemand(0, 0, request.metadata, request.user)
        if self._ledger.admit(self._call, demand, self._plans, self._on_decided):
            self._answer()

    def stop(self) -> None:
        """Stop: the client has disconnected or got an error."""
        self._stopped = True

    def _on_decided(self, failure: Failure | None) -> None:
        if self._stopped:
            return
        decided = self._answer if failure is None else partial(self._client.refuse, failure)
        self._call.guarded(decided)()

    def _answer(self) -> None:
        call, request, client = self._call, self._request, self._client
        created = int(time.time())
        facts = AnswerFacts(
            call_id=call.id,
            model=request.model,
            created=created,
            same_dialect=False,
            echo=request.echo,
            stream_type=call.stream_type,
            overrides=call.keeping.overrides("") if call.keeping is not None else {},
        )
        events: list[Event] = [
            Start("", request.model, created),
            Finish(0, "stop"),
            UsageReport(Usage(input=0, output=0, total=0)),
            End("completed"),
        ]
        call.progress.ending = "completed"
        client.begin()
        client.end(StreamWriter.for_call(request.dialect, facts).write(events))
