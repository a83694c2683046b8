"""Every recorded stream of Ollama: read as the oracle reads it, split and cut anywhere, detected."""

import json

import pytest

from penstock import Completion
from penstock.core.dialects.detect import detect
from tests.core.ollama.oracle import SentLines, expect
from tests.corpus import CORPUS, captures, cuts_of, pieces_of, places_in
from tests.dialect_reading import DialectReading
from tests.written_again import assert_the_same_again

OLLAMA = DialectReading("ollama")
STREAMS = {capture.file: capture.data for capture in captures("ollama")}

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not STREAMS, reason=f"there is no corpus in {CORPUS}; PENSTOCK_CORPUS may name another"),
]


def lines_of(answer: Completion) -> SentLines:
    """A completion in the oracle's terms."""
    sent = SentLines(ending=answer.ending or "", model=answer.model)
    for choice in answer.choices:
        sent.text, sent.thinking, sent.finish = choice.text, choice.reasoning, choice.finish_reason
        sent.calls = [(call.id, call.name, json.loads(call.arguments)) for call in choice.tool_calls]
    if answer.usage is not None:
        sent.tokens = (answer.usage.input, answer.usage.output)
    return sent


def test_there_are_streams_of_every_kind() -> None:
    wanted = [expect(data) for data in STREAMS.values()]
    assert len(wanted) > 30
    for name in ("text", "thinking", "calls", "finish", "tokens"):
        assert sum(bool(getattr(each, name)) for each in wanted) > 2, name


def test_every_stream_is_read_as_the_oracle_reads_it() -> None:
    for file, data in STREAMS.items():
        answer = OLLAMA.completion(data)
        assert lines_of(answer) == expect(data), file
        assert answer.repairs == (), file


def test_every_stream_says_the_same_however_it_is_split() -> None:
    for number, (file, data) in enumerate(STREAMS.items()):
        assert OLLAMA.events(*pieces_of(number, data)) == OLLAMA.events(data), file


def test_a_stream_that_is_cut_is_never_completed() -> None:
    for number, (file, data) in enumerate(STREAMS.items()):
        lines = data.splitlines(keepends=True)
        for count in cuts_of(number, len(lines)):
            assert OLLAMA.completion(b"".join(lines[:count])).ending == "truncated", (file, count)
        for place in (*places_in(number, len(data.rstrip())), len(data.rstrip()) - 1):
            assert OLLAMA.completion(data[:place]).ending in ("truncated", "failed"), (file, place)


def test_every_stream_is_detected() -> None:
    for file, data in STREAMS.items():
        assert detect([data]).dialect == "ollama", file


def test_every_answer_is_the_same_when_it_was_written_and_read_again() -> None:
    for data in STREAMS.values():
        assert_the_same_again(OLLAMA.dialect, data)
