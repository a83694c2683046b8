"""Addresses, taken apart and judged: where to listen, and where a provider is.

What is wrong is a `ValueError` whose message goes into a `Problem`. No message quotes more of an address than its
port: the rest may have come out of a variable, or hold a password.
"""

import re
from ipaddress import ip_address
from typing import NamedTuple
from urllib.parse import SplitResult, urlsplit

_LISTEN = re.compile(r"(?:\[([^\[\]]+)\]|([^:\[\]]*)):(\d{1,9})")
_HOST = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_.-]*[A-Za-z0-9_])?\.?")
_DEFAULT_PORTS = {"http": 80, "https": 443}
_EVERYWHERE = ("0.0.0.0", "::")
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
    """Take `host:port` or `[IPv6]:port` apart."""
    found = _LISTEN.fullmatch(text)
    if found is None:
        raise ValueError(_listen_advice(text))
    host, port = found[1] or found[2], int(found[3])
    if not host:
        raise ValueError(f"has no host; did you mean '127.0.0.1:{port}', or '0.0.0.0:{port}' for other machines too?")
    if port > 65_535:
        raise ValueError("has a port above 65535")
    if found[1]:
        _check_ip(host)
    else:
        _check_host(host)
    return Address(host, port)


def parse_url(url: str) -> SplitResult:
    """Judge a provider's base URL, and take it apart."""
    if "://" not in url:
        raise ValueError("has no scheme; write https:// before it, or http:// for a server of your own")
    if not url.isascii() or not url.isprintable() or " " in url:
        raise ValueError("has a space, or a character that no URL has")
    try:
        parts = urlsplit(url)
    except ValueError:  # whose words would quote the URL
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
    """Judge the name of a host, or an IP address, that stands by itself."""
    if ":" in text:
        _check_ip(text.removeprefix("[").removesuffix("]"))
    else:
        _check_host(text)


def complete(address: str, default_url: str) -> str:
    """The base URL of a server by what its variable says, be it a host, host:port or URL; the rest is the default's.

    A server that listens everywhere is called on this machine.
    """
    default = urlsplit(default_url)
    scheme, mark, rest = address.strip().rstrip("/").rpartition("://")
    place, slash, path = rest.partition("/")
    if "@" in place:
        return address  # for `parse_url` to refuse
    host, port = _split_place(place)
    if not host or host in _EVERYWHERE:
        host = default.hostname or ""
    if not port and not mark:
        port = str(default.port or "")
    place = (f"[{host}]" if ":" in host else host) + (f":{port}" if port else "")
    path = slash + path
    return f"{scheme or default.scheme}://{place}{path if path.endswith(default.path) else path + default.path}"


def is_loopback(host: str) -> bool:
    """Whether a host is this machine, and reachable from it alone."""
    if host.lower() == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def same_place(listen: Address, url: SplitResult) -> bool:
    """Whether a URL leads to where Penstock itself listens."""
    host = url.hostname or ""
    port = url.port or _DEFAULT_PORTS[url.scheme]
    if port != listen.port:
        return False
    here = listen.local or listen.host in _EVERYWHERE
    return host == listen.host.lower() or (here and (is_loopback(host) or host in _EVERYWHERE))


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


def _split_place(place: str) -> tuple[str, str]:
    if place.startswith("["):
        host, _, port = place[1:].partition("]")
        return host, port.lstrip(":")
    if place.count(":") > 1:
        return place, ""
    host, _, port = place.partition(":")
    return host, port
