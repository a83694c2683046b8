"""Calls from web pages (CORS), and through proxies that report their clients."""

import json
from collections.abc import Iterator

import pytest

from tests.faults.client import Response, body, post
from tests.faults.gateway import Gateway, settings
from tests.faults.scripts import unstreamed, whole
from tests.faults.upstream import Upstream

PAGE = "https://chat.example.com"
SERVER = {"cors": [PAGE], "proxies": ["127.0.0.0/8"]}


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    with Upstream() as upstream:
        folder = tmp_path_factory.mktemp("pages")
        with Gateway(folder, upstream, settings(upstream.url, 0, server=SERVER)) as gateway:
            yield gateway


def send(gateway: Gateway, *requests: bytes) -> list[Response]:
    """Send requests over one connection, one after another."""
    with gateway.client() as client:
        responses = []
        for request in requests:
            client.send(request)
            responses.append(client.response())
        return responses


def call(gateway: Gateway, origin: str | None, *, stream: bool = True, **headers: str) -> bytes:
    """A call that a page sends."""
    model = f"main/{gateway.upstream.play(whole() if stream else unstreamed())}"
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return post(body(model, stream=stream), named | ({} if origin is None else {"origin": origin}))


@pytest.mark.parametrize("stream", [True, False])
def test_a_page_can_read_every_answer(gateway: Gateway, *, stream: bool) -> None:
    for response in send(gateway, call(gateway, PAGE, stream=stream), call(gateway, PAGE, stream=stream)):
        assert response.headers["access-control-allow-origin"] == PAGE


def test_another_page_cannot(gateway: Gateway) -> None:
    for response in send(gateway, call(gateway, "https://evil.example"), call(gateway, None)):
        assert "access-control-allow-origin" not in response.headers


def test_a_page_without_a_key_can_read_the_error(gateway: Gateway) -> None:
    request = (
        call(gateway, PAGE).replace(b"authorization", b"x-authorization").replace(b"Authorization", b"x-authorization")
    )
    (response,) = send(gateway, request)
    assert response.status == 401
    assert response.headers["access-control-allow-origin"] == PAGE


def test_a_preflight_request_needs_no_key(gateway: Gateway) -> None:
    lines = [
        "OPTIONS /v1/chat/completions HTTP/1.1",
        "host: localhost",
        f"origin: {PAGE}",
        "access-control-request-method: POST",
        "access-control-request-headers: authorization,content-type",
        "connection: close",
    ]
    with gateway.client() as client:
        client.send("\r\n".join([*lines, "", ""]).encode())
        response = client.response("OPTIONS")
    assert response.status == 204
    assert response.headers["access-control-allow-origin"] == PAGE
    assert response.headers["access-control-allow-headers"] == "authorization,content-type"
    assert "POST" in response.headers["access-control-allow-methods"]


def test_the_log_has_the_client_that_the_proxy_reports(gateway: Gateway) -> None:
    (response,) = send(gateway, call(gateway, None, x_forwarded_for="8.8.8.8, 203.0.113.5"))
    gateway.until(lambda: any(response.request_id in line for line in gateway.output))
    (line,) = [line for line in gateway.output if response.request_id in line]
    assert json.loads(line)["client"] == "203.0.113.5"
