"""One provider that offers chat completions and Responses, on real sockets: which API it is asked in, by whom."""

import json

import pytest

from tests import responses as res
from tests.anthropic.support import CHAT_ANSWER, TEXT, answers, sent, streams
from tests.faults.client import Response
from tests.faults.dialects import CHAT_CLIENT, CLIENTS, Client
from tests.faults.gateway import PROVIDER_KEY
from tests.faults.upstream import Turns
from tests.responses_api.support import ResponsesGateway, error, events, text, whole

pytestmark = pytest.mark.slow

CHAT_PATH, RESPONSES_PATH = "/v1/chat/completions", "/v1/api/responses"
RESPONSES_ANSWER = res.answer(*res.says_all("Hello", ", world"))
OVERLOADED = answers(json.dumps({"error": {"message": "too busy", "type": "server_error"}}).encode(), 503)


def dialects(gateway: ResponsesGateway, response: Response) -> list[str]:
    """The dialects of the attempts, as the log shows them."""
    return [attempt["dialect"] for attempt in gateway.call(response)["attempts"]]


def test_each_client_is_served_by_its_own_api(gateway: ResponsesGateway) -> None:
    model = gateway.upstream.play(streams(CHAT_ANSWER))
    response = gateway.ask(f"two/{model}", stream=True)
    assert (response.status, dialects(gateway, response)) == (200, ["openai_chat"])
    path, headers, _ = sent(gateway, model)
    assert (path, headers["authorization"]) == (CHAT_PATH, f"Bearer {PROVIDER_KEY}")

    wire = res.answer(*res.SEARCHES, *res.thinks_all(["So"], index=1, seal="s"), *res.says_all(TEXT, index=2))
    model = gateway.upstream.play(streams(wire))
    include = ["reasoning.encrypted_content"]
    response = gateway.respond(f"two/{model}", tools=[{"type": "web_search"}], include=include)
    assert (text(response), dialects(gateway, response)) == (TEXT, ["openai_responses"])
    assert [item["type"] for item in whole(response)["output"]] == ["web_search_call", "reasoning", "message"]
    path, headers, body = sent(gateway, model)
    assert (path, headers["authorization"]) == (RESPONSES_PATH, f"Bearer {PROVIDER_KEY}")
    assert (json.loads(body)["tools"], json.loads(body)["include"]) == ([{"type": "web_search"}], include)
    assert gateway.call(response)["losses"] == {}


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
@pytest.mark.parametrize("client", CLIENTS.values(), ids=CLIENTS)
def test_a_model_that_only_responses_has_serves_every_client(
    gateway: ResponsesGateway, client: Client, stream: bool
) -> None:
    model = gateway.upstream.play(streams(RESPONSES_ANSWER), f"pro-{client.dialect}-{stream}")
    response = gateway.ask(f"two/{model}", client, stream=stream)
    assert (response.status, dialects(gateway, response)) == (200, ["openai_responses"])
    assert TEXT in response.body.decode() or '"Hello"' in response.body.decode()
    path, _, body = sent(gateway, model)
    assert (path, json.loads(body)["store"]) == (RESPONSES_PATH, False)
    (attempt,) = gateway.book.entry(response.request_id).attempts
    assert (attempt.tokens.input, attempt.tokens.output, attempt.measure) == (7, 4, "reported")


def test_a_generated_image_may_be_large(gateway: ResponsesGateway) -> None:
    image = {"id": "ig_1", "type": "image_generation_call", "status": "completed", "result": "iVBORw0K" * 500_000}
    begun = image | {"status": "in_progress", "result": None}
    wire = res.answer(res.added(0, begun), res.done(0, image), *res.says_all(TEXT, index=1))
    model = gateway.upstream.play(streams(*(wire[start : start + 200_000] for start in range(0, len(wire), 200_000))))
    response = gateway.respond(f"two/{model}", tools=[{"type": "image_generation"}])
    assert (text(response), gateway.call(response)["ending"]) == (TEXT, "completed")
    assert whole(response)["output"][0] == image
    assert next(event["item"] for event in events(response) if event["type"].endswith("item.done")) == image

    chat = gateway.ask(f"two/{gateway.upstream.play(streams(wire), 'pro-image')}", CHAT_CLIENT, stream=True)
    assert (chat.status, gateway.call(chat)["ending"]) == (200, "completed")
    assert len(chat.body) < 10_000


def test_a_route_may_fall_back_from_one_api_to_the_other(gateway: ResponsesGateway) -> None:
    gateway.upstream.play([Turns(OVERLOADED, streams(CHAT_ANSWER))], "twice")
    response = gateway.respond("responses-then-chat")
    assert (text(response), dialects(gateway, response)) == (TEXT, ["openai_responses", "openai_chat"])
    asked = [request.split(b" ")[1].decode() for request in gateway.upstream.requests("twice")]
    assert asked == [RESPONSES_PATH, CHAT_PATH]


def test_one_api_cools_down_without_the_other(gateway: ResponsesGateway) -> None:
    model = gateway.upstream.play([Turns(answers(b"{}", 429, retry_after="60"), streams(CHAT_ANSWER))], "cools")
    assert error(gateway.respond(f"two/{model}"))[0] == 429
    assert error(gateway.respond(f"two/{model}")) == (429, "rate_limit_exceeded")
    assert gateway.ask(f"two/{model}", CHAT_CLIENT, stream=True).status == 200


def test_tokens_are_counted_by_the_api_that_is_asked(gateway: ResponsesGateway) -> None:
    model = gateway.upstream.play(answers(b'{"object":"response.input_tokens","input_tokens":31}'))
    response = gateway.count(f"two/{model}")
    assert (response.json["input_tokens"], "x-penstock-estimated" in response.headers) == (31, False)
    assert sent(gateway, model)[0] == f"{RESPONSES_PATH}/input_tokens"


def test_events_of_a_model_that_requires_chat_are_translated(gateway: ResponsesGateway) -> None:
    model = gateway.upstream.play(streams(CHAT_ANSWER), "audio-1")
    response = gateway.respond(f"two/{model}")
    assert (text(response), dialects(gateway, response)) == (TEXT, ["openai_chat"])
    assert events(response)[0]["response"]["object"] == "response"
