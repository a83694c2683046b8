"""Upstreams that cannot be reached (U1 to U7): names, ports and certificates."""

import datetime
import socket
import ssl
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
import trustme

from tests.faults.gateway import Gateway, settings
from tests.faults.scripts import ERROR_BODY, HELLO, SPARE_TEXT, TEXT, spare, whole
from tests.faults.upstream import JSON, Early, Upstream, abort, chunk, fin, hang, head, mute, send, status

both = pytest.mark.parametrize("streamed", [True, False], ids=["streamed", "unstreamed"])


@dataclass(frozen=True)
class Unreachable:
    """A provider that cannot be reached, and how that is told."""

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
    """A gateway, and a provider whose certificate is good."""

    gateway: Gateway
    secure: Upstream


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
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
        silent.listen(0)  # a full queue: the kernel drops whoever knocks next
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
            settings(upstream.url, timeouts={"connect_s": 0.5}) + routes(urls),
            environment={"SSL_CERT_FILE": str(folder / "authority.pem")},
        )
        with gateway:
            yield World(gateway, secure)


def routes(urls: dict[str, str]) -> str:
    lines = []
    for name, url in urls.items():
        lines += [f"[providers.{name}]", f'base_url = "{url}"']
        lines += [f"[routes.{name}-first]", f'targets = ["{name}/some-model", "spare/after-{name}"]']
    return "\n".join([*lines, ""])


def serving(certificate: trustme.LeafCert) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    certificate.configure_cert(context)
    return context


@both
@pytest.mark.parametrize("case", UNREACHABLE.values(), ids=UNREACHABLE)
def test_is_told_with_a_status(world: World, case: Unreachable, streamed: bool) -> None:
    gateway = world.gateway
    response = gateway.ask(f"{case.name}/model-{streamed}", stream=streamed)
    assert (response.status, response.error["code"]) == (case.status, case.code)
    line = gateway.call(response)
    assert (line["code"], len(line["attempts"])) == (case.code, 1)
    gateway.quiet()


@both
@pytest.mark.parametrize("case", UNREACHABLE.values(), ids=UNREACHABLE)
def test_the_next_target_answers(world: World, case: Unreachable, streamed: bool) -> None:
    gateway = world.gateway
    gateway.upstream.play(spare(), f"after-{case.name}")
    response = gateway.ask(f"{case.name}-first", stream=streamed)
    assert (response.status, response.text) == (200, SPARE_TEXT)
    assert [attempt["code"] for attempt in gateway.call(response)["attempts"]] == [case.code, ""]
    gateway.quiet()


@both
def test_a_good_certificate_is_taken(world: World, streamed: bool) -> None:
    response = world.gateway.ask(f"secure/{world.secure.play(whole())}", stream=streamed)
    assert (response.status, response.text) == (200, TEXT)


def test_u55_a_connection_whose_request_was_not_sent_whole_is_not_asked_again(world: World) -> None:
    """Over TLS, what is unsent lies where the transport does not count it."""
    model = world.secure.play([Early(), mute(), status(400, JSON, ERROR_BODY)])
    assert world.gateway.ask(f"secure/{model}", stream=True, padding="x" * 8_000_000).status == 400
    response = world.gateway.ask(f"secure/{world.secure.play(whole())}", stream=True)
    assert (response.status, response.text) == (200, TEXT)


@both
def test_u7_tls_that_is_dropped_in_the_middle_is_a_cut(world: World, streamed: bool) -> None:
    model = world.secure.play([head(), chunk(HELLO), abort()])
    response = world.gateway.ask(f"secure/{model}", stream=streamed)
    assert response.status == (200 if streamed else 502)
    assert response.error["code"] in ("upstream_truncated", "upstream_reset")
    assert response.complete


def test_u7_the_end_of_a_body_without_length_needs_the_farewell_of_tls(world: World) -> None:
    """Else anybody on the way could cut an answer short; here the answer itself shows that it was."""
    model = world.secure.play([head(framing=""), chunk(HELLO), abort()])
    response = world.gateway.ask(f"secure/{model}", stream=False)
    assert response.status == 502


def test_u3_a_slow_name_does_not_hold_up_others(world: World) -> None:
    with world.gateway.begin("nameless/some-model-3", stream=True) as waiting:
        model = world.gateway.upstream.play(whole())
        assert world.gateway.ask(f"main/{model}", stream=True).text == TEXT
        world.gateway.keep(waiting.response())
    world.gateway.quiet()
