"""Providers whose API no client speaks, on real sockets: answers for clients of other APIs, failures, recordings."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.capture import parse
from tests.faults.client import Response
from tests.faults.gateway import PROVIDER_KEY, Gateway, settings
from tests.faults.upstream import JSON, Op, Upstream, chunk, fin, head, last_chunk, status
from tests.provider_streams import HEALTHY, TEXT

pytestmark = pytest.mark.slow

PROVIDERS = """
[providers.{dialect}]
base_url = "{url}"
dialect = "{dialect}"
api_key = "{key}"
"""
USAGE = {"prompt_tokens": 7, "completion_tokens": 4, "total_tokens": 11}
THINKS = "thinking and a call"
# The content type of a stream, and an error body.
TYPES = {
    "ollama": "application/x-ndjson",
    "cohere": "text/event-stream",
    "bedrock_converse": "application/vnd.amazon.eventstream",
}
ERRORS = {
    "ollama": b'{"error":"slow down"}',
    "cohere": b'{"id":"e1","message":"slow down"}',
    "bedrock_converse": b'{"message":"slow down"}',
}


@pytest.fixture(scope="module")
def shared_gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    folder = tmp_path_factory.mktemp("providers")
    with Upstream() as upstream:
        tables = [PROVIDERS.format(dialect=name, url=upstream.url, key=PROVIDER_KEY) for name in HEALTHY]
        configuration = settings(upstream.url, server={"record": str(folder / "captures")}) + "".join(tables)
        with Gateway(folder, upstream, configuration) as gateway:
            yield gateway
        gateway.keeps_secrets()


@pytest.fixture
def gateway(shared_gateway: Gateway) -> Iterator[Gateway]:
    yield shared_gateway
    shared_gateway.quiet()
    shared_gateway.forget()


def streams(dialect: str, data: bytes, *, size: int = 11) -> list[Op]:
    """A stream in chunks that do not respect its events."""
    pieces = [data[start : start + size] for start in range(0, len(data), size)]
    return [head(headers={"content-type": TYPES[dialect]}), *map(chunk, pieces), last_chunk()]


def deltas(response: Response) -> list[Any]:
    events = [event.removeprefix("data: ") for event in response.body.decode().split("\n\n")]
    return [json.loads(event) for event in events if event.startswith("{")]


@pytest.mark.parametrize("dialect", HEALTHY)
def test_a_client_gets_a_stream_of_its_own_api(gateway: Gateway, dialect: str) -> None:
    model = gateway.upstream.play(streams(dialect, HEALTHY[dialect]["text"]))
    response = gateway.ask(f"{dialect}/{model}", stream=True, stream_options={"include_usage": True})
    assert response.status == 200
    found = deltas(response)
    text = "".join(each["choices"][0]["delta"].get("content") or "" for each in found if each["choices"])
    assert (text, response.body[-14:]) == (TEXT, b"data: [DONE]\n\n")
    assert found[-1]["usage"].items() >= USAGE.items()
    call = gateway.call(response)
    assert (call["ending"], call["input"], call["output"]) == ("completed", 7, 4)


@pytest.mark.parametrize("dialect", HEALTHY)
def test_a_client_gets_a_whole_answer_with_a_call(gateway: Gateway, dialect: str) -> None:
    model = gateway.upstream.play(streams(dialect, HEALTHY[dialect][THINKS]))
    response = gateway.ask(f"{dialect}/{model}", stream=False)
    choice = response.json["choices"][0]
    assert (choice["finish_reason"], choice["message"]["content"]) == ("tool_calls", TEXT)
    assert choice["message"]["tool_calls"][0]["function"]["name"] == "get_tide"


@pytest.mark.parametrize("dialect", HEALTHY)
def test_a_stream_that_is_cut_is_reported_as_truncated(gateway: Gateway, dialect: str) -> None:
    data = HEALTHY[dialect]["text"]
    model = gateway.upstream.play(
        [head(headers={"content-type": TYPES[dialect]}), chunk(data[: len(data) * 2 // 3]), fin()]
    )
    response = gateway.ask(f"{dialect}/{model}", stream=True)
    assert b"[DONE]" not in response.body
    assert b'"error"' in response.body
    assert gateway.call(response)["ending"] == "truncated"


@pytest.mark.parametrize("dialect", HEALTHY)
def test_a_providers_rate_limit_is_reported_in_the_clients_api(gateway: Gateway, dialect: str) -> None:
    model = gateway.upstream.play([status(429, JSON, ERRORS[dialect])])
    response = gateway.ask(f"{dialect}/{model}", stream=True)
    assert (response.status, response.json["error"]["code"]) == (429, "upstream_rate_limited")
    assert "slow down" in response.json["error"]["message"]


@pytest.mark.parametrize("dialect", HEALTHY)
def test_an_answer_is_recorded_with_its_dialect_and_without_the_key(gateway: Gateway, dialect: str) -> None:
    data = HEALTHY[dialect]["text"]
    model = gateway.upstream.play(streams(dialect, data))
    gateway.ask(f"{dialect}/{model}", stream=True)
    captures = gateway.file.parent / "captures"

    def recorded() -> list[Path]:
        return [file for file in captures.glob("*.capture") if model.encode() in file.read_bytes()]

    gateway.until(recorded)
    capture = parse(recorded()[0].read_bytes())
    assert (capture.data, capture.header.dialect) == (data, dialect)
    assert PROVIDER_KEY.encode() not in recorded()[0].read_bytes()
