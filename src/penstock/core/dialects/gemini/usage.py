"""Usage in the Gemini dialect.

`promptTokenCount` includes the cached tokens. `candidatesTokenCount` excludes the thoughts, and neither of the two
includes the prompts of tools that the provider executes. The total is the sum of the four. So:

    input = prompt + toolUsePrompt      output = candidates + thoughts      reasoning = thoughts

Nearly every message of a stream has a cumulative report, in which members may be missing that an earlier one had. So
the raw reports are merged first (`merge`), and the merged report is converted (`read_usage`).
"""

from collections.abc import Mapping

from penstock.core.dialects.gemini.members import member, snake_case
from penstock.core.hub.sink import Sink
from penstock.core.hub.usage import Usage
from penstock.core.hub.usage_fields import read_count
from penstock.core.json.getters import integer_of, objects_of

# More members than any provider sends. It limits the memory of one stream.
_MAX_MEMBERS = 100
_TOTAL = "totalTokenCount"
_COUNTS = (
    "promptTokenCount",
    "cachedContentTokenCount",
    "toolUsePromptTokenCount",
    "candidatesTokenCount",
    "thoughtsTokenCount",
    _TOTAL,
)


def merge(before: dict[str, object], report: Mapping[str, object]) -> dict[str, object]:
    """Merge two reports of one stream: the later value of each member counts, unless it is null.

    A total belongs to the counts beside it: that of an earlier report is not kept.
    """
    merged = dict(before)
    if any(member(report, name) is not None for name in _COUNTS):
        merged.pop(_TOTAL, None)
        merged.pop(snake_case(_TOTAL), None)
    for name, value in report.items():
        if value is not None and (name in merged or len(merged) < _MAX_MEMBERS):
            merged[name] = value
    return merged


def read_usage(raw: dict[str, object], sink: Sink) -> Usage:
    """A merged report as `Usage`."""
    prompt, cached, tools, candidates, thoughts, total = (read_count(member(raw, name), sink) for name in _COUNTS)
    tier = member(raw, "serviceTier")
    input, output = _sum(prompt, tools), _sum(candidates, thoughts)
    if total is None and input is not None and output is not None:
        total = input + output  # not that of an earlier report
    return Usage(
        input=input,
        output=output,
        total=total,
        cached=cached,
        reasoning=thoughts,
        audio_input=_of_audio(raw, "promptTokensDetails"),
        audio_output=_of_audio(raw, "candidatesTokensDetails"),
        tier=tier.lower() if isinstance(tier, str) else None,
        raw=raw,
    )


def write_usage(usage: Usage, *, same_dialect: bool) -> dict[str, object]:
    """The usage in Gemini's format. A report of a provider of the same dialect is written as it was received."""
    if same_dialect and usage.raw:
        return usage.raw
    usage = usage.normal()
    output, reasoning = usage.output or 0, usage.reasoning or 0
    report: dict[str, object] = {
        "promptTokenCount": usage.input or 0,
        "candidatesTokenCount": max(output - reasoning, 0),
        "totalTokenCount": (usage.input or 0) + output,
    }
    if usage.cached:
        report["cachedContentTokenCount"] = usage.cached
    if reasoning:
        report["thoughtsTokenCount"] = min(reasoning, output)
    return report


def _sum(first: int | None, second: int | None) -> int | None:
    return None if first is None and second is None else (first or 0) + (second or 0)


def _of_audio(raw: Mapping[str, object], name: str) -> int | None:
    """The tokens of audio in a list of counts by modality; None if there are none."""
    counts = [
        integer_of(member(each, "tokenCount"))
        for each in objects_of(member(raw, name))[:_MAX_MEMBERS]
        if each.get("modality") == "AUDIO"
    ]
    return sum(filter(None, counts)) or None
