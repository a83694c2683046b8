"""The OpenAPI document of the admin API, from the table of routes."""

import inspect
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import fields

from penstock.gateway.keys.fields import FIELDS
from penstock.gateway.keys.terms import LimitTerms
from penstock.installation import version
from penstock.serve.admin.access import COOKIE
from penstock.serve.admin.queries import Parameter
from penstock.serve.admin.replies import SCIM_JSON
from penstock.serve.admin.route import AdminRoute
from penstock.serve.admin.schemas import AdminErrorBody
from penstock.serve.responses import JSON

_NO_CONTENT = 204
_LINK = re.compile(r"\[([^]]+)\]\([^)]+\)")
_ID = {"name": "id", "in": "path", "required": True, "schema": {"type": "string"}}
_SECURITY_SCHEMES = {
    "token": {"type": "http", "scheme": "bearer", "description": "The admin token, or an API token."},
    "session": {
        "type": "apiKey",
        "in": "cookie",
        "name": COOKIE,
        "description": "Requests other than GET also need the header `x-penstock-page: 1` and the page's Origin.",
    },
}


def document(groups: Mapping[str, Sequence[AdminRoute]]) -> dict[str, Any]:
    """The document, as JSON fields. The groups are its tags."""
    routes = [route for group in groups.values() for route in group]
    used = dict.fromkeys(kind for route in routes for kind in (route.body, route.response))
    kinds = [AdminErrorBody, *(kind for kind in used if kind is not None and not isinstance(kind, str))]
    schemas, components = msgspec.json.schema_components(kinds, ref_template="#/components/schemas/{name}")
    for component in components.values():
        if "description" in component:  # a docstring, indented in Python 3.12 and before
            component["description"] = inspect.cleandoc(component["description"])
    _describe_fields(components)
    content = {kind: {JSON: {"schema": schema}} for kind, schema in zip(kinds, schemas, strict=True)}
    # Other bodies are named by their media type.
    content |= {kind: {kind: {"schema": _schema_of(kind)}} for kind in used if isinstance(kind, str)}
    paths: dict[str, dict[str, Any]] = {}
    for tag, group in groups.items():
        for route in group:
            operation = {"tags": [tag], **_operation(route, content)}
            paths.setdefault(route.name.partition(" ")[2], {})[route.method.lower()] = operation
    return {
        "openapi": "3.1.0",
        "info": {"title": "The admin API of Penstock", "version": version()},
        "tags": [{"name": tag} for tag in groups],
        "paths": paths,
        "components": {"securitySchemes": _SECURITY_SCHEMES, "schemas": components},
    }


def _operation(route: AdminRoute, content: Mapping[Any, Any]) -> dict[str, Any]:
    text = _LINK.sub(r"\1", route.summary)
    answer = {"content": content[route.response]}
    error = SCIM_JSON if route.response == SCIM_JSON else AdminErrorBody
    operation: dict[str, Any] = {
        "operationId": route.handle.__name__,
        "summary": text.partition(". ")[0].rstrip("."),
        "description": text,
        "security": [{name: [route.needs]} for name in _SECURITY_SCHEMES],
        "responses": {
            str(route.status): {"description": "The response."} | ({} if route.status == _NO_CONTENT else answer),
            "default": {"description": "Why it was refused, or failed.", "content": content[error]},
        },
    }
    parameters = [_parameter(name, each) for name, each in (route.query or {}).items()]
    if "{" in route.path:
        parameters.insert(0, _ID)
    if parameters:
        operation["parameters"] = parameters
    if route.body is not None:
        operation["requestBody"] = {"required": _is_required(route.body), "content": content[route.body]}
    return operation


def _schema_of(media_type: str) -> dict[str, Any]:
    """The schema of a body that is no JSON of our own."""
    if media_type.endswith("+json"):
        return {"type": "object"}
    return {"type": "string"} | ({"format": "binary"} if media_type == "application/octet-stream" else {})


def _is_required(body: Any) -> bool:
    """Whether an empty body is refused."""
    return not (isinstance(body, type) and issubclass(body, Struct)) or any(each.required for each in fields(body))


def _describe_fields(components: dict[str, Any]) -> None:
    """Say of the settings of keys and teams in requests what the table of fields says."""
    for kind in _settings(LimitTerms):
        for name, schema in components.get(kind.__name__, {}).get("properties", {}).items():
            if name in FIELDS and FIELDS[name].help:
                schema.setdefault("description", FIELDS[name].help)


def _settings(kind: type[LimitTerms]) -> Iterator[type[LimitTerms]]:
    yield kind
    for each in kind.__subclasses__():
        yield from _settings(each)


def _parameter(name: str, parameter: Parameter) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": parameter.kind}
    if parameter.repeated:
        schema = {"type": "array", "items": schema}
    return {"name": name, "in": "query", "description": _LINK.sub(r"\1", parameter.meaning), "schema": schema}
