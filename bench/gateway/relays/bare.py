"""The least that a relay in Python can do that still decodes every event, with the same libraries as Penstock.

It has no keys, no ledger, no timeouts and no backpressure; it repairs nothing, and a broken stream just stops. So it is
not a gateway but a reference: the CPU above it is the cost of Penstock's features, and Python cannot get below it.
"""

# mypy: ignore-errors
# It runs in an environment of its own.

import asyncio
import gc
import os
import sys
from urllib.parse import urlsplit

import httptools
import msgspec
import uvloop

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
REQUEST = (
    b"POST /v1/chat/completions HTTP/1.1\r\nhost: %b\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b"
)
UPSTREAM = urlsplit(os.environ["UPSTREAM"])


class Delta(msgspec.Struct, gc=False):
    content: str | None = None


class Choice(msgspec.Struct, gc=False):
    delta: Delta
    finish_reason: str | None = None


class Chunk(msgspec.Struct, gc=False):
    choices: list[Choice]


decode = msgspec.json.Decoder(Chunk).decode


class Client(asyncio.Protocol):
    """One client, which sends one request after another."""

    __slots__ = ("body", "kept", "opening", "parser", "transport")

    def __init__(self, kept: list["Provider"]) -> None:
        self.kept = kept
        self.parser = httptools.HttpRequestParser(self)
        self.body = b""

    def connection_made(self, transport: asyncio.Transport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.parser.feed_data(data)

    def on_body(self, body: bytes) -> None:
        self.body += body

    def on_message_complete(self) -> None:
        body, self.body = self.body, b""
        msgspec.json.decode(body)
        request = REQUEST % (UPSTREAM.netloc.encode(), len(body), body)
        if self.kept:
            self.kept.pop().ask(self, request)
        else:
            self.opening = asyncio.get_running_loop().create_task(self.open(request))

    async def open(self, request: bytes) -> None:
        loop = asyncio.get_running_loop()
        _, provider = await loop.create_connection(lambda: Provider(self.kept), UPSTREAM.hostname, UPSTREAM.port)
        provider.ask(self, request)


class Provider(asyncio.Protocol):
    """One connection to the provider, which goes back to those kept when its answer is over."""

    __slots__ = ("client", "kept", "on_body", "over", "parser", "pieces", "transport")

    def __init__(self, kept: list["Provider"]) -> None:
        self.kept = kept
        self.pieces = []
        self.on_body = self.pieces.append
        self.parser = httptools.HttpResponseParser(self)

    def connection_made(self, transport: asyncio.Transport) -> None:
        self.transport = transport

    def ask(self, client: Client, request: bytes) -> None:
        self.client = client
        self.over = False
        self.transport.write(request)

    def data_received(self, data: bytes) -> None:
        self.parser.feed_data(data)
        if self.pieces:
            body = b"".join(self.pieces)
            self.pieces.clear()
            for event in body.split(b"\n\n"):
                if event.startswith(b"data: {"):
                    decode(event[len(b"data: ") :])
            self.client.transport.write(b"%x\r\n%b\r\n" % (len(body), body))
        if self.over:
            self.client.transport.write(b"0\r\n\r\n")
            self.kept.append(self)

    def on_headers_complete(self) -> None:
        self.client.transport.write(HEAD)

    def on_message_complete(self) -> None:
        self.over = True


async def main(port: int) -> None:
    """Relay until the process is ended."""
    kept: list[Provider] = []
    server = await asyncio.get_running_loop().create_server(lambda: Client(kept), "127.0.0.1", port)
    gc.collect()
    gc.freeze()
    await server.serve_forever()


uvloop.run(main(int(sys.argv[1])))
