"""Attempt: one try at one target of a call, the gaps between its events, and what controls it while it runs."""

from collections.abc import Callable
from typing import Literal, Protocol, TypeAlias

from msgspec import Struct, field

from penstock.core.dialects.registry import DEFAULT_DIALECT
from penstock.core.fast.format import PlainBody
from penstock.core.hub.events import Ending, Event
from penstock.core.hub.failure import Failure
from penstock.core.hub.usage import Tokens, Usage
from penstock.error_codes import ErrorCode
from penstock.gateway.content.collected import AnswerSource
from penstock.gateway.record.price import STANDARD, STANDARD_TIERS, PricedModel, ServiceTier
from penstock.gateway.record.sent_text import SentText
from penstock.gateway.record.transcript import TRIM_EVERY, Transcript, count_chars

# Longer than the name of any service tier.
_MAX_TIER = 64
# The upper bounds of the buckets in seconds, as OpenTelemetry defines them. One more bucket counts longer gaps.
GAP_BOUNDS = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92)
# A longer gap is a stall: a person who reads the answer notices it.
STALL_S = 1.0
# More stalls are counted in the histogram, but not stored one by one.
MAX_STALLS = 32
_NONE = [0] * (len(GAP_BOUNDS) + 1)
NO_LIMIT = 1 << 60
MAX_CHARS = 32_000_000
"""The maximum number of characters in one answer, far above what models write. The gateway keeps the text in memory
for dialects whose last event repeats the answer."""


class EventGaps(Struct, eq=False):
    """Histogram of the time between consecutive events of an attempt. Updated for every event: keep it cheap.

    A gap is the time between two reads that brought events; events of the same read have no gap. The time of a pause
    (backpressure) does not count. The caller adds a gap to `counts`, and calls `note` if it exceeds `notable_s`.
    """

    counts: list[int] = field(default_factory=_NONE.copy)
    total_s: float = 0.0
    """The sum of all gaps; set when the attempt has ended."""
    longest_s: float = 0.0
    notable_s: float = 0.0
    """A longer gap is the longest so far, or a stall."""
    stalls: list[tuple[int, int]] = []
    """The first stalls: the start since that of the attempt, and the duration, in milliseconds."""

    def note(self, gap_s: float, at_s: float) -> None:
        """Note a gap that exceeds `notable_s`. It started `at_s` after the attempt."""
        self.longest_s = max(self.longest_s, gap_s)
        self.notable_s = min(self.longest_s, STALL_S)
        if gap_s > STALL_S and len(self.stalls) < MAX_STALLS:
            self.stalls.append((round(at_s * 1000), round(gap_s * 1000)))


CopyKind: TypeAlias = Literal["shared", "cache"]
"""Where a copied answer comes from: a call that was in progress, or one that had ended."""


class Copied(Struct, frozen=True):
    """The answer of an attempt is that of another call, and costs nothing."""

    of: str
    """The id of that call."""
    kind: CopyKind
    """The price of the attempt, by name."""
    saved: int = 0
    """What that call has cost, in nanodollars, if the copy is whole."""


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
    only_text: bool = True
    """Whether its blocks, but for calls of tools, are text and reasoning."""
    prefilled: int = 0
    """The tokens of the answer so far, with which it goes on."""
    why: str = ""
    """Why this target was chosen; empty if there was no choice."""
    copied: Copied | None = None
    """Which answer it copies, if it asks no provider."""
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

    def note_whole(self, plain: PlainBody) -> None:
        """Note what an unstreamed answer has, which is forwarded as it came."""
        self.response_id, self.response_model = plain.id, plain.model
        self.finishes += plain.finishes
        self.tokens = plain.tokens
        self.output_chars += plain.chars
        for tier in plain.tiers:
            self.report_tier(tier)


class RunningAnswer(Protocol):
    """The relay of an answer in progress."""

    @property
    def frames(self) -> int:
        """How many frames have come so far."""

    @property
    def last_event_at(self) -> float:
        """When the last event came, by the clock of the event loop; before the first one, when the attempt began."""

    @property
    def committed(self) -> bool:
        """Whether the client gets an answer: it is past its commit point, and has not ended."""

    def stop(self, failure: Failure, ending: Ending) -> None:
        """End the answer and send the client this failure."""

    def pause_for_limit(self, paused: bool) -> None:
        """Pause reading from the provider, or resume it."""


class AttemptControl:
    """Stops, pauses and limits one attempt in progress, and keeps its transcript for the admin page.

    The relay registers itself here while the answer arrives. A budget sets a limit on the characters that the model may
    send. The limit and the transcript need attention only when the attempt has sent `check_at` characters, so the relay
    compares one number per event.
    """

    on_limit: Callable[[], None] | None = None
    """Called once when the limit is reached."""
    running: RunningAnswer | None = None
    """The relay, while the answer arrives."""
    transcript: Transcript | SentText | None = None
    """The text so far, if the operator allows the admin page to show it."""
    refusal_fails = False
    """Whether a refusal of the model is a failure, because the route has another target for it."""
    _limit = NO_LIMIT

    def __init__(self, attempt: Attempt) -> None:
        self._attempt = attempt
        self.check_at = MAX_CHARS
        """The number of characters at which the relay must call `check`."""

    @property
    def limit(self) -> int:
        """The number of characters at which `on_limit` is called."""
        return self._limit

    @limit.setter
    def limit(self, output_chars: int) -> None:
        self._limit = output_chars
        self.check_at = min(self.check_at, output_chars)

    def keep_transcript(self, sent: SentText | None = None) -> None:
        """Start to keep the text, in `sent` if another target may go on with the answer."""
        self.transcript = sent if sent is not None else Transcript()
        self.check_at = min(self.check_at, self._attempt.output_chars + TRIM_EVERY)

    def drop_transcript(self) -> None:
        """Delete the text and keep no more of it."""
        if self.transcript is not None:
            self.transcript.clear()
            self.transcript = None
            self.check_at = 0

    @property
    def count_text(self) -> Callable[[list[Event]], int]:
        """The function that counts the characters of events and keeps their text if needed.

        Read it again after `check`.
        """
        return count_chars if self.transcript is None else self.transcript.append

    def check(self) -> None:
        """`check_at` is reached: call `on_limit` if its limit is reached, and trim the transcript."""
        output_chars = self._attempt.output_chars
        if output_chars >= self._limit and self.on_limit is not None:
            self._limit = NO_LIMIT
            self.on_limit()
        self.check_at = min(self._limit, MAX_CHARS)
        if self.transcript is not None:
            self.transcript.trim()
            self.check_at = min(self.check_at, output_chars + TRIM_EVERY)

    def release(self) -> None:
        """The attempt has ended: drop the references to the relay and the budget, and the text."""
        self.running = self.on_limit = None
        if self.transcript is not None:
            self.drop_transcript()
