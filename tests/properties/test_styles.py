"""Any answer in the legal order, written in any style, is read as the same answer."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock import Event, StreamReader
from penstock.core.dialects.registry import DEFAULT_DIALECT
from penstock.replay.styles import write_in_style, write_unstreamed
from penstock.replay.styles.catalog import load_style, style_names
from tests.invariants import sent_text
from tests.legal import violations
from tests.properties.answers import answers
from tests.streams import fold, read

pytestmark = pytest.mark.slow


@given(answers(), st.sampled_from(style_names(DEFAULT_DIALECT)), st.booleans(), st.booleans())
@settings(max_examples=400, deadline=None)
def test_says_the_same_in_any_style(events: list[Event], name: str, cut: bool, asked: bool) -> None:
    answer = fold(events)
    wire = b"".join(write_in_style(events if cut else answer, load_style(name), include_usage=asked))
    again = read(wire)
    assert violations(again) == []
    assert sent_text(fold(again)) == sent_text(answer)
    assert fold(again).ending == "completed"
    finishes = [[choice.finish_reason for choice in completion.choices] for completion in (answer, fold(again))]
    assert finishes[0] == finishes[1]


@given(answers(), st.sampled_from(("ollama", "cohere", "bedrock")), st.booleans())
@settings(max_examples=200, deadline=None)
def test_the_first_choice_says_the_same_in_the_apis_of_providers(
    events: list[Event], name: str, unstreamed: bool
) -> None:
    style, answer = load_style(name), fold(events)
    wire = write_unstreamed(events, style) if unstreamed else b"".join(write_in_style(events, style))
    again = read(wire, reader=StreamReader(style.dialect))
    assert violations(again) == []
    before, after = answer.choices[0], fold(again).choices[0]
    assert after.reasoning == before.reasoning
    assert [(call.id, call.name) for call in after.tool_calls] == [(call.id, call.name) for call in before.tool_calls]
    assert sorted(after.text) == sorted(before.text + before.refusal)  # a refusal is text, where it was
    assert before.refusal or after.text == before.text
    assert fold(again).ending == "completed"
