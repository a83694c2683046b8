"""PeerStreams: requests for a stream that another worker of this gateway has.

A stream is in the memory of the worker that makes it, and the system gives a client any worker. A worker that does not
have a stream asks the others, and passes the request on as it came to the one that has it: that worker authenticates it
again, and its response is passed back as it arrives. A request that was passed on is not passed on again.
"""

import os
from collections.abc import Callable, Mapping
from functools import partial
from urllib.parse import parse_qs, urlencode

import msgspec
from msgspec import Struct

from penstock.http.exchange import Exchange, head_lines
from penstock.http.upstream_connection import UpstreamConnection, UpstreamError
from penstock.serve.loop import Tasks
from penstock.serve.responses import respond_json
from penstock.serve.streams.durable_streams import DurableStreams
from penstock.serve.workers.peers import FORWARDED, WorkerPeers

PATH = "/stream"
# Headers that concern one connection, and those that `Exchange` writes.
_OF_CONNECTION = ("connection", "content-length", "keep-alive", "transfer-encoding", "upgrade", FORWARDED)


class _Found(Struct, frozen=True):
    """What a worker knows of a stream: its process, or that it has expired there."""

    pid: int = 0
    expired: bool = False


_FOUND = msgspec.json.Decoder(_Found)


class PeerStreams:
    """Looks for streams in the other workers. `peers` is None if there are none."""

    def __init__(self, streams: DurableStreams) -> None:
        self._streams = streams
        self._tasks = Tasks()
        self.peers: WorkerPeers | None = None

    def ask(self, exchange: Exchange, owner: str, name: str, otherwise: Callable[[bool], None]) -> None:
        """Pass the request on to the worker that has this stream. If none has it, call `otherwise` with whether it has
        expired in one of them: at once, if there are no others."""
        if self.peers is None or FORWARDED in exchange.request.headers:
            otherwise(False)
        else:
            self._tasks.start(self._ask(self.peers, exchange, owner, name, otherwise))

    def handle(self, exchange: Exchange) -> None:
        """Respond to a worker that looks for a stream."""
        query = {name: values[0] for name, values in parse_qs(exchange.request.query).items()}
        owner, name = query.get("owner", ""), query.get("name", "")
        found = self._streams.find(owner, name) is not None
        reply = _Found(os.getpid() if found else 0, self._streams.has_expired(owner, name))
        respond_json(exchange, 200, reply)

    async def _ask(
        self, peers: WorkerPeers, exchange: Exchange, owner: str, name: str, otherwise: Callable[[bool], None]
    ) -> None:
        query = urlencode({"owner": owner, "name": name})
        found = list(map(_FOUND.decode, await peers.request_all("GET", f"{PATH}?{query}")))
        if exchange.over:
            return
        for each in found:
            if each.pid:
                passing = _PassedResponse(exchange, partial(otherwise, False))
                passing.use(await peers.forward(each.pid, _as_sent(exchange), passing))
                return
        otherwise(any(each.expired for each in found))


class _PassedResponse:
    """Passes the response of the other worker on to the client."""

    def __init__(self, exchange: Exchange, otherwise: Callable[[], None]) -> None:
        self._exchange = exchange
        self._otherwise = otherwise
        self._connection: UpstreamConnection | None = None

    def use(self, connection: UpstreamConnection | None) -> None:
        """Set the connection to the other worker; None if it is gone."""
        exchange = self._exchange
        self._connection = connection
        if connection is None:
            self._otherwise()
        elif exchange.over:
            connection.close()
        else:
            exchange.on_gone = connection.close
            exchange.on_pause, exchange.on_resume = connection.pause, connection.resume

    def on_head(self, status: int, headers: Mapping[str, str]) -> None:
        kept = {name: value for name, value in headers.items() if name not in _OF_CONNECTION}
        if status == 204:
            self._exchange.respond(status, kept, b"")
        else:
            self._exchange.begin(head_lines(status, kept))

    def on_data(self, data: bytes, *, last: bool = False) -> None:  # noqa: ARG002 - `end` sends what is held
        self._exchange.write(data)
        if self._exchange.paused and self._connection is not None:
            self._connection.pause()

    def on_end(self) -> None:
        self._exchange.forget()
        self._exchange.end()

    def on_error(self, error: UpstreamError) -> None:  # noqa: ARG002 - the client sees that it is incomplete
        self._exchange.forget()
        self._exchange.abort()


def _as_sent(exchange: Exchange) -> bytes:
    """The request of the client, for another worker."""
    request = exchange.request
    target = f"{request.path}?{request.query}" if request.query else request.path
    headers = {name: value for name, value in request.headers.items() if name not in _OF_CONNECTION}
    headers |= {FORWARDED: "1", "content-length": str(len(exchange.body))}
    lines = [f"{request.method} {target} HTTP/1.1", *map(": ".join, headers.items()), "", ""]
    return "\r\n".join(lines).encode("latin-1") + exchange.body
