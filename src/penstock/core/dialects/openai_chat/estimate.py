"""Estimates the tokens of a chat request from its decoded fields, because most requests are never read as `Request`."""

from collections.abc import Mapping

from penstock.core.input_estimate import (
    ASCII_BYTES,
    MAX_ITEMS,
    PER_ATTACHMENT,
    PER_MESSAGE,
    PER_REQUEST,
    extrapolated,
    schema_tokens,
    spread,
    text_tokens,
)

# The maximum number of parts of a message that are sampled.
_MAX_PARTS = 20
_TEXTS = ("input", "prompt")
_SCHEMAS = ("tools", "functions", "response_format")
_BESIDE_MESSAGES = frozenset((*_TEXTS, *_SCHEMAS))


def estimate_input(fields: Mapping[str, object]) -> int:
    """About how many tokens a chat request, or one for embeddings, has."""
    tokens = estimate_messages(fields.get("messages"))
    if _BESIDE_MESSAGES.isdisjoint(fields):
        return tokens
    for name in _TEXTS:
        if name in fields:
            tokens += _content(fields[name])
    for name in _SCHEMAS:
        if fields.get(name):
            tokens += schema_tokens(fields[name])
    return tokens


def estimate_messages(messages: object) -> int:
    """About how many tokens a chat request has that consists of messages only."""
    return PER_REQUEST + _items(messages)


def _items(messages: object) -> int:
    if not isinstance(messages, list):
        return 0
    if len(messages) > MAX_ITEMS:
        seen = spread(messages, MAX_ITEMS)
        return extrapolated(_items(seen), len(seen), len(messages))
    tokens = PER_MESSAGE * len(messages)
    try:
        for message in messages:
            text = message["content"]
            if len(message) != 2 or "role" not in message:
                tokens += _message(message) - PER_MESSAGE
            elif text.isascii():  # nearly all are so
                tokens -= -len(text) // ASCII_BYTES
            else:
                tokens += text_tokens(text)
    except (AttributeError, KeyError, TypeError):  # something is no object, or its content is no text
        return sum(map(_message, messages))
    return tokens


def _message(message: object) -> int:
    if not isinstance(message, dict):
        return 0
    text = message.get("content")
    if type(text) is str and len(message) == 2 and "role" in message:
        return PER_MESSAGE + text_tokens(text)
    tokens = PER_MESSAGE
    for name, value in message.items():
        if type(value) is str:
            if name != "role":
                tokens += text_tokens(value)
        elif name == "tool_calls":
            tokens += schema_tokens(value)
        elif type(value) is list:
            tokens += _content(value)
    return tokens


def _content(content: object) -> int:
    """Text, or a list of parts, of texts, or of the tokens themselves."""
    if isinstance(content, str):
        return text_tokens(content)
    if isinstance(content, list) and content:
        seen = spread(content, _MAX_PARTS)
        return extrapolated(sum(map(_part, seen)), len(seen), len(content))
    return 0


def _part(part: object) -> int:
    if isinstance(part, dict):
        text = part.get("text") or part.get("refusal")
        return text_tokens(text) if isinstance(text, str) else PER_ATTACHMENT
    if isinstance(part, str):
        return text_tokens(part)
    return len(part) if isinstance(part, list) else 1
