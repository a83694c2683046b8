"""Very many streams at once through one gateway: the memory of each, and whether any event is lost.

All streams are open at the same time, while the provider sends an event every second. A stream is complete when it has
every event, `[DONE]` and the end of the body.
"""

import asyncio
import re
import resource
import subprocess
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple, cast

import uvloop

from bench.gateway import judge

EVENTS = 20
GAP_US = 1_000_000
# Streams that are being opened at one time; more would only fill the queue of the listening socket.
OPENING = 200
# The open files that ten thousand streams need: each has two in the gateway.
FILES = 24_000
# The time for all streams to begin, and then to end; a stream that takes longer counts as lost.
TIMEOUT_S = 120.0
BODY = (
    b'{"model":"%b","stream":true,"stream_options":{"include_usage":true},"messages":[{"role":"user","content":"hi"}]}'
    % judge.MODEL.encode()
)
REQUEST = (
    b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
    b"content-length: %d\r\n\r\n%b" % (len(BODY), BODY)
)


class Crowd(NamedTuple):
    """The result of a run."""

    streams: int
    whole: int
    kilobytes_each: float
    seconds_to_open: float


class Stream(asyncio.Protocol):
    """The client of one stream."""

    def __init__(self, begun: asyncio.Future[None], over: asyncio.Future[bool]) -> None:
        self._begun = begun
        self._over = over
        self._events = 0
        self._tail = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._transport.write(REQUEST)

    def data_received(self, data: bytes) -> None:
        if not self._begun.done():
            self._begun.set_result(None)
        self._events += data.count(b'"content":"@')
        self._tail = (self._tail + data)[-200:]
        if self._tail.endswith(b"0\r\n\r\n") and not self._over.done():
            self._over.set_result(self._events == EVENTS and b"[DONE]" in self._tail)
            self._transport.close()

    def connection_lost(self, _error: Exception | None) -> None:
        if not self._begun.done():
            self._begun.set_result(None)
        if not self._over.done():
            self._over.set_result(False)


def crowd(count: int) -> Crowd:
    """Open this many streams, as far as the limit on open files allows, and wait for their ends."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(OSError, ValueError):  # only an administrator may raise it
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, max(most, FILES)))
        most = max(most, FILES)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    count = min(count, (most - 100) // 2)  # the gateway has two sockets for each
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as name:
        folder, port = Path(name), judge.free_port()
        mock = subprocess.Popen([judge.build_mock(folder), str(judge.MOCK_PORT)])
        gateway = subprocess.Popen(judge.command(judge.configuration(folder), port), stderr=subprocess.DEVNULL)
        try:
            judge.wait_for(f"http://127.0.0.1:{port}/health")
            judge.wait_for(f"http://127.0.0.1:{judge.MOCK_PORT}/_ctl?n={EVENTS}&delay_us={GAP_US}")
            return uvloop.run(_open(count, port, gateway.pid))
        finally:
            for process in (gateway, mock):
                process.terminate()
                process.wait()


async def _open(count: int, port: int, gateway: int) -> Crowd:
    loop = asyncio.get_running_loop()
    before = _resident_kb(gateway)
    started = time.monotonic()
    beginnings: list[asyncio.Future[None]] = [loop.create_future() for _ in range(count)]
    endings: list[asyncio.Future[bool]] = [loop.create_future() for _ in range(count)]
    gate = asyncio.Semaphore(OPENING)

    async def one(begun: asyncio.Future[None], over: asyncio.Future[bool]) -> None:
        async with gate:
            await loop.create_connection(lambda: Stream(begun, over), "127.0.0.1", port)

    await asyncio.gather(*map(one, beginnings, endings))
    await asyncio.wait(beginnings, timeout=TIMEOUT_S)
    opened = time.monotonic() - started
    each = (_resident_kb(gateway) - before) / count
    done, _ = await asyncio.wait(endings, timeout=TIMEOUT_S)
    return Crowd(count, sum(ending.result() for ending in done), each, opened)


def _resident_kb(process: int) -> int:
    found = re.search(r"Rss:\s+(\d+)", Path(f"/proc/{process}/smaps_rollup").read_text())
    return int(found[1]) if found else 0
