"""Which reads bypass the parser: those that are exactly one whole chunk."""

import asyncio
import socket
from collections.abc import Mapping

import pytest

from penstock.http.limits import UpstreamLimits
from penstock.http.upstream_connection import UpstreamConnection, UpstreamError

HEAD = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
FIRST = b"5\r\nhello\r\n"


def framed(payload: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(payload), payload)


class Taker:
    """Receives an answer: what was parsed, and what was taken without the parser."""

    def __init__(self, connection: UpstreamConnection, *, takes: int = 1_000) -> None:
        self._connection = connection
        self._takes = takes
        self.parsed = b""
        self.taken: list[tuple[bytes, bytes]] = []
        self.end = ""

    def on_head(self, status: int, headers: Mapping[str, str]) -> None:
        pass

    def on_data(self, data: bytes, *, last: bool = False) -> None:  # noqa: ARG002
        self.parsed += data
        if self._connection.aligned_chunks:
            self._connection.on_chunk = self._take

    def _take(self, payload: bytes, raw: bytes) -> bool:
        if len(self.taken) == self._takes:
            return False
        self.taken.append((payload, raw))
        return True

    def on_end(self) -> None:
        self.end = "end"

    def on_error(self, error: UpstreamError) -> None:
        self.end = error.code


def received(*reads: bytes, takes: int = 1_000) -> Taker:
    async def run() -> Taker:
        near, far = socket.socketpair()
        with far:
            _, connection = await asyncio.get_running_loop().create_connection(
                lambda: UpstreamConnection(UpstreamLimits(), UpstreamConnection.close), sock=near
            )
            taker = Taker(connection, takes=takes)
            connection.send(b"GET / HTTP/1.1\r\n\r\n", taker)
            for read in (HEAD + FIRST, *reads):
                connection.data_received(read)
            connection.close()
            await asyncio.sleep(0)
        return taker

    return asyncio.run(run())


@pytest.mark.parametrize("size", [1, 2, 15, 16, 255, 256, 4_095, 4_096, 65_535, 65_536, 200_000])
def test_a_read_that_is_one_chunk_is_handed_over_with_its_framing(size: int) -> None:
    payload = b"x" * size
    taker = received(framed(payload), framed(b"more"))
    assert taker.taken == [(payload, framed(payload)), (b"more", framed(b"more"))]
    assert taker.parsed == b"hello"


@pytest.mark.parametrize(
    "read",
    {
        "two chunks": framed(b"more") * 2,
        "a size in capitals": b"A\r\n0123456789\r\n",
        "a size with a zero": b"04\r\nmore\r\n",
        "an extension": b"4;a=b\r\nmore\r\n",
    }.values(),
)
def test_any_other_read_is_parsed(read: bytes) -> None:
    taker = received(read, b"0\r\n\r\n")
    assert not taker.taken
    assert taker.parsed in (b"hellomore", b"hellomoremore", b"hello0123456789")
    assert taker.end == "end"


@pytest.mark.parametrize(
    ("reads", "end"),
    {
        "a chunk without its end": ([b"4\r\nmorexx", b"0\r\n\r\n"], "upstream_bad_response"),
        "bare line feeds": ([b"4\nmore\n"], "upstream_bad_response"),
        "no size": ([b"\r\nmore\r\n"], "upstream_bad_response"),
        "nothing but a line end": ([b"\r\n"], "upstream_bad_response"),
    }.values(),
)
def test_what_is_no_chunk_is_left_to_the_parser(reads: list[bytes], end: str) -> None:
    taker = received(*reads)
    assert not taker.taken
    assert taker.end == end


@pytest.mark.parametrize("length", [262, 4_103, 65_544])
@pytest.mark.parametrize("line", [b"\r\n", b"0\r\n", b"", b"100\r\n"])
def test_what_is_as_long_as_no_chunk_can_be_is_left_to_the_parser(length: int, line: bytes) -> None:
    taker = received(line + b"x" * (length - len(line) - 2) + b"\r\n")
    assert not taker.taken


def test_a_chunk_in_parts_is_parsed_and_the_next_one_is_handed_over_again() -> None:
    taker = received(b"4\r\nmo", b"re\r\n", framed(b"whole"), framed(b"taken"))
    assert taker.parsed == b"hellomorewhole"
    assert taker.taken == [(b"taken", framed(b"taken"))]


def test_a_chunk_that_is_not_taken_is_parsed() -> None:
    taker = received(framed(b"one"), framed(b"two"), framed(b"three"), b"0\r\n\r\n", takes=1)
    assert taker.taken == [(b"one", framed(b"one"))]
    assert taker.parsed == b"hellotwothree"
    assert taker.end == "end"


def test_the_last_chunk_is_the_parsers() -> None:
    taker = received(framed(b"more"), b"0\r\n\r\n")
    assert [payload for payload, _ in taker.taken] == [b"more"]
    assert taker.end == "end"
