"""Compactions: the API for a shorter conversation in place of a long one. Each is a call, with all that calls have.

A provider that has this API is asked for it; any other one for a summary, which the client gets sealed for its key.
"""

from collections.abc import Callable
from functools import partial

from penstock.core.dialects.dialect import RequestError
from penstock.core.dialects.shared_state import find_reference
from penstock.core.hub.request import ClientRequest
from penstock.gateway.calls.gateway import Gateway
from penstock.gateway.content.answer_ids import AnswerIds
from penstock.gateway.keys.client_key import ClientKey
from penstock.gateway.record.call import Call
from penstock.http.exchange import Exchange, HttpRequest
from penstock.serve.kept.continuations import Continuations
from penstock.serve.kept.stateful_answers import StatefulAnswers
from penstock.serve.kept.summaries import Summaries
from penstock.serve.loop import Tasks
from penstock.serve.responses import respond_failure
from penstock.serve.surfaces.answers import AnswerSession
from penstock.serve.surfaces.call_session import CallSession


class Compactions(StatefulAnswers):
    """The API of one dialect. A request may continue a kept answer; a compaction is not kept itself."""

    def __init__(
        self,
        dialect: str,
        continuations: Continuations,
        summaries: Summaries,
        calls: dict[CallSession, None],
        on_settled: Callable[[CallSession], None],
    ) -> None:
        super().__init__(dialect, continuations, None, calls, on_settled)
        self.name = summaries.compaction.name
        self._summaries = summaries
        self._tasks = Tasks()
        self._client = self._session
        self._seals: AnswerIds | None = None

    def takes(self, body: bytes) -> bool:
        """Whether a request for an answer asks to compact the conversation instead."""
        return self._summaries.compaction.is_triggered(body)

    def handle(
        self,
        exchange: Exchange,
        gateway: Gateway,
        request_id: str,
        key: ClientKey | None,
        parsed: Callable[[], ClientRequest] | None = None,
    ) -> None:
        """Start a call with that key, once its summary can be sealed."""
        start = partial(super().handle, exchange, gateway, request_id, key, parsed)
        if self._seals is not None:
            start()
        else:
            self._tasks.start(self._load(exchange, request_id, start))

    async def _load(self, exchange: Exchange, request_id: str, start: Callable[[], None]) -> None:
        try:
            self._seals = await self._summaries.seals()
        except RequestError as error:
            if not exchange.over:
                respond_failure(exchange, error.failure, request_id, {}, self.dialect)
        else:
            if not exchange.over:
                start()

    def read(self, body: bytes, request: HttpRequest) -> ClientRequest:
        """Parse a request body. Raises `RequestError`."""
        read = self._summaries.compaction.read_request(body, request.headers)
        read.reference = find_reference(self.dialect, read.fields)
        return self._continuations.check(read)

    def _session(
        self, exchange: Exchange, call: Call, on_settled: Callable[[CallSession], None]
    ) -> "_CompactionSession":
        compaction, seals = self._summaries.compaction, self._seals
        assert seals is not None  # `handle` waits for it
        seal = partial(seals.seal, owner=seals.owner(call.key))
        write = partial(compaction.write, exchange.body, call_id=call.id, seal=seal)
        return _CompactionSession(exchange, call, on_settled, write)


class _CompactionSession(AnswerSession):
    """The client's side of one compaction."""

    def __init__(
        self,
        exchange: Exchange,
        call: Call,
        on_settled: Callable[[CallSession], None],
        write: Callable[[bytes], tuple[bytes, bool]],
    ) -> None:
        """`write` makes the response of the body of an answer, and says whether it is a stream. It raises
        `RequestError`."""
        super().__init__(exchange, call, on_settled)
        self._write_compaction = write

    def answer(self, body: bytes) -> None:
        """Send the response, or why there is none although the provider has answered."""
        try:
            written, streamed = self._write_compaction(body)
        except RequestError as error:
            self.call.progress.ending = "failed"
            self.refuse(error.failure)
            return
        if streamed:
            self.begin()
            self.end(written)
        else:
            super().answer(written)
