"""What the tests of the Gemini API as a process share: a gateway with providers of two dialects, and its clients."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests import streams as chat
from tests.faults.client import CLIENT_KEY, Response, get, post
from tests.faults.gateway import PROVIDER_KEY, Gateway, settings
from tests.faults.upstream import Upstream
from tests.gemini import answer, says

HI = [{"role": "user", "parts": [{"text": "Say hello."}]}]
TEXT = "Hello, world"
ANSWER = answer(says("Hello"), says(", world"))
CHAT_ANSWER = chat.sse(
    chat.begins(),
    chat.says("Hello"),
    chat.says(", world"),
    chat.finishes(),
    chat.bill(**chat.counts(7, 4)),
    chat.DONE,
)
KEY = {"Authorization": "", "x-goog-api-key": CLIENT_KEY}
PROVIDERS = """
[providers.gem]
base_url = "{url}"
dialect = "gemini"
key_header = "x-goog-api-key"
api_key = "{key}"
[routes.any]
targets = ["main/any-model"]
"""


class GeminiGateway(Gateway):
    """A gateway whose clients speak Gemini's API."""

    def generate(
        self,
        model: str,
        *,
        method: str = "streamGenerateContent?alt=sse",
        headers: Mapping[str, str] = KEY,
        prefix: str = "/v1beta",
        calls: int = 1,
        **fields: object,
    ) -> Response:
        """Send a request as Google's SDKs do, and read the answer."""
        body = json.dumps({"contents": HI} | fields).encode()
        return self.send(post(body, headers, f"{prefix}/models/{model}:{method}"), calls=calls)

    def count(self, model: str, **fields: object) -> Response:
        """Ask for the tokens of an input."""
        return self.send(post(json.dumps(fields).encode(), KEY, f"/v1beta/models/{model}:countTokens"), calls=1)

    def models(self, path: str = "") -> Any:
        """The list of models, or one of them."""
        return self.send(get(f"/v1beta/models{path}", KEY)).json


def start(folder: Path, upstream: Upstream) -> GeminiGateway:
    """A gateway with a provider of chat completions and one of Gemini."""
    configuration = settings(upstream.url) + PROVIDERS.format(url=upstream.url, key=PROVIDER_KEY)
    return GeminiGateway(folder, upstream, configuration)


def messages(response: Response) -> list[Any]:
    """The messages of an answer, streamed as events or as an array, or unstreamed."""
    if response.headers["content-type"].startswith("text/event-stream"):
        assert response.body.endswith(b"\r\n\r\n")
        events = response.body.decode().split("\r\n\r\n")[:-1]
        assert all(event.startswith("data: {") for event in events)  # neither comments nor [DONE]
        return [json.loads(event.removeprefix("data: ")) for event in events]
    assert response.headers["content-type"].startswith("application/json")
    return response.json if isinstance(response.json, list) else [response.json]


def parts(response: Response) -> list[Any]:
    """The parts of an answer."""
    found = [message["candidates"][0] for message in messages(response) if message.get("candidates")]
    return [part for candidate in found for part in candidate.get("content", {}).get("parts", [])]


def text(response: Response) -> str:
    """The text of an answer."""
    return "".join(part.get("text", "") for part in parts(response) if not part.get("thought"))


def error(response: Response) -> tuple[int, str, str]:
    """The status, Google's word for it, and our own code. The id of the request must be in it."""
    found = response.json["error"]
    assert set(found) >= {"code", "message", "status", "details"}
    assert found["code"] == response.status
    info = found["details"][0]["metadata"]
    assert info["requestId"] == response.request_id
    return response.status, found["status"], info["code"]
