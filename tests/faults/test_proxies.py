"""Providers behind a proxy (`HTTP_PROXY`): the credentials of the proxy are sent to the proxy, and nowhere else."""

from base64 import b64encode
from pathlib import Path

import pytest

from tests.faults.gateway import Gateway, settings
from tests.faults.scripts import TEXT, whole
from tests.faults.upstream import Upstream, fin, send

PASSWORD = "canary@of-the-proxy"
ESCAPED = "canary%40of-the-proxy"
SHOWN = b64encode(f"user:{PASSWORD}".encode()).decode()
ORIGINS = {"far": "far.example:8000", "six": "[2001:db8::1]:8000"}
ESTABLISHED = send(b"HTTP/1.1 200 Connection established\r\n\r\n")
REFUSED = send(b"HTTP/1.1 407 Proxy Authentication Required\r\ncontent-length: 0\r\n\r\n")


def behind(folder: Path, proxy: Upstream, url: str) -> Gateway:
    """A gateway whose providers are behind a proxy. After a CONNECT the proxy plays the provider, too."""
    tables = (
        f'[providers.{name}]\nbase_url = "http://{origin}/v1"\napi_key = "none"\ninsecure = true\n'
        for name, origin in ORIGINS.items()
    )
    return Gateway(folder, proxy, settings(proxy.url) + "".join(tables), environment={"HTTP_PROXY": url})


@pytest.mark.parametrize("name", ORIGINS)
def test_a_provider_is_asked_through_a_proxy(tmp_path: Path, name: str) -> None:
    with Upstream() as proxy, behind(tmp_path, proxy, f"http://user:{ESCAPED}@127.0.0.1:{proxy.port}") as gateway:
        proxy.scripts[""] = [ESTABLISHED]
        response = gateway.ask(f"{name}/{proxy.play(whole(), 'some')}", stream=True)
        assert (response.status, response.text) == (200, TEXT)
        connect, asked = proxy.connection("some").requests
        head = [f"CONNECT {ORIGINS[name]} HTTP/1.1", f"host: {ORIGINS[name]}", f"proxy-authorization: Basic {SHOWN}"]
        assert connect.decode().split("\r\n") == [*head, "", ""]
        assert SHOWN.encode() not in asked
        keeps_quiet(gateway)


URLS = {
    "refused": f"http://user:{ESCAPED}@127.0.0.1:PORT",
    "not a URL": f"http://user:{ESCAPED}#@127.0.0.1:PORT",
}


@pytest.mark.parametrize("url", URLS.values(), ids=URLS)
def test_a_proxy_that_cannot_be_used_is_reported_without_its_password(tmp_path: Path, url: str) -> None:
    with Upstream() as proxy, behind(tmp_path, proxy, url.replace("PORT", str(proxy.port))) as gateway:
        proxy.scripts[""] = [REFUSED, fin()]
        response = gateway.ask("far/some", stream=False)
        assert (response.status, response.error["code"]) == (502, "upstream_connect_failed")
        assert "proxy" in response.error["message"]
        keeps_quiet(gateway)


@pytest.mark.parametrize("scheme", ["socks5", "https"])
def test_a_proxy_of_another_kind_is_reported_and_not_asked(tmp_path: Path, scheme: str) -> None:
    with Upstream() as proxy, behind(tmp_path, proxy, f"{scheme}://user:{ESCAPED}@127.0.0.1:{proxy.port}") as gateway:
        response = gateway.ask("far/some", stream=False)
        assert (response.status, response.error["code"]) == (502, "upstream_connect_failed")
        assert (
            "a proxy of an unsupported kind; only URLs that begin with http:// are supported"
            in response.error["message"]
        )
        assert not proxy.connections
        keeps_quiet(gateway)


def keeps_quiet(gateway: Gateway) -> None:
    """The proxy's password is in nothing that the gateway logs, stores or answers."""
    assert gateway.stop() == 0
    sent_text = "".join(gateway.output) + "".join(f"{each.headers}{each.body!r}" for each in gateway.responses)
    kept = b"".join(path.read_bytes() for path in gateway.book.folder.rglob("*") if path.is_file())
    for secret in (PASSWORD, ESCAPED, SHOWN):
        assert secret not in sent_text
        assert secret.encode() not in kept
    assert "Traceback" not in sent_text
