"""A provider of every API of `apis.py`, in a process of its own. It prints its port.

Its arguments are the number of deltas of each answer, and the time between them in seconds.
"""

import asyncio
import re
import sys
from contextlib import suppress

import uvloop

from bench.dialects.apis import APIS, Api

_LENGTH = re.compile(rb"content-length: (\d+)", re.IGNORECASE)
_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
_PATHS = {api.path.format(model="bench").encode(): api for api in APIS}


def chunk(data: bytes) -> bytes:
    """One HTTP chunk."""
    return b"%x\r\n%b\r\n" % (len(data), data)


class Provider:
    """Answers every request with a paced stream."""

    def __init__(self, deltas: int, gap_s: float) -> None:
        self._gap_s = gap_s
        self._answers = {
            api.name: (
                [chunk(api.delta(number)) for number in range(deltas - api.ends_with_text)],
                chunk(api.closing(deltas)),
            )
            for api in APIS
        }

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer the requests of one connection."""
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = _LENGTH.search(head)
                await reader.readexactly(int(length[1]) if length else 0)
                await self._answer(_PATHS[head.split(b" ", 2)[1]], writer)
        writer.close()

    async def _answer(self, api: Api, writer: asyncio.StreamWriter) -> None:
        writer.write(_HEAD + (chunk(api.opening) if api.opening else b""))
        deltas, closing = self._answers[api.name]
        for delta in deltas:
            await asyncio.sleep(self._gap_s)
            writer.write(delta)
        await asyncio.sleep(self._gap_s)
        writer.write(closing + b"0\r\n\r\n")
        await writer.drain()


async def main() -> None:
    """Serve until the standard input ends."""
    provider = Provider(int(sys.argv[1]), float(sys.argv[2]))
    server = await asyncio.start_server(provider.serve, "127.0.0.1", 0, backlog=2_048)
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    server.close()


if __name__ == "__main__":
    uvloop.run(main())
