"""Breakpoints for the prompt cache that the gateway sets: a chat client, a provider of Messages, real sockets."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests import messages as ant
from tests.anthropic.support import ANSWER, MessagesGateway, sent, start, streams
from tests.faults.client import Response, body, post
from tests.faults.upstream import Upstream

pytestmark = pytest.mark.slow

LONG = "Never touch the vendored folder. " * 160  # some 1,300 tokens
AGENT: dict[str, Any] = {
    "messages": [{"role": "system", "content": LONG}, {"role": "user", "content": "Fix the build."}],
    "tools": [{"type": "function", "function": {"name": "read", "parameters": {"type": "object"}}}],
}
CACHING = """
[providers.caching]
base_url = "{url}"
dialect = "anthropic_messages"
key_header = "x-api-key"
api_key = "provider-key-canary-12345"
settings.cache_minimum = 1_024
[prices."caching/*"]
input = 5.0
output = 25.0
cached = 0.5
cache_write = 6.25
[routes.uncached]
targets = ["caching/{model}"]
cache = "off"
"""


@pytest.fixture(scope="module")
def caching(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MessagesGateway]:
    with Upstream() as upstream:
        model = upstream.play(streams(ANSWER))
        more = CACHING.format(url=upstream.url, model=model)
        with start(tmp_path_factory.mktemp("caching"), upstream, more) as gateway:
            yield gateway


def ask(gateway: MessagesGateway, model: str, **fields: object) -> Response:
    return gateway.send(post(body(model, stream=True, **AGENT | fields), {}), calls=1)


def marks(gateway: MessagesGateway, model: str) -> int:
    return sent(gateway, model)[2].count(b'"cache_control"')


def test_breakpoints_are_in_the_request_the_header_and_the_log(caching: MessagesGateway) -> None:
    model = caching.upstream.play(streams(ANSWER))
    response = ask(caching, f"caching/{model}")
    assert (response.status, response.headers["x-penstock-cache"]) == (200, "system,message")
    assert marks(caching, model) == 2
    assert caching.call(response)["breakpoints"] == ["system", "message"]


def test_a_route_turns_them_off(caching: MessagesGateway) -> None:
    response = ask(caching, "uncached")
    assert response.status == 200
    assert "x-penstock-cache" not in response.headers
    assert caching.call(response)["breakpoints"] == []


def test_what_a_cache_saves_is_in_the_ledger(caching: MessagesGateway) -> None:
    usage = {"input_tokens": 10, "cache_read_input_tokens": 2_000, "cache_creation_input_tokens": 400}
    model = caching.upstream.play(streams(ant.answer(*ant.says_all("Hello"), begin=ant.begins(usage=usage))))
    response = ask(caching, f"caching/{model}")
    entry = caching.book.entry(response.request_id)
    assert (entry.tokens.input, entry.tokens.cached, entry.tokens.cache_write) == (2_410, 2_000, 400)
    assert entry.saved == 2_000 * 4_500 - 400 * 1_250


def test_a_client_of_the_same_api_sets_its_own(caching: MessagesGateway) -> None:
    model = caching.upstream.play(streams(ANSWER))
    response = caching.message(f"caching/{model}", system=LONG)
    assert (response.status, marks(caching, model)) == (200, 0)
    assert "x-penstock-cache" not in response.headers


def test_a_short_prompt_gets_none(caching: MessagesGateway) -> None:
    model = caching.upstream.play(streams(ANSWER))
    response = ask(caching, f"caching/{model}", messages=[{"role": "user", "content": "Hi"}])
    assert (response.status, marks(caching, model)) == (200, 0)


def test_each_turn_begins_with_the_bytes_of_the_turn_before(caching: MessagesGateway) -> None:
    model = caching.upstream.play(streams(ANSWER))
    ask(caching, f"caching/{model}")
    before = json.loads(sent(caching, model)[2])
    answer = {"role": "assistant", "content": "Done."}
    ask(caching, f"caching/{model}", messages=[*AGENT["messages"], answer, {"role": "user", "content": "Thanks."}])
    after = json.loads(sent(caching, model)[2])
    assert [before["tools"], before["system"]] == [after["tools"], after["system"]]
    assert before["messages"] == after["messages"][:1]  # with its breakpoint, which is the history now
