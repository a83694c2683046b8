"""JSON Schemas of answers for Claude: Anthropic's SDK transforms them in the same way."""

from anthropic import transform_schema
from hypothesis import given

from penstock.core.dialects.schema_subset import SchemaSubset
from tests.streams import Json
from tests.translation.schemas import SCHEMAS


def undescribed(schema: object) -> object:
    """The schema without descriptions, whose wording is our own."""
    if isinstance(schema, list):
        return [undescribed(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    named = ("properties", "$defs")
    return {
        name: {key: undescribed(each) for key, each in value.items()} if name in named else undescribed(value)
        for name, value in schema.items()
        if name != "description" or isinstance(value, dict)
    }


@given(SCHEMAS)
def test_a_schema_is_transformed_as_anthropics_sdk_does(schema: Json) -> None:
    assert undescribed(SchemaSubset([]).output(schema)) == undescribed(transform_schema(schema))
