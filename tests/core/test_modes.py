"""The modes of a stream: which may follow which, and that real streams pass through all of them."""

from itertools import product

import pytest

from penstock import StreamReader
from penstock.core.stream import NEXT, Mode
from tests.streams import DONE, begins, by_event, finishes, says, sse

LEGAL = {
    ("start", "slow"),
    ("start", "fast"),
    ("start", "closed"),
    ("slow", "fast"),
    ("slow", "closed"),
    ("fast", "slow"),
    ("fast", "trailer"),
    ("fast", "closed"),
    ("trailer", "slow"),
    ("trailer", "closed"),
}


@pytest.mark.parametrize(("before", "after"), list(product(NEXT, NEXT)))
def test_a_stream_changes_its_mode_as_the_table_says(before: Mode, after: Mode) -> None:
    reader = StreamReader()
    reader.mode = before
    if (before, after) in LEGAL:
        reader._enter(after)
        assert reader.mode == after
    else:
        with pytest.raises(AssertionError, match=f"from {before} to {after}"):
            reader._enter(after)


def test_the_modes_of_a_healthy_stream() -> None:
    reader = StreamReader()
    modes = [reader.mode]
    for event in by_event(sse(begins(), says("a"), says("b"), finishes(), DONE))[:-1]:
        reader.feed(event)
        modes.append(reader.mode)
    reader.close()
    assert [*modes, reader.mode] == ["start", "slow", "fast", "fast", "trailer", "trailer", "closed"]


def test_a_stream_that_is_not_usual_returns_to_the_slow_path() -> None:
    reader = StreamReader()
    modes = []
    for event in by_event(sse(begins(), says("a"), finishes(), says("b")))[:-1]:
        reader.feed(event)
        modes.append(reader.mode)
    assert modes == ["slow", "fast", "trailer", "slow"]
