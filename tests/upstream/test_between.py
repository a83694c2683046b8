"""When the parser is between two HTTP chunks: only then may the next chunk bypass it."""

import asyncio
import socket
from collections.abc import Mapping
from itertools import combinations

import pytest

from penstock.http.limits import UpstreamLimits
from penstock.http.upstream_connection import UpstreamConnection, UpstreamError

CHUNKED = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
SIZED = b"HTTP/1.1 200 OK\r\nContent-Length: 20\r\n\r\n"
UNTIL_CLOSE = b"HTTP/1.1 200 OK\r\n\r\n"
OTHER_CODING = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked, gzip\r\n\r\n"
EARLY = b"HTTP/1.1 103 Early Hints\r\nLink: </style.css>\r\n\r\n"
HELLO = b"5\r\nhello\r\n"
# Bodies that look like framing.
CHUNK_WITHIN = b"a\r\n5\r\nhello\r\n\r\n"
HEAD_WITHIN = b"e\r\n\r\n\r\n5\r\nhello\r\n\r\n"
LIKE_ITSELF = b"9\r\n\r\n\r\n9\r\n\r\n\r\n"
SIZE_FIRST = b"a\r\na\r\na\r\na\r\na\r\n"
CRLF_EVENT = b"c\r\ndata: {}\r\n\r\n\r\n"
ENDED = b"0\r\n\r\n"


class RecordingReceiver:
    """Notes what the connection says of itself with each piece."""

    def __init__(self, connection: UpstreamConnection) -> None:
        self._connection = connection
        self.between: list[bool] = []

    def on_head(self, status: int, headers: Mapping[str, str]) -> None:
        pass

    def on_data(self, data: bytes, *, last: bool = False) -> None:  # noqa: ARG002
        self.between.append(bool(self._connection.aligned_chunks))

    def on_end(self) -> None:
        pass

    def on_error(self, error: UpstreamError) -> None:
        pass


async def listen(*reads: bytes) -> list[bool]:
    """What is said with each piece of an answer that comes in these reads; without one, nothing must be said."""
    near, far = socket.socketpair()
    with far:
        _, connection = await asyncio.get_running_loop().create_connection(
            lambda: UpstreamConnection(UpstreamLimits(), UpstreamConnection.close), sock=near
        )
        receiver = RecordingReceiver(connection)
        connection.send(b"GET / HTTP/1.1\r\n\r\n", receiver)
        for read in reads:
            connection.data_received(read)
            await asyncio.sleep(0)
            assert not connection.aligned_chunks
        connection.close()
        await asyncio.sleep(0)
    return receiver.between


@pytest.mark.parametrize(
    ("reads", "between"),
    {
        "a chunk": ([CHUNKED, HELLO], [True]),
        "a head and a chunk": ([CHUNKED + HELLO, HELLO], [True, True]),
        "a forerunner, a head and a chunk": ([EARLY + CHUNKED + HELLO], [False]),
        "a forerunner, then a head and a chunk": ([EARLY, CHUNKED + HELLO], [True]),
        "a head that is cut, and a chunk": ([CHUNKED[:30], CHUNKED[30:] + HELLO], [False]),
        "two chunks": ([CHUNKED + HELLO + HELLO, HELLO + HELLO, HELLO], [True, True, True]),
        "a cut chunk": ([CHUNKED + HELLO[:-3], HELLO[-3:], HELLO], [False, False, True]),
        "a chunk without its end": ([CHUNKED + HELLO[:-2], HELLO[-2:] + HELLO], [False, False]),
        "a chunk with half of its end": ([CHUNKED + HELLO[:-1], HELLO[-1:] + HELLO], [False, False]),
        "a chunk and the beginning of another": ([CHUNKED + HELLO + b"5\r\n", b"hello\r\n"], [False, False]),
        "an extension": ([CHUNKED + b"5;a=b\r\nhello\r\n", b"5;a=b\r\nhello\r\n"], [False, False]),
        "a size in other letters": ([CHUNKED + b"A\r\nhellohello\r\n", b"00005\r\nhello\r\n"], [False, False]),
        "the end": ([CHUNKED + HELLO + ENDED], [False]),
        "the end of the second": ([CHUNKED + HELLO, HELLO + ENDED], [True, False]),
        "trailers to come": ([CHUNKED + HELLO + b"0\r\n", b"A: b\r\n"], [False]),
        "trailers": ([CHUNKED + HELLO + b"0\r\nA: b\r\n", b"\r\n"], [False]),
        "trailers that look like a head": ([CHUNKED + HELLO + b"0\r\nA: b\r\n\r\n5\r\nhello\r\n"], [False]),
        "an event whose lines end with CRLF": ([CHUNKED + CRLF_EVENT, CRLF_EVENT + CRLF_EVENT], [True, True]),
        "a chunk within a chunk": ([CHUNKED + CHUNK_WITHIN], [True]),
        "a head within a chunk": ([CHUNKED + HEAD_WITHIN, HEAD_WITHIN], [True, True]),
        "a chunk like itself": ([CHUNKED + LIKE_ITSELF, LIKE_ITSELF], [True, True]),
        "a chunk that begins with its size": ([CHUNKED + SIZE_FIRST, SIZE_FIRST], [False, False]),
        "the rest of a chunk, like a chunk": ([CHUNKED + b"14\r\n0123456789", SIZE_FIRST], [False, False]),
        "the last byte of a chunk, like a chunk": ([CHUNKED + b"2\r\n0", b"1\r\n1\r\n"], [False, False]),
        "three chunks, one of them cut": ([CHUNKED + HELLO + HELLO + HELLO[:-1], b"\n" + HELLO], [False, False]),
        "a length": ([SIZED + HELLO, HELLO], [False, False]),
        "a length, and what looks like a head": ([SIZED + b"\r\n\r\n" + HELLO], [False]),
        "until it closes": ([UNTIL_CLOSE + HELLO, HELLO], [False, False]),
        "until it closes, and what looks like a head": ([UNTIL_CLOSE + b"\r\n\r\n" + HELLO], [False]),
        "another coding": ([OTHER_CODING + HELLO, HELLO], [False, False]),
        "more than is dealt with at once": ([CHUNKED, b"800\r\n%b\r\n" % (b"," * 0x800), HELLO], [False, False, True]),
        "one chunk of what has come, but not the last": (
            [CHUNKED, b"7f9\r\n%b\r\n" % (b"," * 0x7F9) + HELLO],
            [False, True],
        ),
    }.values(),
)
def test_an_answer_stands_between_two_chunks_only_where_it_is_certain(reads: list[bytes], between: list[bool]) -> None:
    assert asyncio.run(listen(*reads)) == between


@pytest.mark.slow
@pytest.mark.parametrize(
    "chunks",
    {
        "plain": (HELLO, HELLO),
        "events": (CRLF_EVENT, CRLF_EVENT),
        "a chunk within": (CHUNK_WITHIN, HELLO),
        "a head within": (HEAD_WITHIN, HELLO),
        "like itself": (LIKE_ITSELF, LIKE_ITSELF),
        "its size within": (b"14\r\n0123456789" + SIZE_FIRST[3:], SIZE_FIRST),
        "its size first": (SIZE_FIRST, SIZE_FIRST),
        "an end within": (b"7\r\n\r\n0\r\n\r\n\r\n", b"5\r\n0\r\n\r\n\r\n"),
        "short ones": (b"1\r\n1\r\n", b"2\r\n22\r\n"),
    }.values(),
)
def test_wherever_reads_fall_it_is_reported_only_where_a_chunk_ends(chunks: tuple[bytes, bytes]) -> None:
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    first, second = len(head) + len(chunks[0]), len(head) + len(chunks[0] + chunks[1])
    answer = head + b"".join(chunks) + b"0\r\nA: b\r\n\r\n"

    # Where reads may end, and between which of these they may lie, for it to be certain.
    plain = [chunk not in (SIZE_FIRST, b"1\r\n1\r\n") for chunk in chunks]
    ends = {(0, first): plain[0], (0, second): plain[0]}
    lies = {(len(head), first): plain[0], (first, second): plain[1], (len(head), second): plain[0]}

    async def run() -> None:
        for cut in range(1, len(answer)):
            assert any(await listen(answer[:cut])) == ends.get((0, cut), False), cut
        for start, end in combinations(range(len(head) - 4, len(answer)), 2):
            sent_text = await listen(answer[:start], answer[start:end])
            certain = ends.get((0, start), False) + lies.get((start, end), False)
            assert sum(sent_text) == certain, (start, end)

    asyncio.run(run())
