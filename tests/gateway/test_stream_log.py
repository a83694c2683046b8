"""The log of a durable stream."""

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.gateway.streams.stream_log import NEXT, OVERHEAD, State, StreamLog


def log(*, max_size: int = 1_000_000, numbered: bool = True) -> StreamLog:
    made = StreamLog("req_1", "key", numbered=numbered, max_size=max_size)
    made.move("open")
    return made


@pytest.mark.parametrize(("state", "other"), list(product(NEXT, NEXT)))
def test_the_state_changes_as_its_table_says(state: State, other: State) -> None:
    made = log()
    made.state = state
    if other in NEXT[state]:
        made.move(other)
        assert made.state == other
    else:
        with pytest.raises(ValueError, match=f"{state} cannot become {other}"):
            made.move(other)


def test_each_event_has_its_number_as_its_id() -> None:
    made = log()
    made.append([b"data: a\n\n", b"data: b\n\n"])
    assert made.events(0, 1000) == [b"id: req_1-1\ndata: a\n\n", b"id: req_1-2\ndata: b\n\n"]
    plain = log(numbered=False)
    plain.append([b"data: a\n\n"], last=True)
    assert (plain.events(0, 1000), plain.state) == ([b"data: a\n\n"], "ended")


def test_a_log_that_is_over_takes_nothing() -> None:
    made = log()
    made.append([], last=True)
    with pytest.raises(ValueError, match="takes no events"):
        made.append([b"data: a\n\n"])


@given(st.lists(st.lists(st.binary(min_size=1, max_size=50), max_size=4), max_size=30), st.integers(100, 2_000))
def test_the_oldest_events_are_lost_first_and_no_position_is_wrong(batches: list[list[bytes]], max_size: int) -> None:
    made = log(max_size=max_size, numbered=False)
    everything: list[bytes] = []
    for batch in batches:
        made.append(batch)
        everything += batch
        assert made.last == len(everything)
        assert made.events(made.first, 1 << 30) == everything[made.first :]
        kept = everything[made.first :]
        assert made.size == sum(map(len, kept)) + OVERHEAD * len(kept)
        assert made.size <= max_size or len(kept) == 1
        assert made.bytes_after(made.first) == sum(map(len, kept))
    if made.first:
        with pytest.raises(ValueError, match="has lost"):
            made.events(made.first - 1, 100)


@given(st.lists(st.binary(min_size=1, max_size=50), max_size=30), st.integers(1, 200))
def test_a_reader_gets_every_event_once_however_much_it_reads_at_once(events: list[bytes], most: int) -> None:
    made = log(numbered=False)
    made.append(events)
    read: list[bytes] = []
    while len(read) < made.last:
        read += made.events(len(read), most)
    assert read == events
