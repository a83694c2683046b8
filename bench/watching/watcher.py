"""Watcher: acts as an open Live page of a gateway while the judge measures it, in a process of its own.

It reads the feed of running calls, and the text of one of them at a time, as the page does when a call is selected. The
judge starts and stops the gateway many times, so the watcher reconnects.
"""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any, NamedTuple, Self

_AGAIN_S = 0.05
# A message describes up to two hundred calls.
_LONGEST = 4_194_304


class Seen(NamedTuple):
    """The number of messages of the feed, and of pieces of text, that were read."""

    messages: int
    pieces: int


class Watcher:
    """A context manager that watches the gateway with this admin API. `seen` is set when it exits."""

    def __init__(self, port: int, token: str) -> None:
        self._command = [sys.executable, "-m", "bench.watching.watcher", str(port)]
        self._token = token
        self.seen = Seen(0, 0)

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            self._command, stdout=subprocess.PIPE, env=os.environ | {"PENSTOCK_WATCHER_TOKEN": self._token}
        )
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        output = self._process.communicate(timeout=10)[0]
        with suppress(ValueError, TypeError):  # it may not have begun to watch
            self.seen = Seen(*map(int, output.split()))


class _Watch:
    """The work of the watcher process."""

    def __init__(self, port: int, token: str) -> None:
        self._port = port
        self._token = token
        self._reading: asyncio.Task[None] | None = None
        self.messages = self.pieces = 0

    async def watch(self) -> None:
        while True:
            with suppress(OSError):
                async for data in self._data("/admin/live", b"calls"):
                    self.messages += 1
                    if self._reading is None or self._reading.done():
                        self._choose(json.loads(data)["calls"])
            await asyncio.sleep(_AGAIN_S)

    def _choose(self, calls: list[dict[str, Any]]) -> None:
        """Read the text of the call that started last, because it will run longest."""
        streaming = [call for call in calls if call["phase"] == "streaming"]
        if streaming:
            newest = min(streaming, key=lambda call: int(call["events"]))
            self._reading = asyncio.create_task(self._read(newest["id"]))

    async def _read(self, id: str) -> None:
        with suppress(OSError):
            async for _ in self._data(f"/admin/calls/{id}/text", b"text"):
                self.pieces += 1

    async def _data(self, path: str, name: bytes) -> AsyncIterator[bytes]:
        """The data of each event of this name. Each is written at once, so that no HTTP chunk ends within it."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port, limit=_LONGEST)
        try:
            writer.write(
                f"GET {path} HTTP/1.1\r\nhost: 127.0.0.1:{self._port}\r\nauthorization: Bearer {self._token}\r\n"
                "connection: close\r\n\r\n".encode()
            )
            event = b""
            while line := await reader.readline():
                if line.startswith(b"event: "):
                    event = line[7:].strip()
                elif line.startswith(b"data: ") and event == name:
                    yield line[6:]
        finally:
            writer.close()


async def _main(port: int, token: str) -> None:
    with suppress(OSError):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})  # beside the judge's own, not beside the gateway
    watch = _Watch(port, token)
    task = asyncio.create_task(watch.watch())
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    with suppress(asyncio.CancelledError):
        await task
    print(watch.messages, watch.pieces)


if __name__ == "__main__":
    asyncio.run(_main(int(sys.argv[1]), os.environ["PENSTOCK_WATCHER_TOKEN"]))
