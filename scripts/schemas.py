"""The JSON Schemas of docs/reference: of the configuration file, for editors, and of the lines of the log.

The docstrings of fields are their descriptions.
"""

import ast
import json
import re
from inspect import getsource
from itertools import pairwise
from typing import Any

import msgspec
from msgspec import inspect

from penstock.core.dialects.registry import providers_speak
from penstock.gateway.config.settings import shape
from penstock.gateway.config.tables import fields, plain
from penstock.serve.telemetry.log_lines import AttemptFields, CallLine, MessageLine

_LINES = (MessageLine, CallLine)
_VARIABLE = {"type": "string", "pattern": r"\$\{"}


def field_docs(kind: type) -> dict[str, str]:
    """The docstrings of the fields of a class and of its bases, each on one line."""
    found: dict[str, str] = {}
    for base in reversed(kind.__mro__):
        if base.__module__.startswith("penstock."):
            for field, doc in pairwise(ast.parse(getsource(base)).body[0].body):  # type: ignore[attr-defined]
                if isinstance(field, ast.AnnAssign) and isinstance(doc, ast.Expr):
                    found[ast.unparse(field.target).removesuffix("_")] = " ".join(ast.literal_eval(doc.value).split())
    return found


def config_schema() -> str:
    """The JSON Schema of penstock.toml, as the text of `docs/reference/penstock.schema.json`."""
    schema = {
        "$schema": "http://json-schema.org/draft-07/schema#",  # the version that TOML editors support
        "title": "penstock.toml",
        **_schema(shape()),
    }
    provider = schema["properties"]["providers"]["additionalProperties"]
    known = sorted(providers_speak())
    provider["properties"]["dialect"]["enum"] = known
    provider["properties"]["dialects"]["propertyNames"] = {"enum": known}
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


def _schema(kind: inspect.Type) -> dict[str, Any]:
    match plain(kind):
        case inspect.StructType() as struct:
            docs = field_docs(struct.cls)
            properties = {
                name: {"description": _unlinked(docs[name])} | _field(field) for name, field in fields(struct).items()
            }
            return {"type": "object", "properties": properties, "additionalProperties": False}
        case inspect.DictType(value_type=inspect.AnyType()):
            return {"type": "object"}
        case inspect.DictType(value_type=value_type):
            return {"type": "object", "additionalProperties": _schema(value_type)}
        case inspect.VarTupleType(item_type=item_type, min_length=min_length):
            return {"type": "array", "items": _schema(item_type)} | ({"minItems": min_length} if min_length else {})
        case inspect.UnionType(types=types):
            options = [_schema(option) for option in types if not isinstance(option, inspect.NoneType)]
            return options[0] if len(options) == 1 else {"anyOf": options}
        case inspect.LiteralType(values=values):
            return {"enum": list(values)}
        case inspect.BoolType():
            return {"anyOf": [{"type": "boolean"}, _VARIABLE]}
        case inspect.IntType() | inspect.FloatType() as number:
            return {"anyOf": [_number(number), _VARIABLE]}
        case _:
            return {"type": "string"}


def _unlinked(text: str) -> str:
    """A text without the addresses of its links, which lead to pages of docs/."""
    return re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", text)


def _field(field: inspect.Field) -> dict[str, Any]:
    schema = _schema(field.type)
    if isinstance(field.default, str | int | float) and field.default != "":
        whole = isinstance(field.default, float) and field.default.is_integer()
        schema["default"] = int(field.default) if whole else field.default
    return schema


def _number(kind: inspect.IntType | inspect.FloatType) -> dict[str, Any]:
    bounds = {"minimum": kind.ge, "maximum": kind.le, "exclusiveMinimum": kind.gt, "exclusiveMaximum": kind.lt}
    given = {name: bound for name, bound in bounds.items() if bound is not None}
    return {"type": "integer" if isinstance(kind, inspect.IntType) else "number", **given}


def log_schema() -> str:
    """The JSON Schema of a line, as the text of `docs/reference/log.schema.json`."""
    kinds, definitions = msgspec.json.schema_components(_LINES, ref_template="#/$defs/{name}")
    for kind in (*_LINES, AttemptFields):
        properties = definitions[kind.__name__]["properties"]
        for name, text in field_docs(kind).items():
            properties[name] = {"description": text} | properties[name]
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "A line of Penstock's JSON log",
        "oneOf": list(kinds),
        "$defs": definitions,
    }
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"
