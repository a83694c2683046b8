"""Media that the gateway fetches: which URLs, within which limits, from a real server on loopback."""

import asyncio
import ssl
from base64 import b64encode
from collections.abc import Awaitable, Callable
from typing import TypeVar

import pytest

from penstock.core.hub.content import MediaPart
from penstock.http.pool import Pool
from penstock.http.ssrf import is_public
from penstock.upstream.media import MediaError, MediaFetcher

T = TypeVar("T")
PNG = b"\x89PNG\r\n\x1a\n\0" + b"x" * 399
HERE = "127.0.0.1"
# Trusts no certificate: to read those of the system takes longer than a test.
TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
# What the server answers, by path.
ANSWERS: dict[str, bytes] = {
    "/a.png?b=c": b"HTTP/1.1 200 OK\r\ncontent-type: image/jpg\r\ncontent-length: 408\r\n\r\n" + PNG,
    "/untyped": b"HTTP/1.1 200 OK\r\ncontent-type: application/octet-stream\r\n\r\n" + PNG,
    "/text": b"HTTP/1.1 200 OK\r\ncontent-type: text/plain; charset=utf-8\r\ncontent-length: 2\r\n\r\nHi",
    "/moved": b"HTTP/1.1 302 Found\r\nlocation: /a.png\r\ncontent-length: 0\r\n\r\n",
    "/missing": b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n",
    "/large": b"HTTP/1.1 200 OK\r\ncontent-type: image/png\r\ncontent-length: 9000\r\n\r\n" + b"x" * 9000,
    "/endless": b"HTTP/1.1 200 OK\r\ncontent-type: image/png\r\ntransfer-encoding: chunked\r\n\r\n"
     b"3e8\r\n" + b"x" * 1000 + b"\r\n" + b"3e8\r\n" + b"x" * 1000 + b"\r\n" + b"3e8\r\n" + b"x" * 1000 + b"\r\n",
    "/cut": b"HTTP/1.1 200 OK\r\ncontent-type: image/png\r\ncontent-length: 408\r\n\r\nx",
    "/page": b"HTTP/1.1 200 OK\r\ncontent-type: application/zip\r\ncontent-length: 2\r\n\r\nPK",
    "/gzip": b"HTTP/1.1 200 OK\r\ncontent-type: image/png\r\ncontent-encoding: gzip\r\ncontent-length: 1\r\n\r\nx",
    "/latin": b"HTTP/1.1 200 OK\r\ncontent-type: text/plain; charset=ISO-8859-1\r\ncontent-length: 4\r\n\r\ncaf\xe9",
    "/no-utf-8": b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: 4\r\n\r\ncaf\xe9",
    "/no-charset": b"HTTP/1.1 200 OK\r\ncontent-type: text/plain; charset=base64\r\ncontent-length: 4\r\n\r\nSGk=",
    "/svg": b"HTTP/1.1 200 OK\r\ncontent-type: image/svg+xml\r\ncontent-length: 6\r\n\r\n<svg/>",
    "/empty": b"HTTP/1.1 200 OK\r\ncontent-type: image/png\r\ncontent-length: 0\r\n\r\n",
    "/silent": b"",
}  # fmt: skip


class Server:
    """Answers GET requests, and keeps their heads."""

    def __init__(self) -> None:
        self.heads: list[bytes] = []

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        self.heads.append(head)
        answer = ANSWERS[head.split(b" ")[1].decode()]
        writer.write(answer)
        if not answer:
            await reader.read()  # until the client leaves
        writer.close()


def run(work: Callable[[str, Server], Awaitable[T]]) -> T:
    """Run work with the address of a server."""

    async def main() -> T:
        server = Server()
        listener = await asyncio.start_server(server.answer, HERE, 0)
        try:
            return await work(f"http://{HERE}:{listener.sockets[0].getsockname()[1]}", server)
        finally:
            listener.close()

    return asyncio.run(main())


def fetched(path: str, hosts: tuple[str, ...] = (HERE,), *, timeout_s: float = 10.0) -> MediaPart:
    async def work(url: str, _: Server) -> MediaPart:
        (part,) = (await MediaFetcher(hosts, 2_000, timeout_s, TLS).fetch([url + path])).values()
        return part

    return run(work)


def test_media_become_data_of_their_type() -> None:
    image = MediaPart(kind="image", mime="image/jpeg", data=b64encode(PNG).decode())
    assert fetched("/a.png?b=c") == image
    assert fetched("/untyped").mime == "image/png"
    assert fetched("/text") == MediaPart(kind="file", mime="text/plain", data="SGk=")
    assert fetched("/latin").data == b64encode("café".encode()).decode()


def test_nothing_is_kept_of_hosts_that_clients_choose() -> None:
    async def resolved(_host: str, _port: int) -> list[str]:
        return ["10.0.0.1"]

    async def work() -> dict[str, object]:
        fetcher = MediaFetcher(("*.example",), 2_000, 1.0, TLS, resolver=resolved)
        for number in range(3):
            with pytest.raises(MediaError):
                await fetcher.fetch([f"http://a{number}.example/x.png"])
        return vars(fetcher)

    kept = asyncio.run(work())
    assert not any(isinstance(value, Pool) for value in kept.values())
    assert not any("a1.example" in str(value) for value in kept.values())


def test_a_request_has_no_credentials() -> None:
    async def work(url: str, server: Server) -> list[bytes]:
        await MediaFetcher((HERE,), 2_000, 10.0).fetch([url + "/text"])
        return server.heads

    (head,) = run(work)
    assert {line.partition(b":")[0].lower() for line in head.strip().split(b"\r\n")[1:]} == {
        b"host", b"accept", b"accept-encoding", b"user-agent", b"connection",
    }  # fmt: skip


REFUSED = {
    "/moved": "status 302; redirects are not followed",
    "/missing": "status 404",
    "/large": "more than 2000 bytes",
    "/endless": "more than 2000 bytes",
    "/cut": "does not answer",
    "/gzip": "encoding",
    "/page": "application/zip, which is no image",
    "/svg": r"image/svg\+xml, which is no image",
    "/empty": "nothing",
    "/no-utf-8": "no text in utf-8",
    "/no-charset": "no text in base64",
}


@pytest.mark.parametrize("path", REFUSED)
def test_what_is_no_usable_answer_is_refused(path: str) -> None:
    with pytest.raises(MediaError, match=REFUSED[path]):
        fetched(path)


def test_the_time_is_limited() -> None:
    with pytest.raises(MediaError, match=r"longer than 0\.05 s"):
        fetched("/silent", timeout_s=0.05)


@pytest.mark.parametrize("hosts", [("*",), ("127.0.0.*",), ("images.example",)])
def test_only_a_host_that_is_written_out_may_be_on_this_machine(hosts: tuple[str, ...]) -> None:
    async def work(url: str, server: Server) -> list[bytes]:
        with pytest.raises(MediaError, match=r"public address|does not allow"):
            await MediaFetcher(hosts, 2_000, 10.0, TLS).fetch([url + "/text"])
        return server.heads

    assert run(work) == []


PRIVATE = (
    "10.0.0.1", "192.168.1.1", "127.0.0.1", "169.254.169.254", "100.64.0.1", "0.0.0.0", "224.0.0.1", "::1", "fd00::1",
    "::ffff:10.0.0.1", "64:ff9b::a00:1", "64:ff9b:1::a00:1", "2002:a00:1::", "fec0::1",
)  # fmt: skip


@pytest.mark.parametrize("address", PRIVATE)
def test_a_name_must_have_a_public_address(address: str) -> None:
    async def resolved(_host: str, _port: int) -> list[str]:
        return [address]

    async def work() -> None:
        await MediaFetcher(("*.example",), 2_000, 1.0, TLS, resolver=resolved).fetch(["http://a.example/x.png"])

    with pytest.raises(MediaError, match="upstream_forbidden_address"):
        asyncio.run(work())
    assert not is_public(address)


@pytest.mark.parametrize("address", ["93.184.215.14", "2606:2800:21f:cb07:6820:80da:af6b:8b2c"])
def test_a_public_address_is_no_private_one(address: str) -> None:
    assert is_public(address)


@pytest.mark.parametrize(
    "url",
    [
        "ftp://a.example/x", "file:///etc/passwd", "gs://bucket/x", "http:///x", "http://u:p@a.example/x", "http://a.example/\r\nx",
        "http://a.example/ x", "http://a.example:99999/x", "http://a.example\\@b.example/", "http://ä.example/x",
    ],
)  # fmt: skip
def test_only_plain_urls_are_fetched(url: str) -> None:
    async def work() -> None:
        await MediaFetcher(("*",), 2_000, 1.0, TLS).fetch([url])

    with pytest.raises(MediaError, match="must begin with"):
        asyncio.run(work())


def test_the_number_of_urls_is_limited() -> None:
    async def work() -> None:
        await MediaFetcher((HERE,), 2_000, 1.0).fetch([f"http://{HERE}/{number}" for number in range(21)])

    with pytest.raises(MediaError, match="at most 20"):
        asyncio.run(work())


@pytest.mark.parametrize("host", ["a..example", f"{'a' * 64}.example"])
def test_a_name_that_no_host_can_have_cannot_be_reached(host: str) -> None:
    with pytest.raises(MediaError, match="upstream_dns_failed"):
        asyncio.run(MediaFetcher(("*",), 2_000, 1.0, TLS).fetch([f"http://{host}/x.png"]))
