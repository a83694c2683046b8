"""A repeated head is recognised, and no bytes that follow it are interpreted differently because of that."""

import asyncio
import random
from collections.abc import Callable
from itertools import pairwise

import pytest

from tests.http.wire import Client, post
from tests.tables import FULL

AUTHORIZED = b"Authorization: Bearer one%20or%d"
FIRST = post(b"first", AUTHORIZED)
HEAD_SIZE = FIRST.index(b"first")
# The head of a request whose body looks like a request.
WRAPPED = post(b"", b"Authorization: Bearer two", length=b"%d" % len(FIRST))
LARGE = post(b"x" * 80_000, AUTHORIZED)
# A request that offers another protocol, and as it is read again without that.
OFFER = post(b"other", b"Authorization: Bearer two", b"Connection: Upgrade", b"Upgrade: h2c")
DECLINED = b"POST /v1/a?b=c HTTP/1.1\r\nhost: here\r\ncontent-length: 5\r\nauthorization: Bearer two\r\n\r\nother"
# What comes behind the first request, in reads.
SECOND: dict[str, tuple[bytes, ...]] = {
    "the same": (FIRST,),
    "another length": (post(b"x" * 12_345, AUTHORIZED),),
    "no body": (post(b"", AUTHORIZED),),
    "a length with a zero before it": (post(b"first", AUTHORIZED, length=b"05"),),
    "a length with a plus": (post(b"first", AUTHORIZED, length=b"+5"),),
    "a negative length": (post(b"first", AUTHORIZED, length=b"-5"),),
    "no length": (post(b"first", AUTHORIZED, length=b""),),
    "a length in hex": (post(b"first", AUTHORIZED, length=b"0x5"),),
    "a length beyond 64 bits": (post(b"first", AUTHORIZED, length=b"99999999999999999999"),),
    "a length of 5,000 digits": (post(b"first", AUTHORIZED, length=b"9" * 5_000),),
    "a length of 5,000 digits, of which one counts": (post(b"first", AUTHORIZED, length=b"6".zfill(5_000)),),
    "a length that is too short": (post(b"first", AUTHORIZED, length=b"3"),),
    "a length that is too long": (post(b"first", AUTHORIZED, length=b"8"),),
    "a length that is too long, and the rest": (post(b"first", AUTHORIZED, length=b"8"), b"one"),
    "too large": (post(b"x" * 90_001, AUTHORIZED),),
    "too large by its length": (post(b"x", AUTHORIZED, length=b"90001"),),
    "two in one read": (FIRST + post(b"second", AUTHORIZED),),
    "two in two reads": (FIRST, post(b"second", AUTHORIZED)),
    "a head, and its body": (FIRST[:HEAD_SIZE], b"first"),
    "a body in two reads": (FIRST[:-2], FIRST[-2:]),
    "a head in two reads": (FIRST[:20], FIRST[20:]),
    "byte by byte": tuple(FIRST[index : index + 1] for index in range(len(FIRST))),
    "a request as the body of another": (WRAPPED, FIRST),
    "a request as the body of another, behind one": (FIRST + WRAPPED, FIRST),
    "a request behind a part of a body": (FIRST[:-2], FIRST),
    "a request behind a part of a head": (FIRST[:20], FIRST),
    "more behind a part of a body": (FIRST[:-2], FIRST[-2:] + FIRST),
    "rubbish behind a part of a body": (FIRST[:-2], FIRST[-2:] + b"\x00"),
    "a large body in parts": (LARGE[:30_000], LARGE[30_000:60_000], LARGE[60_000:]),
    "a body that is too large, in parts": (post(b"", AUTHORIZED, length=b"90001"), b"x" * 90_001),
    "a length with a zero before it, in parts": (post(b"fir", AUTHORIZED, length=b"05"), b"st"),
    "something behind it": (FIRST + b"\r\n",),
    "something before it": (b"\r\n" + FIRST,),
    "rubbish behind it": (FIRST + b"\x00",),
    "another key": (post(b"first", b"Authorization: Bearer two"),),
    "a header more": (post(b"first", AUTHORIZED, b"X-A: b"),),
    "a header less": (post(b"first"),),
    "another length more": (post(b"first", AUTHORIZED, b"Content-Length: 5"),),
    "chunks too": (post(b"5\r\nfirst\r\n0\r\n\r\n", AUTHORIZED, b"Transfer-Encoding: chunked"),),
    "a go-ahead asked for": (post(b"first", AUTHORIZED, b"Expect: 100-continue"),),
    "the last one": (post(b"first", AUTHORIZED, b"Connection: close"), FIRST),
    "an older protocol": (FIRST.replace(b"HTTP/1.1", b"HTTP/1.0"), FIRST),
    "another protocol": (post(b"first", AUTHORIZED, b"Connection: Upgrade", b"Upgrade: h2c"), FIRST),
    "another protocol behind one": (FIRST + OFFER, DECLINED, DECLINED),
    "another protocol, and the same without": (OFFER, DECLINED, DECLINED),
    "bare ends of lines": (FIRST.replace(b"\r\n", b"\n"),),
    "a line that is folded": (FIRST.replace(b"Bearer", b"\r\n Bearer"),),
}
# Heads that are not cached: their bytes do not determine the framing of the body, or no further request follows.
NOT_KEPT: dict[str, bytes] = {
    "no body": b"GET / HTTP/1.1\r\nHost: here\r\n\r\n",
    "chunks": b"POST / HTTP/1.1\r\nHost: here\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n",
    "a go-ahead asked for": post(b"first", b"Expect: 100-continue"),
    "too long": post(b"first", b"X-A: " + b"a" * 9_000),
}

Outcome = list[object]


async def outcome(client: Client, *reads: bytes) -> Outcome:
    """The requests and responses for these bytes, and whether the connection is still open then."""
    client.wire.written.clear()
    seen: Outcome = []

    async def answer_all() -> None:
        while client.waiting:
            exchange = client.answer()
            request = exchange.request
            seen.append((request.method, request.path, request.query, request.headers, request.keep_alive))
            seen.append((request.is_http11, exchange.body))
            await asyncio.sleep(0)

    for data in reads:
        client.send(data)
        await answer_all()
    return [*seen, b"".join(client.wire.written), client.wire.closed, client.connection.closing]


async def judge(*reads: bytes) -> None:
    """A connection with a cached head interprets all bytes as one without a cache."""
    acquainted, stranger = Client(max_body=90_000), Client(lambda *_: 90_000)
    assert await outcome(acquainted, FIRST, *reads) == await outcome(stranger, FIRST, *reads)


@pytest.mark.parametrize("reads", SECOND.values(), ids=SECOND)
def test_a_cached_head_changes_nothing(reads: tuple[bytes, ...]) -> None:
    async def check() -> None:
        await judge(*reads)
        for others in SECOND.values():
            await judge(*reads, *others)

    asyncio.run(check())


BYTES = (b"0", b"9", b"a", b" ", b"\r", b"\n", b":", b"\x00", b"\xff")
# How a byte is put there, and which bytes are.
EDITS: dict[str, tuple[Callable[[bytes, int, bytes], bytes], tuple[bytes, ...]]] = {
    "a byte is another": (lambda data, at, byte: data[:at] + byte + data[at + 1 :], BYTES),
    "a byte is missing": (lambda data, at, byte: data[:at] + byte + data[at + 1 :], (b"",)),
    "a byte is too much": (lambda data, at, byte: data[:at] + byte + data[at:], BYTES),
}


@pytest.mark.slow
@pytest.mark.parametrize(("edit", "bytes_put"), EDITS.values(), ids=EDITS)
def test_a_head_that_differs_by_a_byte_is_another(
    edit: Callable[[bytes, int, bytes], bytes], bytes_put: tuple[bytes, ...]
) -> None:
    async def check() -> None:
        for at in range(len(FIRST)):
            for byte in bytes_put:
                await judge(edit(FIRST, at, byte))

    asyncio.run(check())


MIXED = [b"".join(reads) for reads in SECOND.values()] + [FIRST, DECLINED, post(b"second", AUTHORIZED)] * 10


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3 if FULL else 1))
def test_requests_are_distinguished_wherever_the_reads_part_them(seed: int) -> None:
    async def check() -> None:
        chance = random.Random(seed)
        for _ in range(60):
            sent = b"".join(chance.choices(MIXED, k=4))
            edges = {0, len(sent)}
            for request in (FIRST, DECLINED):  # most reads begin or end at the border of a request
                edges |= {at for at in range(len(sent)) if sent.startswith(request, at) and chance.random() < 0.8}
            edges |= set(chance.choices(range(1, len(sent)), k=chance.randint(0, 3)))
            await judge(*(sent[start:end] for start, end in pairwise(sorted(edges))))

    asyncio.run(check())


def test_what_its_handler_made_of_a_head_is_kept_with_it() -> None:
    async def check() -> None:
        client = Client()
        client.send(FIRST)
        first = client.answer()
        first.request.parsed_head = "read"
        client.send(post(b"second", AUTHORIZED))
        assert client.waiting[0].body == b"second"
        assert client.answer().request is first.request
        client.send(post(b"third", b"Authorization: Bearer two"))
        other = client.answer()
        assert (other.request.headers["authorization"], other.request.parsed_head) == ("Bearer two", None)

    asyncio.run(check())


def test_a_head_is_known_in_whatever_reads_it_comes() -> None:
    async def check() -> None:
        client = Client()
        client.send(FIRST[:HEAD_SIZE], FIRST[HEAD_SIZE:])
        first = client.answer()
        for body in (b"second", b"third" * 100):
            sent = post(body, AUTHORIZED)
            client.send(*(sent[: -len(body)], body[:2], body[2:]))
            assert client.waiting[0].body == body
            assert client.answer().request is first.request

    asyncio.run(check())


def test_a_body_that_takes_too_long_is_refused_though_its_head_is_known() -> None:
    async def check() -> None:
        client = Client(body_timeout_s=0.05)
        client.send(FIRST)
        client.answer()
        sent = post(b"x" * 100, AUTHORIZED)
        client.send(sent[:-100])
        for _ in range(10):  # each of which comes in time
            await asyncio.sleep(0.01)
            client.send(b"x")
        assert client.status == 408
        assert not client.waiting
        client.send(b"x" * 89)
        assert not client.waiting

    asyncio.run(check())


def test_the_body_of_a_cached_head_may_arrive_until_its_timeout() -> None:
    async def check() -> None:
        client = Client(body_timeout_s=0.02)
        client.send(FIRST)
        client.answer()
        client.send(FIRST[:-2])
        client.send(FIRST[-2:])
        await asyncio.sleep(0.05)  # nothing is waited for any more
        assert client.answer().body == b"first"
        assert client.status == 200

    asyncio.run(check())


@pytest.mark.parametrize("request_", NOT_KEPT.values(), ids=NOT_KEPT)
def test_a_head_that_is_not_plain_is_read_each_time(request_: bytes) -> None:
    async def check() -> None:
        client = Client()
        client.send(request_)
        first = client.answer()
        client.send(request_)
        assert client.answer().request is not first.request

    asyncio.run(check())


def test_a_head_is_not_cached_where_another_length_would_make_it_too_long() -> None:
    async def check() -> None:
        client = Client(max_head=len(FIRST) + 5)
        client.send(FIRST)
        first = client.answer()
        client.send(FIRST)
        assert client.answer().request is not first.request

    asyncio.run(check())
