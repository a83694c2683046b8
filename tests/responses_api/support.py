"""What the tests of the Responses API as a process share: a gateway with providers of other APIs, and its clients."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.anthropic.support import PROVIDERS
from tests.faults.client import RawClient, Response, post
from tests.faults.gateway import PROVIDER_KEY, Gateway, Table, settings
from tests.faults.upstream import Upstream
from tests.open_responses import problems

PATH = "/v1/responses"
COUNT = "/v1/responses/input_tokens"
Json = dict[str, Any]


# A provider of the same API, and one that offers two.
_OPENAI = """
[providers.openai]
base_url = "{url}"
dialect = "openai_responses"
api_key = "{key}"
[providers.two]
base_url = "{url}"
api_key = "{key}"
[providers.two.dialects.openai_responses]
path = "/api/responses"
required_for = ["pro-*"]
not_for = ["audio-*"]
"""


class ResponsesGateway(Gateway):
    """A gateway whose clients speak Responses."""

    def start_response(self, model: str, *, stream: bool = True, **fields: object) -> RawClient:
        """Send a request; the answer is still to be read."""
        client = self.client()
        self.expected += 1
        client.send(post(request_body(model, stream=stream, **fields), {}, PATH))
        return client

    def respond(
        self, model: str, *, stream: bool = True, headers: Mapping[str, str] | None = None, **fields: object
    ) -> Response:
        """Send a request, and read the answer."""
        return self.send(post(request_body(model, stream=stream, **fields), headers or {}, PATH), calls=1)

    def count(self, model: str, **fields: object) -> Response:
        """Ask for the tokens of an input."""
        return self.send(post(json.dumps({"model": model, "input": "Hi"} | fields).encode(), {}, COUNT), calls=1)


def request_body(model: str, *, stream: bool, **fields: object) -> bytes:
    """The body of a request."""
    return json.dumps({"model": model, "stream": stream, "input": "Say hello."} | fields).encode()


def start(folder: Path, upstream: Upstream, more: str = "", **tables: Table) -> ResponsesGateway:
    """A gateway of one's own; not yet started."""
    providers = (PROVIDERS + _OPENAI).format(url=upstream.url, key=PROVIDER_KEY)
    return ResponsesGateway(folder, upstream, settings(upstream.url, **tables) + providers + more)


def events(response: Response) -> list[Json]:
    """The events of a stream: each has its name, and its number in order; only `[DONE]` is behind the last."""
    assert response.headers["content-type"].startswith("text/event-stream")
    assert response.body == b"" or response.body.endswith(b"\n\ndata: [DONE]\n\n")
    found = []
    for number, block in enumerate(response.body.decode().split("\n\n")[:-2]):
        name, data = block.split("\n")
        value = json.loads(data.removeprefix("data: "))
        assert (value["type"], value["sequence_number"]) == (name.removeprefix("event: "), number)
        assert problems(value) == []
        found.append(value)
    return found


def names(response: Response) -> list[str]:
    """The types of the events."""
    return [event["type"].removeprefix("response.") for event in events(response)]


def whole(response: Response) -> Json:
    """The response object: of a body, or of the last event."""
    streamed = response.headers["content-type"].startswith("text/event-stream")
    found: Json = events(response)[-1]["response"] if streamed else response.json
    assert problems(found) == []
    return found


def text(response: Response) -> str:
    """The text of an answer. In a stream, the deltas must be the same as the whole."""
    parts = [part for item in whole(response)["output"] for part in item.get("content") or ()]
    found = "".join(part.get("text", "") for part in parts if part["type"] == "output_text")
    if response.headers["content-type"].startswith("text/event-stream"):
        deltas = [event["delta"] for event in events(response) if event["type"] == "response.output_text.delta"]
        assert "".join(deltas) == found
    return found


def error(response: Response) -> tuple[int, str]:
    """The status and code of an error, which must be in OpenAI's envelope and name the request."""
    found = response.json["error"]
    assert {"message", "type", "param", "code"} <= set(found)
    assert found["message"]
    assert found["request_id"] == response.request_id
    return response.status, found["code"]
