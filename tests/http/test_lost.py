"""A lost connection is freed at once with all its objects, and does not wait for the garbage collector."""

import asyncio
import weakref

from penstock.http.limits import UpstreamLimits
from penstock.http.upstream_connection import UpstreamConnection, UpstreamError
from tests.http.wire import Client, no_garbage_collection, post


class Receiver:
    """Takes an answer, and what becomes of it."""

    def __init__(self) -> None:
        self.reported: list[object] = []

    def on_head(self, status: int, _headers: object) -> None:
        self.reported.append(status)

    def on_data(self, data: bytes, *, last: bool = False) -> None:
        self.reported.append((data, last))

    def on_end(self) -> None:
        self.reported.append("end")

    def on_error(self, error: UpstreamError) -> None:
        self.reported.append(error.code)


def test_a_client_that_is_lost_leaves_nothing_behind() -> None:
    request = post(b"x" * 100_000)

    async def check() -> None:
        for sent in (b"", request[:50], request[:-1], request, request + request[:-1]):
            client = Client()
            client.send(*(sent[at : at + 10_000] for at in range(0, len(sent), 10_000)))
            connection = weakref.ref(client.connection)
            client.connection.connection_lost(None)
            client.waiting.clear()
            del client
            assert connection() is None, len(sent)

    with no_garbage_collection():
        asyncio.run(check())


def test_a_provider_that_is_lost_leaves_nothing_behind() -> None:
    answer = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nHi\r\n0\r\n\r\n"

    async def ask(sent: bytes) -> tuple[list[object], "weakref.ref[UpstreamConnection]"]:
        connection = UpstreamConnection(UpstreamLimits(), UpstreamConnection.close)

        async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(sent)
            writer.close()

        server = await asyncio.start_server(accept, "127.0.0.1", 0)
        await asyncio.get_running_loop().create_connection(lambda: connection, *server.sockets[0].getsockname())
        receiver = Receiver()
        connection.send(b"GET / HTTP/1.1\r\n\r\n", receiver)
        while connection.alive:  # noqa: ASYNC110 - nothing else tells when it is lost
            await asyncio.sleep(0.001)
        server.close()
        await server.wait_closed()
        return receiver.reported, weakref.ref(connection)

    async def check() -> None:
        for sent in (b"", answer[:30], answer[:-10], answer):
            reported, connection = await ask(sent)
            assert reported or not sent
            await asyncio.sleep(0.01)
            assert connection() is None, sent

    with no_garbage_collection():
        asyncio.run(check())
