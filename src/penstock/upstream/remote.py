"""A remote provider: the address of its API, the proxy to it, and the bytes of a request to it."""

from base64 import b64encode
from collections.abc import Callable, Mapping
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from urllib.parse import unquote_to_bytes, urlsplit

from msgspec import Struct

from penstock.http.pool import Origin, Pool
from penstock.http.sockets import Proxy, authority
from penstock.http.upstream_connection import RequestBytes, UpstreamConnection

# Bytes of a body. Copying a larger one would block the event loop for milliseconds.
_LARGE = 262_144
_PORTS = {"http": 80, "https": 443}
# Why the proxy that the environment names cannot be used. The messages do not quote it: it may hold a password.
_NO_URL = "the proxy that the environment names is not a URL"
_OTHER_KIND = "the environment names a proxy of an unsupported kind; only URLs that begin with http:// are supported"


class RemoteEndpoint(Struct, frozen=True):
    """One URL to which requests are sent. Its head has the API key, so `repr` does not show it."""

    pool: Pool
    origin: Origin
    head: bytes
    idle_connection: Callable[[], UpstreamConnection | None]
    """Takes an idle connection to the origin from the pool, if there is one."""
    secrets: tuple[str, ...] = ()
    """Secrets that the configuration does not have: none."""

    def request(self, body: bytes, headers: bytes = b"") -> RequestBytes:
        """The bytes of a whole request with this body. `headers` are lines of further headers."""
        head = b"%b%bcontent-length: %d\r\n\r\n" % (self.head, headers, len(body))
        return head + body if len(body) < _LARGE else (head, body)

    async def large_request(self, body: bytes, headers: bytes = b"") -> RequestBytes:
        """The bytes of a request with a large body, made at once: nothing depends on the bytes of the body."""
        return self.request(body, headers)

    async def open(self, timeout_s: float) -> UpstreamConnection:
        """Open a new connection; raises `UpstreamError`."""
        return await self.pool.open(self.origin, timeout_s)

    def __repr__(self) -> str:
        return f"Endpoint({self.origin!r})"


class Remote:
    """Makes endpoints of remote providers, behind the proxies that the environment names."""

    def __init__(self, pool: Pool, environment: Mapping[str, str]) -> None:
        self._pool = pool
        self._environment = environment

    def endpoint(self, url: str, headers: dict[str, str], *, method: str = "POST") -> RemoteEndpoint:
        """The endpoint at a URL; every request to it has this method and these headers."""
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port or _PORTS[parts.scheme]
        origin = Origin(host, port, tls=parts.scheme == "https", proxy=self._proxy(parts.scheme, host, port))
        path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        host_in_url = f"[{host}]" if ":" in host else host
        host_header = host_in_url if port == _PORTS[parts.scheme] else f"{host_in_url}:{port}"
        lines = [
            f"{method} {path} HTTP/1.1",
            f"host: {host_header}",
            "content-type: application/json",
            "accept: application/json, text/event-stream",
            "accept-encoding: identity",
            *(f"{name}: {value}" for name, value in {"user-agent": "penstock", **headers}.items()),
            "",
        ]
        head = "\r\n".join(lines).encode("latin-1")
        return RemoteEndpoint(self._pool, origin, head, self._pool.idle(origin).take)

    def _proxy(self, scheme: str, host: str, port: int) -> Proxy | None:
        """The proxy for a host, by `http_proxy`, `https_proxy`, `all_proxy` and `no_proxy`; None for none."""
        value = self._variable(f"{scheme}_proxy") or self._variable("all_proxy")
        if not value or _is_exempt(host, port, self._variable("no_proxy")):
            return None
        try:
            parts = urlsplit(value if "://" in value else f"http://{value}")
            proxy = Proxy(parts.hostname or "", parts.port or 80, _authorization(parts.username, parts.password))
        except ValueError:  # its message may quote a part of a password
            return Proxy("", 0, defect=_NO_URL)
        if parts.scheme == "http" and proxy.host:
            return proxy
        return Proxy("", 0, defect=_OTHER_KIND if proxy.host else _NO_URL)

    def _variable(self, name: str) -> str:
        return self._environment.get(name) or self._environment.get(name.upper()) or ""


def _authorization(user: str | None, password: str | None) -> str:
    """The `proxy-authorization` value (Basic) for the percent-encoded user and password of a proxy's URL."""
    if user is None:
        return ""
    credentials = unquote_to_bytes(user) + b":" + unquote_to_bytes(password or "")
    return f"Basic {b64encode(credentials).decode()}"


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
    """Whether an address is in a network, or equals an address, in any notation."""
    try:
        return address in ip_network(network.strip("[]"), strict=False)
    except ValueError:
        return False
