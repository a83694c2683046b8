"""JSON Schemas as Claude and Bedrock take them. What a schema loses by it is declared (`providers/rules.toml`).

- `output`: the schema of an answer, or of the arguments of a strict tool. Anthropic and Amazon document the
  subset ("Structured outputs"), and Anthropic's SDKs transform schemas into it: each object is closed
  (`additionalProperties: false`), and keywords outside the subset are moved into the description, where the model may
  still follow them. The result is that of the SDK, for schemas that the SDK takes, with two exceptions: a keyword that
  the SDK drops is in the description; and objects that must fulfil several schemas are merged first, because
  nothing fulfils several schemas that are closed.
- `tool`: the schema of any tool. It must be an object. Claude refuses `anyOf`, `oneOf` and `allOf` at the top of
  it. Alternatives are merged into one object: all their properties, and those are required that every alternative
  requires. So models call the tool with the arguments that the client knows. (An object around them would have to be
  removed from each answer as it is streamed. And most such schemas only say which properties go together.)
"""

from collections.abc import Iterable

import msgspec

from penstock.core.dialects.bodies import refused
from penstock.core.hub.losses import Loss
from penstock.core.json.getters import list_of, object_of, objects_of
from penstock.core.wire.payload import MAX_DEPTH

_Json = dict[str, object]

_FORMATS = ("date-time", "time", "date", "duration", "email", "hostname", "uri", "ipv4", "ipv6", "uuid")
_DEFINITIONS = ("$defs", "definitions")
_ALTERNATIVES = ("anyOf", "oneOf")
_COMBINED = (*_ALTERNATIVES, "allOf")
_JOINED = frozenset(("type", "properties", "required", "additionalProperties"))
# Keywords that restrict the values. In a description they are lost; all others only describe.
_RESTRICTIONS = frozenset((
    "additionalItems", "additionalProperties", "allOf", "anyOf", "const", "contains", "dependencies",
    "dependentRequired", "dependentSchemas", "else", "enum", "exclusiveMaximum", "exclusiveMinimum", "format", "if",
    "items", "maxContains", "maxItems", "maxLength", "maxProperties", "maximum", "minContains", "minItems",
    "minLength", "minProperties", "minimum", "multipleOf", "not", "oneOf", "pattern", "patternProperties",
    "prefixItems", "properties", "propertyNames", "required", "then", "type", "unevaluatedItems",
    "unevaluatedProperties", "uniqueItems",
))  # fmt: skip
# References that lead to references, and alternatives within alternatives.
_MAX_MERGES = 8
# Schemas that are written or merged for one request: merging multiplies them. Each takes some microseconds, and so do
# some hundred bytes of one that is merged.
_MAX_SCHEMAS = 20_000
_BYTES = 100


class SchemaSubset:
    """Writes the schemas of one request. Its methods raise `RequestError` if all together are too complex."""

    def __init__(self, losses: list[Loss]) -> None:
        self._losses = losses
        self._lost: dict[str, None] = {}  # keywords that are not written
        self._root: _Json = {}  # where references lead
        self._count = 0

    def output(self, schema: _Json) -> _Json:
        """The schema of an answer or of a strict tool."""
        self._root, self._lost = schema, {}
        written = self._write(schema)
        self._losses.extend(
            Loss("schema-loosened" if word in _RESTRICTIONS else "field-dropped", word) for word in self._lost
        )
        return written

    def tool(self, schema: _Json, *, strict: bool, combined: bool = False) -> _Json:
        """The schema of a tool's arguments.

        `strict`: the API guarantees it. `combined`: the object may be combined from several, by keywords at the top.
        """
        if not _may_be_object(schema):
            self._losses.append(Loss("schema-loosened", "type"))
        written = schema
        if not combined and schema.keys() & {"$ref", *_COMBINED}:
            self._root, self._lost = schema, {}
            written = self._merged(schema)
            self._losses.extend(Loss("schema-loosened", keyword) for keyword in self._lost)
            if self._lost:
                given = {name: schema[name] for name in _COMBINED if name in schema}
                written["description"] = _described(written.get("description"), given)
        if written.get("type") != "object":
            written = {**written, "type": "object"}
        return self.output({"properties": {}, **written}) if strict else written

    def _write(self, schema: _Json, depth: int = 0) -> _Json:
        """A schema in the subset."""
        self._spend(1, depth)
        rest = {name: value for name, value in schema.items() if name not in _DEFINITIONS}
        written: _Json = {name: self._each(schema[name], depth) for name in _DEFINITIONS if name in schema}
        if "$ref" in rest:  # which nothing may be beside
            written["$ref"] = rest.pop("$ref")
            self._lost |= dict.fromkeys(name if name in _RESTRICTIONS else f"{name} beside $ref" for name in rest)
            return written
        rest = self._separate(rest)
        kinds, kind = _kinds(rest), rest.pop("type", None)
        self._write_combined(rest, written, depth)
        self._write_values(rest, written)
        if not written.keys() & {"anyOf", "allOf", "enum", "const"} and kinds:
            written["type"] = kind or next(iter(kinds))
        written |= {name: rest.pop(name) for name in ("description", "title") if name in rest}
        if not written.keys() & {"enum", "const"}:
            self._write_typed(kinds, rest, written, depth)
        if rest:
            self._lost |= dict.fromkeys(name for name in rest if name in _RESTRICTIONS)
            written["description"] = _described(written.get("description"), rest)
        return written

    def _any(self, schema: object, depth: int) -> object:
        return self._write(schema, depth + 1) if isinstance(schema, dict) else schema

    def _each(self, schemas: object, depth: int) -> _Json:
        return {name: self._any(each, depth) for name, each in object_of(schemas).items()}

    def _separate(self, schema: _Json) -> _Json:
        """The schema, but no object in it must fulfil several schemas."""
        if self._are_objects(schema.get("allOf")):
            schema = self._merged(schema, ("allOf",))
        name = next((name for name in _ALTERNATIVES if name in schema), "")
        if not name or "properties" not in schema or not self._are_objects(schema[name]):
            return schema
        common = {key: schema[key] for key in schema.keys() & _JOINED}
        options = [self._merged({**common, "allOf": [option]}, ("allOf",)) for option in list_of(schema[name])]
        return {key: value for key, value in schema.items() if key not in common} | {name: options}

    def _write_combined(self, rest: _Json, written: _Json, depth: int) -> None:
        """Write the first of the keywords that combine schemas. `oneOf` becomes `anyOf`."""
        name = next((name for name in _COMBINED if isinstance(rest.get(name), list)), "")
        if name:
            options = [self._any(each, depth) for each in list_of(rest.pop(name))]
            written["anyOf" if name == "oneOf" else name] = options
            self._lost |= {name: None} if name == "oneOf" else {}

    def _write_values(self, rest: _Json, written: _Json) -> None:
        """Write the allowed values, if they are simple. They say their type themselves."""
        enum = rest.get("enum")
        if isinstance(enum, list) and enum and not any(isinstance(value, list | dict) for value in enum):
            written["enum"] = rest.pop("enum")
        if "const" in rest and not isinstance(rest["const"], list | dict):
            written["const"] = rest.pop("const")

    def _write_typed(self, kinds: Iterable[object], rest: _Json, written: _Json, depth: int) -> None:
        """Write what belongs to the types, as far as the subset has it."""
        if "object" in kinds:
            others = rest.pop("additionalProperties", "properties" not in rest)
            self._lost |= {"additionalProperties": None} if others is not False else {}
            written["properties"] = self._each(rest.pop("properties", {}), depth)
            written["additionalProperties"] = False
            if "required" in rest:
                written["required"] = rest.pop("required")
        if "string" in kinds and rest.get("format") in _FORMATS:
            written["format"] = rest.pop("format")
        if "array" in kinds and isinstance(rest.get("items"), dict):
            written["items"] = self._any(rest.pop("items"), depth)
        if "array" in kinds and rest.get("minItems") in (0, 1):
            written["minItems"] = rest.pop("minItems")

    def _merged(self, schema: object, keywords: Iterable[str] = _COMBINED, depth: int = 0) -> _Json:
        """One object in place of the schemas that it must fulfil by these keywords: all of them, or one of several."""
        schema = self._resolved(schema)
        parts = [{name: value for name, value in schema.items() if name not in keywords}]
        for name in (name for name in keywords if name in schema and depth < _MAX_MERGES):
            options = [self._merged(each, depth=depth + 1) for each in objects_of(schema[name])]
            options = [option for option in options if _may_be_object(option)]
            if name == "allOf":
                parts += options
            else:
                self._lost[name] = None
                parts += [self._join(options, every=False)] if options else []
        return self._join(parts, every=True)

    def _join(self, parts: list[_Json], *, every: bool) -> _Json:
        """One schema for the objects that fulfil every part, or (about) those that fulfil one of them."""
        properties: dict[str, dict[bytes, object]] = {}  # the schemas of each, by their JSON
        for part in parts:
            given = object_of(part.get("properties"))
            self._spend(1 + len(given) + len(msgspec.json.encode(part)) // _BYTES)
            for name, schema in given.items():
                properties.setdefault(name, {})[msgspec.json.encode(schema)] = schema
        lists = (list_of(part.get("required")) for part in parts)
        names = [dict.fromkeys(name for name in each if isinstance(name, str)) for each in lists]
        required = dict.fromkeys(name for part in names for name in part)
        open_parts = [part for part in parts if part.get("additionalProperties") is not False]
        joined: _Json = {}
        if every:
            for name, value in (item for part in parts for item in part.items()):
                if joined.setdefault(name, value) != value and name in _RESTRICTIONS and name not in _JOINED:
                    self._lost[name] = None
        else:
            required = dict.fromkeys(name for name in required if all(name in part for part in names))
        if len(open_parts) < (len(parts) if every else 1):
            joined["additionalProperties"] = False
        keyword = "allOf" if every else "anyOf"
        merged = {
            name: next(iter(known.values())) if len(known) == 1 else {keyword: [*known.values()]}
            for name, known in properties.items()
        }
        return joined | ({"properties": merged} if merged else {}) | ({"required": [*required]} if required else {})

    def _are_objects(self, options: object) -> bool:
        """Whether there are schemas, and all of them are of objects."""
        resolved = [self._resolved(option) for option in list_of(options)]
        return bool(resolved) and all(
            _may_be_object(schema) and schema.keys() & {"type", "properties", "required"} for schema in resolved
        )

    def _resolved(self, schema: object) -> _Json:
        """The schema that a reference leads to, with the keywords beside it. Empty if it is not in this document."""
        for _ in range(_MAX_MERGES):
            if not isinstance(schema, dict) or "$ref" not in schema:
                break
            path = str(schema["$ref"])
            found: object = self._root if path.startswith("#/") else {}
            for name in path[2:].split("/"):
                found = object_of(found).get(name.replace("~1", "/").replace("~0", "~"))
            schema = object_of(found) | {name: value for name, value in schema.items() if name != "$ref"}
            self._spend(1 + (len(path) + len(schema)) // _BYTES)
        return object_of(schema)

    def _spend(self, count: int, depth: int = 0) -> None:
        self._count += count
        if self._count > _MAX_SCHEMAS or depth > MAX_DEPTH:
            raise refused("the JSON Schemas have more parts than a request may have", code="request_too_complex")


def _kinds(schema: _Json) -> list[object]:
    """The types that a schema allows, by its keywords if it names none."""
    if "type" not in schema:
        return ["object"] if "properties" in schema else ["array"] if "items" in schema else []
    kind = schema["type"]
    return kind if isinstance(kind, list) else [kind]


def _may_be_object(schema: _Json) -> bool:
    return "type" not in schema or "object" in _kinds(schema)


def _described(description: object, lost: _Json) -> str:
    """A description that ends with keywords and their values, as JSON."""
    text = msgspec.json.encode(lost).decode()
    return f"{description}\n\n{text}" if isinstance(description, str) and description else text
