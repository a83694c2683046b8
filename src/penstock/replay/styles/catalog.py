"""The provider styles: one TOML file each in `data/`, with the fields that `replay/styles/style.py` documents.

A file may be shorter than a `ProviderStyle` in two ways. A row may be just the name of a field, with a question mark if
the field is optional. A file may name another one with `like` and list only the differences: tables are merged, lists
replaced.
"""

import tomllib
from functools import cache
from os import listdir
from os.path import dirname, join

from msgspec import convert

from penstock.core.suggest import suggest_or_list
from penstock.errors import UnknownStyleError
from penstock.replay.styles import ChatStyle, ProviderStyle

_FOLDER = join(dirname(__file__), "data")
# The keys whose values are lists of fields.
_ROWS = frozenset(("chunk", "choice", "delta", "call", "function", "fields", "preamble"))


def load_style(name: str) -> ProviderStyle:
    """The style with that name."""
    if name not in _names():
        raise UnknownStyleError(f"there is no provider style {name!r}{suggest_or_list(name, _names())}")
    return _load(name)


def style_names(dialect: str | None = None) -> tuple[str, ...]:
    """The names of all styles, or of those of a dialect."""
    return tuple(name for name in _names() if dialect in (None, _load(name).dialect))


@cache
def _names() -> tuple[str, ...]:
    return tuple(sorted(file.removesuffix(".toml") for file in listdir(_FOLDER) if file.endswith(".toml")))


@cache
def _load(name: str) -> ProviderStyle:
    table = _rows(_read(name))
    return convert({"name": name} | table, ProviderStyle if "dialect" in table else ChatStyle)


def _read(name: str) -> dict[str, object]:
    with open(join(_FOLDER, f"{name}.toml"), "rb") as file:
        table: dict[str, object] = tomllib.load(file)
    like = table.pop("like", None)
    return table if like is None else _merged(_read(str(like)), table)


def _merged(base: dict[str, object], table: dict[str, object]) -> dict[str, object]:
    merged = dict(base)
    for key, value in table.items():
        before = merged.get(key)
        merged[key] = _merged(before, value) if isinstance(before, dict) and isinstance(value, dict) else value
    return merged


def _rows(table: dict[str, object]) -> dict[str, object]:
    """The table with every shortened row expanded."""
    expanded = dict(table)
    for key, value in table.items():
        if key in _ROWS and isinstance(value, list):
            expanded[key] = [_row(row) for row in value]
        elif isinstance(value, dict) and key != "value":
            expanded[key] = _rows(value)
    return expanded


def _row(row: str | dict[str, object]) -> dict[str, object]:
    if isinstance(row, str):
        return {"name": row.removesuffix("?"), "optional": row.endswith("?")}
    return _rows(row)
