"""Traces: hands settled calls to a thread that tells a collector of them. One that is slow or dead costs nothing.

A call is put into a bounded queue, and that is all that the event loop does. What finds the queue full, what cannot be
put into spans, and what the collector does not take, is dropped and counted; the thread goes on.
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
from penstock.gateway.billing.entry import Entry
from penstock.gateway.calls.call import Call
from penstock.gateway.config import Provider, TelemetrySettings
from penstock.serve.telemetry.histograms import Histograms
from penstock.serve.telemetry.spans import TraceSpan, spans_of

if TYPE_CHECKING:
    from penstock.serve.telemetry.collector import Collector

INSTALL = "pip install 'penstock[otel]'"
MAX_WAITING = 2_048
_MOST_AT_ONCE = 256
_LOOK_S = 0.5
# What comes within so long of a call is sent with it, so that there are fewer messages.
_TOGETHER_S = 0.2
# A collector that has taken nothing is left alone for so long. What comes meanwhile is not even put into words.
_AGAIN_S = 2.0
_CLOSE_S = 1.0
_PORTS = {"http": 80, "https": 443}


def require_exporter() -> None:
    """Raise `ConfigError` where spans cannot be sent, because the extra is missing or broken. The import is slow."""
    try:
        import_module("penstock.serve.telemetry.collector")
    except ImportError as error:
        raise ConfigError((Problem("", None, "telemetry.otlp", f"needs an extra: {INSTALL}"),)) from error


class _CallToExport(NamedTuple):
    call: Call
    entry: Entry
    ended_ns: int


class Traces:
    """Tells a collector of one process's calls. `on_drop` is told in the event loop how many spans were lost."""

    def __init__(self, settings: TelemetrySettings, on_drop: Callable[[int], None], say: Callable[[str], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self.settings = settings
        self._on_drop = on_drop
        self._say = say
        self.providers: Mapping[str, Provider] = {}
        self._waiting: queue.Queue[_CallToExport | None] = queue.Queue(MAX_WAITING)
        self._ending = threading.Event()
        self._well = True
        self._complained: set[str] = set()
        self._collector: Collector | None = None
        self._thread = threading.Thread(target=self._run, daemon=True, name="penstock-telemetry")
        self._thread.start()

    def settled(self, call: Call, entry: Entry) -> None:
        """A call is over."""
        try:
            self._waiting.put_nowait(_CallToExport(call, entry, time.time_ns()))
        except queue.Full:
            self._on_drop(1 + len(entry.attempts))

    def close(self) -> None:
        """Tell what is still to be told, if the collector takes it within a second."""
        self._ending.set()
        with suppress(queue.Full):
            self._waiting.put_nowait(None)
        self._thread.join(_CLOSE_S)
        if self._thread.is_alive() and self._collector is not None:
            self._collector.close()

    # What runs in the thread.

    def _run(self) -> None:
        histograms = Histograms(self._address)
        due = time.monotonic() + self.settings.interval_s
        again = 0.0  # when to try a collector again that takes nothing
        while True:
            gathered = self._gather()
            resting = time.monotonic() < again
            spans: list[TraceSpan] = []
            lost = 0
            for settled in gathered:
                call, entry, _ = settled
                sampled = call.trace is not None and call.trace.sampled
                try:
                    histograms.settled(call, entry)
                    told = spans_of(*settled, self._address) if sampled and not resting else None
                except Exception as error:  # noqa: BLE001 - it costs this call's spans, and no others
                    self._complain(error)
                    told = None
                if told is not None:
                    spans += told
                elif sampled:
                    lost += 1 + len(entry.attempts)
            self._drop(lost)
            if spans:
                self._took(len(spans), taken=self._send(lambda collector: collector.send(spans)))  # noqa: B023 - at once
                again = 0.0 if self._well else time.monotonic() + _AGAIN_S
            if time.monotonic() >= due or (self._ending.is_set() and self._waiting.empty()):
                self._took(0, taken=self._send(lambda collector: collector.send_histograms(histograms)))
                due = time.monotonic() + self.settings.interval_s
            if self._ending.is_set() and (self._waiting.empty() or not self._well):
                break
        if self._collector is not None:
            self._collector.close()

    def _send(self, send: "Callable[[Collector], bool]") -> bool:
        """Whether the collector took it. Nothing that goes wrong ends this thread."""
        try:
            if self._collector is None:
                from penstock.serve.telemetry.collector import Collector  # noqa: PLC0415 - heavy, and an extra

                self._collector = Collector(self.settings.otlp)
            return send(self._collector)
        except Exception as error:  # noqa: BLE001 - it is told, and counted
            self._complain(error)
            return False

    def _complain(self, error: Exception) -> None:
        """Say what went wrong, once for each kind of error. What it says itself may be a client's words."""
        kind = type(error).__name__
        if kind not in self._complained:
            self._complained.add(kind)
            self._say(f"telemetry of a call is dropped: {kind}")

    def _gather(self) -> list[_CallToExport]:
        """Wait for a call, and a moment for more; then take those that wait with it."""
        found: list[_CallToExport] = []
        try:
            first = self._waiting.get(timeout=_LOOK_S)
            if self._waiting.qsize() < _MOST_AT_ONCE:
                self._ending.wait(_TOGETHER_S)
            while True:
                if first is not None:
                    found.append(first)
                if len(found) >= _MOST_AT_ONCE:
                    return found
                first = self._waiting.get_nowait()
        except queue.Empty:
            return found

    def _took(self, spans: int, *, taken: bool) -> None:
        if not taken:
            self._drop(spans)
        if taken != self._well:
            self._well = taken
            self._say(
                "the collector of traces takes them again"
                if taken
                else "the collector of traces takes none: they are dropped, and counted"
            )

    def _drop(self, spans: int) -> None:
        if spans:
            with suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self._on_drop, spans)

    def _address(self, name: str) -> tuple[str, int]:
        provider = self.providers.get(name)
        if provider is None or not provider.base_url:
            return "", 0
        parts = urlsplit(provider.base_url)
        return parts.hostname or "", parts.port or _PORTS.get(parts.scheme, 0)
