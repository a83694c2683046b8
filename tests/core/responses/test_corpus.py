"""Every recorded stream of OpenAI Responses: read as the oracle reads it, split and cut anywhere."""

import json
from copy import deepcopy

import pytest

from penstock import (
    BlockStart,
    Completion,
    End,
    Event,
    MediaPart,
    OpaquePart,
    ReasoningPart,
    RefusalPart,
    Repair,
    Start,
    StreamReader,
    StreamWriter,
    TextPart,
    UsageReport,
)
from penstock.core.dialects.detect import detect
from penstock.core.dialects.dialect import AnswerFacts
from penstock.core.dialects.registry import upstream_dialect
from penstock.core.hub.usage import Tokens
from tests.core.responses.oracle import SentResponse, expect
from tests.corpus import CORPUS, captures, cuts_of, pieces_of
from tests.legal import violations
from tests.responses import DIALECT, answer_events, completion, events_of, fold
from tests.streams import by_event, read

FACTS = AnswerFacts(call_id="req_1", model="m", created=0)
CAPTURES = captures("responses")
STREAMS = {capture.file: capture.data for capture in CAPTURES if capture.status == 200}
ERRORS = {capture.file: capture.data for capture in CAPTURES if capture.status != 200 and capture.data.startswith(b"{")}

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not CAPTURES, reason=f"there is no corpus in {CORPUS}; PENSTOCK_CORPUS may name another"),
]


def sent(answer: Completion) -> SentResponse:
    """A completion in the oracle's terms."""
    (choice,) = answer.choices
    thoughts = [part for part in choice.parts if isinstance(part, ReasoningPart)]
    tokens = Tokens.of(answer.usage) if answer.usage is not None else None
    names = ("input", "cached", "cache_write", "output", "reasoning")
    return SentResponse(
        ending=answer.ending or "",
        text=choice.text,
        refusal=choice.refusal,
        summary="".join(text for part in thoughts for text in part.summary),
        reasoning="".join(part.text for part in thoughts),
        seals=[seal.value for part in thoughts for seal in part.seals],
        calls=[(call.kind, call.id or "", call.namespace, call.name, call.arguments) for call in choice.tool_calls],
        others=[
            part.type if isinstance(part, OpaquePart) else "image_generation_call"
            for part in choice.parts
            if isinstance(part, OpaquePart | MediaPart)
        ],
        citations=[cited.data for part in choice.parts if isinstance(part, TextPart) for cited in part.citations],
        phases=[str(part.extras.get("phase", "")) for part in choice.parts if isinstance(part, TextPart | RefusalPart)],
        finish=choice.finish_reason,
        tokens={name: getattr(tokens, name) for name in names} if tokens is not None else {},
        error=answer.fault.message if answer.fault else "",
    )


def test_every_stream_is_read_as_the_oracle_reads_it() -> None:
    compared = 0
    for file, data in STREAMS.items():
        answer, wanted = completion(data), expect(data)
        assert answer.ending == wanted.ending, file
        if wanted.ending == "failed" and not wanted.error:
            continue  # two answers in one file, or JSON that is cut
        assert sent(answer) == wanted, file
        compared += 1
    assert compared >= len(STREAMS) - 5


def test_every_stream_is_known_by_its_bytes() -> None:
    for file, data in STREAMS.items():
        assert detect([data]).dialect == DIALECT, file


def test_every_stream_says_the_same_however_it_is_split() -> None:
    for number, (file, data) in enumerate(STREAMS.items()):
        events = read(data, reader=StreamReader(DIALECT))
        assert violations(events) == [], file
        assert events_of(*by_event(data)) == events, file
        assert events_of(*pieces_of(number, data)) == events, file


def test_every_stream_is_the_same_when_it_was_written_and_read_again() -> None:
    for file, data in STREAMS.items():
        events = events_of(data)
        writer = StreamWriter.for_call(DIALECT, FACTS)
        again = events_of(writer.write(events))
        assert writer.losses == [], file
        if fold(events).ending == "failed":
            assert fold(again).ending == "failed", file
            continue
        if any(isinstance(event, BlockStart) and event.id is None for event in events):
            continue  # the writer makes up an id
        assert completed(again) == completed(events), file
        codes = {event.code for event in again if isinstance(event, Repair)}
        assert codes <= {"envelope-incomplete", "usage-placeholder", "tool-arguments-broken", "items-overlap"}, file


def completed(events: list[Event]) -> list[object]:
    """The events without what a writer completes: the envelope, and details of the usage."""
    return [
        Tokens.of(event.usage) if isinstance(event, UsageReport) else event
        for event in answer_events(events)
        if not isinstance(event, Start)
    ]


def test_every_answer_is_the_same_as_an_unstreamed_body() -> None:
    for file, data in STREAMS.items():
        answer = completion(data)
        if answer.ending != "completed":
            continue
        writer = StreamWriter.for_call(DIALECT, FACTS)
        again = completion(writer.write_body(answer))
        assert writer.losses == [], file
        assert sent(again) == sent(answer), file


def test_a_stream_that_is_cut_is_completed_only_if_its_last_event_was_seen() -> None:
    for number, (file, data) in enumerate(STREAMS.items()):
        reader, last, events = StreamReader(DIALECT), False, by_event(data)
        cuts = cuts_of(number, len(events) + 1)
        for count, event in enumerate(events, 1):
            reader.feed(event)
            last = last or b'"response.completed"' in event or b'"response.incomplete"' in event
            if count not in cuts:
                continue
            end = deepcopy(reader).close()[-1]
            assert isinstance(end, End)
            assert (end.ending == "completed") == (last and reader.failed is None), (file, count)


def test_every_error_is_read() -> None:
    upstream = upstream_dialect(DIALECT)
    for file, data in ERRORS.items():
        body = json.loads(data)
        error = body.get("error") or body.get("detail")
        wanted = error["message"] if isinstance(error, dict) else error
        assert upstream.read_error(data).message == wanted, file
        fault = completion(data).fault
        assert fault is not None, file
        assert (fault.code, fault.message) == ("provider-error", wanted), file
