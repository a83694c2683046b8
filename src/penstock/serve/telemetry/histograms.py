"""Histograms: the OpenTelemetry GenAI histograms of attempts, accumulated from the start. Used by one thread."""

from bisect import bisect_left
from collections.abc import Iterator
from typing import TypeAlias

from msgspec import Struct, field

from penstock.gateway.record.call import Call
from penstock.gateway.record.entry import Entry
from penstock.serve.telemetry.label_values import LabelValues
from penstock.serve.telemetry.spans import Address, Attribute, identity

Attributes: TypeAlias = tuple[tuple[str, Attribute], ...]
# In seconds, and in tokens.
TIME_BOUNDS = tuple(round(0.01 * 2**power, 2) for power in range(14))
TOKEN_BOUNDS = tuple(float(4**power) for power in range(14))
DURATION = "gen_ai.client.operation.duration"
FIRST_CHUNK = "gen_ai.client.operation.time_to_first_chunk"
PER_CHUNK = "gen_ai.client.operation.time_per_output_chunk"
TOKEN_USAGE = "gen_ai.client.token.usage"
# The unit, the description and the bounds of each.
HISTOGRAMS = {
    DURATION: ("s", "Duration of an attempt at a provider.", TIME_BOUNDS),
    FIRST_CHUNK: ("s", "Time from the start of an attempt to the first content of its stream.", TIME_BOUNDS),
    PER_CHUNK: ("s", "Time between two chunks of a stream.", TIME_BOUNDS),
    TOKEN_USAGE: ("{token}", "Tokens used by an attempt.", TOKEN_BOUNDS),
}
# Bounds the memory. Observations of further series are discarded.
_MAX_SERIES = 2_000


class Series(Struct):
    """One series: the count of each bucket, and the sum."""

    counts: list[int] = field(default_factory=lambda: [0] * (len(TIME_BOUNDS) + 1))
    total: float = 0.0


class Histograms:
    """The four histograms of the GenAI conventions."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._label_values = LabelValues()
        self._series: dict[tuple[str, Attributes], Series] = {}

    def __iter__(self) -> Iterator[tuple[str, Attributes, Series]]:
        for (name, attributes), series in self._series.items():
            yield name, attributes, series

    def settled(self, call: Call, entry: Entry) -> None:
        """Count the attempts of a settled call."""
        for attempt, tried in zip(call.progress.attempts, entry.attempts, strict=True):
            named_attributes = identity(entry, tried, self._address)
            answered = tried.outcome == "completed" or tried.first_event_ms is not None
            named_attributes["gen_ai.request.model"] = self._label_values.of("model", tried.model, may_add=answered)
            attributes = tuple(named_attributes.items())
            self._add(DURATION, attributes, attempt.seconds)
            if entry.stream and attempt.commit_s is not None:
                self._add(FIRST_CHUNK, attributes, attempt.commit_s)
            if entry.stream and any(attempt.gaps.counts):
                series = self._of(PER_CHUNK, attributes)
                series.counts = [a + b for a, b in zip(series.counts, attempt.gaps.counts, strict=True)]
                series.total += attempt.gaps.total_s
            if tried.measure != "void":
                for kind, count in (("input", tried.tokens.input), ("output", tried.tokens.output)):
                    self._add(TOKEN_USAGE, (*attributes, ("gen_ai.token.type", kind)), count)

    def _add(self, name: str, attributes: Attributes, value: float) -> None:
        series = self._of(name, attributes)
        series.counts[bisect_left(HISTOGRAMS[name][2], value)] += 1
        series.total += value

    def _of(self, name: str, attributes: Attributes) -> Series:
        series = self._series.get((name, attributes))
        if series is None:
            series = Series()
            if len(self._series) < _MAX_SERIES:
                self._series[name, attributes] = series
        return series
