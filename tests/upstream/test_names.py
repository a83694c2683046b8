"""Host names of upstreams (U3, U4): slow ones, unknown ones, and ones with addresses that are never a provider's."""

import asyncio
import os
import socket
import time
from collections.abc import Awaitable, Callable
from contextlib import ExitStack, closing
from functools import partial

import pytest
import uvloop

from penstock.http.limits import UpstreamLimits
from penstock.http.pool import Origin, Pool, Resolver
from penstock.http.ssrf import is_forbidden
from penstock.http.upstream_connection import UpstreamConnection, UpstreamError
from tests.promptness import Late, in_time, prompt


def answers(*addresses: str, after_s: float = 0.0) -> Resolver:
    """A resolver that has these addresses for every host."""

    async def resolve(_host: str, _port: int) -> list[str]:
        await asyncio.sleep(after_s)
        if not addresses:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return list(addresses)

    return resolve


def opened(
    resolver: Resolver, then: Callable[[Pool, Origin], Awaitable[UpstreamConnection]], host: str = "api.example"
) -> str:
    """The result of opening a connection to a host, beside a real listener: `connected`, or the code of the failure."""

    async def run() -> str:
        server = await asyncio.start_server(lambda _reader, writer: writer.close(), "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        pool = Pool(UpstreamLimits(), resolver=resolver)
        try:
            connection = await then(pool, Origin(host, port))
        except UpstreamError as error:
            return error.code if host in error.message else "a failure without the name"
        finally:
            server.close()
        connection.close()
        return "connected"

    return asyncio.run(run())


def at_once(pool: Pool, origin: Origin) -> Awaitable[UpstreamConnection]:
    return pool.open(origin, 2.0)


@pytest.mark.parametrize(
    ("addresses", "outcome"),
    {
        "the machine itself": (["127.0.0.1"], "connected"),
        "one where nobody listens, and another": (["127.0.0.2", "127.0.0.1"], "connected"),
        "no address": ([], "upstream_dns_failed"),
        "a cloud's secrets": (["169.254.169.254"], "upstream_forbidden_address"),
        "the same, written for IPv6": (["::ffff:169.254.169.254"], "upstream_forbidden_address"),
        "a link": (["fe80::1%eth0"], "upstream_forbidden_address"),
        "everybody": (["224.0.0.1", "ff02::1"], "upstream_forbidden_address"),
        "nobody": (["0.0.0.0", "::"], "upstream_forbidden_address"),
        "a good one among bad ones": (["169.254.169.254", "127.0.0.1"], "connected"),
    }.values(),
)
def test_a_name_leads_to_a_provider_or_is_refused(addresses: list[str], outcome: str) -> None:
    assert opened(answers(*addresses), at_once) == outcome


FORBIDDEN = (
    # Link-local addresses, where most clouds serve instance metadata; multicast; unspecified.
    *("169.254.169.254", "169.254.170.2", "169.254.0.23", "fe80::a9fe:a9fe", "fe80::1%eth0"),
    *("224.0.0.1", "239.255.255.250", "ff02::1", "0.0.0.0", "::", "255.255.255.255"),
    # Metadata services of AWS, Alibaba, Azure, Google, Oracle, Scaleway and Akamai at other addresses.
    *("fd00:ec2::254", "fd00:ec2::23", "fd00:ec2:0:0:0:0:0:fd", "100.100.100.200", "fd00:100::100:200"),
    *("168.63.129.16", "fd20:ce::254", "fd00:c1::a9fe:a9fe", "192.0.0.192", "fd00:42::42", "fd00:a9fe:a9fe::1"),
    # The same inside an IPv6 address: mapped, compatible, translated, NAT64, 6to4, Teredo, ISATAP.
    *("::ffff:169.254.169.254", "::ffff:a9fe:a9fe", "::ffff:100.100.100.200", "::ffff:0.0.0.0", "::169.254.169.254"),
    *("::ffff:0:169.254.169.254", "64:ff9b::169.254.169.254", "64:ff9b::168.63.129.16", "64:ff9b::100.100.100.200"),
    # NAT64 for local use, with a prefix of 96, 48, 56 and 64 bits; translators ignore the bits after the IPv4 address.
    *("64:ff9b:1::169.254.169.254", "64:ff9b:1:fffe::169.254.169.254", "64:ff9b:1:a9fe:a9:fe00::"),
    *(
        "64:ff9b:1:a9:fe:a9fe::",
        "64:ff9b:1:12a9:fe:a9fe::",
        "64:ff9b:1::a9:fea9:fe00:0",
        "64:ff9b:1:1234:a9:fea9:fe00:0",
    ),
    *("64:ff9b:1:a9fe:a9:fe00::1", "64:ff9b:1:a9:fe:a9fe:0:1", "64:ff9b:1::a9:fea9:fe00:1", "64:ff9b:1:a8:3f:8110::"),
    *("2002:a9fe:a9fe::1", "2002:6464:64c8::", "2001:0:4136:e378:8000:63bf:5601:5601"),
    *("2001:db8::5efe:169.254.169.254", "2001:db8::200:5efe:169.254.169.254", "fe80::5efe:10.0.0.1"),
)


@pytest.mark.parametrize("address", FORBIDDEN)
def test_no_provider_is_at_a_metadata_service(address: str) -> None:
    assert opened(answers(address), at_once) == "upstream_forbidden_address"


ALLOWED = (
    *("127.0.0.1", "10.0.0.7", "172.16.3.4", "192.168.1.20", "100.64.0.1", "100.100.100.201", "203.0.113.7"),
    *("169.253.255.255", "168.63.129.17", "192.0.0.193", "::1", "fd12:3456::7", "fd00::1", "fd00:ec3::254", "fc00::7"),
    *("2606:4700::6810:84e5", "::ffff:10.0.0.7", "::ffff:127.0.0.1", "64:ff9b::104.18.6.192", "64:ff9b::10.0.0.7"),
    *("64:ff9b:1::104.18.6.192", "64:ff9b:1:6812:6:c000::", "2002:6812:6c0::1", "2001:db8::5efe:10.0.0.7"),
    # 104.18.6.192, 104.224.6.192 and 104.18.6.224 after local NAT64 prefixes of 48, 56 and 64 bits.
    *("64:ff9b:1:68:12:6c0::", "64:ff9b:1::68:1206:c000:0", "64:ff9b:1:68e0:6:c000::", "64:ff9b:1:68:e0:6c0::"),
    *("64:ff9b:1:68:12:6e0::", "64:ff9b:1::68:1206:e000:0"),
)


@pytest.mark.parametrize("address", ALLOWED)
def test_providers_may_be_in_private_networks(address: str) -> None:
    """And behind NAT64, where every provider that has no IPv6 address is."""
    assert not is_forbidden(address)


@pytest.mark.slow
@prompt
def test_a_slow_name_holds_no_one_up() -> None:
    delayed = []

    async def then(pool: Pool, origin: Origin, timeout_s: float) -> UpstreamConnection:
        opening = asyncio.create_task(pool.open(origin, timeout_s))
        loop = asyncio.get_running_loop()
        while not opening.done():
            began = loop.time()
            await asyncio.sleep(0.01)
            delayed.append(loop.time() - began - 0.01)
        return await opening

    assert opened(answers("127.0.0.1", after_s=0.6), partial(then, timeout_s=30.0)) == "connected"
    assert opened(answers("127.0.0.1", after_s=60.0), partial(then, timeout_s=0.6)) == "upstream_connect_timeout"
    in_time(max(delayed), 0.5)


def test_an_address_that_is_configured_is_not_questioned() -> None:
    assert opened(answers(), at_once, host="127.0.0.1") == "connected"


# How many addresses drop all packets, before the one that accepts; and the time for all of them.
@pytest.mark.slow
@pytest.mark.parametrize(("silent", "timeout_s"), [(1, 5.0), (3, 5.0), (1, 0.25), (2, 0.2)])
@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
@prompt
def test_an_address_that_does_not_answer_keeps_no_one_from_the_next(
    loop: Callable[[], asyncio.AbstractEventLoop], silent: int, timeout_s: float
) -> None:
    async def run() -> float:
        server = await asyncio.start_server(lambda _reader, writer: writer.close(), "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        addresses = [f"127.0.0.{number}" for number in range(2, 2 + silent)]
        # A server that stays open when this fails would keep uvloop from closing, for ever.
        with ExitStack() as stack, closing(server):
            for address in addresses:
                hold_silent(stack, address, port)
            pool = Pool(UpstreamLimits(), resolver=answers(*addresses, "127.0.0.1"))
            began = time.monotonic()
            try:
                connection = await pool.open(Origin("api.example", port), timeout_s)
            except UpstreamError as error:
                raise Late(error.message) from None
            took_s = time.monotonic() - began
            connection.close()
        await asyncio.sleep(0.05)
        return took_s

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(run())
        files = len(os.listdir("/proc/self/fd"))
        in_time(runner.run(run()), min(1.5, timeout_s))
        assert len(os.listdir("/proc/self/fd")) <= files, "a socket was forgotten"


def test_all_the_addresses_that_do_not_answer_are_one_time_out() -> None:
    async def run() -> str:
        with ExitStack() as stack:
            port = hold_silent(stack, "127.0.0.2", 0)
            hold_silent(stack, "127.0.0.3", port)
            pool = Pool(UpstreamLimits(), resolver=answers("127.0.0.2", "127.0.0.3"))
            with pytest.raises(UpstreamError) as caught:
                await pool.open(Origin("api.example", port), 0.4)
        return caught.value.code

    assert asyncio.run(run()) == "upstream_connect_timeout"


def hold_silent(stack: ExitStack, address: str, port: int) -> int:
    """Listen with a full queue: the kernel drops further connection attempts. Returns the port."""
    silent = stack.enter_context(socket.socket())
    silent.bind((address, port))
    silent.listen(0)
    for _ in range(2):
        filler = stack.enter_context(socket.socket())
        filler.setblocking(False)
        filler.connect_ex(silent.getsockname())
    return int(silent.getsockname()[1])
