"""Every recorded stream of Cohere: read as the oracle reads it, split and cut anywhere, detected."""

import json

import pytest

from penstock import Completion, TextPart
from penstock.core.dialects.detect import detect
from penstock.core.dialects.registry import upstream_dialect
from penstock.core.hub.usage import Tokens
from tests.core.cohere.oracle import SentEvents, expect
from tests.corpus import CORPUS, captures, cuts_of, pieces_of, places_in
from tests.dialect_reading import DialectReading
from tests.streams import by_event
from tests.written_again import assert_the_same_again

COHERE = DialectReading("cohere")
CAPTURES = captures("cohere")
# Version 1 of the API is another dialect.
FIRST_VERSION = {capture.file: capture.data for capture in CAPTURES if b'"event_type"' in capture.data}
ERRORS = {capture.file: capture.data for capture in CAPTURES if capture.status != 200}
STREAMS = {capture.file: capture.data for capture in CAPTURES if capture.file not in (*FIRST_VERSION, *ERRORS)}

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not CAPTURES, reason=f"there is no corpus in {CORPUS}; PENSTOCK_CORPUS may name another"),
]


def events_of(answer: Completion) -> SentEvents:
    """A completion in the oracle's terms."""
    sent = SentEvents(ending=answer.ending or "", id=answer.id)
    for choice in answer.choices:
        sent.text, sent.thinking, sent.finish = choice.text, choice.reasoning, choice.finish_reason
        sent.calls = [(call.id or "", call.name, json.loads(call.arguments or "{}")) for call in choice.tool_calls]
        texts = [part for part in choice.parts if isinstance(part, TextPart)]
        sent.citations = [(each.start or 0, each.end or 0, each.quote) for part in texts for each in part.citations]
    if answer.usage is not None:
        tokens = Tokens.of(answer.usage)
        sent.tokens = (tokens.input, tokens.output, tokens.cached, tokens.reasoning)
    return sent


def test_there_are_streams_of_every_kind() -> None:
    wanted = [expect(data) for data in STREAMS.values()]
    assert (len(wanted), len(FIRST_VERSION), len(ERRORS)) == (27, 3, 2)
    for name in ("text", "thinking", "calls", "citations", "finish", "tokens"):
        assert any(getattr(each, name) for each in wanted), name


def test_every_stream_is_read_as_the_oracle_reads_it() -> None:
    for file, data in STREAMS.items():
        answer = COHERE.completion(data)
        assert events_of(answer) == expect(data), file
        assert answer.repairs == (), file


def test_every_stream_says_the_same_however_it_is_split() -> None:
    for number, (file, data) in enumerate(STREAMS.items()):
        events = COHERE.events(data)
        assert COHERE.events(*by_event(data)) == events, file
        assert COHERE.events(*pieces_of(number, data)) == events, file


def test_a_stream_that_is_cut_is_never_completed() -> None:
    for number, (file, data) in enumerate(STREAMS.items()):
        events = by_event(data[: data.index(b"event: message-end")])
        for count in cuts_of(number, len(events) + 1):
            assert COHERE.completion(b"".join(events[:count])).ending == "truncated", (file, count)
        end = data.index(b"}\n", data.index(b"event: message-end"))
        for place in (*places_in(number, end), end):
            assert COHERE.completion(data[:place]).ending in ("truncated", "failed"), (file, place)


def test_every_stream_is_detected_and_version_1_is_recognised() -> None:
    for file, data in STREAMS.items():
        assert detect([data]).dialect == "cohere", file
    for file, data in FIRST_VERSION.items():
        fault = COHERE.completion(data).fault
        assert fault is not None, file
        assert fault.code == "other-dialect", file


def test_every_error_is_read() -> None:
    for file, data in ERRORS.items():
        assert upstream_dialect("cohere").read_error(data).message == json.loads(data)["message"], file


def test_every_answer_is_the_same_when_it_was_written_and_read_again() -> None:
    for data in STREAMS.values():
        assert_the_same_again(COHERE.dialect, data)
