"""Token counts and the list of models, by the official `anthropic` package."""

from collections.abc import Iterator

import pytest
from anthropic import Anthropic, DefaultHttpxClient, NotFoundError

from tests.faults.client import CLIENT_KEY
from tests.faults.upstream import JSON, status
from tests.judges.answers import ANSWERS, streamed
from tests.judges.messages.bench import PROVIDERS, Bench
from tests.messages import Json

QUESTION: Json = {"messages": [{"role": "user", "content": "How long is this question, in tokens?"}]}


@pytest.fixture(scope="module")
def client(bench: Bench) -> Iterator[Anthropic]:
    http_client = DefaultHttpxClient(trust_env=False)
    with Anthropic(api_key=CLIENT_KEY, base_url=bench.base_url, max_retries=0, http_client=http_client) as client:
        yield client


def test_the_cached_input_is_known_when_an_answer_begins(bench: Bench, client: Anthropic) -> None:
    """Clients show it at once: of Claude as it says, of a chat provider, which reports it last, as an estimate."""
    begins = {}
    for provider in PROVIDERS:
        model = bench.play(provider, streamed(ANSWERS["text"].wire(provider)))
        with client.messages.create(model=model, max_tokens=99, stream=True, **QUESTION) as stream:
            first = next(iter(stream))
        assert first.type == "message_start"
        begins[provider] = first.message.usage
    assert (begins["claude"].input_tokens, begins["claude"].cache_read_input_tokens) == (12, 8)
    assert 5 <= begins["main"].input_tokens <= 40


def test_claude_counts_tokens_itself(bench: Bench, client: Anthropic) -> None:
    model = bench.play("claude", [status(200, JSON, b'{"input_tokens": 123}')])
    counted = client.messages.with_raw_response.count_tokens(model=model, **QUESTION)
    assert counted.parse().input_tokens == 123
    assert "x-penstock-estimated" not in counted.headers
    (request,) = bench.upstream.requests(model.partition("/")[2])
    assert request.startswith(b"POST /v1/messages/count_tokens ")
    assert b"stream" not in request.lower().partition(b"\r\n\r\n")[2]


@pytest.mark.parametrize("provider", ["main", "claude"])
def test_a_count_is_estimated_where_it_cannot_be_had(bench: Bench, client: Anthropic, provider: str) -> None:
    model = bench.play(provider, [status(500, JSON, b"{}")])
    counted = client.messages.with_raw_response.count_tokens(model=model, **QUESTION)
    assert 5 <= counted.parse().input_tokens <= 40
    assert counted.headers["x-penstock-estimated"] == "true"
    assert len(bench.requests(model)) == (1 if provider == "claude" else 0)


def test_a_count_for_an_unknown_model_is_a_404(client: Anthropic) -> None:
    with pytest.raises(NotFoundError, match="no-such-model"):
        client.messages.count_tokens(model="no-such-model", **QUESTION)


def test_models_are_listed(client: Anthropic) -> None:
    listed = list(client.models.list(limit=1000))
    assert [model.id for model in listed if not model.id.startswith("local/")] == ["offered"]
    assert listed[0].type == "model"
    assert listed[0].display_name


def test_a_model_is_found_by_its_name(client: Anthropic) -> None:
    assert client.models.retrieve("offered").id == "offered"
    with pytest.raises(NotFoundError, match="no-such-model"):
        client.models.retrieve("no-such-model")
