"""Progress: what has become of a call so far: its attempts, what its answer has, and how it ended."""

from collections import Counter
from typing import Literal

from msgspec import Struct

from penstock.core.hub.events import Ending, Event, Extra, Finish, Repair, Start, UsageReport
from penstock.core.hub.losses import Loss
from penstock.error_codes import ErrorCode
from penstock.gateway.record.attempt import Attempt
from penstock.gateway.record.control import AttemptControl
from penstock.gateway.record.entry import Entry

# The response header with the names of stores that do not work now.
_DEGRADED = "x-penstock-degraded"
# The events that `watch` reads.
NOTED = frozenset((Start, Finish, UsageReport, Repair, Extra))
# Per call. Further losses are not recorded.
_MAX_LOSSES = 1_000


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
