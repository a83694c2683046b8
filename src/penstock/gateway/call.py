"""Call: one client request from admission to settlement; Attempt: one try at one target. Both are what is logged."""

from penstock.core.events import Ending, Event, Repair, UsageReport
from penstock.core.usage import Usage


class Attempt:
    """One try at one target. `secrets` are what nobody may be told of it."""

    __slots__ = ("code", "model", "provider", "seconds", "secrets", "status")

    def __init__(self, provider: str, model: str, secrets: tuple[str, ...] = ()) -> None:
        self.provider = provider
        self.secrets = secrets
        self.model = model
        self.status = 0
        self.code = ""
        self.seconds = 0.0


class Call:
    """One client request: what was asked, what was tried, how it ended."""

    __slots__ = (
        "attempts",
        "code",
        "ending",
        "first_event_s",
        "id",
        "model",
        "repairs",
        "started",
        "status",
        "stream",
        "total_s",
        "usage",
    )

    def __init__(self, id: str, model: str, *, stream: bool, started: float) -> None:
        self.id = id
        self.model = model
        self.stream = stream
        self.started = started
        self.attempts: list[Attempt] = []
        self.status = 0
        self.ending: Ending | None = None
        self.code = ""
        self.first_event_s: float | None = None
        self.total_s = 0.0
        self.usage: Usage | None = None
        self.repairs: dict[str, int] = {}

    def watch(self, events: list[Event]) -> None:
        """Take note of what passes: repairs and usage."""
        for event in events:
            if type(event) is Repair:
                self.repairs[event.code] = self.repairs.get(event.code, 0) + 1
            elif type(event) is UsageReport:
                self.usage = event.usage
