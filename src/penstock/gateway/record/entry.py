"""Entry: the immutable ledger record of a settled call and of each attempt at it.

Money is a whole number of nanodollars (10⁻⁹ US dollars); time is in milliseconds. An entry has no content.
"""

from collections.abc import Mapping
from typing import Literal, TypeAlias

from msgspec import Struct

from penstock.core.hub.usage import Tokens

__all__ = ["AttemptEntry", "Entry", "Measure", "Outcome", "Tokens"]

# How a call ended: as its stream did; or refused before the first attempt; or left open by a gateway that died.
Outcome: TypeAlias = Literal["completed", "truncated", "failed", "cancelled", "timed_out", "refused", "orphaned"]
# The origin of the tokens: the provider's usage, an estimate, or none because nothing was generated and nothing is due.
Measure: TypeAlias = Literal["reported", "estimated", "void"]


class AttemptEntry(Struct, frozen=True, omit_defaults=True):
    """One try at one target. `cost` is None if tokens were used whose price is unknown: *unpriced*.

    `price` names the price table and its version. `tier` is the service tier, empty for the standard one. The cost is
    `approximate` if it is uncertain which rate applies: see `gateway/record/price.py`, rule 6.
    """

    provider: str
    model: str
    outcome: Outcome
    status: int = 0
    code: str = ""
    measure: Measure = "void"
    tokens: Tokens = Tokens()
    cost: int | None = 0
    approximate: bool = False
    saved: int = 0
    """What the provider's prompt cache has saved, which the cost is without; negative if its writes cost more than its
    reads saved. Of an answer that is copied from another call: the cost of that call."""
    price: str = ""
    tier: str = ""
    began_ms: int = 0
    """The start of the attempt, since that of the call."""
    first_event_ms: int | None = None
    """Since the start of the attempt."""
    duration_ms: int = 0
    events: int = 0
    longest_gap_ms: int = 0
    """Between two events."""
    stalls: tuple[tuple[int, int], ...] = ()
    """The first gaps of more than a second: the start since that of the attempt, and the duration."""


class Entry(Struct, frozen=True, omit_defaults=True):
    """One call. Its tokens and its cost are the sums of its attempts'."""

    id: str
    at_ms: int
    """When it was received, since 1970."""
    model: str
    """The name that the client requested: a route, or provider/model."""
    outcome: Outcome
    key: str = ""
    """The id of the key; empty if the gateway requires none."""
    surface: str = "chat"
    stream: bool = False
    status: int = 0
    code: str = ""
    error: str = ""
    """The sentence of the error that the client got; empty if there was none, or if it could quote content."""
    first_event_ms: int | None = None
    duration_ms: int = 0
    repairs: Mapping[str, int] = {}
    losses: Mapping[str, int] = {}
    """The number of losses by code (`core/hub/losses.py`) in the translation of the request and the answer."""
    tags: Mapping[str, str] = {}
    """The client's own (`metadata`), over those of its key."""
    user: str = ""
    team: str = ""
    """The path of the key's team when the call was admitted; empty if it had none."""
    owner: str = ""
    """The owner of the key. The journal has it; in the book it is that of the key, and empty here."""
    attempts: tuple[AttemptEntry, ...] = ()

    @property
    def tokens(self) -> Tokens:
        """The sum over all attempts."""
        if len(self.attempts) == 1:
            return self.attempts[0].tokens
        return Tokens.sum(attempt.tokens for attempt in self.attempts)

    @property
    def measure(self) -> Measure:
        """Estimated if any attempt is; reported if any is; else void."""
        if len(self.attempts) == 1:
            return self.attempts[0].measure
        measures = {attempt.measure for attempt in self.attempts}
        return "estimated" if "estimated" in measures else "reported" if "reported" in measures else "void"

    @property
    def cost(self) -> int | None:
        """The sum over all attempts; None if any is unpriced."""
        if len(self.attempts) == 1:
            return self.attempts[0].cost
        costs = [attempt.cost for attempt in self.attempts]
        return None if None in costs else sum(cost for cost in costs if cost is not None)

    @property
    def saved(self) -> int:
        """The sum over all attempts."""
        return sum([attempt.saved for attempt in self.attempts])

    @property
    def approximate(self) -> bool:
        """Whether the cost of any attempt is approximate."""
        return True in [attempt.approximate for attempt in self.attempts]

    @property
    def priced(self) -> int:
        """The known part of the cost: the sum over the attempts with a price."""
        return sum([attempt.cost or 0 for attempt in self.attempts])
