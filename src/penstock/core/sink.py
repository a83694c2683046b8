"""Sink: where the stages of a reader put events, with the place in the bytes that repairs and faults need."""

from msgspec import Struct

from penstock.core.events import Event, Fault, Repair


class Sink(Struct, eq=False):
    """A list of events under construction, and where in the stream the reader stands."""

    events: list[Event] = []
    offset: int = 0
    line: int = 1

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
