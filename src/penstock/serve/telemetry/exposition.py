"""Exposition: formats metrics as Prometheus text. Imported at the first scrape: prometheus_client is slow to load."""

from collections.abc import Iterable, Iterator
from itertools import accumulate

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import generate_latest
from prometheus_client.registry import Collector, CollectorRegistry

from penstock.serve.telemetry.counters import Counts, Labels
from penstock.serve.telemetry.metric_specs import FAMILIES, MetricSpec


def expose(counts: Counts) -> bytes:
    """Format the body of a scrape response."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Collected(counts))
    return generate_latest(registry)


class _Collected(Collector):
    def __init__(self, counts: Counts) -> None:
        self._counts = counts

    def collect(self) -> Iterator[Metric]:
        series: dict[str, list[tuple[Labels, list[float]]]] = {}
        for (name, labels), numbers in sorted(self._counts.items()):
            series.setdefault(name, []).append((labels, numbers))
        for family in FAMILIES:
            yield _metric(family, series.get(family.name, []))


def _metric(family: MetricSpec, series: Iterable[tuple[Labels, list[float]]]) -> Metric:
    if family.kind == "histogram":
        histogram = HistogramMetricFamily(family.name, family.help, labels=family.labels)
        for labels, (*buckets, total) in series:
            bounds = (*(f"{bound:g}" for bound in family.bounds), "+Inf")
            histogram.add_metric(labels, list(zip(bounds, accumulate(buckets), strict=True)), total)
        return histogram
    kind = CounterMetricFamily if family.kind == "counter" else GaugeMetricFamily
    metric = kind(family.name, family.help, labels=family.labels)
    for labels, (value,) in series:
        metric.add_metric(labels, value * family.unit)
    return metric
