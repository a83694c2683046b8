"""Finish reasons: each provider's reason is mapped to one of ours, and is emitted once."""

import pytest

from penstock import Finish, TextDelta
from tests.streams import (
    DONE,
    begins,
    bill,
    choice,
    chunk,
    completion,
    counts,
    delta,
    finishes,
    read,
    repairs,
    says,
    sse,
)

REASONS: dict[str, tuple[str, str, str | None, dict[str, int]]] = {
    "stop": ("stop", "stop", None, {}),
    "length": ("length", "length", None, {}),
    "tool_calls": ("tool_calls", "tool_calls", None, {}),
    "content_filter": ("content_filter", "content_filter", None, {}),
    "function_call": ("function_call", "function_call", None, {}),
    **{
        theirs: (theirs, ours, theirs, {"finish-mapped": 1})
        for ours, words in {
            "stop": ("eos", "eos_token", "end_turn", "stop_sequence", "STOP", "completed", "COMPLETE"),
            "length": ("max_tokens", "MAX_TOKENS", "max_output_tokens", "model_length", "LENGTH"),
            "tool_calls": ("tool_use", "tool_call", "TOOL_CALLS"),
            "content_filter": ("content_filtered", "SAFETY", "safety", "RECITATION", "PROHIBITED_CONTENT", "BLOCKLIST"),
        }.items()
        for theirs in words
    },
    "a new word": ("pause_turn", "pause_turn", None, {"finish-unknown": 1}),
}


@pytest.mark.parametrize(("sent", "reason", "native", "tolerated"), REASONS.values(), ids=REASONS)
def test_a_finish_reason_is_mapped_and_its_native_word_kept(
    sent: str, reason: str, native: str | None, tolerated: dict[str, int]
) -> None:
    wire = sse(begins(), says("Hi"), finishes(sent), DONE)
    (choice,) = completion(wire).choices
    assert (choice.finish_reason, choice.native_finish_reason) == (reason, native)
    assert repairs(read(wire)) == tolerated


def test_a_native_reason_beside_the_finish_is_kept() -> None:
    events = read(sse(begins(), says("Hi"), chunk(choice({}, finish="stop", native_finish_reason="end_turn")), DONE))
    assert Finish(0, "stop", "end_turn") in events
    assert repairs(events) == {}


NO_REASON = {"null": "null", "None": "None", "empty": "", "false": False, "zero": 0}


@pytest.mark.parametrize("finish", NO_REASON.values(), ids=NO_REASON)
def test_what_is_no_reason_does_not_finish(finish: object) -> None:
    folded = completion(sse(begins(), delta({"content": "Hi"}, finish=finish)))
    assert folded.ending != "completed"


def test_a_finish_is_reported_once_and_last() -> None:
    events = read(sse(begins(), finishes(), says("Hi"), finishes(), bill(**counts(1, 1)), DONE))
    emitted = [event for event in events if isinstance(event, Finish | TextDelta)]
    assert emitted == [TextDelta(0, "Hi"), Finish(0, "stop")]
