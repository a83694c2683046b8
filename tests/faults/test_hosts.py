"""DNS rebinding: where no key is required, a request must name a host that no attacker can own.

A real browser does the same in tests/web/test_rebinding.py.
"""

import signal
from collections.abc import Iterator

import pytest

from tests.faults.client import CLIENT_KEY, RawClient, Response, body
from tests.faults.conftest import Starter
from tests.faults.gateway import Gateway, settings
from tests.faults.scripts import TEXT, whole
from tests.faults.upstream import Upstream
from tests.ledger.support import make_key

OPEN = {"keys": [], "hosts": ["Gateway.Internal", "10.1.2.3"]}


@pytest.fixture(scope="module")
def open_gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    with Upstream() as upstream:
        folder = tmp_path_factory.mktemp("open")
        with Gateway(folder, upstream, settings(upstream.url, 0, server=OPEN)) as gateway:
            yield gateway


def request(
    host: str | None, model: str = "", *lines: str, target: str = "/v1/chat/completions", version: str = "1.1"
) -> bytes:
    """A call without a key; without a model, a GET."""
    content = body(f"main/{model}", stream=False) if model else b""
    head = [f"{'POST' if model else 'GET'} {target} HTTP/{version}", *lines]
    if host is not None:
        head.append(f"Host: {host}")
    if model:
        head += ["Content-Type: application/json", f"Content-Length: {len(content)}"]
    return "\r\n".join([*head, "", ""]).encode("latin-1") + content


def send(gateway: Gateway, data: bytes) -> Response:
    with gateway.client() as client:
        client.send(data)
        return client.response()


HOSTS = {
    "localhost": 200,
    "localhost:8080": 200,
    "LocalHost:1": 200,
    "localhost.": 200,
    "app.localhost:8080": 200,
    "127.0.0.1": 200,
    "127.0.0.1:8080": 200,
    "127.8.8.8": 200,
    "192.168.1.20:8080": 200,
    "203.0.113.7": 200,
    "[::1]": 200,
    "[::1]:8080": 200,
    "[0:0:0:0:0:0:0:1]:8080": 200,
    "[fd00::7]:8080": 200,
    "[::ffff:127.0.0.1]": 200,
    "[fe80::1%25eth0]:8080": 200,
    "gateway.internal": 200,
    "GATEWAY.internal.:8080": 200,
    "evil.example": 403,
    "evil.example:8080": 403,
    "localhost.evil.example": 403,
    "127.0.0.1.evil.example": 403,
    "evillocalhost": 403,
    "evil-localhost:8080": 403,
    ".localhost.evil": 403,
    "sub.gateway.internal": 403,
    "gateway.internal.evil.example": 403,
    "gateway": 403,
    "127.0.0.1:8080:evil.example": 403,
    "[::1]evil.example": 403,
    "[evil.example]": 403,
    "[127.0.0.1]": 403,
    "::1": 403,
    "127.1": 403,
    "localhost..": 403,
    "evil.example%00localhost": 403,
    "": 403,
    ":8080": 403,
    "user@localhost": 400,
    "localhost/evil.example": 400,
}


@pytest.mark.parametrize("host", HOSTS)
def test_without_keys_only_hosts_are_answered_that_no_attacker_can_own(open_gateway: Gateway, host: str) -> None:
    model = open_gateway.upstream.play(whole())
    response = send(open_gateway, request(host, model))
    assert response.status == HOSTS[host], response.body
    assert len(open_gateway.upstream.requests(model)) == (response.status == 200)
    if response.status == 403:
        error = response.error
        assert (error["code"], error["type"]) == ("host_not_allowed", "invalid_request_error")
        assert "[server] hosts" in error["message"]
        assert "penstock keys create" in error["message"]
        assert error["request_id"] == response.request_id


PATHS = ["/v1/models", "/models", "/v1/models/main%2Fa", "/", "/metrics", "/v1/chat/completions", "/admin/keys"]


@pytest.mark.parametrize("target", PATHS)
def test_it_is_so_at_every_path(open_gateway: Gateway, target: str) -> None:
    for method in ("GET", "HEAD", "OPTIONS", "DELETE"):
        data = request("evil.example", target=target).replace(b"GET", method.encode(), 1)
        with open_gateway.client() as client:
            client.send(data)
            assert client.response(method).status == 403
        assert send_status(open_gateway, data.replace(b"evil.example", b"localhost"), method) != 403


def send_status(gateway: Gateway, data: bytes, method: str) -> int:
    with gateway.client() as client:
        client.send(data)
        return client.response(method).status


@pytest.mark.parametrize("target", ["/v1/embeddings", "/openai/v1/chat/completions", "/chat/completions"])
def test_it_is_so_for_every_call(open_gateway: Gateway, target: str) -> None:
    model = open_gateway.upstream.play(whole())
    assert send(open_gateway, request("evil.example", model, target=target)).status == 403
    assert not open_gateway.upstream.requests(model)


@pytest.mark.parametrize("target", ["/health", "/livez", "/readyz"])
def test_probes_are_answered_by_any_name(open_gateway: Gateway, target: str) -> None:
    """They disclose nothing and cost nothing, and load balancers use names of their own."""
    assert send(open_gateway, request("evil.example", target=target)).status == 200


ORIGINS = {
    "http://localhost:3000": 200,
    "https://localhost": 200,
    "http://app.localhost": 200,
    "http://127.0.0.1:8080": 200,
    "http://[::1]:3000": 200,
    "https://gateway.internal": 200,
    "http://10.1.2.3": 200,
    "chrome-extension://abcdefghijklmnop": 200,
    "vscode-webview://1f2e3d": 200,
    "http://evil.example": 403,
    "https://evil.example:8080": 403,
    "http://localhost.evil.example": 403,
    "http://203.0.113.7": 403,
    "http://localhost@evil.example": 403,
    "HTTP://evil.example": 403,
    "null": 403,
    "": 403,
    "localhost": 403,
    "http://": 403,
}


@pytest.mark.parametrize("origin", ORIGINS)
def test_without_keys_pages_of_other_origins_are_refused(open_gateway: Gateway, origin: str) -> None:
    model = open_gateway.upstream.play(whole())
    response = send(open_gateway, request("localhost:8080", model, f"Origin: {origin}"))
    assert response.status == ORIGINS[origin], response.body
    assert len(open_gateway.upstream.requests(model)) == (response.status == 200)
    if response.status == 403:
        assert response.error["code"] == "origin_not_allowed"
        assert "[server] hosts" in response.error["message"]
        assert "penstock keys create" in response.error["message"]


def test_a_page_may_call_the_address_that_it_came_from(open_gateway: Gateway) -> None:
    model = open_gateway.upstream.play(whole())
    origin = "Origin: http://203.0.113.7:3000"
    assert send(open_gateway, request("203.0.113.7:8080", model, origin)).status == 200
    assert send(open_gateway, request("203.0.113.8:8080", model, origin)).status == 403


def test_a_preflight_of_another_origin_is_refused(open_gateway: Gateway) -> None:
    asked = request("localhost", "", "Origin: http://evil.example", "Access-Control-Request-Method: POST")
    response = send(open_gateway, asked.replace(b"GET", b"OPTIONS", 1))
    assert (response.status, response.error["code"]) == (403, "origin_not_allowed")
    assert not [name for name in response.headers if name.startswith("access-control-")]


def test_an_absolute_target_names_the_host(open_gateway: Gateway) -> None:
    """RFC 9112 section 3.2.2: the Host header is ignored then."""
    model = open_gateway.upstream.play(whole())
    path = "/v1/chat/completions"
    for place in ("evil.example", "evil.example:8080", "localhost@evil.example"):
        response = send(open_gateway, request("localhost", model, target=f"http://{place}{path}"))
        assert (response.status, response.error["code"]) == (403, "host_not_allowed"), place
    assert not open_gateway.upstream.requests(model)
    for place in ("localhost", "127.0.0.1:8080", "[::1]:8080", "evil.example@localhost"):
        assert send(open_gateway, request("evil.example", model, target=f"http://{place}{path}")).status == 200, place


def test_a_request_without_a_host_is_refused(open_gateway: Gateway) -> None:
    """HTTP/1.0 allows it. No browser sends it, but neither does it name a host that is allowed."""
    model = open_gateway.upstream.play(whole())
    assert send(open_gateway, request(None, model, version="1.0")).status == 403
    assert send(open_gateway, request("localhost", model, version="1.0")).status == 200
    assert send(open_gateway, request(None, model)).status == 400
    assert send(open_gateway, request("localhost", model, "Host: evil.example")).status == 400


def test_a_key_that_is_not_asked_for_changes_nothing(open_gateway: Gateway) -> None:
    """A web page can send any key."""
    model = open_gateway.upstream.play(whole())
    for shown in ("Authorization: Bearer anything", "X-Api-Key: anything", "Authorization: Bearer sk-ps-none"):
        assert send(open_gateway, request("evil.example", model, shown)).status in (401, 403)
    assert not open_gateway.upstream.requests(model)


def statuses(client: RawClient, *requests: bytes) -> list[int]:
    found = []
    for data in requests:
        client.send(data)
        found.append(client.response().status)
    return found


def test_a_repeated_head_is_judged_like_the_first(open_gateway: Gateway) -> None:
    model = open_gateway.upstream.play(whole())
    good, bad = request("localhost", model), request("evil.example", model)
    with open_gateway.client() as client:
        assert statuses(client, bad, bad, good, good, bad, good, good, bad) == [403, 403, 200, 200, 403, 200, 200, 403]


def reload(gateway: Gateway, old: str, new: str) -> None:
    words = "the configuration was reloaded"
    reported = sum(words in line for line in gateway.output)
    text = gateway.file.read_text()
    assert old in text
    gateway.file.write_text(text.replace(old, new))
    gateway.signal(signal.SIGHUP)
    gateway.until(lambda: sum(words in line for line in gateway.output) > reported)


def test_names_and_keys_are_followed_at_a_reload(start: Starter) -> None:
    """On one connection with one head: the result of the earlier check must not be reused after a reload."""
    gateway = start(server=OPEN)
    model = gateway.upstream.play(whole())
    named, local = request("gateway.internal", model), request("localhost", model)
    with gateway.client() as client:
        assert statuses(client, named, named) == [200, 200]
        reload(gateway, '"Gateway.Internal"', '"another.internal"')
        assert statuses(client, named, named, local, local) == [403, 403, 200, 200]
        reload(gateway, '"another.internal"', '"gateway.internal"')
        assert statuses(client, named, named) == [200, 200]
        reload(gateway, "keys = []", f'keys = ["{CLIENT_KEY}"]')
        assert statuses(client, named, local) == [401, 401]
        evil = request("evil.example", model, f"Authorization: Bearer {CLIENT_KEY}", "Origin: http://evil.example")
        assert statuses(client, evil, evil) == [200, 200]  # a page of another origin does not have the key
        reload(gateway, f'keys = ["{CLIENT_KEY}"]', "keys = []")
        assert statuses(client, evil, evil, named) == [403, 403, 200]


def test_a_stored_key_ends_the_check(start: Starter) -> None:
    gateway = start(server=OPEN)
    model = gateway.upstream.play(whole())
    evil = request("evil.example", model)
    with gateway.client() as client:
        assert statuses(client, evil, evil) == [403, 403]
        _, secret = make_key(gateway)
        shown = request("evil.example", model, f"Authorization: Bearer {secret}")
        assert statuses(client, evil, shown, shown, evil) == [401, 200, 200, 401]


def test_without_a_ledger_it_is_the_same(start: Starter) -> None:
    gateway = start(server={"keys": []}, ledger={"enabled": False})
    model = gateway.upstream.play(whole())
    assert send(gateway, request("evil.example", model)).status == 403
    response = send(gateway, request("localhost", model))
    assert (response.status, response.text) == (200, TEXT)
