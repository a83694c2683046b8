"""Estimates of the tokens of an input, before a provider has counted them.

No tokenizer is used: it would have to be the right one for the model, and would take too long. English text has about
four bytes per token, other scripts have fewer. An estimate should be slightly too high rather than too low, because
budgets depend on it. It runs on the event loop, so long inputs are sampled and extrapolated.
"""

from collections.abc import Sequence
from typing import TypeVar

import msgspec

from penstock.core.content import (
    MediaPart,
    OpaquePart,
    Part,
    ReasoningPart,
    RefusalPart,
    TextPart,
    ToolCall,
    ToolChange,
    ToolResult,
)
from penstock.core.request import Request

_Item = TypeVar("_Item")

# Bytes per token: of ASCII characters, and of all others.
ASCII_BYTES = 4
_OTHER_BYTES = 3
# Tokens that the prompt templates of most models add to each message, and to the start of the answer.
PER_MESSAGE = 4
PER_REQUEST = 3
# Tokens of an image of ordinary size in high detail; 85 to 1,600 by provider and size. The same for audio and files.
PER_ATTACHMENT = 1_000
# The characters of a text that are sampled.
_SAMPLE = 4_096
# The maximum number of messages, parts or tools that are sampled.
MAX_ITEMS = 500


def estimate_request(request: Request) -> int:
    """About how many tokens the input of a request has."""
    tokens = PER_REQUEST + (PER_MESSAGE + _parts(request.system) if request.system else 0)
    seen = spread(request.turns, MAX_ITEMS)
    tokens += extrapolated(sum(PER_MESSAGE + _parts(turn.parts) for turn in seen), len(seen), len(request.turns))
    if request.tools:
        tokens += schema_tokens([[tool.name, tool.description, tool.schema, tool.extras] for tool in request.tools])
    if request.format is not None and request.format.schema:
        tokens += schema_tokens(request.format.schema)
    return tokens


def text_tokens(text: str) -> int:
    """About how many tokens a text has."""
    if text.isascii():
        return -(-len(text) // ASCII_BYTES)
    sample = text[:_SAMPLE]
    ascii = len(sample.encode("ascii", "ignore"))
    others = len(sample.encode("utf-8", "replace")) - ascii
    tokens = ascii / ASCII_BYTES + others / _OTHER_BYTES
    return ceil(tokens * len(text), len(sample))


def schema_tokens(value: object) -> int:
    """About how many tokens a value has that the model gets as JSON, or as text of about that length."""
    if not isinstance(value, list) or not value:
        return ceil(len(msgspec.json.encode(value)), ASCII_BYTES)
    seen = spread(value, MAX_ITEMS)
    return extrapolated(ceil(len(msgspec.json.encode(seen)), ASCII_BYTES), len(seen), len(value))


def spread(items: Sequence[_Item], most: int) -> Sequence[_Item]:
    """At most `most` of the items, evenly spread."""
    return items if len(items) <= most else items[:: -(-len(items) // most)]


def extrapolated(tokens: int, seen: int, items: int) -> int:
    """The tokens of all items, extrapolated from those of the sampled ones."""
    return tokens if seen == items else ceil(tokens * items, seen)


def ceil(count: float, by: float) -> int:
    """The quotient, rounded up."""
    return -int(-count // by)


def _parts(parts: Sequence[Part]) -> int:
    seen = spread(parts, MAX_ITEMS)
    return extrapolated(sum(map(_part, seen)), len(seen), len(parts))


def _part(part: Part) -> int:
    match part:
        case TextPart(text) | RefusalPart(text):
            return text_tokens(text)
        case ReasoningPart(text, summary):
            return text_tokens(text) + sum(map(text_tokens, summary))
        case MediaPart():
            return PER_ATTACHMENT
        case ToolCall(_, name, arguments):
            return text_tokens(name) + text_tokens(arguments)
        case ToolResult(_, parts):
            return _parts(parts)
        case ToolChange():
            return text_tokens(str(part))
        case OpaquePart(_, _, data):
            return schema_tokens(data)
