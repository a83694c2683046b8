"""WorkerPeers: the workers of one gateway, as one of them sees the others. Each answers the others' questions.

A worker listens on a unix socket in a folder that only the gateway's user can enter, and speaks HTTP there by the same
server as everywhere. `routes` say what it answers. Whoever asks, asks all; one that does not answer soon is left out.
"""

import asyncio
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Protocol, TypeAlias

from penstock.http.client import UpstreamConnection, UpstreamError
from penstock.http.exchange import Exchange
from penstock.http.limits import FrontLimits, UpstreamLimits
from penstock.http.server import ServerConnection
from penstock.serve.responses import JSON, error_page

WAIT_S = 0.5
# By method and path: who answers.
Routes: TypeAlias = Mapping[tuple[str, str], Callable[[Exchange], None]]


class WorkerPeers:
    """This worker among the others."""

    def __init__(self, folder: Path, routes: Routes) -> None:
        self._folder = folder
        self._routes = routes
        self._own = folder / f"{os.getpid()}.sock"
        self._connections: set[ServerConnection] = set()
        self._server: asyncio.Server | None = None

    async def listen(self) -> None:
        """Begin to answer."""
        self._own.unlink(missing_ok=True)  # of a worker that is gone, whose number this one has got
        self._server = await asyncio.get_running_loop().create_unix_server(
            lambda: ServerConnection(self._handle, error_page, FrontLimits(), self._connections), str(self._own)
        )

    async def ask(self, method: str, path: str, body: bytes = b"") -> list[bytes]:
        """What the others answer, each that does; a refusal is no answer."""
        asked = [_ask(path_, method, path, body) for path_ in self._others()]
        return [answer for answer in await asyncio.gather(*asked) if answer is not None]

    async def follow(self, path: str, follower: "Follower") -> bool:
        """Have what one of the others answers told piece by piece; False if none of them does."""
        for socket in self._others():
            if await _follow(socket, path, follower):
                return True
        return False

    def close(self) -> None:
        """Answer no more."""
        if self._server is not None:
            self._server.close()
            self._server = None
        for connection in list(self._connections):
            connection.abort()
        self._own.unlink(missing_ok=True)

    def _others(self) -> list[Path]:
        found = []
        for path in self._folder.glob("*.sock"):
            if path != self._own and path.stem.isdecimal() and _lives(int(path.stem)):
                found.append(path)
            elif path != self._own:
                path.unlink(missing_ok=True)
        return found

    def _handle(self, exchange: Exchange) -> None:
        request = exchange.request
        handler = self._routes.get((request.method, request.path))
        if handler is None:
            exchange.respond(404, {"content-type": JSON}, b"{}")
        else:
            handler(exchange)


class Follower(Protocol):
    """Who takes an answer piece by piece."""

    def begin(self, connection: UpstreamConnection) -> None:
        """The answer begins; the connection may be paused, or closed."""

    def on_data(self, data: bytes) -> None:
        """A piece of it."""

    def on_end(self) -> None:
        """It is over, one way or the other."""


class _Following:
    """Hands on an answer, if it is one."""

    def __init__(self, follower: Follower) -> None:
        self._follower = follower
        self._is_answer = False
        self.connection: UpstreamConnection | None = None
        self.begun: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

    def on_head(self, status: int, headers: Mapping[str, str]) -> None:  # noqa: ARG002
        self._is_answer = status == 200 and not self.begun.done()
        if self._is_answer and self.connection is not None:
            self._follower.begin(self.connection)
        self._tell(begun=self._is_answer)

    def on_data(self, data: bytes, *, last: bool = False) -> None:  # noqa: ARG002
        if self._is_answer:
            self._follower.on_data(data)

    def on_end(self) -> None:
        if self._is_answer:
            self._follower.on_end()
        self._tell(begun=False)

    def on_error(self, error: UpstreamError) -> None:  # noqa: ARG002
        self.on_end()

    def _tell(self, *, begun: bool) -> None:
        if not self.begun.done():
            self.begun.set_result(begun)


class _PeerResponse:
    """Takes one answer whole."""

    def __init__(self) -> None:
        self.status = 0
        self.body = b""
        self.over: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def on_head(self, status: int, headers: Mapping[str, str]) -> None:  # noqa: ARG002
        self.status = status

    def on_data(self, data: bytes, *, last: bool = False) -> None:  # noqa: ARG002
        self.body += data

    def on_end(self) -> None:
        if not self.over.done():
            self.over.set_result(None)

    def on_error(self, error: UpstreamError) -> None:
        if not self.over.done():
            self.over.set_exception(error)


async def _ask(socket: Path, method: str, path: str, body: bytes) -> bytes | None:
    connection: UpstreamConnection | None = None
    with suppress(OSError, UpstreamError):  # `TimeoutError` is an `OSError`
        async with asyncio.timeout(WAIT_S):
            _, connection = await asyncio.get_running_loop().create_unix_connection(
                lambda: UpstreamConnection(UpstreamLimits(), UpstreamConnection.close), str(socket)
            )
            answer = _PeerResponse()
            head = f"{method} {path} HTTP/1.1\r\nhost: sibling\r\ncontent-length: {len(body)}\r\n\r\n"
            connection.send(head.encode() + body, answer)
            await answer.over
            if answer.status == 200:
                return answer.body
    if connection is not None:
        connection.close()
    return None


async def _follow(socket: Path, path: str, follower: Follower) -> bool:
    following = _Following(follower)
    with suppress(OSError):
        async with asyncio.timeout(WAIT_S):
            _, following.connection = await asyncio.get_running_loop().create_unix_connection(
                lambda: UpstreamConnection(UpstreamLimits(), UpstreamConnection.close), str(socket)
            )
            following.connection.send(f"GET {path} HTTP/1.1\r\nhost: sibling\r\n\r\n".encode(), following)
            if await following.begun:
                return True
    if following.connection is not None:
        following.connection.close()
    return False


def _lives(pid: int) -> bool:
    """Whether a process of this user has that number; that of a worker which is gone may be another user's now."""
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, PermissionError, OverflowError):
        return False
    return True
