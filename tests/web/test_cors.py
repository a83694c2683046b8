"""CORS in a real browser: a page of a listed origin calls the API and reads the stream; another page reads nothing."""

import json
from pathlib import Path
from typing import Any

from playwright.sync_api import sync_playwright

from tests.faults.client import CLIENT_KEY
from tests.faults.gateway import Gateway, settings
from tests.faults.scripts import TEXT, whole
from tests.faults.upstream import Upstream
from tests.web.origin import web_server

# Called by the page, as an SDK in a browser calls: with a key, so that the browser sends a preflight request first.
_CALL = """async ([url, key, body]) => {
    try {
        const headers = {authorization: `Bearer ${key}`, 'content-type': 'application/json', 'x-stainless-lang': 'js'};
        const response = await fetch(url, {method: 'POST', body, headers});
        const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
        let text = '';
        for (;;) {
            const {done, value} = await reader.read();
            if (done) return [response.status, text, response.headers.get('x-request-id')];
            text += value;
        }
    } catch (error) {
        return [0, String(error), null];
    }
}"""


def test_only_pages_of_listed_origins_read_answers(chromium: str, tmp_path: Path) -> None:
    with web_server() as port, Upstream() as upstream:
        listed = f"http://chat.example:{port}"
        model = upstream.play(whole())
        body = json.dumps({"model": f"main/{model}", "stream": True, "messages": [{"role": "user", "content": "Hi."}]})
        with (
            Gateway(tmp_path, upstream, settings(upstream.url, 0, server={"cors": [listed]})) as gateway,
            sync_playwright() as playwright,
        ):
            browser = playwright.chromium.launch(
                executable_path=chromium,
                args=["--no-sandbox", "--host-resolver-rules=MAP *.example 127.0.0.1", "--proxy-server=direct://"],
            )
            page = browser.new_page()

            def call(origin: str, key: str) -> list[Any]:
                page.goto(f"{origin}/")
                url = f"http://127.0.0.1:{gateway.port}/v1/chat/completions"
                found: list[Any] = page.evaluate(_CALL, [url, key, body])
                return found

            status, text, request_id = call(listed, CLIENT_KEY)
            assert (status, text.count("data: [DONE]"), bool(request_id)) == (200, 1, True)
            assert TEXT in "".join(
                json.loads(line[6:])["choices"][0]["delta"].get("content") or ""
                for line in text.splitlines()
                if line.startswith("data: {") and json.loads(line[6:])["choices"]
            )
            status, text, _ = call(listed, "a wrong key")
            assert (status, json.loads(text)["error"]["code"]) == (401, "invalid_api_key")
            # The browser asks before it sends a call with a key, and does not send it: nothing is spent.
            status, text, _ = call(f"http://evil.example:{port}", CLIENT_KEY)
            assert (status, "Failed to fetch" in text) == (0, True)
            assert len(upstream.requests(model)) == 1
            browser.close()
