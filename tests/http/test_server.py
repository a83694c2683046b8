"""The server's side of HTTP, without a network: what a client sends, in which reads, and what is asked then."""

import asyncio
from collections import deque
from typing import Any, cast

from penstock.http.exchange import Exchange
from penstock.http.limits import FrontLimits
from penstock.http.server import ServerConnection


class Wire:
    """A transport whose other end is a list."""

    def __init__(self) -> None:
        self.written: list[bytes] = []
        self.write = self.written.append
        self.closed = False

    def set_write_buffer_limits(self, *, high: int) -> None:
        """There is none."""

    def get_extra_info(self, name: str) -> object:
        return ("127.0.0.1", 1) if name == "peername" else None

    def get_write_buffer_size(self) -> int:
        return 0

    def can_write_eof(self) -> bool:
        return False

    def close(self) -> None:
        self.closed = True

    abort = close


class Client:
    """A client on a connection of its own. What it asks for is answered when the test says so."""

    def __init__(self, **limits: Any) -> None:
        self.waiting: deque[Exchange] = deque()
        self.wire = Wire()
        self.connection = ServerConnection(self.waiting.append, _page, FrontLimits(**limits), set())
        self.connection.connection_made(cast("asyncio.Transport", self.wire))

    def send(self, *reads: bytes) -> None:
        for data in reads:
            self.connection.data_received(data)

    def answer(self) -> Exchange:
        """Answer the request that waits."""
        exchange = self.waiting.popleft()
        exchange.respond(200, {}, b"")
        return exchange

    @property
    def status(self) -> int:
        """Of what was written last."""
        return int(self.wire.written[-1].split()[1])


def _page(status: int, message: str) -> tuple[dict[str, str], bytes]:
    return {"x-status": str(status)}, message.encode()


def post(body: bytes, *headers: bytes, length: bytes | None = None) -> bytes:
    size = b"%d" % len(body) if length is None else length
    lines = [b"POST /v1/a?b=c HTTP/1.1", b"Host: here", b"Content-Length: " + size, *headers, b"", b""]
    return b"\r\n".join(lines) + body


def test_what_was_sent_ahead_is_taken_up_before_what_comes_then() -> None:
    async def check() -> None:
        client = Client()
        first, second, third = post(b"one"), post(b"two"), post(b"three" * 20_000)
        client.send(first, second[:20])
        asked = [client.answer()]  # the loop has not turned since when more of the second one comes
        client.send(second[20:], third)
        for _ in range(2):
            await asyncio.sleep(0)
            asked.append(client.answer())
        assert [exchange.body for exchange in asked] == [b"one", b"two", b"three" * 20_000]
        assert client.status == 200

    asyncio.run(check())
