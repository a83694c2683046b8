"""Metrics: what a gateway has done and how it is, for Prometheus. Told once for each call, when it is over.

Calls that end one soon after another are counted together: within a tenth of a second, and before anything is told.
Counters lie where they outlive a worker (`tally.py`), and gauges are asked of the workers that are there
(`siblings.py`): a scrape of any worker tells of all of them.
"""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Mapping
from contextlib import suppress
from itertools import starmap
from pathlib import Path
from typing import NamedTuple, TypeAlias

import msgspec

from penstock.core.repairs import level_of
from penstock.gateway.billing.entry import Entry
from penstock.gateway.calls.call import Call
from penstock.gateway.config import Config
from penstock.http.exchange import Exchange
from penstock.serve.responses import respond_json
from penstock.serve.telemetry import metric_specs as families
from penstock.serve.telemetry.counters import LOST, OTHER, Counts, Labels, SharedCounters, read_all, total
from penstock.serve.telemetry.label_values import MOST, LabelValues
from penstock.serve.telemetry.metric_specs import BY_NAME, FAMILIES, MetricSpec
from penstock.serve.workers.peers import WorkerPeers

# How a worker is: by gauge, the labels of each series and its value.
Gauges: TypeAlias = Mapping[MetricSpec, Mapping[Labels, float]]
_Told: TypeAlias = dict[str, list[tuple[Labels, float]]]

# The text format, in the version that every Prometheus reads.
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_LOOK_S = 1.0
# Calls that are over are counted together: so many of them, or those of so many seconds. `kill -9` may take as many.
_MOST_WAITING = 64
_GATHER_S = 0.1
# How a stream ended, by the ending of its call; where a code says more, by that.
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
    """Where the most usual call to one model of one provider is counted."""

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
    """The metrics of one worker, and through it those of its gateway. Belongs to the event loop.

    `folder` is where the workers of a gateway meet; None where there is only one.
    """

    def __init__(self, gauges: Callable[[], Gauges], folder: Path | None = None) -> None:
        self._loop = asyncio.get_running_loop()
        self._gauges = gauges
        self._folder = folder
        self.tally = SharedCounters(folder)
        self._names = LabelValues(folder)
        self._places: dict[tuple[tuple[str, str, str], bool], _CounterSlots] = {}
        self.siblings: WorkerPeers | None = None
        self._answering: set[asyncio.Task[None]] = set()
        self._waiting: list[tuple[Call, Entry]] = []
        self._gathering: asyncio.TimerHandle | None = None
        self._looking: asyncio.TimerHandle | None = None
        self._look_at = 0.0
        self._begin()

    def use(self, config: Config) -> None:
        """Know the names of this configuration."""
        targets = [target for route in config.routes.values() for target in route.targets if not route.is_pattern]
        self._names.expect("route", config.models())
        self._names.expect("provider", [target.provider.name for target in targets])
        self._names.expect("provider", config.providers)
        self._names.expect("model", [target.model for target in targets])
        self._names.expect("model", [model for provider in config.providers.values() for model in provider.models])

    def start(self) -> None:
        """Look at the loop now and then."""
        self._look_at = self._loop.time() + _LOOK_S
        self._looking = self._loop.call_at(self._look_at, self._look)

    def close(self) -> None:
        """Look no more; all that is over is counted."""
        if self._looking is not None:
            self._looking.cancel()
        if self._gathering is not None:
            self._gathering.cancel()
        self._catch_up()

    # What is counted.

    def _begin(self) -> None:
        """Begin the series that are known beforehand: in one that appears with its first count, nobody sees a rise."""
        for family in FAMILIES:
            if not family.labels and family.kind in ("counter", "histogram"):
                self.tally.begin(family)
        for reason in sorted(_ALL_REASONS):
            self.tally.begin(families.STREAM_END, (reason,))

    def settled(self, call: Call, entry: Entry) -> None:
        """A call is over. It is counted soon."""
        self._waiting.append((call, entry))
        if self._gathering is None:
            self._gathering = self._loop.call_later(_GATHER_S, self._catch_up)
        elif len(self._waiting) >= _MOST_WAITING:
            self._count_all()

    def _catch_up(self) -> None:
        self._gathering = None
        self._count_all()

    def _count_all(self) -> None:
        """Count the calls that wait for it."""
        waiting, self._waiting = self._waiting, []
        alike: defaultdict[tuple[object, ...], list[tuple[Call, Entry]]] = defaultdict(list)
        for settled in waiting:
            call, entry = settled
            attempts = entry.attempts
            if len(attempts) != 1 or call.repairs or call.losses:
                self._count_any(call, entry)
                continue
            attempt = attempts[0]
            kind = (
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
            places = self._usual_places(calls[0][1])
            if places is not None:
                self._count_usual(places, calls)
            else:
                for call, entry in calls:
                    self._count_any(call, entry)

    def _count_any(self, call: Call, entry: Entry) -> None:
        """Count a call, whatever became of it."""
        observe = self.tally.observe
        provider = self._count(entry)
        for tried in call.attempts:
            name = self._names.of("provider", tried.provider)
            for code, count in tried.repairs.items():
                family = families.REPAIRS if level_of(code) == "repair" else families.NOTICES
                self.tally.add(family, (name, code), count)
            if any(tried.gaps.counts):
                self.tally.merge(families.CHUNK_GAP, (name,), tried.gaps.counts, tried.gaps.total_s)
        for code, count in entry.losses.items():
            self.tally.add(families.LOSSES, (provider, code), count)
        if call.overhead_s is not None:
            observe(families.OVERHEAD, (), call.overhead_s)
        if entry.stream and call.first_event_s is not None:
            observe(families.FIRST_CHUNK, (provider,), call.first_event_s)
            reason = _REASONS_BY_CODE.get(entry.code) or _REASONS.get(entry.outcome, "failed")
            self.tally.add(families.STREAM_END, (reason,))

    def _usual_places(self, entry: Entry) -> "_CounterSlots | None":
        """Where a call is counted that is the most usual one: a stream that its first provider completed and billed."""
        (attempt,) = entry.attempts
        if entry.outcome != "completed" or not entry.stream:
            return None
        if attempt.measure != "reported" or entry.first_event_ms is None or entry.status != 200:
            return None
        names = (entry.model, attempt.provider, attempt.model)
        costs = bool(attempt.cost)
        places = self._places.get((names, costs))
        if places is None and self._told_as(entry) == names:  # so there are no more than there are names
            places = self._place(*names, costs=costs)
            if LOST not in places:
                self._places[names, costs] = places
        return places

    def _told_as(self, entry: Entry) -> tuple[str, str, str]:
        """What the model that was asked for, and who answered, are called."""
        attempt = entry.attempts[-1]
        names = self._names
        return names.of("route", entry.model), names.of("provider", attempt.provider), names.of("model", attempt.model)

    def _place(self, route: str, provider: str, model: str, *, costs: bool) -> "_CounterSlots":
        place = self.tally.place
        return _CounterSlots(
            requests=place(families.REQUESTS, (route, model, provider, "2xx", "completed")),
            attempts=place(families.ATTEMPTS, (provider, "completed")),
            input=place(families.TOKENS, (provider, model, "input", "false")),
            output=place(families.TOKENS, (provider, model, "output", "false")),
            cost=place(families.COST, (provider, model)) if costs else None,
            gaps=place(families.CHUNK_GAP, (provider,)),
            first=place(families.FIRST_CHUNK, (provider,)),
            overhead=place(families.OVERHEAD, ()),
            end=place(families.STREAM_END, (_REASONS["completed"],)),
        )

    def _count_usual(self, places: "_CounterSlots", calls: list[tuple[Call, Entry]]) -> None:
        """The same as what `_count_any` counts of each of them."""
        tally, values = self.tally, self.tally.values
        input, output, cost, gaps_s, first_s, overhead_s, *gaps = zip(*starmap(_figures, calls), strict=True)
        for place in (places.requests, places.attempts, places.end):
            values[place] += len(calls)
        values[places.input] += sum(input)
        values[places.output] += sum(output)
        if places.cost is not None:
            values[places.cost] += sum(cost)
        tally.merge_at(places.gaps, list(map(sum, gaps)), sum(gaps_s))
        tally.observe_at(places.first, families.FIRST_CHUNK.bounds, first_s)
        tally.observe_at(places.overhead, families.OVERHEAD.bounds, overhead_s)

    def orphaned(self, entry: Entry) -> None:
        """A call was left open by a worker that died."""
        self._count(entry)

    def _count(self, entry: Entry) -> str:
        """What an entry alone tells; the provider that answered last."""
        add = self.tally.add
        answered = entry.outcome == "completed" or entry.first_event_ms is not None
        route = self._names.of("route", entry.model, deserves=answered)
        provider = model = ""
        for attempt in entry.attempts:
            provider = self._names.of("provider", attempt.provider)
            model = self._names.of("model", attempt.model, deserves=answered)
            add(families.ATTEMPTS, (provider, attempt.outcome))
            estimated = "true" if attempt.measure == "estimated" else "false"
            if attempt.tokens.input:
                add(families.TOKENS, (provider, model, "input", estimated), attempt.tokens.input)
            if attempt.tokens.output:
                add(families.TOKENS, (provider, model, "output", estimated), attempt.tokens.output)
            if attempt.cost:
                add(families.COST, (provider, model), attempt.cost)
        if len(entry.attempts) > 1:
            add(families.FALLBACKS, (route,), len(entry.attempts) - 1)
        add(families.REQUESTS, (route, model, provider, _status_class(entry.status), entry.outcome))
        return provider

    def committed(self, seconds: float) -> None:
        """The book has taken entries."""
        self.tally.observe(families.LEDGER_COMMIT, (), seconds)

    def limits_store(self, store: str) -> None:
        """Keys' limits are shared through this store."""
        for to in ("down", "up"):
            self.tally.begin(families.LIMITS_STORE_CHANGES, (store, to))

    def limits_store_changed(self, store: str, up: bool) -> None:
        """The store does not answer any more, or does again."""
        self.tally.add(families.LIMITS_STORE_CHANGES, (store, "up" if up else "down"))

    def dropped(self, spans: int) -> None:
        """No collector took these."""
        self.tally.add(families.DROPPED, (), spans)

    def _look(self) -> None:
        now = self._loop.time()
        self.tally.observe(families.LOOP_LAG, (), max(0.0, now - self._look_at))
        self._look_at = now + _LOOK_S
        self._looking = self._loop.call_at(self._look_at, self._look)

    # What is told.

    async def text(self) -> bytes:
        """What Prometheus is told, of all workers of this gateway."""
        told = [self._told()]
        if self.siblings is not None:
            for answer in await self.siblings.ask("GET", "/gauges"):
                with suppress(msgspec.MsgspecError):  # not a worker's
                    told.append(_decode(answer))
        return await self._loop.run_in_executor(None, self._text, self.tally.counts(), told)

    def handle(self, exchange: Exchange) -> None:
        """Answer a scrape."""
        task = self._loop.create_task(self._answer(exchange))
        self._answering.add(task)
        task.add_done_callback(self._answering.discard)

    def handle_gauges(self, exchange: Exchange) -> None:
        """Answer a sibling: only the gauges. Counters it finds by itself."""
        respond_json(exchange, 200, self._told())

    async def _answer(self, exchange: Exchange) -> None:
        try:
            status, text = 200, await self.text()
        except Exception as error:  # noqa: BLE001 - whatever it is, whoever scrapes is answered
            status, text = 500, f"the metrics cannot be told: {type(error).__name__}\n".encode()
        exchange.respond(status, {"content-type": CONTENT_TYPE}, text)

    def _told(self) -> _Told:
        self._count_all()  # whoever asks for the gauges reads the counters next
        return {family.name: list(series.items()) for family, series in self._gauges().items()}

    def _text(self, own: Counts, told: list[_Told]) -> bytes:
        from penstock.serve.telemetry.exposition import expose  # noqa: PLC0415 - heavy, and needed only here

        counts = own if self._folder is None else total(read_all(self._folder))
        return expose(counts | _together(told))


def _figures(call: Call, entry: Entry) -> tuple[float, ...]:
    """What is counted of a usual call: tokens and cost, times, and the gaps of its only attempt by their bounds."""
    attempt, gaps = entry.attempts[0], call.attempts[0].gaps
    tokens = attempt.tokens
    return (
        tokens.input,
        tokens.output,
        attempt.cost or 0,
        gaps.total_s,
        call.first_event_s or 0.0,
        call.overhead_s or 0.0,
        *gaps.counts,
    )


def _status_class(status: int) -> str:
    return f"{status // 100}xx" if status else ""


def _decode(answer: bytes) -> _Told:
    return msgspec.json.decode(answer, type=_Told)


def _together(told: list[_Told]) -> Counts:
    """The gauges of all workers: sums, or the least of what they say."""
    gauges: Counts = {}
    for each in told:
        for name, series in each.items():
            for labels, value in series:
                before = gauges.get((name, labels))
                if before is None:
                    gauges[name, labels] = [value]
                else:
                    least = BY_NAME[name].kind == "least"
                    before[0] = min(before[0], value) if least else before[0] + value
    return gauges


def bounded(ratios: Mapping[str, float]) -> dict[Labels, float]:
    """A value for each key; what is beyond a hundred is told by the least of it."""
    found: dict[Labels, float] = {}
    for number, (key, ratio) in enumerate(ratios.items()):
        label = (key,) if number < MOST else (OTHER,)
        found[label] = min(ratio, found.get(label, ratio))
    return found
