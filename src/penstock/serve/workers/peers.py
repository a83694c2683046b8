"""WorkerPeers: HTTP requests between the workers of one gateway, over Unix domain sockets.

A worker listens on `PID.sock` in a directory that only the gateway's user can enter, and serves its `routes` there with
the same HTTP server as for clients. A request goes to all other workers; a worker that does not respond within
`TIMEOUT_S` is left out of the result.
"""

import asyncio
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Protocol, TypeAlias

from penstock.http.collected_response import CollectedResponse
from penstock.http.exchange import Exchange
from penstock.http.limits import FrontLimits, UpstreamLimits
from penstock.http.server import ServerConnection
from penstock.http.upstream_connection import Receiver, UpstreamConnection, UpstreamError
from penstock.serve.responses import JSON, error_page

TIMEOUT_S = 0.5
# The header of a client's request that another worker has passed on. It is heeded on these sockets only.
FORWARDED = "x-penstock-forwarded"
# Request handlers by method and path.
Routes: TypeAlias = Mapping[tuple[str, str], Callable[[Exchange], None]]


class WorkerPeers:
    """This worker's socket, and requests to the other workers."""

    def __init__(self, folder: Path, routes: Routes) -> None:
        self._folder = folder
        self._routes = routes
        self._own = folder / f"{os.getpid()}.sock"
        self._connections: set[ServerConnection] = set()
        self._server: asyncio.Server | None = None
        self.on_client_request: Callable[[Exchange], None] | None = None
        """Handles a request of a client that another worker has passed on."""

    async def listen(self) -> None:
        """Start to serve requests of other workers."""
        self._own.unlink(missing_ok=True)  # left by a dead worker that had the same process id
        self._server = await asyncio.get_running_loop().create_unix_server(
            lambda: ServerConnection(self._handle, error_page, FrontLimits(), self._connections), str(self._own)
        )

    async def request_all(self, method: str, path: str, body: bytes = b"", *, own: bool = False) -> list[bytes]:
        """Send a request to all other workers, and with `own` to this one. Returns the bodies of the responses with
        status 200."""
        sockets = [*self._others(), *([self._own] if own else [])]
        requests = [_request(socket, method, path, body) for socket in sockets]
        return [body for body in await asyncio.gather(*requests) if body is not None]

    async def follow(self, path: str, follower: "Follower") -> bool:
        """Stream the first response with status 200 of another worker to `follower`. Returns False if there is none."""
        for socket in self._others():
            if await _follow(socket, path, follower):
                return True
        return False

    async def forward(self, pid: int, request: bytes, receiver: Receiver) -> UpstreamConnection | None:
        """Send a whole request to one worker, whose response goes to `receiver`. None if it cannot be reached."""
        connection: UpstreamConnection | None = None
        with suppress(OSError):
            async with asyncio.timeout(TIMEOUT_S):
                _, connection = await asyncio.get_running_loop().create_unix_connection(
                    lambda: UpstreamConnection(UpstreamLimits(), UpstreamConnection.close),
                    str(self._folder / f"{pid}.sock"),
                )
            connection.send(request, receiver)
        return connection

    def close(self) -> None:
        """Stop serving requests."""
        if self._server is not None:
            self._server.close()
            self._server = None
        for connection in list(self._connections):
            connection.abort()
        self._own.unlink(missing_ok=True)

    def _others(self) -> list[Path]:
        sockets = []
        for path in self._folder.glob("*.sock"):
            if path != self._own and path.stem.isdecimal() and _is_alive(int(path.stem)):
                sockets.append(path)
            elif path != self._own:
                path.unlink(missing_ok=True)
        return sockets

    def _handle(self, exchange: Exchange) -> None:
        request = exchange.request
        handler = self._routes.get((request.method, request.path))
        if FORWARDED in request.headers and self.on_client_request is not None:
            self.on_client_request(exchange)
        elif handler is None:
            exchange.respond(404, {"content-type": JSON}, b"{}")
        else:
            handler(exchange)


class Follower(Protocol):
    """Receives the body of a response as it arrives."""

    def on_start(self, connection: UpstreamConnection) -> None:
        """The response has started. The follower may pause or close the connection."""

    def on_data(self, data: bytes) -> None:
        """The next bytes of the body."""

    def on_end(self) -> None:
        """The body is complete, or the connection is lost."""


class _Following:
    """Passes a response on to the follower if its status is 200."""

    def __init__(self, follower: Follower) -> None:
        self._follower = follower
        self._accepted = False
        self.connection: UpstreamConnection | None = None
        self.started: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

    def on_head(self, status: int, headers: Mapping[str, str]) -> None:  # noqa: ARG002
        self._accepted = status == 200 and not self.started.done()
        if self._accepted and self.connection is not None:
            self._follower.on_start(self.connection)
        self._resolve(started=self._accepted)

    def on_data(self, data: bytes, *, last: bool = False) -> None:  # noqa: ARG002
        if self._accepted:
            self._follower.on_data(data)

    def on_end(self) -> None:
        if self._accepted:
            self._follower.on_end()
        self._resolve(started=False)

    def on_error(self, error: UpstreamError) -> None:  # noqa: ARG002
        self.on_end()

    def _resolve(self, *, started: bool) -> None:
        if not self.started.done():
            self.started.set_result(started)


async def _request(socket: Path, method: str, path: str, body: bytes) -> bytes | None:
    connection: UpstreamConnection | None = None
    with suppress(OSError, UpstreamError):  # `TimeoutError` is an `OSError`
        async with asyncio.timeout(TIMEOUT_S):
            _, connection = await asyncio.get_running_loop().create_unix_connection(
                lambda: UpstreamConnection(UpstreamLimits(), UpstreamConnection.close), str(socket)
            )
            response = CollectedResponse()
            head = f"{method} {path} HTTP/1.1\r\nhost: worker\r\ncontent-length: {len(body)}\r\n\r\n"
            connection.send(head.encode() + body, response)
            await response.done
            if response.status == 200:
                return bytes(response.body)
    if connection is not None:
        connection.close()
    return None


async def _follow(socket: Path, path: str, follower: Follower) -> bool:
    following = _Following(follower)
    with suppress(OSError):
        async with asyncio.timeout(TIMEOUT_S):
            _, following.connection = await asyncio.get_running_loop().create_unix_connection(
                lambda: UpstreamConnection(UpstreamLimits(), UpstreamConnection.close), str(socket)
            )
            following.connection.send(f"GET {path} HTTP/1.1\r\nhost: worker\r\n\r\n".encode(), following)
            if await following.started:
                return True
    if following.connection is not None:
        following.connection.close()
    return False


def _is_alive(pid: int) -> bool:
    """Whether a process of this user has that id. The id of a dead worker may belong to another user's process now."""
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, PermissionError, OverflowError):
        return False
    return True
