"""Usage in the OpenAI Responses dialect.

The counts are as the hub has them: cached and cache-write tokens are parts of the input, reasoning is a part of the
output. Compatible servers use other names; `core/hub/usage_fields.py` has them all.
"""

from penstock.core.hub.sink import Sink
from penstock.core.hub.usage import Usage
from penstock.core.hub.usage_fields import SPELLINGS, is_count, read_count

_DETAILS = ("input_tokens_details", "output_tokens_details")
_MOST_TOOLS = 100
# The members of a report of OpenAI, and of the details in it.
_USUAL = frozenset(("input_tokens", "output_tokens", "total_tokens", *_DETAILS))


def read_usage(raw: dict[str, object], sink: Sink, *, tier: object = None) -> Usage:
    """A usage object as `Usage`. `tier` is the service tier that the response names."""
    usual = _usual(raw, tier)
    if usual is not None:
        return usual
    objects = {name: value for name, value in raw.items() if isinstance(value, dict)} | {"": raw}
    counts: dict[str, int | None] = {}
    for field, places in SPELLINGS.items():
        found = [
            read_count(objects[name][key], sink) for name, key in places if name in objects and key in objects[name]
        ]
        known = [count for count in found if count is not None]
        counts[field] = next((count for count in known if count), known[0] if known else None)
    missing = [name for name in _DETAILS if not raw.get(name)]
    missing += ["total_tokens"] if counts["total"] is None else []
    if missing and any(counts.values()):
        sink.repair("usage-incomplete", ", ".join(missing))
    return Usage(
        raw=raw,
        tier=tier if isinstance(tier, str) else None,
        tool_requests=_tool_requests(raw.get("server_side_tool_usage_details")),
        **counts,  # type: ignore[arg-type]
    )


def _usual(raw: dict[str, object], tier: object) -> Usage | None:
    """A report as OpenAI sends it, which needs no search for spellings; None for any other report."""
    if raw.keys() != _USUAL:
        return None
    sent, written = raw["input_tokens_details"], raw["output_tokens_details"]
    if not isinstance(sent, dict) or not isinstance(written, dict):
        return None
    if sent.keys() - {"cache_write_tokens"} != {"cached_tokens"} or written.keys() != {"reasoning_tokens"}:
        return None
    input, output, total = raw["input_tokens"], raw["output_tokens"], raw["total_tokens"]
    cached, cache_write, reasoning = sent["cached_tokens"], sent.get("cache_write_tokens"), written["reasoning_tokens"]
    if cache_write is not None and not is_count(cache_write):
        return None
    if not (is_count(input) and is_count(output) and is_count(total) and is_count(cached) and is_count(reasoning)):
        return None
    return Usage(
        raw=raw,
        tier=tier if isinstance(tier, str) else None,
        input=input,
        output=output,
        total=total,
        cached=cached,
        cache_write=cache_write,
        reasoning=reasoning,
    )


def _tool_requests(details: object) -> dict[str, int]:
    """How often xAI executed each of its tools, which it bills per call."""
    counts = list(details.items())[:_MOST_TOOLS] if isinstance(details, dict) else []
    return {name.removesuffix("_calls"): count for name, count in counts if type(count) is int and count > 0}
