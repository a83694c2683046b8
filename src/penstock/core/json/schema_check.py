"""SchemaCheck: whether a JSON value satisfies a schema, for the part of JSON Schema that the schemas of tools use.

An answer is yes, no, or undecided (None). A schema is undecided where it demands something that is not checked here
(`_UNDECIDED`), refers to something outside of it, is malformed, or takes too long; unless the rest decides: a value
that breaks a rule is refused whatever the others say. Keywords that only describe are ignored, `format` among them, and
so are those that no version of JSON Schema knows. `jsonschema` judges it (`tests/core/test_schema_check.py`).
"""

import operator
from collections.abc import Callable, Iterable, Mapping
from typing import TypeAlias
from urllib.parse import unquote

Verdict: TypeAlias = bool | None
_Json: TypeAlias = dict[str, object]

# Schemas that are applied, at about a microsecond each, and schemas within schemas: references can lead back.
_MAX_STEPS = 40_000
_MAX_DEPTH = 100
_UNDECIDED = frozenset((
    "$dynamicRef", "$recursiveRef", "additionalItems", "contains", "dependencies", "dependentRequired",
    "dependentSchemas", "else", "if", "maxContains", "minContains", "multipleOf", "not", "pattern", "patternProperties",
    "prefixItems", "propertyNames", "then", "unevaluatedItems", "unevaluatedProperties", "uniqueItems",
))  # fmt: skip
_TYPES: Mapping[str, Callable[[object], bool]] = {
    "object": lambda value: isinstance(value, dict),
    "array": lambda value: isinstance(value, list),
    "string": lambda value: isinstance(value, str),
    "number": lambda value: isinstance(value, int | float) and not isinstance(value, bool),
    "integer": lambda value: value.is_integer() if isinstance(value, float) else type(value) is int,
    "boolean": lambda value: isinstance(value, bool),
    "null": lambda value: value is None,
}
# Limits by keyword: the type that they concern, and how its number or its length is compared.
_LIMITS: Mapping[str, tuple[str, Callable[[float, float], bool]]] = {
    "minimum": ("number", operator.ge),
    "maximum": ("number", operator.le),
    "exclusiveMinimum": ("number", operator.gt),
    "exclusiveMaximum": ("number", operator.lt),
    "minLength": ("string", operator.ge),
    "maxLength": ("string", operator.le),
    "minItems": ("array", operator.ge),
    "maxItems": ("array", operator.le),
    "minProperties": ("object", operator.ge),
    "maxProperties": ("object", operator.le),
}


class SchemaCheck:
    """Checks values against schemas. All its checks share a limit."""

    def __init__(self) -> None:
        self._root: _Json = {}
        self._left = _MAX_STEPS

    def accepts(self, schema: _Json, value: object) -> Verdict:
        """Whether the value satisfies the schema; None if that is undecided."""
        self._root = schema
        return self._check(schema, value, 0)

    def _check(self, schema: object, value: object, depth: int) -> Verdict:
        self._left -= 1
        if isinstance(schema, bool):
            return schema
        if not isinstance(schema, dict) or depth > _MAX_DEPTH or self._left < 0:
            return None
        undecided = not _UNDECIDED.isdisjoint(schema) or ("$id" in schema and schema is not self._root)
        verdicts: list[Verdict] = [None if undecided else True]
        for keyword, given in schema.items():
            if keyword in _LIMITS:
                verdicts.append(_within(keyword, given, value))
            elif keyword in _RULES:
                verdicts.append(_RULES[keyword](self, schema, value, depth + 1))
            if verdicts[-1] is False:
                return False
        return _all(verdicts)

    def _type(self, schema: _Json, value: object, _depth: int) -> Verdict:
        given = schema["type"]
        names = given if isinstance(given, list) else [given]
        checks = [_TYPES.get(name) if isinstance(name, str) else None for name in names]
        return None if None in checks else any(check(value) for check in checks if check is not None)

    def _enum(self, schema: _Json, value: object, _depth: int) -> Verdict:
        given = schema["enum"]
        if not isinstance(given, list):
            return None
        self._left -= len(given)
        return any(is_same(each, value) for each in given)

    def _const(self, schema: _Json, value: object, _depth: int) -> Verdict:
        return is_same(schema["const"], value)

    def _required(self, schema: _Json, value: object, _depth: int) -> Verdict:
        given = schema["required"]
        if not isinstance(given, list):
            return None
        return not isinstance(value, dict) or all(name in value for name in given)

    def _properties(self, schema: _Json, value: object, depth: int) -> Verdict:
        given = schema["properties"]
        if not isinstance(given, dict):
            return None
        if not isinstance(value, dict):
            return True
        return _all(self._check(given[name], value[name], depth) for name in given if name in value)

    def _additional(self, schema: _Json, value: object, depth: int) -> Verdict:
        named, rest = schema.get("properties", {}), schema["additionalProperties"]
        if not isinstance(named, dict):
            return None
        if not isinstance(value, dict):
            return True
        return _all(self._check(rest, each, depth) for name, each in value.items() if name not in named)

    def _items(self, schema: _Json, value: object, depth: int) -> Verdict:
        if not isinstance(value, list):
            return True
        return _all(self._check(schema["items"], each, depth) for each in value)

    def _any_of(self, schema: _Json, value: object, depth: int) -> Verdict:
        given = schema["anyOf"]
        if not isinstance(given, list):
            return None
        verdicts = [self._check(each, value, depth) for each in given]
        return True if True in verdicts else None if None in verdicts else False

    def _one_of(self, schema: _Json, value: object, depth: int) -> Verdict:
        given = schema["oneOf"]
        if not isinstance(given, list):
            return None
        verdicts = [self._check(each, value, depth) for each in given]
        matches = sum(verdict is True for verdict in verdicts)
        return False if matches > 1 else None if None in verdicts else matches == 1

    def _all_of(self, schema: _Json, value: object, depth: int) -> Verdict:
        given = schema["allOf"]
        return _all(self._check(each, value, depth) for each in given) if isinstance(given, list) else None

    def _reference(self, schema: _Json, value: object, depth: int) -> Verdict:
        found: object = self._root
        path = schema["$ref"]
        if not isinstance(path, str) or not (path == "#" or path.startswith("#/")):
            return None
        for part in path.split("/")[1:]:
            name = unquote(part).replace("~1", "/").replace("~0", "~")
            if not isinstance(found, dict) or name not in found:
                return None
            found = found[name]
        return self._check(found, value, depth)


_RULES: Mapping[str, Callable[[SchemaCheck, _Json, object, int], Verdict]] = {
    "type": SchemaCheck._type,
    "enum": SchemaCheck._enum,
    "const": SchemaCheck._const,
    "required": SchemaCheck._required,
    "properties": SchemaCheck._properties,
    "additionalProperties": SchemaCheck._additional,
    "items": SchemaCheck._items,
    "anyOf": SchemaCheck._any_of,
    "oneOf": SchemaCheck._one_of,
    "allOf": SchemaCheck._all_of,
    "$ref": SchemaCheck._reference,
}


def is_same(one: object, other: object) -> bool:
    """Whether two JSON values are the same: 1 is 1.0, and no boolean is a number."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(is_same(one[name], other[name]) for name in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(is_same, one, other))
    return isinstance(one, bool) == isinstance(other, bool) and one == other


def _within(keyword: str, limit: object, value: object) -> Verdict:
    type, holds = _LIMITS[keyword]
    if not _TYPES[type](value):
        return True
    if not isinstance(limit, int | float) or isinstance(limit, bool):
        return None
    if isinstance(value, int | float):
        return holds(value, limit)
    return holds(len(value), limit) if isinstance(value, str | list | dict) else None


def _all(verdicts: Iterable[Verdict]) -> Verdict:
    undecided = False
    for verdict in verdicts:
        if verdict is False:
            return False
        undecided |= verdict is None
    return None if undecided else True
