"""Answers in the Gemini dialect that are written and read again."""

import pytest
from msgspec.structs import replace

from penstock import StreamWriter
from penstock.core.dialects.dialect import AnswerFacts
from penstock.core.hub.events import Event
from tests.gemini import DIALECT, HEALTHY, answer, calls, events_of, fold, message, passes, says
from tests.streams import bytewise

ARRAY = "application/json"


def written(events: list[Event], stream_type: str = "") -> bytes:
    facts = AnswerFacts(call_id="req_1", model="m", created=1, include_usage=True, stream_type=stream_type)
    return StreamWriter.for_call(DIALECT, facts).write(events)


@pytest.mark.parametrize("stream_type", ["", ARRAY], ids=["events", "an array"])
@pytest.mark.parametrize("data", HEALTHY.values(), ids=HEALTHY)
def test_a_healthy_answer_is_the_same_when_it_was_written_and_read_again(data: bytes, stream_type: str) -> None:
    events = events_of(data)
    once = written(events, stream_type)
    again = events_of(once)
    assert replace(fold(again), repairs=()) == replace(fold(events), repairs=())  # an array is counted as one
    assert written(again, stream_type) == once
    assert events_of(*bytewise(once)) == again


@pytest.mark.slow
@pytest.mark.parametrize("data", HEALTHY.values(), ids=HEALTHY)
def test_a_cut_answer_is_completed_only_with_its_last_message(data: bytes) -> None:
    whole = fold(events_of(data))
    for end in range(len(data.rstrip().removesuffix(b"]").rstrip())):
        part = fold(events_of(data[:end]))
        assert part.ending != "completed"
        assert whole.text.startswith(part.text)


def test_arguments_that_are_no_object_are_a_text_and_a_loss() -> None:
    cut = passes({"jsonPath": "$.port", "stringValue": "Bre", "willContinue": True}, name="get_tide", more=False)
    events = events_of(answer(says("Wait."), cut, message(calls())))
    facts = AnswerFacts(call_id="req_1", model="m", created=1)
    writer = StreamWriter.for_call(DIALECT, facts)
    first, second = fold(events_of(writer.write(events))).choices[0].tool_calls
    assert (first.arguments, second.arguments) == ('{"input":"{\\"port\\":\\"Bre"}', '{"port":"Brest"}')
    assert [(loss.code, loss.detail) for loss in writer.losses] == [("arguments-as-text", "get_tide")]
