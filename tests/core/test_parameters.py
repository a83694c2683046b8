"""Parameters as data: members of requests that a provider's settings rename, remove, limit or set, in every API."""

from typing import Any

import pytest

from penstock.core.dialects.dialect import Destination
from tests.translation.support import BEDROCK, CHAT, COHERE, GEMINI, MESSAGES, RESPONSES, Json, asked, sent

# What is asked in the provider's own API, the settings, what it gets, and what is lost.
CASES: dict[str, tuple[Json, Json, Json, list[tuple[str, str]]]] = {
    "drop": ({"seed": 7, "top_p": 0.5}, {"drop": ["seed"]}, {"seed": None, "top_p": 0.5}, [("refused", "seed")]),
    "drop what is not there": ({"seed": 7}, {"drop": ["top_p"]}, {"seed": 7, "top_p": None}, []),
    "drop what asks for nothing": (
        {"temperature": 1, "top_p": 1.0, "logit_bias": {}},
        {"drop": ["temperature", "top_p", "logit_bias"]},
        {"temperature": None, "top_p": None, "logit_bias": None},
        [],
    ),
    "rename": (
        {"max_tokens": 9},
        {"rename": {"max_tokens": "max_completion_tokens"}},
        {"max_tokens": None, "max_completion_tokens": 9},
        [],
    ),
    "rename beside the new name": (
        {"max_tokens": 9, "max_completion_tokens": 5},
        {"rename": {"max_tokens": "max_completion_tokens"}},
        {"max_tokens": None, "max_completion_tokens": 5},
        [],
    ),
    "clamp above": (
        {"temperature": 1.5},
        {"clamp": {"temperature": [0, 1]}},
        {"temperature": 1},
        [("clamped", "temperature 1.5 as 1")],
    ),
    "clamp below, whole numbers": ({"seed": 0}, {"clamp": {"seed": [1, 4]}}, {"seed": 1}, [("clamped", "seed 0 as 1")]),
    "clamp within": ({"temperature": 0.5}, {"clamp": {"temperature": [0, 1]}}, {"temperature": 0.5}, []),
    "clamp what is no number": ({"temperature": "x"}, {"clamp": {"temperature": [0, 1]}}, {"temperature": "x"}, []),
    "default": ({}, {"default": {"top_p": 0.9}}, {"top_p": 0.9}, []),
    "default of what is set": ({"top_p": 0.1}, {"default": {"top_p": 0.9}}, {"top_p": 0.1}, []),
    "a member of a member": (
        {"reasoning": {"effort": "low", "exclude": True}},
        {"drop": ["reasoning.exclude"], "default": {"reasoning.max_tokens": 5}},
        {"reasoning": {"effort": "low", "max_tokens": 5}},
        [("refused", "reasoning.exclude")],
    ),
    "renamed, then dropped": (
        {"a": 1},
        {"rename": {"a": "b"}, "drop": ["b"]},
        {"a": None, "b": None},
        [("refused", "b")],
    ),
}
CODES = {"refused": "option-refused-by-provider", "clamped": "option-clamped"}


@pytest.mark.parametrize(("fields", "settings", "expected", "lost"), CASES.values(), ids=CASES)
def test_a_forwarded_request_is_changed(fields: Json, settings: Json, expected: Json, lost: list[Any]) -> None:
    body, losses = asked(CHAT, CHAT, fields, **settings)
    assert {name: body.get(name) for name in expected} == expected
    assert losses == [(CODES[code], detail) for code, detail in lost]


TRANSLATED: dict[str, tuple[str, Json]] = {
    CHAT: ("top_p", {"top_p": 0.5}),
    MESSAGES: ("top_p", {"top_p": 0.5}),
    RESPONSES: ("top_p", {"top_p": 0.5}),
    GEMINI: ("generationConfig.topP", {"generationConfig": {"topP": 0.5}}),
    COHERE: ("p", {"p": 0.5}),
    BEDROCK: ("inferenceConfig.topP", {"inferenceConfig": {"topP": 0.5}}),
}


@pytest.mark.parametrize("provider", TRANSLATED)
def test_a_translated_request_is_changed_in_the_words_of_the_provider(provider: str) -> None:
    path, written = TRANSLATED[provider]
    client, asks = (CHAT, {"top_p": 0.5}) if provider != CHAT else (MESSAGES, {"top_p": 0.5})
    before, _ = asked(client, provider, asks)
    assert {name: before[name] for name in written} == written
    body, lost = asked(client, provider, asks, drop=[path])
    assert ("option-refused-by-provider", path) in lost
    assert body.get(path.partition(".")[0]) in (None, {})
    body, lost = asked(client, provider, asks, clamp={path: [0.6, 1]})
    assert "0.6" in str(body)
    assert ("option-clamped", f"{path} 0.5 as 0.6") in lost


def test_what_a_route_sets_comes_last() -> None:
    settings = {"drop": ["seed"], "clamp": {"temperature": [0, 1]}, "default": {"top_p": 0.9}}
    destination = Destination(model="m", settings=settings, overrides={"seed": 1, "temperature": 2, "top_p": 0.3})
    for client in (CHAT, MESSAGES):
        body, _ = sent(client, CHAT, {}, destination)
        assert (body["seed"], body["temperature"], body["top_p"]) == (1, 2, 0.3)


def test_a_request_stays_as_it_is_without_parameters() -> None:
    assert Destination(model="m", settings={"mid_system": False}).parameters is None
