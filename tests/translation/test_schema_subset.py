"""JSON Schemas for Claude: `jsonschema` judges what fulfils those of tools. `tests/judges/test_schema_subset.py` has
Anthropic's SDK judge those of answers.
"""

from contextlib import suppress
from typing import Any, cast

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]

from penstock.core.dialects.dialect import RequestError
from penstock.core.dialects.schema_subset import SchemaSubset
from penstock.core.hub.losses import Loss
from tests.translation.schemas import LEAVES, NAMES, SCHEMAS, SIMPLE
from tests.translation.support import CHAT, GEMINI, MESSAGES, RESPONSES, Json, asked


@given(SCHEMAS)
def test_the_subset_of_a_schema_is_its_own_subset(schema: Json) -> None:
    losses: list[Loss] = []
    written = SchemaSubset(losses).output(schema)
    found = len(losses)
    assert SchemaSubset(losses).output(written) == written
    assert len(losses) == found, "the subset loses nothing"
    assert {"schema-loosened"} >= {loss.code for loss in losses}


REFERRED: Json = {"$ref": "#/$defs/d", "$defs": {"d": {"type": "object", "properties": {"x": {"type": "string"}}}}}
CLOSED: Json = {"type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": False}
# What is lost; with an exclamation mark what only describes, whose loss does not change the meaning.
ANSWERS: dict[str, tuple[Json, Json, list[str]]] = {
    "bounds are in the description": (
        {"type": "integer", "minimum": 1, "description": "Stars"},
        {"type": "integer", "description": 'Stars\n\n{"minimum":1}'},
        ["minimum"],
    ),
    "a map becomes an empty object, which is declared": (
        {"type": "object", "additionalProperties": {"type": "string"}},
        {"type": "object", "properties": {}, "additionalProperties": False},
        ["additionalProperties"],
    ),
    "several types": (
        {"type": ["object", "null"], "properties": {"a": {"type": ["string", "null"], "format": "date"}}},
        {
            "type": ["object", "null"],
            "properties": {"a": {"type": ["string", "null"], "format": "date"}},
            "additionalProperties": False,
        },
        [],
    ),
    "an object without a type": (
        {"properties": {"a": {"items": {"type": "string"}, "maxItems": 3}}},
        {
            "type": "object",
            "properties": {"a": {"type": "array", "items": {"type": "string"}, "description": '{"maxItems":3}'}},
            "additionalProperties": False,
        },
        ["maxItems"],
    ),
    "definitions of older drafts": (
        {"$ref": "#/definitions/d", "definitions": {"d": {"type": "string", "maxLength": 3}}},
        {"$ref": "#/definitions/d", "definitions": {"d": {"type": "string", "description": '{"maxLength":3}'}}},
        ["maxLength"],
    ),
    "a reference stands alone": (
        REFERRED | {"description": "D"},
        {"$ref": "#/$defs/d", "$defs": {"d": REFERRED["$defs"]["d"] | {"additionalProperties": False}}},
        ["!description beside $ref"],
    ),
    "a restriction beside a reference": (
        {"anyOf": [{"$ref": "#/$defs/d", "maxProperties": 1}], "$defs": {"d": {"type": "null"}}},
        {"anyOf": [{"$ref": "#/$defs/d"}], "$defs": {"d": {"type": "null"}}},
        ["maxProperties"],
    ),
    "objects that fulfil several schemas are one object": (
        {
            "allOf": [
                {"$ref": "#/$defs/d"},
                {"type": "object", "properties": {"y": {"type": "null"}}, "required": ["y"]},
            ],
            "$defs": REFERRED["$defs"],
        },
        {
            "type": "object",
            "properties": {"x": {"type": "string"}, "y": {"type": "null"}},
            "required": ["y"],
            "additionalProperties": False,
            "$defs": {"d": REFERRED["$defs"]["d"] | {"additionalProperties": False}},
        },
        [],
    ),
    "a format that is no text": (
        {"type": "string", "format": ["date"]},
        {"type": "string", "description": '{"format":["date"]}'},
        ["format"],
    ),
    "common properties are those of each alternative": (
        CLOSED | {"anyOf": [{"required": ["a"]}, {"properties": {"b": {"type": "null"}}}]},
        {
            "anyOf": [
                CLOSED | {"required": ["a"]},
                CLOSED | {"properties": CLOSED["properties"] | {"b": {"type": "null"}}},
            ]
        },
        [],
    ),
}


@pytest.mark.parametrize(("schema", "expected", "lost"), ANSWERS.values(), ids=ANSWERS)
def test_the_schema_of_an_answer(schema: Json, expected: Json, lost: list[str]) -> None:
    losses: list[Loss] = []
    assert SchemaSubset(losses).output(schema) == expected
    assert [f"!{loss.detail}" if loss.code == "field-dropped" else loss.detail for loss in losses] == lost


ROUTE: Json = {"type": "object", "properties": {"route": {"type": "string"}, "file": {"type": "string"}}}
NULL: Json = {"type": "null"}
EITHER: list[Json] = [{"required": ["route"]}, {"required": ["file"]}]
ARGUMENTS: dict[str, tuple[Json, Json, list[str]]] = {
    "no schema": ({}, {"type": "object"}, []),
    "an object or null": ({"type": ["object", "null"]}, {"type": "object"}, []),
    "a text is no object": ({"type": "string"}, {"type": "object"}, ["type"]),
    "one of two properties": (
        ROUTE | {"anyOf": EITHER, "description": "Where"},
        ROUTE | {"description": 'Where\n\n{"anyOf":[{"required":["route"]},{"required":["file"]}]}'},
        ["anyOf"],
    ),
    "one of two objects, with a property that differs": (
        {
            "oneOf": [
                {"type": "object", "properties": {"kind": {"const": "a"}, "x": NULL}, "required": ["kind", "x"]},
                {"type": "object", "properties": {"kind": {"const": "b"}}, "required": ["kind"]},
                {"type": "string"},
            ]
        },
        {
            "type": "object",
            "properties": {"kind": {"anyOf": [{"const": "a"}, {"const": "b"}]}, "x": NULL},
            "required": ["kind"],
        },
        ["oneOf"],
    ),
    "all of two objects": (
        {"allOf": [REFERRED, ROUTE | {"required": ["file"]}], "$defs": REFERRED["$defs"]},
        ROUTE | {
            "properties": {"x": {"type": "string"}, **ROUTE["properties"]},
            "required": ["file"],
            "$defs": REFERRED["$defs"],
        },
        [],
    ),
    "a reference": (REFERRED, REFERRED["$defs"]["d"] | {"$defs": REFERRED["$defs"]}, []),
}  # fmt: skip


@pytest.mark.parametrize(("schema", "expected", "lost"), ARGUMENTS.values(), ids=ARGUMENTS)
def test_the_arguments_of_a_tool_are_one_object(schema: Json, expected: Json, lost: list[str]) -> None:
    losses: list[Loss] = []
    written = SchemaSubset(losses).tool(schema, strict=False)
    assert losses == [Loss("schema-loosened", keyword) for keyword in lost]
    described = {"description": written["description"]} if lost and "description" in written else {}
    assert written == expected | described
    if "oneOf" in schema:
        assert '"oneOf":[{' in cast("str", written["description"])


VALUES = st.dictionaries(NAMES, SIMPLE, max_size=3)
OBJECTS = st.fixed_dictionaries(
    {"type": st.just("object"), "properties": st.dictionaries(NAMES, LEAVES.filter(lambda leaf: "$ref" not in leaf))},
    optional={"required": st.lists(NAMES, unique=True, max_size=2), "additionalProperties": st.just(False)},
)


@given(st.sampled_from(["anyOf", "allOf"]), st.lists(OBJECTS, min_size=1, max_size=3), VALUES)
def test_merging_allows_all_arguments_of_properties_that_are_known_everywhere(
    keyword: str, options: list[Json], value: Json
) -> None:
    """A property that one alternative does not know has, in the merged object, the schema of those that do."""
    schema: Json = {keyword: options}
    merged = SchemaSubset([]).tool(schema, strict=False)
    shared = all(value.keys() <= option["properties"].keys() for option in options)
    if shared and Draft202012Validator(schema).is_valid(value):
        assert Draft202012Validator(merged).is_valid(value)
    if keyword == "allOf" and shared:
        assert Draft202012Validator(merged).is_valid(value) == Draft202012Validator(schema).is_valid(value)


TO_D: Json = {"$ref": "#/$defs/d"}
HOSTILE: dict[str, Json] = {
    "alternatives that are themselves": {"anyOf": [TO_D], "$defs": {"d": {"anyOf": [TO_D] * 9}}},
    "two recursive objects": {
        "allOf": [{"$ref": "#/$defs/d"}, {"$ref": "#/$defs/e"}],
        "$defs": {"d": {"properties": {"c": TO_D}}, "e": {"properties": {"c": {"$ref": "#/$defs/e"}}}},
    },
    "a reference to itself": TO_D | {"$defs": {"d": TO_D}},
    "many alternatives of a large object": {
        "properties": {f"p{number}": {"type": "null"} for number in range(200)},
        "anyOf": [{"required": [f"p{number}"]} for number in range(200)],
    },
    "many alternatives of an object with a long text": {
        "properties": {"a": {"description": "x" * 30_000}},
        "anyOf": [{"properties": {f"p{number}": {}}} for number in range(400)],
    },
    "many references to many keywords": {
        "properties": {"a": {}},
        "anyOf": [TO_D] * 2_000,
        "$defs": {"d": {"properties": {}} | {f"k{number}": 1 for number in range(2_000)}},
    },
    "many references to a long one": {
        "properties": {"a": {}},
        "anyOf": [TO_D] * 500,
        "$defs": {"d": {"$ref": "#/" + "a/" * 5_000}},
    },
    "alternatives with a long property that is nearly the same": {
        "anyOf": [{"properties": {"a": {"enum": [*range(1_000), number]}}} for number in range(800)]
    },
    "alternatives that require very many names": {
        "anyOf": [{"required": [f"name {number}" for number in each]} for each in (range(9_000), range(9_000)[::-1])]
    },
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("schema", HOSTILE.values(), ids=HOSTILE)
def test_the_work_for_a_schema_is_bounded(schema: Json) -> None:
    given = len(msgspec.json.encode(schema))
    for strict in (True, False):
        with suppress(RequestError):
            written = SchemaSubset([]).tool({"properties": {"nested": schema}} if strict else schema, strict=strict)
            assert len(msgspec.json.encode(written)) < 4_000_000 + 3 * given


def test_the_work_for_all_schemas_of_a_request_is_bounded() -> None:
    schemas = SchemaSubset([])
    schema: Json = {"anyOf": [ROUTE] * 100}
    with pytest.raises(RequestError):
        [schemas.tool(schema, strict=False) for _ in range(1_000)]


def test_alternatives_differ_by_the_type_of_a_value() -> None:
    options: list[Json] = [{"properties": {"a": {"const": value}}} for value in (1, True, 1.0)]
    written: Any = SchemaSubset([]).tool({"anyOf": options}, strict=False)
    assert [type(each["const"]) for each in written["properties"]["a"]["anyOf"]] == [int, bool, float]


FORMATS: dict[str, Json] = {
    CHAT: {
        "response_format": {
            "type": "json_schema",
            "json_schema": {"name": "s", "schema": {"type": "array", "minItems": 2}},
        }
    },
    RESPONSES: {"text": {"format": {"type": "json_schema", "name": "s", "schema": {"type": "array", "minItems": 2}}}},
    GEMINI: {
        "contents": "Hi",
        "generationConfig": {
            "responseMimeType": "application/json",
            "responseSchema": {"type": "ARRAY", "minItems": "2"},
        },
    },
}


@pytest.mark.parametrize("client", FORMATS)
def test_a_client_of_any_api_gets_the_subset_and_the_loss(client: str) -> None:
    body, lost = asked(client, MESSAGES, FORMATS[client])
    assert body["output_config"]["format"]["schema"] == {"type": "array", "description": '{"minItems":2}'}
    assert ("schema-loosened", "minItems") in lost


def test_a_strict_tool_has_the_subset_and_another_one_any_schema() -> None:
    schema: Json = {"type": "object", "properties": {"n": {"type": "integer", "minimum": 1}}}
    function: Json = {"name": "f", "parameters": schema}
    for strict in (True, False):
        tool = {"type": "function", "function": function | {"strict": strict}}
        body, lost = asked(CHAT, MESSAGES, {"tools": [tool]})
        written: Any = body["tools"][0]["input_schema"]
        assert (written == schema) is not strict
        assert (("schema-loosened", "minimum") in lost) is strict
        assert written.get("additionalProperties", True) is not strict
