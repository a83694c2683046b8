"""Typed decoders for the usual chunks of the OpenAI chat dialect.

Most chunks of most streams hold one piece of text, of reasoning or of a tool call's arguments, and nothing else that
means anything, until the one that finishes the answer. The decoder here accepts those, in half a microsecond. Whatever
else a chunk holds (usage, an unknown field) makes it refuse, and the chunk takes the slow path. The chunk that opens a
stream has a decoder of its own. Both paths give the same events: `tests/invariants.py` checks that.
"""

from typing import Literal, Protocol

import msgspec
from msgspec import UNSET, Struct, UnsetType


class PlainFunction(Struct, forbid_unknown_fields=True, gc=False):
    """More arguments."""

    arguments: str


class PlainCall(Struct, forbid_unknown_fields=True, gc=False):
    """A call that goes on."""

    index: int
    function: PlainFunction


class PlainDelta(Struct, forbid_unknown_fields=True, gc=False):
    """Something said, and nulls."""

    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    tool_calls: list[PlainCall] | None = None
    role: None = None
    refusal: None = None
    function_call: None = None


class PlainChoice(Struct, forbid_unknown_fields=True, gc=False):
    """A choice that goes on, or is finished."""

    index: int
    delta: PlainDelta
    finish_reason: str | None = None
    logprobs: None = None


class PlainChunk(Struct, forbid_unknown_fields=True, gc=False):
    """A chunk that says one thing."""

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
    """A role, and nothing said yet."""

    role: Literal["assistant"]
    content: Literal[""] | None = None
    refusal: None = None


class OpeningChoice(Struct, forbid_unknown_fields=True, gc=False):
    """A choice that begins."""

    index: int
    delta: OpeningDelta
    finish_reason: None = None
    logprobs: None = None


class OpeningChunk(Struct, forbid_unknown_fields=True, gc=False):
    """The chunk that healthy streams begin with."""

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
    """A chunk, as far as it is the same in a whole stream."""

    id: str
    model: str
    created: int
    system_fingerprint: str | UnsetType | None
    service_tier: str | UnsetType | None


def same_envelope(chunk: Envelope, envelope: tuple[object, ...], extras: dict[str, object]) -> bool:
    """Whether a chunk says of its stream what those before it have said, or nothing."""
    fingerprint, tier = chunk.system_fingerprint, chunk.service_tier
    return (
        (chunk.id, chunk.model, chunk.created) == envelope
        and (fingerprint is UNSET or fingerprint == extras.get("system_fingerprint", UNSET))
        and (tier is UNSET or tier == extras.get("service_tier", UNSET))
    )


def extras_of(opening: OpeningChunk) -> dict[str, object]:
    """What has no meaning to us in the first chunk."""
    fields = {
        "service_tier": opening.service_tier,
        "system_fingerprint": opening.system_fingerprint,
        "obfuscation": opening.obfuscation,
    }
    return {name: value for name, value in fields.items() if value is not UNSET}


OPENING_CHUNK = msgspec.json.Decoder(OpeningChunk)
PLAIN_CHUNK = msgspec.json.Decoder(PlainChunk)
