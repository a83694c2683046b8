"""People and groups as resources of SCIM, and back; and the resources that describe this service."""

import time
from collections.abc import Mapping
from typing import Any

from msgspec import structs

from penstock.gateway.people.directory import Email, PeopleGroup, Person, primary
from penstock.serve.admin.scim.attributes import GROUP, GROUP_SCHEMA, USER, USER_SCHEMA, Document
from penstock.serve.admin.scim.errors import ScimError

_CORE = "urn:ietf:params:scim:schemas:core:2.0"
MAX_PAGE = 500


def user_document(person: Person, root: str) -> Document:
    """A person as a resource. Without a root, as PATCH changes it: only with attributes of the table."""
    parts = {"formatted": person.formatted, "givenName": person.given_name, "familyName": person.family_name}
    shown: Document = {
        "externalId": person.external_id,
        "userName": person.user_name,
        "name": {name: value for name, value in parts.items() if value},
        "displayName": person.display_name,
        "emails": [{name: value for name, value in structs.asdict(each).items() if value} for each in person.emails],
    }
    shown = {name: value for name, value in shown.items() if value} | {"active": person.inactive_ms is None}
    return _resource(person, "User", shown, root) if root else shown


def person_of(document: Document, before: Person, now_ms: int) -> Person:
    """The person that a resource describes, in place of an earlier one."""
    if not document.get("userName"):
        raise ScimError("userName is required", "invalidValue")
    emails = tuple(
        Email(each["value"], each.get("type", ""), each.get("primary", False))
        for each in document.get("emails", ())
        if each.get("value")
    )
    names: Mapping[str, str] = document.get("name") or {}
    active = document.get("active", before.inactive_ms is None)
    return structs.replace(
        before,
        user_name=document["userName"],
        known_as=document["userName"].casefold(),
        email=primary(emails),
        external_id=document.get("externalId", ""),
        display_name=document.get("displayName", ""),
        formatted=names.get("formatted", ""),
        given_name=names.get("givenName", ""),
        family_name=names.get("familyName", ""),
        emails=emails,
        changed_ms=now_ms,
        inactive_ms=None if active else before.inactive_ms or now_ms,
    )


def group_document(group: PeopleGroup, root: str, names: Mapping[str, str] | None = None) -> Document:
    """A group as a resource. `names` are the user names of its members, by their ids. Without a root, as PATCH changes
    it."""
    members: list[Document] = [{"value": id} for id in group.members]
    if root and names is not None:
        members = [{"value": id, "display": names.get(id, ""), "$ref": f"{root}/Users/{id}"} for id in group.members]
    shown: Document = {"externalId": group.external_id} if group.external_id else {}
    shown |= {"displayName": group.display_name, "members": members}
    return _resource(group, "Group", shown, root) if root else shown


def group_of(document: Document, before: PeopleGroup, now_ms: int) -> PeopleGroup:
    """The group that a resource describes, in place of an earlier one."""
    if not document.get("displayName"):
        raise ScimError("displayName is required", "invalidValue")
    return structs.replace(
        before,
        display_name=document["displayName"],
        external_id=document.get("externalId", ""),
        members=tuple(sorted({each["value"] for each in document.get("members", ()) if each.get("value")})),
        changed_ms=now_ms,
    )


def _resource(subject: Person | PeopleGroup, kind: str, shown: Document, root: str) -> Document:
    meta = {
        "resourceType": kind,
        "created": _time(subject.created_ms),
        "lastModified": _time(subject.changed_ms),
        "location": f"{root}/{kind}s/{subject.id}",
    }
    schema = USER_SCHEMA if kind == "User" else GROUP_SCHEMA
    return {"schemas": [schema], "id": subject.id, **shown, "meta": meta}


def _time(at_ms: int) -> str:
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(at_ms // 1000))}.{at_ms % 1000:03}Z"


def service_config(root: str) -> Document:
    """What this service can do."""
    can: dict[str, Any] = {name: {"supported": False} for name in ("changePassword", "sort", "etag")}
    return {
        "schemas": [f"{_CORE}:ServiceProviderConfig"],
        "patch": {"supported": True},
        "bulk": {"supported": False, "maxOperations": 0, "maxPayloadSize": 0},
        "filter": {"supported": True, "maxResults": MAX_PAGE},
        **can,
        "authenticationSchemes": [
            {
                "type": "oauthbearertoken",
                "name": "API token",
                "description": "An API token of Penstock with the role provisioner, as a bearer token.",
                "primary": True,
            }
        ],
        "meta": {"resourceType": "ServiceProviderConfig", "location": f"{root}/ServiceProviderConfig"},
    }


def resource_types(root: str) -> list[Document]:
    """The types of resources."""
    return [
        {
            "schemas": [f"{_CORE}:ResourceType"],
            "id": name,
            "name": name,
            "endpoint": f"/{name}s",
            "description": about,
            "schema": schema,
            "schemaExtensions": [],
            "meta": {"resourceType": "ResourceType", "location": f"{root}/ResourceTypes/{name}"},
        }
        for name, about, schema in (("User", "A person.", USER_SCHEMA), ("Group", "A group of people.", GROUP_SCHEMA))
    ]


def schemas(root: str) -> list[Document]:
    """The schemas of the resources."""
    return [
        {
            "schemas": [f"{_CORE}:Schema"],
            "id": schema,
            "name": name,
            "description": f"A {name.lower()} of the directory.",
            "attributes": [attribute.schema() for attribute in attributes],
            "meta": {"resourceType": "Schema", "location": f"{root}/Schemas/{schema}"},
        }
        for name, schema, attributes in (("User", USER_SCHEMA, USER), ("Group", GROUP_SCHEMA, GROUP))
    ]
