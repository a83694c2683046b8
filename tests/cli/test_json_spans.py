"""The values in an event's JSON: each with its path, and with exactly the bytes that it has."""

import json
import string

from hypothesis import given
from hypothesis import strategies as st

from penstock.cli.inspection.json_spans import JsonPath, json_spans, path_matches

KEYS = st.text(string.ascii_letters + '"\\{}[],: é', max_size=4)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | KEYS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=12,
)
OBJECTS = st.dictionaries(KEYS, VALUES, max_size=4) | st.lists(VALUES, max_size=4)


def values_of(value: object, path: JsonPath = ()) -> dict[JsonPath, object]:
    """Every value by its path, nested ones first."""
    found: dict[JsonPath, object] = {}
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for step, each in inner:
        found |= values_of(each, (*path, step))
    return found | {path: value}


def escaped(path: JsonPath) -> JsonPath:
    """The path as it is in the bytes, where keys are escaped."""
    return tuple(json.dumps(step, ensure_ascii=False)[1:-1] if isinstance(step, str) else step for step in path)


@given(OBJECTS, st.sampled_from([None, 1]), st.sampled_from([b"", b"\n", b"event: x\ndata: "]))
def test_every_value_has_its_path_and_its_bytes(value: object, indent: int | None, before: bytes) -> None:
    text = json.dumps(value, ensure_ascii=False, indent=indent).encode()
    data = b"data: " * (not before.endswith(b"data: ")) + before + text + b"\n\n" + b'data: {"later": [1]}\n\n'
    expected = {escaped(path): each for path, each in values_of(value).items()}
    spans = list(json_spans(data, 0))
    assert [span.path for span in spans] == list(expected)
    for span in spans:
        found = data[span.start : span.end].decode()
        if span.path and isinstance(span.path[-1], str):
            (item,) = json.loads(f"{{{found}}}").values()
        else:
            item = json.loads(found)
        assert item == expected[span.path]


def test_what_is_not_the_json_of_this_event_has_no_spans() -> None:
    assert list(json_spans(b'data: x\nid: 1\n\ndata: {"a": 1}\n\n', 0)) == []
    assert list(json_spans(b": nothing\n", 0)) == []


def test_json_with_errors_is_scanned_as_far_as_it_goes() -> None:
    spans = list(json_spans(b'data: {"a": [1, 2, {"b": nul', 0))
    assert [span.path for span in spans] == [("a", 0), ("a", 1), ("a", 2, "b")]
    assert list(json_spans(b"data: ]", 0)) == []


def test_a_pattern_matches_any_step_at_a_star() -> None:
    assert path_matches(("a", "*", 0), ("a", 5, 0))
    assert not path_matches(("a", "*"), ("a", 5, 0))
    assert not path_matches(("a", 1), ("a", 2))
