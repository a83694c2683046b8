"""A usage in a provider's own fields: its figures under the provider's names, and the rest as it was recorded."""

from msgspec import structs

from penstock.core.usage import Usage
from penstock.replay.styles.style import StyleField, UsageStyle

# Where each count usually stands. Rarer spellings are written as they were recorded, or where a row asks for a count.
_COUNTS: dict[tuple[str, ...], str] = {
    ("prompt_tokens",): "input",
    ("completion_tokens",): "output",
    ("total_tokens",): "total",
    ("prompt_tokens_details", "cached_tokens"): "cached",
    ("prompt_tokens_details", "cache_write_tokens"): "cache_write",
    ("cache_creation", "ephemeral_1h_input_tokens"): "cache_write_1h",
    ("completion_tokens_details", "reasoning_tokens"): "reasoning",
    ("prompt_tokens_details", "audio_tokens"): "audio_input",
    ("completion_tokens_details", "audio_tokens"): "audio_output",
}


def usage_in(usage: Usage, manner: UsageStyle, *, zeros: bool = False) -> dict[str, object]:
    """The usage as somebody with that manner writes it; with `zeros`, as a placeholder without figures."""
    if zeros:
        return _object(manner.fields, (), {}, {})
    counted = _counted(usage, apart=manner.reasoning_apart)
    counts = {name: count for name, count in structs.asdict(counted).items() if isinstance(count, int)}
    counts["uncached"] = counts.get("input", 0) - counts.get("cached", 0)
    return _object(manner.fields, (), counts, usage.raw)


def _counted(usage: Usage, *, apart: bool) -> Usage:
    """The usage with its reasoning counted apart from the output, or as a part of it."""
    usage = usage.with_total()
    input, output, total, reasoning = usage.input, usage.output, usage.total, usage.reasoning
    if input is None or output is None or total is None or not reasoning:
        return usage
    if total == input + output + reasoning and not apart:
        return structs.replace(usage, output=output + reasoning)
    if total == input + output and apart and output >= reasoning:
        return structs.replace(usage, output=output - reasoning)
    return usage


def _object(
    rows: tuple[StyleField, ...], path: tuple[str, ...], counts: dict[str, int], raw: object
) -> dict[str, object]:
    recorded = raw if isinstance(raw, dict) else {}
    written: dict[str, object] = {}
    for row in rows:
        here = (*path, row.name)
        if row.fields:
            if not row.optional or row.name in recorded or _says_anything(row.fields, here, counts):
                written[row.name] = _object(row.fields, here, counts, recorded.get(row.name))
            continue
        count = row.of or _COUNTS.get(here, "")
        if count in counts:
            written[row.name] = counts[count]
        elif row.name in recorded:
            written[row.name] = recorded[row.name]
        elif not row.optional:
            written[row.name] = None if row.null else 0 if row.value is None else row.value
    return written


def _says_anything(rows: tuple[StyleField, ...], path: tuple[str, ...], counts: dict[str, int]) -> bool:
    return any(counts.get(row.of or _COUNTS.get((*path, row.name), "")) for row in rows)
