"""AllowedHosts: the hosts that requests may name, and that pages may come from. Guards against DNS rebinding.

A browser lets a page call the host that it was loaded from, and read the response. After DNS rebinding, that host (a
name of the attacker's) resolves to this machine. The request still has the attacker's name in `Host`, which no script
can change. So only hosts are allowed that no attacker can own:

1. `localhost` and the names under it, which always mean this machine (RFC 6761, section 6.3);
2. IP addresses, which are never resolved;
3. the names that the configuration lists.

A page that was loaded from elsewhere is recognised by its `Origin`.
"""

import ipaddress
import re
from collections.abc import Callable, Iterable

# host, host:port, [IPv6] or [IPv6]:port
_AUTHORITY = re.compile(r"(?:\[([^\[\]]*:[^\[\]]*)\]|([^\[\]:]+))(?::\d*)?")
_LOCALHOST = "localhost"


class AllowedHosts:
    """Hosts that are allowed. `names` are those of the configuration; IP addresses may be among them."""

    def __init__(
        self, names: Iterable[str], *, any_address: bool = True, page: Callable[[str], bool] | None = None
    ) -> None:
        """Unless `any_address` is true, only the IP addresses among `names` are allowed.

        `page` returns whether the pages of another origin are allowed.
        """
        self._page = page
        self._names = frozenset(_normalised(name.strip("[]")) for name in names) - {""}
        self._any_address = any_address

    def allows(self, host: str) -> bool:
        """Whether a request with this Host header is allowed. The port is ignored: tunnels change it."""
        name = _name_of(host)
        return self._is_listed(name) or (self._any_address and _is_address(name))

    def allows_origin(self, origin: str, host: str) -> bool:
        """Whether a page of this Origin may call this host.

        It may come from an allowed name, from a loopback address or from the host itself. Other IP addresses may be an
        attacker's. Extensions and desktop apps have schemes of their own, which no web page can have.
        """
        if self._page is not None and self._page(origin):
            return True
        scheme, separator, authority = origin.partition("://")
        if scheme.lower() not in ("http", "https"):
            return separator != ""  # refuses `null`, the origin of sandboxed pages and files
        name = _name_of(authority)
        return self._is_listed(name) or _is_address(name, loopback=True) or (name != "" and name == _name_of(host))

    def _is_listed(self, name: str) -> bool:
        return name in self._names or name == _LOCALHOST or name.endswith(f".{_LOCALHOST}")


def _name_of(authority: str) -> str:
    """The host of an authority, normalised; empty if it is malformed."""
    match = _AUTHORITY.fullmatch(authority)
    return "" if match is None else _normalised(match[1] or match[2])


def _normalised(host: str) -> str:
    """A name in lower case and without the dot of the root; an IPv6 address in its shortest form, without its zone."""
    name = host.lower()
    if ":" in name:
        try:
            return str(ipaddress.IPv6Address(name.partition("%")[0]))
        except ValueError:
            return ""
    return name.removesuffix(".")


def _is_address(name: str, *, loopback: bool = False) -> bool:
    try:
        return ipaddress.ip_address(name).is_loopback or not loopback
    except ValueError:
        return False
