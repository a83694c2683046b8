"""The OpenAPI document of the admin API as a judge of its responses."""

from copy import deepcopy
from functools import cache
from typing import Any

from jsonschema import Draft202012Validator  # type: ignore[import-untyped]

from penstock.serve.admin.openapi import document
from penstock.serve.admin.routes import ROUTE_GROUPS, ROUTES

# A longer response is many of the same, which would take seconds.
_MAX_CHECKED = 100_000


@cache
def strict_document() -> dict[str, Any]:
    """The document, in which no object may have fields that its schema does not name."""
    strict = deepcopy(document(ROUTE_GROUPS))
    _close(strict["components"]["schemas"])
    return strict


def _close(schema: Any) -> None:
    if isinstance(schema, dict):
        if isinstance(schema.get("properties"), dict) and "type" in schema:
            schema["additionalProperties"] = False
        for each in schema.values():
            _close(each)
    elif isinstance(schema, list):
        for each in schema:
            _close(each)


@cache
def _validator(path: str, method: str, status: str) -> Draft202012Validator:
    responses = strict_document()["paths"][path][method]["responses"]
    schema = responses[status if status in responses else "default"]["content"]["application/json"]["schema"]
    return Draft202012Validator({**schema, "components": strict_document()["components"]})


def check_response(method: str, path: str, status: int, body: Any, size: int) -> None:
    """A JSON response of a route has the fields and types of its schema."""
    path = path.partition("?")[0]
    route = next((each for each in ROUTES if each.pattern.fullmatch(path) and each.answers(method)), None)
    if route is None or size > _MAX_CHECKED or method == "HEAD":
        return
    validator = _validator(route.name.partition(" ")[2], route.method.lower(), str(status))
    errors = [f"{error.json_path}: {error.message[:300]}" for error in validator.iter_errors(body)]
    assert not errors, (method, path, status, errors)
