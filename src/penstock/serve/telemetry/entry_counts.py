"""EntryCounts: counts entries of the ledger: calls, ends of streams, attempts, tokens and cost, by their labels.

Most entries are of a kind that was counted before: the same model, target, key, outcome and so on. So the places of
their numbers are found once for each kind, and then only added to.
"""

from msgspec import Struct

from penstock.gateway.record.entry import AttemptEntry, Entry
from penstock.serve.telemetry.counters import LOST_SLOT, OTHER, Labels, SharedCounters
from penstock.serve.telemetry.label_values import LabelValues
from penstock.serve.telemetry.metric_specs import (
    ATTEMPTS,
    CACHE_SAVED,
    CACHE_TOKENS,
    COST,
    DURATION,
    FALLBACKS,
    FIRST_CHUNK,
    REQUESTS,
    STREAM_END,
    TEAM_COST,
    TOKENS,
    UPSTREAM_ERRORS,
    MetricSpec,
)

# The team of a call without one, and its key.
_NONE = "(none)"
# Names of models come from clients. After so many kinds all are found again.
_MAX_KINDS = 1_000
# The place of an amount that entries of a kind do not have.
_NOWHERE = -1
# The label `reason` of a stream's end: by error code if it is listed, otherwise by the outcome of the call.
_REASONS = {"completed": "done", "cancelled": "client_gone", "timed_out": "idle", "truncated": "truncated"}
_REASONS_BY_CODE = {
    "client_gone": "client_gone",
    "gateway_draining": "drained",
    "upstream_timeout_total": "cut",
    "budget_exceeded": "cut",
    "stopped_by_operator": "cut",
}
_FAILED = "failed"
STREAM_ENDS = frozenset((*_REASONS.values(), *_REASONS_BY_CODE.values(), _FAILED))
"""All reasons of the ends of streams."""


class CountedKind(Struct):
    """The label values of one kind of entries, and where they are counted: indexes in `SharedCounters.values`."""

    provider: str
    """The label value of the last provider."""
    labels: Labels
    """Those of the call's histograms."""
    duration: int
    """Where the duration of the call is observed; nowhere for an orphaned one, whose duration is not known."""
    first_event: int
    """Where the time to its first event is observed."""
    ones: list[int]
    """What grows by one. An index that is here several times grows by as many."""
    amounts: list[tuple[int, int, int]]
    """Of each attempt, where its input tokens, its output tokens and its cost are added."""
    team_cost: int
    """Where the cost of the call is added, for its team and key."""


class EntryCounts:
    """Counts the entries of one worker."""

    def __init__(self, counters: SharedCounters, label_values: LabelValues) -> None:
        self._counters = counters
        self._label_values = label_values
        self._kinds: dict[tuple[object, ...], CountedKind] = {}

    def add(self, entry: Entry, key: str) -> CountedKind:
        """Count an entry; `key` is the name of its key."""
        name: tuple[object, ...] = (entry.model, key, entry.team, entry.surface, entry.status, entry.outcome)
        name += (entry.code, entry.stream, entry.first_event_ms is None)
        for each in entry.attempts:
            name += (each.provider, each.model, each.outcome, each.code, each.measure)
            name += (each.tokens.input > 0, each.tokens.output > 0, not each.cost)
        kind = self._kinds.get(name) or self._find(entry, key, name)
        values = self._counters.values
        for slot in kind.ones:
            values[slot] += 1
        for attempt, (input, output, cost) in zip(entry.attempts, kind.amounts, strict=True):
            if tokens := attempt.tokens.input:
                values[input] += tokens
            if tokens := attempt.tokens.output:
                values[output] += tokens
            if attempt.cost:
                values[cost] += attempt.cost
                values[kind.team_cost] += attempt.cost
            if attempt.tokens.cached or attempt.tokens.cache_write:
                self._add_cache(kind.labels[0], attempt)
        return kind

    def _add_cache(self, route: str, attempt: AttemptEntry) -> None:
        """Count what an attempt has read from the prompt cache and written to it, and what that has saved."""
        of, values = self._label_values.of, self._counters.values
        labels = (route, of("provider", attempt.provider), of("model", attempt.model))
        amounts = (
            (CACHE_TOKENS, "read", attempt.tokens.cached),
            (CACHE_TOKENS, "written", attempt.tokens.cache_write),
            (CACHE_SAVED, "saved", attempt.saved),
            (CACHE_SAVED, "lost", -attempt.saved),
        )
        for family, what, amount in amounts:
            if amount > 0:
                values[self._counters.slot(family, (*labels, what))] += amount

    def _find(self, entry: Entry, key: str, name: tuple[object, ...]) -> CountedKind:
        """Find the labels and places of an entry, and keep them for its kind unless they may change: a name that counts
        as `other` may get room, and a series that could not be created may exist later."""
        of = self._label_values.of
        constant: list[bool] = []

        def slot(family: MetricSpec, *labels: str) -> int:
            index = self._counters.slot(family, labels)
            constant.append(index != LOST_SLOT and OTHER not in labels)
            return index

        answered = entry.outcome == "completed" or entry.first_event_ms is not None
        route = of("route", entry.model, may_add=answered)
        provider = model = ""
        ones: list[int] = []
        amounts: list[tuple[int, int, int]] = []
        team_cost = _NOWHERE
        for each in entry.attempts:
            provider, model = of("provider", each.provider), of("model", each.model, may_add=answered)
            ones.append(slot(ATTEMPTS, provider, each.outcome))
            if each.code:
                ones.append(slot(UPSTREAM_ERRORS, provider, each.code))
            estimated = "true" if each.measure == "estimated" else "false"
            input = slot(TOKENS, provider, model, "input", estimated) if each.tokens.input else _NOWHERE
            output = slot(TOKENS, provider, model, "output", estimated) if each.tokens.output else _NOWHERE
            amounts.append((input, output, slot(COST, provider, model) if each.cost else _NOWHERE))
            if each.cost and team_cost == _NOWHERE:
                team_cost = slot(TEAM_COST, of("team", entry.team or _NONE), of("key", key or _NONE))
        if further := len(entry.attempts[1:]):
            ones += [slot(FALLBACKS, route)] * further
        status = f"{entry.status // 100}xx" if entry.status else ""
        ones.append(slot(REQUESTS, entry.surface, route, model, provider, status, entry.outcome))
        labels = (route, provider, model, entry.outcome, "true" if entry.stream else "false")
        duration = slot(DURATION, *labels) if entry.outcome != "orphaned" else _NOWHERE
        first_event = _NOWHERE
        if entry.first_event_ms is not None:
            first_event = slot(FIRST_CHUNK, *labels)
            if entry.stream:
                reason = _REASONS_BY_CODE.get(entry.code) or _REASONS.get(entry.outcome, _FAILED)
                ones.append(slot(STREAM_END, reason))
        kind = CountedKind(provider, labels, duration, first_event, ones, amounts, team_cost)
        if all(constant):
            if len(self._kinds) >= _MAX_KINDS:
                self._kinds.clear()
            self._kinds[name] = kind
        return kind
