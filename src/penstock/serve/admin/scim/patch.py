"""PATCH: applies the operations of a request to a resource, in the forms in which Okta and Entra ID write them.

| form | who |
|---|---|
| `{"op": "replace", "value": {"active": false}}` | Okta |
| `{"op": "Replace", "path": "active", "value": "False"}` | Entra ID: operations in any case, truth values as text |
| `{"op": "Add", "path": "emails[type eq \\"work\\"].value", "value": "…"}`, if there is none | Entra ID |
| `{"op": "Add", "value": {"name.givenName": "…"}}` | Entra ID |
| `{"op": "remove", "path": "members[value eq \\"…\\"]"}` | both |
| `{"op": "Remove", "path": "members", "value": [{"value": "…"}]}` | Entra ID |

Attributes that are not in the table are ignored.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct, field

from penstock.serve.admin.scim.attributes import Attribute, Document, attribute_of, read_document
from penstock.serve.admin.scim.errors import ScimError
from penstock.serve.admin.scim.filters import FilterTerm, plain_name, read_filter

_MAX_OPERATIONS = 1_000
_MAX_PATH = 1_000
# As in filters: no part can be read in two ways.
_PATH = re.compile(r"(?P<name>[A-Za-z$][\w$:.-]*)(?:\[(?P<filter>.*)\](?:\.(?P<sub>[\w$]+))?)?")


class Operation(Struct):
    """One operation. Without a `path`, the value is an object with the attributes."""

    op: str
    path: str | None = None
    value: Any = None


class PatchBody(Struct):
    """The body of a PATCH."""

    operations: list[Operation] = field(name="Operations", default_factory=list)
    schemas: list[str] = field(default_factory=list)


def patched(document: Document, attributes: Sequence[Attribute], body: PatchBody) -> Document:
    """A resource after all operations of a request; raises `ScimError` if one is not valid."""
    if len(body.operations) > _MAX_OPERATIONS:
        raise ScimError(f"a request has at most {_MAX_OPERATIONS} operations", "invalidSyntax")
    changed = dict(document)
    for operation in body.operations:
        kind = operation.op.lower()
        if kind not in ("add", "replace", "remove"):
            raise ScimError("op is add, replace or remove", "invalidSyntax")
        if operation.path:
            _apply(changed, attributes, kind, operation.path, operation.value)
        elif kind == "remove":
            raise ScimError("a removal needs a path", "noTarget")
        elif not isinstance(operation.value, Mapping):
            raise ScimError("without a path, the value is an object", "invalidValue")
        else:
            for path, value in operation.value.items():
                if not isinstance(value, Mapping) or not path.lower().startswith("urn:"):  # of another schema
                    _apply(changed, attributes, kind, path, value)
    return read_document(attributes, changed)  # a filter, too, says which values there are


def _apply(document: Document, attributes: Sequence[Attribute], op: str, path: str, value: Any) -> None:
    parts = _PATH.fullmatch(path) if len(path) <= _MAX_PATH else None
    if parts is None:
        raise ScimError(f"the path {path[:100]} is not valid", "invalidPath")
    name, _, sub = plain_name(parts["name"]).partition(".")
    attribute = attribute_of(attributes, name)
    part = attribute_of(attribute.sub, parts["sub"] or sub) if attribute is not None else None
    if attribute is None or ((parts["sub"] or sub) and part is None):
        return
    if parts["filter"] is not None:
        chosen = read_filter(parts["filter"], attribute.sub)
        _apply_to_some(document, attribute, op, chosen, part, value)
    elif attribute.several:
        _apply_to_all(document, attribute, op, part, value)
    elif part is not None:
        inner = dict(document.get(attribute.name) or {})
        _set(inner, part, None if op == "remove" else part.read(value))
        document[attribute.name] = inner
    elif op == "remove" and attribute.required:
        raise ScimError(f"{attribute.name} is required", "invalidValue")
    else:
        read = None if op == "remove" else attribute.read(value)
        if attribute.kind == "complex" and read is not None:
            read = {**(document.get(attribute.name) or {}), **read}
        _set(document, attribute, read)


def _apply_to_all(document: Document, attribute: Attribute, op: str, part: Attribute | None, value: Any) -> None:
    """Apply an operation to an attribute with several values."""
    present: list[Document] = document.get(attribute.name) or []
    if part is not None:
        _set_in(present, part, None if op == "remove" else part.read(value))
        return
    given = attribute.read(value)
    keys = {each.get("value") for each in given}
    if op == "replace":
        present = []
    elif op == "remove":
        document[attribute.name] = [each for each in present if value and each.get("value") not in keys]
        return
    if any(each.get("primary") for each in given):
        present = [{**each, "primary": False} if each.get("primary") else each for each in present]
    document[attribute.name] = [*(each for each in present if each.get("value") not in keys), *given]


def _apply_to_some(
    document: Document, attribute: Attribute, op: str, chosen: Sequence[FilterTerm], part: Attribute | None, value: Any
) -> None:
    """Apply an operation to those values of an attribute that a filter selects."""
    if not attribute.several:
        raise ScimError(f"{attribute.name} has one value, which no filter selects", "invalidPath")
    present: list[Document] = [*(document.get(attribute.name) or [])]
    matching = [each for each in present if all(condition.matches(each) for condition in chosen)]
    if op == "remove":
        if part is not None:
            _set_in(matching, part, None)
        else:
            present = [each for each in present if each not in matching]
    else:
        if not matching:  # Entra ID adds a value so; it would report an error otherwise
            matching = [{condition.attribute.name: condition.value for condition in chosen}]
            present += matching
        given = {part.name: part.read(value)} if part is not None else attribute.read_one(value) or {}
        for each in matching:
            each.update(given)
    document[attribute.name] = present


def _set_in(values: list[Document], part: Attribute, value: Any) -> None:
    for each in values:
        _set(each, part, value)


def _set(document: Document, attribute: Attribute, value: Any) -> None:
    if value is None:
        document.pop(attribute.name, None)
    else:
        document[attribute.name] = value
