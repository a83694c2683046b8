"""Reads usage, in the format of any provider of the OpenAI chat dialect.

A typed decoder reads OpenAI's own format, which is by far the most common. For all others, each count is looked up in
the table of `core/hub/usage_fields.py`. Where both are possible they give the same result.
"""

from typing import Annotated, TypeAlias

import msgspec
from msgspec import Meta, Struct

from penstock.core.hub.sink import Sink
from penstock.core.hub.usage import Tokens, Usage
from penstock.core.hub.usage_fields import read_counts

# In Anthropic's format, which has no total, the input does not include these. `Usage.input` does.
_BESIDE_INPUT = ("cache_read_input_tokens", "cache_creation_input_tokens")
# A valid count. Usage with any other count is looked up.
_Count: TypeAlias = Annotated[int, Meta(ge=0, le=2**53)] | None


class _InputDetails(Struct, forbid_unknown_fields=True, gc=False):
    cached_tokens: _Count = None
    cache_write_tokens: _Count = None
    audio_tokens: _Count = None


class _OutputDetails(Struct, forbid_unknown_fields=True, gc=False):
    reasoning_tokens: _Count = None
    audio_tokens: _Count = None
    accepted_prediction_tokens: _Count = None
    rejected_prediction_tokens: _Count = None


class _OpenAIUsage(Struct, forbid_unknown_fields=True, gc=False):
    prompt_tokens: _Count = None
    completion_tokens: _Count = None
    total_tokens: _Count = None
    prompt_tokens_details: _InputDetails = msgspec.field(default_factory=_InputDetails)
    completion_tokens_details: _OutputDetails = msgspec.field(default_factory=_OutputDetails)


def read_usage(raw: dict[str, object], sink: Sink) -> Usage:
    """A provider's usage object as `Usage`."""
    try:
        usual = msgspec.convert(raw, _OpenAIUsage)
    except msgspec.ValidationError:
        counts, tier = read_counts(raw, sink), raw.get("service_tier")
        if "input" in counts and "total" not in counts and "prompt_tokens" not in raw:
            beside = (value for key in _BESIDE_INPUT if isinstance(value := raw.get(key), int) and value > 0)
            counts["input"] += sum(beside)
        return Usage(raw=raw, tier=tier if isinstance(tier, str) else None, **counts)  # type: ignore[arg-type]
    return Usage(
        input=usual.prompt_tokens,
        output=usual.completion_tokens,
        total=usual.total_tokens,
        cached=usual.prompt_tokens_details.cached_tokens,
        cache_write=usual.prompt_tokens_details.cache_write_tokens,
        reasoning=usual.completion_tokens_details.reasoning_tokens,
        audio_input=usual.prompt_tokens_details.audio_tokens,
        audio_output=usual.completion_tokens_details.audio_tokens,
        raw=raw,
    )


def sound_tokens(raw: dict[str, object]) -> tuple[Tokens, str | None] | None:
    """The tokens to book for a usage object in any provider's format, and the service tier that it names.

    None if it needs a repair, or if clients would not read the same counts from it."""
    defects = Sink()
    usage = read_usage(raw, defects).with_total()
    if (raw.get("prompt_tokens"), raw.get("completion_tokens"), raw.get("total_tokens")) != usage.counts()[:3]:
        return None  # clients read these three
    tokens = Tokens.of_sound(usage)
    return None if tokens is None or not tokens.output or defects.events else (tokens, usage.tier)
