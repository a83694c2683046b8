"""The four seeds as upstreams, in pieces of any size: through Penstock the official SDK reads their whole content.

Read directly, the SDK loses 001 and 002 (`tests/judges/test_openai_python.py`).
"""

import random
from collections.abc import Callable
from itertools import pairwise

import openai
import pytest
from openai.types.chat import ChatCompletionMessageParam

from tests.faults.client import CLIENT_KEY
from tests.faults.gateway import Gateway
from tests.faults.scripts import stream
from tests.faults.upstream import Script, fin, head, send
from tests.seed_streams import CASES, Seed


def pieces(wire: bytes, size: int) -> list[bytes]:
    return [wire[i : i + size] for i in range(0, len(wire), size)]


def anywhere(wire: bytes) -> list[bytes]:
    chance = random.Random(len(wire))
    cuts = [0, *sorted(chance.sample(range(1, len(wire)), 40)), len(wire)]
    return [wire[start:end] for start, end in pairwise(cuts)]


ASKED: list[ChatCompletionMessageParam] = [{"role": "user", "content": "Hi"}]
SPLITS: dict[str, Callable[[bytes], Script]] = {
    "at once": stream,
    "byte by byte": lambda wire: stream(*pieces(wire, 1)),
    "7 bytes": lambda wire: stream(*pieces(wire, 7)),
    "100 bytes": lambda wire: stream(*pieces(wire, 100)),
    "line by line": lambda wire: stream(*wire.splitlines(keepends=True)),
    "anywhere": lambda wire: stream(*anywhere(wire)),
    "until it closes": lambda wire: [head(framing=""), *map(send, pieces(wire, 50)), fin()],
}
every_seed = pytest.mark.parametrize("seed", CASES.values(), ids=CASES)
every_split = pytest.mark.parametrize("split", SPLITS)


@pytest.fixture
def model(gateway: Gateway, seed: Seed, split: str) -> str:
    script: Script = SPLITS[split](seed.wire)
    gateway.expected += 1
    return f"main/{gateway.upstream.play(script)}"


@pytest.fixture
def sdk(gateway: Gateway) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"http://127.0.0.1:{gateway.port}/v1", api_key=CLIENT_KEY, max_retries=0)


@pytest.mark.parametrize("include_usage", [True, False], ids=["with usage", "without usage"])
@every_split
@every_seed
def test_streamed(gateway: Gateway, sdk: openai.OpenAI, model: str, seed: Seed, include_usage: bool) -> None:
    options = {"stream_options": {"include_usage": True}} if include_usage else {}
    with sdk, sdk.chat.completions.create(model=model, messages=ASKED, stream=True, **options) as answer:  # type: ignore[call-overload]
        chunks = list(answer)
    choices = [choice for chunk in chunks for choice in chunk.choices]
    assert "".join(choice.delta.content or "" for choice in choices) == seed.text
    assert [choice.finish_reason for choice in choices if choice.finish_reason] == ["stop"]
    assert {chunk.model for chunk in chunks} == {seed.model}
    assert len({chunk.id for chunk in chunks}) == 1
    bills = [chunk.usage for chunk in chunks if chunk.usage]
    if include_usage:
        assert [(bill.prompt_tokens, bill.completion_tokens, bill.total_tokens) for bill in bills] == [seed.usage]
        assert not chunks[-1].choices
    else:
        assert not bills
        assert all(chunk.choices for chunk in chunks)
    assert_logged(gateway, seed)


@every_split
@every_seed
def test_unstreamed(gateway: Gateway, sdk: openai.OpenAI, model: str, seed: Seed) -> None:
    with sdk:
        answer = sdk.chat.completions.create(model=model, messages=ASKED)
    (choice,) = answer.choices
    assert (choice.message.role, choice.message.content, choice.finish_reason) == ("assistant", seed.text, "stop")
    assert answer.model == seed.model
    assert answer.usage is not None
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens, answer.usage.total_tokens) == seed.usage
    assert_logged(gateway, seed)


def assert_logged(gateway: Gateway, seed: Seed) -> None:
    line = gateway.last_call()
    assert (line["ending"], line["code"], line["input"], line["output"]) == ("completed", None, *seed.usage[:2])
    assert line["repairs"] | line["findings"] | line["notices"] == seed.repairs
