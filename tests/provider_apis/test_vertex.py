"""Gemini and Claude on Vertex AI, on real sockets: the token of a service account, failures, and no secret anywhere."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import messages as ant
from tests.faults.gateway import Gateway, settings
from tests.faults.upstream import EVENT_STREAM, JSON, Op, Upstream, chunk, head, last_chunk, status
from tests.gemini import answer, says
from tests.gemini_api.support import CHAT_ANSWER
from tests.upstream.google import TOKEN, TokenEndpoint

pytestmark = pytest.mark.slow

PROVIDERS = """
[providers.vertex]
base_url = "{url}/projects/a-project/locations/global/publishers/google"
[providers.vertex-anthropic]
base_url = "{url}/projects/a-project/locations/global/publishers/anthropic/models"
[routes.either]
targets = ["vertex/either", "main/spare"]
"""
ANSWERS = {
    "vertex": answer(says("Hello"), says(", world")),
    "vertex-anthropic": ant.answer(*ant.says_all("Hello", ", world")),
}
PATHS = {
    "vertex": "/google/models/{model}:streamGenerateContent?alt=sse",
    "vertex-anthropic": "/anthropic/models/{model}:streamRawPredict",
}


class VertexGateway(Gateway):
    """A gateway with the credentials of a service account."""

    def __init__(self, folder: Path, upstream: Upstream, tokens: TokenEndpoint) -> None:
        account = folder / "account.json"
        self.tokens = tokens
        self.private = tokens.service_account(account)
        configuration = settings(upstream.url, server={"record": str(folder / "captures")}, ledger={"enabled": True})
        environment = {"GOOGLE_APPLICATION_CREDENTIALS": str(account)}
        super().__init__(folder, upstream, configuration + PROVIDERS.format(url=upstream.url), environment=environment)

    def sent(self, model: str) -> list[str]:
        """The first line and the tokens of the requests to a model."""
        found = [request.decode().split("\r\n") for request in self.upstream.requests(model)]
        return [
            line.removeprefix(f"authorization: Bearer {TOKEN}") for lines in found for line in lines if TOKEN in line
        ]


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[VertexGateway]:
    """A gateway of its own for each test. Afterwards, no secret is in what it wrote, stored or answered."""
    with TokenEndpoint() as tokens, Upstream() as upstream:
        with VertexGateway(tmp_path, upstream, tokens) as gateway:
            yield gateway
            answers = "".join(f"{each.headers}{each.body!r}" for each in gateway.responses)
            gateway.quiet()
        (tmp_path / "account.json").unlink()
        files = [path for path in tmp_path.rglob("*") if path.is_file()]
        assert any(path.suffix == ".capture" for path in files)
        written = answers + "".join(gateway.output)
        for secret in (TOKEN, gateway.private):
            assert secret not in written
            assert not [path for path in files if secret.encode() in path.read_bytes()]


def streams(data: bytes) -> list[Op]:
    return [head(headers=EVENT_STREAM), chunk(data), last_chunk()]


def test_both_apis_are_called_with_one_token(gateway: VertexGateway) -> None:
    for provider in ANSWERS:
        model = gateway.upstream.play(streams(ANSWERS[provider]))
        for stream in (False, True):
            response = gateway.ask(f"{provider}/{model}", stream=stream)
            assert response.status == 200
        path = PATHS[provider].format(model=model)
        assert all(f"/publishers{path} HTTP/1.1".encode() in asked for asked in gateway.upstream.requests(model))
        assert gateway.sent(model) == ["1", "1"]
    assert gateway.tokens.asked == 1


def test_what_a_provider_quotes_of_the_token_is_masked(gateway: VertexGateway) -> None:
    body = json.dumps({"error": {"code": 400, "message": f"bad: Bearer {TOKEN}1", "status": "INVALID_ARGUMENT"}})
    model = gateway.upstream.play([status(400, JSON | {"x-quoted": f"{TOKEN}1"}, body.encode())])
    response = gateway.ask(f"vertex/{model}", stream=True)
    assert response.status == 400
    assert "bad: Bearer " in response.json["error"]["message"]
    assert gateway.sent(model) == ["1"]


def test_without_a_token_the_next_target_is_called(gateway: VertexGateway) -> None:
    gateway.tokens.broken = True
    response = gateway.ask("vertex/any", stream=True)
    assert (response.status, response.json["error"]["code"]) == (502, "upstream_auth")
    assert "must set GOOGLE_APPLICATION_CREDENTIALS" in response.json["error"]["message"]
    gateway.upstream.play(streams(CHAT_ANSWER), "spare")
    response = gateway.ask("either", stream=True)
    assert (response.status, response.body[-14:]) == (200, b"data: [DONE]\n\n")
    assert gateway.upstream.requests("either") == []
