"""Rewrite: writes the body of a capture again in a provider's style, and sets the time of each event.

The recorded and the rewritten stream seldom have the same events: one provider sends a tool call in parts, another
whole. But both have the same content in the same order, so the number of characters so far aligns them. An event is
sent when the recorded stream had sent as many characters; an event without content, together with the next content.
Events before the first content are sent with the first recorded event, events after the last content with the last.
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
from penstock.replay.styles import ProviderStyle, write_in_style

_PROVIDERS_OWN = "provider-error"


class _TimedEvents(Struct):
    """The events of a recorded stream; and for each piece with events, the characters so far and the time."""

    events: list[Event] = []
    characters: list[int] = []
    times: list[float] = []


def rewrite(pieces: list[Piece], style: ProviderStyle, dialect: str, *, include_usage: bool) -> list[Piece] | None:
    """The body in that style, one piece per event; None if it has no answer, such as an HTML page or an empty body.

    `dialect` is the one that the body was recorded in.
    """
    recorded = _read(pieces, dialect)
    # Only the provider's own errors are written again: a fault of our reader was never part of the stream.
    events = [event for event in recorded.events if not isinstance(event, Fault) or event.code == _PROVIDERS_OWN]
    if not any(isinstance(event, (ChoiceStart, Fault)) for event in events):
        return None
    written = write_in_style(events, style, include_usage=include_usage, recorded_as=dialect)
    return _timed(written, style.dialect, recorded)


def _read(pieces: list[Piece], dialect: str) -> _TimedEvents:
    recorded, reader = _TimedEvents(), StreamReader(dialect)
    now_s, characters = 0.0, 0
    for piece in pieces:
        now_s += piece.after_s
        if events := reader.feed(piece.data):
            characters += _characters(events)
            recorded.events += events
            recorded.characters.append(characters)
            recorded.times.append(now_s)
    last = reader.close()
    recorded.events += last
    recorded.characters.append(characters + _characters(last))
    recorded.times.append(now_s)
    return recorded


def _timed(written: list[bytes], dialect: str, recorded: _TimedEvents) -> list[Piece]:
    pieces: list[Piece] = []
    reader = StreamReader(dialect)
    characters, before_s = 0, 0.0
    for number, data in enumerate(written, start=1):
        added = _characters(reader.feed(data))
        characters += added
        wanted = characters if added or not characters else characters + 1
        at_s = recorded.times[min(bisect_left(recorded.characters, wanted), len(recorded.times) - 1)]
        if number == len(written) and not added:  # white space in arguments may be gone, so count no characters
            at_s = recorded.times[-1]
        pieces.append(Piece(at_s - before_s, data))
        before_s = at_s
    return pieces


def _characters(events: list[Event]) -> int:
    """The number of characters of content in the events."""
    count = 0
    for event in events:
        match event:
            case TextDelta(_, text) | ReasoningDelta(_, text) | RefusalDelta(_, text) | ToolCallDelta(_, _, text):
                count += len(text)
            case _:
                pass
    return count
