"""What is booked of an attempt that has failed: its code, the reported usage, and whether the provider bills it."""

from collections.abc import Mapping

from penstock.core.hub.events import Ending
from penstock.core.hub.failure import Failure
from penstock.core.hub.usage import Usage
from penstock.core.stream import EventReader
from penstock.error_codes import ErrorCode
from penstock.gateway.record.attempt import Attempt
from penstock.gateway.record.failure import BAD_FINISH, REFUSED, TRANSLATION_LOSS
from penstock.gateway.relay.answer_events import reported_usage

TOO_LARGE: ErrorCode = "upstream_event_too_large"
"""The answer is larger than the gateway reads."""
# The ends of content types of answers that are no streams. Streams of JSON lines have others.
_UNSTREAMED_TYPES = ("/json", "+json")


def book_failure(
    attempt: Attempt, failure: Failure, ending: Ending, reported: Usage | EventReader, *, unstreamed: bool
) -> None:
    """Book a failure. `reported` is the reported usage, or the reader, which is closed to know it. `unstreamed`: a part
    of the body has arrived, and it is no stream."""
    attempt.code = failure.code
    # An unstreamed answer is complete before its first byte is sent, so the provider bills it.
    attempt.answered = 200 <= attempt.status < 300 and (
        failure.code in (TOO_LARGE, TRANSLATION_LOSS) or (unstreamed and ending in ("truncated", "timed_out"))
    )
    # What a provider reports before it fails of its own accord is not its bill, unless it has generated something.
    if attempt.output_chars or ending != "failed" or failure.code in (BAD_FINISH, REFUSED):
        usage = reported if isinstance(reported, Usage) else _usage_at_end(reported)
        if usage is not None:
            attempt.usage = usage
            attempt.report_tier(usage.tier)


def _usage_at_end(reader: EventReader) -> Usage | None:
    """The usage that the provider reported before the failure."""
    failed = reader.failed
    if failed is None:
        return reported_usage(reader.close())
    return failed.usage.with_total() if failed.usage is not None else None


def is_unstreamed(headers: Mapping[str, str]) -> bool:
    """Whether the body of an answer with these headers is no stream."""
    return headers.get("content-type", "").partition(";")[0].strip().lower().endswith(_UNSTREAMED_TYPES)
