"""Site: the page of a gateway, and the ways to it: a link, a session, the admin API."""

import http.client
import json
import os
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from playwright.sync_api import Page

from penstock.serve.admin.endpoint import TOKEN_FILE, link_to, read_endpoint_file
from tests.faults.client import RawClient, Response, body, post
from tests.faults.gateway import Gateway

AUDIT = (Path(__file__).resolve().parent / "audit.js").read_text(encoding="utf-8")
# The folder for pictures of every view; none are made if it is not set.
PICTURES = os.environ.get("PENSTOCK_PICTURES", "")

_LINK = re.compile(r"(http://127\.0\.0\.1:(\d+))(/open\?link=\S+)")
_WAIT_S = 30.0


def until(page: Page, expression: str, timeout_s: float = _WAIT_S) -> None:
    """Wait until something is true of a page. (Playwright's own way evaluates text there, which the page forbids.)"""
    deadline = time.monotonic() + timeout_s
    while not page.evaluate(expression):
        assert time.monotonic() < deadline, f"it never came true: {expression}"
        page.wait_for_timeout(20)


def secret_of(page: Page) -> str:
    """Read the secret that a dialog shows, by its copy button, and close the dialog."""
    page.get_by_role("button", name="Copy", exact=True).click()
    page.get_by_role("button", name="Copied").wait_for()
    secret = str(page.evaluate("navigator.clipboard.readText()"))
    assert page.locator("dialog pre").inner_text() == secret
    page.get_by_role("button", name="Done").click()
    page.locator("dialog").wait_for(state="detached")
    return secret


class Site:
    """One gateway's."""

    def __init__(self, gateway: Gateway) -> None:
        self.gateway = gateway
        self.upstream = gateway.upstream
        gateway.until(lambda: any("/admin" in line for line in gateway.output))
        state = gateway.file.parent / "state"
        note = read_endpoint_file(state)
        assert note
        found = _LINK.fullmatch(link_to(*note))
        assert found
        self.url, self.port, self.link = found[1], int(found[2]), found[3]
        self._token = (state / TOKEN_FILE).read_text().strip()
        self.session = self._sign_in()

    def _sign_in(self) -> str:
        """A session, by a link."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=_WAIT_S)
        connection.request("GET", self.link)
        response = connection.getresponse()
        response.read()
        connection.close()
        assert response.status == 303, response.status
        return response.headers["set-cookie"].partition(";")[0].partition("=")[2]

    def until_kept(self, id: str) -> None:
        """Wait until the content of a call is in the store, where it is written after the call is booked."""
        deadline = time.monotonic() + _WAIT_S
        while self._send("GET", f"/admin/calls/{id}/content")[0] != 200:
            assert time.monotonic() < deadline, id
            time.sleep(0.02)

    def ask(self, method: str, path: str, content: object = None) -> Any:
        """Ask the admin API, with the token."""
        status, reported = self._send(method, path, content)
        assert status in (200, 201), reported
        return reported

    def _send(self, method: str, path: str, content: object = None) -> tuple[int, Any]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=_WAIT_S)
        data = None if content is None else json.dumps(content)
        connection.request(method, path, data, {"Authorization": f"Bearer {self._token}"})
        response = connection.getresponse()
        reported = json.loads(response.read())
        connection.close()
        return response.status, reported

    def booked(self, path: str, true: Callable[[list[Any]], object]) -> list[Any]:
        """The entries that a query finds, as soon as something is true of them."""
        deadline = time.monotonic() + _WAIT_S
        while not true(entries := self.ask("GET", path)["entries"]):
            assert time.monotonic() < deadline, entries
            time.sleep(0.02)
        return list(entries)

    def truncated(self) -> str:
        """How the page counts the calls that were cut off. Tests that ran before may have cut some, too."""
        count = len(self.ask("GET", "/admin/entries?outcome=truncated&limit=500")["entries"])
        return "1 call" if count == 1 else f"{count} calls"

    def call(self, model: str, key: str = "") -> Response:
        """Ask a model, and read its whole answer."""
        with self.begin(model, key) as client:
            return client.response()

    def begin(self, model: str, key: str = "", **fields: object) -> RawClient:
        """Begin a stream, whose answer is still to be read."""
        client = self.gateway.client()
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        client.send(post(body(model, stream=True, **fields), headers))
        return client
