"""Call: one client request from admission to settlement; Attempt: one try at one target. Both are what is accounted."""

from collections.abc import Callable, Mapping
from typing import Literal, Protocol

from msgspec import Struct, field

from penstock.core.completion import Completion
from penstock.core.dialects.registry import DEFAULT_DIALECT
from penstock.core.events import Ending, Event, Extra, Finish, Repair, Start, UsageReport
from penstock.core.losses import Loss
from penstock.core.price import STANDARD, ServiceTier
from penstock.core.request import Request
from penstock.core.usage import Tokens, Usage
from penstock.error_codes import ErrorCode
from penstock.gateway.billing.prices import PricedModel
from penstock.gateway.calls.trace import Trace
from penstock.gateway.keys.keys import Key
from penstock.gateway.relay.control import AttemptControl
from penstock.gateway.relay.event_gaps import EventGaps

NOTED = frozenset((Start, Finish, UsageReport, Repair, Extra))
# Of one call. What a provider sends beyond that is not counted.
_MOST_LOSSES = 1_000
# Longer than the name of any service tier.
_LONGEST_TIER = 64


class AnswerSource(Protocol):
    """What keeps an answer, as far as it has come."""

    @property
    def completion(self) -> Completion:
        """What was said so far."""


class Attempt(Struct, eq=False):
    """One try at one target: what is known of it. What acts on it while it is under way is its `AttemptControl`.

    `secrets` are what nobody may be told of it.
    """

    provider: str
    model: str
    secrets: tuple[str, ...] = ()
    dialect: str = DEFAULT_DIALECT
    """What the provider speaks."""
    priced: PricedModel | None = None
    """What its tokens cost, as it was when the attempt began; None where nobody knows."""
    tier: ServiceTier = STANDARD
    """The service tier that its price depends on."""
    began_s: float = 0.0
    """Since the call began."""
    span: str = ""
    """Its name in the trace of its call, where it had to have one before it began."""
    sent: bool = False
    """Whether the provider was asked."""
    answered: bool = False
    """Whether it had an answer, of which nothing could be read: too large, or cut off in an unstreamed body."""
    status: int = 0
    code: ErrorCode | Literal[""] = ""
    ending: Ending | None = None
    first_event_s: float | None = None
    seconds: float = 0.0
    usage: Usage | None = None
    tokens: Tokens | None = None
    """What the reported usage comes to, where that is known to be sound; then there need not be a `usage`."""
    response_id: str = ""
    response_model: str = ""
    """As the provider names them."""
    finishes: list[str] = []
    """Why its choices ended."""
    repairs: dict[str, int] = {}
    gaps: EventGaps = field(default_factory=EventGaps)
    answer: AnswerSource | None = None
    """What it answers, where somebody is to be told."""
    events: int = 0
    output_chars: int = 0
    """Characters that the model has said, thought and called tools with, so far."""
    audio_chars: int = 0
    """Characters of sound that the model has sent so far, as it is streamed."""

    def report_tier(self, name: object) -> None:
        """The provider reports a service tier, or nothing."""
        if isinstance(name, str) and name:
            self.tier = ServiceTier(self.tier.asked, name[:_LONGEST_TIER].lower())


class Call(Struct, eq=False):
    """One client request: what was asked and by whom, what was tried, how it ended."""

    id: str
    model: str
    stream: bool
    started: float
    surface: str = "chat"
    dialect: str = DEFAULT_DIALECT
    """What the client speaks."""
    trace: Trace | None = None
    """Whose part it is, where traces are kept."""
    span: str = ""
    """Its own name in that trace."""
    parameters: Mapping[str, bool | int | float] = {}
    """How the client wants to be answered: figures, and nothing that it says."""
    request: Request | None = None
    """What the client asks, where traces are to have it."""
    read_s: float = 0.0
    """When its request was there, by the clock that measures short times."""
    overhead_s: float | None = None
    """From then to the first attempt."""
    at_ms: int = 0
    """When it was made, since 1970."""
    key: Key | None = None
    tags: Mapping[str, str] = {}
    user: str = ""
    input_estimate: int = 0
    tier: ServiceTier = STANDARD
    """The service tier that the client asks for."""
    cap: int | None = None
    """Tokens that the client allows the answer to have; None where it does not say."""
    asking: bool = False
    """Whether the account of its key was asked to hold more for it, and has not answered yet."""
    used_up: bool = False
    """Whether its key's budget has no more than what is held for it."""
    held: int | None = None
    """What the account of its key holds for it, in nanodollars; None where it holds nothing."""
    on_text: Callable[[list[Event]], None] | None = None
    """Told what the model says, as it does, where somebody reads along."""
    headers: dict[str, str] = {}
    """What its key's limits have to say to the client."""
    attempts: list[Attempt] = []
    control: AttemptControl | None = None
    """The handle on the last attempt."""
    over: bool = False
    """Whether it is settled."""
    status: int = 0
    ending: Ending | None = None
    code: ErrorCode | Literal[""] = ""
    first_event_s: float | None = None
    total_s: float = 0.0
    repairs: dict[str, int] = {}
    losses: list[Loss] = []
    """What the translation of the request for the last target could not carry, and that of its answer."""
    strict: bool = False
    """Whether a loss that changes the meaning is a failure."""

    @property
    def usage(self) -> Usage | Tokens | None:
        """What the last provider reported."""
        if not self.attempts:
            return None
        last = self.attempts[-1]
        return last.tokens or last.usage

    def note_losses(self, losses: list[Loss]) -> None:
        """Add losses of the answer."""
        self.losses += losses[: max(0, _MOST_LOSSES - len(self.losses))]

    @property
    def reached(self) -> tuple[int, int]:
        """How far the last attempt has come: events and characters."""
        attempt, running = self.attempts[-1], self.control.running if self.control is not None else None
        return (running.frames if running is not None else attempt.events), attempt.output_chars

    def watch(self, events: list[Event]) -> None:
        """Take note of what passes: repairs and usage; who answers, and why it ended."""
        attempt = self.attempts[-1]
        for event in events:
            if type(event) not in NOTED:
                continue
            if isinstance(event, Start):
                attempt.response_id, attempt.response_model = event.id, event.model
            elif isinstance(event, Extra):
                if event.place == "chunk":
                    attempt.report_tier(event.fields.get("service_tier"))
                else:
                    attempt.audio_chars += _audio_chars(event)
            elif isinstance(event, Finish):
                attempt.finishes.append(event.reason)
            elif isinstance(event, UsageReport):
                attempt.usage = event.usage
                attempt.report_tier(event.usage.tier)
            elif isinstance(event, Repair):
                self.repairs[event.code] = self.repairs.get(event.code, 0) + 1
                attempt.repairs[event.code] = attempt.repairs.get(event.code, 0) + 1


def _audio_chars(extra: Extra) -> int:
    match extra:
        case Extra("delta", {"audio": {"data": str(data)}}):
            return len(data)
        case _:
            return 0
