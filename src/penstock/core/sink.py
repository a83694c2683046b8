"""Sink: where the stages of a reader put events, with the place in the bytes that repairs and faults need."""

from penstock.core.events import Event, Fault, Repair


class Sink:
    """A list of events under construction, and where in the stream the reader stands."""

    __slots__ = ("events", "line", "offset")

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.offset = 0
        self.line = 1

    def repair(self, code: str, detail: str = "") -> None:
        """Record a tolerated defect, here."""
        self.events.append(Repair(code, self.offset, self.line, detail))

    def fault(self, code: str, message: str, provider: dict[str, object] | None = None) -> None:
        """Record that the stream has failed, here."""
        self.events.append(Fault(code, message, self.offset, self.line, provider))

    def take(self) -> list[Event]:
        """What was gathered; the sink is empty after that."""
        events, self.events = self.events, []
        return events
