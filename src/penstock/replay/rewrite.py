"""Rewrite: the body of a capture, written again in a provider's manner, and when each event of it leaves.

What was recorded and what is written seldom have the same events: one provider sends a tool call in pieces, another
whole. But they say the same, in the same order. So an event leaves when the recorded stream had said as much; one that
says nothing, with what is said next. What opens the answer leaves with its first event, what closes it with its last.
"""

from bisect import bisect_left

from msgspec import Struct

from penstock.core.events import (
    ChoiceStart,
    Event,
    Fault,
    ReasoningDelta,
    RefusalDelta,
    TextDelta,
    ToolCallDelta,
)
from penstock.core.stream import StreamReader
from penstock.replay.faults import Piece
from penstock.replay.styles import ProviderStyle, mimic

_PROVIDERS_OWN = "provider-error"


class _ReadEvent(Struct):
    """What was said by when: how many characters after each piece that brought an event, and the times of those."""

    events: list[Event] = []
    said: list[int] = []
    times: list[float] = []


def rewrite(pieces: list[Piece], manner: ProviderStyle, *, include_usage: bool) -> list[Piece] | None:
    """The body in that manner, one piece for each event; None where it holds no answer: a page, or nothing at all."""
    heard = _hear(pieces)
    # Where bytes could not be read, that was found by us. No provider says it.
    events = [event for event in heard.events if not isinstance(event, Fault) or event.code == _PROVIDERS_OWN]
    if not any(isinstance(event, (ChoiceStart, Fault)) for event in events):
        return None
    return _timed(mimic(events, manner, include_usage=include_usage), heard)


def _hear(pieces: list[Piece]) -> _ReadEvent:
    heard, reader = _ReadEvent(), StreamReader()
    now_s, said = 0.0, 0
    for piece in pieces:
        now_s += piece.after_s
        if events := reader.feed(piece.data):
            said += _characters(events)
            heard.events += events
            heard.said.append(said)
            heard.times.append(now_s)
    last = reader.close()
    heard.events += last
    heard.said.append(said + _characters(last))
    heard.times.append(now_s)
    return heard


def _timed(written: list[bytes], heard: _ReadEvent) -> list[Piece]:
    pieces: list[Piece] = []
    reader = StreamReader()
    said, before_s = 0, 0.0
    for data in written:
        more = _characters(reader.feed(data))
        said += more
        wanted = said if more or not said else said + 1
        at_s = heard.times[min(bisect_left(heard.said, wanted), len(heard.times) - 1)]
        pieces.append(Piece(at_s - before_s, data))
        before_s = at_s
    return pieces


def _characters(events: list[Event]) -> int:
    """How much is said in them."""
    count = 0
    for event in events:
        match event:
            case TextDelta(_, text) | ReasoningDelta(_, text) | RefusalDelta(_, text) | ToolCallDelta(_, _, text):
                count += len(text)
            case _:
                pass
    return count
