"""Writes a TOML document: tables under headings, lists of tables as `[[…]]`, everything deeper inline."""

import json
import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

_BARE = re.compile(r"[A-Za-z0-9_-]+")


def write_toml(document: Mapping[str, Any]) -> str:
    """The text of a document. Empty tables of the first level are left out."""
    lines: list[str] = []
    for name, table in document.items():
        if table:
            _table((name,), table, lines)
    return "\n".join(lines).strip() + "\n"


def literal(text: str) -> str:
    """A text of which Penstock replaces nothing: `$` starts a variable."""
    return text.replace("$", "$$")


def _table(path: tuple[str, ...], table: Mapping[str, Any], lines: list[str]) -> None:
    plain = {name: value for name, value in table.items() if not _has_heading(path, value)}
    if plain or not table:
        lines += ["", f"[{'.'.join(map(_key, path))}]"]
        lines += [f"{_key(name)} = {_value(value)}" for name, value in plain.items()]
    for name, value in table.items():
        if not _has_heading(path, value):
            continue
        if isinstance(value, Mapping):
            _table((*path, name), value, lines)
        else:
            for item in value:
                lines += ["", f"[[{'.'.join(map(_key, (*path, name)))}]]"]
                lines += [f"{_key(key)} = {_value(each)}" for key, each in item.items()]


def _has_heading(path: tuple[str, ...], value: object) -> bool:
    """Whether a value is written as a table or a list of tables of its own: providers, routes and prices, and keys."""
    if len(path) == 1:
        return isinstance(value, Mapping)
    return path[0] == "providers" and isinstance(value, list) and all(isinstance(item, Mapping) for item in value)


def _key(name: str) -> str:
    return name if _BARE.fullmatch(name) else _value(name)


def _value(value: object) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case int() | float():
            return repr(value)
        case Decimal():
            return f"{value:f}"
        case Mapping():
            return "{ " + ", ".join(f"{_key(str(name))} = {_value(each)}" for name, each in value.items()) + " }"
        case list() | tuple():
            return "[" + ", ".join(map(_value, value)) + "]"
        case _:
            return json.dumps(str(value), ensure_ascii=False).replace("\x7f", "\\u007f")
