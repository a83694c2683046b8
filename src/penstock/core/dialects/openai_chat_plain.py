"""The fast lane of the OpenAI chat dialect: chunks that say one thing, recognised by a typed decoder.

Most chunks of most streams hold one piece of text, of reasoning or of a tool call's arguments, and nothing else that
means anything. The decoder here accepts those, in half a microsecond, and a few more that are common enough not to be
worth an exception (`PlainChunk.plain` tells them apart); whatever else a chunk holds makes it refuse, and the chunk is
read the long way. Both ways give the same events:
`tests/invariants.py` asks it of every stream that the properties and the fuzzer think of.
"""

from typing import Literal

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
    """A choice that goes on."""

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
    choices: list[PlainChoice]
    usage: msgspec.Raw | None = None
    system_fingerprint: str | UnsetType | None = UNSET
    service_tier: str | UnsetType | None = UNSET
    obfuscation: str | UnsetType = UNSET

    @property
    def plain(self) -> bool:
        """Whether it holds neither finish nor usage."""
        return len(self.choices) == 1 and self.choices[0].finish_reason is None and self.usage is None


class HeadDelta(Struct, forbid_unknown_fields=True, gc=False):
    """A role, and nothing said yet."""

    role: Literal["assistant"]
    content: Literal[""] | None = None
    refusal: None = None


class HeadChoice(Struct, forbid_unknown_fields=True, gc=False):
    """A choice that begins."""

    index: int
    delta: HeadDelta
    finish_reason: None = None
    logprobs: None = None


class HeadChunk(Struct, forbid_unknown_fields=True, gc=False):
    """The chunk that healthy streams begin with."""

    id: str
    object: Literal["chat.completion.chunk"]
    created: int
    model: str
    choices: tuple[HeadChoice]
    usage: None = None
    system_fingerprint: str | None = None
    service_tier: str | None = None
    obfuscation: str | None = None


HEAD_CHUNK = msgspec.json.Decoder(HeadChunk)
PLAIN_CHUNK = msgspec.json.Decoder(PlainChunk)
