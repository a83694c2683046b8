"""A provider that streams at a constant pace, in a process of its own. It prints its port.

The name of the model sets the pace: `paced-250` sends an event every 250 milliseconds until the client disconnects. The
text of each event is the time when it was sent, by the monotonic clock of the machine: `@NANOSECONDS`.
"""

import asyncio
import re
import sys
import time
from contextlib import suppress

import uvloop

_MODEL = re.compile(rb'"model":\s*"paced-(\d+)"')
_LENGTH = re.compile(rb"content-length: (\d+)", re.IGNORECASE)
_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


def event(delta: bytes) -> bytes:
    """One event of a stream, as a chunk."""
    data = (
        b'data: {"id":"c","object":"chat.completion.chunk","created":1,"model":"paced",'
        b'"choices":[{"index":0,"delta":{%b},"finish_reason":null}]}\n\n' % delta
    )
    return b"%x\r\n%b\r\n" % (len(data), data)


async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Stream until the client disconnects."""
    with suppress(ConnectionError, asyncio.IncompleteReadError):
        head = await reader.readuntil(b"\r\n\r\n")
        length = _LENGTH.search(head)
        body = await reader.readexactly(int(length[1]) if length else 0)
        model = _MODEL.search(body)
        gap_s = int(model[1]) / 1000 if model else 1.0
        writer.write(_HEAD + event(b'"role":"assistant","content":""'))
        while not writer.is_closing():
            writer.write(event(b'"content":"@%d "' % time.monotonic_ns()))
            await writer.drain()
            await asyncio.sleep(gap_s)
    writer.close()


async def main() -> None:
    """Serve until the standard input ends."""
    server = await asyncio.start_server(answer, "127.0.0.1", 0, backlog=2_048)
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    server.close()


if __name__ == "__main__":
    uvloop.run(main())
