"""Usage in the Anthropic Messages dialect.

Anthropic's `input_tokens` excludes what was read from and written into the prompt cache; `Usage.input` includes both.
`message_start` has a preliminary report and `message_delta` a cumulative one, each of which may lack fields. So the raw
reports are merged first (`merge`), and only the merged report is converted (`read_usage`): converting each report on
its own would count cache tokens twice, or lose them.

`iterations` lists what the answer took in several steps. Steps of the types `compaction` and `advisor_message` are
billed but are not in the top-level figures, so where there are iterations their sum is the bill: that of the steps of
the answering model is the usage, and steps of other models are `Usage.others`. Where the requested model declined and
another one went on (a `fallback` block, or a step `fallback_message`), that is the answering model (`Usage.model`); a
step `message` is then one that was declined, of the requested model if it names none.
"""

from collections.abc import Iterable

from penstock.core.hub.sink import Sink
from penstock.core.hub.usage import ModelUsage, Usage
from penstock.core.hub.usage_fields import read_count
from penstock.core.json.getters import integer_of, object_of

INPUT_COUNTS = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
OUTPUT_MEMBERS = frozenset(("output_tokens", "output_tokens_details"))
"""The members about output. Those of `message_start` are preliminary."""
_COUNTS = ("input_tokens", "output_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
# More iterations and members than any provider sends. They limit the memory of one stream.
_MAX_ITERATIONS = 100
_MAX_MEMBERS = 100


def merge(before: dict[str, object], report: dict[str, object]) -> dict[str, object]:
    """Merge two reports of one stream: the later value of each field counts, unless it is null or zero.

    Some providers report zeros first and figures last (z.ai), others zeros last.
    """
    merged = dict(before)
    for name, value in report.items():
        known = merged.get(name)
        if isinstance(value, dict) and isinstance(known, dict):
            merged[name] = merge(known, value)
        elif (value or not known) and (name in merged or len(merged) < _MAX_MEMBERS):
            merged[name] = value
    return merged


def read_usage(raw: dict[str, object], sink: Sink, model: str = "", asked: str = "") -> Usage:
    """A merged report as `Usage`. `model` is the model that answers, `asked` the one that it took over from, if any."""
    steps = _steps(raw)
    others: list[ModelUsage] = []
    took_over = _took_over(steps) or (model if asked else "")
    if steps:
        answering, declined = took_over or model, (asked or model) if took_over else ""
        models = [_model(step, answering, declined) for step in steps]
        others = [ModelUsage(named, _counted([step], sink)) for named, step in zip(models, steps, strict=True) if named]
        usage = _counted([step for named, step in zip(models, steps, strict=True) if not named], sink)
    else:
        usage = _counted([raw], sink)
    tier, requests = raw.get("service_tier"), raw.get("server_tool_use")
    details = raw.get("output_tokens_details")
    return Usage(
        input=usage.input,
        output=usage.output,
        cached=usage.cached,
        cache_write=usage.cache_write,
        cache_write_1h=usage.cache_write_1h,
        reasoning=read_count(object_of(details).get("thinking_tokens"), sink),
        tier=tier if isinstance(tier, str) else None,
        tool_requests={
            name.removesuffix("_requests"): count
            for name, count in (requests.items() if isinstance(requests, dict) else ())
            if isinstance(count, int) and count > 0
        },
        others=tuple(others),
        model=took_over,
        raw=raw,
    )


def write_usage(usage: Usage, *, same_dialect: bool) -> dict[str, object]:
    """The usage in Anthropic's format. A report of a provider of the same dialect is written as it was received.

    Its `input_tokens` excludes the cache, as clients expect, which add the three.
    """
    if same_dialect:
        counts = {name: usage.raw[name] for name in _COUNTS if name in usage.raw}
        mistyped = {name: integer_of(count) or 0 for name, count in counts.items() if type(count) is not int}
        return {"output_tokens": 0} | usage.raw | mistyped
    usage = usage.normal()
    cached, written, hour = usage.cached or 0, usage.cache_write or 0, usage.cache_write_1h or 0
    report: dict[str, object] = {
        "input_tokens": max((usage.input or 0) - cached - written, 0),
        "cache_creation_input_tokens": written,
        "cache_read_input_tokens": cached,
        "output_tokens": usage.output or 0,
    }
    if hour:
        report["cache_creation"] = {
            "ephemeral_5m_input_tokens": max(written - hour, 0),
            "ephemeral_1h_input_tokens": hour,
        }
    if usage.reasoning is not None:
        report["output_tokens_details"] = {"thinking_tokens": usage.reasoning}
    return report


def _steps(raw: dict[str, object]) -> list[dict[str, object]]:
    steps = raw.get("iterations")
    if not isinstance(steps, list):
        return []
    return [step for step in steps[:_MAX_ITERATIONS] if isinstance(step, dict)]


def _took_over(steps: list[dict[str, object]]) -> str:
    """The model that went on in place of the requested one, as the report names it; empty if there is none."""
    fallbacks = [step.get("model") for step in steps if step.get("type") == "fallback_message"]
    return next((named for named in reversed(fallbacks) if isinstance(named, str)), "")


def _model(step: dict[str, object], answering: str, declined: str) -> str:
    """The model of a step if it is not the answering model, else empty."""
    named = step.get("model")
    if not isinstance(named, str):
        named = declined if step.get("type") == "message" else ""
    return "" if named == answering else named


def _counted(reports: Iterable[dict[str, object]], sink: Sink) -> Usage:
    """The sum of the counts of these reports."""
    sums: dict[str, int | None] = dict.fromkeys(_COUNTS)
    hour: int | None = None
    for report in reports:
        for name in _COUNTS:
            count = read_count(report.get(name), sink)
            if count is not None:
                sums[name] = (sums[name] or 0) + count
        kept = read_count(object_of(report.get("cache_creation")).get("ephemeral_1h_input_tokens"), sink)
        if kept is not None:
            hour = (hour or 0) + kept
    fresh, output, cached, written = sums.values()
    return Usage(
        input=None if fresh is None else fresh + (cached or 0) + (written or 0),
        output=output,
        cached=cached,
        cache_write=written,
        cache_write_1h=hour,
    )
