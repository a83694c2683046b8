"""`read(write(events)) == events`, for any answer in the legal order."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock import (
    Event,
    Repair,
    StreamWriter,
)
from penstock.core.dialects.registry import DEFAULT_DIALECT
from tests.legal import violations
from tests.properties.answers import answers
from tests.streams import read

pytestmark = pytest.mark.slow


@given(answers())
@settings(max_examples=300, deadline=None)
def test_what_is_written_reads_back_as_it_was(events: list[Event]) -> None:
    assert violations(events) == []
    again = read(StreamWriter(source=DEFAULT_DIALECT, include_usage=True).write(events))
    # Broken arguments are the model's, not the writer's: here they are any text whatever.
    repairs = {event.code for event in again if isinstance(event, Repair)}
    assert repairs <= {"tool-arguments-broken"}
    assert [event for event in again if not isinstance(event, Repair)] == events


@given(answers(), st.integers(1, 5))
@settings(deadline=None)
def test_writing_piece_by_piece_says_the_same(events: list[Event], size: int) -> None:
    writer = StreamWriter(source=DEFAULT_DIALECT, include_usage=True)
    pieces = [writer.write(events[start : start + size]) for start in range(0, len(events), size)]
    again = [event for event in read(*pieces) if not isinstance(event, Repair)]
    assert again == events
