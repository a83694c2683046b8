"""The handlers of SCIM. They query the book; `over_scim` sends what they return."""

import re
import uuid
from collections.abc import Sequence
from typing import Any

from penstock.errors import AdminError
from penstock.gateway.people.directory import PeopleGroup, Person
from penstock.serve.admin.request import AdminRequest
from penstock.serve.admin.scim import documents
from penstock.serve.admin.scim.attributes import GROUP, USER, Attribute, Document, read_document
from penstock.serve.admin.scim.documents import group_document, group_of, person_of, user_document
from penstock.serve.admin.scim.errors import ScimError
from penstock.serve.admin.scim.filters import COLUMNS, ID, read_filter
from penstock.serve.admin.scim.patch import PatchBody, patched
from penstock.serve.admin.scim.replies import listed
from penstock.stores.book.sql_book import Book

_DEFAULT_PAGE = 100
_NUMBER = re.compile("-?[0-9]{0,9}", re.ASCII)


def show_config(_book: Book, _request: AdminRequest, root: str) -> Document:
    """Describe this SCIM service."""
    return documents.service_config(root)


def list_resource_types(_book: Book, _request: AdminRequest, root: str) -> Document:
    """List the types of resources: `User` and `Group`."""
    return _all(documents.resource_types(root))


def show_resource_type(_book: Book, request: AdminRequest, root: str) -> Document:
    """Return one type of resource."""
    return _by_id(documents.resource_types(root), request.name)


def list_schemas(_book: Book, _request: AdminRequest, root: str) -> Document:
    """List the schemas: the attributes that are stored. All others are ignored."""
    return _all(documents.schemas(root))


def show_schema(_book: Book, request: AdminRequest, root: str) -> Document:
    """Return one schema."""
    return _by_id(documents.schemas(root), request.name)


def list_people(book: Book, request: AdminRequest, root: str) -> Document:
    """List the people of the directory, the oldest first."""
    conditions = read_filter(request.query.one("filter"), (ID, *USER))
    columns: dict[str, str] = {}
    for each in conditions:
        column, value = COLUMNS.get(each.attribute.name), str(each.value)
        if column is not None:
            columns[column] = value.casefold() if column == "known_as" else value
    start, count = _page(request)
    if len(columns) == len(conditions):  # else one is on another attribute, or there are two on one
        total, people = book.directory.people(columns, limit=count, offset=start - 1)
        shown = [user_document(person, root) for person in people]
    else:
        shown = [user_document(person, root) for person in book.directory.people(columns)[1]]
        shown = [each for each in shown if all(condition.matches(each) for condition in conditions)]
        total, shown = len(shown), shown[start - 1 : start - 1 + count]
    return listed([_chosen(each, request) for each in shown], total, start)


def create_person(book: Book, request: AdminRequest, root: str) -> Document:
    """Add a person to the directory."""
    now_ms = request.now_ms
    new = Person(id=str(uuid.uuid4()), user_name="", known_as="", email="", created_ms=now_ms, changed_ms=now_ms)
    person = person_of(_read(request, USER), new, now_ms)
    book.directory.add_person(person)
    return user_document(person, root)


def show_person(book: Book, request: AdminRequest, root: str) -> Document:
    """Return one person."""
    return _chosen(user_document(book.directory.person(request.name), root), request)


def replace_person(book: Book, request: AdminRequest, root: str) -> Document:
    """Replace the attributes of a person. Without `active`, that stays as it is. `active: false` ends the
    [access](people.md#what-ends) of the person, as PATCH does."""
    given = _read(request, USER)
    changed = book.directory.change_person(request.name, lambda person: person_of(given, person, request.now_ms))
    return user_document(changed, root)


def patch_person(book: Book, request: AdminRequest, root: str) -> Document:
    """Change attributes of a person."""
    body = request.read_body(PatchBody)

    def change(person: Person) -> Person:
        return person_of(patched(user_document(person, ""), USER, body), person, request.now_ms)

    return user_document(book.directory.change_person(request.name, change), root)


def delete_person(book: Book, request: AdminRequest, _root: str) -> None:
    """Delete a person, and end its access for good."""
    book.directory.delete_person(request.name, request.now_ms)


def list_groups(book: Book, request: AdminRequest, root: str) -> Document:
    """List the groups of the directory, the oldest first."""
    conditions = read_filter(request.query.one("filter"), (ID, *GROUP))
    groups = book.directory.groups()
    plain = [group_document(group, root) for group in groups]
    chosen = [each for each, group in zip(groups, plain, strict=True) if all(c.matches(group) for c in conditions)]
    start, count = _page(request)
    page = chosen[start - 1 : start - 1 + count]
    names = book.directory.names([id for group in page for id in group.members])
    shown = [_chosen(group_document(group, root, names), request) for group in page]
    return listed(shown, len(chosen), start)


def create_group(book: Book, request: AdminRequest, root: str) -> Document:
    """Add a group to the directory."""
    given, now_ms = _read(request, GROUP), request.now_ms
    new = PeopleGroup(id=str(uuid.uuid4()), display_name="", created_ms=now_ms, changed_ms=now_ms)
    return _shown(book, book.directory.add_group(group_of(given, new, now_ms), request.group_roles), root)


def show_group(book: Book, request: AdminRequest, root: str) -> Document:
    """Return one group."""
    return _chosen(_shown(book, book.directory.group(request.name), root), request)


def replace_group(book: Book, request: AdminRequest, root: str) -> Document:
    """Replace the attributes and the members of a group."""
    given = _read(request, GROUP)

    def change(group: PeopleGroup) -> PeopleGroup:
        return group_of(given, group, request.now_ms)

    return _shown(book, book.directory.change_group(request.name, change, request.group_roles), root)


def patch_group(book: Book, request: AdminRequest, root: str) -> Document:
    """Change attributes or members of a group."""
    body = request.read_body(PatchBody)

    def change(group: PeopleGroup) -> PeopleGroup:
        return group_of(patched(group_document(group, ""), GROUP, body), group, request.now_ms)

    return _shown(book, book.directory.change_group(request.name, change, request.group_roles), root)


def delete_group(book: Book, request: AdminRequest, _root: str) -> None:
    """Delete a group."""
    book.directory.delete_group(request.name, request.now_ms)


def _shown(book: Book, group: PeopleGroup, root: str) -> Document:
    return group_document(group, root, book.directory.names(group.members))


def _read(request: AdminRequest, attributes: Sequence[Attribute]) -> Document:
    return read_document(attributes, request.read_body(dict[str, Any]))


def _page(request: AdminRequest) -> tuple[int, int]:
    """The number of the first resource of a page, from 1, and how many it has at most."""
    start, count = (
        _number(request.query.one(name), default) for name, default in (("startIndex", 1), ("count", _DEFAULT_PAGE))
    )
    return max(1, start), min(max(0, count), documents.MAX_PAGE)


def _number(text: str, default: int) -> int:
    if not _NUMBER.fullmatch(text):
        raise ScimError("startIndex and count are whole numbers", "invalidValue")
    return int(text) if text.strip("-") else default


def _chosen(document: Document, request: AdminRequest) -> Document:
    """A resource with the attributes that the request asks for."""
    wanted, unwanted = (
        {name.strip().lower() for name in request.query.one(parameter).split(",") if name.strip()}
        for parameter in ("attributes", "excludedAttributes")
    )
    always = ("schemas", "id")
    return {
        name: value
        for name, value in document.items()
        if name in always or ((not wanted or name.lower() in wanted) and name.lower() not in unwanted)
    }


def _all(resources: list[Document]) -> Document:
    return listed(resources, len(resources), 1)


def _by_id(resources: list[Document], id: str) -> Document:
    for each in resources:
        if each["id"] == id:
            return each
    raise AdminError("there is no such resource", code="not_found")
