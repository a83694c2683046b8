"""What is reserved for an input is at least what an honest provider books, wherever in the request the text is.

The provider of these tests counts as tokenizers of the GPT family divide text: words of up to five letters with the
space before them, three digits, two other characters. It counts every text and every name in the body that it gets,
and media by the rules that providers document. Denser text, and what a provider adds of its own, can exceed the
reservation: docs/ledger.md lists it.
"""

import base64
import json
import re
from collections.abc import Callable, Iterator
from functools import cache
from random import Random
from typing import Any

import pytest

from penstock.core.dialects.dialect import Destination, RequestError, RequestLimits
from penstock.core.dialects.registry import DIALECTS, surface_dialect, upstream_dialect
from penstock.gateway.limits.demand import chat_demand
from penstock.gateway.limits.reservation import with_margin
from tests.corpus import CORPUS
from tests.tables import FULL

TEXT = "lorem ipsum dolor sit amet consectetur " * 300  # 12 KB, 2,400 tokens
PATHS = {
    "openai_chat": "/v1/chat/completions",
    "anthropic_messages": "/v1/messages",
    "openai_responses": "/v1/responses",
    "gemini": "/v1beta/models/m:generateContent",
}
APIS = {"chat": "openai_chat", "anthropic": "anthropic_messages", "responses": "openai_responses", "gemini": "gemini"}

_TOKEN = re.compile(r" ?[A-Za-z]{1,5}|[0-9]{1,3}|[^A-Za-z0-9]{1,2}")
_MEDIA = {b"\x89PNG": 1_600, b"\xff\xd8\xff": 1_600, b"GIF8": 1_600, b"RIFF": 1_600, b"ID3": 500, b"%PDF": 3_000}


def booked(value: object) -> int:
    """The tokens that the provider books for a body."""
    if isinstance(value, dict):
        return sum(booked(name) + booked(item) for name, item in value.items())
    if isinstance(value, list):
        return sum(map(booked, value))
    return _booked_text(value) if isinstance(value, str) else 1


@cache
def _booked_text(text: str) -> int:
    if (media := _booked_media(text)) is not None:
        return media
    others = len(text.encode("utf-8", "replace")) - len(text.encode("ascii", "ignore"))
    return len(_TOKEN.findall(text.encode("ascii", "ignore").decode())) + others // 3


def _booked_media(text: str) -> int | None:
    data = text.partition(";base64,")[2] or text
    try:
        start = base64.b64decode(data[:64], validate=True)
    except ValueError:
        return None
    return next((tokens for magic, tokens in _MEDIA.items() if start.startswith(magic)), None)


def reserved(dialect: str, body: dict[str, Any], provider: str) -> tuple[int, int]:
    """The input tokens that are reserved for a request, and those that a provider of another API or the same books."""
    request = surface_dialect(dialect).read_request(json.dumps(body).encode(), {}, PATHS[dialect])
    outgoing = upstream_dialect(provider).write_request(request, Destination(model="m"))
    return with_margin(chat_demand(request, RequestLimits()).input), booked(json.loads(outgoing.body))


# Mutations: text, wherever a client may write it.


def _containers(value: object) -> Iterator[Any]:
    if isinstance(value, dict | list):
        yield value
        for item in value.values() if isinstance(value, dict) else value:
            yield from _containers(item)


def _text_in_place_of_a_text(random: Random, container: Any) -> None:
    places = list(container) if isinstance(container, dict) else range(len(container))
    texts = [place for place in places if isinstance(container[place], str) and place not in ("role", "type", "model")]
    if texts:
        container[random.choice(texts)] = TEXT


def _text_in_a_new_member(random: Random, container: Any) -> None:
    value = random.choice((TEXT, [TEXT], {"a": {"b": [TEXT]}}, {"type": "text", "text": TEXT}))
    if isinstance(container, dict):
        container[random.choice(("name", "prediction", "arguments", "unknown"))] = value
    else:
        container.append(value)


def _many_items_and_some_long(random: Random, container: Any) -> None:
    if isinstance(container, list) and container:
        item = json.dumps(random.choice(container))
        container += [json.loads(item) for _ in range(random.randrange(60))]
        for each in container:
            if isinstance(each, dict) and not random.randrange(3):
                _text_in_place_of_a_text(random, each)


MUTATIONS: tuple[Callable[[Random, Any], None], ...] = (
    _text_in_place_of_a_text,
    _text_in_a_new_member,
    _many_items_and_some_long,
)


def _corpus() -> Iterator[tuple[str, dict[str, Any]]]:
    index = CORPUS / "INDEX.jsonl"
    for row in map(json.loads, index.read_text().splitlines()) if index.exists() else ():
        if row["request"] and row["api"] in APIS:
            body = json.loads((CORPUS / row["request"]).read_bytes())
            body = body.get("body", body) if isinstance(body, dict) else None
            if isinstance(body, dict):
                yield APIS[row["api"]], {"model": "m", **body} if row["api"] != "gemini" else body


@pytest.mark.slow
@pytest.mark.parametrize("dialect", PATHS)
def test_no_request_of_the_corpus_books_more_input_than_was_reserved(dialect: str) -> None:
    bodies = [body for api, body in _corpus() if api == dialect]
    if not bodies:
        pytest.skip(f"there is no corpus at {CORPUS} (PENSTOCK_CORPUS)")
    providers = [name for name, each in DIALECTS.items() if each.upstream is not None]
    tried = 0
    for number, body in enumerate(bodies):
        random = Random(number)
        for mutate in (None, *(MUTATIONS if FULL else MUTATIONS[number % 3 :][:1])):
            mutated = json.loads(json.dumps(body))
            if mutate is not None:
                mutate(random, random.choice(list(_containers(mutated))))
            for provider in (dialect, random.choice(providers)):
                try:
                    kept, spent = reserved(dialect, mutated, provider)
                except RequestError:
                    continue  # the client gets an error
                tried += 1
                assert spent <= kept, (provider, mutate, json.dumps(mutated)[:2_000])
    assert tried > len(bodies)


def _user(content: object) -> list[Any]:
    return [{"role": "user", "content": content}]


SCHEMA = {"type": "object", "default": {"inlineData": {"mimeType": "image/png", "data": TEXT}}}
IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + TEXT}}
# Bodies with `n` times `TEXT`, where the estimate might not look for it.
HIDDEN: dict[str, tuple[str, int, dict[str, Any]]] = {
    "every third part": (
        "openai_chat",
        39,
        {"messages": _user([{"type": "text", "text": TEXT if i % 3 else "x"} for i in range(59)])},
    ),
    "every second message": (
        "openai_chat",
        500,
        {"messages": [{"role": "user", "content": TEXT if i % 2 else "x"} for i in range(1_000)]},
    ),
    "an old function call": (
        "openai_chat",
        1,
        {"messages": [{"role": "assistant", "function_call": {"name": "f", "arguments": TEXT}}, *_user("x")]},
    ),
    "a prediction": (
        "openai_chat",
        1,
        {"messages": _user("x"), "prediction": {"type": "content", "content": TEXT}},
    ),
    "an image in a schema": (
        "openai_chat",
        1,
        {"messages": _user("x"), "tools": [{"type": "function", "function": {"name": "f", "parameters": SCHEMA}}]},
    ),
    "an image in arguments": (
        "anthropic_messages",
        1,
        {
            "max_tokens": 5,
            "messages": [{"role": "assistant", "content": [{"type": "tool_use", "input": {"content": [IMAGE]}}]}],
        },
    ),
    "a plain text document": (
        "anthropic_messages",
        1,
        {
            "max_tokens": 5,
            "messages": _user(
                [{"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": TEXT}}]
            ),
        },
    ),
    "variables of a prompt": ("openai_responses", 1, {"prompt": {"id": "p", "variables": {"a": TEXT}}}),
    "the response of a function": (
        "gemini",
        1,
        {"contents": [{"parts": [{"functionResponse": {"name": "f", "response": {"parts": [IMAGE]}}}]}]},
    ),
}


@pytest.mark.parametrize(("dialect", "times", "body"), HIDDEN.values(), ids=HIDDEN)
def test_no_text_is_hidden_from_the_reservation(dialect: str, times: int, body: dict[str, Any]) -> None:
    request = surface_dialect(dialect).read_request(json.dumps({"model": "m", **body}).encode(), {}, PATHS[dialect])
    assert with_margin(chat_demand(request, RequestLimits()).input) >= times * _booked_text(TEXT)


def test_what_a_route_adds_is_reserved_too() -> None:
    body = json.dumps({"model": "m", "messages": _user("x")}).encode()
    request = surface_dialect("openai_chat").read_request(body, {}, "")
    assert chat_demand(request, RequestLimits(), {"prefix": TEXT}).input >= _booked_text(TEXT)
