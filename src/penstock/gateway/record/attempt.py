"""Attempt: one try at one target of a call."""

from typing import Literal

from msgspec import Struct, field

from penstock.core.dialects.registry import DEFAULT_DIALECT
from penstock.core.hub.events import Ending
from penstock.core.hub.usage import Tokens, Usage
from penstock.error_codes import ErrorCode
from penstock.gateway.content.collected import AnswerSource
from penstock.gateway.record.event_gaps import EventGaps
from penstock.gateway.record.price import STANDARD, STANDARD_TIERS, PricedModel, ServiceTier

# Longer than the name of any service tier.
_MAX_TIER = 64


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
    client_credentials: bool = False
    """Whether it is authorized by a credential of the client's own."""

    def report_tier(self, name: object) -> None:
        """Set the service tier that the provider reports, if it reports one.

        `STANDARD` stays the same object if the provider reports that tier by one of its names, as it nearly always is.
        """
        if name and isinstance(name, str) and not (self.tier is STANDARD and name in STANDARD_TIERS):
            self.tier = ServiceTier(self.tier.requested, name[:_MAX_TIER].lower())
