"""A typed decoder for the usual chunks of the OpenAI chat dialect.

Most chunks of most streams contain one piece of text, of reasoning or of a tool call's arguments, and nothing else of
meaning, until the chunk with the finish. The decoder accepts those, in half a microsecond: the pieces of arguments take
half of the time that they would take otherwise. It rejects a chunk that has anything else (usage, a finish, an unknown
field). Both ways give the same events: `tests/invariants.py` checks that.
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
    """A choice that continues."""

    index: int
    delta: PlainDelta
    finish_reason: None = None
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


class PaddedChunk(Struct, gc=False):
    """The padding of any chunk."""

    obfuscation: str | None = None


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


def padding_of(chunk: bytes) -> str | None:
    """The padding of a chunk with this JSON; None if there is none."""
    return _PADDED_CHUNK.decode(chunk).obfuscation if chunk else None


PLAIN_CHUNK = msgspec.json.Decoder(PlainChunk)
_PADDED_CHUNK = msgspec.json.Decoder(PaddedChunk)
