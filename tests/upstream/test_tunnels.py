"""The CONNECT tunnel of a proxy, and the sockets below it: what is sent, what is read, and what is left open."""

import asyncio
import socket
from collections.abc import Awaitable, Callable
from typing import TypeVar

import pytest

from penstock.http.sockets import Proxy, authority, connect_any, open_tunnel

ResultT = TypeVar("ResultT")
HEAD_LIMIT = 16_384


class ScriptedProxy:
    """Reads a request, answers with these bytes, and then stays silent or closes."""

    def __init__(self, answer: bytes, *, closes: bool = False) -> None:
        self._answer, self._closes = answer, closes
        self.requests: list[bytes] = []
        self.gone = asyncio.Event()

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            self.requests.append(await reader.readuntil(b"\r\n\r\n"))
            writer.write(self._answer)
            if not self._closes:
                await reader.read()  # until the gateway closes its end
        finally:
            writer.close()
            self.gone.set()


def through(proxy: ScriptedProxy, then: Callable[[int], Awaitable[ResultT]]) -> ResultT:
    """Do something while the proxy listens on a port."""

    async def run() -> ResultT:
        server = await asyncio.start_server(proxy, "127.0.0.1", 0)
        async with server:
            result = await then(server.sockets[0].getsockname()[1])
            if proxy.requests:
                await asyncio.wait_for(proxy.gone.wait(), 30.0)
        return result

    return asyncio.run(run())


@pytest.mark.parametrize("authorization", ["", "Basic dXM6cHc="])
@pytest.mark.parametrize(("host", "target"), [("api.example", "api.example:443"), ("2001:db8::7", "[2001:db8::7]:443")])
def test_a_tunnel_is_asked_for(host: str, target: str, authorization: str) -> None:
    proxy = ScriptedProxy(b"HTTP/1.1 200 Connection established\r\nvia: 1.1 proxy\r\n\r\nHello")

    async def check(port: int) -> bytes:
        with await open_tunnel(Proxy("127.0.0.1", port, authorization), host, 443, 30.0) as tunnel:
            return await asyncio.get_running_loop().sock_recv(tunnel, 100)

    assert through(proxy, check) == b"Hello"  # what follows the head is the host's
    expected = f"CONNECT {target} HTTP/1.1\r\nhost: {target}\r\n"
    expected += f"proxy-authorization: {authorization}\r\n" if authorization else ""
    assert proxy.requests == [f"{expected}\r\n".encode()]


REFUSALS = {
    "a status": (b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n", "'HTTP/1.1 407 Proxy Authentication Required'"),
    "200 in another place": (b"HTTP/1.1 502 200\r\n\r\n", "'HTTP/1.1 502 200'"),
    "nothing of HTTP": (b"no\r\n\r\n", "'no'"),
    "a head without end": (b"HTTP/1.1 407 " + b"x" * HEAD_LIMIT, f"'HTTP/1.1 407 {'x' * 187}'"),
}


@pytest.mark.parametrize(("answer", "words"), REFUSALS.values(), ids=REFUSALS)
def test_a_refusal_is_reported_and_the_socket_closed(answer: bytes, words: str) -> None:
    proxy = ScriptedProxy(answer)

    async def check(port: int) -> str:
        with pytest.raises(OSError, match="the proxy refused the tunnel") as refused:
            await open_tunnel(Proxy("127.0.0.1", port, "Basic secret"), "api.example", 443, 30.0)
        await asyncio.wait_for(proxy.gone.wait(), 30.0)  # by itself, while the error is still there
        return str(refused.value)

    assert through(proxy, check) == f"the proxy refused the tunnel: {words}"


def test_a_proxy_that_closes_has_refused() -> None:
    async def check(port: int) -> None:
        with pytest.raises(OSError, match=r"the proxy refused the tunnel: 'HTTP/1\.1 4'"):
            await open_tunnel(Proxy("127.0.0.1", port), "api.example", 443, 30.0)

    through(ScriptedProxy(b"HTTP/1.1 4", closes=True), check)


def test_a_proxy_with_a_defect_is_not_asked() -> None:
    proxy = ScriptedProxy(b"")

    async def check(port: int) -> None:
        with pytest.raises(OSError, match=r"^its port is no number$"):
            await open_tunnel(Proxy("127.0.0.1", port, defect="its port is no number"), "api.example", 443, 30.0)

    through(proxy, check)
    assert proxy.requests == []


def test_credentials_are_in_no_representation() -> None:
    assert repr(Proxy("proxy.example", 3128, "Basic secret", "a defect")) == "Proxy('proxy.example', 3128)"


@pytest.mark.parametrize(
    ("host", "written"), [("api.example", "api.example:80"), ("127.0.0.1", "127.0.0.1:80"), ("::1", "[::1]:80")]
)
def test_a_host_and_a_port_are_written_as_in_a_url(host: str, written: str) -> None:
    assert authority(host, 80) == written


class Accepting:
    """Accepts connections on an address, and waits until their peers close them."""

    def __init__(self) -> None:
        self.accepted = 0
        self.left = 0
        self.changed = asyncio.Event()

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        try:
            await reader.read()
        finally:
            self.left += 1
            self.changed.set()
            writer.close()

    async def are_left(self) -> None:
        """Wait until every connection was closed by its peer."""
        async with asyncio.timeout(30.0):
            await self.changed.wait()
            while self.left < self.accepted:
                self.changed.clear()
                await self.changed.wait()


def test_the_address_that_accepted_is_named() -> None:
    async def run() -> None:
        accepting = Accepting()
        async with await asyncio.start_server(accepting, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            connection, address = await connect_any(["127.0.0.2", "127.0.0.1"], port, 30.0)
            with connection:
                assert (address, connection.getpeername()) == ("127.0.0.1", ("127.0.0.1", port))
            await accepting.are_left()

    asyncio.run(run())


def test_where_all_refuse_the_last_failure_is_raised() -> None:
    async def check() -> None:
        with socket.socket() as bound:
            bound.bind(("127.0.0.1", 0))  # and does not listen
            with pytest.raises(ConnectionRefusedError):
                await connect_any(["127.0.0.1"], bound.getsockname()[1], 30.0)
        with pytest.raises(OSError, match=r"^the name has no address$"):
            await connect_any([], 443, 30.0)

    asyncio.run(check())


def test_an_attempt_that_comes_second_is_closed() -> None:
    """Both addresses accept at once; one connection is used, and the other is not left open."""

    async def check() -> None:
        accepting = Accepting()
        first = await asyncio.start_server(accepting, "127.0.0.1", 0)
        port = first.sockets[0].getsockname()[1]
        second = await asyncio.start_server(accepting, "127.0.0.2", port)
        async with first, second:
            # Without a delay, both attempts are under way before either is done.
            connection, _ = await connect_any(["127.0.0.1", "127.0.0.2"], port, 0.0)
            connection.close()
            await accepting.are_left()

    asyncio.run(check())
