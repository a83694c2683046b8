"""Usage in the OpenAI Responses dialect.

The counts are as the hub has them: cached and cache-write tokens are parts of the input, reasoning is a part of the
output. Compatible servers use other names; `core/hub/usage_fields.py` has them all.
"""

from penstock.core.hub.sink import Sink
from penstock.core.hub.usage import Usage
from penstock.core.hub.usage_fields import read_counts

_DETAILS = ("input_tokens_details", "output_tokens_details")
_MOST_TOOLS = 100


def read_usage(raw: dict[str, object], sink: Sink, *, tier: object = None) -> Usage:
    """A usage object as `Usage`. `tier` is the service tier that the response names."""
    counts = read_counts(raw, sink)
    missing = [name for name in _DETAILS if not raw.get(name)]
    missing += ["total_tokens"] if "total" not in counts else []
    if missing and any(counts.values()):
        sink.repair("usage-incomplete", ", ".join(missing))
    return Usage(
        raw=raw,
        tier=tier if isinstance(tier, str) else None,
        tool_requests=_tool_requests(raw.get("server_side_tool_usage_details")),
        **counts,  # type: ignore[arg-type]
    )


def _tool_requests(details: object) -> dict[str, int]:
    """How often xAI executed each of its tools, which it bills per call."""
    counts = list(details.items())[:_MOST_TOOLS] if isinstance(details, dict) else []
    return {name.removesuffix("_calls"): count for name, count in counts if type(count) is int and count > 0}
