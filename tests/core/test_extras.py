"""Extras: fields that have no meaning to Penstock are kept, at every level."""

import pytest

from penstock import Extra, StreamReader, TextDelta
from tests.streams import DONE, Json, begins, choice, chunk, completion, delta, finishes, read, says, sse

KEPT: dict[str, tuple[Json, Extra]] = {
    "beside the choices": (says("Hi", citations=["https://a.example"]), Extra("chunk", {"citations": ["https://a.example"]})),
    "a provider's name": (says("Hi", provider="Weir"), Extra("chunk", {"provider": "Weir"})),
    "padding": (says("Hi", p="abcdef"), Extra("chunk", {"p": "abcdef"})),
    "in a choice": (chunk(choice({"content": "Hi"}, seed=7)), Extra("choice", {"seed": 7}, 0)),
    "content filter results": (
        chunk(choice({"content": "Hi"}, content_filter_results={"hate": {"filtered": False}})),
        Extra("choice", {"content_filter_results": {"hate": {"filtered": False}}}, 0),
    ),
    "content filter results without a delta": (
        chunk({"index": 0, "finish_reason": None, "content_filter_results": {"hate": {"filtered": False}}}),
        Extra("choice", {"content_filter_results": {"hate": {"filtered": False}}}, 0),
    ),
    "log probabilities": (
        chunk(choice({"content": "Hi"}, logprobs={"content": [{"token": "Hi", "logprob": -0.1}]})),
        Extra("choice", {"logprobs": {"content": [{"token": "Hi", "logprob": -0.1}]}}, 0),
    ),
    "in a delta": (delta({"content": "Hi", "token_id": 13}), Extra("delta", {"token_id": 13}, 0)),
    "audio": (
        delta({"audio": {"id": "audio_1", "data": "UklGRg=="}}),
        Extra("delta", {"audio": {"id": "audio_1", "data": "UklGRg=="}}, 0),
    ),
    "annotations that are no citations": (
        delta({"annotations": [{"type": "file", "file": {"hash": "x"}}]}),
        Extra("delta", {"annotations": [{"type": "file", "file": {"hash": "x"}}]}, 0),
    ),
    "reasoning details": (
        delta({"reasoning_details": [{"type": "reasoning.encrypted", "data": "x=="}]}),
        Extra("delta", {"reasoning_details": [{"type": "reasoning.encrypted", "data": "x=="}]}, 0),
    ),
    "parts of an unknown type": (
        says([{"type": "image_url", "image_url": {"url": "https://a.example/i.png"}}]),
        Extra("delta", {"content_parts": [{"type": "image_url", "image_url": {"url": "https://a.example/i.png"}}]}, 0),
    ),
    "a second field of reasoning": (
        delta({"reasoning_content": "Hm.", "reasoning": "Hm."}),
        Extra("delta", {"reasoning": "Hm."}, 0),
    ),
}  # fmt: skip


@pytest.mark.parametrize(("payload", "extra"), KEPT.values(), ids=KEPT)
def test_fields_without_meaning_are_kept(payload: Json, extra: Extra) -> None:
    assert extra in read(sse(begins(), payload, finishes(), DONE))


@pytest.mark.parametrize("name", ["annotations", "audio", "images", "reasoning_details", "refusal"])
def test_a_null_is_nothing(name: str) -> None:
    events = read(sse(begins(), delta({"content": "Hi", name: None}), finishes(), DONE))
    assert not [event for event in events if isinstance(event, Extra)]


def test_extras_of_a_choice_add_up() -> None:
    def token(text: str) -> Json:
        return chunk(choice({"content": text}, logprobs={"content": [{"token": text, "logprob": -1.0}]}))

    def sound(data: str) -> Json:
        return delta({"audio": {"id": "audio_1", "data": data, "transcript": data.lower()}})

    wire = sse(begins(), token("H"), sound("AB"), token("i"), sound("CD"), finishes(), DONE)
    (folded,) = completion(wire).choices
    assert folded.extras == {
        "logprobs": {"content": [{"token": "H", "logprob": -1.0}, {"token": "i", "logprob": -1.0}]}
    }
    assert folded.message_extras == {"audio": {"id": "audio_1", "data": "ABCD", "transcript": "abcd"}}


def test_extras_of_the_chunk_are_reported_when_they_change() -> None:
    payloads = [begins(), says("H", citations=["a"]), says("i", citations=["a"]), finishes(citations=["a", "b"])]
    emitted = [event.fields for event in read(sse(*payloads, DONE)) if isinstance(event, Extra)]
    assert emitted == [{"citations": ["a"]}, {"citations": ["a", "b"]}]


def test_what_an_event_of_cohere_has_beside_its_text_is_kept_before_the_text() -> None:
    begin: Json = {"type": "message-start", "id": "x", "delta": {"message": {"role": "assistant"}}}
    start: Json = {"type": "content-start", "index": 0, "delta": {"message": {"content": {"type": "text", "text": ""}}}}
    text: Json = {"type": "content-delta", "index": 0, "delta": {"message": {"content": {"text": "Hi"}}}}
    probability: Json = {"token_ids": [1], "logprobs": [-0.5]}
    events = StreamReader("cohere").feed(sse(begin, start, text | {"odd": 1, "logprobs": probability}))
    assert events[-3:] == [
        Extra("delta", {"logprobs": [probability]}, 0),
        Extra("chunk", {"odd": 1}),
        TextDelta(0, "Hi"),
    ]
