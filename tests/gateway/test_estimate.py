"""Estimates of tokens are about right, bounded, and quick."""

import time
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.dialects.dialect import RequestLimits
from penstock.core.dialects.registry import surface_dialect
from penstock.core.hub.input_estimate import estimate_input
from penstock.gateway.limits.demand import chat_demand
from penstock.gateway.limits.output_estimate import BytesPerToken
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


AUDIO = {"type": "input_audio", "input_audio": {"data": "A" * 1_000_000, "format": "wav"}}
PDF = {"type": "file", "file": {"file_data": "data:application/pdf;base64," + "A" * 100_000}}


def tokens_of(fields: dict[str, Any]) -> int:
    return estimate_input(msgspec.json.encode(fields), fields).tokens


# Inputs, and the range of their tokens. The lower figure is the count of common tokenizers.
REQUESTS: dict[str, tuple[dict[str, Any], int, int]] = {
    "nothing": ({"messages": [{}]}, 3, 6),
    "a word": (asked("Hello"), 8, 18),
    "English": (asked(ENGLISH * 20), 290, 400),
    "Russian": (asked(RUSSIAN * 20), 350, 800),
    "Chinese": (asked(CHINESE * 20), 180, 320),
    "an emoji": (asked("🙂" * 100), 100, 300),
    "digits": (asked("3.14159 26535 " * 100), 500, 800),
    "parts": (asked([{"type": "text", "text": ENGLISH * 20}]), 290, 400),
    "an image": (asked([{"type": "text", "text": "What is this?"}, IMAGE]), 1_000, 2_000),
    "an image of 2 MB": (
        asked(
            [
                {
                    "type": "image_url",
                    "image_url": {"url": "data:image/png;base64," + "A" * 2_800_000},
                }
            ]
        ),
        1_600,
        6_500,
    ),
    "an image elsewhere": (
        asked([{"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}]),
        1_000,
        2_000,
    ),
    "eight seconds of audio": (asked([AUDIO]), 256, 2_000),
    "a document of five pages": (asked([PDF]), 10_000, 15_000),
    "a tool": (asked("Hello", tools=[TOOL]), 40, 90),
    "a function": (asked("Hello", functions=[TOOL["function"]]), 30, 90),
    "a schema": (asked("Hello", response_format={"type": "json_schema", "json_schema": TOOL}), 40, 100),
    "a tool's call and its answer": (
        {
            "messages": [
                {"role": "assistant", "content": None, "tool_calls": [{"id": "a", "type": "function", "function": {}}]},
                {"role": "tool", "tool_call_id": "a", "content": ENGLISH * 10},
            ]
        },
        150,
        250,
    ),
    "nonsense": (
        {"messages": [None, 7, "text", [], {}, {"content": {"image_url": 7}}], "input": [{"source": []}]},
        1,
        100,
    ),
}


@pytest.mark.parametrize(("fields", "least", "most"), REQUESTS.values(), ids=REQUESTS)
def test_a_request_has_about_so_many_tokens(fields: dict[str, Any], least: int, most: int) -> None:
    assert least <= tokens_of(fields) <= most


# The same image, and the same audio, in each API.
DATA = "iVBORw0KGgo" + "A" * 100_000
MEDIA: dict[str, dict[str, Any]] = {
    "chat": asked([{"type": "image_url", "image_url": {"url": "data:image/png;base64," + DATA}}]),
    "messages": asked([{"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": DATA}}]),
    "messages, of a tool": asked(
        [{"type": "tool_result", "content": [{"type": "image", "source": {"media_type": "image/png", "data": DATA}}]}]
    ),
    "responses": {"input": asked([{"type": "input_image", "image_url": "data:image/png;base64," + DATA}])["messages"]},
    "responses, of a tool": {
        "input": [{"output": {"type": "computer_screenshot", "image_url": "data:image/png;base64," + DATA}}]
    },
    "responses, generated": {"input": [{"type": "image_generation_call", "result": DATA}]},
    "gemini": {"contents": [{"parts": [{"inlineData": {"mimeType": "image/png", "data": DATA}}]}]},
    "gemini, in a dict": {"contents": {"parts": {"inline_data": {"mime_type": "image/png", "data": DATA}}}},
    "gemini, of a tool": {
        "contents": [
            {"parts": [{"functionResponse": {"parts": [{"inlineData": {"mimeType": "image/png", "data": DATA}}]}}]}
        ]
    },
}


@pytest.mark.parametrize("fields", MEDIA.values(), ids=MEDIA)
def test_an_image_is_not_taken_for_text(fields: dict[str, Any]) -> None:
    assert 1_600 < tokens_of(fields) < 1_700


def test_escaped_slashes_of_base64_are_no_text_either() -> None:
    fields = asked([{"type": "image_url", "image_url": {"url": "data:image/png;base64," + "AAA/" * 25_000}}])
    body = msgspec.json.encode(fields)
    escaped = estimate_input(body.replace(b"/", rb"\/"), fields).tokens
    assert 1_600 < escaped < 1_700


def test_audio_is_reserved_at_its_own_price() -> None:
    fields = asked([{"type": "text", "text": "What is said?"}, AUDIO])
    estimate = estimate_input(msgspec.json.encode(fields), fields)
    assert 0 < estimate.audio < estimate.tokens


def test_a_chat_is_taken_for_that_many() -> None:
    for fields, _, _ in REQUESTS.values():
        body = msgspec.json.encode({"model": "m", **fields})
        request = surface_dialect("openai_chat").read_request(body, {}, "/chat/completions")
        assert chat_demand(request, RequestLimits()).input == tokens_of({"model": "m", **fields})


@given(text=st.text())
def test_every_byte_counts(text: str) -> None:
    fields = asked(text)
    assert tokens_of(fields) * 4 >= len(msgspec.json.encode(fields))


# Several times what they take on an idle machine: 5 µs, 2 ms, 2 ms, 100 ms.
SIZES: dict[str, tuple[dict[str, Any], float]] = {
    "2 KB": ({"messages": asked(ENGLISH * 5)["messages"] * 6}, 0.000_05),
    "1 MB of text": (asked(RUSSIAN * 10_000), 0.01),
    "1 MB of tools": (asked("Hello", tools=[TOOL] * 1_024), 0.005),
    "a million parts": ({"messages": asked([{"type": "text", "text": "a"}] * 1_000)["messages"] * 1_000}, 1.0),
}


@pytest.mark.slow
@pytest.mark.parametrize(("fields", "limit_s"), SIZES.values(), ids=SIZES)
@prompt
def test_no_one_waits_for_an_estimate(fields: dict[str, Any], limit_s: float) -> None:
    body = msgspec.json.encode(fields)
    in_time(min(_seconds(lambda: estimate_input(body, fields)) for _ in range(3)), limit_s)


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


def test_an_answer_of_sixteen_tokens_is_long_enough_and_one_byte_is_something() -> None:
    ratios = BytesPerToken()
    ratios.learn("acme/a", 48, 16)
    ratios.learn("acme/b", 1, 16)
    assert (ratios.ratio("acme/a"), ratios.ratio("acme/b")) == (3.0, 1.0)


@pytest.mark.parametrize("shift", range(3))
def test_a_large_body_counts_as_the_same_wherever_it_is_sliced(shift: int) -> None:
    """The bytes of an image do not count, nor do the escapes of its slashes. Those of characters do, as in a small
    body."""
    images = [{"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * shift + "A/" * 300_000}}]
    plain = msgspec.json.encode(asked(images))
    assert estimate_input(plain.replace(b"/", rb"\/"), asked(images)) == estimate_input(plain, asked(images))
    none, few, many = (tokens_of(asked("a" * shift + RUSSIAN * count)) for count in (0, 12, 6_000))
    assert many - none == (few - none) * 500
