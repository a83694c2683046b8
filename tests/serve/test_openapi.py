"""The OpenAPI document: it is valid, it has every route, and real responses are as it says."""

import json
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]

import penstock.serve
from penstock.gateway.keys import changes as key_changes
from penstock.gateway.keys.terms import KeyTerms
from penstock.gateway.limits.warnings import BudgetWarning
from penstock.gateway.people.audit import Actor
from penstock.gateway.people.roles import RoleGrant
from penstock.gateway.people.sessions import AdminSession
from penstock.serve.admin.openapi import document
from penstock.serve.admin.routes import ROUTE_GROUPS, ROUTES
from penstock.stores.book.sqlite import SqliteBook
from tests.faults.client import body, post
from tests.faults.gateway import Gateway, settings
from tests.faults.scripts import unstreamed
from tests.faults.upstream import Upstream
from tests.serve.openapi import check_response
from tests.serve.scim import SCIM, USER
from tests.serve.support import AdminClient

_HERE = Path(__file__).parent
_WRITTEN = _HERE.parents[1] / "docs" / "reference" / "openapi.json"
_PAGE = Path(penstock.serve.__file__).parent / "web"
_DOCUMENT = json.loads(json.dumps(document(ROUTE_GROUPS)))


def _strict(needed: dict[str, Any], **optional: Any) -> dict[str, Any]:
    """The schema of an object with these members and no others."""
    properties = {**needed, **optional}
    return {"type": "object", "properties": properties, "required": [*needed], "additionalProperties": False}


# What OpenAPI 3.1 says of the objects that the document has. Schemas are checked by JSON Schema's own schema.
_TEXT = {"type": "string", "minLength": 1}
_CONTENT = {"type": "object", "minProperties": 1, "additionalProperties": _strict({"schema": {"type": "object"}})}
_PARAMETER = _strict(
    {"name": _TEXT, "in": {"enum": ["path", "query", "header", "cookie"]}, "schema": {"type": "object"}},
    required={"type": "boolean"},
    description=_TEXT,
) | {"if": {"properties": {"in": {"const": "path"}}}, "then": {"required": ["required"]}}
_OPERATION = _strict(
    {
        "operationId": _TEXT,
        "summary": _TEXT,
        "description": _TEXT,
        "tags": {"type": "array", "items": _TEXT},
        "responses": {
            "type": "object",
            "minProperties": 1,
            "propertyNames": {"pattern": "^([1-5][0-9][0-9]|[1-5]XX|default)$"},
            "additionalProperties": _strict({"description": _TEXT}, content=_CONTENT),
        },
        "security": {
            "type": "array",
            "minItems": 1,
            "items": {"type": "object", "additionalProperties": {"type": "array", "items": _TEXT}},
        },
    },
    parameters={"type": "array", "items": _PARAMETER},
    requestBody=_strict({"content": _CONTENT}, required={"type": "boolean"}),
)
_SECURITY = {
    "oneOf": [
        _strict({"type": {"const": "http"}, "scheme": _TEXT}, description=_TEXT),
        _strict(
            {"type": {"const": "apiKey"}, "in": {"enum": ["query", "header", "cookie"]}, "name": _TEXT},
            description=_TEXT,
        ),
    ]
}
_OPENAPI = Draft202012Validator(
    _strict(
        {
            "openapi": {"const": "3.1.0"},
            "info": _strict({"title": _TEXT, "version": _TEXT}),
            "paths": {
                "type": "object",
                "propertyNames": {"pattern": "^/"},
                "additionalProperties": {
                    "type": "object",
                    "propertyNames": {"enum": ["get", "put", "post", "delete", "patch"]},
                    "additionalProperties": _OPERATION,
                },
            },
            "components": _strict(
                {
                    "schemas": {"type": "object", "propertyNames": {"pattern": r"^[A-Za-z0-9._-]+$"}},
                    "securitySchemes": {"type": "object", "additionalProperties": _SECURITY},
                }
            ),
        },
        tags={"type": "array", "items": _strict({"name": _TEXT})},
    )
)

_MORE = """
[providers.many]
base_url = "{url}"
[[providers.many.keys]]
name = "first"
api_key = "sk-first"
rpm = 500
[[providers.many.keys]]
name = "second"
api_key = "sk-second"
account = "org-2"
[routes.fast]
targets = ["main/answer"]
"""

# The lists that are empty in this gateway, so that the schemas of their items are not tested here.
_EMPTY = [
    "/admin/audit.entries[].after.client_credentials",
    "/admin/audit.entries[].after.member_keys.models",
    "/admin/audit.entries[].before.member_keys.models",
    "/admin/calls/{id}/content.left_out",
    "/admin/entries.entries[].attempts[].stalls",
    "/admin/entries/{id}.attempts[].stalls",
    "/admin/keys.keys[].client_credentials",
    "/admin/keys/{id}.client_credentials",
    "/admin/me.teams",
    "/admin/setup.providers[].keys",
    "/admin/setup.providers[].models",
    "/admin/usage.by",
]


def _operations() -> dict[tuple[str, str], Any]:
    return {
        (method.upper(), path): operation
        for path, item in _DOCUMENT["paths"].items()
        for method, operation in item.items()
    }


@pytest.mark.slow
def test_the_document_is_valid() -> None:
    assert [error.message for error in _OPENAPI.iter_errors(_DOCUMENT)] == []
    for schema in _DOCUMENT["components"]["schemas"].values():
        Draft202012Validator.check_schema(schema)
    operations = _operations()
    assert len({operation["operationId"] for operation in operations.values()}) == len(operations)
    for (_, path), operation in operations.items():
        parameters = [(each["in"], each["name"]) for each in operation.get("parameters", [])]
        assert len(set(parameters)) == len(parameters)
        assert {name for place, name in parameters if place == "path"} == set(re.findall(r"{(\w+)}", path))
        assert [*operation["security"][0], *operation["security"][1]] == [*_DOCUMENT["components"]["securitySchemes"]]
    known = {f"#/components/schemas/{name}" for name in _DOCUMENT["components"]["schemas"]}
    assert set(_references(_DOCUMENT)) <= known


def _references(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        if "$ref" in value:
            yield value["$ref"]
        value = list(value.values())
    for each in value if isinstance(value, list) else ():
        yield from _references(each)


def test_the_document_has_every_route_once() -> None:
    assert sorted(f"{method} {path}" for method, path in _operations()) == sorted(route.name for route in ROUTES)
    names = [operation["operationId"] for operation in _operations().values()]
    assert len(set(names)) == len(names)
    for (_, path), operation in _operations().items():
        assert operation["summary"]
        assert "](" not in operation["description"]
        places = {parameter["name"]: parameter["in"] for parameter in operation.get("parameters", ())}
        assert (places.get("id") == "path") == ("{id}" in path)


def test_the_page_asks_for_routes_that_exist() -> None:
    scripts = "".join(path.read_text(encoding="utf-8") for path in sorted(_PAGE.rglob("*.js")))
    asked = re.findall(r"(?:may\(|needs: )'([^']+)'", scripts)
    assert len(asked) > 20
    assert set(asked) <= {route.name for route in ROUTES}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AdminClient]:
    folder = tmp_path_factory.mktemp("openapi")
    with Upstream() as upstream:
        upstream.play(unstreamed(), "answer")
        configuration = settings(upstream.url, 0, admin={"content": True}, content={"keep": "always"}) + _MORE.format(
            url=upstream.url
        )
        with Gateway(folder, upstream, configuration, arguments=("--record", str(folder / "captures"))) as gateway:
            yield AdminClient(gateway)


@pytest.fixture(scope="module")
def ids(served: AdminClient) -> dict[str, str]:
    """A thing of every kind that the API shows, by the paths of their routes."""
    served.ask(
        "POST",
        "/admin/teams",
        {"path": "acme", "models": ["fast"], "budgets": {"month": 5}, "end_users": {"budgets": {"day": 1}}},
    )
    limits = {
        "budget": 1,
        "budgets": {"day": 1},
        "requests_per_minute": 99,
        "expires": "30d",
        "tags": {"a": "b"},
        "models": ["fast"],
    }
    secret, key = served.make(name="ci", team="acme", end_users={"concurrent": 2}, **limits)
    served.ask("POST", "/admin/tokens", {"name": "reader", "role": "viewer"})
    served.ask("POST", "/admin/tokens", {"name": "lead", "role": "team_admin", "team": "acme"})
    wanted = {"key": "ci", "budgets": {"day": "2"}, "models": ["slow"], "reason": "a demo"}
    lead = {"Authorization": f"Bearer {served.secrets[-1]}"}
    assert served.send("POST", "/admin/requests", wanted, lead)[0] == 201
    headers = {"Authorization": f"Bearer {secret}"}
    with served.gateway.client() as client:
        client.send(post(body("fast", stream=False, user="ann", metadata={"x": "y"}), headers))
        call = client.response().request_id
        client.send(post(body("fast", stream=False), {"Authorization": "Bearer sk-wrong"}))
        assert client.response().status == 401
    served.gateway.until(lambda: served.ask("GET", f"/admin/calls/{call}/content")[0] == 200)
    served.gateway.until(lambda: served.ask("GET", f"/admin/entries/{call}")[0] == 200)
    served.gateway.until(
        lambda: served.download(f"/admin/calls/{call}/capture", {"Authorization": f"Bearer {served.token}"})[0] == 200
    )
    now = time.time_ns() // 1_000_000
    book = SqliteBook.open(served.state / "ledger.db")
    try:
        session = AdminSession(
            id="ab", who="eve", grants=(RoleGrant("viewer"),), created_ms=now, expires_ms=now + 10**7
        )
        book.people.start_session(session, Actor("eve", "session"))
        warning: Any = {"account": key["id"], "label": "2026-11", "percent": 50, "period": "month", "kind": "key"}
        named = {"name": key["id"], "title": "ci", "budget": 10**9, "spent": 6 * 10**8, "refused": False, "at_ms": now}
        served.ask("PATCH", "/admin/teams/acme", {"members": {"budgets": {"day": 1}}, "member_keys": {"models": ["*"]}})
        key_changes.create(
            book, KeyTerms(name="own", team="acme", models=("*",), budgets={"day": 1}), now, owner="eve <1>"
        )
        book.claim_warnings([BudgetWarning(**warning, **named)])
    finally:
        book.close()
    user = served.ask("POST", f"{SCIM}/Users", {"userName": "ann@example.com"})[1]
    group = served.ask("POST", f"{SCIM}/Groups", {"displayName": "staff"})[1]
    return {
        f"{SCIM}/ResourceTypes/{{id}}": "User",
        f"{SCIM}/Schemas/{{id}}": USER,
        f"{SCIM}/Users/{{id}}": user["id"],
        f"{SCIM}/Groups/{{id}}": group["id"],
        "/admin/keys/{id}": "ci",
        "/admin/teams/{id}": "acme",
        "/admin/entries/{id}": call,
        "/admin/users/{id}": "ann",
        "/admin/calls/{id}/content": call,
        "/admin/calls/{id}/capture": call,
    }


@pytest.mark.slow
def test_every_response_is_as_the_document_says(served: AdminClient, ids: dict[str, str]) -> None:
    empty: set[str] = set()
    for (method, path), operation in _operations().items():
        types = operation["responses"].get("200", {}).get("content", {})
        if method != "GET" or "text/event-stream" in types:
            continue
        asked = path.replace("{id}", ids.get(path, ""))
        headers = {"Authorization": f"Bearer {served.token}"}
        status, received, content = served.download(asked, headers)
        assert status == 200, (asked, content)
        assert received["content-type"].partition(";")[0] in types, asked
        if "application/json" in types:
            check_response(method, asked, status, json.loads(content), 0)
            empty |= set(_empty(json.loads(content), path))
    assert sorted(each for each in empty if "openapi.json" not in each) == _EMPTY


def _empty(reported: Any, path: str) -> Iterator[str]:
    """The lists of a response that are empty, so that the schemas of their items are not tested."""
    if isinstance(reported, dict):
        for name, value in reported.items():
            yield from _empty(value, f"{path}.{name}")
    elif isinstance(reported, list):
        if not reported:
            yield path
        for value in reported:
            yield from _empty(value, f"{path}[]")


@pytest.mark.slow
def test_what_is_not_in_the_document_does_not_exist(served: AdminClient, ids: dict[str, str]) -> None:
    documented = {path: {method for method, each in _operations() if each == path} for _, path in _operations()}
    for path, methods in documented.items():
        asked = path.replace("{id}", ids.get(path, "x"))
        for method in {"GET", "POST", "PUT", "PATCH", "DELETE"} - methods:
            status, _, headers = served.send(method, asked, None, {"Authorization": f"Bearer {served.token}"})
            assert status == 405, (method, asked)
            assert set(headers["allow"].split(", ")) == methods
        if "teams" not in path:  # the path of a team has slashes
            assert served.ask("GET", f"{asked}/undocumented/path")[0] == 404


@pytest.mark.slow
def test_the_document_is_served_to_every_role(served: AdminClient) -> None:
    assert served.get("/admin/openapi.json") == _DOCUMENT == json.loads(_WRITTEN.read_text(encoding="utf-8"))
    assert served.ask("POST", "/admin/tokens", {"name": "viewer", "role": "viewer"})[0] == 201
    headers = {"Authorization": f"Bearer {served.secrets[-1]}"}
    assert served.send("GET", "/admin/openapi.json", headers=headers)[0] == 200
    assert served.send("GET", "/admin/openapi.json")[0] == 401
