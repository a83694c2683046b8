"""Which requests go through a proxy, by the usual variables, and which parts of these variables may be shown."""

import asyncio

import pytest

from penstock.http.limits import UpstreamLimits
from penstock.http.pool import Pool
from penstock.http.sockets import Proxy
from penstock.upstream.remote import Remote, RemoteEndpoint

PROXY = "http://proxy.example:3128"


def endpoint(url: str, **environment: str) -> RemoteEndpoint:
    async def make() -> RemoteEndpoint:
        return Remote(Pool(UpstreamLimits()), environment).endpoint(url, {})

    return asyncio.run(make())


EXEMPT: dict[str, tuple[str, str, bool]] = {
    "a network": ("http://10.1.2.3:8000/v1", "10.0.0.0/8", True),
    "a network among others": ("http://10.1.2.3/v1", "example.com, 192.168.0.0/16 ,10.0.0.0/8", True),
    "a network, named by an address in it": ("http://10.1.2.3/v1", "10.9.9.9/8", True),
    "another network": ("http://11.1.2.3/v1", "10.0.0.0/8", False),
    "a network of IPv6": ("http://[2001:db8::1]:8000/v1", "2001:db8::/32", True),
    "another network of IPv6": ("http://[2001:db9::1]/v1", "2001:db8::/32", False),
    "a network of the other kind": ("http://10.1.2.3/v1", "::/0", False),
    "no network": ("http://10.1.2.3/v1", "10.0.0.0/99,10/8,/8,/", False),
    "a name is in no network": ("http://ten.example/v1", "0.0.0.0/0", False),
    "an address": ("http://10.1.2.3/v1", "10.1.2.3", True),
    "an address and its port": ("http://10.1.2.3:8000/v1", "10.1.2.3:8000", True),
    "an address and another port": ("http://10.1.2.3:8000/v1", "10.1.2.3:9000", False),
    "an address of IPv6, spelled otherwise": ("http://[2001:db8::1]/v1", "2001:DB8:0:0::1", True),
    "an address of IPv6, in brackets": ("http://[2001:db8::1]/v1", "[2001:db8::1]", True),
    "an address of IPv6 and its port": ("http://[2001:db8::1]:8000/v1", "[2001:db8::1]:8000", True),
    "a name": ("https://api.example.com/v1", "api.example.com", True),
    "a domain": ("https://api.example.com/v1", "example.com", True),
    "a domain with a dot": ("https://api.example.com/v1", ".example.com", True),
    "another domain": ("https://api.counterexample.com/v1", "example.com", False),
    "all": ("https://api.example.com/v1", "*", True),
    "none": ("https://api.example.com/v1", "", False),
    "loopback": ("http://127.0.0.9:8000/v1", "", True),
}


@pytest.mark.parametrize(("url", "no_proxy", "exempt"), EXEMPT.values(), ids=EXEMPT)
def test_no_proxy_names_who_is_asked_directly(url: str, no_proxy: str, exempt: bool) -> None:
    origin = endpoint(url, http_proxy=PROXY, HTTPS_PROXY=PROXY, NO_PROXY=no_proxy).origin
    assert origin.proxy == (None if exempt else Proxy("proxy.example", 3128))


CREDENTIALS: dict[str, tuple[str, str]] = {
    "a user and a password": ("http://user:secret@proxy.example:3128", "Basic dXNlcjpzZWNyZXQ="),
    "escaped": ("http://us%3Aer:sec%40r%C3%A9t@proxy.example:3128", "Basic dXM6ZXI6c2VjQHLDqXQ="),
    "a user alone": ("http://user@proxy.example:3128", "Basic dXNlcjo="),
    "without a scheme": ("user:secret@proxy.example:3128", "Basic dXNlcjpzZWNyZXQ="),
    "nobody": ("http://proxy.example:3128", ""),
}


@pytest.mark.parametrize(("proxy", "authorization"), CREDENTIALS.values(), ids=CREDENTIALS)
def test_who_asks_is_shown_to_the_proxy_and_to_no_one_else(proxy: str, authorization: str) -> None:
    found = endpoint("https://api.example/v1", https_proxy=proxy)
    assert found.origin.proxy == Proxy("proxy.example", 3128, authorization)
    assert "proxy.example" in repr(found)
    assert not authorization or authorization not in f"{found!r}{found.origin!r}{found.origin.proxy!r}"


@pytest.mark.parametrize(
    "proxy", ["http://user:pass#word@proxy.example", "http://[::1", "http://:80", "http://p:99999"]
)
def test_no_one_is_asked_without_a_proxy_that_cannot_be_understood(proxy: str) -> None:
    assert endpoint("https://api.example/v1", https_proxy=proxy).origin.proxy is not None


def test_a_large_body_is_sent_without_a_copy() -> None:
    target = endpoint("http://provider.example/v1")
    small, large = b"x" * 1_000, b"x" * 1_000_000
    whole, parts = target.request(small, b"x-more: 1\r\n"), target.request(large, b"x-more: 1\r\n")
    assert isinstance(whole, bytes)
    assert isinstance(parts, tuple)
    head, body = parts
    assert body is large
    assert head == whole.removesuffix(small).replace(b"content-length: 1000\r\n", b"content-length: 1000000\r\n")
