"""A connection of the server without a network: a client whose bytes arrive in the reads that a test sets."""

import asyncio
import gc
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, cast

from penstock.http.exchange import Exchange
from penstock.http.limits import FrontLimits
from penstock.http.server import ServerConnection


class Wire:
    """A transport that appends what is written to a list."""

    def __init__(self) -> None:
        self.written: list[bytes] = []
        self.write = self.written.append
        self.closed = False
        self.aborted = False
        self.ended = False
        self.buffered = 0
        """The size of the write buffer, which a test sets."""
        self.high = 0

    def set_write_buffer_limits(self, *, high: int) -> None:
        self.high = high

    def get_extra_info(self, name: str) -> object:
        return ("127.0.0.1", 1) if name == "peername" else None

    def get_write_buffer_size(self) -> int:
        return self.buffered

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        self.ended = True

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.closed = self.aborted = True


class Client:
    """A client on its own connection. The test decides when a request is answered.

    If the limit of a body depends on the request, no head is cached.
    """

    def __init__(
        self,
        max_body: Callable[[bytes, dict[str, str]], int] | None = None,
        /,
        connections: set[ServerConnection] | None = None,
        **limits: Any,
    ) -> None:
        self.waiting: deque[Exchange] = deque()
        self.wire = Wire()
        others = connections if connections is not None else set()
        self.connection = ServerConnection(self.waiting.append, _page, FrontLimits(**limits), others, max_body)
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


def _page(status: int, message: str, _target: bytes) -> tuple[dict[str, str], bytes]:
    return {"x-status": str(status)}, message.encode()


def post(body: bytes, *headers: bytes, length: bytes | None = None) -> bytes:
    size = b"%d" % len(body) if length is None else length
    lines = [b"POST /v1/a?b=c HTTP/1.1", b"Host: here", b"Content-Length: " + size, *headers, b"", b""]
    return b"\r\n".join(lines) + body


@contextmanager
def no_garbage_collection() -> Iterator[None]:
    """What is freed here is freed at once."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
