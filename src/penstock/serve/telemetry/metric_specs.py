"""Families: every metric that Penstock tells, with its labels and what it means. Docs and dashboard are held to this.

Counters and histograms only ever grow, over the whole life of a gateway, whichever of its workers come and go. Gauges
are asked of the workers that are there.
"""

from collections.abc import Sequence
from typing import Literal, TypeAlias

from msgspec import Struct

from penstock.gateway.relay.event_gaps import BOUNDS

Kind: TypeAlias = Literal["counter", "histogram", "sum", "least"]

_WAITS = (0.05, 0.1, 0.2, 0.3, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0, 20.0, 60.0)
_MOMENTS = (0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 5.0)
_LAGS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 5.0)


class MetricSpec(Struct, frozen=True, kw_only=True):
    """One metric. A gauge is the `sum` of what the workers say, or the `least`.

    `unit` is what one of it is kept as: a counter of money is kept in whole nanodollars, so that nothing is rounded.
    """

    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...] = ()
    bounds: tuple[float, ...] = ()
    unit: float = 1.0

    @property
    def width(self) -> int:
        """How many numbers one series has: for a histogram, its buckets, the one beyond them, and the sum."""
        return len(self.bounds) + 2 if self.kind == "histogram" else 1


def _counter(name: str, help: str, *labels: str, unit: float = 1.0) -> MetricSpec:
    return MetricSpec(name=f"penstock_{name}_total", kind="counter", help=help, labels=labels, unit=unit)


def _histogram(name: str, help: str, bounds: Sequence[float], *labels: str) -> MetricSpec:
    return MetricSpec(name=f"penstock_{name}_seconds", kind="histogram", help=help, labels=labels, bounds=tuple(bounds))


def _gauge(name: str, help: str, *labels: str, kind: Kind = "sum") -> MetricSpec:
    return MetricSpec(name=f"penstock_{name}", kind=kind, help=help, labels=labels)


REQUESTS = _counter(
    "requests",
    "Calls that are over, by the name that was asked for and by who answered last.",
    *("route", "model", "provider", "status_class", "outcome"),
)
STREAMS_OPEN = _gauge("streams_open", "Streamed calls that are under way.")
FIRST_CHUNK = _histogram(
    "time_to_first_chunk", "From a whole request to the first chunk of its stream.", _WAITS, "provider"
)
CHUNK_GAP = _histogram(
    "chunk_gap", "Between two reads of events, while the client did not hold the provider up.", BOUNDS, "provider"
)
OVERHEAD = _histogram(
    "gateway_overhead",
    "From a whole request to its first attempt: reading it, limits, the choice of a target.",
    _MOMENTS,
)
ATTEMPTS = _counter("upstream_attempts", "Tries at one provider, by how each ended.", "provider", "result")
FALLBACKS = _counter("fallbacks", "Tries beyond the first of their calls.", "route")
STREAM_END = _counter("stream_end", "Streams that had begun, by how they ended.", "reason")
TOKENS = _counter("tokens", "Tokens, by whose count they are.", "provider", "model", "direction", "estimated")
COST = _counter("cost_usd", "What calls cost, as far as prices are known.", "provider", "model", unit=1e-9)
LEDGER_QUEUE = _gauge("ledger_queue", "Calls that are over, and not in the book yet.")
LEDGER_SPOOLED = _gauge("ledger_spooled", "Those that wait because the book cannot be written.")
LEDGER_COMMIT = _histogram("ledger_commit", "To write entries into the book, many at a time.", _MOMENTS)
BUDGET = _gauge("budget_remaining_ratio", "What is left of a key's budget, from 1 to 0.", "key", kind="least")
LIMITS_STORE_UP = _gauge(
    "limits_store_up",
    "1 while the store answers through which processes share keys' limits, 0 while each goes by its own share of them.",
    "store",
    kind="least",
)
LIMITS_STORE_CHANGES = _counter(
    "limits_store_changes", "Times that a worker found this store down, or up again.", "store", "to"
)
LOOP_LAG = _histogram("loop_lag", "How late the event loop was, looked at once a second.", _LAGS)
REPAIRS = _counter("repairs", "Defects of providers' streams that were repaired.", "provider", "code")
NOTICES = _counter("notices", "Harmless habits met in providers' streams.", "provider", "code")
LOSSES = _counter(
    "losses",
    "What translations between the client's API and the provider's dropped or approximated.",
    "provider",
    "code",
)
DROPPED = _counter("telemetry_dropped", "Spans that no collector took.")

FAMILIES: tuple[MetricSpec, ...] = (
    REQUESTS,
    STREAMS_OPEN,
    FIRST_CHUNK,
    CHUNK_GAP,
    OVERHEAD,
    ATTEMPTS,
    FALLBACKS,
    STREAM_END,
    TOKENS,
    COST,
    LEDGER_QUEUE,
    LEDGER_SPOOLED,
    LEDGER_COMMIT,
    BUDGET,
    LIMITS_STORE_UP,
    LIMITS_STORE_CHANGES,
    LOOP_LAG,
    REPAIRS,
    NOTICES,
    LOSSES,
    DROPPED,
)
BY_NAME = {family.name: family for family in FAMILIES}
