"""Writes an answer with a dialect's own writer: in a style that is a whole dialect, and before a chat style is applied.

What the other dialect cannot express is left out, as the gateway does when it translates.
"""

import re
from collections.abc import Iterator, Sequence

from msgspec import structs

from penstock.core.dialects.dialect import AnswerFacts
from penstock.core.dialects.registry import answer_dialect
from penstock.core.hub.completion import Accumulator
from penstock.core.hub.events import End, Event, Start, ToolCallStart, UsageReport
from penstock.core.hub.usage import Usage
from penstock.core.stream import StreamReader
from penstock.core.stream_writer import StreamWriter
from penstock.replay.faults.script import events_in
from penstock.replay.styles.made_up import make_value
from penstock.replay.styles.style import ProviderStyle


def write_in_dialect(
    events: Sequence[Event], style: ProviderStyle, recorded_as: str, *, include_usage: bool
) -> list[bytes]:
    """The events as a stream of the style's dialect: a list of events on the wire.

    `recorded_as` is the dialect that they were read from. A stream that was not completed ends as it did: with the
    provider's error, or without any ending.
    """
    facts = _facts(events, style, recorded_as, include_usage=include_usage)
    written = [event for event in _with_ids(events, style, facts) if not _is_incomplete(event)]
    return events_in(StreamWriter.for_call(style.dialect, facts).write(written))


def write_body_in_dialect(events: Sequence[Event], style: ProviderStyle, recorded_as: str) -> bytes:
    """The events of a completed answer as a body of the style's dialect, without streaming."""
    facts = _facts(events, style, recorded_as, include_usage=True)
    answer = Accumulator(recorded_as)
    answer.extend(_with_ids(events, style, facts))
    return answer_dialect(style.dialect).write_body(answer.completion, facts, [])


def _facts(events: Sequence[Event], style: ProviderStyle, recorded_as: str, *, include_usage: bool) -> AnswerFacts:
    start = next((event for event in events if isinstance(event, Start)), Start("", "", None))
    id = start.id
    if not re.fullmatch(style.ids.fits, id):
        id = make_value(style.ids.form, f"{id} {start.model}", created=start.created or 0)
    usage = next((event.usage.normal() for event in events if isinstance(event, UsageReport)), Usage())
    return AnswerFacts(
        call_id=make_value("{hex:24}", id),
        id=id,
        model=start.model,
        created=start.created or 0,
        include_usage=include_usage,
        input_estimate=max((usage.input or 0) - (usage.cached or 0) - (usage.cache_write or 0), 0),
        same_dialect=recorded_as == style.dialect,
    )


def _with_ids(events: Sequence[Event], style: ProviderStyle, facts: AnswerFacts) -> Iterator[Event]:
    """The events with ids in the forms of the style."""
    for event in events:
        match event:
            case Start():
                yield structs.replace(event, id=facts.id)
            case ToolCallStart(choice, call, None):
                yield structs.replace(event, id=make_value(style.ids.call, f"{facts.id} call {(choice, call)}"))
            case _:
                yield event


def _is_incomplete(event: Event) -> bool:
    """Whether the event says that the answer is not complete. A provider's stream just ends."""
    return isinstance(event, End) and event.ending != "completed"


def translate(events: Sequence[Event], style: ProviderStyle, recorded_as: str) -> list[Event]:
    """The events as a reader of the style's dialect would report them."""
    reader = StreamReader(style.dialect)
    written = write_in_dialect(events, style, recorded_as, include_usage=True)
    return reader.feed(b"".join(written)) + reader.close()
