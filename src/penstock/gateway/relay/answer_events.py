"""What a relay asks about events: whether they reach the commit point, which usage they report, what was lost."""

from penstock.core.hub.events import (
    Event,
    Extra,
    MediaDelta,
    ReasoningDelta,
    RefusalDelta,
    TextDelta,
    ToolCallStart,
    UsageReport,
)
from penstock.core.hub.failure import Failure
from penstock.core.hub.losses import changes_meaning
from penstock.core.hub.usage import Usage
from penstock.core.stream_writer import StreamWriter
from penstock.gateway.record.call import Call
from penstock.gateway.record.failure import from_answer_losses

_CONTENT = frozenset((TextDelta, ReasoningDelta, RefusalDelta, ToolCallStart, MediaDelta))
_REFUSALS = frozenset(("refusal", "content_filter"))
# Dialects without content blocks have audio and images in extra fields of a delta. These are the JSON types of such
# fields.
_MEDIA_TYPES = (dict, list)


def is_content(events: list[Event]) -> bool:
    """Whether these events have content: what comes with them commits the answer."""
    return not _CONTENT.isdisjoint(map(type, events)) or any(map(_has_media, events))


def is_refusal(finishes: list[str]) -> bool:
    """Whether an answer with these finish reasons is a refusal of the model, or was filtered."""
    return bool(finishes) and _REFUSALS.issuperset(finishes)


def _has_media(event: Event) -> bool:
    return (
        isinstance(event, Extra)
        and event.place == "delta"
        and any(part and isinstance(part, _MEDIA_TYPES) for part in event.fields.values())
    )


def reported_usage(events: list[Event]) -> Usage | None:
    """The usage that the events report; None if they report none."""
    return next((event.usage for event in events if type(event) is UsageReport), None)


def with_correct_usage(events: list[Event]) -> list[Event]:
    """The events, without counts of a usage report that cannot be true. The reader has emitted repairs for them."""
    correct: list[Event] = []
    for event in events:
        if not isinstance(event, UsageReport):
            correct.append(event)
        elif (usage := event.usage.corrected()) is not None:
            correct.append(event if usage is event.usage else UsageReport(usage))
    return correct


def new_losses(call: Call, writer: StreamWriter) -> Failure | None:
    """Add the writer's new losses to the call. Returns a failure if it is strict and a loss changes the meaning."""
    losses = writer.losses[:]
    if not losses:
        return None
    writer.losses.clear()
    call.progress.note_losses(losses)
    return from_answer_losses(losses) if call.strict and changes_meaning(losses) else None
