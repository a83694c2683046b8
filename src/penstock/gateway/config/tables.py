"""Reads TOML tables by the Structs that describe them: names, types and bounds. Errors go to `Problems`.

The descriptions come from msgspec (`msgspec.inspect`), but this module reads the values itself, because msgspec stops
at the first error and does not know lines. Four rules:

1. An error is reported, and reading continues. In the result an invalid value is missing from its table, and `INVALID`
   in its list, so that the other items keep their index.
2. A table becomes a dict of the keys in the file, not a Struct, so that tables can be merged without their defaults.
3. Variables are replaced (`expand.py`). A message shows a value only as it is written in the file, and never that of a
   `Secret`.
4. A string from a variable is converted if a number or a boolean is expected.
"""

import math
import operator
import re
from collections.abc import Callable, Mapping
from pathlib import Path as FilePath
from typing import Any

import msgspec
from msgspec import inspect

from penstock.core.suggest import nearest, suggest, suggest_or_list
from penstock.gateway.config.expand import Expansion, References
from penstock.gateway.config.problems import SYNONYMS, Problems
from penstock.gateway.config.toml import Path
from penstock.providers.catalog import catalog
from penstock.providers.secret import Secret

_NOUNS: tuple[tuple[type, str], ...] = (
    (bool, "true or false"),
    (int, "a whole number"),
    (float, "a number"),
    (str, "a string"),
    (list, "a list"),
    (dict, "a table"),
)
# msgspec's name of a bound → its wording in messages, and its check.
_BOUNDS: dict[str, tuple[str, Callable[[Any, float], bool]]] = {
    "gt": ("greater than", operator.gt),
    "ge": ("at least", operator.ge),
    "lt": ("less than", operator.lt),
    "le": ("at most", operator.le),
}
_PRINTABLE = re.compile(r"[\x20-\x7e]*")
# Which member of a union a value belongs to.
_MEMBERS: tuple[tuple[type, type[inspect.Type]], ...] = (
    (dict, inspect.StructType),
    (int, inspect.IntType),
    (float, inspect.FloatType),
)
# Other notations for a variable, which would be used as the key itself.
_LOOKS_LIKE_VARIABLE = re.compile(r"(?:\$|%|env:|os\.environ/)([A-Z_][A-Z0-9_]*)%?")
_MALFORMED = (
    "a variable is written ${NAME} or ${NAME:-default}, without another one in its default, and a plain $ before a { "
    "is $$"
)


class _Invalid:
    """The type of `INVALID`, which replaces a value whose error is reported."""


INVALID = _Invalid()


def fields(kind: inspect.StructType) -> dict[str, inspect.Field]:
    """The keys that a table may have: all fields but those that the loader sets (`set_by_loader` of the Struct)."""
    own = getattr(kind.cls, "set_by_loader", ())
    return {field.encode_name: field for field in kind.fields if field.name not in own}


def plain(kind: inspect.Type) -> inspect.Type:
    """A type description without its metadata."""
    return plain(kind.type) if isinstance(kind, inspect.Metadata) else kind


class TableReader:
    """Reads values by their description. `missing` are variables that are not set; the loader decides about them."""

    def __init__(self, root: inspect.StructType, problems: Problems, env: Mapping[str, str]) -> None:
        self._root = root
        self._problems = problems
        self._references = References(env, FilePath(problems.document.file).parent)
        self.missing: dict[Path, str] = {}

    @property
    def files(self) -> tuple[str, ...]:
        """The files that values were read from."""
        return tuple(sorted(self._references.files))

    def read(self, data: Mapping[str, object]) -> dict[str, Any]:
        """Read the whole document."""
        return self._table(self._root, data, ())

    def _value(self, kind: inspect.Type, value: object, path: Path) -> object:
        match kind := plain(kind):
            case inspect.UnionType():
                return self._value(_member(kind, value), value, path)
            case inspect.StructType():
                return self._table(kind, value, path) if self._is(dict, value, path) else INVALID
            case inspect.DictType():
                return self._entries(kind, value, path) if self._is(dict, value, path) else INVALID
            case inspect.VarTupleType():
                return self._items(kind, value, path) if self._is(list, value, path) else INVALID
            case inspect.CustomType():
                return self._secret(value, path)
            case inspect.AnyType():
                return self._anything(value, path)
            case _:
                return self._scalar(kind, value, path)

    def _table(self, kind: inspect.StructType, value: Any, path: Path) -> dict[str, Any]:
        known = fields(kind)
        given: dict[str, Any] = {}
        for name, item in value.items():
            if name not in known:
                self._problems.error((*path, name), self._unknown(name, known, path))
                continue
            read = self._value(known[name].type, item, (*path, name))
            if read is not INVALID:
                given[name] = read
        return given

    def _unknown(self, name: str, known: Mapping[str, object], path: Path) -> str:
        if not path and name in catalog():
            return f"unknown section; did you mean [providers.{name}]?"
        if nearest(name, known, SYNONYMS) is None:
            for section, field in fields(self._root).items():
                kind = plain(field.type)
                if isinstance(kind, inspect.StructType) and name in fields(kind):
                    return f"unknown key; it belongs in [{section}]"
        noun = "key" if path else "section"
        listed = ", ".join(known)
        return f"unknown {noun}{suggest(name, known, SYNONYMS) or f'; the {noun}s here are {listed}'}"

    def _entries(self, kind: inspect.DictType, value: Any, path: Path) -> dict[str, object]:
        if isinstance(kind.key_type, inspect.LiteralType):
            options = [str(option) for option in kind.key_type.values]
            for name in [name for name in value if name not in options]:
                self._problems.error((*path, name), f"unknown key{suggest_or_list(name, options)}")
            value = {name: item for name, item in value.items() if name in options}
        read = {name: self._value(kind.value_type, item, (*path, name)) for name, item in value.items()}
        return {name: item for name, item in read.items() if item is not INVALID}

    def _items(self, kind: inspect.VarTupleType, value: Any, path: Path) -> tuple[object, ...] | _Invalid:
        if kind.min_length and len(value) < kind.min_length:
            self._problems.error(path, "must not be empty")
            return INVALID
        return tuple(self._value(kind.item_type, item, (*path, index)) for index, item in enumerate(value))

    def _secret(self, value: object, path: Path) -> Secret | _Invalid:
        if not isinstance(value, str):
            self._problems.error(path, f"must be a string, not {_noun(value)}")
            return INVALID
        if match := _LOOKS_LIKE_VARIABLE.fullmatch(value):
            self._problems.error(path, f"is not the name of a variable; did you mean '${{{match[1]}}}'?")
            return INVALID
        expansion = self._expand(value, path)
        if expansion is None:
            return INVALID
        text = expansion.text.strip()
        if not text:
            # `${NAME:-}` leaves the key out where the variable is not set; an item of a list cannot be left out.
            if not expansion.references or isinstance(path[-1], int):
                self._problems.error(path, "is empty")
        elif not _PRINTABLE.fullmatch(text):
            self._problems.error(path, "has a character that cannot be sent in a header")
        else:
            return Secret(text, ", ".join(expansion.references) or self._problems.document.file)
        return INVALID

    def _anything(self, value: object, path: Path) -> object:
        match value:
            case str():
                expansion = self._expand(value, path)
                return INVALID if expansion is None else expansion.text
            case dict():
                return {name: self._anything(item, (*path, name)) for name, item in value.items()}
            case list():
                return [self._anything(item, (*path, index)) for index, item in enumerate(value)]
            case bool() | int():
                return value
            case float() if math.isfinite(value):
                return value
            case _:
                self._problems.error(path, f"must be a value that JSON can represent, not {_noun(value)}")
                return INVALID

    def _scalar(self, kind: inspect.Type, value: object, path: Path) -> object:
        read = value
        if isinstance(value, str):
            expansion = self._expand(value, path)
            if expansion is None:
                return INVALID
            read = expansion.text
            if expansion.references and not isinstance(kind, inspect.StrType | inspect.LiteralType):
                read = _number(read)
        match kind:
            case inspect.LiteralType():
                options = [str(option) for option in kind.values]
                if read not in options:
                    self._problems.error(path, f"must be one of {', '.join(options)}{suggest(str(read), options)}")
                    return INVALID
                return read
            case inspect.BoolType():
                wanted: type = bool
            case inspect.IntType():
                wanted = int
            case inspect.FloatType():
                wanted = float
            case _:
                wanted = str
        if not self._is(wanted, read, path, written=value):
            return INVALID
        for bound, (words, holds) in _BOUNDS.items():
            limit = getattr(kind, bound, None)
            if limit is not None and not holds(read, limit):
                self._problems.error(path, f"must be {words} {limit:g}, not {_written(value)}")
                return INVALID
        return float(read) if wanted is float and isinstance(read, int) else read

    def _expand(self, text: str, path: Path) -> Expansion | None:
        expansion = self._references.expand(text)
        if expansion.malformed:
            self._problems.error(path, _MALFORMED)
        elif expansion.missing:
            self.missing[path] = expansion.missing[0]
        elif expansion.problem:
            self._problems.error(path, expansion.problem)
        else:
            return expansion
        return None

    def _is(self, wanted: type, value: object, path: Path, *, written: object = None) -> bool:
        fits = isinstance(value, (int, float) if wanted is float else wanted)
        if fits and isinstance(value, bool) and wanted is not bool:
            fits = False
        if fits and isinstance(value, float) and not math.isfinite(value):
            fits = False
        if not fits:
            hint = ""
            if isinstance(written, str) and "$" not in written and isinstance(_number(written), (wanted, int)):
                hint = f"; write {written} without quotes"
            elif wanted is list and isinstance(value, str):
                hint = "; put it in brackets"
            self._problems.error(path, f"must be {_noun_of(wanted)}, not {_noun(value)}{hint}")
        return fits


def _member(kind: inspect.UnionType, value: object) -> inspect.Type:
    """The member of a union for a value: the table if it is one, or the number, else the first that is not None."""
    members = [member for member in kind.types if not isinstance(member, inspect.NoneType)]
    for python, wanted in _MEMBERS:
        fitting = [member for member in members if isinstance(member, wanted)]
        if fitting and isinstance(value, python) and not isinstance(value, bool):
            return fitting[0]
    return members[0]


def _number(text: str) -> object:
    """The number or boolean in a variable's text, else the text itself."""
    try:
        return msgspec.json.decode(text.strip())
    except msgspec.DecodeError:
        return text


def _noun_of(wanted: type) -> str:
    return next(noun for kind, noun in _NOUNS if kind is wanted)


def _noun(value: object) -> str:
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return next((noun for kind, noun in _NOUNS if isinstance(value, kind)), "a date or time")


def _written(value: object) -> str:
    return repr(value) if isinstance(value, str) else str(value)
