"""Requests with many messages, which a thread translates."""

import json

import pytest

from tests.anthropic.support import CHAT_ANSWER, MessagesGateway, sent, streams, text

pytestmark = pytest.mark.slow


def test_many_messages_are_translated_as_few_are(gateway: MessagesGateway) -> None:
    turns = [{"role": role, "content": f"Turn {n}."} for n in range(1_000) for role in ("user", "assistant")]
    model = gateway.upstream.play(streams(CHAT_ANSWER))
    response = gateway.message(f"main/{model}", messages=turns)
    assert (response.status, text(response)) == (200, "Hello, world")
    assert json.loads(sent(gateway, model)[2])["messages"] == turns
    counted = gateway.count(f"main/{model}", messages=turns)
    assert counted.headers["x-penstock-estimated"] == "true"
    assert 16_000 <= counted.json["input_tokens"] <= 26_000  # some 17,000 with the templates of models
