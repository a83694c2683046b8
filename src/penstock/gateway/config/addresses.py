"""Parses and validates addresses: where to listen, and the URLs of providers.

An invalid address raises `ValueError`, whose message goes into a `Problem`. No message quotes more of an address than
its port: the rest may come from a variable or contain a password.
"""

import re
from ipaddress import ip_address
from typing import NamedTuple
from urllib.parse import SplitResult, urlsplit

_LISTEN = re.compile(r"(?:\[([^\[\]]+)\]|([^:\[\]]*)):(\d{1,9})")
_HOST = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_.-]*[A-Za-z0-9_])?\.?")
_DEFAULT_PORTS = {"http": 80, "https": 443}
_ANY_ADDRESS = ("0.0.0.0", "::")
_COMPLETIONS = "/chat/completions"


class Address(NamedTuple):
    """A host and a port."""

    host: str
    port: int

    @property
    def local(self) -> bool:
        """Whether only this machine can reach it."""
        return is_loopback(self.host)

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_listen(text: str) -> Address:
    """Parse `host:port` or `[IPv6]:port`."""
    match = _LISTEN.fullmatch(text)
    if match is None:
        raise ValueError(_listen_advice(text))
    host, port = match[1] or match[2], int(match[3])
    if not host:
        raise ValueError(f"has no host; did you mean '127.0.0.1:{port}', or '0.0.0.0:{port}' for other machines too?")
    if port > 65_535:
        raise ValueError("has a port above 65535")
    if match[1]:
        _check_ip(host)
    else:
        _check_host(host)
    return Address(host, port)


def parse_url(url: str) -> SplitResult:
    """Parse and validate a provider's base URL."""
    if "://" not in url:
        raise ValueError("has no scheme; write https:// before it, or http:// for a server of your own")
    if not url.isascii() or not url.isprintable() or " " in url:
        raise ValueError("has a space, or a character that no URL has")
    try:
        parts = urlsplit(url)
    except ValueError:  # its message would quote the URL
        raise ValueError("has a host that cannot be one") from None
    if parts.scheme not in _DEFAULT_PORTS:
        raise ValueError("must begin with https:// or http://")
    if parts.username is not None or parts.password is not None:
        raise ValueError("has a user name or password in it; use api_key or headers instead")
    if parts.query or parts.fragment or url.endswith(("?", "#")):
        raise ValueError("has a query or fragment; a query belongs in path")
    if not parts.hostname:
        raise ValueError("has no host")
    if parts.netloc.startswith("["):
        _check_ip(parts.hostname)
    else:
        _check_host(parts.hostname)
    try:
        port = parts.port
    except ValueError:
        raise ValueError("has a port that is not a number from 1 to 65535") from None
    if port == 0:
        raise ValueError("has a port that is not a number from 1 to 65535")
    if parts.path.rstrip("/").endswith(_COMPLETIONS):
        raise ValueError(f"must end before {_COMPLETIONS}, which is added to it")
    return parts


def check_host_name(text: str) -> None:
    """Validate a host name or an IP address without a port."""
    if ":" in text:
        _check_ip(text.removeprefix("[").removesuffix("]"))
    else:
        _check_host(text)


def complete(address: str, default_url: str) -> str:
    """The base URL of a server from a host, host:port or URL; missing parts are taken from the default URL.

    A server that listens on all interfaces (0.0.0.0) is called on loopback.
    """
    default = urlsplit(default_url)
    scheme, mark, rest = address.strip().rstrip("/").rpartition("://")
    host_port, slash, path = rest.partition("/")
    if "@" in host_port:
        return address  # for `parse_url` to refuse
    host, port = _split_host_port(host_port)
    if not host or host in _ANY_ADDRESS:
        host = default.hostname or ""
    if not port and not mark:
        port = str(default.port or "")
    host_port = (f"[{host}]" if ":" in host else host) + (f":{port}" if port else "")
    path = slash + path
    return f"{scheme or default.scheme}://{host_port}{path if path.endswith(default.path) else path + default.path}"


def is_loopback(host: str) -> bool:
    """Whether a host is a loopback address, which only this machine can reach."""
    if host.lower() == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def is_same_address(listen: Address, url: SplitResult) -> bool:
    """Whether a URL points to the address where Penstock itself listens."""
    host = url.hostname or ""
    port = url.port or _DEFAULT_PORTS[url.scheme]
    if port != listen.port:
        return False
    serves_loopback = listen.local or listen.host in _ANY_ADDRESS
    return host == listen.host.lower() or (serves_loopback and (is_loopback(host) or host in _ANY_ADDRESS))


def _listen_advice(text: str) -> str:
    if "://" in text:
        return "must be host:port, without a scheme"
    if text.isdigit():
        return f"has no host; did you mean '127.0.0.1:{text}'?"
    if text.startswith("["):
        return "must be [IPv6]:port, such as [::1]:8080"
    if text.count(":") > 1:
        return "must have its IPv6 address in brackets: [::1]:8080"
    return "must be host:port, such as 127.0.0.1:8080"


def _check_host(host: str) -> None:
    if host.replace(".", "").isdigit():
        _check_ip(host)
    elif not _HOST.fullmatch(host):
        raise ValueError("has a host that cannot be one")


def _check_ip(host: str) -> None:
    try:
        ip_address(host)
    except ValueError:
        raise ValueError("has a host that is not an IP address") from None


def _split_host_port(host_port: str) -> tuple[str, str]:
    if host_port.startswith("["):
        host, _, port = host_port[1:].partition("]")
        return host, port.lstrip(":")
    if host_port.count(":") > 1:
        return host_port, ""
    host, _, port = host_port.partition(":")
    return host, port
