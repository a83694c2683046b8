"""Opening connections by the pool: every failure has a code and a message that names the host."""

import asyncio
import errno
import os
import socket
from pathlib import Path

import pytest

from penstock.http.limits import UpstreamLimits
from penstock.http.pool import Origin, Pool, Resolver
from penstock.http.upstream_connection import UpstreamError


def fails(error: BaseException) -> Resolver:
    """A resolver that raises."""

    async def resolve(_host: str, _port: int) -> list[str]:
        raise error

    return resolve


def has(*addresses: str) -> Resolver:
    """A resolver that has these addresses for every name."""

    async def resolve(_host: str, _port: int) -> list[str]:
        return list(addresses)

    return resolve


def failure(resolver: Resolver, origin: Origin) -> tuple[str, str]:
    """The code and the message of a connection that cannot be opened; nothing is left in the pool."""

    async def run() -> tuple[str, str]:
        pool = Pool(UpstreamLimits(), resolver=resolver)
        with pytest.raises(UpstreamError) as caught:
            await pool.open(origin, 30.0)
        assert pool.connections == set()
        return caught.value.code, caught.value.message

    return asyncio.run(run())


async def hold(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Keep a connection until its peer closes it."""
    try:
        await reader.read()
    finally:
        writer.close()


HOST = Origin("api.example", 443)


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS])
def test_what_the_gateway_lacks_is_not_the_provider_s_fault(number: int) -> None:
    code, message = failure(fails(OSError(number, "words")), HOST)
    assert (code, message) == ("gateway_overloaded", "the gateway cannot open another connection")


def test_the_system_s_reason_is_reported() -> None:
    code, message = failure(fails(OSError(errno.EHOSTUNREACH, "what asyncio says")), HOST)
    assert (code, message) == (
        "upstream_connect_failed",
        f"cannot connect to api.example:443: {os.strerror(errno.EHOSTUNREACH)}",
    )


def test_an_error_without_a_number_is_reported_in_its_words() -> None:
    code, message = failure(fails(OSError("the proxy refused")), HOST)
    assert (code, message) == ("upstream_connect_failed", "cannot connect to api.example:443: the proxy refused")


def test_a_name_without_addresses_cannot_be_connected_to() -> None:
    code, message = failure(has(), HOST)
    assert code == "upstream_connect_failed"
    assert message == "cannot connect to api.example:443: the name has no address"


def test_a_name_that_is_unknown_is_reported() -> None:
    code, message = failure(fails(socket.gaierror(socket.EAI_NONAME, "Name or service not known")), HOST)
    assert (code, message) == ("upstream_dns_failed", "cannot resolve api.example: Name or service not known")


def test_a_forbidden_address_is_named() -> None:
    code, message = failure(has("169.254.169.254", "224.0.0.1"), HOST)
    assert code == "upstream_forbidden_address"
    assert message == "api.example resolves to 169.254.169.254, which is never a provider's address"


def test_a_resolver_that_takes_too_long_is_a_timeout() -> None:
    async def resolve(_host: str, _port: int) -> list[str]:
        await asyncio.sleep(60)
        return []

    async def run() -> UpstreamError:
        with pytest.raises(UpstreamError) as caught:
            await Pool(UpstreamLimits(), resolver=resolve).open(HOST, 0.01)
        return caught.value

    error = asyncio.run(run())
    assert (error.code, error.message) == (
        "upstream_connect_timeout",
        "no connection to api.example:443 within 0.01 s",
    )


def test_a_server_without_tls_fails_the_handshake() -> None:
    async def run() -> UpstreamError:
        async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            await hold(reader, writer)

        async with await asyncio.start_server(accept, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            with pytest.raises(UpstreamError) as caught:
                await Pool(UpstreamLimits(), resolver=has("127.0.0.1")).open(
                    Origin("api.example", port, tls=True), 30.0
                )
            assert f"TLS with api.example:{port} failed: " in caught.value.message
            await asyncio.sleep(0.02)
            return caught.value

    assert asyncio.run(run()).code == "upstream_tls_failed"


def test_an_address_that_hangs_up_during_the_handshake_is_followed_by_the_next() -> None:
    async def run() -> tuple[list[str], str]:
        asked: list[str] = []

        async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            asked.append(writer.get_extra_info("sockname")[0])
            try:
                await reader.read(1)
            finally:
                writer.close()

        first = await asyncio.start_server(accept, "127.0.0.1", 0)
        port = first.sockets[0].getsockname()[1]
        second = await asyncio.start_server(accept, "127.0.0.2", port)
        async with first, second:
            pool = Pool(UpstreamLimits(), resolver=has("127.0.0.1", "127.0.0.2"))
            with pytest.raises(UpstreamError) as caught:
                await pool.open(Origin("api.example", port, tls=True), 30.0)
        return asked, caught.value.code

    asked, code = asyncio.run(run())
    assert asked == ["127.0.0.1", "127.0.0.2"]
    assert code == "upstream_connect_failed"


def test_a_unix_socket_is_connected_to_and_named(tmp_path: Path) -> None:
    path = str(tmp_path / "model.sock")
    code, message = failure(has(), Origin("localhost", 80, unix=path))
    assert (code, message) == ("upstream_connect_failed", f"cannot connect to {path}: {os.strerror(errno.ENOENT)}")

    async def run() -> None:
        async with await asyncio.start_unix_server(hold, path):
            pool = Pool(UpstreamLimits(), resolver=has())
            connection = await pool.open(Origin("localhost", 80, unix=path), 30.0)
            assert pool.connections == {connection}
            connection.close()
            await asyncio.sleep(0.02)

    asyncio.run(run())


def test_a_closed_pool_keeps_no_connection() -> None:
    """Neither those that are idle, nor those that end later, nor those of origins that come later."""

    async def run() -> None:
        async with await asyncio.start_server(hold, "127.0.0.1", 0) as server:
            origin = Origin("127.0.0.1", server.sockets[0].getsockname()[1])
            pool = Pool(UpstreamLimits())
            kept, busy, late = [await pool.open(origin, 30.0) for _ in range(3)]
            pool.idle(origin).put(kept)
            pool.close()
            assert (kept.alive, busy.alive) == (False, True)
            pool.idle(origin).put(busy)
            pool.idle(Origin("localhost", origin.port)).put(late)
            assert (busy.alive, late.alive) == (False, False)
            assert pool.idle(origin).take() is None
            assert pool.idle(origin) is pool.idle(origin)
            await asyncio.sleep(0.02)

    asyncio.run(run())
