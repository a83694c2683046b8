"""Call: one client request from admission to settlement; Attempt: one try at one target. Both are what is accounted."""

from collections.abc import Callable, Mapping
from typing import Protocol

from penstock.core.completion import Completion
from penstock.core.events import (
    Ending,
    Event,
    Finish,
    ReasoningDelta,
    RefusalDelta,
    Repair,
    Start,
    TextDelta,
    ToolCallDelta,
    ToolCallStart,
    UsageReport,
)
from penstock.core.usage import Usage
from penstock.gateway.failure import Failure
from penstock.gateway.gaps import Gaps
from penstock.gateway.keys import Key
from penstock.gateway.prices import PricedModel
from penstock.gateway.trace import Trace

NO_LIMIT = 1 << 60
_SPOKEN = (TextDelta, ReasoningDelta, RefusalDelta)


class Framed(Protocol):
    """What reads an answer, as far as its attempt is asked how far it has come."""

    @property
    def frames(self) -> int:
        """How many events there were so far."""


class Answer(Protocol):
    """What keeps an answer, as far as it has come."""

    @property
    def completion(self) -> Completion:
        """What was said so far."""


class Attempt:
    """One try at one target. `secrets` are what nobody may be told of it."""

    __slots__ = (
        "answered",
        "began_s",
        "code",
        "ending",
        "events",
        "finishes",
        "first_event_s",
        "gaps",
        "heard",
        "limit",
        "model",
        "on_limit",
        "priced",
        "provider",
        "reader",
        "repairs",
        "response_id",
        "response_model",
        "said",
        "seconds",
        "secrets",
        "sent",
        "span",
        "status",
        "stop",
        "usage",
    )

    def __init__(self, provider: str, model: str, secrets: tuple[str, ...] = ()) -> None:
        self.provider = provider
        self.secrets = secrets
        self.model = model
        self.priced: PricedModel | None = None
        """What its tokens cost, as it was when the attempt began; None where nobody knows."""
        self.began_s = 0.0
        """Since the call began."""
        self.span = ""
        """Its name in the trace of its call, where it had to have one before it began."""
        self.sent = False
        """Whether the provider was asked."""
        self.answered = False
        """Whether it had an answer, of which nothing could be read: too large, or cut off in an unstreamed body."""
        self.status = 0
        self.code = ""
        self.ending: Ending | None = None
        self.first_event_s: float | None = None
        self.seconds = 0.0
        self.usage: Usage | None = None
        self.response_id = ""
        self.response_model = ""
        """As the provider names them."""
        self.finishes: list[str] = []
        """Why its choices ended."""
        self.repairs: dict[str, int] = {}
        self.gaps = Gaps()
        self.heard: Answer | None = None
        """What it answers, where somebody is to be told."""
        self.events = 0
        self.said = 0
        """Characters that the model has said, thought and called tools with, so far."""
        self.limit = NO_LIMIT
        """Of `said`: when it is reached, `on_limit` is called once."""
        self.on_limit: Callable[[], None] | None = None
        self.reader: Framed | None = None
        """What reads the answer, while it comes."""
        self.stop: Callable[[Failure, Ending], None] | None = None
        """Ends the answer, while it comes, and tells the client why."""

    @property
    def reached(self) -> tuple[int, int]:
        """How far the answer has come: events and characters."""
        return (self.reader.frames if self.reader is not None else self.events), self.said


class Call:
    """One client request: what was asked and by whom, what was tried, how it ended."""

    __slots__ = (
        "at_ms",
        "attempts",
        "cap",
        "code",
        "ending",
        "first_event_s",
        "headers",
        "held",
        "id",
        "input_estimate",
        "key",
        "messages",
        "model",
        "on_text",
        "over",
        "overhead_s",
        "parameters",
        "read_s",
        "repairs",
        "span",
        "started",
        "status",
        "stream",
        "surface",
        "tags",
        "total_s",
        "trace",
        "used_up",
        "user",
    )

    def __init__(self, id: str, model: str, *, stream: bool, started: float, surface: str = "chat") -> None:
        self.id = id
        self.surface = surface
        self.model = model
        self.stream = stream
        self.started = started
        self.trace: Trace | None = None
        """Whose part it is, where traces are kept."""
        self.span = ""
        """Its own name in that trace."""
        self.parameters: Mapping[str, bool | int | float] = {}
        """How the client wants to be answered: figures, and nothing that it says."""
        self.messages: object = None
        """What the client says, where somebody is to be told."""
        self.read_s = 0.0
        """When its request was there, by the clock that measures short times."""
        self.overhead_s: float | None = None
        """From then to the first attempt."""
        self.at_ms = 0
        """When it was made, since 1970."""
        self.key: Key | None = None
        self.tags: Mapping[str, str] = {}
        self.user = ""
        self.input_estimate = 0
        self.cap: int | None = None
        """Tokens that the client allows the answer to have; None where it does not say."""
        self.used_up = False
        """Whether its key's budget has no more than what is held for it."""
        self.held: int | None = None
        """What the account of its key holds for it, in nanodollars; None where it holds nothing."""
        self.on_text: Callable[[list[Event]], None] | None = None
        """Told what the model says, as it does, where somebody reads along."""
        self.headers: dict[str, str] = {}
        """What its key's limits have to say to the client."""
        self.attempts: list[Attempt] = []
        self.over = False
        """Whether it is settled."""
        self.status = 0
        self.ending: Ending | None = None
        self.code = ""
        self.first_event_s: float | None = None
        self.total_s = 0.0
        self.repairs: dict[str, int] = {}

    @property
    def usage(self) -> Usage | None:
        """What the last provider reported."""
        return self.attempts[-1].usage if self.attempts else None

    def watch(self, events: list[Event]) -> None:
        """Take note of what passes: repairs and usage; who answers, and why it ended."""
        attempt = self.attempts[-1]
        for event in events:
            if type(event) is Repair:
                self.repairs[event.code] = self.repairs.get(event.code, 0) + 1
                attempt.repairs[event.code] = attempt.repairs.get(event.code, 0) + 1
            elif type(event) is UsageReport:
                attempt.usage = event.usage
            elif type(event) is Finish:
                attempt.finishes.append(event.reason)
            elif type(event) is Start:
                attempt.response_id, attempt.response_model = event.id, event.model


def size_of(events: list[Event]) -> int:
    """How many characters the model says in these events."""
    size = 0
    for event in events:
        if isinstance(event, _SPOKEN):
            size += len(event.text)
        elif isinstance(event, ToolCallDelta):
            size += len(event.arguments)
        elif isinstance(event, ToolCallStart):
            size += len(event.name)
    return size
