"""The attributes of users and groups: one table, from which reading, PATCH, filters and `/Schemas` follow."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias

from penstock.serve.admin.scim.errors import ScimError

Kind: TypeAlias = Literal["string", "boolean", "complex", "reference"]
Document: TypeAlias = dict[str, Any]
USER_SCHEMA = "urn:ietf:params:scim:schemas:core:2.0:User"
GROUP_SCHEMA = "urn:ietf:params:scim:schemas:core:2.0:Group"
# In characters. Longer texts would be shortened in the store.
_MAX_TEXT = 200
_MAX_EMAILS = 20


class Attribute(NamedTuple):
    """One attribute. `sub` are those of a complex one."""

    name: str
    about: str
    kind: Kind = "string"
    sub: Sequence["Attribute"] = ()
    several: bool = False
    required: bool = False
    unique: bool = False
    exact: bool = False
    """Whether upper and lower case differ."""
    written: bool = True
    """Whether the identity provider can set it."""

    def read(self, given: object) -> Any:
        """A value of this attribute; None for none. Raises `ScimError` if it is not valid."""
        if self.several:
            items = given if isinstance(given, list) else [] if given is None else [given]
            found = [value for value in map(self.read_one, items) if value]
            if self.name == "emails" and len(found) > _MAX_EMAILS:
                raise self._invalid(f"at most {_MAX_EMAILS} values")
            return found
        if isinstance(given, list) and len(given) == 1 and isinstance(given[0], dict) and "value" in given[0]:
            given = given[0]["value"]  # how Entra ID wrote simple values before its fix of 2018
        return self.read_one(given)

    def read_one(self, given: object) -> Any:
        """One of several values."""
        if given is None:
            return None
        if self.kind == "complex":
            if not isinstance(given, dict):
                raise self._invalid("an object")
            return read_document(self.sub, given)
        if self.kind == "boolean":
            truth = {"true": True, "false": False}.get(str(given).lower())
            if truth is None:
                raise self._invalid("true or false")
            return truth
        if not isinstance(given, str) or len(given) > _MAX_TEXT or not given.isprintable():
            raise self._invalid(f"a text of at most {_MAX_TEXT} printable characters")
        if self.required and not given.strip():
            raise self._invalid("not empty")
        return given.strip()

    def schema(self) -> Document:
        """The attribute as `/Schemas` describes it."""
        shown: Document = {
            "name": self.name,
            "type": self.kind,
            "multiValued": self.several,
            "description": self.about,
            "required": self.required,
            "mutability": "readWrite" if self.written else "readOnly",
            "returned": "default",
        }
        if self.kind == "complex":
            return shown | {"subAttributes": [each.schema() for each in self.sub]}
        if self.kind == "string":
            shown |= {"caseExact": self.exact, "uniqueness": "server" if self.unique else "none"}
        return shown | ({"referenceTypes": ["User"]} if self.kind == "reference" else {})

    def _invalid(self, what: str) -> ScimError:
        return ScimError(f"{self.name} must be {what}", "invalidValue")


_EXTERNAL_ID = Attribute("externalId", "The id that the identity provider uses.", exact=True)
USER = (
    Attribute("userName", "The name by which the user signs in.", required=True, unique=True),
    _EXTERNAL_ID,
    Attribute("active", "Whether the user has access.", "boolean"),
    Attribute("displayName", "The name to show."),
    Attribute(
        "name",
        "The parts of the name.",
        "complex",
        (
            Attribute("formatted", "The whole name."),
            Attribute("givenName", "The first name."),
            Attribute("familyName", "The last name."),
        ),
    ),
    Attribute(
        "emails",
        "E-mail addresses. The primary one identifies the user at sign-in, beside the userName.",
        "complex",
        (
            Attribute("value", "The address."),
            Attribute("type", "Such as work."),
            Attribute("primary", "Whether it is the primary one.", "boolean"),
        ),
        several=True,
    ),
)
GROUP = (
    Attribute("displayName", "The name, for which [admin.groups] or a pattern has a role.", required=True, unique=True),
    _EXTERNAL_ID,
    Attribute(
        "members",
        "The users in the group.",
        "complex",
        (
            Attribute("value", "The id of a user.", exact=True),
            Attribute("display", "The userName.", written=False),
            Attribute("$ref", "The URL of the user.", "reference", written=False),
        ),
        several=True,
    ),
)


def attribute_of(attributes: Sequence[Attribute], name: str) -> Attribute | None:
    """The attribute with a name, whatever its case; None if there is none."""
    return next((each for each in attributes if each.name.lower() == name.lower()), None)


def read_document(attributes: Sequence[Attribute], given: Mapping[str, Any]) -> Document:
    """The attributes of a resource that are known, by their proper names."""
    document: Document = {}
    for name, value in given.items():
        attribute = attribute_of(attributes, name)
        if attribute is not None and (read := attribute.read(value)) is not None:
            document[attribute.name] = read
    return document
