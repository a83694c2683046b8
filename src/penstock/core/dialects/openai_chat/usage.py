"""Reads usage, in the format of any provider of the OpenAI chat dialect.

A typed decoder reads OpenAI's own format, which is by far the most common. For all others, each count is looked up in
the table of `core/hub/usage_fields.py`. Where both are possible they give the same result.
"""

from typing import Annotated, TypeAlias

import msgspec
from msgspec import Meta, Struct

from penstock.core.hub.sink import Sink
from penstock.core.hub.usage import Usage
from penstock.core.hub.usage_fields import SPELLINGS, read_count

_DETAILS = "prompt_tokens_details"
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
        return _look_up(raw, sink)
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


def _look_up(raw: dict[str, object], sink: Sink) -> Usage:
    objects = {name: value for name, value in raw.items() if type(value) is dict} | {"": raw}
    for name, value in objects.get(_DETAILS, {}).items():
        if type(value) is dict:
            objects[f"{_DETAILS}.{name}"] = value
    tier = raw.get("service_tier")
    counts: dict[str, int | None] = {}
    for field, places in SPELLINGS.items():
        result: int | None = None
        for name, key in places:
            if name in objects and (value := objects[name].get(key)) is not None:
                count = read_count(value, sink)
                if count:
                    result = count
                    break
                result = count if result is None else result
        counts[field] = result
    if counts["input"] is not None and counts["total"] is None and "prompt_tokens" not in raw:
        beside = [value for key in _BESIDE_INPUT if isinstance(value := raw.get(key), int) and value > 0]
        counts["input"] += sum(beside)
    return Usage(raw=raw, tier=tier if isinstance(tier, str) else None, **counts)  # type: ignore[arg-type]
