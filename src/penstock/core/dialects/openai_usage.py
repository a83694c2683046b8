"""Usage in every provider's spelling of the OpenAI chat dialect."""

from penstock.core.dialects.getters import integer_of, shown
from penstock.core.sink import Sink
from penstock.core.usage import Usage

# For each count, the paths under which providers report it, in the order of preference. The first one that is there
# and not zero counts; several spellings of one count are never added up.
SPELLINGS: dict[str, tuple[tuple[str, ...], ...]] = {
    "input": (("prompt_tokens",), ("input_tokens",)),
    "output": (("completion_tokens",), ("output_tokens",)),
    "total": (("total_tokens",),),
    "cached": (
        ("prompt_tokens_details", "cached_tokens"),
        ("input_tokens_details", "cached_tokens"),
        ("prompt_token_details", "cached_tokens"),
        ("prompt_cache_hit_tokens",),
        ("cached_tokens",),
        ("num_cached_tokens",),
        ("cache_read_input_tokens",),
        ("cache_read_tokens",),
    ),
    "cache_write": (
        ("prompt_tokens_details", "cache_write_tokens"),
        ("prompt_tokens_details", "cache_creation_tokens"),
        ("cache_creation_input_tokens",),
        ("cache_write_tokens",),
    ),
    "reasoning": (
        ("completion_tokens_details", "reasoning_tokens"),
        ("output_tokens_details", "reasoning_tokens"),
        ("reasoning_tokens",),
    ),
    "audio_input": (("prompt_tokens_details", "audio_tokens"), ("input_tokens_details", "audio_tokens")),
    "audio_output": (("completion_tokens_details", "audio_tokens"), ("output_tokens_details", "audio_tokens")),
}


# Beyond this a figure is not even worth keeping as a number; the raw object has it.
_MAX_COUNT = 10**1000


def read_usage(raw: dict[str, object], sink: Sink) -> Usage:
    """A provider's usage object as `Usage`."""
    return Usage(raw=raw, **{field: _first(raw, paths, sink) for field, paths in SPELLINGS.items()})  # type: ignore[arg-type]


def _first(raw: dict[str, object], paths: tuple[tuple[str, ...], ...], sink: Sink) -> int | None:
    found: int | None = None
    for path in paths:
        value: object = raw
        for key in path:
            value = value.get(key) if isinstance(value, dict) else None
        if value is not None:
            count = _count(value, sink)
            if count:
                return count
            found = count if found is None else found
    return found


def _count(value: object, sink: Sink) -> int | None:
    if type(value) is int:
        if abs(value) < _MAX_COUNT:
            return value
        sink.repair("usage-absurd", shown(value))
        return None
    sink.repair("usage-mistyped", shown(value))
    return integer_of(value)
