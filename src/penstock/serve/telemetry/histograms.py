"""Histograms: the OpenTelemetry GenAI histograms of attempts, accumulated from the start. Used by one thread."""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import TypeAlias

from msgspec import Struct, field

from penstock.gateway.billing.entry import Entry
from penstock.gateway.calls.call import Call
from penstock.serve.telemetry import otel_names as named
from penstock.serve.telemetry.label_values import LabelValues
from penstock.serve.telemetry.spans import Address, Attribute, identity

Attributes: TypeAlias = tuple[tuple[str, Attribute], ...]
# Bounds the memory. Observations of further series are discarded.
_MAX_SERIES = 2_000


class Series(Struct):
    """One series: the count of each bucket, and the sum."""

    counts: list[int] = field(default_factory=lambda: [0] * (len(named.TIME_BOUNDS) + 1))
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
        for attempt, tried in zip(call.attempts, entry.attempts, strict=True):
            named_attributes = identity(entry, tried, self._address)
            answered = tried.outcome == "completed" or tried.first_event_ms is not None
            named_attributes[named.REQUEST_MODEL] = self._label_values.of("model", tried.model, may_add=answered)
            attributes = tuple(named_attributes.items())
            self._add(named.DURATION, attributes, attempt.seconds, named.TIME_BOUNDS)
            if entry.stream and attempt.commit_s is not None:
                self._add(named.FIRST_CHUNK, attributes, attempt.commit_s, named.TIME_BOUNDS)
            if entry.stream and any(attempt.gaps.counts):
                series = self._of(named.PER_CHUNK, attributes)
                series.counts = [a + b for a, b in zip(series.counts, attempt.gaps.counts, strict=True)]
                series.total += attempt.gaps.total_s
            if tried.measure != "void":
                for kind, count in (("input", tried.tokens.input), ("output", tried.tokens.output)):
                    self._add(named.TOKEN_USAGE, (*attributes, (named.TOKEN_TYPE, kind)), count, named.TOKEN_BOUNDS)

    def _add(self, name: str, attributes: Attributes, value: float, bounds: Sequence[float]) -> None:
        series = self._of(name, attributes)
        series.counts[bisect_left(bounds, value)] += 1
        series.total += value

    def _of(self, name: str, attributes: Attributes) -> Series:
        series = self._series.get((name, attributes))
        if series is None:
            series = Series()
            if len(self._series) < _MAX_SERIES:
                self._series[name, attributes] = series
        return series
