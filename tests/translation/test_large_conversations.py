"""Requests with thousands of messages are translated in linear time: a client must not keep the gateway busy."""

import time

import pytest

from tests.promptness import cpu_s
from tests.translation.support import CHAT, GEMINI, OLLAMA, asked

pytestmark = pytest.mark.slow

# So that a body may hold as many values.
_PADDING = {"role": "user", "content": "x" * 12_000_000}
# Copying the parts so far for each message takes longer.
_MOST_S = 2.0


@pytest.mark.parametrize(
    ("message", "count"),
    [({"role": "tool", "tool_call_id": "a", "content": "x"}, 14_000), ({"role": "system", "content": "x"}, 40_000)],
    ids=["results of tools", "system messages"],
)
def test_messages_of_one_turn_are_joined_in_linear_time(message: dict[str, str], count: int) -> None:
    began = time.process_time()
    body, _ = asked(CHAT, GEMINI, {"messages": [_PADDING, *[message] * count]})
    assert time.process_time() - began < cpu_s(_MOST_S)
    assert [len(content["parts"]) for content in body["contents"]] == [count + 1]


def test_images_and_texts_are_separated_in_linear_time() -> None:
    urls = (f"data:image/png;base64,{number:08}" for number in range(16_000))
    images = [{"type": "image_url", "image_url": {"url": url}} for url in urls]
    began = time.process_time()
    body, _ = asked(CHAT, OLLAMA, {"messages": [_PADDING, {"role": "user", "content": images}]})
    assert time.process_time() - began < cpu_s(_MOST_S)
    assert len(body["messages"][1]["images"]) == 16_000
