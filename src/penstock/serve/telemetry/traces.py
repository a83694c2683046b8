"""Traces: hands settled calls to a thread that exports them to a collector. A slow or dead collector delays no call.

The event loop only puts a call into a bounded queue. Spans are dropped and counted if the queue is full, if the call
cannot be converted, or if the collector does not accept them; the thread continues in each case.
"""

import asyncio
import queue
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlsplit

from penstock.errors import ConfigError, Problem
from penstock.gateway.config import Config, Provider, TelemetrySettings
from penstock.gateway.content.content_mask import ContentMask
from penstock.gateway.record.call import Call
from penstock.gateway.record.entry import Entry
from penstock.installation import install_command
from penstock.serve.telemetry.histograms import Histograms
from penstock.serve.telemetry.spans import TraceSpan, spans_of

if TYPE_CHECKING:
    from penstock.serve.telemetry.collector import Collector

MAX_QUEUED = 2_048
_MAX_BATCH = 256
_POLL_S = 0.5
# How long the thread waits for more calls after the first one of a batch, to send fewer requests.
_BATCH_S = 0.2
# Cool-down after a failed export. Calls that end meanwhile are dropped without being converted.
_RETRY_S = 2.0
_CLOSE_S = 1.0
_PORTS = {"http": 80, "https": 443}


def require_exporter() -> None:
    """Raise `ConfigError` if spans cannot be exported because the extra is missing or broken. Slow: imports the SDK."""
    try:
        import_module("penstock.serve.telemetry.collector")
    except ImportError as error:
        message = f"needs Python packages that are not installed: {install_command('otel')}"
        raise ConfigError((Problem("", None, "telemetry.otlp", message),)) from error


class _CallToExport(NamedTuple):
    call: Call
    entry: Entry
    ended_ns: int


class Traces:
    """Exports the calls of one process. Calls `on_drop` in the event loop with the number of dropped spans."""

    def __init__(
        self, settings: TelemetrySettings, on_drop: Callable[[int], None], warn: Callable[[str], None]
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self.settings = settings
        self._on_drop = on_drop
        self._warn = warn
        self._providers: Mapping[str, Provider] = {}
        self._mask = ContentMask((), ())
        self._queue: queue.Queue[_CallToExport | None] = queue.Queue(MAX_QUEUED)
        self._closing = threading.Event()
        self._collector_up = True
        self._reported_errors: set[str] = set()
        self._collector: Collector | None = None
        self._thread = threading.Thread(target=self._run, daemon=True, name="penstock-telemetry")
        self._thread.start()

    def use(self, config: Config) -> None:
        """Apply a configuration to calls that are exported from now on."""
        self._providers = config.providers
        self._mask = ContentMask((), config.secrets())

    def settled(self, call: Call, entry: Entry) -> None:
        """Queue a settled call for export."""
        try:
            self._queue.put_nowait(_CallToExport(call, entry, time.time_ns()))
        except queue.Full:
            self._on_drop(1 + len(entry.attempts))

    def close(self) -> None:
        """Export the queued calls, for at most a second."""
        self._closing.set()
        with suppress(queue.Full):
            self._queue.put_nowait(None)
        self._thread.join(_CLOSE_S)
        if self._thread.is_alive() and self._collector is not None:
            self._collector.close()

    # Runs in the thread.

    def _run(self) -> None:
        histograms = Histograms(self._address)
        due = time.monotonic() + self.settings.interval_s
        retry_at = 0.0  # the end of the cool-down
        while True:
            batch = self._next_batch()
            cooling = time.monotonic() < retry_at
            spans: list[TraceSpan] = []
            dropped = 0
            for settled in batch:
                call, entry, _ = settled
                sampled = call.trace is not None and call.trace.sampled
                try:
                    histograms.settled(call, entry)
                    own = spans_of(*settled, self._address, self._mask) if sampled and not cooling else None
                except Exception as error:  # noqa: BLE001 - only this call's spans are lost
                    self._report(error)
                    own = None
                if own is not None:
                    spans += own
                elif sampled:
                    dropped += 1 + len(entry.attempts)
            self._drop(dropped)
            if spans:
                self._on_export(len(spans), accepted=self._send(lambda collector: collector.send(spans)))  # noqa: B023 - at once
                retry_at = 0.0 if self._collector_up else time.monotonic() + _RETRY_S
            if time.monotonic() >= due or (self._closing.is_set() and self._queue.empty()):
                self._on_export(0, accepted=self._send(lambda collector: collector.send_histograms(histograms)))
                due = time.monotonic() + self.settings.interval_s
            if self._closing.is_set() and (self._queue.empty() or not self._collector_up):
                break
        if self._collector is not None:
            self._collector.close()

    def _send(self, send: "Callable[[Collector], bool]") -> bool:
        """Export something. Returns whether the collector accepted it. Never raises, so that the thread continues."""
        try:
            if self._collector is None:
                from penstock.serve.telemetry.collector import Collector  # noqa: PLC0415 - heavy, and an extra

                self._collector = Collector(self.settings.otlp)
            return send(self._collector)
        except Exception as error:  # noqa: BLE001 - logged and counted
            self._report(error)
            return False

    def _report(self, error: Exception) -> None:
        """Log the type of an error, once per type. Its message is not logged: it may contain content."""
        kind = type(error).__name__
        if kind not in self._reported_errors:
            self._reported_errors.add(kind)
            self._warn(f"the telemetry of a call was dropped: {kind}")

    def _next_batch(self) -> list[_CallToExport]:
        """Wait for a call and then shortly for more. Returns them, or an empty list after `_POLL_S`."""
        batch: list[_CallToExport] = []
        try:
            first = self._queue.get(timeout=_POLL_S)
            if self._queue.qsize() < _MAX_BATCH:
                self._closing.wait(_BATCH_S)
            while True:
                if first is not None:
                    batch.append(first)
                if len(batch) >= _MAX_BATCH:
                    return batch
                first = self._queue.get_nowait()
        except queue.Empty:
            return batch

    def _on_export(self, spans: int, *, accepted: bool) -> None:
        if not accepted:
            self._drop(spans)
        if accepted != self._collector_up:
            self._collector_up = accepted
            self._warn(
                "the trace collector accepts spans again"
                if accepted
                else "the trace collector does not accept spans: they are dropped and counted"
            )

    def _drop(self, spans: int) -> None:
        if spans:
            with suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self._on_drop, spans)

    def _address(self, name: str) -> tuple[str, int]:
        provider = self._providers.get(name)
        if provider is None or not provider.base_url:
            return "", 0
        parts = urlsplit(provider.base_url)
        return parts.hostname or "", parts.port or _PORTS.get(parts.scheme, 0)
