"""SSRF filter: addresses that are never a provider's. The pool drops them from the addresses of a host name.

- Link-local, multicast, unspecified and broadcast addresses. Most clouds serve instance metadata at the link-local
  address 169.254.169.254, which returns the machine's credentials to any local process.
- Cloud metadata services at other addresses.
- IPv6 addresses that embed one of these IPv4 addresses: a translator (NAT64) or a tunnel may deliver to it. NAT64 with
  a prefix of the network's own cannot be recognised.

Private and unique local addresses are allowed: people run models in their own networks. The pool checks the addresses
of every lookup and connects to these very addresses, so DNS rebinding cannot bypass the filter. A name of which no
address is left is rejected. The filter does not apply in two cases: to a literal IP address in the configuration, which
the operator has chosen, and where a proxy is used, because the proxy resolves names.
"""

from collections.abc import Iterator
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address, ip_network

_BROADCAST = ip_address("255.255.255.255")
_METADATA = tuple(
    map(
        ip_network,
        (
            "fd00:ec2::/32",  # AWS: instance metadata, EKS Pod Identity and others
            "100.100.100.200",  # Alibaba Cloud
            "fd00:100::100:200",
            "168.63.129.16",  # Azure
            "fd20:ce::254",  # Google Cloud
            "192.0.0.192",  # Oracle Cloud
            "fd00:c1::a9fe:a9fe",
            "fd00:42::42",  # Scaleway
            "fd00:a9fe:a9fe::1",  # Akamai
        ),
    )
)
# The last 32 bits are an IPv4 address: compatible (RFC 4291), translated (RFC 2765), NAT64 (RFC 6052). `::1` is not
# forbidden by this, since 0.0.0.1 is not.
_LAST_32_BITS = tuple(map(IPv6Network, ("::/96", "::ffff:0:0:0/96", "64:ff9b::/96")))
# NAT64 for local use (RFC 8215). A network chooses a prefix of 48, 56, 64 or 96 bits in it. The IPv4 address follows
# the prefix and skips the ninth byte (RFC 6052). These are the places of its bytes, for each length.
_LOCAL_NAT64 = IPv6Network("64:ff9b:1::/48")
_LOCAL_NAT64_BYTES = ((6, 7, 9, 10), (7, 9, 10, 11), (9, 10, 11, 12), (12, 13, 14, 15))
# ISATAP (RFC 5214): these interface identifiers, then an IPv4 address.
_ISATAP = (b"\0\0\x5e\xfe", b"\x02\0\x5e\xfe")


def is_forbidden(host: str) -> bool:
    """Whether an address is never a provider's. A text that is not an address is forbidden too."""
    try:
        address = ip_address(host.partition("%")[0])
    except ValueError:
        return True
    embedded = _embedded(address) if isinstance(address, IPv6Address) else ()
    return any(map(_is_reserved, (address, *embedded)))


def is_public(host: str) -> bool:
    """Whether an address is in the public internet: only there may a URL lead that a client has chosen."""
    if is_forbidden(host):
        return False
    address = ip_address(host)
    embedded = _embedded(address) if isinstance(address, IPv6Address) else ()
    # Python takes these for global.
    local = isinstance(address, IPv6Address) and (address.is_site_local or address in _LOCAL_NAT64)
    return not local and all(each.is_global for each in (address, *embedded))


def _is_reserved(address: IPv4Address | IPv6Address) -> bool:
    return _may_serve_metadata(address) or address.is_multicast or address.is_unspecified or address == _BROADCAST


def _may_serve_metadata(address: IPv4Address | IPv6Address) -> bool:
    return address.is_link_local or any(address in network for network in _METADATA)


def _embedded(address: IPv6Address) -> Iterator[IPv4Address]:
    """The IPv4 addresses that are embedded in an IPv6 address."""
    data = address.packed
    last = IPv4Address(data[12:])
    if address.ipv4_mapped is not None:
        yield address.ipv4_mapped
    if address.sixtofour is not None:
        yield address.sixtofour
    if address.teredo is not None:
        yield address.teredo[1]
    if any(address in network for network in _LAST_32_BITS) or data[8:12] in _ISATAP:
        yield last
    if address in _LOCAL_NAT64:
        # The length of the network's prefix is unknown, and a provider's address read with a wrong length may look like
        # a multicast address or 0.0.0.0. So only the addresses that are dangerous behind a translator count.
        candidates = (IPv4Address(bytes(data[place] for place in places)) for places in _LOCAL_NAT64_BYTES)
        yield from filter(_may_serve_metadata, candidates)
