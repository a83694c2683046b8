"""Call: one client request, from its admission to its settlement; and Progress: what has become of it so far."""

from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from typing import Literal, ParamSpec, Protocol

from msgspec import Struct, field

from penstock.core.dialects.registry import DEFAULT_DIALECT
from penstock.core.hub.events import BlockStart, Ending, Event, Extra, Finish, Repair, Start, UsageReport
from penstock.core.hub.losses import Loss
from penstock.error_codes import ErrorCode
from penstock.gateway.content.collected import CollectedContent
from penstock.gateway.keys.client_key import ClientKey
from penstock.gateway.record.attempt import Attempt, AttemptControl
from penstock.gateway.record.client_credentials import ClientCredentials
from penstock.gateway.record.entry import Entry
from penstock.gateway.record.price import STANDARD, ServiceTier
from penstock.gateway.record.requirements import Requirements
from penstock.gateway.record.trace import Trace

Arguments = ParamSpec("Arguments")
EMBEDDINGS = "embeddings"
"""The surface of calls that generate no answer."""

# The response header with the names of stores that do not work now.
_DEGRADED = "x-penstock-degraded"
# The events that `watch` reads.
NOTED = frozenset((Start, Finish, UsageReport, Repair, Extra, BlockStart))
_TEXT_BLOCKS = frozenset(("text", "reasoning"))
# Per call. Further losses are not recorded.
_MAX_LOSSES = 1_000


def _raise(error: BaseException) -> None:
    raise error


class AnswerKeeping(Protocol):
    """Keeps the answer of a call, so that the client can read it again and continue it."""

    def overrides(self, issuer: str) -> Mapping[str, object]:
        """The members of the answer that the gateway sets, if this provider account answers."""

    def keep(self, data: bytes, then: Callable[[bytes], None]) -> bool:
        """Keep the answer in the last bytes for the client, then call `then` with these bytes. If the answer could not
        be kept, they say so.

        Returns False if nothing is to be kept, and `then` is not called.
        """


class Progress(Struct, eq=False):
    """The progress of one call. Relays, the client's side and the ledger write it."""

    attempts: list[Attempt] = []
    control: AttemptControl | None = None
    """The control of the last attempt."""
    headers: dict[str, str] = {}
    """Headers of the response: its id, and the rate limits of the key."""
    overhead_s: float | None = None
    """The time from `Call.read_s` to the first attempt."""
    commit_s: float | None = None
    """The time from the start of the call to its commit point: the first content, or an unstreamed answer as a
    whole."""
    total_s: float = 0.0
    heartbeats: int = 0
    """How many heartbeats the client has got, from all attempts."""
    losses: list[Loss] = []
    """The losses in the translation of the request for the last target, and in that of its answer."""
    breakpoints: tuple[str, ...] = ()
    """Where the gateway has set breakpoints for the prompt cache in the request for the last target."""
    keys_at_limit: list[tuple[str, str, str]] = []
    """The keys of providers that were at their limit: provider, key and limit."""
    status: int = 0
    ending: Ending | None = None
    code: ErrorCode | Literal[""] = ""
    error: str = ""
    """The sentence of the error, for the ledger."""
    over: bool = False
    """Whether the call is settled."""
    entry: Entry | None = None
    """Its entry, once it is settled."""

    def degrade(self, stores: str) -> None:
        """Tell the client that these stores do not work now."""
        self.headers[_DEGRADED] = ",".join(filter(None, (self.headers.get(_DEGRADED), stores)))

    def note_losses(self, losses: list[Loss]) -> None:
        """Add losses of the answer."""
        self.losses += losses[: max(0, _MAX_LOSSES - len(self.losses))]

    @property
    def repairs(self) -> dict[str, int]:
        """How many repairs of each code all attempts needed."""
        attempts = self.attempts
        if len(attempts) == 1:
            return attempts[0].repairs
        return dict(sum((Counter(attempt.repairs) for attempt in attempts), Counter[str]()))

    @property
    def reached(self) -> tuple[int, int]:
        """The progress of the last attempt: events and characters."""
        attempt, running = self.attempts[-1], self.control.running if self.control is not None else None
        return (running.frames if running is not None else attempt.frames), attempt.output_chars

    def watch(self, events: list[Event]) -> None:
        """Record repairs, usage, response id and model, and finish reasons of these events."""
        attempt = self.attempts[-1]
        for event in events:
            if type(event) not in NOTED:
                continue
            if isinstance(event, Repair):
                attempt.repairs[event.code] = attempt.repairs.get(event.code, 0) + 1
            elif isinstance(event, Start):
                attempt.response_id, attempt.response_model = event.id, event.model
            elif isinstance(event, Extra):
                if event.place != "chunk":
                    attempt.audio_chars += _audio_chars(event)
                elif "service_tier" in event.fields:
                    attempt.report_tier(event.fields["service_tier"])
            elif isinstance(event, BlockStart):
                attempt.only_text = attempt.only_text and event.kind in _TEXT_BLOCKS
            elif isinstance(event, Finish):
                attempt.finishes.append(event.reason)
            elif isinstance(event, UsageReport):
                attempt.usage = event.usage
                attempt.report_tier(event.usage.tier)


class Call(Struct, eq=False):
    """One client request: what is known when it is admitted, and its progress."""

    id: str
    model: str
    stream: bool
    started: float
    surface: str = "chat"
    dialect: str = DEFAULT_DIALECT
    """The client's."""
    trace: Trace | None = None
    """The trace that it belongs to, if traces are exported."""
    read_s: float = 0.0
    """When the request was read, by `time.perf_counter`."""
    at_ms: int = 0
    """When it was received, in milliseconds since 1970."""
    key: ClientKey | None = None
    credentials: ClientCredentials | None = None
    """The client's own credentials for a provider, if it sent some."""
    tags: Mapping[str, str] = {}
    user: str = ""
    input_estimate: int = 0
    tier: ServiceTier = STANDARD
    """The service tier that the client requests."""
    on_text: Callable[[list[Event]], None] | None = None
    """Called with the events as they come, while the admin page shows the call's text."""
    stream_type: str = ""
    """The content type of a streamed answer, if it is not that of server-sent events."""
    failures_in_stream: frozenset[str] = frozenset()
    """The codes of failures that the client gets in a stream, with status 200 (`ClientRequest.failures_in_stream`)."""
    tells_cost: bool = False
    """Whether the client learns what the call has cost, if its answer is not streamed."""
    reported: bool = False
    """Whether the client asks for a report at the end of a stream."""
    strict: bool = False
    """Whether a loss that changes the meaning is a failure."""
    reasons: Mapping[int, str] = {}
    """Why its targets are in their order, by the place of each in the route; empty if there was no choice."""
    may_leave: bool = False
    """Whether a target that begins late may be left for the next one."""
    requirements: tuple[Requirements, ...] = ()
    """What it requires of providers, by its header and by its route."""
    routing_headers: Mapping[str, str] = {}
    """The headers of its request by which routes recognise a conversation, and those that providers get."""
    keeping: AnswerKeeping | None = None
    """Keeps its answer, if the client may continue it."""
    compared: bool = False
    """Whether its answer is collected, to be compared with that of another call."""
    content: CollectedContent | None = None
    """Its request and answer, if the operator may keep them."""
    progress: Progress = field(default_factory=Progress)
    fail: Callable[[BaseException], None] = _raise
    """Ends the call after an exception of ours: the client gets an internal error. The client's side sets it."""

    def guarded(self, callback: Callable[Arguments, None]) -> Callable[Arguments, None]:
        """The callback, of which every exception ends this call and reaches no event loop, which would drop it."""
        return partial(self._run_guarded, callback)

    def _run_guarded(
        self, callback: Callable[Arguments, None], *args: Arguments.args, **kwargs: Arguments.kwargs
    ) -> None:
        try:
            callback(*args, **kwargs)
        except Exception as error:  # noqa: BLE001 - the call ends
            self.fail(error)


def _audio_chars(extra: Extra) -> int:
    match extra:
        case Extra("delta", {"audio": {"data": str(data)}}):
            return len(data)
        case _:
            return 0
