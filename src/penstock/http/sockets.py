"""Sockets to upstreams: straight to a host's addresses, or through the tunnel of a proxy.

1. An address that does not answer keeps nobody from the next one: that is tried soon, beside it, and the first that
   takes the connection is used.
2. What a proxy is shown of a user is in nothing that is shown of the proxy.
"""

import asyncio
import socket
from collections import deque
from collections.abc import Sequence

from msgspec import Struct

# How long an address is alone, before the next is tried beside it: most that answer at all have answered by then.
_HEAD_START_S = 0.25
_MAX_HEAD = 16_384


class Proxy(Struct, frozen=True):
    """Where an HTTP proxy is, and what it is shown as `Proxy-Authorization`, if anything.

    One that has a defect cannot be used, and nobody is asked without it.
    """

    host: str
    port: int
    authorization: str = ""
    defect: str = ""

    def __repr__(self) -> str:
        return f"Proxy({self.host!r}, {self.port!r})"


def authority(host: str, port: int) -> str:
    """A host and a port, as they stand in a URL."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


async def reach(addresses: Sequence[str], port: int, timeout_s: float) -> tuple[socket.socket, str]:
    """A socket to the first of the addresses that takes a connection, and that address.

    Each has its turn within the time, however short that is. Raises `OSError` if none of them takes one.
    """
    head_start_s = min(_HEAD_START_S, timeout_s / (len(addresses) + 1))
    waiting = deque(addresses)
    tried: dict[asyncio.Task[socket.socket], str] = {}
    refused: BaseException = OSError("the name has no address")
    try:
        while waiting or tried:
            if waiting:
                address = waiting.popleft()
                tried[asyncio.create_task(_connected(address, port))] = address
            patience_s = head_start_s if waiting else None
            done, _ = await asyncio.wait(tried, timeout=patience_s, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                error = task.exception()
                if error is None:
                    return task.result(), tried.pop(task)
                del tried[task]
                refused = error
    finally:
        for task in tried:
            if not task.cancel() and task.exception() is None:
                task.result().close()  # it has come too late
    raise refused


async def open_tunnel(proxy: Proxy, host: str, port: int, timeout_s: float) -> socket.socket:
    """A socket to the host through the proxy's CONNECT."""
    if proxy.defect:
        raise OSError(proxy.defect)
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(proxy.host, proxy.port, type=socket.SOCK_STREAM)
    addresses = list(dict.fromkeys(str(address[0]) for *_, address in found))
    tunnel, _ = await reach(addresses, proxy.port, timeout_s)
    named = authority(host, port)
    lines = [f"CONNECT {named} HTTP/1.1", f"host: {named}"]
    if proxy.authorization:
        lines.append(f"proxy-authorization: {proxy.authorization}")
    try:
        await loop.sock_sendall(tunnel, "\r\n".join([*lines, "", ""]).encode())
        head = b""
        while b"\r\n\r\n" not in head and len(head) < _MAX_HEAD:
            data = await loop.sock_recv(tunnel, 1)  # what follows the head is the host's
            if not data:
                break
            head += data
        if head.split(b" ", 2)[1:2] != [b"200"]:
            said = head.partition(b"\r\n")[0].decode("latin-1")
            raise OSError(f"the proxy refused the tunnel: {said[:200]!r}")
    except BaseException:
        tunnel.close()
        raise
    return tunnel


async def _connected(address: str, port: int) -> socket.socket:
    # The address is written in figures, so nobody is asked for it.
    ((family, kind, protocol, _, place), *_) = socket.getaddrinfo(
        address, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST
    )
    connecting = socket.socket(family, kind, protocol)
    try:
        connecting.setblocking(False)
        await asyncio.get_running_loop().sock_connect(connecting, place)
    except BaseException:
        connecting.close()
        raise
    return connecting
