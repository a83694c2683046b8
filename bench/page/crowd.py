"""Clients of very many streams at once, in a process of their own: how long each event was under way.

    python -m bench.page.crowd PORT KEY STREAMS GAP_MS FILE

prints a line once all streams have begun, and reads until its standard input ends. Then the file has two numbers for
each event: when it came, and how many seconds it took.
"""

import array
import asyncio
import re
import sys
import time
from pathlib import Path
from typing import cast

import uvloop

_SENT = re.compile(rb"@(\d+) ")
# Streams that are being opened at one time; more would only fill the queue of the listening socket.
_OPENING = 100


class Stream(asyncio.Protocol):
    """The client of one stream."""

    def __init__(self, request: bytes, seen: "array.array[float]", begun: asyncio.Future[None]) -> None:
        self._request = request
        self._seen = seen
        self._begun = begun

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Ask."""
        cast("asyncio.Transport", transport).write(self._request)

    def data_received(self, data: bytes) -> None:
        """Note each event."""
        now = time.monotonic_ns()
        for sent in _SENT.findall(data):
            self._seen.extend((now / 1e9, (now - int(sent)) / 1e9))
            if not self._begun.done():
                self._begun.set_result(None)

    def connection_lost(self, _error: Exception | None) -> None:
        """A stream that ends by itself is a failure."""
        if not self._begun.done():
            self._begun.set_exception(ConnectionError("a stream ended before it began"))


async def run(port: int, key: str, streams: int, gap_ms: int) -> "array.array[float]":
    """Open them all, and note what comes."""
    loop = asyncio.get_running_loop()
    body = b'{"model":"mock/paced-%d","stream":true,"messages":[{"role":"user","content":"hi"}]}' % gap_ms
    request = (
        b"POST /v1/chat/completions HTTP/1.1\r\nhost: bench\r\nauthorization: Bearer %b\r\n"
        b"content-type: application/json\r\ncontent-length: %d\r\n\r\n%b" % (key.encode(), len(body), body)
    )
    seen = array.array("d")
    gate = asyncio.Semaphore(_OPENING)

    async def one() -> None:
        begun: asyncio.Future[None] = loop.create_future()
        async with gate:
            await loop.create_connection(lambda: Stream(request, seen, begun), "127.0.0.1", port)
            await begun

    await asyncio.gather(*(one() for _ in range(streams)))
    print("begun", flush=True)
    await loop.run_in_executor(None, sys.stdin.read)
    return seen


if __name__ == "__main__":
    _port, _key, _streams, _gap, _file = sys.argv[1:]
    Path(_file).write_bytes(uvloop.run(run(int(_port), _key, int(_streams), int(_gap))).tobytes())
