"""WebSocket without a network: the offer, messages in whatever frames, limits, pings, and the end of a connection."""

import asyncio
import weakref
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any

import pytest
from websockets.frames import CloseCode, Opcode
from websockets.protocol import CLIENT, Protocol

from penstock.http.exchange import Exchange
from penstock.http.websocket import WebSocket, WebSocketLimits, handshake
from tests.http.wire import Client, no_garbage_collection, post
from tests.sockets import frame

OFFER = (
    b"GET /v1/a HTTP/1.1\r\nHost: here\r\nConnection: keep-alive, Upgrade\r\nUpgrade: WebSocket\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nX-Client-Request-Id: mine\r\n\r\n"
)
# The value that RFC 6455, section 1.3, has for this key.
ACCEPTED = b"Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo="


class Side:
    """A server with one connection, and what it got and sent."""

    def __init__(self, *early: bytes, **limits: Any) -> None:
        self.client = Client()
        self.client.send(OFFER, *early)
        self.exchange: Exchange = self.client.waiting.popleft()
        self.messages: list[bytes] = []
        self.ends: list[str] = []
        head = handshake(self.exchange)
        assert isinstance(head, bytes)
        self.socket = WebSocket(
            self.exchange,
            WebSocketLimits(**limits),
            self.messages.append,
            lambda: self.ends.append("closed"),
            lambda: self.ends.append("old"),
        )
        self.exchange.on_resume = self.socket.resumed
        self.socket.open(head)

    def send(self, *reads: bytes) -> None:
        self.client.send(*reads)

    @property
    def frames(self) -> list[tuple[Opcode, bytes]]:
        """What the client has got behind the head."""
        reader = Protocol(CLIENT, max_size=None)
        reader.receive_data(b"".join(self.client.wire.written).split(b"\r\n\r\n", 1)[1])
        return [(each.opcode, bytes(each.data)) for each in reader.events_received()]  # type: ignore[union-attr]

    @property
    def close_code(self) -> int:
        """With which the connection was closed."""
        assert self.socket.closed
        assert self.ends[-1] == "closed"
        assert self.client.wire.ended
        opcode, data = self.frames[-1]
        assert opcode == Opcode.CLOSE
        return int.from_bytes(data[:2])


def in_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    @wraps(test)
    def run(*args: object, **kwargs: object) -> None:
        asyncio.run(test(*args, **kwargs))

    return run


@in_loop
async def test_an_offer_is_accepted_as_the_standard_says() -> None:
    side = Side()
    side.socket.send([b"one", "zwölf".encode()])
    head = side.client.wire.written[0]
    assert head.startswith(b"HTTP/1.1 101 ")
    assert ACCEPTED in head
    assert b"x-client-request-id: mine" in head
    assert side.frames == [(Opcode.TEXT, b"one"), (Opcode.TEXT, "zwölf".encode())]


BAD_OFFERS = {
    "an older version": (b"Version: 13", b"Version: 8"),
    "no key": (b"Sec-WebSocket-Key", b"X-Key"),
    "a short key": (b"dGhlIHNhbXBsZSBub25jZQ==", b"AA=="),
    "no option": (b"keep-alive, Upgrade", b"keep-alive"),
}


@pytest.mark.parametrize("change", BAD_OFFERS.values(), ids=BAD_OFFERS)
@in_loop
async def test_an_offer_that_is_not_valid_is_a_request_like_any_other(change: tuple[bytes, bytes]) -> None:
    client = Client()
    client.send(OFFER.replace(*change))
    exchange = client.waiting.popleft()
    assert isinstance(handshake(exchange), str)
    exchange.respond(426, {}, b"no")
    client.send(post(b"next"))
    await asyncio.sleep(0)
    assert client.answer().body == b"next"
    assert client.status == 200


@in_loop
async def test_a_request_behind_an_offer_that_is_declined_is_answered() -> None:
    client = Client()
    client.send(post(b"first") + OFFER + post(b"second"))
    assert client.answer().body == b"first"
    await asyncio.sleep(0)
    assert client.answer().request.offers_websocket
    await asyncio.sleep(0)
    assert client.answer().body == b"second"


@in_loop
async def test_an_offer_of_http_1_0_or_with_another_method_is_ignored() -> None:
    for offer in (OFFER.replace(b"HTTP/1.1", b"HTTP/1.0"), OFFER.replace(b"GET", b"HEAD")):
        client = Client()
        client.send(offer)
        assert not client.answer().request.offers_websocket


SPLIT = frame(b'{"a":1}') + frame(b"x" * 300, fin=False) + frame(b"y" * 70_000, Opcode.CONT)


@pytest.mark.parametrize("size", [1, 2, 7, 200, 100_000])
@in_loop
async def test_messages_are_the_same_however_their_bytes_arrive(size: int) -> None:
    side = Side()
    side.send(*(SPLIT[at : at + size] for at in range(0, len(SPLIT), size)))
    assert side.messages == [b'{"a":1}', b"x" * 300 + b"y" * 70_000]
    assert not side.socket.closed


@in_loop
async def test_what_a_client_sends_with_its_offer_is_not_lost() -> None:
    side = Side(frame(b"early"))
    side.send(frame(b"late"))
    assert side.messages == [b"early", b"late"]


@in_loop
async def test_pings_are_answered_between_the_frames_of_a_message() -> None:
    side = Side()
    side.send(frame(b"on", fin=False) + frame(b"?", Opcode.PING) + frame(b"e", Opcode.CONT))
    assert (side.messages, side.frames) == ([b"one"], [(Opcode.PONG, b"?")])


WRONG: dict[str, tuple[bytes, CloseCode]] = {
    "no mask": (frame(b"{}", masked=False), CloseCode.PROTOCOL_ERROR),
    "an opcode that does not exist": (frame(b"{}", 3), CloseCode.PROTOCOL_ERROR),
    "a control opcode that does not exist": (frame(b"", 11), CloseCode.PROTOCOL_ERROR),
    "a compressed frame": (frame(b"{}", rsv=4), CloseCode.PROTOCOL_ERROR),
    "a continuation of nothing": (frame(b"{}", Opcode.CONT), CloseCode.PROTOCOL_ERROR),
    "a message in a message": (frame(b"{", fin=False) + frame(b"}"), CloseCode.PROTOCOL_ERROR),
    "a long ping": (frame(b"x" * 126, Opcode.PING), CloseCode.PROTOCOL_ERROR),
    "half a ping": (frame(b"x", Opcode.PING, fin=False), CloseCode.PROTOCOL_ERROR),
    "binary": (frame(b"{}", Opcode.BINARY), CloseCode.UNSUPPORTED_DATA),
    "the beginning of binary": (frame(b"{", Opcode.BINARY, fin=False), CloseCode.UNSUPPORTED_DATA),
    "invalid UTF-8": (frame(b'{"a":"\xff"}'), CloseCode.INVALID_DATA),
    "half a character": (frame(b"\xc3", fin=False) + frame(b"", Opcode.CONT), CloseCode.INVALID_DATA),
    "a long message": (frame(b"x" * 1_001), CloseCode.MESSAGE_TOO_BIG),
    "a long message in frames": (
        frame(b"x" * 600, fin=False) + frame(b"x" * 600, Opcode.CONT),
        CloseCode.MESSAGE_TOO_BIG,
    ),
    "the head of a very long message": (frame(b"")[:1] + b"\xff" + b"\x7f" * 8, CloseCode.MESSAGE_TOO_BIG),
    "a close code that does not exist": (frame(b"\x00\x01", Opcode.CLOSE), CloseCode.PROTOCOL_ERROR),
}


@pytest.mark.parametrize(("sent", "code"), WRONG.values(), ids=WRONG)
@in_loop
async def test_a_connection_with_wrong_frames_is_closed_and_says_why(sent: bytes, code: CloseCode) -> None:
    side = Side(max_message=1_000)
    side.send(sent, frame(b"more"))
    assert (side.close_code, side.messages, side.ends) == (code, [], ["closed"])


@in_loop
async def test_the_close_of_a_client_is_answered_with_its_code() -> None:
    side = Side()
    side.send(frame(b"\x03\xe8bye", Opcode.CLOSE))
    assert (side.close_code, side.frames) == (CloseCode.NORMAL_CLOSURE, [(Opcode.CLOSE, b"\x03\xe8bye")])
    side.socket.send([b"late"])
    side.socket.close(CloseCode.NORMAL_CLOSURE)
    assert len(side.frames) == 1


@in_loop
async def test_a_client_that_disconnects_is_reported_once() -> None:
    side = Side()
    side.client.connection.connection_lost(None)
    side.socket.send([b"late"])
    side.socket.close(CloseCode.NORMAL_CLOSURE)
    assert (side.ends, side.socket.closed) == (["closed"], True)


@in_loop
async def test_of_the_pings_of_a_client_that_does_not_read_the_last_is_answered() -> None:
    side = Side()
    side.client.connection.pause_writing()
    for number in range(100):
        side.send(frame(b"%d" % number, Opcode.PING))
    assert side.frames == []
    side.client.connection.resume_writing()
    assert side.frames == [(Opcode.PONG, b"99")]


async def eventually(true: Callable[[], object]) -> None:
    async with asyncio.timeout(30):
        while not true():  # noqa: ASYNC110 - timers of the loop make it true
            await asyncio.sleep(0.005)


@in_loop
async def test_the_server_sends_pings_and_demands_no_pong() -> None:
    side = Side(ping_s=0.02)
    await eventually(lambda: len(side.frames) >= 3)
    assert set(side.frames) == {(Opcode.PING, b"")}
    side.client.connection.pause_writing()
    await asyncio.sleep(0)
    sent = len(side.frames)
    await asyncio.sleep(0.1)
    assert len(side.frames) == sent  # they would fill the memory


@in_loop
async def test_an_idle_connection_is_closed_and_a_busy_one_is_not() -> None:
    idle, busy = Side(idle_s=0.1), Side(idle_s=0.1)
    busy.socket.busy = True
    await eventually(lambda: idle.socket.closed)
    await asyncio.sleep(0.15)
    assert (idle.close_code, busy.ends) == (CloseCode.NORMAL_CLOSURE, [])
    busy.socket.busy = False
    await eventually(lambda: busy.socket.closed)


PARTS: dict[str, bytes] = {
    "half a frame": frame(b"x" * 1_000)[:500],
    "half of its head": frame(b"x" * 1_000)[:3],
    "the first of two frames": frame(b"x", fin=False),
    "an empty first frame": frame(b"", fin=False),
}


@pytest.mark.parametrize("part", PARTS.values(), ids=PARTS)
@in_loop
async def test_a_message_that_does_not_arrive_closes_the_connection(part: bytes) -> None:
    side = Side(message_timeout_s=0.1)
    side.send(frame(b"whole"), part)
    await eventually(lambda: side.socket.closed)
    assert (side.close_code, side.messages) == (CloseCode.POLICY_VIOLATION, [b"whole"])


@in_loop
async def test_the_age_of_a_connection_is_reported_once() -> None:
    side = Side(max_age_s=0.03, ping_s=0.02)
    await eventually(lambda: side.ends)
    await asyncio.sleep(0.1)
    assert (side.ends, side.socket.closed) == (["old"], False)


@in_loop
async def test_a_server_that_accepts_no_more_requests_says_so() -> None:
    side = Side()
    reported: list[str] = []
    side.exchange.on_closing = lambda: reported.append("closing")
    side.client.connection.close_when_idle()
    assert reported == ["closing"]
    side.send(frame(b"still read"))
    assert side.messages == [b"still read"]


class _Owner:
    """What has a WebSocket, and is called back by it."""

    def __init__(self) -> None:
        client = Client()
        client.send(OFFER)
        exchange = client.waiting.popleft()
        head = handshake(exchange)
        assert isinstance(head, bytes)
        self.connection = client.connection
        self.socket = WebSocket(exchange, WebSocketLimits(), self.take, self.end, self.end)
        self.socket.open(head)

    def take(self, message: bytes) -> None:
        """Take a message."""

    def end(self) -> None:
        """The connection has ended."""


@pytest.mark.parametrize("how", ["lost", "closed", "wrong"])
def test_a_connection_that_ends_leaves_nothing_behind(how: str) -> None:
    @in_loop
    async def check() -> None:
        owner = _Owner()
        owner.connection.data_received(frame(b"{}") + frame(b"half", fin=False))
        if how == "closed":
            owner.socket.close(CloseCode.NORMAL_CLOSURE)
        elif how == "wrong":
            owner.connection.data_received(frame(b"", 3))
        owner.connection.connection_lost(None)
        left = weakref.ref(owner), weakref.ref(owner.socket), weakref.ref(owner.socket._protocol)
        del owner
        assert [each() for each in left] == [None, None, None]

    with no_garbage_collection():
        check()
