"""Call: one client request from admission to settlement; Attempt: one try at one target. Accounting reads both."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Literal, ParamSpec, Protocol

from msgspec import Struct, field

from penstock.core.dialects.registry import DEFAULT_DIALECT
from penstock.core.hub.events import Ending, Event, Extra, Finish, Repair, Start, UsageReport
from penstock.core.hub.losses import Loss
from penstock.core.hub.request import Request
from penstock.core.hub.usage import Tokens, Usage
from penstock.core.price import STANDARD, STANDARD_TIERS, ServiceTier
from penstock.error_codes import ErrorCode
from penstock.gateway.billing.prices import PricedModel
from penstock.gateway.calls.trace import Trace
from penstock.gateway.content.collected import AnswerSource, CollectedContent
from penstock.gateway.keys.keys import Key
from penstock.gateway.relay.control import AttemptControl
from penstock.gateway.relay.event_gaps import EventGaps

Arguments = ParamSpec("Arguments")
DEGRADED = "x-penstock-degraded"
"""The response header with the names of stores that do not work now."""
NOTED = frozenset((Start, Finish, UsageReport, Repair, Extra))
# Per call. Further losses are not recorded.
_MAX_LOSSES = 1_000
# Longer than the name of any service tier.
_MAX_TIER = 64


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


class Attempt(Struct, eq=False):
    """The data of one try at one target. Its `AttemptControl` acts on it while it is in progress.

    `secrets` must not appear in any error or log: the provider's credentials.
    """

    provider: str
    model: str
    secrets: tuple[str, ...] = ()
    dialect: str = DEFAULT_DIALECT
    """The provider's."""
    priced: PricedModel | None = None
    """The prices when the attempt started; None if they are unknown."""
    tier: ServiceTier = STANDARD
    """The service tier that its price depends on."""
    began_s: float = 0.0
    """The start, in seconds since that of the call."""
    span: str = ""
    """Its span id, if it is sent to the provider (`telemetry.propagate`)."""
    sent: bool = False
    """Whether the request was sent or is about to be. Set when the attempt gets its connection."""
    answered: bool = False
    """Whether the provider had generated an answer, and so bills for it, although the attempt failed: the answer was
    too large, could not be translated, or was unstreamed and did not arrive completely."""
    status: int = 0
    code: ErrorCode | Literal[""] = ""
    ending: Ending | None = None
    commit_s: float | None = None
    """The time from its start to the commit point: the first content, or an unstreamed answer as a whole."""
    seconds: float = 0.0
    usage: Usage | None = None
    tokens: Tokens | None = None
    """The reported usage from the fast path, which is consistent by construction; then `usage` may be None."""
    response_id: str = ""
    response_model: str = ""
    """The provider's own names."""
    finishes: list[str] = []
    """The finish reasons of its choices."""
    repairs: dict[str, int] = {}
    gaps: EventGaps = field(default_factory=EventGaps)
    answer: AnswerSource | None = None
    """The answer, if traces include content, or if it may be kept."""
    frames: int = 0
    output_chars: int = 0
    """Characters of text, reasoning and tool calls so far."""
    audio_chars: int = 0
    """Characters of base64-encoded audio so far."""
    provider_key: str = ""
    """The name of the provider's key, if the provider has several."""

    def report_tier(self, name: object) -> None:
        """Set the service tier that the provider reports, if it reports one.

        `STANDARD` stays the same object if the provider reports that tier by one of its names, as it nearly always is.
        """
        if name and isinstance(name, str) and not (self.tier is STANDARD and name in STANDARD_TIERS):
            self.tier = ServiceTier(self.tier.requested, name[:_MAX_TIER].lower())


class Call(Struct, eq=False):
    """One client request: the request and its key, the attempts, and the ending."""

    id: str
    model: str
    stream: bool
    started: float
    surface: str = "chat"
    dialect: str = DEFAULT_DIALECT
    """The client's."""
    trace: Trace | None = None
    """The trace that it belongs to, if traces are exported."""
    span: str = ""
    """Its span id in that trace."""
    parameters: Mapping[str, bool | int | float] = {}
    """The numeric and boolean parameters of the request, for traces. They contain no text of the client."""
    request: Request | None = None
    """The request, if traces include content."""
    read_s: float = 0.0
    """When the request was read, by `time.perf_counter`."""
    overhead_s: float | None = None
    """The time from `read_s` to the first attempt."""
    at_ms: int = 0
    """When it was received, in milliseconds since 1970."""
    key: Key | None = None
    chain: tuple[Key, ...] = ()
    """The accounts in which it is reserved, if there are others than that of its key."""
    tags: Mapping[str, str] = {}
    user: str = ""
    input_estimate: int = 0
    audio_estimate: int = 0
    """The part of the estimated input that is audio."""
    tier: ServiceTier = STANDARD
    """The service tier that the client requests."""
    cap: int | None = None
    """The client's limit on output tokens; None if the request has none."""
    extending: bool = False
    """Whether a request to reserve more of the key's budget is not answered yet."""
    used_up: bool = False
    """Whether the key's budget, or that of a team of it, has no more than the reservation of this call."""
    used_up_by: str = "this key"
    """Whose budget that is."""
    reserved: int | None = None
    """The amount reserved in the account of its key, in nanodollars; None without a reservation."""
    on_text: Callable[[list[Event]], None] | None = None
    """Called with the events as they come, while the admin page shows the call's text."""
    stream_type: str = ""
    """The content type of a streamed answer, if it is not that of server-sent events."""
    headers: dict[str, str] = {}
    """Response headers about the key's rate limits."""
    attempts: list[Attempt] = []
    control: AttemptControl | None = None
    """The control of the last attempt."""
    over: bool = False
    """Whether the call is settled."""
    status: int = 0
    ending: Ending | None = None
    code: ErrorCode | Literal[""] = ""
    error: str = ""
    """The sentence of the error, for the ledger."""
    commit_s: float | None = None
    """As in `Attempt`, but from the start of the call, with all its attempts."""
    total_s: float = 0.0
    repairs: dict[str, int] = {}
    failures_in_stream: frozenset[str] = frozenset()
    """As in `ClientRequest`."""
    heartbeats: int = 0
    """How many heartbeats the client has got, from all attempts."""
    losses: list[Loss] = []
    """The losses in the translation of the request for the last target, and in that of its answer."""
    strict: bool = False
    """Whether a loss that changes the meaning is a failure."""
    keeping: AnswerKeeping | None = None
    """Keeps its answer, if the client may continue it."""
    key_holds: dict[int, str] = {}
    """By number of the attempt: the account of the provider's key that has tokens reserved for it."""
    yielded: list[tuple[str, str, str]] = []
    """The keys of providers that were at their limit: provider, key and limit."""
    content: CollectedContent | None = None
    """Its request and answer, if the operator may keep them."""
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

    @property
    def usage(self) -> Usage | Tokens | None:
        """The usage that the last provider reported."""
        if not self.attempts:
            return None
        last = self.attempts[-1]
        return last.tokens or last.usage

    def note_losses(self, losses: list[Loss]) -> None:
        """Add losses of the answer."""
        self.losses += losses[: max(0, _MAX_LOSSES - len(self.losses))]

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
                self.repairs[event.code] = self.repairs.get(event.code, 0) + 1
                attempt.repairs[event.code] = attempt.repairs.get(event.code, 0) + 1
            elif isinstance(event, Start):
                attempt.response_id, attempt.response_model = event.id, event.model
            elif isinstance(event, Extra):
                if event.place != "chunk":
                    attempt.audio_chars += _audio_chars(event)
                elif "service_tier" in event.fields:
                    attempt.report_tier(event.fields["service_tier"])
            elif isinstance(event, Finish):
                attempt.finishes.append(event.reason)
            elif isinstance(event, UsageReport):
                attempt.usage = event.usage
                attempt.report_tier(event.usage.tier)


def _audio_chars(extra: Extra) -> int:
    match extra:
        case Extra("delta", {"audio": {"data": str(data)}}):
            return len(data)
        case _:
            return 0
