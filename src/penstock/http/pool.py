"""The pool: connections to upstreams, kept for the next request.

Certificates are always verified. Names that resolve to addresses which are never a provider's are rejected (SSRF).
"""

import asyncio
import errno
import os
import socket
import ssl
from collections import deque
from collections.abc import Callable
from ipaddress import ip_address
from typing import Protocol

from msgspec import Struct

from penstock.http.client import UpstreamConnection, UpstreamError
from penstock.http.limits import UpstreamLimits
from penstock.http.sockets import Proxy, authority, open_tunnel, reach
from penstock.http.ssrf import is_forbidden


class Origin(Struct, frozen=True):
    """Where an upstream is: host and port, or the path of a unix socket; with TLS or without; behind a proxy or not."""

    host: str
    port: int
    tls: bool = False
    unix: str = ""
    proxy: Proxy | None = None


class Resolver(Protocol):
    """Who knows the addresses of a host."""

    async def __call__(self, host: str, port: int, /) -> list[str]:
        """Its addresses, the best one first; raises `socket.gaierror` where it has none."""


async def resolve(host: str, port: int) -> list[str]:
    """The addresses that the system knows, asked beside the loop."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


class IdleConnections:
    """The connections to one origin that wait for the next request."""

    def __init__(self, limits: UpstreamLimits, time: Callable[[], float], connections: set[UpstreamConnection]) -> None:
        self._time = time
        self._idle_s = limits.idle_s
        self._room = limits.max_idle
        self._connections = connections
        self._idle: deque[UpstreamConnection] = deque()

    def take(self) -> UpstreamConnection | None:
        """The one that was used last, if there is one that can still be used."""
        idle = self._idle
        while idle:
            connection = idle.pop()
            now = self._time()
            if now < connection.kept_until and now < connection.retires and connection.alive:
                return connection
            connection.close()
        return None

    def put(self, connection: UpstreamConnection) -> None:
        """Keep a connection that is free, as long as it may be used; or forget it, if it is gone."""
        if not connection.alive:
            self._connections.discard(connection)
        elif len(self._idle) >= self._room:
            connection.close()
        else:
            connection.kept_until = self._time() + self._idle_s
            self._idle.append(connection)

    def close(self) -> None:
        """Close them, and whichever is put here from now on."""
        self._room = 0
        while self._idle:
            self._idle.pop().close()


class Pool:
    """Connections to upstreams, kept for the next request."""

    def __init__(self, limits: UpstreamLimits, tls: ssl.SSLContext | None = None, resolver: Resolver = resolve) -> None:
        self._loop = asyncio.get_running_loop()
        self._limits = limits
        self._tls = tls
        self._resolve = resolver
        self._idle: dict[Origin, IdleConnections] = {}
        self.connections: set[UpstreamConnection] = set()
        self._closed = False

    def idle(self, origin: Origin) -> IdleConnections:
        """Where connections to the origin are kept."""
        idle = self._idle.get(origin)
        if idle is None:
            idle = self._idle[origin] = IdleConnections(self._limits, self._loop.time, self.connections)
            if self._closed:
                idle.close()
        return idle

    async def open(self, origin: Origin, timeout_s: float) -> UpstreamConnection:
        """A fresh connection to the origin."""
        try:
            async with asyncio.timeout(timeout_s):
                return await self._open(origin, timeout_s)
        except TimeoutError:
            message = f"no connection to {_named(origin)} within {timeout_s:g} s"
            raise UpstreamError("upstream_connect_timeout", message) from None
        except ssl.SSLError as error:
            message = f"TLS with {_named(origin)} failed: {error.reason or error}"
            raise UpstreamError("upstream_tls_failed", message) from None
        except socket.gaierror as error:
            raise UpstreamError("upstream_dns_failed", f"cannot resolve {origin.host}: {error.strerror}") from None
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS):
                raise UpstreamError("gateway_overloaded", "the gateway has no room for another connection") from None
            reason = os.strerror(error.errno) if error.errno else error  # asyncio has words of its own
            message = f"cannot connect to {_named(origin)}: {reason}"
            raise UpstreamError("upstream_connect_failed", message) from None

    def close(self) -> None:
        """Close what is idle, and everything else as soon as it is free."""
        self._closed = True
        for idle in self._idle.values():
            idle.close()

    async def _open(self, origin: Origin, timeout_s: float) -> UpstreamConnection:
        loop = self._loop
        put_back = self.idle(origin).put

        def make() -> UpstreamConnection:
            return UpstreamConnection(self._limits, put_back)

        tls = self._context() if origin.tls else None
        name = origin.host if origin.tls else None
        if origin.unix:
            _, connection = await loop.create_unix_connection(make, origin.unix, ssl=tls, server_hostname=name)
        elif origin.proxy is not None:
            tunnel = await open_tunnel(origin.proxy, origin.host, origin.port, timeout_s)
            _, connection = await loop.create_connection(make, sock=tunnel, ssl=tls, server_hostname=name)
        else:
            connection = await self._connect(make, origin, tls, timeout_s)
        self.connections.add(connection)
        return connection

    async def _connect(
        self, make: Callable[[], UpstreamConnection], origin: Origin, tls: ssl.SSLContext | None, timeout_s: float
    ) -> UpstreamConnection:
        """A connection to the first of the host's addresses that takes one."""
        name = origin.host if origin.tls else None
        addresses = await self._addresses(origin)
        while True:
            reached, address = await reach(addresses, origin.port, timeout_s)
            try:
                _, connection = await self._loop.create_connection(make, sock=reached, ssl=tls, server_hostname=name)
            except ssl.SSLError:
                raise
            except OSError:
                addresses.remove(address)  # it broke off while TLS began
                if not addresses:
                    raise
            else:
                return connection

    async def _addresses(self, origin: Origin) -> list[str]:
        """The addresses of a host. What its name resolves to is checked; an address in the configuration is not."""
        if _is_address(origin.host):
            return [origin.host]
        found = await self._resolve(origin.host, origin.port)
        good = [address for address in found if not is_forbidden(address)]
        if found and not good:
            message = f"{origin.host} resolves to {found[0]}, which is never a provider's address"
            raise UpstreamError("upstream_forbidden_address", message)
        return good

    def _context(self) -> ssl.SSLContext:
        if self._tls is None:
            self._tls = ssl.create_default_context()
        return self._tls


def _is_address(host: str) -> bool:
    try:
        ip_address(host.partition("%")[0])
    except ValueError:
        return False
    return True


def _named(origin: Origin) -> str:
    return origin.unix or authority(origin.host, origin.port)
