"""Filters: `userName eq "ann"`, and several joined by `and`. Others are refused (`invalidFilter`).

A filter is read by hand from left to right, in linear time.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from penstock.serve.admin.scim.attributes import Attribute, Document, attribute_of
from penstock.serve.admin.scim.errors import ScimError

_MAX_FILTER = 2_000
_MAX_TERMS = 10
# A name, `emails.value` or `emails[type eq "work"].value`; then the operator, and the beginning of the value. Each part
# ends where the next one begins, so there is nothing to try twice.
_TERM = re.compile(
    r"\s*(?P<path>[A-Za-z$][\w$:.-]*)(?:\[(?P<inner>[^\[\]]*)\](?:\.(?P<sub>\w+))?)?\s+(?P<operator>\w+)\s+(?=\S)"
)
_VALUE = re.compile(r'"(?:[^"\\]|\\.)*"|true|false', re.IGNORECASE)
_AND = re.compile(r"\s+and\s+", re.IGNORECASE)


class FilterTerm(NamedTuple):
    """That an attribute, or a part of one of its values, has a value. `inner` selects among several values."""

    attribute: Attribute
    sub: str
    value: str | bool
    inner: Sequence["FilterTerm"] = ()

    def matches(self, document: Document) -> bool:
        """Whether a resource, or one value of an attribute, has it."""
        present = document.get(self.attribute.name)
        if not self.attribute.several:
            return self._equals(present.get(self.sub) if isinstance(present, dict) else present, self.attribute)
        kind = attribute_of(self.attribute.sub, self.sub) or self.attribute
        return any(
            self._equals(each.get(self.sub), kind)
            for each in present or ()
            if all(condition.matches(each) for condition in self.inner)
        )

    def _equals(self, present: Any, kind: Attribute) -> bool:
        if isinstance(present, str) and isinstance(self.value, str):
            return present == self.value if kind.exact else present.casefold() == self.value.casefold()
        return bool(present == self.value)


def read_filter(text: str, attributes: Sequence[Attribute]) -> list[FilterTerm]:
    """The conditions of a filter, of which all must match; none for an empty one."""
    if len(text) > _MAX_FILTER:
        raise _invalid(f"a filter has at most {_MAX_FILTER} characters")
    conditions: list[FilterTerm] = []
    position = 0
    while position < len(text):
        condition, position = _read_condition(text, position, attributes)
        conditions.append(condition)
        if text[position:].strip():
            joined = _AND.match(text, position)
            if joined is None or len(conditions) == _MAX_TERMS:
                raise _invalid("conditions are joined by `and`")
            position = joined.end()
        else:
            break
    return conditions


def _read_condition(text: str, position: int, attributes: Sequence[Attribute]) -> tuple[FilterTerm, int]:
    term = _TERM.match(text, position)
    value = _VALUE.match(text, term.end()) if term is not None else None
    if term is None or value is None or term["operator"].lower() != "eq":
        raise _invalid('a condition is written as userName eq "ann"')
    name, _, sub = plain_name(term["path"]).partition(".")
    attribute = attribute_of(attributes, name)
    sub = term["sub"] or sub or ("value" if attribute is not None and attribute.several else "")
    part = attribute_of(attribute.sub, sub) if attribute is not None and sub else None
    if attribute is None or (sub and part is None):
        raise _invalid(f"there is no attribute {term['path'][:100]}")
    inner = read_filter(term["inner"], attribute.sub) if term["inner"] else ()
    return FilterTerm(attribute, part.name if part is not None else "", _value(value[0]), inner), value.end()


def plain_name(path: str) -> str:
    """The name of an attribute without the URN of its schema."""
    return path.rpartition(":")[2] if path.lower().startswith("urn:") else path


def _value(text: str) -> str | bool:
    if not text.startswith('"'):
        return text.lower() == "true"
    try:
        return msgspec.json.decode(text, type=str)
    except msgspec.DecodeError:
        raise _invalid("a value is a text in double quotes, as in JSON") from None


def _invalid(message: str) -> ScimError:
    return ScimError(message, "invalidFilter")


ID = Attribute("id", "The id.", exact=True, written=False)
# The conditions that the store can look up, by their attribute.
COLUMNS: Mapping[str, str] = {"id": "id", "userName": "known_as", "externalId": "external_id"}
