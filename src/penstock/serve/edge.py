"""The edge of the gateway towards clients and proxies: TLS of the listeners, CORS, and the address of the client.

1. TLS. Certificates are loaded again when their files change; `Certificates` looks every ten seconds and after a
   reload.
2. CORS. A browser lets a page read a response only if the response names the page's origin. The configuration lists the
   origins; `CorsPolicy` makes the headers. They are part of the request's fixed headers, so that every response has
   them: streams, errors, and responses to cached heads.
3. `X-Forwarded-For` is what its sender wants it to be. Only proxies that the configuration lists are believed, from the
   last entry to the first: the first address that is not a listed proxy is the client.
"""

import asyncio
import ipaddress
import re
from collections.abc import Iterable, Mapping

from penstock.errors import ConfigError, Problem
from penstock.gateway.config.settings import TlsSettings
from penstock.gateway.config.snapshot import Config
from penstock.http.exchange import HttpRequest
from penstock.http.tls import ListenerTls
from penstock.serve.telemetry.log import Log

_LOOK_S = 10.0
_MAX_FORWARDED = 32
# The names of headers, as a preflight request lists them.
_NAMES = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~, -]{1,2000}")
_DAY_S = 86_400

IpNetwork = ipaddress.IPv4Network | ipaddress.IPv6Network


def open_tls(settings: TlsSettings | None, section: str, source: str) -> ListenerTls | None:
    """The TLS of a listener; None if it has none. Raises `ConfigError` if its files cannot be used."""
    if settings is None:
        return None
    try:
        return ListenerTls(settings.certificate, settings.key, settings.client_ca)
    except OSError as error:
        raise ConfigError((Problem(source, None, f"{section}.tls", _reason(error)),)) from error


def check_tls(config: Config) -> None:
    """Raise `ConfigError` if the TLS files of a listener cannot be used."""
    open_tls(config.server.tls, "server", config.source)
    open_tls(config.admin.tls, "admin", config.source)


def _reason(error: OSError) -> str:
    if error.filename is not None:
        return f"cannot read {error.filename}: {error.strerror}"
    return f"certificate and key cannot be used: {error.strerror or error}; they must be PEM files that belong together"


class Certificates:
    """Looks for renewed certificates while the process serves."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._listeners: list[ListenerTls] = []
        self._timer: asyncio.TimerHandle | None = None

    def watch(self, tls: ListenerTls | None) -> None:
        """Look at the files of a listener from now on."""
        if tls is not None:
            self._listeners.append(tls)
            if self._timer is None:
                self._look()

    def refresh(self) -> None:
        """Load the certificates whose files have changed."""
        for tls in self._listeners:
            try:
                if tls.refresh():
                    self._log.write("a renewed TLS certificate was loaded")
            except OSError as error:
                self._log.warning(f"a TLS certificate was not renewed, the old one stays: {_reason(error)}")

    def close(self) -> None:
        """Stop."""
        if self._timer is not None:
            self._timer.cancel()

    def _look(self) -> None:
        self.refresh()
        self._timer = asyncio.get_running_loop().call_later(_LOOK_S, self._look)


class CorsPolicy:
    """The origins whose pages can call the gateway. `*` stands for all of them."""

    def __init__(self, origins: Iterable[str]) -> None:
        self._origins = frozenset(origin.lower().rstrip("/") for origin in origins)
        self._every = "*" in self._origins

    def allows(self, origin: str) -> bool:
        """Whether a page of this origin can call the gateway."""
        return self._every or origin.lower() in self._origins

    def headers(self, request: HttpRequest) -> str:
        """The headers that every response to a request has."""
        origin = request.headers.get("origin")
        if origin is None or not self.allows(origin):
            return "" if self._every else "vary: origin\r\n"
        # Keys are sent in a header, which is no "credential" in the sense of CORS, so `*` exposes all response headers.
        allowed = "*" if self._every else origin
        lines = f"access-control-allow-origin: {allowed}\r\naccess-control-expose-headers: *\r\n"
        return lines if self._every else f"{lines}vary: origin\r\n"

    def preflight(self, request: HttpRequest) -> dict[str, str]:
        """The headers of the response to a preflight request, beside `headers`; empty for other requests."""
        origin = request.headers.get("origin", "")
        if "access-control-request-method" not in request.headers or not self.allows(origin):
            return {}
        names = request.headers.get("access-control-request-headers", "")
        return {
            "access-control-allow-methods": "GET, POST, DELETE",
            "access-control-allow-headers": names if _NAMES.fullmatch(names) else "authorization, content-type",
            "access-control-max-age": str(_DAY_S),
        }


class TrustedProxies:
    """Proxies whose `X-Forwarded-For` is believed."""

    def __init__(self, networks: Iterable[str]) -> None:
        self._networks: tuple[IpNetwork, ...] = tuple(map(ipaddress.ip_network, networks))

    def client(self, peer: str, headers: Mapping[str, str]) -> str:
        """The address of the client: that of the connection, or the one that a trusted proxy reports."""
        if not self._networks or not self.trusts(peer):
            return peer
        hops = headers.get("x-forwarded-for", "").rsplit(",", _MAX_FORWARDED)[-_MAX_FORWARDED:]
        for hop in reversed(hops):
            address = _address(hop)
            if not address:
                return peer
            peer = address
            if not self.trusts(address):
                break
        return peer

    def trusts(self, address: str) -> bool:
        """Whether an address is that of a trusted proxy."""
        try:
            parsed = ipaddress.ip_address(address)
        except ValueError:
            return False
        mapped = parsed.ipv4_mapped if isinstance(parsed, ipaddress.IPv6Address) else None
        return any((mapped or parsed) in network for network in self._networks)


def _address(hop: str) -> str:
    """The address in an entry of `X-Forwarded-For`, which may have a port; empty if it has none."""
    text = hop.strip()
    if text.startswith("["):
        text = text[1:].partition("]")[0]
    elif text.count(":") == 1:
        text = text.partition(":")[0]
    try:
        return str(ipaddress.ip_address(text))
    except ValueError:
        return ""
