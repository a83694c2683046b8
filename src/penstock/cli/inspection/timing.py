"""StreamTiming: the times and the speed of a recorded stream. Only captures have times.

The first and the last event are those with content, as in the gateway's log. A gap is a time without any event;
comments and blank lines are not events.
"""

from msgspec import Struct

from penstock import Completion, Event, ReasoningDelta, RefusalDelta, TextDelta, ToolCallDelta, ToolCallStart
from penstock.capture import Capture

# Events with content.
CONTENT = (TextDelta, ReasoningDelta, RefusalDelta, ToolCallStart, ToolCallDelta)
_SLOTS = 40
_LEVELS = "▁▂▃▄▅▆▇█"
_NOTHING = "·"


class StreamTiming(Struct, frozen=True, kw_only=True):
    """Times in seconds since the request. `timeline` is the number of bytes in each slot of `slot_s`."""

    head_s: float | None
    first_event_s: float | None
    last_event_s: float | None
    longest_gap_s: float | None
    longest_gap_at_s: float | None
    total_s: float
    tokens_per_s: float | None
    slot_s: float
    timeline: list[int]

    def draw(self) -> str:
        """The timeline as a row of bars."""
        most = max(self.timeline, default=0)
        return "".join(
            _LEVELS[min(size * len(_LEVELS) // most, len(_LEVELS) - 1)] if size else _NOTHING for size in self.timeline
        )


class Stopwatch:
    """Records the times of events while a capture is read."""

    def __init__(self) -> None:
        self._frames = 0
        self._last_frame: float | None = None
        self._first: float | None = None
        self._last: float | None = None
        self._gap: float | None = None
        self._gap_at: float | None = None

    def record(self, at_s: float | None, events: list[Event], frames: int) -> None:
        """Record a read with its events, and the number of frames so far."""
        if at_s is None or frames == self._frames:
            return
        self._frames = frames
        if any(isinstance(event, CONTENT) for event in events):
            self._first = at_s if self._first is None else self._first
            self._last = at_s
        if self._last_frame is not None and (self._gap is None or at_s - self._last_frame > self._gap):
            self._gap, self._gap_at = at_s - self._last_frame, self._last_frame
        self._last_frame = at_s

    def times(self, capture: Capture, completion: Completion) -> StreamTiming | None:
        """The result; None if the capture has no times."""
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
        """Tokens per second after the first, without the tokens of reasoning that is not in the stream."""
        usage = completion.usage
        if usage is None or usage.output is None or self._first is None or self._last is None:
            return None
        shown = usage.output
        if not any(choice.reasoning for choice in completion.choices):
            shown -= usage.reasoning or 0
        seconds = self._last - self._first
        return (shown - 1) / seconds if seconds > 0 and shown > 1 else None
