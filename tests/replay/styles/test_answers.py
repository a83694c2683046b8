"""Every kind of answer in every style is read by our own reader as the same answer.

What may differ: the id, if the provider's ids have another format; ids of calls that had none; fields and counts that
the provider does not have; and whether its output count includes the reasoning.
"""

import pytest

from penstock import Completion, Event, ToolCall, Usage
from penstock.core.dialects.registry import DEFAULT_DIALECT
from penstock.replay.styles import ProviderStyle, write_in_style
from penstock.replay.styles.catalog import load_style, style_names
from tests.invariants import sent_text
from tests.judges.cases import BROKEN_EVENTS, COMPLETED_EVENTS
from tests.legal import violations
from tests.streams import fold, read

# The repairs and notices of each style, in any stream.
REMARKS: dict[str, set[str]] = {
    "azure": {"object-missing-no-choices"},
    "cerebras": {"no-done"},
    "mistral": {"content-parts"},
    "openrouter": {"role-repeated"},
    "reseller": {"missing-blank-line", "json-on-next-line", "no-final-newline", "usage-placeholder"},
    "xai": {"usage-reasoning-apart"},
    "zai": {"object-missing", "role-repeated", "envelope-incomplete"},
}
# What it remarks on because of the answer itself.
OF_THE_ANSWER = {"envelope-incomplete", "finish-unknown", "tool-arguments-broken"}

every_style = pytest.mark.parametrize("name", style_names(DEFAULT_DIALECT))
every_answer = pytest.mark.parametrize("events", COMPLETED_EVENTS.values(), ids=COMPLETED_EVENTS)


@every_style
@every_answer
def test_says_the_same_from_events(events: list[Event], name: str) -> None:
    assert_same(fold(events), b"".join(write_in_style(events, load_style(name))), load_style(name))


@every_style
@every_answer
def test_says_the_same_from_a_completion(events: list[Event], name: str) -> None:
    answer = fold(events)
    assert_same(answer, b"".join(write_in_style(answer, load_style(name))), load_style(name))


@every_style
@pytest.mark.parametrize("events", BROKEN_EVENTS.values(), ids=BROKEN_EVENTS)
def test_what_is_not_completed_is_not_completed(events: list[Event], name: str) -> None:
    answer = fold(events)
    again = fold(read(b"".join(write_in_style(events, load_style(name)))))
    assert (again.ending == "failed") == (answer.fault is not None or not answer.choices)
    assert again.ending != "completed"
    if answer.fault is not None and again.fault is not None:
        assert again.fault.code == "provider-error"
        assert answer.fault.message in again.fault.message
    assert sent_text(again) == sent_text(answer)


@every_style
def test_no_usage_is_invented(name: str) -> None:
    again = fold(read(b"".join(write_in_style(COMPLETED_EVENTS["no usage"], load_style(name)))))
    assert (again.usage, again.ending) == (None, "completed")


def assert_same(answer: Completion, wire: bytes, style: ProviderStyle) -> None:
    events = read(wire)
    assert violations(events) == []
    again = fold(events)
    assert again.ending == "completed"
    assert sent_text(again) == sent_text(answer)
    assert [choice.finish_reason for choice in again.choices] == [choice.finish_reason for choice in answer.choices]
    assert [choice.role for choice in again.choices] == [choice.role for choice in answer.choices]
    for call, before in zip(calls(again), calls(answer), strict=True):
        assert call.id == before.id or (before.id is None and (call.id or call.kind == "function_call"))
    assert figures(again.usage) == figures(answer.usage)
    remarks = {repair.code for repair in again.repairs}
    assert remarks <= REMARKS.get(style.name, set()) | OF_THE_ANSWER


def calls(answer: Completion) -> list[ToolCall]:
    return [call for choice in answer.choices for call in choice.tool_calls]


def figures(usage: Usage | None) -> tuple[int, int, int] | None:
    """Input, output with what is counted apart from it, and total."""
    if usage is None or usage.input is None or usage.output is None or usage.total is None:
        return None
    return usage.input, usage.total - usage.input, usage.total
