"""A typed decoder for the usual unstreamed answer of the OpenAI chat dialect (`PlainBody`).

It accepts whole answers as healthy servers send them: text, reasoning, a refusal or calls of functions, a finish that
fits them, and usage that needs no repair. Any other member, or another value, and the slow path reads the answer.
"""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Raw, Struct

from penstock.core.dialects.openai_chat.trailer import TrailerUsage
from penstock.core.dialects.openai_chat.usage import sound_tokens
from penstock.core.fast.format import Name, PlainBody
from penstock.core.hub.usage import Tokens, clean_counts
from penstock.core.wire.complexity import SMALL
from penstock.core.wire.payload import is_json, is_too_deep

# Far above what models do. Above, the limits of the slow path decide.
_Few = Meta(max_length=100)
_NULL = Raw(b"null")


class _ChatFunction(Struct, forbid_unknown_fields=True, gc=False):
    name: Name
    arguments: str


class _ChatCall(Struct, forbid_unknown_fields=True, gc=False):
    id: Name
    type: Literal["function"]
    function: _ChatFunction
    index: int | None = None


class _ChatMessage(Struct, forbid_unknown_fields=True, gc=False):
    role: Literal["assistant"]
    content: str | None
    refusal: str | None = None
    annotations: tuple[()] | None = None
    audio: None = None
    function_call: None = None
    tool_calls: Annotated[list[_ChatCall], _Few] | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None


class _ChatChoice(Struct, forbid_unknown_fields=True, gc=False):
    index: int
    message: _ChatMessage
    finish_reason: Literal["stop", "length", "content_filter", "tool_calls"]
    logprobs: None = None
    native_finish_reason: str | None = None
    stop_reason: None = None
    token_ids: None = None


class _Groq(Struct, forbid_unknown_fields=True, gc=False):
    id: str


class _ChatBody(Struct, forbid_unknown_fields=True, gc=False, kw_only=True):
    id: Name
    object: Literal["chat.completion"]
    created: Annotated[int, Meta(ge=1, le=2**53)]
    model: Name
    choices: Annotated[list[_ChatChoice], Meta(min_length=1), _Few]
    system_fingerprint: str | None = None
    service_tier: str | None = None
    provider: str | None = None
    x_groq: _Groq | None = None
    usage_breakdown: None = None
    prompt_logprobs: None = None
    prompt_token_ids: None = None
    kv_transfer_params: None = None
    usage: Raw = _NULL


_BODY = msgspec.json.Decoder(_ChatBody)
_USUAL_USAGE = msgspec.json.Decoder(TrailerUsage)
_ANY_USAGE = msgspec.json.Decoder(dict[str, object])


def read_plain_body(data: bytes) -> PlainBody | None:
    """What is booked of an unstreamed answer; None if the slow path must read it."""
    try:
        body = _BODY.decode(data)
        reported = _reported(body.usage)
    except ValueError:
        return None
    sizes = [_size(choice) if choice.index == place else 0 for place, choice in enumerate(body.choices)]
    if reported is None or 0 in sizes:
        return None
    tokens, tier = reported
    finishes: list[str] = [choice.finish_reason for choice in body.choices]
    return PlainBody(body.id, body.model, finishes, sum(sizes), tokens, (body.service_tier, tier))


def _reported(usage: Raw) -> tuple[Tokens | None, str | None] | None:
    """The tokens of the usage, if the answer has one, and its service tier; None if it needs a repair."""
    if usage == _NULL:
        return None, None
    try:
        tokens = _USUAL_USAGE.decode(usage).tokens()
    except ValueError:
        if len(usage) > SMALL or is_too_deep(bytes(usage)):
            return None
        raw = _ANY_USAGE.decode(usage)
        return sound_tokens(raw) if clean_counts(raw) == raw else None
    return None if tokens is None else (tokens, None)


def _size(choice: _ChatChoice) -> int:
    """The characters of a choice; 0 if it has none, or anything that the slow path would repair."""
    message, calls = choice.message, choice.message.tool_calls
    if (choice.finish_reason == "tool_calls") != bool(calls) or (message.reasoning and message.reasoning_content):
        return 0
    texts = (message.content, message.refusal, message.reasoning, message.reasoning_content)
    size = sum(map(len, filter(None, texts)))
    if not calls:
        return size
    if not _are_healthy(calls):
        return 0
    return size + sum(len(call.function.name) + len(call.function.arguments) for call in calls)


def _are_healthy(calls: list[_ChatCall]) -> bool:
    """Whether the calls have ids of their own, places in their order, and JSON objects or nothing as arguments."""
    return len({call.id for call in calls}) == len(calls) and all(
        call.index in (None, place) and _is_healthy(call.function.arguments) for place, call in enumerate(calls)
    )


def _is_healthy(arguments: str) -> bool:
    return not arguments or (arguments[0] == "{" and is_json(arguments.encode()))
