"""A remote provider: where its API is, and how a request to it looks on the wire."""

from base64 import b64encode
from collections.abc import Callable, Mapping
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from urllib.parse import unquote_to_bytes, urlsplit

from msgspec import Struct

from penstock.http.client import UpstreamConnection
from penstock.http.pool import Origin, Pool
from penstock.http.sockets import Proxy, authority

_PORTS = {"http": 80, "https": 443}
# Why a proxy cannot be used that the environment names.
_NO_URL = "what the environment names as the proxy is not a URL"
_OTHER_KIND = "the environment names a proxy of another kind; only those can be used whose URL begins with http://"


class RemoteEndpoint(Struct, frozen=True):
    """One URL to which requests are sent. Its head holds the credential, so it is never shown."""

    pool: Pool
    origin: Origin
    head: bytes
    kept: Callable[[], UpstreamConnection | None]
    """A connection to it that was kept, if there is one."""

    def request(self, body: bytes) -> bytes:
        """The whole request that carries the body."""
        return b"%bcontent-length: %d\r\n\r\n%b" % (self.head, len(body), body)

    async def open(self, timeout_s: float) -> UpstreamConnection:
        """A fresh connection to it; raises `UpstreamError`."""
        return await self.pool.open(self.origin, timeout_s)

    def __repr__(self) -> str:
        return f"Endpoint({self.origin!r})"


class Remote:
    """Connections to remote providers, through proxies where the environment says so."""

    def __init__(self, pool: Pool, environment: Mapping[str, str]) -> None:
        self._pool = pool
        self._environment = environment

    def endpoint(self, url: str, headers: dict[str, str], *, method: str = "POST") -> RemoteEndpoint:
        """The endpoint at a URL, with this method and these headers on every request to it."""
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port or _PORTS[parts.scheme]
        origin = Origin(host, port, tls=parts.scheme == "https", proxy=self._proxy(parts.scheme, host, port))
        path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        named = f"[{host}]" if ":" in host else host
        place = named if port == _PORTS[parts.scheme] else f"{named}:{port}"
        lines = [
            f"{method} {path} HTTP/1.1",
            f"host: {place}",
            "content-type: application/json",
            "accept: application/json, text/event-stream",
            "accept-encoding: identity",
            "user-agent: penstock",
            *(f"{name}: {value}" for name, value in headers.items()),
            "",
        ]
        head = "\r\n".join(lines).encode("latin-1")
        return RemoteEndpoint(self._pool, origin, head, self._pool.shelf(origin).take)

    def _proxy(self, scheme: str, host: str, port: int) -> Proxy | None:
        """The proxy to go through, by the usual variables; None for none."""
        found = self._variable(f"{scheme}_proxy") or self._variable("all_proxy")
        if not found or _is_exempt(host, port, self._variable("no_proxy")):
            return None
        try:
            parts = urlsplit(found if "://" in found else f"http://{found}")
            proxy = Proxy(parts.hostname or "", parts.port or 80, _authorization(parts.username, parts.password))
        except ValueError:  # whose words may be a part of a password
            return Proxy("", 0, defect=_NO_URL)
        if parts.scheme == "http" and proxy.host:
            return proxy
        return Proxy("", 0, defect=_OTHER_KIND if proxy.host else _NO_URL)

    def _variable(self, name: str) -> str:
        return self._environment.get(name) or self._environment.get(name.upper()) or ""


def _authorization(user: str | None, password: str | None) -> str:
    """What shows a proxy who asks, by the URL in which its name and its password stand escaped."""
    if user is None:
        return ""
    shown = unquote_to_bytes(user) + b":" + unquote_to_bytes(password or "")
    return f"Basic {b64encode(shown).decode()}"


def _is_exempt(host: str, port: int, no_proxy: str) -> bool:
    """Whether `NO_PROXY` names the host, or a network that it is in.

    Loopback is always exempt: a proxy elsewhere cannot reach it.
    """
    address = _address(host)
    if host == "localhost" or (address is not None and address.is_loopback):
        return True
    for entry in filter(None, (part.strip().lower() for part in no_proxy.split(","))):
        name = entry.removeprefix("*").removeprefix(".")
        if entry == "*" or name in (host, authority(host, port)) or (name and host.endswith(f".{name}")):
            return True
        if address is not None and _is_within(address, entry):
            return True
    return False


def _address(host: str) -> IPv4Address | IPv6Address | None:
    try:
        return ip_address(host)
    except ValueError:
        return None


def _is_within(address: IPv4Address | IPv6Address, network: str) -> bool:
    """Whether an address is in a network, or is the address that stands there, in whatever spelling."""
    try:
        return address in ip_network(network.strip("[]"), strict=False)
    except ValueError:
        return False
