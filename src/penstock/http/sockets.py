"""Sockets to upstreams: directly to a host's addresses (happy eyeballs), or through the CONNECT tunnel of a proxy.

1. Happy eyeballs (RFC 8305): connection attempts to several addresses overlap. An address that does not answer does not
   block the next one, which is tried after a short delay; the first established connection is used.
2. The credentials of a proxy appear in no `repr` and in no error message.
"""

import asyncio
import socket
from collections import deque
from collections.abc import Sequence

from msgspec import Struct

# The connection attempt delay (RFC 8305): most addresses that answer at all have answered by then.
_ATTEMPT_DELAY_S = 0.25
_MAX_HEAD = 16_384


class Proxy(Struct, frozen=True):
    """The address of an HTTP proxy, and its `Proxy-Authorization`, if any.

    A proxy with a `defect` cannot be used, and then no connection is made: never a direct one in its place.
    """

    host: str
    port: int
    authorization: str = ""
    defect: str = ""

    def __repr__(self) -> str:
        return f"Proxy({self.host!r}, {self.port!r})"


def authority(host: str, port: int) -> str:
    """A host and a port in the form that URLs use."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


async def connect_any(addresses: Sequence[str], port: int, timeout_s: float) -> tuple[socket.socket, str]:
    """Connect to the first address that accepts (happy eyeballs); returns the socket and that address.

    Every address is tried within the timeout, however short it is. Raises `OSError` if all attempts fail.
    """
    delay_s = min(_ATTEMPT_DELAY_S, timeout_s / (len(addresses) + 1))
    waiting = deque(addresses)
    attempts: dict[asyncio.Task[socket.socket], str] = {}
    failure: BaseException = OSError("the name has no address")
    try:
        while waiting or attempts:
            if waiting:
                address = waiting.popleft()
                attempts[asyncio.create_task(_connect(address, port))] = address
            next_after_s = delay_s if waiting else None
            done, _ = await asyncio.wait(attempts, timeout=next_after_s, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                error = task.exception()
                if error is None:
                    return task.result(), attempts.pop(task)
                del attempts[task]
                failure = error
    finally:
        for task in attempts:
            if not task.cancel() and task.exception() is None:
                task.result().close()  # connected, but another attempt was faster
    raise failure


async def open_tunnel(proxy: Proxy, host: str, port: int, timeout_s: float) -> socket.socket:
    """Open a socket to the host through the proxy's CONNECT."""
    if proxy.defect:
        raise OSError(proxy.defect)
    loop = asyncio.get_running_loop()
    resolved = await loop.getaddrinfo(proxy.host, proxy.port, type=socket.SOCK_STREAM)
    addresses = list(dict.fromkeys(str(address[0]) for *_, address in resolved))
    tunnel, _ = await connect_any(addresses, proxy.port, timeout_s)
    target = authority(host, port)
    lines = [f"CONNECT {target} HTTP/1.1", f"host: {target}"]
    if proxy.authorization:
        lines.append(f"proxy-authorization: {proxy.authorization}")
    try:
        await loop.sock_sendall(tunnel, "\r\n".join([*lines, "", ""]).encode())
        head = b""
        while b"\r\n\r\n" not in head and len(head) < _MAX_HEAD:
            data = await loop.sock_recv(tunnel, 1)  # byte by byte: the bytes after the head belong to the host
            if not data:
                break
            head += data
        if head.split(b" ", 2)[1:2] != [b"200"]:
            status_line = head.partition(b"\r\n")[0].decode("latin-1")
            raise OSError(f"the proxy refused the tunnel: {status_line[:200]!r}")
    except BaseException:
        tunnel.close()
        raise
    return tunnel


async def _connect(address: str, port: int) -> socket.socket:
    # A numeric address, so there is no DNS query.
    ((family, kind, protocol, _, sockaddr), *_) = socket.getaddrinfo(
        address, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST
    )
    connection = socket.socket(family, kind, protocol)
    try:
        connection.setblocking(False)
        await asyncio.get_running_loop().sock_connect(connection, sockaddr)
    except BaseException:
        connection.close()
        raise
    return connection
