"""BackgroundCalls: answers that are generated while their client may be away, and read later by their id.

Each is a call whose stream is durable and needs no reader. Its client gets the answer as `queued` at once, or the
stream if it asks for one. While the stream is kept, a client that asks for the answer gets what the stream has.
"""

import asyncio
import time
from collections.abc import Mapping

from msgspec import structs

from penstock.core.dialects.dialect import BackgroundAnswers, StoredAnswers
from penstock.core.hub.failure import RequestError
from penstock.core.hub.request import ClientRequest
from penstock.error_codes import ERRORS
from penstock.gateway.keys.client_key import ClientKey
from penstock.http.exchange import Exchange
from penstock.serve.kept.continuations import OFF
from penstock.serve.kept.keeper import AnswerKeeper
from penstock.serve.responses import JSON, id_headers, refused
from penstock.serve.streams.durable_stream import DurableStream
from penstock.serve.streams.durable_streams import DurableStreams, owner_of
from penstock.serve.streams.stream_options import StreamOptions
from penstock.serve.surfaces.call_session import CallSession

_NEVER = "the operator of this gateway allows no durable streams, and a response in the background is one"
_READS_ALL = 1 << 40


class BackgroundCalls:
    """The background answers of one API."""

    def __init__(
        self,
        dialect: str,
        answers: BackgroundAnswers,
        stored: StoredAnswers,
        streams: DurableStreams,
        calls: dict[CallSession, None],
    ) -> None:
        self.answers = answers
        self._dialect = dialect
        self._stored = stored
        self._streams = streams
        self._calls = calls

    def open(
        self,
        exchange: Exchange,
        request: ClientRequest,
        request_id: str,
        key: ClientKey | None,
        keeper: AnswerKeeper | None,
    ) -> Exchange:
        """The exchange of a call in the background. Raises `RequestError`."""
        if keeper is None:
            raise RequestError(
                refused(f"`background` is not possible here: {OFF}", "invalid_request", param="background")
            )
        if self._streams.settings.durable == "never":
            raise RequestError(refused(_NEVER, "invalid_request", param="background"))
        ids = keeper.ids(self._stored)
        id = ids.make(request_id, "", ids.owner(key))
        options = StreamOptions(chosen=id, on_disconnect="continue")
        header = self._streams.header(exchange, request_id, key, self._dialect, options)
        header = structs.replace(header, queued=self.answers.write_queued(id, int(time.time()), request))
        writer = self._streams.open(exchange, header, joins=request.background == "streamed")
        asyncio.get_running_loop().call_soon(self._announce, exchange, writer.stream, request.background == "streamed")
        return writer

    def _announce(self, exchange: Exchange, stream: DurableStream, streamed: bool) -> None:
        """Respond that the answer is queued, unless the call was refused at once. From now on, failures are part of the
        answer."""
        id = stream.log.id
        if stream.whole is not None:
            if not streamed:
                exchange.respond(*stream.whole)
            return
        for session in self._calls:
            if session.call.id == id:
                session.call.failures_in_stream = frozenset(ERRORS)
        if not streamed:
            exchange.respond(200, {"content-type": JSON} | id_headers(id, self._dialect), stream.header.queued)

    def find(self, key: ClientKey | None, id: str) -> DurableStream | None:
        """The stream of an answer, while it can be read."""
        return self._streams.find(owner_of(key), id)

    def read(self, stream: DurableStream) -> bytes:
        """The answer as it is now."""
        log = stream.log
        status = None
        if log.state == "waiting":
            status = "queued"
        elif stream.outcome == "cancelled":
            status = "cancelled"
        elif log.state == "broken":
            status = "failed"
        return self.answers.write_running(stream.header.queued, log.events(log.first, _READS_ALL), status)

    def position(self, stream: DurableStream, query: Mapping[str, str]) -> int:
        """The position in the stream after the event that the client has. Raises `RequestError`."""
        starting_after = query.get("starting_after", "")
        if not starting_after:
            return 0
        if not (starting_after.isascii() and starting_after.isdigit() and len(starting_after) < 10):
            message = "starting_after is the sequence_number of an event"
            raise RequestError(refused(message, "invalid_parameter", param="starting_after"))
        log = stream.log
        return log.first + self.answers.position(log.events(log.first, _READS_ALL), int(starting_after))
