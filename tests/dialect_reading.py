"""Reading of streams in a dialect that only providers speak, for the tests of each of these dialects."""

from penstock import Accumulator, Completion, StreamReader
from penstock.core.hub.events import Event
from penstock.core.stream import MAX_EVENT
from tests.streams import read


class DialectReading:
    """Reads streams of one dialect."""

    def __init__(self, dialect: str) -> None:
        self.dialect = dialect

    def events(self, *data: bytes, max_event: int = MAX_EVENT) -> list[Event]:
        """The events of a stream whose bytes arrive in these pieces."""
        return read(*data, reader=StreamReader(self.dialect, max_event=max_event))

    def completion(self, *data: bytes) -> Completion:
        """The completion of a stream."""
        folded = Accumulator(self.dialect)
        folded.extend(self.events(*data))
        return folded.completion
