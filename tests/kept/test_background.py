"""Responses in the background, with OpenAI's own package: created, polled, streamed again, cancelled and continued."""

import time
from collections.abc import Iterator
from functools import partial
from typing import Any

import openai
import pytest
from openai import DefaultHttpxClient, OpenAI

from tests.faults.client import CLIENT_KEY
from tests.faults.dialects import PROVIDERS, TEXT, Provider
from tests.faults.gateway import settings
from tests.faults.upstream import JSON, Gate, Op, Upstream, chunk, fin, head, last_chunk, rst, status
from tests.serve.in_process import InProcessGateway

OTHER_KEY = "sk-another-client-of-the-gateway"


class SdkGateway(InProcessGateway):
    """A gateway with a client of OpenAI's package for each of its keys."""

    sdks: dict[str, OpenAI]


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SdkGateway]:
    with Upstream() as upstream, DefaultHttpxClient(trust_env=False) as http:
        text = settings(upstream.url, 1, PROVIDERS.values(), server={"keys": [CLIENT_KEY, OTHER_KEY]})
        with SdkGateway(tmp_path_factory.mktemp("gateway"), upstream, text) as gateway:
            url = f"http://127.0.0.1:{gateway.port}/v1"
            made = partial(OpenAI, base_url=url, max_retries=0, http_client=http)
            gateway.sdks = {key: made(api_key=key) for key in (CLIENT_KEY, OTHER_KEY)}
            yield gateway


def sdk(running: SdkGateway, key: str = CLIENT_KEY) -> OpenAI:
    return running.sdks[key]


def gated(provider: Provider) -> tuple[Gate, list[Op]]:
    gate = Gate()
    return gate, [head(), chunk(provider.hello), gate, chunk(provider.world), chunk(provider.rest), last_chunk(), fin()]


def create(running: SdkGateway, provider: Provider, script: list[Op], **more: Any) -> Any:
    model = f"main{provider.suffix}/{running.upstream.play(script)}"
    running.expected += 1
    return sdk(running).responses.create(model=model, input="Say hello.", background=True, **more)


def until(running: SdkGateway, id: str, wanted: str) -> Any:
    """The response, once it has this status."""
    deadline = time.monotonic() + 20
    while (found := sdk(running).responses.retrieve(id)).status != wanted:
        assert time.monotonic() < deadline, found
        time.sleep(0.01)
    return found


@pytest.mark.parametrize("provider", PROVIDERS.values(), ids=PROVIDERS)
def test_a_response_is_polled_until_it_is_complete(running: SdkGateway, provider: Provider) -> None:
    gate, script = gated(provider)
    queued = create(running, provider, script)
    assert (queued.status, queued.background, queued.output, queued.store) == ("queued", True, [], True)
    begun = until(running, queued.id, "in_progress")
    assert (begun.id, begun.background) == (queued.id, True)
    gate.open()
    whole = until(running, queued.id, "completed")
    assert (whole.id, whole.output_text, whole.background) == (queued.id, TEXT, True)
    asked = running.upstream.requests(whole.model if "/" not in whole.model else whole.model.partition("/")[2])
    assert all(b"background" not in request for request in asked)
    (entry,) = running.quiet()
    assert (entry.outcome, entry.surface) == ("completed", "responses")


@pytest.mark.parametrize("provider", PROVIDERS.values(), ids=PROVIDERS)
def test_a_stream_goes_on_after_the_number_of_its_last_event(running: SdkGateway, provider: Provider) -> None:
    gate, script = gated(provider)
    client, seen = sdk(running), []
    with create(running, provider, script, stream=True) as stream:
        for event in stream:
            seen.append(event)
            if event.type == "response.output_text.delta":
                break
    id = seen[0].response.id
    gate.open()
    rest = list(client.responses.retrieve(id, stream=True, starting_after=seen[-1].sequence_number))
    assert [event.sequence_number for event in rest] == [
        seen[-1].sequence_number + 1 + each for each in range(len(rest))
    ]
    text = "".join(event.delta for event in [*seen, *rest] if event.type == "response.output_text.delta")
    assert text == TEXT
    assert rest[-1].type == "response.completed"
    everything = list(client.responses.retrieve(id, stream=True))
    assert everything == [*seen, *rest]
    assert client.responses.retrieve(id).output_text == TEXT
    assert len(running.quiet()) == 1


def test_a_response_is_cancelled_and_again_nothing_changes(running: SdkGateway) -> None:
    provider = PROVIDERS["openai_chat"]
    gate, script = gated(provider)
    queued = create(running, provider, script)
    until(running, queued.id, "in_progress")
    for _ in range(2):
        assert sdk(running).responses.cancel(queued.id).status == "cancelled"
    gate.open()
    assert sdk(running).responses.retrieve(queued.id).status == "cancelled"
    with pytest.raises(openai.APIStatusError):
        sdk(running).responses.create(model="main/any", input="Go on.", previous_response_id=queued.id)
    assert running.quiet()[0].outcome == "cancelled"
    sdk(running).responses.delete(queued.id)
    with pytest.raises(openai.NotFoundError):
        sdk(running).responses.retrieve(queued.id)


def test_a_response_that_is_complete_is_continued(running: SdkGateway) -> None:
    provider = PROVIDERS["openai_chat"]
    gate, script = gated(provider)
    gate.open()
    first = create(running, provider, script)
    until(running, first.id, "completed")
    gate, script = gated(provider)
    gate.open()
    second = create(running, provider, script, previous_response_id=first.id)
    whole = until(running, second.id, "completed")
    assert (whole.previous_response_id, whole.output_text) == (first.id, TEXT)
    assert len(running.quiet()) == 2


@pytest.mark.parametrize("how", ["reset", "refused"])
def test_a_response_that_fails_says_why(running: SdkGateway, how: str) -> None:
    provider = PROVIDERS["openai_chat"]
    broken = [status(400, JSON, b'{"error": {"message": "no such thing", "type": "invalid_request_error"}}')]
    queued = create(running, provider, [head(), chunk(provider.hello), rst()] if how == "reset" else broken)
    failed = until(running, queued.id, "failed")
    assert failed.error is not None
    assert ("no such thing" if how == "refused" else "reset") in failed.error.message
    assert running.quiet()[0].outcome in ("truncated", "failed")


def test_what_cannot_be_in_the_background_is_refused(running: SdkGateway) -> None:
    client = sdk(running)
    with pytest.raises(openai.BadRequestError, match="stored"):
        client.responses.create(model="main/any", input="Hello.", background=True, store=False)
    with pytest.raises(openai.NotFoundError):
        client.responses.create(model="nowhere/any", input="Hello.", background=True)
    running.expected += 1
    running.quiet()


def test_a_response_in_the_background_does_not_exist_for_another_key(running: SdkGateway) -> None:
    provider = PROVIDERS["openai_chat"]
    gate, script = gated(provider)
    queued = create(running, provider, script)
    other = sdk(running, OTHER_KEY)
    for ask in (other.responses.retrieve, other.responses.cancel, other.responses.delete):
        with pytest.raises(openai.NotFoundError):
            ask(queued.id)
    gate.open()
    until(running, queued.id, "completed")
    running.quiet()
