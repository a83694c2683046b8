"""Typed decoders for the usual chunks of the OpenAI chat dialect.

Most chunks of most streams contain one piece of text, of reasoning or of a tool call's arguments, and nothing else of
meaning, until the chunk with the finish. The decoder here accepts those, in half a microsecond. It rejects a chunk that
has anything else (usage, an unknown field), and that chunk takes the slow path. The first chunk of a stream has a
decoder of its own. Both paths give the same events: `tests/invariants.py` checks that.
"""

from typing import Literal, Protocol

import msgspec
from msgspec import UNSET, Struct, UnsetType


class PlainFunction(Struct, forbid_unknown_fields=True, gc=False):
    """A piece of a call's arguments."""

    arguments: str


class PlainCall(Struct, forbid_unknown_fields=True, gc=False):
    """A call that was started by an earlier chunk."""

    index: int
    function: PlainFunction


class PlainDelta(Struct, forbid_unknown_fields=True, gc=False):
    """A delta with content; every other member is null."""

    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    tool_calls: list[PlainCall] | None = None
    role: None = None
    refusal: None = None
    function_call: None = None


class PlainChoice(Struct, forbid_unknown_fields=True, gc=False):
    """A choice that continues or is finished."""

    index: int
    delta: PlainDelta
    finish_reason: str | None = None
    logprobs: None = None


class PlainChunk(Struct, forbid_unknown_fields=True, gc=False):
    """A chunk with one choice."""

    id: str
    object: Literal["chat.completion.chunk"]
    created: int
    model: str
    choices: tuple[PlainChoice]
    usage: None = None
    system_fingerprint: str | UnsetType | None = UNSET
    service_tier: str | UnsetType | None = UNSET
    obfuscation: str | UnsetType = UNSET


class OpeningDelta(Struct, forbid_unknown_fields=True, gc=False):
    """A delta with a role and no content."""

    role: Literal["assistant"]
    content: Literal[""] | None = None
    refusal: None = None


class OpeningChoice(Struct, forbid_unknown_fields=True, gc=False):
    """A choice that starts."""

    index: int
    delta: OpeningDelta
    finish_reason: None = None
    logprobs: None = None


class OpeningChunk(Struct, forbid_unknown_fields=True, gc=False):
    """The first chunk of a healthy stream."""

    id: str
    object: Literal["chat.completion.chunk"]
    created: int
    model: str
    choices: tuple[OpeningChoice]
    usage: None = None
    system_fingerprint: str | UnsetType | None = UNSET
    service_tier: str | UnsetType | None = UNSET
    obfuscation: str | UnsetType | None = UNSET


class Envelope(Protocol):
    """The members of a chunk that are the same in the whole stream."""

    id: str
    model: str
    created: int
    system_fingerprint: str | UnsetType | None
    service_tier: str | UnsetType | None


def same_envelope(chunk: Envelope, envelope: tuple[object, ...], extras: dict[str, object]) -> bool:
    """Whether the envelope of a chunk equals that of the chunks before it. The last two members may be missing."""
    fingerprint, tier = chunk.system_fingerprint, chunk.service_tier
    return (
        (chunk.id, chunk.model, chunk.created) == envelope
        and (fingerprint is UNSET or fingerprint == extras.get("system_fingerprint", UNSET))
        and (tier is UNSET or tier == extras.get("service_tier", UNSET))
    )


def extras_of(opening: OpeningChunk) -> dict[str, object]:
    """The extras of the first chunk."""
    fields = {
        "service_tier": opening.service_tier,
        "system_fingerprint": opening.system_fingerprint,
        "obfuscation": opening.obfuscation,
    }
    return {name: value for name, value in fields.items() if value is not UNSET}


OPENING_CHUNK = msgspec.json.Decoder(OpeningChunk)
PLAIN_CHUNK = msgspec.json.Decoder(PlainChunk)
