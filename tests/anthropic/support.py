"""What the tests of the Messages API as a process share: a gateway with providers of both dialects, and its clients."""

import json
import os
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests import messages as ant
from tests import streams as chat
from tests.faults.client import CLIENT_KEY, RawClient, Response, get, post
from tests.faults.gateway import PROVIDER_KEY, Gateway, Table, settings
from tests.faults.upstream import JSON, Op, Upstream, chunk, head, last_chunk, status

PATH = "/v1/messages"
COUNT = "/v1/messages/count_tokens"
VERSION = {"anthropic-version": "2023-06-01"}
HI = [{"role": "user", "content": "Say hello."}]
TEXT = "Hello, world"
ANSWER = ant.answer(*ant.says_all("Hello", ", world"))
CHAT_ANSWER = chat.sse(
    chat.begins(),
    chat.says("Hello"),
    chat.says(", world"),
    chat.finishes(),
    chat.bill(**chat.counts(7, 4)),
    chat.DONE,
)
MESSAGE = json.dumps(
    {
        "id": "msg_w1",
        "type": "message",
        "role": "assistant",
        "model": "weir-3",
        "content": [{"type": "text", "text": TEXT}],
        "stop_reason": "end_turn",
        "stop_sequence": None,
        "usage": {"input_tokens": 7, "output_tokens": 4},
    }
).encode()
# Providers of Messages: a usual one, two that are hasty, one that does not accept all.
PROVIDERS = """
[providers.claude]
base_url = "{url}"
dialect = "anthropic_messages"
key_header = "x-api-key"
api_key = "{key}"
[providers.bearer]
base_url = "{url}"
dialect = "anthropic_messages"
api_key = "{key}"
[providers.hasty-claude]
base_url = "{url}"
dialect = "anthropic_messages"
key_header = "x-api-key"
api_key = "{key}"
timeouts = {{ first_event_s = 0.25, answer_s = 0.25 }}
[providers.hasty-gap-claude]
base_url = "{url}"
dialect = "anthropic_messages"
key_header = "x-api-key"
api_key = "{key}"
timeouts = {{ gap_s = 0.25 }}
[providers.fixed-claude]
base_url = "{url}"
dialect = "anthropic_messages"
key_header = "x-api-key"
api_key = "{key}"
headers = {{ Anthropic-Beta = "of-the-operator" }}
[providers.strict-claude]
base_url = "{url}"
dialect = "anthropic_messages"
key_header = "x-api-key"
api_key = "{key}"
settings = {{ drop = ["context_management"], mid_system = false }}
[providers.raw-predict]
base_url = "{url}/publishers/anthropic/models"
path = "/{{model}}:streamRawPredict"
dialect = "anthropic_messages"
api_key = "{key}"
settings = {{ body_version = "vertex-2023-10-16" }}
"""


class MessagesGateway(Gateway):
    """A gateway whose clients speak Messages."""

    def start_message(self, model: str, *, stream: bool = True, **fields: object) -> RawClient:
        """Send a request; the caller reads the answer."""
        client = self.client()
        self.expected += 1
        client.send(post(message_body(model, stream=stream, **fields), VERSION, PATH))
        return client

    def message(
        self,
        model: str,
        *,
        stream: bool = True,
        headers: Mapping[str, str] | None = None,
        path: str = f"{PATH}?beta=true",
        **fields: object,
    ) -> Response:
        """Send a request as Claude Code does, and read the answer."""
        body = message_body(model, stream=stream, **fields)
        return self.send(post(body, {**VERSION, **(headers or {})}, path), calls=1)

    def count(self, model: str, headers: Mapping[str, str] | None = None, **fields: object) -> Response:
        """Ask for the tokens of an input."""
        body = json.dumps({"model": model, "messages": HI} | fields).encode()
        return self.send(post(body, {**VERSION, **(headers or {})}, f"{COUNT}?beta=true"), calls=1)

    def create_key(self, *options: str) -> str:
        """Create a key in its ledger, and wait until it is known."""
        command = [
            *self.command,
            "keys",
            "create",
            "--name",
            f"test-{time.monotonic_ns()}",
            *options,
            "--config",
            str(self.file),
        ]
        environment = os.environ | {"PENSTOCK_STATE": str(self.book.folder)}
        made = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
        key = made.stdout.strip()
        deadline = time.monotonic() + 8.0
        while self.send(get("/v1/models", {"Authorization": f"Bearer {key}"})).status == 401:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        return key


def message_body(model: str, *, stream: bool, **fields: object) -> bytes:
    """The body of a request."""
    return json.dumps({"model": model, "max_tokens": 100, "stream": stream, "messages": HI} | fields).encode()


def configuration(upstream: Upstream, **tables: Table) -> str:
    """A gateway with the providers of the fault tests, and some that speak Messages."""
    return settings(upstream.url, **tables) + PROVIDERS.format(url=upstream.url, key=PROVIDER_KEY)


def start(folder: Path, upstream: Upstream, more: str = "", **tables: Table) -> MessagesGateway:
    """A separate gateway, which is not started yet."""
    return MessagesGateway(folder, upstream, configuration(upstream, **tables) + more)


def streams(*data: bytes) -> list[Op]:
    """A stream, each piece in a chunk of its own."""
    return [head(), *map(chunk, data), last_chunk()]


def answers(body: bytes, code: int = 200, **headers: str) -> list[Op]:
    """A whole response."""
    return [status(code, {**JSON, **{name.replace("_", "-"): value for name, value in headers.items()}}, body)]


def provider_error(type: str, message: str, **fields: object) -> bytes:
    """An error as Anthropic sends it."""
    return json.dumps({"type": "error", "error": {"type": type, "message": message}, **fields}).encode()


def events(response: Response) -> list[tuple[str, Any]]:
    """The events of a stream. Each must have its name and its data, and no bytes may follow the last one."""
    assert response.headers["content-type"].startswith("text/event-stream")
    assert response.body == b"" or response.body.endswith(b"\n\n")
    found = []
    for block in response.body.decode().split("\n\n")[:-1]:
        name, data = block.split("\n")
        value = json.loads(data.removeprefix("data: "))
        assert value["type"] == name.removeprefix("event: ")
        found.append((value["type"], value))
    return found


def names(response: Response) -> list[str]:
    """The names of the events."""
    return [name for name, _ in events(response)]


def id_in(seen: bytes) -> str:
    """The id of a request in the head of its response."""
    return seen.partition(b"x-request-id: ")[2].partition(b"\r\n")[0].decode()


def text(response: Response) -> str:
    """The text of a streamed answer, or of a body."""
    if not response.headers["content-type"].startswith("text/event-stream"):
        return "".join(block.get("text", "") for block in response.json["content"])
    deltas = [value["delta"] for name, value in events(response) if name == "content_block_delta"]
    return "".join(delta.get("text", "") for delta in deltas)


def error(response: Response) -> tuple[int, str, str]:
    """The status, type and message of an error. It must be in Anthropic's envelope and have the id of the request."""
    body = response.json
    assert set(body) == {"type", "error", "request_id"}
    assert body["type"] == "error"
    assert body["request_id"] == response.headers["request-id"] == response.request_id
    assert set(body["error"]) == {"type", "message"}
    return response.status, body["error"]["type"], body["error"]["message"]


def sent(gateway: Gateway, model: str) -> tuple[str, dict[str, str], bytes]:
    """What the provider received for a model: path, headers, body."""
    raw, _, body = gateway.upstream.requests(model)[-1].partition(b"\r\n\r\n")
    line, *lines = raw.decode("latin-1").split("\r\n")
    headers = dict(header.split(": ", 1) for header in lines)
    return line.split(" ")[1], headers, body


KEY = {"Authorization": f"Bearer {CLIENT_KEY}"}
