"""Sink: where the stages of a reader put events, with the position in the bytes for repairs and faults."""

from msgspec import Struct

from penstock.core.hub.events import Event, Fault, Repair


class Sink(Struct, eq=False):
    """The events that a stage has emitted, and the reader's current position in the stream."""

    events: list[Event] = []
    offset: int = 0
    line: int = 1
    whole: bool = False
    """Whether the answer is used only when it is complete, so that a text may wait for its end."""

    def repair(self, code: str, detail: str = "") -> None:
        """Emit a tolerated defect at the current position."""
        self.events.append(Repair(code, self.offset, self.line, detail))

    def fault(self, code: str, message: str, provider: dict[str, object] | None = None) -> None:
        """Emit that the stream has failed at the current position."""
        self.events.append(Fault(code, message, self.offset, self.line, provider))

    def take(self) -> list[Event]:
        """Return the events and empty the sink."""
        events, self.events = self.events, []
        return events
