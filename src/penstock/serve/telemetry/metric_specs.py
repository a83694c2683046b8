"""MetricSpecs: every Prometheus metric family that Penstock reports, with its labels and help text.

Tests compare docs/metrics.md and the dashboard with this table. Counters and histograms never go down while the gateway
runs, even if workers are restarted. Gauges are requested from the live workers at each scrape.
"""

from collections.abc import Sequence
from typing import Literal, TypeAlias

from msgspec import Struct

from penstock.gateway.record.attempt import GAP_BOUNDS

Kind: TypeAlias = Literal["counter", "histogram", "sum", "least", "most"]

# Bucket bounds in seconds: for the first event and the end of answers, for the gateway's own work, and for the lag of
# the event loop.
_ANSWER_BOUNDS = (0.05, 0.1, 0.2, 0.3, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0, 20.0, 60.0)
_CALL_BOUNDS = (0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 3.0, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0)
_WORK_BOUNDS = (0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 5.0)
_LAG_BOUNDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 5.0)
# Per metric and worker. A series of a histogram is some sixteen lines of a scrape.
MAX_SERIES = 1_000
MAX_HISTOGRAMS = 500


class MetricSpec(Struct, frozen=True, kw_only=True):
    """One metric family. The kinds `sum`, `least` and `most` are gauges: the sum, the minimum or the maximum of the
    workers' values.

    `unit` converts the stored number into the reported one. Cost is stored in whole nanodollars: sums are exact.
    """

    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...] = ()
    bounds: tuple[float, ...] = ()
    unit: float = 1.0

    @property
    def width(self) -> int:
        """How many numbers a series has: one, or for a histogram its buckets, the `+Inf` bucket and the sum."""
        return len(self.bounds) + 2 if self.kind == "histogram" else 1

    @property
    def most(self) -> int:
        """How many series each worker may have. Further ones are counted together, with the label values `other`."""
        return MAX_HISTOGRAMS if self.kind == "histogram" else MAX_SERIES


def _counter(name: str, help: str, *labels: str, unit: float = 1.0) -> MetricSpec:
    return MetricSpec(name=f"penstock_{name}_total", kind="counter", help=help, labels=labels, unit=unit)


def _histogram(name: str, help: str, bounds: Sequence[float], *labels: str) -> MetricSpec:
    return MetricSpec(name=f"penstock_{name}_seconds", kind="histogram", help=help, labels=labels, bounds=tuple(bounds))


def _of_process(name: str, help: str, kind: Kind = "sum") -> MetricSpec:
    """A metric of each worker's process, named as client libraries of Prometheus name it."""
    return MetricSpec(name=f"process_{name}", kind=kind, help=help, labels=("worker",))


def _gauge(name: str, help: str, *labels: str, kind: Kind = "sum") -> MetricSpec:
    return MetricSpec(name=f"penstock_{name}", kind=kind, help=help, labels=labels)


REQUESTS = _counter(
    "requests",
    "Settled calls, by the client's API (surface), requested model (route), provider and model of the last attempt.",
    *("surface", "route", "model", "provider", "status_class", "outcome"),
)
_OF_CALL = ("route", "provider", "model", "outcome", "stream")
DURATION = _histogram(
    "request_duration", "Time from the complete request to the end of its answer.", _CALL_BOUNDS, *_OF_CALL
)
STREAMS_OPEN = _gauge("streams_open", "Streamed calls in progress.")
FIRST_CHUNK = _histogram(
    "time_to_first_chunk",
    "Time from the complete request to the first content that its provider sent.",
    _ANSWER_BOUNDS,
    *_OF_CALL,
)
CHUNK_GAP = _histogram(
    "chunk_gap",
    "Time between two reads of events, without the time in which a slow client paused the provider.",
    GAP_BOUNDS,
    "provider",
)
OVERHEAD = _histogram(
    "gateway_overhead",
    "Time from the complete request to its first attempt: parsing, limits, the choice of a target.",
    _WORK_BOUNDS,
)
ATTEMPTS = _counter("upstream_attempts", "Attempts at a provider, by result.", "provider", "result")
UPSTREAM_ERRORS = _counter(
    "upstream_errors", "Attempts at a provider that did not complete, by error code.", "provider", "code"
)
KEY_ATTEMPTS = _counter(
    "provider_key_attempts",
    "Attempts with each key of a provider that has several, by result.",
    *("provider", "provider_key", "result"),
)
KEYS_AT_LIMIT = _counter(
    "provider_keys_at_limit",
    "Times that a provider's key was skipped because it was at its limit of requests or tokens.",
    *("provider", "provider_key", "limit"),
)
FALLBACKS = _counter("fallbacks", "Attempts after the first attempt of their call.", "route")
STREAM_END = _counter("stream_end", "Streams that had started, by the reason of their end.", "reason")
TOKENS = _counter(
    "tokens", "Tokens, reported by the provider or estimated.", "provider", "model", "direction", "estimated"
)
COST = _counter("cost_usd", "Cost of calls in US dollars, as far as prices are known.", "provider", "model", unit=1e-9)
TEAM_COST = _counter(
    "team_cost_usd",
    "Cost of calls in US dollars by the team and the name of their key, as far as prices are known.",
    *("team", "key"),
    unit=1e-9,
)
CACHE_TOKENS = _counter(
    "cache_tokens",
    "Input tokens that were read from the provider's prompt cache, or written to it.",
    *("route", "provider", "model", "kind"),
)
CACHE_SAVED = _counter(
    "cache_saved_usd",
    "US dollars that prompt caches have saved in attempts that mostly read, and lost in those that mostly wrote.",
    *("route", "provider", "model", "kind"),
    unit=1e-9,
)
LEDGER_QUEUE = _gauge("ledger_queue", "Settled calls that are not yet written to the ledger.")
LEDGER_SPOOLED = _gauge("ledger_spooled", "Settled calls that wait because the ledger cannot be written.")
LEDGER_COMMIT = _histogram("ledger_commit", "Time to write a batch of entries to the ledger.", _WORK_BOUNDS)
BUDGET = _gauge(
    "budget_remaining_ratio",
    "Remaining part of a budget of a key or a team, from 1 to 0.",
    *("kind", "name", "period"),
    kind="least",
)
WEBHOOKS = _counter(
    "budget_webhooks",
    "Attempts to send budget warnings to the webhook, by result: delivered, retried, failed after all retries.",
    "result",
)
BREAKER_OPEN = _gauge(
    "circuit_breaker_open",
    "1 while a target of the configuration cools down, 0 while it may be tried.",
    *("provider", "model"),
    kind="most",
)
RELOAD_SUCCESSFUL = _gauge(
    "config_last_reload_successful", "Whether the last attempt to load the configuration was successful.", kind="least"
)
RELOADED_AT = _gauge(
    "config_last_reload_success_timestamp_seconds",
    "When the configuration in use was loaded, in seconds since 1970.",
    kind="least",
)
BUILD_INFO = _gauge("build_info", "1, with the version of Penstock and of Python.", "version", "python", kind="least")
LIMITS_STORE_UP = _gauge(
    "limits_store_up",
    "1 while the store for shared limits responds, 0 while a process uses its own share of the limits.",
    "store",
    kind="least",
)
LIMITS_STORE_CHANGES = _counter(
    "limits_store_changes", "Times that a worker found the store for shared limits down, or up again.", "store", "to"
)
LOOP_LAG = _histogram("loop_lag", "Delay of a timer of the event loop, measured once a second.", _LAG_BOUNDS)
REPAIRS = _counter("repairs", "Repaired defects in providers' streams.", "provider", "code")
FINDINGS = _counter("findings", "Defects in providers' streams that are not repaired.", "provider", "code")
NOTICES = _counter("notices", "Harmless deviations in providers' streams.", "provider", "code")
BY_LEVEL = {"repair": REPAIRS, "finding": FINDINGS, "notice": NOTICES}
"""By the level of a code in `core/hub/repairs.py`."""
LOSSES = _counter(
    "losses",
    "Fields that a translation between the client's API (surface) and the provider's dropped or approximated.",
    "surface",
    "provider",
    "code",
)
REJECTED = _counter("rejected_requests", "Requests that were rejected before they became calls, by reason.", "reason")
NOT_KEPT = _counter(
    "responses_not_kept", "Responses that should be kept and are not, by reason: their size, or the database.", "reason"
)
CONTENT_DROPPED = _counter(
    "content_dropped",
    "Calls whose content should be kept and is dropped, by reason: memory, the database, or the folder.",
    "reason",
)
DROPPED = _counter("telemetry_dropped", "Spans that were not exported.")
CPU = _of_process("cpu_seconds_total", "CPU time that a worker and its predecessors have used.", "counter")
MEMORY = _of_process("resident_memory_bytes", "Resident memory of a worker.")
OPEN_FILES = _of_process("open_fds", "Open file descriptors of a worker.")
MAX_FILES = _of_process("max_fds", "The most file descriptors that a worker may open.")
PROCESS_STARTED = _of_process("start_time_seconds", "When a worker was started, in seconds since 1970.")

FAMILIES = tuple(each for each in tuple(globals().values()) if isinstance(each, MetricSpec))
"""All of the above, in their order."""
BY_NAME = {family.name: family for family in FAMILIES}
