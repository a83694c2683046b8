"""Upstreams that cannot be reached (U1 to U7): names, ports and certificates."""

import datetime
import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest
import trustme

from tests.faults.gateway import Gateway, settings
from tests.faults.upstream import Upstream, fin, hang, send


@dataclass(frozen=True)
class Unreachable:
    """A provider that cannot be reached, and how the gateway must report it."""

    name: str
    code: str
    status: int = 502


UNREACHABLE = {
    "U1 refused": Unreachable("refused", "upstream_connect_failed"),
    "U2 no answer": Unreachable("silent", "upstream_connect_timeout", 504),
    "U3 no such name": Unreachable("nameless", "upstream_dns_failed"),
    "U5 an expired certificate": Unreachable("expired", "upstream_tls_failed"),
    "U5 another host's certificate": Unreachable("stranger", "upstream_tls_failed"),
    "U5 an unknown authority": Unreachable("unknown", "upstream_tls_failed"),
    "U5 no TLS at all": Unreachable("plain", "upstream_tls_failed"),
    "U6 a handshake that stalls": Unreachable("stalls", "upstream_connect_timeout", 504),
}


@dataclass(frozen=True)
class World:
    """A gateway, and a provider with a valid certificate."""

    gateway: Gateway
    secure: Upstream


@contextmanager
def started_world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("certificates")
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(folder / "authority.pem"))
    long_ago = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)
    with (
        Upstream() as upstream,
        Upstream(tls=serving(authority.issue_cert("127.0.0.1"))) as secure,
        Upstream(tls=serving(authority.issue_cert("127.0.0.1", not_after=long_ago))) as expired,
        Upstream(tls=serving(authority.issue_cert("api.example.com"))) as stranger,
        Upstream(tls=serving(trustme.CA().issue_cert("127.0.0.1"))) as unknown,
        Upstream(greeting=[hang()]) as stalls,
        Upstream(greeting=[send(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n"), fin()]) as no_tls,
        socket.socket() as refused,
        socket.socket() as silent,
        socket.socket() as filler,
        socket.socket() as second_filler,
    ):
        refused.bind(("127.0.0.1", 0))  # and does not listen
        silent.bind(("127.0.0.1", 0))
        silent.listen(0)  # a full queue: the kernel drops the next connection attempts
        for each in (filler, second_filler):
            each.setblocking(False)
            each.connect_ex(silent.getsockname())
        urls = {
            "refused": f"http://127.0.0.1:{refused.getsockname()[1]}/v1",
            "silent": f"http://127.0.0.1:{silent.getsockname()[1]}/v1",
            "nameless": "https://nothing.invalid/v1",
            "secure": secure.url,
            "expired": expired.url,
            "stranger": stranger.url,
            "unknown": unknown.url,
            "plain": no_tls.url.replace("http:", "https:"),
            "stalls": stalls.url.replace("http:", "https:"),
        }
        gateway = Gateway(
            tmp_path_factory.mktemp("gateway"),
            upstream,
            settings(upstream.url) + routes(urls),
            environment={"SSL_CERT_FILE": str(folder / "authority.pem")},
        )
        with gateway:
            yield World(gateway, secure)


def routes(urls: dict[str, str]) -> str:
    lines = []
    for name, url in urls.items():
        lines += [f"[providers.{name}]", f'base_url = "{url}"']
        if name in ("silent", "stalls"):
            lines.append("timeouts = { connect_s = 0.5 }")
        lines += [f"[routes.{name}-first]", f'targets = ["{name}/some-model", "spare/after-{name}"]']
    return "\n".join([*lines, ""])


def serving(certificate: trustme.LeafCert) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    certificate.configure_cert(context)
    return context
