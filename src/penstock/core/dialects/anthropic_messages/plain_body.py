"""Typed decoders for the usual unstreamed answer of Anthropic Messages (`PlainBody`).

They accept text, thinking with its signature, and calls of tools, a stop reason that fits them, and usage of one step
of one model. Any other member, or another value, and the slow path reads the answer.
"""

from typing import Annotated, Literal, TypeAlias

import msgspec
from msgspec import Meta, Raw, Struct

from penstock.core.dialects.anthropic_messages.vocabulary import FINISH_REASONS
from penstock.core.fast.format import Name, PlainBody
from penstock.core.hub.usage import ABSURD_TOKENS, Tokens
from penstock.core.wire.payload import is_too_deep

# In bytes, of the inputs of all calls. Above, the limits of the slow path decide.
_MAX_INPUT = 16_384
_Count: TypeAlias = Annotated[int, Meta(ge=0, lt=ABSURD_TOKENS)]


class _MessagesText(Struct, forbid_unknown_fields=True, gc=False, tag="text"):
    text: Name
    citations: None = None

    @property
    def chars(self) -> int:
        return len(self.text)


class _Thinking(Struct, forbid_unknown_fields=True, gc=False, tag="thinking"):
    thinking: Name
    signature: Name

    @property
    def chars(self) -> int:
        return len(self.thinking)


class _Redacted(Struct, forbid_unknown_fields=True, gc=False, tag="redacted_thinking"):
    data: Name
    chars = 0


class _MessagesCaller(Struct, forbid_unknown_fields=True, gc=False):
    type: Literal["direct"]


class _MessagesCall(Struct, forbid_unknown_fields=True, gc=False, tag="tool_use"):
    id: Name
    name: Name
    input: Raw
    caller: _MessagesCaller | None = None


class _Lifetimes(Struct, forbid_unknown_fields=True, gc=False):
    ephemeral_5m_input_tokens: _Count = 0
    ephemeral_1h_input_tokens: _Count = 0


_NO_LIFETIMES = _Lifetimes()


class _MessagesUsage(Struct, forbid_unknown_fields=True, gc=False):
    input_tokens: _Count
    output_tokens: Annotated[int, Meta(ge=1, lt=ABSURD_TOKENS)]
    cache_creation_input_tokens: _Count | None = None
    cache_read_input_tokens: _Count | None = None
    cache_creation: _Lifetimes | None = None
    service_tier: str | None = None
    server_tool_use: None = None
    inference_geo: str | None = None

    def tokens(self) -> Tokens | None:
        """The tokens to book; None if the counts are inconsistent."""
        cached, written = self.cache_read_input_tokens or 0, self.cache_creation_input_tokens or 0
        hour = (self.cache_creation or _NO_LIFETIMES).ephemeral_1h_input_tokens
        input = self.input_tokens + cached + written
        if hour > written or input + self.output_tokens >= ABSURD_TOKENS:
            return None
        return Tokens(input=input, output=self.output_tokens, cached=cached, cache_write=written, cache_write_1h=hour)


class _MessagesBody(Struct, forbid_unknown_fields=True, gc=False, kw_only=True):
    id: Name
    type: Literal["message"]
    role: Literal["assistant"]
    model: Name
    content: Annotated[list[_MessagesText | _Thinking | _Redacted | _MessagesCall], Meta(min_length=1, max_length=100)]
    stop_reason: Literal["end_turn", "stop_sequence", "max_tokens", "tool_use"]
    stop_sequence: str | None = None
    stop_details: None = None
    container: None = None
    context_management: None = None
    usage: _MessagesUsage


_BODY = msgspec.json.Decoder(_MessagesBody)
_OBJECT = msgspec.json.Decoder(dict[str, object])


def read_plain_body(data: bytes) -> PlainBody | None:
    """What is booked of an unstreamed answer; None if the slow path must read it."""
    try:
        body = _BODY.decode(data)
        calls = [block for block in body.content if isinstance(block, _MessagesCall)]
        chars = sum(block.chars for block in body.content if not isinstance(block, _MessagesCall))
        size = _size(calls) if calls else 0
    except ValueError:
        return None
    tokens = body.usage.tokens()
    if tokens is None or size is None or not (chars or calls) or (body.stop_reason == "tool_use") != bool(calls):
        return None
    finishes = [FINISH_REASONS[body.stop_reason]]
    return PlainBody(body.id, body.model, finishes, chars + size, tokens, (body.usage.service_tier,))


def _size(calls: list[_MessagesCall]) -> int | None:
    """The characters of calls, with their arguments as the slow path has them; None if the slow path must read them.

    Raises `ValueError` if an input is not an object.
    """
    if sum(len(call.input) for call in calls) > _MAX_INPUT or len({call.id for call in calls}) < len(calls):
        return None
    if any(is_too_deep(bytes(call.input)) for call in calls):
        return None
    return sum(len(call.name) + len(msgspec.json.encode(_OBJECT.decode(call.input)).decode()) for call in calls)
