"""Exposition: formats metrics as Prometheus text. Imported at the first scrape: prometheus_client is slow to load."""

from collections.abc import Iterable, Iterator, Mapping
from itertools import accumulate
from typing import TypeAlias, cast

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import generate_latest
from prometheus_client.openmetrics import exposition as openmetrics
from prometheus_client.registry import Collector, CollectorRegistry
from prometheus_client.samples import Exemplar
from prometheus_client.utils import floatToGoString

from penstock.serve.telemetry.counters import Counts, Labels
from penstock.serve.telemetry.metric_specs import FAMILIES, MetricSpec

# By the name of a histogram, the label values of a series and the place of a bucket: a trace, its value, and when.
Traces: TypeAlias = Mapping[tuple[str, Labels, int], tuple[str, float, float]]


def expose(counts: Counts, traces: Traces | None = None) -> bytes:
    """Format the body of a scrape response: as the text format of Prometheus, or with exemplars as OpenMetrics."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Collected(counts, traces or {}))
    if traces is None:
        return generate_latest(registry)
    return cast(bytes, openmetrics.generate_latest(registry))  # type: ignore[no-untyped-call]


class _Collected(Collector):
    def __init__(self, counts: Counts, traces: Traces) -> None:
        self._counts = counts
        self._traces = traces

    def collect(self) -> Iterator[Metric]:
        series: dict[str, list[tuple[Labels, list[float]]]] = {}
        for (name, labels), numbers in sorted(self._counts.items()):
            series.setdefault(name, []).append((labels, numbers))
        for family in FAMILIES:
            yield self._metric(family, series.get(family.name, []))

    def _metric(self, family: MetricSpec, series: Iterable[tuple[Labels, list[float]]]) -> Metric:
        if family.kind == "histogram":
            histogram = HistogramMetricFamily(family.name, family.help, labels=family.labels)
            bounds = (*map(floatToGoString, family.bounds), "+Inf")
            for labels, (*buckets, total) in series:
                counted = zip(bounds, accumulate(buckets), strict=True)
                points = [self._point(point, family.name, labels, place) for place, point in enumerate(counted)]
                histogram.add_metric(labels, points, total)
            return histogram
        kind = CounterMetricFamily if family.kind == "counter" else GaugeMetricFamily
        metric = kind(family.name, family.help, labels=family.labels)
        for labels, (value,) in series:
            metric.add_metric(labels, value * family.unit)
        return metric

    def _point(
        self, bucket: tuple[str, float], name: str, labels: Labels, place: int
    ) -> tuple[str, float] | tuple[str, float, Exemplar]:
        found = self._traces.get((name, labels, place))
        return bucket if found is None else (*bucket, Exemplar({"trace_id": found[0]}, found[1], found[2]))
