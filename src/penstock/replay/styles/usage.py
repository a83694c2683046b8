"""Writes a usage in a provider's own fields: counts under the provider's names, other fields as recorded."""

from msgspec import structs

from penstock.core.hub.usage import Usage
from penstock.replay.styles.style import StyleField, UsageStyle

# The usual path of each count. Rarer names are written as they were recorded, or where a row names a count with `of`.
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


def usage_fields(usage: Usage, style: UsageStyle, *, zeros: bool = False) -> dict[str, object]:
    """The usage as a provider with that style writes it; with `zeros`, a placeholder with zero counts."""
    if zeros:
        return _object(style.fields, (), {}, {})
    counted = _counted(usage, separate=style.reasoning_apart)
    counts = {name: count for name, count in structs.asdict(counted).items() if isinstance(count, int)}
    counts["uncached"] = counts.get("input", 0) - counts.get("cached", 0)
    return _object(style.fields, (), counts, usage.raw)


def _counted(usage: Usage, *, separate: bool) -> Usage:
    """The usage with its reasoning counted separately from the output, or as a part of it."""
    usage = usage.with_total()
    input, output, total, reasoning = usage.input, usage.output, usage.total, usage.reasoning
    if input is None or output is None or total is None or not reasoning:
        return usage
    if total == input + output + reasoning and not separate:
        return structs.replace(usage, output=output + reasoning)
    if total == input + output and separate and output >= reasoning:
        return structs.replace(usage, output=output - reasoning)
    return usage


def _object(
    rows: tuple[StyleField, ...], path: tuple[str, ...], counts: dict[str, int], raw: object
) -> dict[str, object]:
    recorded = raw if isinstance(raw, dict) else {}
    written: dict[str, object] = {}
    for row in rows:
        field_path = (*path, row.name)
        if row.fields:
            if not row.optional or row.name in recorded or _has_counts(row.fields, field_path, counts):
                written[row.name] = _object(row.fields, field_path, counts, recorded.get(row.name))
            continue
        count = row.of or _COUNTS.get(field_path, "")
        if count in counts:
            written[row.name] = counts[count]
        elif row.name in recorded:
            written[row.name] = recorded[row.name]
        elif not row.optional:
            written[row.name] = None if row.null else 0 if row.value is None else row.value
    return written


def _has_counts(rows: tuple[StyleField, ...], path: tuple[str, ...], counts: dict[str, int]) -> bool:
    return any(counts.get(row.of or _COUNTS.get((*path, row.name), "")) for row in rows)
