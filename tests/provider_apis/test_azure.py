"""Azure: both forms of the OpenAI API on real sockets as the official client calls them, tokens of Entra ID, and the
address of Claude in Foundry.
"""

import json
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest
from anthropic import AnthropicFoundry, BadRequestError
from openai import APIStatusError, AzureOpenAI, OpenAI

from penstock.gateway.config import load
from tests import responses as rs
from tests import streams as chat
from tests.faults.client import post
from tests.faults.gateway import PROVIDER_KEY, Gateway, settings
from tests.faults.upstream import EVENT_STREAM, JSON, Op, Upstream, chunk, head, last_chunk, status
from tests.gemini_api.support import CHAT_ANSWER
from tests.responses_api.support import ResponsesGateway, events
from tests.upstream.azure import HEADER, TOKEN, EntraServer

pytestmark = pytest.mark.slow

DATED = "2024-10-21"
EMBEDDING = b'{"object":"list","data":[],"model":"e-1","usage":{"prompt_tokens":7,"total_tokens":7}}'
FILTERS = [{"blocked": False, "source_type": "prompt", "content_filter_results": {}}]
RESPONSE = chat.sse(
    *rs.begins(content_filters=None, model="my-deployment"),
    *rs.says_all("Hello", ", world"),
    rs.completes(rs.message(rs.part("Hello, world")), content_filters=FILTERS, model="my-deployment"),
)


def configuration(upstream: Upstream, more: str) -> str:
    base = upstream.url.removesuffix("/v1")
    return f'{settings(upstream.url)}\n[providers.azure]\nbase_url = "{base}"\n{more}'


@pytest.fixture(scope="module", params=["", DATED], ids=["v1", DATED])
def version(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def keyed(version: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ResponsesGateway]:
    with Upstream() as upstream:
        text = configuration(
            upstream, f'api_key = "{PROVIDER_KEY}"\n' + (f'api_version = "{version}"\n' * bool(version))
        )
        with ResponsesGateway(tmp_path_factory.mktemp("azure"), upstream, text) as gateway:
            yield gateway
        gateway.keeps_secrets()


def official(upstream: Upstream, version: str) -> OpenAI:
    """The client that Microsoft documents for this form of the API."""
    base = upstream.url.removesuffix("/v1")
    if version:
        return AzureOpenAI(azure_endpoint=base, api_key=PROVIDER_KEY, api_version=version, max_retries=0)
    key = {"api-key": PROVIDER_KEY}
    return OpenAI(base_url=f"{base}/openai/v1/", api_key="unused", default_headers=key, max_retries=0)


def addressed(request: bytes) -> tuple[str, list[str]]:
    """The first line of a request, and its key."""
    first, *lines = request.partition(b"\r\n\r\n")[0].decode().split("\r\n")
    return first, [line for line in map(str.lower, lines) if line.startswith("api-key:")]


def test_requests_are_addressed_as_those_of_the_official_client(keyed: ResponsesGateway, version: str) -> None:
    refused = [status(400, JSON, b'{"error":{"message":"no","type":"invalid_request_error"}}')]
    model = keyed.upstream.play(refused)
    assert keyed.ask(f"azure/{model}", stream=False).status == 400
    assert keyed.respond(f"azure/{model}", stream=False).status == 400
    embedding = json.dumps({"model": f"azure/{model}", "input": "a"}).encode()
    assert keyed.send(post(embedding, path="/v1/embeddings"), calls=1).status == 400
    ours = [addressed(request) for request in keyed.upstream.requests(model)]
    with official(keyed.upstream, version) as client:
        for call in (
            lambda: client.chat.completions.create(model=model, messages=[{"role": "user", "content": "Hi"}]),
            lambda: client.responses.create(model=model, input="Hi"),
            lambda: client.embeddings.create(model=model, input="a"),
        ):
            with pytest.raises(APIStatusError):
                call()
    theirs = [addressed(request) for request in keyed.upstream.requests(model)[len(ours) :]]
    assert ours == theirs
    assert [key for _, key in ours] == [[f"api-key: {PROVIDER_KEY}"]] * 3
    keyed.quiet()


def streams(data: bytes) -> list[Op]:
    return [head(headers=EVENT_STREAM), chunk(data), last_chunk()]


def test_what_azure_adds_to_a_response_reaches_clients_of_responses(keyed: ResponsesGateway) -> None:
    model = keyed.upstream.play(streams(RESPONSE))
    last = events(keyed.respond(f"azure/{model}"))[-1]["response"]
    assert (last["content_filters"], last["model"]) == (FILTERS, "my-deployment")
    required = keyed.upstream.play(streams(RESPONSE), "codex-weir")
    assert keyed.ask(f"azure/{required}", stream=True).text == "Hello, world"
    keyed.quiet()


class EntraGateway(Gateway):
    """A gateway on a machine with a managed identity."""

    def __init__(self, folder: Path, upstream: Upstream, entra: EntraServer, workers: int) -> None:
        server = {"record": str(folder / "captures"), "workers": workers}
        text = configuration(upstream, 'auth = "azure"\n[routes.either]\ntargets = ["azure/any", "main/spare"]\n')
        start = settings(upstream.url)
        text = text.replace(start, settings(upstream.url, server=server, ledger={"enabled": True}))
        self.entra = entra
        super().__init__(folder, upstream, text, environment=entra.managed_identity())


@pytest.fixture
def entra(tmp_path: Path) -> Iterator[EntraServer]:
    with EntraServer(tmp_path) as entra:
        yield entra


def run(folder: Path, entra: EntraServer, upstream: Upstream, workers: int = 1) -> Iterator[EntraGateway]:
    """Run a gateway. Afterwards, no token is in what it wrote, stored or answered."""
    with EntraGateway(folder, upstream, entra, workers) as gateway:
        yield gateway
        answers = "".join(f"{each.headers}{each.body!r}" for each in gateway.responses)
        gateway.quiet()
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert any(path.suffix == ".capture" for path in files)
    written = answers + "".join(gateway.output)
    for secret in (TOKEN, HEADER):
        assert secret not in written
        assert not [path for path in files if secret.encode() in path.read_bytes()]


@pytest.fixture
def upstream() -> Iterator[Upstream]:
    with Upstream() as upstream:
        yield upstream


@pytest.fixture
def gateway(tmp_path: Path, entra: EntraServer, upstream: Upstream) -> Iterator[EntraGateway]:
    yield from run(tmp_path, entra, upstream)


@pytest.fixture
def two_workers(tmp_path: Path, entra: EntraServer, upstream: Upstream) -> Iterator[EntraGateway]:
    yield from run(tmp_path, entra, upstream, workers=2)


def tokens(gateway: EntraGateway, model: str) -> list[str]:
    """The numbers of the tokens of all requests to a model."""
    found = [line for request in gateway.upstream.requests(model) for line in request.decode().split("\r\n")]
    return [line.removeprefix(f"authorization: Bearer {TOKEN}") for line in found if TOKEN in line]


def test_all_apis_are_called_with_one_token_and_without_a_key(gateway: EntraGateway) -> None:
    model = gateway.upstream.play(streams(CHAT_ANSWER))
    for stream in (True, True, True):
        assert gateway.ask(f"azure/{model}", stream=stream).text == "Hello, world"
    embedded = gateway.upstream.play([status(200, JSON, EMBEDDING)])
    body = json.dumps({"model": f"azure/{embedded}", "input": "a"}).encode()
    assert gateway.send(post(body, path="/v1/embeddings"), calls=1).body == EMBEDDING
    assert tokens(gateway, model) + tokens(gateway, embedded) == ["1"] * 4
    assert all(b"api-key" not in request for request in gateway.upstream.requests(model))
    assert gateway.entra.asked == 1


def test_what_a_provider_quotes_of_the_token_is_masked(gateway: EntraGateway) -> None:
    body = json.dumps({"error": {"code": "401", "message": f"bad: Bearer {TOKEN}1"}}).encode()
    model = gateway.upstream.play([status(400, JSON | {"x-quoted": f"{TOKEN}1"}, body)])
    response = gateway.ask(f"azure/{model}", stream=True)
    assert (response.status, tokens(gateway, model)) == (400, ["1"])
    assert "bad: Bearer " in response.json["error"]["message"]


def test_without_a_token_the_next_target_is_called(gateway: EntraGateway) -> None:
    gateway.entra.broken = True
    response = gateway.ask("azure/any", stream=True)
    assert (response.status, response.json["error"]["code"]) == (502, "upstream_auth")
    assert "must set AZURE_TENANT_ID and AZURE_CLIENT_ID" in response.json["error"]["message"]
    gateway.upstream.play(streams(CHAT_ANSWER), "spare")
    assert gateway.ask("either", stream=True).text == "Hello, world"
    assert gateway.upstream.requests("any") == []


def test_each_worker_has_a_token_of_its_own(two_workers: EntraGateway) -> None:
    model = two_workers.upstream.play(streams(CHAT_ANSWER))
    for _ in range(200):  # the kernel chooses the worker
        assert two_workers.ask(f"azure/{model}", stream=True).text == "Hello, world"
        if two_workers.entra.given == 2:
            break
    assert set(tokens(two_workers, model)) == {"1", "2"}
    assert two_workers.entra.asked == 2


def test_claude_in_foundry_is_addressed_as_by_the_official_client() -> None:
    env = {"ANTHROPIC_FOUNDRY_API_KEY": "a-key-of-some-length", "ANTHROPIC_FOUNDRY_RESOURCE": "me"}
    provider = load(None, env).providers["azure-anthropic"]
    asked: list[httpx2.Request] = []

    def refuse(request: httpx2.Request) -> httpx2.Response:
        asked.append(request)
        return httpx2.Response(400, json={"type": "error", "error": {"type": "invalid_request_error", "message": "no"}})

    transport = httpx2.Client(transport=httpx2.MockTransport(refuse))
    official = AnthropicFoundry(api_key="a-key-of-some-length", resource="me", http_client=transport, max_retries=0)
    with pytest.raises(BadRequestError):
        official.messages.create(model="m", max_tokens=1, messages=[{"role": "user", "content": "Hi"}])
    assert str(asked[0].url) == provider.url("m")
    assert provider.credentials().items() <= dict(asked[0].headers).items()
