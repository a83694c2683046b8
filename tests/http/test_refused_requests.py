"""Requests that the server refuses before any handler sees them: the status of each, and every limit at its border."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from penstock.http.server import ServerConnection
from tests.http.wire import Client, post

LIMITS: dict[str, Any] = {
    "max_head": 400,
    "max_header": 200,
    "max_headers": 6,
    "max_target": 40,
    "max_body": 20,
    "max_framing": 64,
}


def lines(*headers: str, target: str = "/", method: str = "GET", version: str = "1.1", host: str = "here") -> bytes:
    head = [f"{method} {target} HTTP/{version}", *([f"Host: {host}"] if host else []), *headers, "", ""]
    return "\r\n".join(head).encode("latin-1")


def chunked(*chunks: bytes, end: bytes = b"0\r\n\r\n") -> bytes:
    body = b"".join(b"%x\r\n%b\r\n" % (len(chunk), chunk) for chunk in chunks)
    return lines("Transfer-Encoding: chunked", method="POST") + body + end


# Host, and each header with its colon, space and line end.
HOST = len("host: here\r\n")
LONG = 400 - HOST - 200 - len("b: \r\n")
ACCEPTED: dict[str, bytes] = {
    "a target of the greatest length": lines(target="/" + "a" * 39),
    "as many headers as may be": lines(*[f"{name}: x" for name in "abcde"]),
    "the longest header": lines("a: " + "x" * (200 - len("a: \r\n"))),
    "the largest head": lines("a: " + "x" * (200 - len("a: \r\n")), "b: " + "x" * LONG),
    "the largest body": post(b"x" * 20),
    "the largest body in chunks": chunked(b"x" * 13, b"x" * 7),
    "much framing": chunked(b"x", end=b"0\r\n" + b"a: " + b"x" * 30 + b"\r\n\r\n"),
    "HTTP/1.0 without a host": lines(version="1.0", host=""),
    "a host with a port": lines(host="here.example:8080"),
    "an IPv6 address": lines(host="[::1]:8080"),
    "chunked in capitals": chunked().replace(b"chunked", b"CHUNKED"),
    "a target in absolute form": lines(target="http://there:81/a"),
    "a key twice": lines("x-key: a", "X-Key: a"),
    "two values of another header": lines("keys: a", "keys: b", "accept: a", "accept: b"),
}
REFUSED: dict[str, tuple[bytes, int, str]] = {
    "a longer target": (lines(target="/" + "a" * 40), 414, "the URL exceeds 40 bytes"),
    "one header more": (lines(*[f"{name}: x" for name in "abcdef"]), 431, "there are more than 6 headers"),
    "a longer header": (lines("a: " + "x" * (201 - len("a: \r\n"))), 431, "a header exceeds 200 bytes"),
    "a larger head": (
        lines("a: " + "x" * (200 - len("a: \r\n")), "b: " + "x" * (LONG + 1)),
        431,
        "the headers exceed 400 bytes",
    ),
    "a head that never ends": (b"GET / HTTP/1.1\r\na: " + b"x" * 400, 431, "the headers exceed 400 bytes"),
    "a larger body": (post(b"x" * 21), 413, "the body exceeds 20 bytes"),
    "a body that is only announced": (post(b"", length=b"21"), 413, "the body exceeds 20 bytes"),
    "a larger body in chunks": (chunked(b"x" * 13, b"x" * 8), 413, "the body exceeds 20 bytes"),
    "no host": (lines(host=""), 400, "there must be exactly one Host header"),
    "two hosts": (lines("Host: there"), 400, "there must be exactly one Host header"),
    "two bearer tokens": (
        lines("Authorization: Bearer a", "authorization: Bearer b"),
        400,
        "the header authorization has two values: send one",
    ),
    "two keys, of which one is empty": (lines("X-Api-Key: a", "X-Api-Key:"), 400, "the header x-api-key has two"),
    "two origins": (lines("Origin: http://a", "Origin: http://b"), 400, "the header origin has two values"),
    "a host that is none": (lines(host="here/there"), 400, "the Host header is not a host"),
    "another coding": (lines("Transfer-Encoding: gzip", method="POST"), 400, "must be `chunked`, once"),
    "another coding first": (
        lines("Transfer-Encoding: gzip, chunked", method="POST"),
        501,
        "no transfer coding but `chunked`",
    ),
    "chunked twice": (lines("Transfer-Encoding: chunked, chunked", method="POST"), 400, "Transfer-Encoding"),
    "chunked in two headers": (
        lines("Transfer-Encoding: chunked", "Transfer-Encoding: chunked", method="POST"),
        400,
        "Transfer-Encoding",
    ),
    "an empty coding": (lines("Transfer-Encoding: ,chunked", method="POST"), 400, "must be `chunked`, once"),
    "chunks in HTTP/1.0": (
        lines("Transfer-Encoding: chunked", method="POST", version="1.0"),
        400,
        "an HTTP/1.0 request cannot have a Transfer-Encoding",
    ),
    "no HTTP": (b"hello, world\r\n\r\n", 400, "not valid HTTP/1.1"),
    "a tunnel": (lines(method="CONNECT", target="there:443"), 400, "the request target is not a path"),
    "a tunnel to a path": (lines(method="CONNECT", target="http://there:443/"), 405, "there is nothing to connect to"),
}


def check(claim: Callable[[], None]) -> None:
    async def run() -> None:
        claim()

    asyncio.run(run())


@pytest.mark.parametrize("request_", ACCEPTED.values(), ids=ACCEPTED)
def test_a_request_at_the_border_of_a_limit_is_accepted(request_: bytes) -> None:
    def claim() -> None:
        for reads in ([request_], [request_[:9], request_[9:]]):
            client = Client(**LIMITS)
            client.send(*reads)
            assert len(client.waiting) == 1, client.wire.written
            assert not client.connection.closing

    check(claim)


@pytest.mark.parametrize(("request_", "status", "message"), REFUSED.values(), ids=REFUSED)
def test_a_request_beyond_it_is_refused(request_: bytes, status: int, message: str) -> None:
    def claim() -> None:
        for reads in ([request_], [request_[:9], request_[9:]]):
            client = Client(**LIMITS)
            client.send(*reads)
            (written,) = client.wire.written
            head, _, body = written.partition(b"\r\n\r\n")
            assert client.status == status
            assert message in body.decode()
            assert b"\r\nconnection: close" in head
            assert b"\r\ncontent-length: %d" % len(body) in head
            assert (client.waiting, client.wire.ended, client.connection.closing) == (
                type(client.waiting)(),
                True,
                True,
            )
            client.send(lines())
            assert len(client.wire.written) == 1, "what follows is dropped"

    check(claim)


def test_framing_without_a_body_is_limited() -> None:
    def claim() -> None:
        client = Client(**LIMITS)
        client.send(chunked(b"x", end=b""), b"1;" + b"x" * 62, b"\r\nx\r\n", b"1;" + b"x" * 62)
        assert client.wire.written == [], "the count begins again with each piece of the body"
        client.send(b"x")
        assert client.status == 400
        assert b"more than 64 bytes of chunk framing without a body" in client.wire.written[0]

    check(claim)


def test_what_follows_a_valid_request_does_not_change_its_answer() -> None:
    def claim() -> None:
        client = Client(**LIMITS)
        client.send(lines() + b"nonsense\r\n\r\n")
        client.answer()
        assert client.status == 200
        assert client.wire.closed
        assert not client.wire.aborted

    check(claim)


def test_a_go_ahead_is_sent_if_it_is_asked_for() -> None:
    def claim() -> None:
        client = Client(**LIMITS)
        whole = post(b"hello", b"Expect: 100-Continue")
        client.send(whole[:-5])
        assert client.wire.written == [b"HTTP/1.1 100 Continue\r\n\r\n"]
        client.send(whole[-5:])
        assert client.answer().body == b"hello"
        other = Client(**LIMITS)
        other.send(post(b"hello", b"Expect: 100-continue").replace(b"5", b"21", 1))
        assert other.status == 413, "not before its size is known to be allowed"

    check(claim)


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ("/a?b=c", ("here", "/a", "b=c")),
        ("http://there/a", ("there", "/a", "")),
        ("http://there:81/a?b", ("there:81", "/a", "b")),
        ("http://[::1]/", ("[::1]", "/", "")),
        ("http://[::1]:81", ("[::1]:81", "/", "")),
    ],
)
def test_a_target_in_absolute_form_names_the_host(target: str, expected: tuple[str, str, str]) -> None:
    def claim() -> None:
        client = Client(**LIMITS)
        client.send(lines(target=target))
        request = client.waiting[0].request
        assert (request.headers["host"], request.path, request.query) == expected

    check(claim)


def test_only_so_many_may_be_connected() -> None:
    def claim() -> None:
        connections: set[ServerConnection] = set()
        first, second = (Client(connections=connections, max_connections=2) for _ in range(2))
        assert (first.wire.written, second.wire.written) == ([], [])
        crowded = Client(connections=connections, max_connections=2)
        assert (crowded.status, crowded.wire.closed) == (503, True)
        assert b"too many connections" in crowded.wire.written[0]
        first.connection.connection_lost(None)
        assert Client(connections=connections, max_connections=2).wire.written == []
        assert len(connections) == 2

    check(claim)


def test_a_new_connection_replaces_the_oldest_that_has_sent_no_request() -> None:
    def claim() -> None:
        connections: set[ServerConnection] = set()
        limits: dict[str, Any] = {"connections": connections, "max_connections": 3, "replaces_unused": True}
        used, first, second = (Client(**limits) for _ in range(3))
        used.send(lines())
        first.connection._connected_at -= 1
        for replaced in (first, second):
            newer = Client(**limits)
            newer.send(lines())
            assert newer.waiting
            assert (replaced.wire.aborted, used.wire.aborted) == (True, False)
        assert Client(**limits).status == 503, "all others are in use"
        assert len(connections) == 3

    check(claim)
