"""ReplayApp: the server of `penstock replay`. It plays captures on the APIs of their dialects.

    POST …/chat/completions     plays a capture of chat completions, as it was recorded; other dialects have other paths
    GET  …/models               the models that there are captures of; …/models/NAME is one of them

No key is required, because replays cost nothing. But captures contain content, so on a loopback address the `Host` and
`Origin` of requests are checked (DNS rebinding, `hosts.py`). On any other address everyone in the network can read them
anyway.
"""

import asyncio
import signal
from collections.abc import Callable, Mapping
from functools import partial

from penstock.core.dialects.paths import model_at
from penstock.core.dialects.registry import DEFAULT_DIALECT, DIALECTS
from penstock.core.hub.failure import Failure
from penstock.error_codes import ErrorCode
from penstock.gateway.config.addresses import is_loopback
from penstock.http.exchange import Exchange
from penstock.http.limits import FrontLimits
from penstock.http.server import ServerConnection
from penstock.http.upstream_connection import UpstreamError
from penstock.replay.upstream import NO_CAPTURE, PlayedCapture, Replay, ReplayConnection
from penstock.serve.hosts import AllowedHosts
from penstock.serve.loop import run_loop
from penstock.serve.paths import endpoint, plain_path
from penstock.serve.responses import error_page, header_value, id_headers, new_request_id, respond_failure, respond_json
from penstock.serve.telemetry.log import Log

_NOT_ALLOWED = (
    "on a loopback address, captures are played only to requests for localhost or an IP address, and to pages of "
    "localhost (this guards against DNS rebinding); to serve them under other names, listen elsewhere with --host"
)


class ReplayApp:
    """Serves captures."""

    def __init__(self, replay: Replay, log: Log) -> None:
        self._replay = replay
        self._log = log
        self._connections: set[ServerConnection] = set()
        self._server: asyncio.Server | None = None
        self._hosts: AllowedHosts | None = None
        self._paths = {
            path: name
            for name, dialect in DIALECTS.items()
            if dialect.answers is not None
            for path in (dialect.answers.path, dialect.unstreamed_path)
            if path
        }

    async def listen(self, host: str, port: int) -> int:
        """Start to accept connections. Returns the port."""
        self._hosts = AllowedHosts(()) if is_loopback(host) else None
        limits = FrontLimits()
        self._server = await asyncio.get_running_loop().create_server(
            lambda: ServerConnection(self.handle, error_page, limits, self._connections), host, port, backlog=1024
        )
        bound = self._server.sockets[0].getsockname()[1]
        assert isinstance(bound, int)
        return bound

    async def close(self) -> None:
        """Accept no more connections, and abort the open ones."""
        if self._server is not None:
            self._server.close()
        for connection in list(self._connections):
            connection.close_when_idle()
        await asyncio.sleep(0)
        for connection in list(self._connections):
            connection.abort()
        await asyncio.sleep(0)

    def handle(self, exchange: Exchange) -> None:
        """Route a request."""
        method, path = exchange.request.method, exchange.request.path
        dialect = self._dialect_at(path)
        if not self._is_allowed(exchange.request.headers):
            _refuse(exchange, _NOT_ALLOWED, "host_not_allowed")
        elif dialect is not None:
            if method == "POST":
                self._play(exchange, dialect)
            else:
                _refuse(exchange, f"{method} is not allowed here; use POST", "method_not_allowed", dialect)
        elif path.endswith("/models"):
            data = [_model(name) for name in self._replay.models]
            respond_json(exchange, 200, {"object": "list", "data": data}, {"x-request-id": new_request_id()})
        elif (name := path.rpartition("/models/")[2]) in self._replay.models:
            respond_json(exchange, 200, _model(name), {"x-request-id": new_request_id()})
        elif path in ("/health", "/healthz", "/livez", "/readyz"):
            respond_json(exchange, 200, {"status": "ok"})
        else:
            _refuse(exchange, f"there is nothing at {path[:200]}", "not_found")

    def _dialect_at(self, path: str) -> str | None:
        """The dialect whose API has this path; None if none has."""
        named = endpoint(plain_path(path))
        found = (name for posted, name in self._paths.items() if model_at(path, posted) is not None or named == posted)
        return next(found, None)

    def _is_allowed(self, headers: Mapping[str, str]) -> bool:
        if self._hosts is None:
            return True
        host, origin = headers.get("host", ""), headers.get("origin")
        return self._hosts.allows(host) and (origin is None or self._hosts.allows_origin(origin, host))

    def _play(self, exchange: Exchange, dialect: str) -> None:
        receiver = _ClientReceiver(exchange, dialect)

        def log_choice(played: PlayedCapture) -> None:
            receiver.name = played.name
            status = 404 if played.playback.refusal else played.playback.status or "no head"
            self._log.write(f"{status}  {header_value(played.name) or 'no capture'}  {played.why}".rstrip())

        connection = ReplayConnection(partial(self._replay.choose, dialect, exchange.request.path))
        connection.on_chosen = log_choice
        exchange.on_gone = lambda: connection.abandon(receiver)
        exchange.on_pause = connection.pause
        exchange.on_resume = connection.resume
        connection.send(exchange.body, receiver)


class _ClientReceiver:
    """Receives a played capture and sends it to the client."""

    def __init__(self, exchange: Exchange, dialect: str) -> None:
        self._exchange = exchange
        self._dialect = dialect
        self.name = ""
        """The name of the capture."""

    def on_head(self, status: int, headers: Mapping[str, str]) -> None:
        response_headers = {**id_headers(new_request_id(), self._dialect), **headers}
        if self.name:
            response_headers["x-penstock-capture"] = header_value(self.name)
        self._exchange.start(status, response_headers)
        self._exchange.flush()

    def on_data(self, data: bytes, *, last: bool = False) -> None:  # noqa: ARG002
        self._exchange.write(data)

    def on_end(self) -> None:
        self._exchange.end()

    def on_error(self, error: UpstreamError) -> None:
        if error.code == NO_CAPTURE:
            _refuse(self._exchange, str(error), NO_CAPTURE, self._dialect)
            return
        self._exchange.cut(reset=error.code == "upstream_reset")


def _model(name: str) -> dict[str, object]:
    return {"id": name, "object": "model", "created": 0, "owned_by": "replay"}


def _refuse(exchange: Exchange, message: str, code: ErrorCode, dialect: str = DEFAULT_DIALECT) -> None:
    failure = Failure(code=code, message=message, retryable=False)
    respond_failure(exchange, failure, new_request_id(), {}, dialect)


def run(replay: Replay, log: Log, address: tuple[str, int], ready: Callable[[int], None]) -> int:
    """Serve until a signal arrives. Returns the exit status. Calls `ready` with the port once it listens."""
    return run_loop(_serve(replay, log, address, ready))


async def _serve(replay: Replay, log: Log, address: tuple[str, int], ready: Callable[[int], None]) -> int:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    app = ReplayApp(replay, log)
    ready(await app.listen(*address))
    await stop.wait()
    await app.close()
    log.close()
    return 0
