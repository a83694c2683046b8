"""Metrics: counts settled calls and reports metrics to Prometheus, for all workers of a gateway.

A call is counted once, after it has been settled; nothing here runs while it streams. Counters and histograms are in
memory that outlives a worker (`counters.py`). Gauges are requested from the live workers (`workers/peers.py`). So a
scrape of any worker reports all workers.

Why calls are counted in batches. Counting a call means about ten dictionary lookups by label values, on the event loop
that also relays streams. Settled calls therefore wait up to 0.1 s (`_BATCH_S`), or until `_MAX_BATCH` of them wait, and
are counted together. Every reader of metrics counts the waiting calls first, so a scrape is always complete. The price:
`kill -9` can lose the metrics of at most one batch; the ledger does not depend on them.

Why there are two ways to count. Nearly all calls are alike: one attempt, streamed, completed, with usage reported by
the provider and without repairs. Calls of a batch that are alike in everything that selects a series are summed first
and added to slots that are cached per route, provider, model and whether the cost is not zero, see `_CounterSlots`.
Every other call takes `_count_any`. Both give the same counts: under the conditions of `_count_all` and
`_common_slots`, `_count_any` counts in these series and in no others
(`test_the_most_usual_call_is_counted_as_any_other`). The cache is bounded, because only names that are label values of
their own are cached, and slots never move (`counters.py`, rule 4).
"""

import asyncio
import heapq
from collections import defaultdict
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from itertools import starmap
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import msgspec

from penstock.core.hub.repairs import level_of
from penstock.gateway.billing.entry import Entry
from penstock.gateway.calls.call import Call
from penstock.gateway.config import Config
from penstock.http.exchange import Exchange
from penstock.serve.rejections import REASONS
from penstock.serve.responses import respond_json
from penstock.serve.telemetry import metric_specs
from penstock.serve.telemetry.counters import (
    LOST_SLOT,
    MAX_SERIES,
    OTHER,
    Counts,
    Labels,
    SharedCounters,
    read_all,
    total,
)
from penstock.serve.telemetry.label_values import LabelValues
from penstock.serve.telemetry.metric_specs import BY_NAME, FAMILIES, MetricSpec
from penstock.serve.workers.peers import WorkerPeers

# The state of one worker: by gauge, the label values of each series and its value.
Gauges: TypeAlias = Mapping[MetricSpec, Mapping[Labels, float]]
_GaugeSeries: TypeAlias = dict[str, list[tuple[Labels, float]]]

# The text format 0.0.4, which every version of Prometheus reads.
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_LAG_INTERVAL_S = 1.0
# A batch of settled calls is counted when it has so many calls, or after so many seconds.
_MAX_BATCH = 64
_BATCH_S = 0.1
# The label `reason` of a stream's end: by error code if it is listed, otherwise by the outcome of the call.
_REASONS = {"completed": "done", "cancelled": "client_gone", "timed_out": "idle", "truncated": "truncated"}
_REASONS_BY_CODE = {
    "client_gone": "client_gone",
    "gateway_draining": "drained",
    "upstream_timeout_total": "cut",
    "budget_exceeded": "cut",
    "stopped_by_operator": "cut",
}
_ALL_REASONS = {*_REASONS.values(), *_REASONS_BY_CODE.values(), "failed"}


class _CounterSlots(NamedTuple):
    """The slots of all series in which a common call (see the top) to one model of one provider is counted."""

    requests: int
    attempts: int
    input: int
    output: int
    cost: int | None
    gaps: int
    first: int
    overhead: int
    end: int


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
        self._common: dict[tuple[str, tuple[str, str, str], bool], _CounterSlots] = {}
        self.peers: WorkerPeers | None = None
        self.budgets: Callable[[], Mapping[tuple[str, str, str], float]] = dict
        """The remaining part of each budget, by kind, name and period. Called in another thread."""
        self._scrapes: set[asyncio.Task[None]] = set()
        self._settled: list[tuple[Call, Entry]] = []
        self._batch_timer: asyncio.TimerHandle | None = None
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
        """Count the calls that wait, and stop the timers."""
        if self._lag_timer is not None:
            self._lag_timer.cancel()
        if self._batch_timer is not None:
            self._batch_timer.cancel()
        self._on_batch_timer()

    # Counting.

    def _create_known(self) -> None:
        """Create the series that are known in advance, at zero: `rate()` misses the first count of a new series."""
        for family in FAMILIES:
            if not family.labels and family.kind in ("counter", "histogram"):
                self.counters.create(family)
        for reason in sorted(_ALL_REASONS):
            self.counters.create(metric_specs.STREAM_END, (reason,))
        for reason in REASONS:
            self.counters.create(metric_specs.REJECTED, (reason,))
        for reason in ("size", "database"):
            self.counters.create(metric_specs.NOT_KEPT, (reason,))
        for reason in ("memory", "database"):
            self.counters.create(metric_specs.CONTENT_DROPPED, (reason,))
        for result in ("delivered", "failed", "dropped"):
            self.counters.create(metric_specs.WEBHOOKS, (result,))

    def settled(self, call: Call, entry: Entry) -> None:
        """Count a settled call, with the next batch."""
        self._settled.append((call, entry))
        if self._batch_timer is None:
            self._batch_timer = self._loop.call_later(_BATCH_S, self._on_batch_timer)
        elif len(self._settled) >= _MAX_BATCH:
            self._count_all()

    def _on_batch_timer(self) -> None:
        self._batch_timer = None
        self._count_all()

    def _count_all(self) -> None:
        """Count the calls that wait. Groups those that count in the same series."""
        batch, self._settled = self._settled, []
        alike: defaultdict[tuple[object, ...], list[tuple[Call, Entry]]] = defaultdict(list)
        for settled in batch:
            call, entry = settled
            attempts = entry.attempts
            if call.yielded or (call.attempts and call.attempts[-1].provider_key):
                self._count_provider_keys(call, entry)
            if len(attempts) != 1 or call.repairs or call.losses:
                self._count_any(call, entry)
                continue
            attempt = attempts[0]
            kind = (
                entry.surface,
                entry.model,
                attempt.provider,
                attempt.model,
                entry.outcome,
                entry.status,
                entry.stream,
                entry.first_event_ms is None,
                attempt.measure,
                not attempt.cost,
            )
            alike[kind].append(settled)
        for calls in alike.values():
            slots = self._common_slots(calls[0][1])
            if slots is not None:
                self._count_common(slots, calls)
            else:
                for call, entry in calls:
                    self._count_any(call, entry)

    def _count_any(self, call: Call, entry: Entry) -> None:
        """Count any call."""
        observe = self.counters.observe
        provider = self._count(entry)
        for tried in call.attempts:
            name = self._label_values.of("provider", tried.provider)
            for code, count in tried.repairs.items():
                self.counters.add(metric_specs.BY_LEVEL[level_of(code)], (name, code), count)
            if any(tried.gaps.counts):
                self.counters.merge(metric_specs.CHUNK_GAP, (name,), tried.gaps.counts, tried.gaps.total_s)
        for code, count in entry.losses.items():
            self.counters.add(metric_specs.LOSSES, (entry.surface, provider, code), count)
        if call.overhead_s is not None:
            observe(metric_specs.OVERHEAD, (), call.overhead_s)
        if entry.stream and call.commit_s is not None:
            observe(metric_specs.FIRST_CHUNK, (provider,), call.commit_s)
            reason = _REASONS_BY_CODE.get(entry.code) or _REASONS.get(entry.outcome, "failed")
            self.counters.add(metric_specs.STREAM_END, (reason,))

    def _count_provider_keys(self, call: Call, entry: Entry) -> None:
        """Count the use of providers' keys. Their names come from the configuration."""
        for tried, booked in zip(call.attempts, entry.attempts, strict=True):
            if tried.provider_key:
                name = self._label_values.of("provider", tried.provider)
                key = self._label_values.of("provider_key", tried.provider_key)
                self.counters.add(metric_specs.KEY_ATTEMPTS, (name, key, booked.outcome))
        for provider, key, limit in call.yielded:
            names = self._label_values.of("provider", provider), self._label_values.of("provider_key", key)
            self.counters.add(metric_specs.KEYS_AT_LIMIT, (*names, limit))

    def _common_slots(self, entry: Entry) -> "_CounterSlots | None":
        """The slots of a common call: a stream that its first provider completed, with usage. None for others."""
        (attempt,) = entry.attempts
        if entry.outcome != "completed" or not entry.stream:
            return None
        if attempt.measure != "reported" or entry.first_event_ms is None or entry.status != 200:
            return None
        names = (entry.model, attempt.provider, attempt.model)
        kind = (entry.surface, names, bool(attempt.cost))
        slots = self._common.get(kind)
        if slots is None and self._labels_of(entry) == names:  # which bounds the cache by the number of label values
            slots = self._find_slots(entry.surface, *names, has_cost=bool(attempt.cost))
            if LOST_SLOT not in slots:
                self._common[kind] = slots
        return slots

    def _labels_of(self, entry: Entry) -> tuple[str, str, str]:
        """The label values of the requested model and of the provider and model that answered."""
        attempt = entry.attempts[-1]
        of = self._label_values.of
        return of("route", entry.model), of("provider", attempt.provider), of("model", attempt.model)

    def _find_slots(self, surface: str, route: str, provider: str, model: str, *, has_cost: bool) -> "_CounterSlots":
        slot = self.counters.slot
        return _CounterSlots(
            requests=slot(metric_specs.REQUESTS, (surface, route, model, provider, "2xx", "completed")),
            attempts=slot(metric_specs.ATTEMPTS, (provider, "completed")),
            input=slot(metric_specs.TOKENS, (provider, model, "input", "false")),
            output=slot(metric_specs.TOKENS, (provider, model, "output", "false")),
            cost=slot(metric_specs.COST, (provider, model)) if has_cost else None,
            gaps=slot(metric_specs.CHUNK_GAP, (provider,)),
            first=slot(metric_specs.FIRST_CHUNK, (provider,)),
            overhead=slot(metric_specs.OVERHEAD, ()),
            end=slot(metric_specs.STREAM_END, (_REASONS["completed"],)),
        )

    def _count_common(self, slots: "_CounterSlots", calls: list[tuple[Call, Entry]]) -> None:
        """Count calls that are alike. The result is the same as of `_count_any` for each of them."""
        counters, values = self.counters, self.counters.values
        input, output, cost, gaps_s, first_s, overhead_s, *gaps = zip(*starmap(_figures, calls), strict=True)
        for slot in (slots.requests, slots.attempts, slots.end):
            values[slot] += len(calls)
        values[slots.input] += sum(input)
        values[slots.output] += sum(output)
        if slots.cost is not None:
            values[slots.cost] += sum(cost)
        counters.merge_at(slots.gaps, list(map(sum, gaps)), sum(gaps_s))
        counters.observe_at(slots.first, metric_specs.FIRST_CHUNK.bounds, first_s)
        counters.observe_at(slots.overhead, metric_specs.OVERHEAD.bounds, overhead_s)

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
            self.counters.create(metric_specs.LIMITS_STORE_CHANGES, (store, to))

    def limits_store_changed(self, store: str, up: bool) -> None:
        """Count a change of the store's availability."""
        self.counters.add(metric_specs.LIMITS_STORE_CHANGES, (store, "up" if up else "down"))

    def rejected(self, reason: str) -> None:
        """Count a request that was rejected before it became a call."""
        self.counters.add(metric_specs.REJECTED, (reason,))

    def response_not_kept(self, reason: str) -> None:
        """Count a response that should be kept and is not."""
        self.counters.add(metric_specs.NOT_KEPT, (reason,))

    def content_dropped(self, reason: str, calls: int) -> None:
        """Count calls whose content should be kept and is dropped."""
        self.counters.add(metric_specs.CONTENT_DROPPED, (reason,), calls)

    def webhook_called(self, result: str) -> None:
        """Count an attempt to send a budget warning to the webhook."""
        self.counters.add(metric_specs.WEBHOOKS, (result,))

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
                    gauges.append(_decode(answer))
        return await self._loop.run_in_executor(None, self._text, self.counters.counts(), gauges)

    def handle(self, exchange: Exchange) -> None:
        """Respond to a scrape."""
        self._start(self._answer(exchange))

    def handle_gauges(self, exchange: Exchange) -> None:
        """Respond to another worker with this worker's gauges. It reads the counters from the shared folder."""
        self._start(self._answer_gauges(exchange))

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._scrapes.add(task)
        task.add_done_callback(self._scrapes.discard)

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
        self._count_all()  # the worker that requests the gauges reads the counters next
        gauges = {**self._gauges(), metric_specs.BUDGET: budgets}
        return {family.name: list(series.items()) for family, series in gauges.items()}

    def _text(self, own: Counts, gauges: list[_GaugeSeries]) -> bytes:
        from penstock.serve.telemetry.exposition import expose  # noqa: PLC0415 - heavy, and needed only here

        counts = own if self._folder is None else total(read_all(self._folder))
        return expose(counts | _merge_gauges(gauges))


def _figures(call: Call, entry: Entry) -> tuple[float, ...]:
    """The numbers of a common call: tokens, cost, times, and the bucket counts of the gaps of its only attempt."""
    attempt, gaps = entry.attempts[0], call.attempts[0].gaps
    tokens = attempt.tokens
    return (
        tokens.input,
        tokens.output,
        attempt.cost or 0,
        gaps.total_s,
        call.commit_s or 0.0,
        call.overhead_s or 0.0,
        *gaps.counts,
    )


def _status_class(status: int) -> str:
    return f"{status // 100}xx" if status else ""


def _decode(answer: bytes) -> _GaugeSeries:
    return msgspec.json.decode(answer, type=_GaugeSeries)


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
