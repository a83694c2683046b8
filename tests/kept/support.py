"""What the tests of kept responses share: a gateway that keeps them, its clients and its store."""

import json
import os
import signal
import sqlite3
import subprocess
import time
from contextlib import closing
from pathlib import Path
from typing import Any

from openai import DefaultHttpxClient, OpenAI

from tests.anthropic.support import MessagesGateway, configuration
from tests.faults.client import CLIENT_KEY, RawClient, Response, get, post
from tests.faults.gateway import PROVIDER_KEY, Table
from tests.faults.scripts import unstreamed, whole
from tests.faults.upstream import Op, Upstream
from tests.open_responses import stream_problems

PATH = "/v1/responses"
OTHER_KEY = "canary-of-another-client-8d21"
TEXT = "Hello, world"
_WAIT_S = 15.0
# A provider that offers the same API.
OWN = """
[providers.own]
base_url = "{url}"
dialect = "openai_responses"
api_key = "{key}"
"""


class KeepingGateway(MessagesGateway):
    """A gateway whose clients speak Responses."""

    def start(self, *, read_output: bool = True) -> None:
        """Start it. While responses are read, a second thread has the store's files open."""
        super().start(read_output=read_output)
        self.files_at_start += 3

    def restart(self, number: int = signal.SIGTERM) -> None:
        """End it with a signal, and start it again."""
        self.stop(number)
        self.output.clear()
        self.start()

    def begin_response(
        self, model: str, input: object = "Say hello.", *, stream: bool = True, **fields: object
    ) -> RawClient:
        """Send a request; the answer is still to be read."""
        client = self.client()
        self.expected += 1
        client.send(post(response_body(model, input, stream=stream, **fields), authorized(CLIENT_KEY), PATH))
        return client

    def respond(self, model: str, input: object = "Say hello.", key: str = CLIENT_KEY, **fields: object) -> Response:
        """Send a request and read the answer; a refusal is not a call."""
        response = self.send(post(response_body(model, input, **fields), authorized(key), PATH))
        self.expected += response.status == 200
        return response

    def ask_for(self, path: str, method: str = "GET", key: str = CLIENT_KEY) -> Response:
        """Send a request about a kept response."""
        return self.send(get(f"{PATH}/{path}", authorized(key), method))

    def asked(self, model: str) -> Any:
        """The body of the last request that the provider got for a model."""
        return json.loads(self.upstream.requests(model)[-1].partition(b"\r\n\r\n")[2])

    def sdk(self, key: str = CLIENT_KEY) -> OpenAI:
        """The official client."""
        return OpenAI(
            api_key=key,
            base_url=f"http://127.0.0.1:{self.port}/v1",
            max_retries=0,
            http_client=DefaultHttpxClient(trust_env=False),
        )

    def rotate_key(self) -> str:
        """Give a key of its ledger a new secret, and wait until it is known."""
        command = [*self.command, "keys", "rotate", self.key_name(), "--config", str(self.file)]
        environment = os.environ | {"PENSTOCK_STATE": str(self.book.folder)}
        made = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
        key = made.stdout.strip()
        deadline = time.monotonic() + _WAIT_S
        while self.send(get("/v1/models", authorized(key))).status == 401:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        return key

    def key_name(self) -> str:
        """The name of the only key in its ledger."""
        with closing(sqlite3.connect(self.book.folder / "ledger.db")) as connection:
            ((name,),) = connection.execute("SELECT name FROM keys")
        return str(name)

    @property
    def store(self) -> Path:
        return self.book.folder / "content.db"

    def stored(self) -> list[str]:
        """The ids of the responses in its file."""
        if not self.store.exists():
            return []
        with closing(sqlite3.connect(self.store)) as connection:
            return [id for (id,) in connection.execute("SELECT id FROM records ORDER BY at_ms")]

    def until_stored(self, count: int) -> None:
        """Wait until it has so many responses."""
        deadline = time.monotonic() + _WAIT_S
        while len(self.stored()) != count:
            assert time.monotonic() < deadline, self.stored()
            time.sleep(0.05)


def authorized(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


def response_body(model: str, input: object, **fields: object) -> bytes:
    return json.dumps({"model": model, "input": input} | fields).encode()


def start(
    folder: Path,
    upstream: Upstream,
    *,
    server: Table | None = None,
    ledger: Table | None = None,
    limits: Table | None = None,
    **responses: object,
) -> KeepingGateway:
    """A gateway of one's own; not yet started."""
    tables: dict[str, Table | None] = {
        "server": {"keys": [CLIENT_KEY, OTHER_KEY], **(server or {})},
        "responses": {"store": True} | responses,
        "ledger": ledger,
        "limits": limits,
    }
    given = {name: table for name, table in tables.items() if table is not None}
    own = OWN.format(url=upstream.url, key=PROVIDER_KEY)
    return KeepingGateway(folder, upstream, configuration(upstream, **given) + own)


def says(text: str) -> list[Op]:
    """A provider's whole answer."""
    return unstreamed(text)


def streams() -> list[Op]:
    """A provider's stream."""
    return whole()


def final(response: Response) -> Any:
    """The response object: of a body, or of the last event of a stream."""
    if response.headers["content-type"].startswith("application/json"):
        return response.json
    assert stream_problems(response.body) == []
    last = response.body.decode().removesuffix("\n\ndata: [DONE]\n\n").rpartition("\ndata: ")[2]
    return json.loads(last)["response"]


def code(response: Response) -> tuple[int, str]:
    return response.status, response.json["error"]["code"]
