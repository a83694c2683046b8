"""JSON text in any style has the same value."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.json_text import JsonStyle, style_of, write_json

STYLES = [JsonStyle(spaced, escape) for spaced in (False, True) for escape in ("none", "ascii", "html")]
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(values, st.sampled_from(STYLES))
def test_reads_back_as_it_was(value: object, style: JsonStyle) -> None:
    assert json.loads(write_json(value, style)) == value


WRITTEN: list[tuple[object, JsonStyle, str]] = [
    ({"a": [1, "é<"]}, JsonStyle(), '{"a":[1,"é<"]}'),
    ({"a": [1, "é<"]}, JsonStyle(spaced=True), '{"a": [1, "é<"]}'),
    ("é<&\u2028", JsonStyle(escape="ascii"), '"\\u00e9<&\\u2028"'),
    ("é<&\u2028", JsonStyle(escape="html"), '"é\\u003c\\u0026\\u2028"'),
    (0.000011, JsonStyle(), "0.000011"),
    (3e-7, JsonStyle(), "3e-7"),
    (0.048029167, JsonStyle(), "0.048029167"),
    (1e22, JsonStyle(), "1e+22"),
    (float("nan"), JsonStyle(), "null"),
]


@pytest.mark.parametrize(("value", "style", "text"), WRITTEN)
def test_is_written_so(value: object, style: JsonStyle, text: str) -> None:
    assert write_json(value, style) == text


@pytest.mark.parametrize("style", STYLES)
def test_a_style_is_recognised(style: JsonStyle) -> None:
    assert style_of(write_json({"id": "<é>"}, style)) == style
