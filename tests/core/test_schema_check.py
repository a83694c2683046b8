"""SchemaCheck decides as `jsonschema` does, or leaves it undecided."""

import json
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.json.schema_check import SchemaCheck

NAMES = st.sampled_from(["a", "b", "c"])
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-3, 3)
    | st.sampled_from([0.0, 0.5, 1.0, 2.0])
    | st.sampled_from(["", "x", "xy"])
)
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3))
TYPES = st.sampled_from(["object", "array", "string", "number", "integer", "boolean", "null"])
LIMITS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")
SIZES = ("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties")


def _schemas(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.fixed_dictionaries(
        {},
        optional={
            "type": TYPES | st.lists(TYPES, min_size=1, max_size=3, unique=True),
            "properties": st.dictionaries(NAMES, inner, max_size=3),
            "required": st.lists(NAMES, max_size=2, unique=True),
            "additionalProperties": inner,
            "items": inner,
            "enum": st.lists(VALUES, min_size=1, max_size=3),
            "const": VALUES,
            "anyOf": st.lists(inner, min_size=1, max_size=3),
            "oneOf": st.lists(inner, min_size=1, max_size=3),
            "allOf": st.lists(inner, min_size=1, max_size=3),
            "$ref": st.sampled_from(["#/$defs/one", "#/$defs/two"]),
            "description": st.just("a river"),
            "format": st.just("date"),
            "x-own": st.just(1),
            "pattern": st.just("^x"),
            "not": inner,
            **{name: st.integers(-1, 2) for name in LIMITS},
            **{name: st.integers(0, 2) for name in SIZES},
        },
    )


SCHEMAS: st.SearchStrategy[Any] = st.recursive(st.booleans() | st.just({}), _schemas, max_leaves=8)


@given(SCHEMAS.filter(lambda schema: isinstance(schema, dict)), SCHEMAS, VALUES)
def test_it_decides_as_jsonschema_does(schema: dict[str, Any], other: Any, value: object) -> None:
    whole = {**schema, "$defs": {"one": {"type": "string"}, "two": _without_references(other)}}
    decided = SchemaCheck().accepts(whole, value)
    if decided is not None:
        assert decided == jsonschema.Draft202012Validator(whole).is_valid(value)


def _without_references(schema: Any) -> Any:
    """References that lead in circles make `jsonschema` recurse without end."""
    return json.loads(json.dumps(schema).replace('"$ref"', '"$comment"'))


@given(SCHEMAS.filter(lambda schema: isinstance(schema, dict)), VALUES)
def test_without_unsupported_keywords_it_always_decides(schema: dict[str, Any], value: object) -> None:
    text = (
        json.dumps(schema).replace('"pattern"', '"x-pattern"').replace('"not"', '"x-not"').replace('"$ref"', '"x-ref"')
    )
    assert SchemaCheck().accepts(json.loads(text), value) is not None


DEEP: Any = {"properties": {"next": {"$ref": "#"}}, "required": ["next"]}


@pytest.mark.parametrize(
    ("schema", "value", "verdict"),
    [
        ({"type": "integer"}, True, False),
        ({"type": "integer"}, 1.0, True),
        ({"enum": [1]}, True, False),
        ({"const": [1.0]}, [1], True),
        ({"type": "river"}, "x", None),
        ({"pattern": "^x"}, "x", None),
        ({"pattern": "^x", "type": "string"}, 1, False),
        ({"anyOf": [{"pattern": "^x"}, {"type": "string"}]}, "x", True),
        ({"oneOf": [{"pattern": "^x"}, {"type": "string"}]}, "x", None),
        ({"$ref": "https://example.com/schema"}, "x", None),
        ({"$ref": "#/$defs/missing"}, "x", None),
        ({"$ref": "#"}, "x", None),
        ({"$defs": {"a/b": {"type": "string"}}, "$ref": "#/$defs/a~1b"}, 1, False),
        ({"items": [{"type": "string"}]}, ["x"], None),
        ({"properties": {"a": {"$id": "other", "type": "string"}}}, {"a": "x"}, None),
        (DEEP, {"next": {}}, False),
    ],
)
def test_a_verdict(schema: dict[str, Any], value: object, verdict: bool | None) -> None:
    assert SchemaCheck().accepts(schema, value) is verdict


def test_what_takes_too_long_is_undecided() -> None:
    nested: Any = {"type": "string"}
    for _ in range(30):
        nested = {"anyOf": [nested, nested]}
    assert SchemaCheck().accepts(nested, 1) is None
    check = SchemaCheck()
    verdicts = [check.accepts({"items": {"type": "integer"}}, [1] * 1_000) for _ in range(100)]
    assert verdicts[0] is True
    assert verdicts[-1] is None
