"""The comparison of two answers: what differs, and what does not count as a difference."""

import pytest

from penstock import Completion
from penstock.core.hub.completion import Choice
from penstock.core.hub.content import ToolCall
from penstock.gateway.calls.comparison import AnswerComparison, compare


def answer(text: str = "", *calls: tuple[str, str], finish: str = "stop") -> Completion:
    made = tuple(ToolCall(f"id{place}", name, arguments) for place, (name, arguments) in enumerate(calls))
    return Completion(choices=(Choice(0, text=text, tool_calls=made, finish_reason=finish),))


HI = answer("The tide is high at noon.")
CASES: dict[str, tuple[Completion, Completion, AnswerComparison]] = {
    "the same": (HI, HI, AnswerComparison(True, "same", 1.0, 1.0)),
    "other words": (HI, answer("No."), AnswerComparison(True, "same", 0.0, 0.12)),
    "the same words in another order": (answer("a b"), answer("b A"), AnswerComparison(True, "same", 1.0, 1.0)),
    "another end": (
        HI,
        answer("The tide is high at noon.", finish="length"),
        AnswerComparison(False, "same", 1.0, 1.0),
    ),
    "the same call, written otherwise": (
        answer("", ("f", '{"a": 1, "b": 2}')),
        answer("", ("f", '{"b":2,"a":1}')),
        AnswerComparison(True, "same", 1.0, 1.0),
    ),
    "other arguments": (
        answer("", ("f", '{"a":1}')),
        answer("", ("f", '{"a":2}')),
        AnswerComparison(True, "arguments", 1.0, 1.0),
    ),
    "another tool": (answer("", ("f", "{}")), answer("", ("g", "{}")), AnswerComparison(True, "other", 1.0, 1.0)),
    "one call more": (
        answer("", ("f", "{}")),
        answer("", ("f", "{}"), ("f", "{}")),
        AnswerComparison(True, "other", 1.0, 1.0),
    ),
    "text for a call": (answer("", ("f", "{")), answer("Hi"), AnswerComparison(True, "other", 0.0, 0.0)),
    "nothing": (Completion(), Completion(), AnswerComparison(True, "same", 1.0, 1.0)),
}


@pytest.mark.parametrize(("first", "second", "expected"), CASES.values(), ids=CASES)
def test_answers_are_compared(first: Completion, second: Completion, expected: AnswerComparison) -> None:
    assert compare(first, second) == expected


def test_a_comparison_is_kept_as_a_text_without_content() -> None:
    compared = compare(HI, answer("No."))
    assert str(compared) == "finish=same tools=same similarity=0.00 length=0.12"
    assert AnswerComparison.parse(str(compared)) == compared
    assert AnswerComparison.parse("") is None
    assert AnswerComparison.parse("tools=same similarity=x length=1") is None
