"""The chart's values.yaml and its schema have the same values, and the templates use each of them."""

import json
from collections.abc import Iterator
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import pytest
import yaml

from tests.deploy.chart import CHART, EXAMPLES

VALUES = yaml.safe_load((CHART / "values.yaml").read_text())
SCHEMA = json.loads((CHART / "values.schema.json").read_text())
TEMPLATES = "".join(path.read_text() for path in sorted((CHART / "templates").iterdir()))
ADDED_BY_HELM = {"global"}  # to the values of every chart that is part of another one


def closed(schema: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """The tables of the schema whose keys are fixed."""
    if "properties" in schema:
        yield path, schema
        for name, inner in schema["properties"].items():
            yield from closed(inner, (*path, name))


@pytest.mark.parametrize(
    ("path", "schema"), list(closed(SCHEMA)), ids=lambda each: ".".join(each) if isinstance(each, tuple) else ""
)
def test_values_and_schema_agree(path: tuple[str, ...], schema: Any) -> None:
    values = VALUES
    for name in path:
        values = values[name]
    assert schema["additionalProperties"] is False
    if path == ("resources",):  # claims are optional
        assert set(values) <= set(schema["properties"])
    else:
        assert set(values) == set(schema["properties"]) - (set() if path else ADDED_BY_HELM)


def test_defaults_and_examples_fit_the_schema() -> None:
    jsonschema.Draft7Validator.check_schema(SCHEMA)
    for values in (VALUES, *(yaml.safe_load(path.read_text()) for path in EXAMPLES.values())):
        jsonschema.validate(values, SCHEMA)


def test_a_template_uses_every_value() -> None:
    names = {name for path, schema in closed(SCHEMA) for name in schema["properties"] if path != ("resources",)}
    unused = {name for name in names - ADDED_BY_HELM if f".{name}" not in TEMPLATES and f'"{name}"' not in TEMPLATES}
    assert unused == set()
