"""Estimates of tokens are about right, bounded, and quick."""

import math
import time
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.dialects.dialect import RequestLimits
from penstock.core.dialects.openai_chat.estimate import estimate_input
from penstock.core.dialects.openai_chat.request import read_request
from penstock.core.dialects.registry import surface_dialect
from penstock.core.input_estimate import estimate_request
from penstock.gateway.billing.output_estimate import BytesPerToken
from penstock.gateway.limits.demand import chat_demand
from tests.promptness import in_time, prompt

ENGLISH = "The quick brown fox jumps over the lazy dog while nobody is looking. "
RUSSIAN = "Съешь же ещё этих мягких французских булок, да выпей чаю. "
CHINESE = "我能吞下玻璃而不伤身体。"
TOOL = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Get the weather of a city.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}
IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 100_000}}


def asked(content: object, **more: object) -> dict[str, Any]:
    return {"model": "m", "messages": [{"role": "user", "content": content}], **more}


# Inputs, and the range of their tokens. The middle is the count of common tokenizers.
REQUESTS: dict[str, tuple[dict[str, Any], int, int]] = {
    "nothing": ({"messages": []}, 1, 5),
    "a word": (asked("Hello"), 6, 12),
    "English": (asked(ENGLISH * 20), 290, 400),
    "Russian": (asked(RUSSIAN * 20), 350, 800),
    "Chinese": (asked(CHINESE * 20), 180, 320),
    "an emoji": (asked("🙂" * 100), 100, 300),
    "half a character": (asked("\ud83d" * 100), 10, 400),
    "parts": (asked([{"type": "text", "text": ENGLISH * 20}]), 290, 400),
    "an image": (asked([{"type": "text", "text": "What is this?"}, IMAGE]), 800, 1_500),
    "a tool": (asked("Hello", tools=[TOOL]), 40, 80),
    "a function": (asked("Hello", functions=[TOOL["function"]]), 30, 80),
    "a schema": (asked("Hello", response_format={"type": "json_schema", "json_schema": TOOL}), 40, 90),
    "a tool's call and its answer": (
        {
            "messages": [
                {"role": "assistant", "content": None, "tool_calls": [{"id": "a", "type": "function", "function": {}}]},
                {"role": "tool", "tool_call_id": "a", "content": ENGLISH * 10},
            ]
        },
        150,
        230,
    ),
    "embeddings": ({"input": ENGLISH * 20}, 290, 400),
    "embeddings of several": ({"input": [ENGLISH] * 10}, 140, 220),
    "embeddings of tokens": ({"input": [17, 18, 19]}, 3, 8),
    "embeddings of lists of tokens": ({"input": [[17] * 100] * 2}, 200, 210),
}


@pytest.mark.parametrize(("fields", "least", "most"), REQUESTS.values(), ids=REQUESTS)
def test_a_request_has_about_so_many_tokens(fields: dict[str, Any], least: int, most: int) -> None:
    assert least <= estimate_input(fields) <= most


CHATS = [name for name, (fields, _, _) in REQUESTS.items() if "messages" in fields]


@pytest.mark.parametrize("name", [name for name in CHATS if name != "half a character"])  # which no body can hold
def test_a_chat_is_taken_for_that_many(name: str) -> None:
    fields = REQUESTS[name][0]
    for more in ({}, {"user": "somebody"}):
        body = msgspec.json.encode({"model": "m", **fields, **more})
        request = surface_dialect("openai_chat").read_request(body, {}, "/chat/completions")
        assert chat_demand(request, RequestLimits()).input == estimate_input(fields)


@pytest.mark.parametrize("name", [name for name in CHATS if name != "a schema"])  # which is none of chat's
def test_the_neutral_request_has_about_as_many(name: str) -> None:
    fields, least, most = REQUESTS[name]
    assert 0.8 * least <= estimate_request(read_request(fields)) <= 1.2 * most


NONSENSE: tuple[dict[str, Any], ...] = (
    {},
    {"messages": None},
    {"messages": [None, 7, "text", [], {}]},
    {"messages": [{"content": 7}, {"content": [None, 7, [], {}, {"text": 7}]}, {"content": {"a": 1}}]},
    {"messages": [], "tools": 7, "functions": {}, "response_format": []},
    {"input": None, "prompt": {"a": 1}},
)


@pytest.mark.parametrize("fields", NONSENSE)
def test_nonsense_is_the_providers_to_refuse(fields: dict[str, Any]) -> None:
    assert 0 < estimate_input(fields) < 3_000


def test_a_part_stands_for_the_whole() -> None:
    """A long conversation has the same estimate however it is divided into messages and parts."""
    long, short = asked(ENGLISH * 10_000), asked(ENGLISH)
    (message,) = short["messages"]
    figures = [
        estimate_input(long),
        estimate_input({"messages": [message] * 10_000}),
        estimate_input(asked([{"type": "text", "text": ENGLISH}] * 10_000)),
    ]
    assert max(figures) < 1.4 * min(figures)
    assert estimate_input(asked(RUSSIAN * 10_000)) == pytest.approx(
        estimate_input(asked(RUSSIAN * 1_000)) * 10, rel=0.01
    )


# The tokens of a message are those of its parts, by one rule, whatever the parts are.

TEXTS = st.one_of(st.text(max_size=40), st.sampled_from(("", "a" * 4, ENGLISH, RUSSIAN, CHINESE, RUSSIAN * 200)))
PARTS = st.one_of(
    TEXTS,
    st.none(),
    st.integers(),
    st.lists(st.integers(), max_size=3),
    st.fixed_dictionaries({}, optional={"type": TEXTS, "text": st.one_of(TEXTS, st.none()), "refusal": TEXTS}),
)
CONTENTS = st.one_of(TEXTS, st.none(), st.integers(), st.lists(PARTS, max_size=30), st.just({"a": 1}))
CALLS = st.lists(st.fixed_dictionaries({"id": TEXTS, "function": st.just(TOOL["function"])}), max_size=3)
FIELDS = {"role": CONTENTS, "content": CONTENTS, "name": CONTENTS, "tool_calls": st.one_of(CALLS, st.none())}
MESSAGES = st.one_of(
    st.fixed_dictionaries({"role": st.just("user"), "content": TEXTS}),
    st.fixed_dictionaries({}, optional=FIELDS),
    st.none(),
    TEXTS,
)


@pytest.mark.slow
@given(messages=st.one_of(st.none(), st.lists(MESSAGES, max_size=8)), times=st.sampled_from((1, 1, 1, 70, 701)))
def test_each_message_counts_by_the_same_rule(messages: list[object] | None, times: int) -> None:
    messages = messages * times if messages else messages
    assert estimate_input({"model": "m", "messages": messages}) == 3 + _tokens_of_messages(messages)


def _tokens_of_messages(messages: list[object] | None) -> int:
    """The rule, without any shortcut."""
    if not messages:
        return 0
    seen = messages[:: math.ceil(len(messages) / 500)]
    return _ceil(sum(map(_tokens_of_message, seen)) * len(messages), len(seen))


def _tokens_of_message(message: object) -> int:
    if not isinstance(message, dict):
        return 0
    if set(message) == {"role", "content"} and isinstance(message["content"], str):
        return 4 + _tokens_of_text(message["content"])
    tokens = 4
    for name, value in message.items():
        if isinstance(value, str) and name != "role":
            tokens += _tokens_of_text(value)
        elif name == "tool_calls":
            tokens += _ceil(len(msgspec.json.encode(value)), 4)
        elif isinstance(value, list) and value:
            seen = value[:: math.ceil(len(value) / 20)]
            tokens += _ceil(sum(map(_tokens_of_part, seen)) * len(value), len(seen))
    return tokens


def _tokens_of_part(part: object) -> int:
    if isinstance(part, dict):
        text = part.get("text") or part.get("refusal")
        return _tokens_of_text(text) if isinstance(text, str) else 1_000
    if isinstance(part, str):
        return _tokens_of_text(part)
    return len(part) if isinstance(part, list) else 1


def _tokens_of_text(text: str) -> int:
    if text.isascii():
        return _ceil(len(text), 4)
    sample = text[:4_096]
    ascii = sum(character.isascii() for character in sample)
    others = len(sample.encode("utf-8", "replace")) - ascii
    return math.ceil((ascii / 4 + others / 3) * len(text) / len(sample))


def _ceil(count: int, by: int) -> int:
    return -(-count // by)


# Several times what they take on an idle machine: 5 µs, 10 µs, 0.4 ms, 4 ms.
SIZES: dict[str, tuple[dict[str, Any], float]] = {
    "2 KB": ({"messages": asked(ENGLISH * 5)["messages"] * 6}, 0.000_05),
    "1 MB of text": (asked(RUSSIAN * 10_000), 0.000_5),
    "1 MB of tools": (asked("Hello", tools=[TOOL] * 1_024), 0.005),
    "a million parts": ({"messages": asked([{"type": "text", "text": "a"}] * 1_000)["messages"] * 1_000}, 0.05),
}


@pytest.mark.parametrize(("fields", "limit_s"), SIZES.values(), ids=SIZES)
@prompt
def test_no_one_waits_for_an_estimate(fields: dict[str, Any], limit_s: float) -> None:
    in_time(min(_seconds(lambda: estimate_input(fields)) for _ in range(10)), limit_s)


def _seconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


# Answers


def test_an_answer_has_a_token_for_four_bytes_at_first() -> None:
    assert BytesPerToken().output("acme/a", 400, 1) == 100


def test_events_count_where_nothing_was_learned() -> None:
    ratios = BytesPerToken()
    assert ratios.output("acme/a", 300, 100) == 100  # one Chinese character in each
    assert ratios.output("acme/a", 50, 1_000) == 50
    assert ratios.output("acme/a", 0, 3) == 3
    assert ratios.output("acme/a", 0, 0) == 0
    ratios.learn("acme/a", 600, 100)
    assert ratios.output("acme/a", 300, 100) == 50
    assert ratios.output("acme/a", 0, 3) == 1


def test_each_target_is_learned_by_itself_and_by_and_by() -> None:
    ratios = BytesPerToken()
    ratios.learn("acme/a", 300, 100)
    assert (ratios.ratio("acme/a"), ratios.ratio("acme/b")) == (3.0, 4.0)
    ratios.learn("acme/a", 600, 100)
    assert 3.0 < ratios.ratio("acme/a") < 4.0
    for _ in range(50):
        ratios.learn("acme/a", 600, 100)
    assert ratios.ratio("acme/a") == pytest.approx(6.0, abs=0.01)


@pytest.mark.parametrize(("bytes", "tokens", "ratio"), [(1, 1_000, 1.0), (10**9, 100, 8.0)])
def test_what_is_learned_stays_within_reason(bytes: int, tokens: int, ratio: float) -> None:
    ratios = BytesPerToken()
    ratios.learn("acme/a", bytes, tokens)
    assert ratios.ratio("acme/a") == ratio


@pytest.mark.parametrize(("bytes", "tokens"), [(0, 100), (-5, 100), (10, 0), (10, -3), (60, 15)])
def test_what_says_nothing_is_not_learned(bytes: int, tokens: int) -> None:
    ratios = BytesPerToken()
    ratios.learn("acme/a", bytes, tokens)
    assert len(ratios) == 0


def test_only_so_many_targets_are_remembered_and_the_busy_ones_stay() -> None:
    ratios = BytesPerToken()
    for number in range(3_000):
        ratios.learn("busy", 200, 100)
        ratios.learn(f"acme/{number}", 300, 100)
    assert len(ratios) == 1_024
    assert ratios.ratio("busy") == 2.0
    assert ratios.ratio("acme/0") == 4.0


def test_it_makes_no_difference_when_somebody_asks() -> None:
    always, once = BytesPerToken(), BytesPerToken()
    for number in range(500):
        for ratios in (always, once):
            ratios.learn(f"acme/{number % 3}", 200 + 37 * number % 400, 100)
        always.ratio("acme/0")
    for target in ("acme/0", "acme/1", "acme/2"):
        assert once.ratio(target) == pytest.approx(always.ratio(target), rel=0.001)


def test_what_surrounds_messages_counts() -> None:
    user, system = {"role": "user", "content": "four"}, {"role": "system", "content": "four"}
    assert estimate_request(read_request({"messages": [user]})) == 3 + 4 + 1
    assert estimate_request(read_request({"messages": [system, user]})) == 3 + 2 * (4 + 1)
    assert estimate_input({"messages": [user]}) == 3 + 4 + 1
    assert estimate_input({"messages": [user | {"name": "four" * 10}]}) == 3 + 4 + 1 + 10


def test_an_answer_of_sixteen_tokens_is_long_enough_and_one_byte_is_something() -> None:
    ratios = BytesPerToken()
    ratios.learn("acme/a", 48, 16)
    ratios.learn("acme/b", 1, 16)
    assert (ratios.ratio("acme/a"), ratios.ratio("acme/b")) == (3.0, 1.0)
