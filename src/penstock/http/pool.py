"""The connection pool: connections to upstreams, reused for later requests (keep-alive).

Certificates are always verified. Host names that resolve to addresses which are never a provider's are rejected, such
as link-local and multicast addresses (SSRF, `ssrf.py`).
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

from penstock.http.limits import UpstreamLimits
from penstock.http.sockets import Proxy, authority, connect_any, open_tunnel
from penstock.http.ssrf import is_forbidden
from penstock.http.upstream_connection import UpstreamConnection, UpstreamError


class Origin(Struct, frozen=True):
    """The address of an upstream: host and port, or the path of a unix socket; TLS or not; a proxy or none."""

    host: str
    port: int
    tls: bool = False
    unix: str = ""
    proxy: Proxy | None = None


class Resolver(Protocol):
    """Resolves a host name."""

    async def __call__(self, host: str, port: int, /) -> list[str]:
        """The addresses of a host, the preferred one first; raises `socket.gaierror` if there are none."""


async def resolve(host: str, port: int) -> list[str]:
    """The addresses of a host from the system's resolver, in a thread."""
    resolved = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[0]) for *_, address in resolved))


class IdleConnections:
    """The idle connections to one origin."""

    def __init__(self, limits: UpstreamLimits, time: Callable[[], float], connections: set[UpstreamConnection]) -> None:
        self._time = time
        self._idle_s = limits.idle_s
        self._max_idle = limits.max_idle
        self._connections = connections
        self._idle: deque[UpstreamConnection] = deque()

    def take(self) -> UpstreamConnection | None:
        """Take the most recently used connection that can still be used, if there is one."""
        idle = self._idle
        while idle:
            connection = idle.pop()
            now = self._time()
            if now < connection.idle_until and now < connection.retires and connection.alive:
                return connection
            connection.close()
        return None

    def put(self, connection: UpstreamConnection) -> None:
        """Store a connection after its response; remove it from the pool if it is closed."""
        if not connection.alive:
            self._connections.discard(connection)
        elif len(self._idle) >= self._max_idle:
            connection.close()
        else:
            connection.idle_until = self._time() + self._idle_s
            self._idle.append(connection)

    def close(self) -> None:
        """Close all, and every connection that is put here later."""
        self._max_idle = 0
        while self._idle:
            self._idle.pop().close()


class Pool:
    """A pool of connections to upstreams."""

    def __init__(self, limits: UpstreamLimits, tls: ssl.SSLContext | None = None, resolver: Resolver = resolve) -> None:
        self._loop = asyncio.get_running_loop()
        self._limits = limits
        self._tls = tls
        self._resolve = resolver
        self._idle: dict[Origin, IdleConnections] = {}
        self.connections: set[UpstreamConnection] = set()
        self._closed = False

    def idle(self, origin: Origin) -> IdleConnections:
        """The idle connections to an origin."""
        idle = self._idle.get(origin)
        if idle is None:
            idle = self._idle[origin] = IdleConnections(self._limits, self._loop.time, self.connections)
            if self._closed:
                idle.close()
        return idle

    async def open(self, origin: Origin, timeout_s: float) -> UpstreamConnection:
        """Open a new connection to an origin; raises `UpstreamError`."""
        try:
            async with asyncio.timeout(timeout_s):
                return await self._open(origin, timeout_s)
        except TimeoutError:
            message = f"no connection to {_describe(origin)} within {timeout_s:g} s"
            raise UpstreamError("upstream_connect_timeout", message) from None
        except ssl.SSLError as error:
            message = f"TLS with {_describe(origin)} failed: {error.reason or error}"
            raise UpstreamError("upstream_tls_failed", message) from None
        except socket.gaierror as error:
            raise UpstreamError("upstream_dns_failed", f"cannot resolve {origin.host}: {error.strerror}") from None
        except UnicodeError:  # of the codec for host names
            raise UpstreamError("upstream_dns_failed", f"{origin.host} cannot be the name of a host") from None
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS):
                raise UpstreamError("gateway_overloaded", "the gateway cannot open another connection") from None
            reason = os.strerror(error.errno) if error.errno else error  # asyncio replaces the system's message
            message = f"cannot connect to {_describe(origin)}: {reason}"
            raise UpstreamError("upstream_connect_failed", message) from None

    def close(self) -> None:
        """Close the idle connections now, and the others after their responses."""
        self._closed = True
        for idle in self._idle.values():
            idle.close()

    async def _open(self, origin: Origin, timeout_s: float) -> UpstreamConnection:
        loop = self._loop
        release = self.idle(origin).put

        def make_connection() -> UpstreamConnection:
            return UpstreamConnection(self._limits, release)

        tls = self._context() if origin.tls else None
        name = origin.host if origin.tls else None
        if origin.unix:
            _, connection = await loop.create_unix_connection(
                make_connection, origin.unix, ssl=tls, server_hostname=name
            )
        elif origin.proxy is not None:
            tunnel = await open_tunnel(origin.proxy, origin.host, origin.port, timeout_s)
            _, connection = await loop.create_connection(make_connection, sock=tunnel, ssl=tls, server_hostname=name)
        else:
            connection = await self._connect(make_connection, origin, tls, timeout_s)
        self.connections.add(connection)
        return connection

    async def _connect(
        self,
        make_connection: Callable[[], UpstreamConnection],
        origin: Origin,
        tls: ssl.SSLContext | None,
        timeout_s: float,
    ) -> UpstreamConnection:
        """Connect to the first of the host's addresses that accepts, and start TLS."""
        name = origin.host if origin.tls else None
        addresses = await self._addresses(origin)
        while True:
            connected, address = await connect_any(addresses, origin.port, timeout_s)
            try:
                _, connection = await self._loop.create_connection(
                    make_connection, sock=connected, ssl=tls, server_hostname=name
                )
            except ssl.SSLError:
                raise
            except OSError:
                addresses.remove(address)  # it closed the connection during the TLS handshake
                if not addresses:
                    raise
            else:
                return connection

    async def _addresses(self, origin: Origin) -> list[str]:
        """The allowed addresses of a host. The SSRF filter is for names only: an operator may configure any address."""
        if is_address(origin.host):
            return [origin.host]
        resolved = await self._resolve(origin.host, origin.port)
        allowed = [address for address in resolved if not is_forbidden(address)]
        if resolved and not allowed:
            message = f"{origin.host} resolves to {resolved[0]}, which is never a provider's address"
            raise UpstreamError("upstream_forbidden_address", message)
        return allowed

    def _context(self) -> ssl.SSLContext:
        if self._tls is None:
            self._tls = ssl.create_default_context()
        return self._tls


def is_address(host: str) -> bool:
    """Whether a host is an IP address, and not a name."""
    try:
        ip_address(host.partition("%")[0])
    except ValueError:
        return False
    return True


def _describe(origin: Origin) -> str:
    return origin.unix or authority(origin.host, origin.port)
