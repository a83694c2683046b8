"""Every recorded stream of Gemini: read as the oracle reads it, split and cut anywhere, written and read again."""

import json
from collections.abc import Iterator

import pytest

from penstock import Completion, MediaPart, OpaquePart, ReasoningPart, StreamWriter
from penstock.core.dialects.dialect import AnswerFacts
from penstock.core.dialects.registry import upstream_dialect
from penstock.core.hub.events import Event
from penstock.core.hub.usage import Tokens
from tests.core.gemini.oracle import SentText, expect
from tests.corpus import CORPUS, captures, cuts_of, pieces_of, places_in
from tests.gemini import DIALECT, completion, events_of, fold
from tests.streams import by_event

CAPTURES = captures("gemini")
# Messages of the Live API are another dialect.
LIVE = {capture.file: capture.data for capture in CAPTURES if b'"serverContent"' in capture.data}
STREAMS = {capture.file: capture.data for capture in CAPTURES if capture.status == 200 and capture.file not in LIVE}
ERRORS = {capture.file: capture.data for capture in CAPTURES if capture.status != 200}

# What says that an answer is over.
FINISHES = (b'"finishReason"', b'"finish_reason"', b'"blockReason"')

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not CAPTURES, reason=f"there is no corpus in {CORPUS}; PENSTOCK_CORPUS may name another"),
]


def sent_text(answer: Completion) -> SentText:
    """A completion in the oracle's terms."""
    sent = SentText(ending=answer.ending or "")
    for choice in answer.choices:
        sent.text, sent.thoughts = choice.text, choice.reasoning
        reasoning = [part for part in choice.parts if isinstance(part, ReasoningPart)]
        sent.signatures = [seal.value for part in reasoning for seal in part.seals]
        sent.calls = [(call.id, call.name, json.loads(call.arguments)) for call in choice.tool_calls]
        sent.wholes = [part.type for part in choice.parts if isinstance(part, OpaquePart)]
        sent.wholes += ["inlineData" for part in choice.parts if isinstance(part, MediaPart)]
        sent.finish = choice.finish_reason
    if answer.usage is not None:
        tokens = Tokens.of(answer.usage)
        sent.tokens = (tokens.input, tokens.output, tokens.cached, tokens.reasoning)
    return sent


def test_there_are_streams_of_every_kind() -> None:
    assert len(STREAMS) > 250
    assert len(ERRORS) > 10
    wanted = [expect(data) for data in STREAMS.values()]
    for name in ("text", "thoughts", "signatures", "calls", "wholes", "finish", "tokens"):
        assert sum(bool(getattr(each, name)) for each in wanted) > 5, name


def test_every_stream_is_read_as_the_oracle_reads_it() -> None:
    for file, data in STREAMS.items():
        assert sent_text(completion(data)) == expect(data), file


def test_every_stream_says_the_same_however_it_is_split() -> None:
    for number, (file, data) in enumerate(STREAMS.items()):
        events = events_of(data)
        assert events_of(*by_event(data)) == events, file
        assert events_of(*pieces_of(number, data)) == events, file


def test_a_stream_that_is_cut_is_completed_only_if_it_has_a_finish_reason() -> None:
    for number, (file, data) in enumerate(STREAMS.items()):
        events = by_event(data)
        for count in cuts_of(number, len(events)):
            cut = b"".join(events[:count])
            assert completion(cut).ending == expect(cut).ending, (file, count)
        finish = min(filter(lambda place: place >= 0, map(data.find, FINISHES)), default=len(data))
        for place in places_in(number, finish):
            assert completion(data[:place]).ending in ("truncated", "failed"), (file, place)


def test_messages_of_the_live_api_are_recognised() -> None:
    for file, data in LIVE.items():
        fault = completion(data).fault
        assert fault is not None, file
        assert fault.code == "other-dialect", file


def test_every_error_is_read() -> None:
    upstream = upstream_dialect(DIALECT)
    for file, data in ERRORS.items():
        body = json.loads(data)
        wanted = (body[0] if isinstance(body, list) else body)["error"]["message"]
        assert upstream.read_error(data).message == wanted, file
        fault = completion(data).fault
        assert fault is not None, file
        assert (fault.code, fault.message) == ("provider-error", wanted), file


def test_every_answer_is_the_same_when_it_was_written_and_read_again() -> None:
    for file, data in STREAMS.items():
        events = events_of(data)
        answer = fold(events)
        if answer.ending != "completed":
            continue
        wanted = sent_text(answer)
        for written in written_again(events, answer):
            again = completion(written)
            assert sent_text(again) == wanted, file
            assert {repair.code for repair in again.repairs} <= {"json-array"}, file
            assert (again.id, again.model) == (answer.id or "req_1", answer.model or "m"), file
            assert again.extras == answer.extras, file
            assert [choice.extras for choice in again.choices] == [choice.extras for choice in answer.choices], file


def written_again(events: list[Event], answer: Completion) -> Iterator[bytes]:
    """The answer as a stream, as an array, and unstreamed."""
    for stream_type in ("", "application/json"):
        facts = AnswerFacts(call_id="req_1", model="m", created=0, stream_type=stream_type)
        writer = StreamWriter.for_call(DIALECT, facts)
        yield b"".join(writer.write([event]) for event in events)
        assert writer.losses == []
    yield StreamWriter.for_call(DIALECT, AnswerFacts(call_id="req_1", model="m", created=0)).write_body(answer)
