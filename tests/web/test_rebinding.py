"""DNS rebinding in a real browser: a page under an attacker's name that resolves to this machine is refused.

Chromium's own rules for names simulate the rebinding: to the browser, the page and the gateway are one origin.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import sync_playwright

from tests.faults.gateway import Gateway, settings
from tests.faults.scripts import TEXT, whole
from tests.faults.upstream import Upstream
from tests.web.origin import web_server

# Called by the page: what it can read of an answer.
_CALL = """async ([url, body]) => {
    try {
        const response = await fetch(url, {
            method: body ? 'POST' : 'GET', body, headers: body ? {'content-type': 'application/json'} : {},
        });
        return [response.status, await response.text()];
    } catch (error) {
        return [0, String(error)];
    }
}"""
_EVIL = "evil.example"


@pytest.fixture
def gateway(chromium: str, tmp_path: Path) -> Iterator[Gateway]:  # noqa: ARG001 - it comes first
    with Upstream() as upstream:
        configuration = settings(upstream.url, 0, server={"keys": [], "hosts": ["good.example"]})
        with Gateway(tmp_path, upstream, configuration) as gateway:
            yield gateway


def test_a_page_under_a_rebound_name_spends_nothing(chromium: str, gateway: Gateway) -> None:
    model = gateway.upstream.play(whole())
    asked = json.dumps({"model": f"main/{model}", "messages": [{"role": "user", "content": "Spend."}]})
    with web_server() as elsewhere, sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=chromium,
            args=["--no-sandbox", "--host-resolver-rules=MAP *.example 127.0.0.1", "--proxy-server=direct://"],
        )
        page = browser.new_page()

        def call(host: str, path: str, body: str | None) -> list[Any]:
            found: list[Any] = page.evaluate(_CALL, [f"http://{host}:{gateway.port}{path}", body])
            return found

        # Rebound: the page was loaded under the very name and port that it calls. Probes are answered under any name.
        page.goto(f"http://{_EVIL}:{gateway.port}/health")
        for path, body in (("/v1/chat/completions", asked), ("/v1/models", None)):
            status, text = call(_EVIL, path, body)
            assert (status, json.loads(text)["error"]["code"]) == (403, "host_not_allowed")
        assert not gateway.upstream.requests(model)
        # Another origin, which calls the gateway by its address.
        page.goto(f"http://{_EVIL}:{elsewhere}/")
        for path, body in (("/v1/chat/completions", asked), ("/v1/models", None)):
            assert call("127.0.0.1", path, body)[0] == 0
        assert not gateway.upstream.requests(model)
        # The same page under names that are allowed.
        for host in ("localhost", "127.0.0.1", "good.example"):
            page.goto(f"http://{host}:{gateway.port}/health")
            status, text = call(host, "/v1/chat/completions", asked)
            assert (status, TEXT in text) == (200, True), host
        assert len(gateway.upstream.requests(model)) == 3
        browser.close()
