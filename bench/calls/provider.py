"""A provider of every API that answers short calls at once, in a process of its own. It prints its port.

Each part of an answer is a system call of its own, as from a provider that sends an event as soon as it has one.
"""

import asyncio
import os
import re
import sys
from typing import cast

import uvloop

from bench.calls.answers import CALLS, KINDS, Kind

_LENGTH = re.compile(rb"content-length: (\d+)", re.IGNORECASE)
_PATHS = {calls.api.path.partition("{model}")[0].encode(): name for name, calls in CALLS.items()}


class Provider(asyncio.Protocol):
    """One connection, with one request after another."""

    def __init__(self, answers: dict[tuple[str, Kind], list[bytes]]) -> None:
        self._answers = answers
        self._data = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._file = transport.get_extra_info("socket").fileno()

    def data_received(self, data: bytes) -> None:
        self._data += data
        end = self._data.find(b"\r\n\r\n") + 4
        if end < 4:
            return
        found = _LENGTH.search(self._data, 0, end)
        size = end + (int(found[1]) if found else 0)
        if len(self._data) < size:
            return
        request, self._data = self._data[:size], self._data[size:]
        for part in self._answers[_asked(request)]:
            os.write(self._file, part)


def _asked(request: bytes) -> tuple[str, Kind]:
    path = request.split(b" ", 2)[1]
    name = next(name for prefix, name in _PATHS.items() if path.startswith(prefix))
    if b"streamGenerateContent" not in path and re.search(rb'"stream": ?true', request) is None:
        return name, "unstreamed"
    return name, "tool call" if b'"tools"' in request else "streamed"


async def main() -> None:
    """Serve until the standard input ends."""
    answers = {(name, kind): calls.answer(kind) for name, calls in CALLS.items() for kind in KINDS}
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Provider(answers), "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await loop.run_in_executor(None, sys.stdin.read)
    server.close()


if __name__ == "__main__":
    uvloop.run(main())
