"""StreamLog: what the client of one call is sent, event by event, and how that ended.

The answer is appended, readers follow at their own pace: a reader is a position in the log, so that none needs a queue
and the slowest delays no other. Events count from 1; position *n* is after event *n*.

The states of a log:

| state | meaning | next |
|---|---|---|
| `waiting` | the answer has not begun: its status may still be an error | `open`, `answered`, `refused` |
| `open` | events are appended | `ended`, `broken` |
| `ended` | the last event is in the log: the usual end of the stream, or an error event that says how it broke | |
| `broken` | the answer stopped without a last event; readers see a broken connection | |
| `answered` | the answer is not streamed: readers get it as a whole | |
| `refused` | there was no answer, but an error, which the readers get that wait for it | |

Beyond `max_size` bytes the log loses its oldest events. A reader that needs them is refused, and gets no part.
"""

from collections.abc import Callable
from typing import Literal, TypeAlias

State: TypeAlias = Literal["waiting", "open", "ended", "broken", "answered", "refused"]
NEXT: dict[State, frozenset[State]] = {
    "waiting": frozenset({"open", "answered", "refused", "broken"}),
    "open": frozenset({"ended", "broken"}),
    "ended": frozenset(),
    "broken": frozenset(),
    "answered": frozenset(),
    "refused": frozenset(),
}
# What an event takes in memory besides its bytes.
OVERHEAD = 64


class StreamLog:
    """The log of one call. `on_change` is called after each change, for the readers."""

    def __init__(self, id: str, owner: str, *, numbered: bool, max_size: int) -> None:
        self.id = id
        self.owner = owner
        self.state: State = "waiting"
        self.first = 0
        """The position before the oldest event that is kept."""
        self.size = 0
        """The bytes in memory."""
        self.written = 0
        """The bytes of all events."""
        self.on_append: Callable[[list[bytes]], None] | None = None
        """Called with new events before any reader gets them."""
        self.on_change: Callable[[], None] | None = None
        self.numbered = numbered
        """Whether each event gets its id."""
        self._max_size = max_size
        self._events: list[bytes] = []

    @property
    def last(self) -> int:
        """The position after the newest event."""
        return self.first + len(self._events)

    @property
    def over(self) -> bool:
        """Whether nothing will be appended any more."""
        return not NEXT[self.state]

    def move(self, state: State) -> None:
        """Change the state."""
        if state not in NEXT[self.state]:
            raise ValueError(f"a log that is {self.state} cannot become {state}")
        self.state = state
        self._changed()

    def append(self, events: list[bytes], *, last: bool = False) -> None:
        """Add events, each with its blank line. Each gets its id, if the API has ids. `last`: the log ends."""
        if self.state != "open":
            raise ValueError(f"a log that is {self.state} takes no events")
        if self.numbered:
            id, first = self.id.encode(), self.last + 1
            events = [b"id: %b-%d\n%b" % (id, number, event) for number, event in enumerate(events, first)]
        if self.on_append is not None and events:
            self.on_append(events)
        self._events += events
        size = sum(map(len, events))
        self.written += size
        self.size += size + OVERHEAD * len(events)
        self._shrink()
        if last:
            self.move("ended")
        elif events:
            self._changed()

    def events(self, position: int, most: int) -> list[bytes]:
        """The events after a position, as many as fit into `most` bytes; at least one, if there is one."""
        start = position - self.first
        if start < 0:
            raise ValueError("the log has lost events after this position")
        size, end = 0, start
        while end < len(self._events) and (end == start or size + len(self._events[end]) <= most):
            size += len(self._events[end])
            end += 1
        return self._events[start:end]

    def restore(self, events: list[bytes], *, whole: bool) -> None:
        """Take the events of a log whose process has ended, as they were numbered. It is over if it is `whole`."""
        self.move("open")
        numbered, self.numbered = self.numbered, False
        self.append(events, last=whole)
        self.numbered = numbered

    def bytes_after(self, position: int) -> int:
        """The bytes of the kept events after a position."""
        return sum(map(len, self._events[max(position - self.first, 0) :]))

    def _shrink(self) -> None:
        lost = 0
        while self.size > self._max_size and lost < len(self._events) - 1:
            self.size -= len(self._events[lost]) + OVERHEAD
            lost += 1
        if lost:
            del self._events[:lost]
            self.first += lost

    def _changed(self) -> None:
        if self.on_change is not None:
            self.on_change()
