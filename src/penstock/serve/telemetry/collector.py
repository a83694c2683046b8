"""Collector: exports spans and histograms to an OpenTelemetry collector by OTLP over HTTP. Needs the extra `otel`.

The export thread imports this module, because the OpenTelemetry SDK is slow to load. The methods return False when the
collector refuses the data or cannot be reached.
"""

import logging
import os
import secrets
import time
from collections.abc import Sequence
from typing import cast

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Histogram,
    HistogramDataPoint,
    Metric,
    MetricExportResult,
    MetricsData,
    ResourceMetrics,
    ScopeMetrics,
)
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExportResult
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, SpanKind, Status, StatusCode, TraceFlags

from penstock.installation import version
from penstock.serve.telemetry.histograms import HISTOGRAMS, Histograms
from penstock.serve.telemetry.spans import TraceSpan

_KINDS = {"server": SpanKind.SERVER, "client": SpanKind.CLIENT}
_TIMEOUT_S = 5.0


class Collector:
    """The client of one collector. `url` is the base URL; the paths `/v1/traces` and `/v1/metrics` are appended."""

    def __init__(self, url: str) -> None:
        quiet = logging.getLogger("opentelemetry")
        quiet.addHandler(logging.NullHandler())
        quiet.propagate = False  # `Traces` counts and logs failed exports
        base = url.rstrip("/")
        self._spans = OTLPSpanExporter(endpoint=f"{base}/v1/traces", timeout=_TIMEOUT_S)
        self._metrics = OTLPMetricExporter(endpoint=f"{base}/v1/metrics", timeout=_TIMEOUT_S)
        self._resource = Resource.create(
            {
                "service.name": os.environ.get("OTEL_SERVICE_NAME", "penstock"),
                "service.version": version() or "",
                "service.instance.id": secrets.token_hex(8),
            }
        )
        self._scope = InstrumentationScope("penstock", version() or "")
        self._began_ns = time.time_ns()

    def send(self, spans: Sequence[TraceSpan]) -> bool:
        """Export spans. Returns whether the collector accepted them."""
        return self._spans.export([self._span(span) for span in spans]) is SpanExportResult.SUCCESS

    def send_histograms(self, histograms: Histograms) -> bool:
        """Export the histograms, cumulative since the start. Returns whether the collector accepted them."""
        points: dict[str, list[HistogramDataPoint]] = {}
        now_ns = time.time_ns()
        for name, attributes, series in histograms:
            point = HistogramDataPoint(
                attributes=dict(attributes),
                start_time_unix_nano=self._began_ns,
                time_unix_nano=now_ns,
                count=sum(series.counts),
                sum=series.total,
                bucket_counts=series.counts,
                explicit_bounds=HISTOGRAMS[name][2],
                min=cast(float, None),  # optional, and not known
                max=cast(float, None),
            )
            points.setdefault(name, []).append(point)
        if not points:
            return True
        metrics = [
            Metric(name, description, unit, Histogram(points[name], AggregationTemporality.CUMULATIVE))
            for name, (unit, description, _) in HISTOGRAMS.items()
            if name in points
        ]
        scoped = ScopeMetrics(self._scope, metrics, "")
        data = MetricsData([ResourceMetrics(self._resource, [scoped], "")])
        return self._metrics.export(data) is MetricExportResult.SUCCESS

    def close(self) -> None:
        """Abort exports in progress and accept no more."""
        self._spans.shutdown()  # type: ignore[no-untyped-call]
        self._metrics.shutdown()

    def _span(self, span: TraceSpan) -> ReadableSpan:
        flags = TraceFlags(TraceFlags.SAMPLED)
        trace = int(span.trace, 16)
        context = SpanContext(trace, int(span.id, 16), is_remote=False, trace_flags=flags)
        remote = span.kind == "server"
        parent = SpanContext(trace, int(span.parent, 16), is_remote=remote, trace_flags=flags) if span.parent else None
        return ReadableSpan(
            name=span.name,
            context=context,
            parent=parent,
            resource=self._resource,
            attributes=span.attributes,
            kind=_KINDS[span.kind],
            instrumentation_scope=self._scope,
            status=Status(StatusCode.ERROR if span.failed else StatusCode.UNSET),
            start_time=span.began_ns,
            end_time=span.ended_ns,
        )
