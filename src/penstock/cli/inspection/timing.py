"""StreamTiming: when a recorded stream came, and how fast. Only a capture knows.

The first event is the first that says something, as in the gateway's log, and so is the last one the last. A gap is a
time in which no event came at all: comments and blank lines are none.
"""

from msgspec import Struct

from penstock import Completion, Event, ReasoningDelta, RefusalDelta, TextDelta, ToolCallDelta, ToolCallStart
from penstock.capture import Capture

# What counts as an event: the model says something.
CONTENT = (TextDelta, ReasoningDelta, RefusalDelta, ToolCallStart, ToolCallDelta)
_SLOTS = 40
_LEVELS = "▁▂▃▄▅▆▇█"
_NOTHING = "·"


class StreamTiming(Struct, frozen=True, kw_only=True):
    """Seconds since the request. The timeline is how many bytes came in each slot of so many seconds."""

    head_s: float | None
    first_event_s: float | None
    last_event_s: float | None
    longest_gap_s: float | None
    longest_gap_at_s: float | None
    total_s: float
    tokens_per_s: float | None
    slot_s: float
    timeline: list[int]

    def drawn(self) -> str:
        """The timeline as a row of bars."""
        most = max(self.timeline, default=0)
        return "".join(
            _LEVELS[min(size * len(_LEVELS) // most, len(_LEVELS) - 1)] if size else _NOTHING for size in self.timeline
        )


class Stopwatch:
    """Notes when events come, while a capture is read."""

    def __init__(self) -> None:
        self._frames = 0
        self._moved: float | None = None
        self._first: float | None = None
        self._last: float | None = None
        self._gap: float | None = None
        self._gap_at: float | None = None

    def note(self, at_s: float | None, events: list[Event], frames: int) -> None:
        """A read has brought these events, and so many frames have come by now."""
        if at_s is None or frames == self._frames:
            return
        self._frames = frames
        if any(isinstance(event, CONTENT) for event in events):
            self._first = at_s if self._first is None else self._first
            self._last = at_s
        if self._moved is not None and (self._gap is None or at_s - self._moved > self._gap):
            self._gap, self._gap_at = at_s - self._moved, self._moved
        self._moved = at_s

    def times(self, capture: Capture, completion: Completion) -> StreamTiming | None:
        """What has been noted; None where the capture has no times."""
        known = [read.at_s for read in capture.reads if read.at_s is not None]
        if capture.closing is not None and capture.closing.at_s is not None:
            known.append(capture.closing.at_s)
        if not known or not (capture.timed or not capture.reads):
            return None
        slot_s = max(known[-1] / _SLOTS, 1e-6)
        timeline = [0] * _SLOTS
        for read in capture.reads:
            timeline[min(int((read.at_s or 0.0) / slot_s), _SLOTS - 1)] += len(read.data)
        return StreamTiming(
            head_s=capture.header.head_s,
            first_event_s=self._first,
            last_event_s=self._last,
            longest_gap_s=self._gap,
            longest_gap_at_s=self._gap_at,
            total_s=known[-1],
            tokens_per_s=self._rate(completion),
            slot_s=slot_s,
            timeline=timeline,
        )

    def _rate(self, completion: Completion) -> float | None:
        """Tokens after the first, over the time that they took; without those of a reasoning that is not shown."""
        usage = completion.usage
        if usage is None or usage.output is None or self._first is None or self._last is None:
            return None
        shown = usage.output
        if not any(choice.reasoning for choice in completion.choices):
            shown -= usage.reasoning or 0
        seconds = self._last - self._first
        return (shown - 1) / seconds if seconds > 0 and shown > 1 else None
