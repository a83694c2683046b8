"""Mock: a quick provider on the test's own loop. A model's name says how it answers: `m-NUMBER-TOKENS-MILLISECONDS`.

Each token is a chunk of its own, so many milliseconds after the last one; the usage says so many tokens.
"""

import asyncio
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from tests.faults.scripts import plain
from tests.streams import DONE, begins, bill, counts, finishes, says, sse

INPUT = 11
_MODEL = re.compile(rb'"model":\s*"(m-\d+-(\d+)-(\d+))"')
_LENGTH = re.compile(rb"content-length: (\d+)", re.IGNORECASE)
_WORD = "word "


class Mock:
    """Records which models were requested, and which clients disconnected before the end."""

    def __init__(self) -> None:
        self.asked: dict[str, int] = {}
        """How often, by model."""
        self.ended: set[str] = set()
        """Models whose answer was sent to its end."""
        self.url = ""

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = _LENGTH.search(head)
                assert length is not None
                body = await reader.readexactly(int(length[1]))
                await self._answer(body, writer)
        writer.close()

    async def _answer(self, body: bytes, writer: asyncio.StreamWriter) -> None:
        found = _MODEL.search(body)
        assert found is not None
        model, tokens, gap_s = found[1].decode(), int(found[2]), int(found[3]) / 1000
        self.asked[model] = self.asked.get(model, 0) + 1
        usage = counts(INPUT, tokens)
        if b'"stream":true' not in body.replace(b" ", b""):
            await asyncio.sleep(tokens * gap_s)
            answer = plain(_WORD * tokens, usage=usage)
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n")
            writer.write(b"content-length: %d\r\n\r\n%b" % (len(answer), answer))
            await writer.drain()
        else:
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
            for data in (sse(begins()), *[sse(says(_WORD))] * tokens, sse(finishes(), bill(**usage), DONE)):
                writer.write(b"%x\r\n%b\r\n" % (len(data), data))
                await writer.drain()
                await asyncio.sleep(gap_s)
            writer.write(b"0\r\n\r\n")
            await writer.drain()
        self.ended.add(model)


@asynccontextmanager
async def mock() -> AsyncIterator[Mock]:
    """One that listens."""
    provider = Mock()
    server = await asyncio.start_server(provider._serve, "127.0.0.1", 0)
    provider.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
    try:
        yield provider
    finally:
        server.close()


def tokens_of(model: str) -> int:
    """How many tokens such a model answers with."""
    return int(model.split("-")[2])


def body(model: str, *, stream: bool, **fields: object) -> bytes:
    """A request for it."""
    messages = [{"role": "user", "content": "Say it."}]
    return json.dumps({"model": f"mock/{model}", "stream": stream, "messages": messages} | fields).encode()
