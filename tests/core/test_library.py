"""The library writes what it has read in any dialect, without facts about a call, as an answer of its own dialect."""

import pytest

from penstock import Accumulator, Completion, Event, StreamReader
from tests.library_streams import ARGUMENTS, CALL, INPUT, OUTPUT, PAIRS, TEXT, sent, written
from tests.streams import read


def fold(dialect: str, events: list[Event]) -> Completion:
    answer = Accumulator(dialect)
    answer.extend(events)
    return answer.completion


def read_again(dialect: str, wire: bytes) -> Completion:
    return fold(dialect, read(wire, reader=StreamReader(dialect)))


@pytest.mark.parametrize(("source", "dialect"), PAIRS)
def test_a_translated_stream_has_the_usage_of_its_own_dialect_only(source: str, dialect: str) -> None:
    events = sent(source)
    again = read_again(dialect, written(dialect, events))
    assert (again.ending, again.text) == ("completed", TEXT)
    assert {repair.code for repair in again.repairs} <= {"usage-placeholder"}  # a message starts before it is known
    assert [(call.name, call.arguments) for call in again.choices[0].tool_calls] == [(CALL, ARGUMENTS)]
    foreign, own = fold(source, events).usage, fold(dialect, sent(dialect)).usage
    assert again.usage is not None and foreign is not None and own is not None  # noqa: PT018
    assert (again.usage.input, again.usage.output) == (INPUT, OUTPUT)
    assert again.usage.raw.keys() & foreign.raw.keys() <= own.raw.keys()


@pytest.mark.parametrize(("source", "dialect"), [(source, dialect) for source, dialect in PAIRS if source == dialect])
def test_a_writer_that_knows_the_source_writes_its_usage_as_it_was_reported(source: str, dialect: str) -> None:
    events = sent(dialect)
    reported = fold(dialect, events).usage
    assert reported is not None
    assert read_again(dialect, written(dialect, events, source)).usage == reported
