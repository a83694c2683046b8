"""Media by URL for Claude on Vertex AI, which fetches none, on real sockets: the gateway fetches them where it may."""

import json
from base64 import b64encode
from collections.abc import Iterator

import pytest

from tests.anthropic.support import ANSWER, TEXT, MessagesGateway, sent, text
from tests.faults.gateway import PROVIDER_KEY, settings
from tests.faults.upstream import EVENT_STREAM, Upstream, chunk, hang, head, last_chunk, status
from tests.translation.support import Json

pytestmark = pytest.mark.slow

PNG = b"\x89PNG\r\n\x1a\n\0" + b"x" * 400_000
INLINED = {"type": "base64", "media_type": "image/png", "data": b64encode(PNG).decode()}
PROVIDER = """
[providers.vertex-anthropic]
base_url = "{url}/publishers/anthropic/models"
api_key = "{key}"
"""


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MessagesGateway]:
    with Upstream() as upstream:
        upstream.scripts[""] = [status(200, {"content-type": "image/png"}, PNG)]
        configuration = settings(upstream.url, server={"media_hosts": ["127.0.0.1"]})
        configuration += PROVIDER.format(url=upstream.url, key=PROVIDER_KEY)
        with MessagesGateway(tmp_path_factory.mktemp("media"), upstream, configuration) as gateway:
            yield gateway


def test_media_are_fetched_for_clients_of_its_own_api_and_of_others(running: MessagesGateway) -> None:
    upstream = running.upstream
    url = f"http://127.0.0.1:{upstream.port}/pic.png"
    source = {"type": "url", "url": url}
    own: Json = {"messages": [{"role": "user", "content": [{"type": "image", "source": source}]}]}
    chat: Json = {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": url}}]}]}
    model = upstream.play([head(headers=EVENT_STREAM), chunk(ANSWER), last_chunk()])
    assert text(running.message(f"vertex-anthropic/{model}", **own)) == TEXT
    assert json.loads(sent(running, model)[2])["messages"][0]["content"] == [{"type": "image", "source": INLINED}]
    model = upstream.play([head(headers=EVENT_STREAM), chunk(ANSWER), last_chunk()])
    assert running.ask(f"vertex-anthropic/{model}", stream=True, **chat).status == 200
    assert json.loads(sent(running, model)[2])["messages"][0]["content"] == [{"type": "image", "source": INLINED}]
    running.quiet()


def test_a_client_that_leaves_ends_the_fetching(running: MessagesGateway) -> None:
    upstream = running.upstream
    answers = upstream.scripts[""]
    upstream.scripts[""] = [hang()]
    before = len(upstream.requests(""))
    source = {"type": "url", "url": f"http://127.0.0.1:{upstream.port}/slow.png"}
    messages = [{"role": "user", "content": [{"type": "image", "source": source}]}]
    client = running.start_message("vertex-anthropic/any", messages=messages)
    fetching = upstream.asked("", before + 1)
    client.close()
    upstream.until(lambda: fetching.closed_at)
    upstream.scripts[""] = answers
    running.quiet()


def test_media_of_other_hosts_are_refused_before_the_provider_is_called(running: MessagesGateway) -> None:
    upstream = running.upstream
    source = {"type": "url", "url": f"http://localhost:{upstream.port}/pic.png"}
    model = upstream.play([head(headers=EVENT_STREAM), chunk(ANSWER), last_chunk()])
    before = len(upstream.asked_for)
    messages = [{"role": "user", "content": [{"type": "image", "source": source}]}]
    response = running.message(f"vertex-anthropic/{model}", messages=messages)
    assert (response.status, response.json["error"]["type"]) == (400, "invalid_request_error")
    assert "does not allow localhost; send it as base64 data" in response.json["error"]["message"]
    counted = running.count(f"vertex-anthropic/{model}", messages=messages)  # estimated
    assert (counted.status, len(upstream.asked_for)) == (200, before)
    running.quiet()
