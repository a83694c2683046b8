"""What the tests of the admin API and of the metrics share."""

import http.client
import json
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from penstock.gateway.record.attempt import Attempt
from penstock.gateway.record.call import Call
from penstock.serve.admin.endpoint import TOKEN_FILE
from tests.faults.client import body, post
from tests.faults.gateway import Gateway
from tests.serve.openapi import check_response

_ADMIN = re.compile(r"http://(127\.0\.0\.1:(\d+))/admin for")
WAIT_S = 10.0


class AdminClient:
    """A client of the admin API of a gateway. Keeps all that the API has said, which must be as its document says."""

    def __init__(self, gateway: Gateway, token: str = "") -> None:
        self.gateway = gateway
        self.state = gateway.file.parent / "state"
        gateway.until(lambda: _ADMIN.search("".join(gateway.output)))  # it is said after the clients' port
        found = _ADMIN.search("".join(gateway.output))
        assert found, gateway.output
        self.place, self.port = found[1], int(found[2])
        self.token = token or (self.state / TOKEN_FILE).read_text().strip()
        self.sent_text = b""
        self.secrets: list[str] = []

    def send(
        self, method: str, path: str, content: object = None, headers: Mapping[str, str] | None = None
    ) -> tuple[int, Any, Mapping[str, str]]:
        """Ask as these headers say, and no others but those that HTTP needs."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=WAIT_S)
        try:
            data = content if isinstance(content, bytes) or content is None else json.dumps(content).encode()
            connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
            for name, value in ({"Host": self.place} | dict(headers or {})).items():
                connection.putheader(name, value)
            if data is not None:
                connection.putheader("Content-Length", str(len(data)))
            connection.endheaders(data)
            response = connection.getresponse()
            raw = response.read()
            kind = response.headers.get_content_subtype()
            is_json = raw and kind in ("json", "scim+json")
            reported = json.loads(raw) if is_json else raw.decode() if kind == "csv" else None
            if kind == "json" and raw:
                check_response(method, path, response.status, reported, len(raw))
            if isinstance(reported, dict) and "secret" in reported:
                self.secrets.append(reported.pop("secret"))
                raw = json.dumps(reported).encode()
            self.sent_text += raw + str(response.headers).encode()
            return response.status, reported, {name.lower(): value for name, value in response.headers.items()}
        finally:
            connection.close()

    def download(self, path: str, headers: Mapping[str, str]) -> tuple[int, Mapping[str, str], bytes]:
        """Ask for a file."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=WAIT_S)
        try:
            connection.request("GET", path, headers={"Host": self.place, **headers})
            response = connection.getresponse()
            return response.status, {name.lower(): value for name, value in response.headers.items()}, response.read()
        finally:
            connection.close()

    def ask(self, method: str, path: str, content: object = None) -> tuple[int, Any]:
        """Ask with the token."""
        return self.send(method, path, content, {"Authorization": f"Bearer {self.token}"})[:2]

    def get(self, path: str) -> Any:
        status, reported = self.ask("GET", path)
        assert status == 200, reported
        return reported

    def make(self, **terms: object) -> tuple[str, Any]:
        """Create a key: its secret, and its description."""
        status, reported = self.ask("POST", "/admin/keys", terms)
        assert status == 201, reported
        return self.secrets[-1], reported

    def call(self, key: str, **fields: object) -> int:
        with self.gateway.client() as client:
            client.send(post(body("main/river-1", stream=False, **fields), {"Authorization": f"Bearer {key}"}))
            return client.response().status

    def until_known(self, key: str) -> None:
        deadline = time.monotonic() + WAIT_S
        while self.call(key) != 200:
            assert time.monotonic() < deadline
            time.sleep(0.02)


def call(model: str, *, answered: bool) -> Call:
    made = Call("req_1", model, stream=True, started=0.0)
    provider, _, name = model.partition("/")
    made.progress.attempts.append(Attempt(provider, name))
    made.progress.status, made.progress.ending = (200, "completed") if answered else (404, "failed")
    made.progress.attempts[-1].ending = made.progress.ending
    made.progress.commit_s = 0.5 if answered else None
    return made


class Events:
    """An event stream of the admin API, read event by event."""

    def __init__(self, served: AdminClient, path: str, headers: Mapping[str, str] | None = None) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", served.port, timeout=WAIT_S)
        usual = {"Host": served.place, "Authorization": f"Bearer {served.token}"}
        self._connection.request("GET", path, headers=usual | dict(headers or {}))
        self.response = self._connection.getresponse()

    def next(self) -> tuple[str, Any]:
        """The next event, and its data. Comments are skipped; at the end there is no name."""
        name = ""
        while line := self.response.readline().decode():
            if line.startswith("event: "):
                name = line.removeprefix("event: ").strip()
            elif line.startswith("data: "):
                return name, json.loads(line.removeprefix("data: "))
        return "", None

    def until(self, true: Any) -> Any:
        """The data of the first event of which something is true."""
        deadline = time.monotonic() + WAIT_S
        while time.monotonic() < deadline:
            name, data = self.next()
            assert name, "the stream has ended"
            if true(data):
                return data
        raise AssertionError("it was not reported")

    def close(self) -> None:
        self.response.close()
        self._connection.close()


@contextmanager
def events(served: AdminClient, path: str) -> Iterator[Events]:
    stream = Events(served, path)
    try:
        assert stream.response.status == 200
        assert stream.response.headers["content-type"].startswith("text/event-stream")
        yield stream
    finally:
        stream.close()
