"""One answer after another on one connection: the next one is not affected by the previous one."""

import asyncio
import socket
from collections.abc import Mapping

import pytest

from penstock.http.limits import UpstreamLimits
from penstock.http.upstream_connection import UpstreamConnection, UpstreamError

LIMITS = UpstreamLimits(max_headers=4, max_head=200)
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
HELLO = b"5\r\nhello\r\n"
ENDED = b"0\r\n\r\n"
SIZED = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nB: 2\r\nC: 3\r\nD: 4\r\n\r\nhello"


class RecordingReceiver:
    """A receiver that records its calls as text."""

    def __init__(self) -> None:
        self.reported: list[str] = []
        self.over = asyncio.Event()

    def on_head(self, status: int, headers: Mapping[str, str]) -> None:
        self.reported.append(f"{status} {len(headers)}")

    def on_data(self, data: bytes, *, last: bool = False) -> None:
        self.reported.append(data.decode() + "." * last)

    def on_end(self) -> None:
        self.reported.append("end")
        self.over.set()

    def on_error(self, error: UpstreamError) -> None:
        self.reported.append(error.code)


class Line:
    """A connection; the test has its other end."""

    def __init__(
        self, transport: asyncio.Transport, connection: UpstreamConnection, far: socket.socket, free: list[bool]
    ) -> None:
        self._transport = transport
        self.connection = connection
        self.far = far
        self.free = free
        """Whether it was alive, each time it was released."""

    @classmethod
    async def open(cls) -> "Line":
        near, far = socket.socketpair()
        far.setblocking(False)
        free: list[bool] = []

        def release(connection: UpstreamConnection) -> None:
            free.append(connection.alive)
            connection.idle_until = 1.0

        transport, connection = await asyncio.get_running_loop().create_connection(
            lambda: UpstreamConnection(LIMITS, release), sock=near
        )
        return cls(transport, connection, far, free)

    def asked(self, *reads: bytes) -> list[str]:
        """The calls of the receiver for an answer that arrives in these reads."""
        received = RecordingReceiver()
        self.connection.send(b"GET / HTTP/1.1\r\n\r\n", received)
        for read in reads:
            self.connection.data_received(read)
        return received.reported

    async def close(self) -> None:
        self._transport.abort()
        self.far.close()
        await asyncio.sleep(0)


@pytest.mark.parametrize(
    ("reads", "reported"),
    {
        "at once": ([CHUNKED + HELLO + ENDED], ["200 1", "hello.", "end"]),
        "its end by itself": ([CHUNKED, HELLO, ENDED], ["200 1", "hello", "end"]),
        "two pieces in one read": ([CHUNKED + HELLO + HELLO, ENDED], ["200 1", "hellohello", "end"]),
        "trailers": ([CHUNKED + HELLO + b"0\r\nB: 2\r\nC: 3\r\n", b"D: 4\r\n\r\n"], ["200 1", "hello", "end"]),
        "a forerunner": ([b"HTTP/1.1 103 Early\r\nA: 1\r\nB: 2\r\n\r\n", SIZED], ["200 4", "hello.", "end"]),
    }.values(),
)
def test_the_answer_before_is_forgotten(reads: list[bytes], reported: list[str]) -> None:
    async def run() -> None:
        line = await Line.open()
        assert line.asked(*reads) == reported
        assert line.asked(SIZED) == ["200 4", "hello.", "end"]
        assert line.asked(*reads) == reported
        assert line.free == [True, True, True]
        await line.close()

    asyncio.run(run())


@pytest.mark.parametrize(
    "reads",
    {
        "headers": [b"HTTP/1.1 200 OK\r\nA: 1\r\nB: 2\r\nC: 3\r\nD: 4\r\nE: 5\r\n\r\n"],
        "headers without end": [b"HTTP/1.1 200 OK\r\nA: 1\r\nB: 2\r\nC: 3\r\nD: 4\r\nE: 5\r\nF: "],
        "trailers behind a piece": [CHUNKED + HELLO + b"0\r\nA: 1\r\nB: 2\r\nC: 3\r\nD: 4\r\nE: "],
        "trailers by themselves": [CHUNKED + HELLO, b"0\r\nA: 1\r\nB: 2\r\nC: 3\r\n", b"D: 4\r\nE: "],
        "bytes of framing": [CHUNKED + HELLO, b"5;" + b"a" * 201],
        "bytes of a head, a few at a time": [b"HTTP/1.1 200 OK\r\nA: ", *[b"a"] * 200],
    }.values(),
)
def test_there_may_be_only_so_many(reads: list[bytes]) -> None:
    async def run() -> None:
        line = await Line.open()
        assert line.asked(CHUNKED + HELLO + ENDED)[-1] == "end"
        assert line.asked(*reads)[-1] == "upstream_bad_response"
        assert not line.connection.alive
        await line.close()

    asyncio.run(run())


@pytest.mark.parametrize("data", [SIZED, b"\r\n", b"junk"])
def test_what_no_one_asked_for_ends_the_connection(data: bytes) -> None:
    async def run() -> None:
        line = await Line.open()
        line.asked(SIZED)
        line.connection.data_received(data)
        assert not line.connection.alive
        await line.close()

    asyncio.run(run())


@pytest.mark.parametrize(
    ("before", "reads", "reported"),
    {
        "a fresh connection": ([], [], "upstream_truncated"),
        "a kept one": ([SIZED], [], "upstream_stale"),
        "a kept one, on which the answer had begun": ([SIZED], [b"HTTP/1.1 2"], "upstream_truncated"),
        "one with a forerunner": ([SIZED], [b"HTTP/1.1 100 Continue\r\n\r\n"], "upstream_truncated"),
        "in a body": ([SIZED], [CHUNKED + HELLO], "upstream_truncated"),
        "in trailers": ([SIZED], [CHUNKED + HELLO + b"0\r\nTransfer-Encoding: none\r\n"], "upstream_truncated"),
        "in a body until then": ([SIZED], [b"HTTP/1.1 200 OK\r\n\r\nhello"], "end"),
    }.values(),
)
def test_how_it_is_reported_that_the_connection_has_ended(
    before: list[bytes], reads: list[bytes], reported: str
) -> None:
    async def run() -> None:
        line = await Line.open()
        for answer in before:
            line.asked(answer)
        received = RecordingReceiver()
        line.connection.send(b"GET / HTTP/1.1\r\n\r\n", received)
        for read in reads:
            line.connection.data_received(read)
        line.connection.connection_lost(None)
        assert received.reported[-1] == reported
        assert line.free[-1] is False
        await line.close()

    asyncio.run(run())


def test_who_was_slow_holds_up_no_one_after_it() -> None:
    async def run() -> None:
        line = await Line.open()
        received = RecordingReceiver()
        line.connection.send(b"GET / HTTP/1.1\r\n\r\n", received)
        line.connection.pause()
        line.connection.data_received(SIZED)  # it was on its way
        assert received.reported[-1] == "end"
        line.connection.send(b"GET / HTTP/1.1\r\n\r\n", received)
        line.far.sendall(SIZED)
        received.over.clear()
        async with asyncio.timeout(30.0):
            await received.over.wait()
        assert received.reported.count("end") == 2
        await line.close()

    asyncio.run(run())


class Slow(RecordingReceiver):
    """Accepts a piece, and then nothing for a moment."""

    def __init__(self, connection: UpstreamConnection) -> None:
        super().__init__()
        self._connection = connection

    def on_data(self, data: bytes, *, last: bool = False) -> None:
        super().on_data(data, last=last)
        self._connection.pause()
        asyncio.get_running_loop().call_soon(self._connection.resume)


@pytest.mark.parametrize("slow", [False, True], ids=["quick", "slow"])
@pytest.mark.parametrize("chunk", [100, 16_376, 16_384, 50_000])
def test_however_much_comes_at_once_it_arrives_in_order_and_a_part_at_a_time(chunk: int, *, slow: bool) -> None:
    body = "".join(f"{number:07x}\n" for number in range(40_000))
    chunks = [body[start : start + chunk].encode() for start in range(0, len(body), chunk)]
    answer = CHUNKED + b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in chunks) + ENDED

    async def run() -> None:
        line = await Line.open()
        for _ in range(2):
            received = Slow(line.connection) if slow else RecordingReceiver()
            line.connection.send(b"GET / HTTP/1.1\r\n\r\n", received)
            await asyncio.get_running_loop().sock_sendall(line.far, answer)
            async with asyncio.timeout(30.0):
                await received.over.wait()
            reported = [piece.rstrip(".") for piece in received.reported[1:-1]]
            assert "".join(reported) == body
            assert max(map(len, reported)) <= 16_384
            assert line.asked(SIZED)[-1] == "end"
        assert line.free == [True] * 4
        await line.close()

    asyncio.run(run())


USUAL = (
    b'data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1700000000,"model":"sluice-1",'
    b'"system_fingerprint":"fp_1","choices":[{"index":0,"delta":{"content":" a"},"finish_reason":null}]}\n\n'
)


@pytest.mark.parametrize(
    ("read", "first"),
    [
        (USUAL * 78, 78 * len(USUAL)),
        (b"[]{}\n" * 3_200, 1_024),
        (b"data:\r\r" * 2_200, 1_024),
        (b"1e308," * 2_600, 2_048),
    ],
    ids=["usual", "lines", "empty", "numbers"],
)
def test_a_read_stays_whole_unless_it_holds_more_than_usual_events(read: bytes, first: int) -> None:
    async def run() -> None:
        line = await Line.open()
        received = RecordingReceiver()
        line.connection.send(b"GET / HTTP/1.1\r\n\r\n", received)
        line.connection.data_received(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(read))
        line.connection.data_received(read)
        for _ in range(20):
            await asyncio.sleep(0)
        *reported, ended = received.reported[1:]
        assert "".join(reported) == read.decode() + "."
        assert ended == "end"
        assert len(reported[0].rstrip(".")) == first
        await line.close()

    asyncio.run(run())


def test_what_has_come_is_dealt_with_although_the_connection_is_gone() -> None:
    async def run() -> None:
        line = await Line.open()
        received = RecordingReceiver()
        line.connection.send(b"GET / HTTP/1.1\r\n\r\n", received)
        line.connection.data_received(CHUNKED + b"c350\r\n%b\r\n" % (b"a" * 50_000) + ENDED)
        assert 0 < len("".join(received.reported[1:])) < 16_384
        line.connection.connection_lost(None)
        for _ in range(50):  # a little at a time, as ever
            await asyncio.sleep(0)
        assert received.reported[-1] == "end"
        assert "".join(received.reported[1:-1]) == "a" * 50_000 + "."
        await line.close()

    asyncio.run(run())
