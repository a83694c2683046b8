"""Metrics: counts settled calls and reports metrics to Prometheus, for all workers of a gateway.

A call is counted once, when it has been settled; nothing here runs while it streams. Counters and histograms are in
memory that outlives a worker (`counters.py`). Gauges are requested from the live workers (`workers/peers.py`). So a
scrape of any worker reports all workers.
"""

import asyncio
import heapq
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TypeAlias

import msgspec

from penstock.core.hub.repairs import level_of
from penstock.gateway.config import Config
from penstock.gateway.record.call import Call
from penstock.gateway.record.entry import Entry
from penstock.http.exchange import Exchange
from penstock.serve.loop import Tasks
from penstock.serve.rejections import REASONS
from penstock.serve.responses import respond_json
from penstock.serve.telemetry import metric_specs
from penstock.serve.telemetry.counters import MAX_SERIES, OTHER, Counts, Labels, SharedCounters, read_all, total
from penstock.serve.telemetry.label_values import LabelValues
from penstock.serve.telemetry.metric_specs import BY_NAME, FAMILIES, MetricSpec
from penstock.serve.workers.peers import WorkerPeers

# The state of one worker: by gauge, the label values of each series and its value.
Gauges: TypeAlias = Mapping[MetricSpec, Mapping[Labels, float]]
_GaugeSeries: TypeAlias = dict[str, list[tuple[Labels, float]]]

# The text format 0.0.4, which every version of Prometheus reads.
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_LAG_INTERVAL_S = 1.0
# The label `reason` of a stream's end: by error code if it is listed, otherwise by the outcome of the call.
_REASONS = {"completed": "done", "cancelled": "client_gone", "timed_out": "idle", "truncated": "truncated"}
_REASONS_BY_CODE = {
    "client_gone": "client_gone",
    "gateway_draining": "drained",
    "upstream_timeout_total": "cut",
    "budget_exceeded": "cut",
    "stopped_by_operator": "cut",
}
# The label values that are known in advance, of families with one label.
_KNOWN: Mapping[MetricSpec, Collection[str]] = {
    metric_specs.STREAM_END: {*_REASONS.values(), *_REASONS_BY_CODE.values(), "failed"},
    metric_specs.REJECTED: REASONS,
    metric_specs.NOT_KEPT: ("size", "database"),
    metric_specs.CONTENT_DROPPED: ("memory", "database"),
    metric_specs.WEBHOOKS: ("delivered", "failed", "dropped"),
}


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
        self.peers: WorkerPeers | None = None
        self.before_scrape: Callable[[], None] | None = None
        """Called before the counters are read: calls that have ended may not be counted yet."""
        self.budgets: Callable[[], Mapping[tuple[str, str, str], float]] = dict
        """The remaining part of each budget, by kind, name and period. Called in another thread."""
        self._scrapes = Tasks()
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
        observe = self.counters.observe
        provider = self._count(entry)
        if progress.keys_at_limit or (progress.attempts and progress.attempts[-1].provider_key):
            self._count_provider_keys(call, entry)
        for tried in progress.attempts:
            name = self._label_values.of("provider", tried.provider)
            for code, count in tried.repairs.items():
                self.counters.add(metric_specs.BY_LEVEL[level_of(code)], (name, code), count)
            if any(tried.gaps.counts):
                self.counters.merge(metric_specs.CHUNK_GAP, (name,), tried.gaps.counts, tried.gaps.total_s)
        for code, count in entry.losses.items():
            self.counters.add(metric_specs.LOSSES, (entry.surface, provider, code), count)
        if progress.overhead_s is not None:
            observe(metric_specs.OVERHEAD, (), progress.overhead_s)
        if entry.stream and progress.commit_s is not None:
            observe(metric_specs.FIRST_CHUNK, (provider,), progress.commit_s)
            reason = _REASONS_BY_CODE.get(entry.code) or _REASONS.get(entry.outcome, "failed")
            self.counters.add(metric_specs.STREAM_END, (reason,))

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
        self._count(entry)

    def _count(self, entry: Entry) -> str:
        """Count what a ledger entry contains. Returns the label value of the last provider."""
        add = self.counters.add
        answered = entry.outcome == "completed" or entry.first_event_ms is not None
        route = self._label_values.of("route", entry.model, may_add=answered)
        provider = model = ""
        for attempt in entry.attempts:
            provider = self._label_values.of("provider", attempt.provider)
            model = self._label_values.of("model", attempt.model, may_add=answered)
            add(metric_specs.ATTEMPTS, (provider, attempt.outcome))
            estimated = "true" if attempt.measure == "estimated" else "false"
            if attempt.tokens.input:
                add(metric_specs.TOKENS, (provider, model, "input", estimated), attempt.tokens.input)
            if attempt.tokens.output:
                add(metric_specs.TOKENS, (provider, model, "output", estimated), attempt.tokens.output)
            if attempt.cost:
                add(metric_specs.COST, (provider, model), attempt.cost)
        if len(entry.attempts) > 1:
            add(metric_specs.FALLBACKS, (route,), len(entry.attempts) - 1)
        labels = (entry.surface, route, model, provider, _status_class(entry.status), entry.outcome)
        add(metric_specs.REQUESTS, labels)
        return provider

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

    def dropped(self, spans: int) -> None:
        """Count spans that were not exported."""
        self.counters.add(metric_specs.DROPPED, (), spans)

    def _measure_lag(self) -> None:
        now = self._loop.time()
        self.counters.observe(metric_specs.LOOP_LAG, (), max(0.0, now - self._lag_due))
        self._lag_due = now + _LAG_INTERVAL_S
        self._lag_timer = self._loop.call_at(self._lag_due, self._measure_lag)

    # Reporting.

    async def text(self) -> bytes:
        """The metrics of all workers in the text format of Prometheus."""
        gauges = [await self._gauge_series()]
        if self.peers is not None:
            for answer in await self.peers.request_all("GET", "/gauges"):
                with suppress(msgspec.MsgspecError):  # not from a worker of this version
                    gauges.append(msgspec.json.decode(answer, type=_GaugeSeries))
        return await self._loop.run_in_executor(None, self._text, self.counters.counts(), gauges)

    def handle(self, exchange: Exchange) -> None:
        """Respond to a scrape."""
        self._scrapes.start(self._answer(exchange))

    def handle_gauges(self, exchange: Exchange) -> None:
        """Respond to another worker with this worker's gauges. It reads the counters from the shared folder."""
        self._scrapes.start(self._answer_gauges(exchange))

    async def _answer_gauges(self, exchange: Exchange) -> None:
        respond_json(exchange, 200, await self._gauge_series())

    async def _answer(self, exchange: Exchange) -> None:
        try:
            status, text = 200, await self.text()
        except Exception as error:  # noqa: BLE001 - the scrape must get a response
            status, text = 500, f"the metrics cannot be collected: {type(error).__name__}\n".encode()
        exchange.respond(status, {"content-type": CONTENT_TYPE}, text)

    async def _gauge_series(self) -> _GaugeSeries:
        budgets = await self._loop.run_in_executor(None, lambda: bounded(self.budgets()))
        if self.before_scrape is not None:
            self.before_scrape()  # the worker that requests the gauges reads the counters next
        gauges = {**self._gauges(), metric_specs.BUDGET: budgets}
        return {family.name: list(series.items()) for family, series in gauges.items()}

    def _text(self, own: Counts, gauges: list[_GaugeSeries]) -> bytes:
        from penstock.serve.telemetry.exposition import expose  # noqa: PLC0415 - heavy, and needed only here

        counts = own if self._folder is None else total(read_all(self._folder))
        return expose(counts | _merge_gauges(gauges))


def _status_class(status: int) -> str:
    return f"{status // 100}xx" if status else ""


def _merge_gauges(workers: list[_GaugeSeries]) -> Counts:
    """The gauges of all workers together: the sum or the minimum, by the kind of the gauge."""
    gauges: Counts = {}
    for worker in workers:
        for name, series in worker.items():
            for labels, value in series:
                before = gauges.get((name, labels))
                if before is None:
                    gauges[name, labels] = [value]
                else:
                    least = BY_NAME[name].kind == "least"
                    before[0] = min(before[0], value) if least else before[0] + value
    return gauges


def bounded(ratios: Mapping[tuple[str, str, str], float]) -> dict[Labels, float]:
    """One value per budget, for those of which least is left. The minimum of all others is reported as `other`."""
    # Not sorted: the interpreter's lock (GIL) is not released while ten thousand are.
    least = heapq.nsmallest(MAX_SERIES, ratios, key=lambda labels: (ratios[labels], labels))
    result: dict[Labels, float] = {labels: ratios[labels] for labels in least[: MAX_SERIES - 1]}
    if others := least[MAX_SERIES - 1 :]:
        result[OTHER, OTHER, OTHER] = ratios[others[0]]
    return result
