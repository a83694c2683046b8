"""AccumulatingReader: a reader that also builds a completion from its events. It rules out the fast path."""

from collections.abc import Callable

from penstock.core.hub.completion import Accumulator, Completion
from penstock.core.hub.events import Event
from penstock.core.reader_decorator import ReaderDecorator
from penstock.core.stream import EventReader
from penstock.gateway.record.transcript import count_chars


class AccumulatingReader(ReaderDecorator):
    """Decorates a reader; collects what it reads into a completion.

    `grow(size)` decides whether `size` more characters are collected. Without `grow`, all are. `before` has collected
    the beginning, with which this answer goes on.
    """

    def __init__(
        self,
        reader: EventReader,
        grow: Callable[[int], bool] | None = None,
        before: "AccumulatingReader | None" = None,
    ) -> None:
        super().__init__(reader)
        self._grow = grow
        self._answer: Accumulator = before._answer if before is not None else Accumulator()

    @property
    def completion(self) -> Completion:
        """The answer so far."""
        return self._answer.completion

    def _convert(self, events: list[Event]) -> list[Event]:
        if self._grow is None or self._grow(count_chars(events)):
            self._answer.extend(events)
        return events
