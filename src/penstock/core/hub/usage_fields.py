"""The counts of usage objects: how one is read, and the names that providers of OpenAI-compatible APIs give them."""

from typing import TypeGuard

from penstock.core.hub.sink import Sink
from penstock.core.json.getters import integer_of, shown

# A larger number is not kept as a count; the raw object still has it.
_MAX_COUNT = 10**1000
# Added to the preference of a count that is zero: any other spelling comes before it.
_ZERO = 100

SPELLINGS: dict[str, tuple[tuple[str, str], ...]] = {
    "input": (("", "prompt_tokens"), ("", "input_tokens")),
    "output": (("", "completion_tokens"), ("", "output_tokens")),
    "total": (("", "total_tokens"),),
    "cached": (
        ("prompt_tokens_details", "cached_tokens"),
        ("input_tokens_details", "cached_tokens"),
        ("prompt_token_details", "cached_tokens"),
        ("", "prompt_cache_hit_tokens"),
        ("", "cached_tokens"),
        ("", "num_cached_tokens"),
        ("", "cache_read_input_tokens"),
        ("", "cache_read_tokens"),
    ),
    "cache_write": (
        ("prompt_tokens_details", "cache_write_tokens"),
        ("input_tokens_details", "cache_write_tokens"),
        ("prompt_tokens_details", "cache_creation_tokens"),
        ("", "cache_creation_input_tokens"),
        ("", "cache_write_tokens"),
    ),
    "cache_write_1h": (
        ("cache_creation", "ephemeral_1h_input_tokens"),
        ("prompt_tokens_details.cache_creation", "ephemeral_1h_input_tokens"),
        ("prompt_tokens_details.cache_creation_token_details", "ephemeral_1h_input_tokens"),
    ),
    "reasoning": (
        ("completion_tokens_details", "reasoning_tokens"),
        ("output_tokens_details", "reasoning_tokens"),
        ("", "reasoning_tokens"),
    ),
    "audio_input": (("prompt_tokens_details", "audio_tokens"), ("input_tokens_details", "audio_tokens")),
    "audio_output": (("completion_tokens_details", "audio_tokens"), ("output_tokens_details", "audio_tokens")),
}
"""For each count, where providers report it, in the order of preference: the name of the object within the usage (empty
for the usage itself, with a dot for an object within the details of the input) and the key. The first count that is
present and not zero is used. Spellings of one count are never added up."""
# The same by object and key: the count, and its preference.
_COUNTS = {
    name: {
        key: (field, rank)
        for field, places in SPELLINGS.items()
        for rank, (within, key) in enumerate(places)
        if within == name
    }
    for name in {name for places in SPELLINGS.values() for name, _ in places}
}

REPORTED: frozenset[str] = frozenset(key for places in SPELLINGS.values() for _, key in places) | frozenset(
    (
        # Messages: parts of the counts above, or requests to tools, which `Usage.tool_requests` has.
        "ephemeral_5m_input_tokens", "thinking_tokens", "web_search_requests", "web_fetch_requests",
        # Gemini. The counts by modality are parts of the others.
        "promptTokenCount", "candidatesTokenCount", "totalTokenCount", "cachedContentTokenCount", "thoughtsTokenCount",
        "toolUsePromptTokenCount", "modality", "tokenCount", "serviceTier",
        # Bedrock, Ollama, DeepSeek (the input that is not cached)
        "inputTokens", "outputTokens", "totalTokens", "cacheReadInputTokens", "cacheWriteInputTokens", "ttl",
        "prompt_eval_count", "eval_count", "prompt_cache_miss_tokens",
    )
)  # fmt: skip
"""The names of counts in reports of all dialects that `Usage` has, and of parts that follow from them."""


def is_count(value: object) -> TypeGuard[int]:
    """Whether a value is a count that needs no repair."""
    return type(value) is int and abs(value) < _MAX_COUNT


def read_counts(raw: dict[str, object], sink: Sink) -> dict[str, int]:
    """The counts of a report, by the fields of `Usage`."""
    counts: dict[str, int] = {}
    _collect(raw, "", counts, {}, sink)
    return counts


def _collect(fields: dict[str, object], name: str, counts: dict[str, int], ranks: dict[str, int], sink: Sink) -> None:
    """Add the counts of an object in a report, unless there is one that is preferred."""
    known = _COUNTS[name]
    for key, value in fields.items():
        if type(value) is dict:
            within = f"{name}.{key}" if name else key
            if within in _COUNTS:
                _collect(value, within, counts, ranks, sink)
        elif key in known and (count := read_count(value, sink)) is not None:
            field, rank = known[key]
            if not count:
                rank += _ZERO
            if field not in ranks or rank < ranks[field]:
                counts[field], ranks[field] = count, rank


def read_count(value: object, sink: Sink) -> int | None:
    """A count of tokens, converted if it is not an integer; None if there is none, or an absurd one."""
    if value is None or is_count(value):
        return value
    if type(value) is int:
        sink.repair("usage-absurd", shown(value))
        return None
    sink.repair("usage-mistyped", shown(value))
    return integer_of(value)
