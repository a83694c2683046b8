"""An exchange writes its response at once or piece by piece, in the framing that its client understands."""

import asyncio
from collections.abc import Callable

import pytest

from penstock.http.exchange import Exchange
from tests.http.wire import Client, post

REQUEST = post(b"hello")
OLD = REQUEST.replace(b"HTTP/1.1", b"HTTP/1.0")
CHUNKED = b"HTTP/1.1 200 OK\r\nx-a: b\r\ntransfer-encoding: chunked\r\n\r\n"
BARE = b"HTTP/1.1 200 OK\r\nx-a: b\r\nconnection: close\r\n\r\n"


def with_exchange(claim: Callable[[Client, Exchange], None], request: bytes = REQUEST) -> None:
    async def run() -> None:
        client = Client()
        client.send(request)
        claim(client, client.waiting.popleft())

    asyncio.run(run())


def test_a_whole_response_is_one_write() -> None:
    def claim(client: Client, exchange: Exchange) -> None:
        assert (exchange.begun, exchange.over, exchange.peer) == (False, False, "127.0.0.1")
        exchange.respond(404, {"x-a": "b"}, b"none")
        assert client.wire.written == [b"HTTP/1.1 404 Not Found\r\nx-a: b\r\ncontent-length: 4\r\n\r\nnone"]
        assert (exchange.begun, exchange.over) == (True, True)
        exchange.respond(200, {}, b"")
        exchange.start(200, {})
        exchange.write(b"more")
        exchange.end(b"more")
        assert len(client.wire.written) == 1, "there is one response"

    with_exchange(claim)


def test_the_answer_to_head_has_no_body() -> None:
    def claim(client: Client, exchange: Exchange) -> None:
        exchange.respond(200, {}, b"four")
        assert client.wire.written == [b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\n"]

    with_exchange(claim, b"HEAD / HTTP/1.1\r\nHost: here\r\n\r\n")


@pytest.mark.parametrize(
    ("request_", "written"),
    [
        (REQUEST, [CHUNKED + b"2\r\nHe\r\n", b"b\r\nllo, world!\r\n", b"3\r\nend\r\n0\r\n\r\n"]),
        (OLD, [BARE + b"He", b"llo, world!", b"end"]),
    ],
)
def test_a_streamed_response_sends_its_head_with_its_first_piece(request_: bytes, written: list[bytes]) -> None:
    def claim(client: Client, exchange: Exchange) -> None:
        exchange.start(200, {"x-a": "b"})
        exchange.write(b"")
        assert (client.wire.written, exchange.begun, exchange.over) == ([], True, False)
        exchange.write(b"He")
        exchange.write(b"llo, world!")
        exchange.end(b"end")
        assert client.wire.written == written
        assert (exchange.over, client.wire.closed) == (True, request_ is OLD)

    with_exchange(claim, request_)


@pytest.mark.parametrize(
    ("request_", "written"),
    [
        (REQUEST, [CHUNKED + b"1\r\na\r\n1\r\nb\r\n", b"1\r\nc\r\n1\r\nd\r\n0\r\n\r\n"]),
        (OLD, [BARE + b"ab", b"cd"]),
    ],
)
def test_a_delayed_piece_is_sent_with_the_next(request_: bytes, written: list[bytes]) -> None:
    def claim(client: Client, exchange: Exchange) -> None:
        exchange.hold(b"too early")
        exchange.start(200, {"x-a": "b"})
        exchange.hold(b"a")
        assert client.wire.written == []
        exchange.write(b"b")
        exchange.hold(b"c")
        assert client.wire.written == written[:1]
        exchange.end(b"d")
        exchange.hold(b"too late")
        assert client.wire.written == written

    with_exchange(claim, request_)


@pytest.mark.parametrize(("request_", "head", "end"), [(REQUEST, CHUNKED, b"0\r\n\r\n"), (OLD, BARE, b"")])
def test_a_stream_may_be_empty_and_its_head_may_go_first(request_: bytes, head: bytes, end: bytes) -> None:
    def empty(client: Client, exchange: Exchange) -> None:
        exchange.start(200, {"x-a": "b"})
        exchange.end()
        assert client.wire.written == [head + end]

    def early(client: Client, exchange: Exchange) -> None:
        exchange.flush()
        exchange.start(200, {"x-a": "b"})
        exchange.flush()
        exchange.flush()
        exchange.end()
        assert client.wire.written == [head, end]

    with_exchange(empty, request_)
    with_exchange(early, request_)


def test_chunks_may_be_sent_as_they_are_once_the_head_has_left() -> None:
    def claim(client: Client, exchange: Exchange) -> None:
        assert exchange.chunk_writer() is None
        exchange.start(200, {})
        assert exchange.chunk_writer() is None
        exchange.write(b"He")
        write = exchange.chunk_writer()
        assert write is not None
        write(b"1\r\nx\r\n")
        assert client.wire.written[-1] == b"1\r\nx\r\n"
        exchange.end()
        assert exchange.chunk_writer() is None

    def old(_client: Client, exchange: Exchange) -> None:
        exchange.start(200, {})
        exchange.write(b"He")
        assert exchange.chunk_writer() is None

    with_exchange(claim)
    with_exchange(old, OLD)


def test_a_response_may_be_broken_off() -> None:
    def aborted(client: Client, exchange: Exchange) -> None:
        exchange.start(200, {})
        exchange.abort()
        exchange.abort()
        assert (exchange.over, client.wire.aborted, client.wire.written) == (True, True, [])

    def cut(client: Client, exchange: Exchange) -> None:
        exchange.start(200, {})
        exchange.write(b"He")
        exchange.cut(reset=False)
        exchange.cut(reset=True)
        assert (exchange.over, client.wire.closed, client.wire.aborted) == (True, True, False)

    def reset(client: Client, exchange: Exchange) -> None:
        exchange.cut(reset=True)
        assert (exchange.over, client.wire.aborted) == (True, True)

    for claim in (aborted, cut, reset):
        with_exchange(claim)


def test_the_handler_is_called_when_a_client_leaves_once_and_not_after_the_end() -> None:
    def claim(client: Client, exchange: Exchange) -> None:
        gone: list[None] = []
        exchange.on_gone = lambda: gone.append(None)
        client.connection.connection_lost(None)
        exchange.gone()
        assert (len(gone), exchange.over) == (1, True)
        exchange.write(b"no one reads it")
        assert client.wire.written == []

    def ended(client: Client, exchange: Exchange) -> None:
        gone: list[None] = []
        exchange.on_gone = lambda: gone.append(None)
        exchange.respond(200, {}, b"")
        client.connection.connection_lost(None)
        exchange.gone()
        assert gone == []

    def forgotten(client: Client, exchange: Exchange) -> None:
        exchange.on_gone = exchange.on_pause = exchange.on_resume = lambda: pytest.fail("it was forgotten")
        exchange.forget()
        client.connection.pause_writing()
        client.connection.resume_writing()
        client.connection.connection_lost(None)

    for each in (claim, ended, forgotten):
        with_exchange(each)


def test_every_response_has_the_client_s_own_id() -> None:
    def claim(client: Client, exchange: Exchange) -> None:
        exchange.respond(200, {}, b"")
        assert b"\r\nx-client-request-id: mine\r\n\r\n" in client.wire.written[0]

    with_exchange(claim, post(b"hello", b"X-Client-Request-Id: mine"))
