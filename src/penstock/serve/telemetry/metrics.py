"""Metrics: counts settled calls and reports metrics to Prometheus, for all workers of a gateway.

A call is counted once, when it has been settled; nothing here runs while it streams. Counters and histograms are in
memory that outlives a worker (`counters.py`). Gauges are requested from the live workers (`workers/peers.py`). So a
scrape of any worker reports all workers.
"""

import asyncio
import heapq
import operator
import time
from bisect import bisect_left
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TypeAlias

import msgspec
from msgspec import Struct

from penstock.core.hub.repairs import level_of
from penstock.gateway.config import Config
from penstock.gateway.record.call import Call
from penstock.gateway.record.entry import Entry
from penstock.http.exchange import Exchange
from penstock.serve.loop import Tasks
from penstock.serve.rejections import REASONS
from penstock.serve.responses import respond_json
from penstock.serve.telemetry import metric_specs
from penstock.serve.telemetry.counters import OTHER, Counts, Labels, SharedCounters, read_all, total
from penstock.serve.telemetry.entry_counts import STREAM_ENDS, EntryCounts
from penstock.serve.telemetry.label_values import LabelValues
from penstock.serve.telemetry.metric_specs import BY_NAME, FAMILIES, MAX_SERIES, MetricSpec
from penstock.serve.workers.peers import WorkerPeers

# The state of one worker: by gauge, the label values of each series and its value.
Gauges: TypeAlias = Mapping[MetricSpec, Mapping[Labels, float]]
_GaugeSeries: TypeAlias = dict[str, list[tuple[Labels, float]]]
# An example of what a bucket of a histogram counts: the id of its trace, its value, and when it was counted.
Exemplar: TypeAlias = tuple[str, float, float]
# By the name of the histogram, the label values of the series and the place of the bucket.
Exemplars: TypeAlias = dict[tuple[str, Labels, int], Exemplar]

# The text format 0.0.4, which every version of Prometheus reads; and OpenMetrics, which has exemplars.
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS = "application/openmetrics-text"
OPENMETRICS_TYPE = f"{OPENMETRICS}; version=1.0.0; charset=utf-8"
# Of this many buckets, the first ones that had a trace; further ones have none until the next start.
_MAX_EXEMPLARS = 2_000
_LAG_INTERVAL_S = 1.0
# The label values that are known in advance, of families with one label.
_KNOWN: Mapping[MetricSpec, Collection[str]] = {
    metric_specs.STREAM_END: STREAM_ENDS,
    metric_specs.REJECTED: REASONS,
    metric_specs.NOT_KEPT: ("size", "database"),
    metric_specs.CONTENT_DROPPED: ("memory", "database", "folder"),
    metric_specs.WEBHOOKS: ("delivered", "failed", "dropped"),
}


class _Reported(Struct):
    """What a worker reports to the one that is scraped, besides its counters."""

    gauges: _GaugeSeries
    exemplars: list[tuple[tuple[str, Labels, int], Exemplar]] = []


class Metrics:
    """Counts the calls of one worker and reports the metrics of all workers. Used by the event loop's thread.

    `folder` is the directory that the workers of a gateway share, or None if there is only one worker.
    """

    def __init__(self, gauges: Callable[[], Gauges], folder: Path | None = None) -> None:
        self._loop = asyncio.get_running_loop()
        self._gauges = gauges
        self._folder = folder
        self.counters = SharedCounters(folder)
        self._label_values = LabelValues(folder)
        self._entries = EntryCounts(self.counters, self._label_values)
        self._overhead = self.counters.slot(metric_specs.OVERHEAD, ())
        self.peers: WorkerPeers | None = None
        self.before_scrape: Callable[[], None] | None = None
        """Called before the counters are read: calls that have ended may not be counted yet."""
        self.budgets: Callable[[], Mapping[tuple[str, str, str], float]] = dict
        """The remaining part of each budget, by kind, name and period. Called in another thread."""
        self.key_name: Callable[[str], str] = str
        """The name of a key by its id."""
        self._exemplars: Exemplars = {}
        self._cpu_s = 0.0
        self._scrapes = Tasks()
        self.scraped_s: float | None = None
        """When the last scrape was answered, by the clock of the event loop; None if there was none."""
        self._lag_timer: asyncio.TimerHandle | None = None
        self._lag_due = 0.0
        self._create_known()

    def use(self, config: Config) -> None:
        """Register the routes, providers and models of a configuration as label values."""
        targets = [target for route in config.routes.values() for target in route.targets if not route.is_pattern]
        self._label_values.register("route", config.models())
        self._label_values.register("provider", [target.provider.name for target in targets])
        self._label_values.register("provider", config.providers)
        self._label_values.register(
            "provider_key", [key.name for provider in config.providers.values() for key in provider.keys]
        )
        self._label_values.register("model", [target.model for target in targets])
        self._label_values.register(
            "model", [model for provider in config.providers.values() for model in provider.models]
        )

    def start(self) -> None:
        """Start to measure the lag of the event loop, once a second."""
        self._lag_due = self._loop.time() + _LAG_INTERVAL_S
        self._lag_timer = self._loop.call_at(self._lag_due, self._measure_lag)

    def close(self) -> None:
        """Stop the timer."""
        if self._lag_timer is not None:
            self._lag_timer.cancel()

    # Counting.

    def _create_known(self) -> None:
        """Create the series that are known in advance, at zero: `rate()` misses the first count of a new series."""
        for family in FAMILIES:
            if not family.labels and family.kind in ("counter", "histogram"):
                self.counters.slot(family, ())
        for family, labels in _KNOWN.items():
            for label in sorted(labels):
                self.counters.slot(family, (label,))

    def settled(self, call: Call, entry: Entry) -> None:
        """Count a settled call."""
        progress = call.progress
        kind = self._entries.add(entry, (call.key.name or call.key.id) if call.key is not None else "")
        provider, labels, observe_at = kind.provider, kind.labels, self.counters.observe_at
        observe_at(kind.duration, metric_specs.DURATION, progress.total_s)
        if progress.overhead_s is not None:
            observe_at(self._overhead, metric_specs.OVERHEAD, progress.overhead_s)
        if progress.commit_s is not None:
            observe_at(kind.first_event, metric_specs.FIRST_CHUNK, progress.commit_s)
        if progress.keys_at_limit or (progress.attempts and progress.attempts[-1].provider_key):
            self._count_provider_keys(call, entry)
        for tried in progress.attempts:
            name = provider if len(progress.attempts) == 1 else self._label_values.of("provider", tried.provider)
            for code, count in tried.repairs.items():
                self.counters.add(metric_specs.BY_LEVEL[level_of(code)], (name, code), count)
            if any(tried.gaps.counts):
                self.counters.merge(metric_specs.CHUNK_GAP, (name,), tried.gaps.counts, tried.gaps.total_s)
        for code, count in entry.losses.items():
            self.counters.add(metric_specs.LOSSES, (entry.surface, provider, code), count)
        if call.trace is not None and call.trace.sampled:
            self._example(metric_specs.DURATION, labels, progress.total_s, call.trace.id)
            if progress.commit_s is not None:
                self._example(metric_specs.FIRST_CHUNK, labels, progress.commit_s, call.trace.id)

    def _example(self, family: MetricSpec, labels: Labels, value: float, trace: str) -> None:
        """Keep a trace as the example of its bucket."""
        place = (family.name, labels, bisect_left(family.bounds, value))
        if place in self._exemplars or len(self._exemplars) < _MAX_EXEMPLARS:
            self._exemplars[place] = (trace, value, time.time())

    def _count_provider_keys(self, call: Call, entry: Entry) -> None:
        """Count the use of providers' keys. Their names come from the configuration."""
        for tried, booked in zip(call.progress.attempts, entry.attempts, strict=True):
            if tried.provider_key:
                name = self._label_values.of("provider", tried.provider)
                key = self._label_values.of("provider_key", tried.provider_key)
                self.counters.add(metric_specs.KEY_ATTEMPTS, (name, key, booked.outcome))
        for provider, key, limit in call.progress.keys_at_limit:
            names = self._label_values.of("provider", provider), self._label_values.of("provider_key", key)
            self.counters.add(metric_specs.KEYS_AT_LIMIT, (*names, limit))

    def orphaned(self, entry: Entry) -> None:
        """Count a call that a worker left open when it died, as the ledger has settled it."""
        self._entries.add(entry, self.key_name(entry.key) if entry.key else "")

    def ledger_committed(self, seconds: float) -> None:
        """Count one commit of the ledger, which took so long."""
        self.counters.observe(metric_specs.LEDGER_COMMIT, (), seconds)

    def limits_store(self, store: str) -> None:
        """Create the series of a store through which limits are shared."""
        for to in ("down", "up"):
            self.counters.slot(metric_specs.LIMITS_STORE_CHANGES, (store, to))

    def limits_store_changed(self, store: str, up: bool) -> None:
        """Count a change of the store's availability."""
        self.counters.add(metric_specs.LIMITS_STORE_CHANGES, (store, "up" if up else "down"))

    def count(self, family: MetricSpec, label: str, number: int = 1) -> None:
        """Add to the counter of a family with one label."""
        self.counters.add(family, (label,), number)

    def by_target(self, values: Mapping[tuple[str, str], bool]) -> dict[Labels, float]:
        """Whether something is true of targets, by the label values of their provider and model."""
        of, found = self._label_values.of, dict[Labels, float]()
        for (provider, model), value in values.items():
            labels = of("provider", provider, may_add=False), of("model", model, may_add=False)
            found[labels] = max(float(value), found.get(labels, 0.0))
        return found

    def dropped(self, spans: int) -> None:
        """Count spans that were not exported."""
        self.counters.add(metric_specs.DROPPED, (), spans)

    def _measure_lag(self) -> None:
        now = self._loop.time()
        self.counters.observe(metric_specs.LOOP_LAG, (), max(0.0, now - self._lag_due))
        self._lag_due = now + _LAG_INTERVAL_S
        self._lag_timer = self._loop.call_at(self._lag_due, self._measure_lag)
        self._count_cpu()

    def _count_cpu(self) -> None:
        """Count the CPU time of this process. It is a counter in shared memory: a dead worker's time stays counted."""
        before, self._cpu_s = self._cpu_s, time.process_time()
        self.counters.add(metric_specs.CPU, (self.counters.worker,), self._cpu_s - before)

    # Reporting.

    async def text(self, *, exemplars: bool = False) -> bytes:
        """The metrics of all workers in the text format of Prometheus, or with exemplars in OpenMetrics."""
        workers = [await self._reported()]
        if self.peers is not None:
            for answer in await self.peers.request_all("GET", "/gauges"):
                with suppress(msgspec.MsgspecError):  # not from a worker of this version
                    workers.append(msgspec.json.decode(answer, type=_Reported))
        return await self._loop.run_in_executor(None, self._text, self.counters.counts(), workers, exemplars)

    def handle(self, exchange: Exchange) -> None:
        """Respond to a scrape."""
        self._scrapes.start(self._answer(exchange))

    def handle_gauges(self, exchange: Exchange) -> None:
        """Respond to another worker with this worker's gauges. It reads the counters from the shared folder."""
        self._scrapes.start(self._answer_gauges(exchange))

    async def _answer_gauges(self, exchange: Exchange) -> None:
        respond_json(exchange, 200, await self._reported())

    async def _answer(self, exchange: Exchange) -> None:
        openmetrics = OPENMETRICS in exchange.request.headers.get("accept", "")
        try:
            status, text = 200, await self.text(exemplars=openmetrics)
        except Exception as error:  # noqa: BLE001 - the scrape must get a response
            status, text = 500, f"the metrics cannot be collected: {type(error).__name__}\n".encode()
            openmetrics = False
        self.scraped_s = self._loop.time()
        exchange.respond(status, {"content-type": OPENMETRICS_TYPE if openmetrics else CONTENT_TYPE}, text)

    async def _reported(self) -> _Reported:
        budgets, own = await self._loop.run_in_executor(None, self._slow_gauges)
        if self.before_scrape is not None:
            self.before_scrape()  # the worker that requests the gauges reads the counters next
        self._count_cpu()
        gauges = {**self._gauges(), **own, metric_specs.BUDGET: budgets}
        series = {family.name: list(series.items()) for family, series in gauges.items()}
        return _Reported(series, list(self._exemplars.items()))

    def _slow_gauges(self) -> tuple[dict[Labels, float], Gauges]:
        """The budgets, and what the process uses. Runs in a thread."""
        from penstock.serve.telemetry.process_gauges import process_gauges  # noqa: PLC0415 - needed only here

        return bounded(self.budgets()), process_gauges(self.counters.worker)

    def _text(self, own: Counts, workers: list[_Reported], exemplars: bool) -> bytes:
        from penstock.serve.telemetry.exposition import expose  # noqa: PLC0415 - heavy, and needed only here

        counts = own if self._folder is None else total(read_all(self._folder))
        latest: Exemplars = {}
        for place, exemplar in sorted((each for worker in workers for each in worker.exemplars), key=_counted_at):
            latest[place] = exemplar
        return expose(counts | _merge_gauges([each.gauges for each in workers]), latest if exemplars else None)


def _counted_at(given: tuple[object, Exemplar]) -> float:
    return given[1][2]


_MERGED: Mapping[str, Callable[[float, float], float]] = {"sum": operator.add, "least": min, "most": max}


def _merge_gauges(workers: list[_GaugeSeries]) -> Counts:
    """The gauges of all workers together: the sum, the minimum or the maximum, by the kind of the gauge."""
    gauges: Counts = {}
    for worker in workers:
        for name, series in worker.items():
            for labels, value in series:
                before = gauges.get((name, labels))
                if before is None:
                    gauges[name, labels] = [value]
                else:
                    before[0] = _MERGED[BY_NAME[name].kind](before[0], value)
    return gauges


def bounded(ratios: Mapping[tuple[str, str, str], float]) -> dict[Labels, float]:
    """One value per budget, for those of which least is left. The minimum of all others is reported as `other`."""
    # Not sorted: the interpreter's lock (GIL) is not released while ten thousand are.
    least = heapq.nsmallest(MAX_SERIES, ratios, key=lambda labels: (ratios[labels], labels))
    result: dict[Labels, float] = {labels: ratios[labels] for labels in least[: MAX_SERIES - 1]}
    if others := least[MAX_SERIES - 1 :]:
        result[OTHER, OTHER, OTHER] = ratios[others[0]]
    return result
