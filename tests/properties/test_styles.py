"""Any answer in the legal order, written in any style, is read as the same answer."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock import Event
from penstock.core.dialects.registry import DEFAULT_DIALECT
from penstock.replay.styles import write_in_style
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
