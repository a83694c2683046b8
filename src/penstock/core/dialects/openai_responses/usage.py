"""Usage in the OpenAI Responses dialect.

The counts are as the hub has them: cached and cache-write tokens are parts of the input, reasoning is a part of the
output. Compatible servers use other names; `core/usage_fields.py` has them all.
"""

from penstock.core.json_getters import integer_of, shown
from penstock.core.sink import Sink
from penstock.core.usage import Usage
from penstock.core.usage_fields import SPELLINGS

# Beyond this a figure is not worth keeping as a number; the raw object has it.
_MAX_COUNT = 10**1000
_DETAILS = ("input_tokens_details", "output_tokens_details")
_MOST_TOOLS = 100


def read_usage(raw: dict[str, object], sink: Sink, *, tier: object = None) -> Usage:
    """A usage object as `Usage`. `tier` is the service tier that the response names."""
    objects = {name: value for name, value in raw.items() if isinstance(value, dict)} | {"": raw}
    counts: dict[str, int | None] = {}
    for field, places in SPELLINGS.items():
        found = [_count(objects[name][key], sink) for name, key in places if name in objects and key in objects[name]]
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


def _tool_requests(details: object) -> dict[str, int]:
    """How often xAI executed each of its tools, which it bills per call."""
    counts = list(details.items())[:_MOST_TOOLS] if isinstance(details, dict) else []
    return {name.removesuffix("_calls"): count for name, count in counts if type(count) is int and count > 0}


def _count(value: object, sink: Sink) -> int | None:
    if value is None or (type(value) is int and abs(value) < _MAX_COUNT):
        return value
    if type(value) is int:
        sink.repair("usage-absurd", shown(value))
        return None
    sink.repair("usage-mistyped", shown(value))
    return integer_of(value)
