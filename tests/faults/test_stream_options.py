"""`stream_options` reaches only a provider that accepts it; a client that asks for usage gets it all the same.

The upstream answers 422 to a request that has the field, as Mistral does, and sends its usage unasked.
"""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.chat_ui.support import KEY, chat
from tests.faults.client import RawClient, Response, body, post
from tests.faults.gateway import PROVIDER_KEY, Gateway, settings
from tests.faults.scripts import TEXT, plain, unstreamed, whole
from tests.faults.upstream import JSON, Connection, Script, Upstream, status
from tests.serve.support import AdminClient
from tests.streams import counts

REFUSAL = b'{"detail": [{"type": "extra_forbidden", "loc": ["body", "stream_options"], "msg": "Extra inputs"}]}'
USAGE = {"stream_options": {"include_usage": True}}


def refusing(answer: Script) -> Script:
    """Answer so, but 422 to a request that has `stream_options`."""

    async def op(connection: Connection) -> None:
        refused = "stream_options" in sent(connection.requests[-1])
        for each in [status(422, JSON, REFUSAL)] if refused else answer:
            await each(connection)

    return [op]


def sent(request: bytes) -> Any:
    return json.loads(request.partition(b"\r\n\r\n")[2])


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    with Upstream() as upstream:
        tables = {"providers.mistral": {"base_url": upstream.url, "api_key": PROVIDER_KEY}}
        with Gateway(tmp_path_factory.mktemp("refusing"), upstream, settings(upstream.url, 1, **tables)) as gateway:
            yield gateway


def asked_by_client(gateway: Gateway, content: bytes) -> Response:
    with gateway.client() as client:
        client.send(post(content))
        return client.response()


def asked_by_playground(gateway: Gateway, content: bytes) -> Response:
    served = AdminClient(gateway)
    with RawClient(served.port) as client:
        headers = {"Host": served.place, "Authorization": f"Bearer {served.token}"}
        client.send(post(content, headers, "/admin/playground"))
        return client.response()


Ask = Callable[[Gateway, bytes], Response]


@pytest.mark.parametrize("ask", [asked_by_client, asked_by_playground])
def test_a_stream_is_asked_for_without_what_the_provider_refuses(gateway: Gateway, ask: Ask) -> None:
    model = gateway.upstream.play(refusing(whole()))
    response = ask(gateway, body(f"mistral/{model}", stream=True, **USAGE))
    assert (response.status, response.text, response.done) == (200, TEXT, True)
    assert response.chunks[-1]["choices"] == []
    assert response.chunks[-1]["usage"] == counts(5, 3)
    (request,) = gateway.upstream.requests(model)
    assert sent(request)["stream"] is True


def test_a_client_that_does_not_ask_for_usage_gets_none(gateway: Gateway) -> None:
    model = gateway.upstream.play(refusing(whole()))
    response = asked_by_client(gateway, body(f"mistral/{model}", stream=True))
    assert (response.status, response.text, response.done) == (200, TEXT, True)
    assert not any(chunk.get("usage") for chunk in response.chunks)


@pytest.mark.parametrize("provider", ["mistral", "main"])
@pytest.mark.parametrize("options", [USAGE, {"stream_options": None}, {"stream_options": {}}])
def test_an_unstreamed_call_has_no_stream_options(gateway: Gateway, provider: str, options: dict[str, object]) -> None:
    """OpenAI refuses them there: "The 'stream_options' parameter is only allowed when 'stream' is enabled"."""
    model = gateway.upstream.play(refusing(unstreamed()))
    response = asked_by_client(gateway, body(f"{provider}/{model}", stream=False, **options))
    assert (response.status, response.text) == (200, TEXT)
    assert response.json["usage"] == json.loads(plain())["usage"]


def test_a_provider_that_accepts_the_field_gets_what_the_client_says(gateway: Gateway) -> None:
    model = gateway.upstream.play(whole())
    options = {"stream_options": {"include_obfuscation": False}}
    assert asked_by_client(gateway, body(f"main/{model}", stream=True, **options)).done
    (request,) = gateway.upstream.requests(model)
    assert sent(request)["stream_options"] == {"include_obfuscation": False, "include_usage": True}


def test_penstock_chat_talks_with_such_a_provider(tmp_path: Path) -> None:
    with Upstream() as upstream:
        model = upstream.play(refusing(whole()))
        file = tmp_path / "penstock.toml"
        file.write_text(f'[providers.mistral]\nbase_url = "{upstream.url}"\napi_key = "{KEY}"\n')
        finished = chat(tmp_path, "-m", f"mistral/{model}", "--json")
    assert (finished.stderr, finished.returncode) == ("", 0)
    reported = json.loads(finished.stdout)
    assert (reported["text"], reported["usage"]["input"], reported["usage"]["output"]) == (TEXT, 5, 3)
