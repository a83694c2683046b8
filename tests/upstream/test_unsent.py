"""An answer that arrives before its request was sent completely: the rest would delay the next request."""

import asyncio
import ssl
from collections.abc import Callable, Mapping
from typing import cast

import pytest
import trustme
import uvloop

from penstock.http.limits import UpstreamLimits
from penstock.http.upstream_connection import RequestBytes, UpstreamConnection, UpstreamError
from tests.http.wire import Wire

ANSWER = b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello"


class RecordingReceiver:
    """Waits for the end."""

    def __init__(self) -> None:
        self.over = asyncio.Event()

    def on_head(self, status: int, headers: Mapping[str, str]) -> None:
        pass

    def on_data(self, data: bytes, *, last: bool = False) -> None:
        pass

    def on_end(self) -> None:
        self.over.set()

    def on_error(self, error: UpstreamError) -> None:
        pass


async def usable_after(request: RequestBytes, server_tls: ssl.SSLContext | None, tls: ssl.SSLContext | None) -> bool:
    """Whether the connection can be used again, after a server that reads a little of the request has answered it."""
    over = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(4)
        writer.write(ANSWER)
        await over.wait()
        writer.transport.abort()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=server_tls, limit=1024)
    free: list[bool] = []
    _, connection = await asyncio.get_running_loop().create_connection(
        lambda: UpstreamConnection(UpstreamLimits(), lambda freed: free.append(freed.alive)),
        "127.0.0.1",
        server.sockets[0].getsockname()[1],
        ssl=tls,
    )
    received = RecordingReceiver()
    async with asyncio.timeout(30.0):
        connection.send(request, received)
        await received.over.wait()
    over.set()
    connection.close()
    server.close()
    await asyncio.sleep(0.05)  # until all of it has been closed
    return free[0]


@pytest.mark.slow
@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
@pytest.mark.parametrize("secured", [False, True], ids=["plain", "TLS"])
@pytest.mark.parametrize(
    ("request_bytes", "usable"),
    [(bytes(10), True), (bytes(30_000_000), False), ((bytes(10), bytes(30_000_000)), False)],
    ids=["sent", "unsent", "unsent, in pieces"],
)
def test_a_connection_is_kept_only_if_its_request_has_left(
    loop: Callable[[], asyncio.AbstractEventLoop], request_bytes: RequestBytes, *, secured: bool, usable: bool
) -> None:
    authority = trustme.CA()
    serving, asking = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.create_default_context()
    authority.issue_cert("127.0.0.1").configure_cert(serving)
    authority.configure_trust(asking)
    with asyncio.Runner(loop_factory=loop) as runner:
        tls = (serving, asking) if secured else (None, None)
        assert runner.run(usable_after(request_bytes, *tls)) is usable


def test_a_large_request_is_written_in_pieces_as_the_provider_takes_them() -> None:
    """TLS encrypts within a write: 28 MB at once would hold the event loop for some 30 ms."""
    body = bytes(range(250)) * 4_000

    async def check() -> None:
        wire = Wire()
        connection = UpstreamConnection(UpstreamLimits(), lambda _: None)
        connection.connection_made(cast("asyncio.Transport", wire))
        connection.send((b"head", body), RecordingReceiver())
        assert sum(map(len, wire.written)) < 300_000
        await asyncio.sleep(0)
        connection.pause_writing()
        paused = len(wire.written)
        assert paused == 3  # the head, and a piece in each turn of the loop
        await asyncio.sleep(0)
        assert len(wire.written) == paused
        connection.resume_writing()
        for _ in range(10):
            await asyncio.sleep(0)
        assert b"".join(wire.written) == b"head" + body

    asyncio.run(check())
