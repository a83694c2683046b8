"""Claude on Bedrock for clients of the Messages API, on real sockets: with a key, and signed with AWS credentials."""

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from msgspec import convert

from penstock.cli.litellm.toml_text import write_toml
from penstock.providers.catalog import catalog
from tests import messages as ant
from tests.anthropic.support import HI, MESSAGE, TEXT, MessagesGateway, sent, text
from tests.event_streams import chunk as message
from tests.event_streams import exception
from tests.faults.gateway import PROVIDER_KEY, settings
from tests.faults.upstream import JSON, Op, Upstream, chunk, head, last_chunk, status

pytestmark = pytest.mark.slow

STREAM = [message(each) for each in (ant.begins(), *ant.says_all("Hello", ", world"), ant.finishes(), ant.STOPS)]
HEAD = head(headers={"content-type": "application/vnd.amazon.eventstream"})
REGION = "eu-west-3"
BUILT_IN = catalog()["bedrock"]
AUTH = {"a key": {"api_key": PROVIDER_KEY}, "a signature": {"auth": "aws"}}
# The canary is the secret of the credentials: the gateway must not write it anywhere.
ENVIRONMENT = {
    "AWS_ACCESS_KEY_ID": "AKIDEXAMPLE",
    "AWS_SECRET_ACCESS_KEY": PROVIDER_KEY,
    "AWS_DEFAULT_REGION": REGION,
    "AWS_EC2_METADATA_DISABLED": "true",
}


@pytest.fixture(scope="module", params=AUTH)
def authorized(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[MessagesGateway]:
    folder = tmp_path_factory.mktemp("bedrock")
    with Upstream() as upstream:
        configuration = settings(upstream.url) + "\n" + provider(AUTH[request.param], upstream.url)
        with MessagesGateway(folder, upstream, configuration, environment=ENVIRONMENT) as gateway:
            yield gateway
        gateway.keeps_secrets()


@pytest.fixture
def gateway(authorized: MessagesGateway) -> Iterator[MessagesGateway]:
    yield authorized
    authorized.quiet()
    authorized.forget()


def provider(auth: dict[str, str], url: str) -> str:
    """The built-in provider, with its Messages API at another address."""
    offer = convert(BUILT_IN["dialects"], dict[str, dict[str, Any]])["anthropic_messages"] | {"base_url": url}
    return write_toml({"providers": {"bedrock": {**auth, "dialects": {"anthropic_messages": offer}}}})


def signature(url: str, headers: dict[str, str], body: bytes) -> str:
    """The signature that botocore makes for a request as it arrived."""
    request = AWSRequest(
        "POST", url, data=body, headers={name: headers[name] for name in ("content-type", "x-amz-date")}
    )
    request.context["timestamp"] = headers["x-amz-date"]
    signer = SigV4Auth(Credentials("AKIDEXAMPLE", PROVIDER_KEY), "bedrock", REGION)
    return str(signer.signature(signer.string_to_sign(request, signer.canonical_request(request)), request))


def stream(*data: bytes) -> list[Op]:
    return [HEAD, *map(chunk, data), last_chunk()]


def play(gateway: MessagesGateway, script: list[Op]) -> tuple[str, str]:
    """Put a script on; returns a model of its own, without a price, as a client and as the provider's path names it."""
    model = f"us.anthropic.claude-{gateway.upstream.play(script)}:0"
    return f"bedrock/{model}", gateway.upstream.play(script, model.replace(":", "%3A"))


@pytest.mark.parametrize("streamed", [True, False])
def test_claude_is_asked_in_the_clients_own_api(gateway: MessagesGateway, streamed: bool) -> None:
    model, in_path = play(gateway, stream(*STREAM))
    response = gateway.message(
        model,
        stream=streamed,
        headers={"anthropic-beta": "claude-code-20250219,context-1m-2025-08-07"},
    )
    assert (response.status, text(response)) == (200, TEXT)
    call = gateway.call(response)
    assert (call["ending"], call["input"], call["output"]) == ("completed", 7, 4)
    path, headers, body = sent(gateway, in_path)
    assert path == f"/v1/model/{in_path}/invoke-with-response-stream"
    assert json.loads(body) == {
        "anthropic_version": "bedrock-2023-05-31",
        "anthropic_beta": ["context-1m-2025-08-07"],
        "max_tokens": 100,
        "messages": HI,
    }
    assert "anthropic-beta" not in headers
    if "x-amz-date" not in headers:
        assert headers["authorization"] == f"Bearer {PROVIDER_KEY}"
        return
    found = re.fullmatch(
        r"AWS4-HMAC-SHA256 Credential=(\S+), SignedHeaders=(\S+), Signature=(\w+)", headers["authorization"]
    )
    assert found is not None
    assert found[1].endswith(f"/{REGION}/bedrock/aws4_request")
    assert found[3] == signature(f"http://{headers['host']}{path}", headers, body)


def test_a_whole_answer_is_read(gateway: MessagesGateway) -> None:
    """As `InvokeModel` sends it, for an operator who sets that path."""
    model, _ = play(gateway, [status(200, JSON, MESSAGE)])
    assert text(gateway.message(model, stream=False)) == TEXT


def test_an_exception_in_the_stream_is_an_error(gateway: MessagesGateway) -> None:
    model, _ = play(gateway, stream(*STREAM[:3], exception("throttlingException", "slow down")))
    response = gateway.message(model)
    assert b"event: error" in response.body
    assert b"message_stop" not in response.body
    assert gateway.call(response)["ending"] == "failed"


def test_a_refusal_is_reported_in_the_clients_api(gateway: MessagesGateway) -> None:
    model, _ = play(gateway, [status(429, JSON, b'{"message":"slow down"}')])
    response = gateway.message(model)
    assert (response.status, response.json["error"]["type"]) == (429, "rate_limit_error")
    assert "slow down" in response.json["error"]["message"]
