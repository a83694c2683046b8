"""Rewrite: writes the body of a capture again in a provider's style, and sets the time of each event.

The recorded and the rewritten stream seldom have the same events: one provider sends a tool call in parts, another
whole. But both have the same content in the same order, so the number of characters so far aligns them. An event is
sent when the recorded stream had sent as many characters; an event without content, together with the next content.
Events before the first content are sent with the first recorded event, events after the last content with the last.
"""

from bisect import bisect_left

from msgspec import Struct

from penstock.core.dialects.registry import answer_dialect
from penstock.core.hub.completion import Accumulator
from penstock.core.hub.events import (
    ChoiceStart,
    Event,
    Fault,
    ReasoningDelta,
    RefusalDelta,
    TextDelta,
    ToolCallDelta,
)
from penstock.core.hub.failure import Failure
from penstock.core.stream import StreamReader
from penstock.replay.faults import Piece
from penstock.replay.styles import ProviderStyle, write_in_style, write_unstreamed

_PROVIDERS_OWN = "provider-error"
_INCOMPLETE = "the answer ended before it was complete"


class _TimedEvents(Struct):
    """The events of a recorded stream; and for each piece with events, the characters so far and the time."""

    events: list[Event] = []
    characters: list[int] = []
    times: list[float] = []


class Rewriting(Struct, frozen=True):
    """How a body is written again: the style, the dialect that it was recorded in, and whether to include the usage."""

    style: ProviderStyle
    recorded_as: str
    include_usage: bool = True


def rewrite(pieces: list[Piece], rewriting: Rewriting) -> list[Piece] | None:
    """The body as a stream, one piece per event; None if it has no answer, such as an HTML page or an empty body."""
    recorded = _read(pieces, rewriting.recorded_as)
    events = _answer(recorded)
    if events is None:
        return None
    written = write_in_style(
        events, rewriting.style, include_usage=rewriting.include_usage, recorded_as=rewriting.recorded_as
    )
    return _timed(written, rewriting.style.dialect, recorded)


def rewrite_unstreamed(pieces: list[Piece], rewriting: Rewriting) -> tuple[int, bytes] | None:
    """Status and body without streaming; None without an answer. One that is not complete becomes an error."""
    events = _answer(_read(pieces, rewriting.recorded_as))
    if events is None:
        return None
    answer = Accumulator(rewriting.recorded_as)
    answer.extend(events)
    completion = answer.completion
    if completion.ending == "completed":
        return 200, write_unstreamed(events, rewriting.style, recorded_as=rewriting.recorded_as)
    message = completion.fault.message if completion.fault is not None else _INCOMPLETE
    failure = Failure(code="upstream_error", message=message)
    answers = answer_dialect(rewriting.style.dialect)
    return answers.status_of(failure), answers.write_error(failure, "")


def _answer(recorded: _TimedEvents) -> list[Event] | None:
    """The events of an answer; None if there is none."""
    # Only the provider's own errors are written again: a fault of our reader was never part of the stream.
    events = [event for event in recorded.events if not isinstance(event, Fault) or event.code == _PROVIDERS_OWN]
    return events if any(isinstance(event, (ChoiceStart, Fault)) for event in events) else None


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
