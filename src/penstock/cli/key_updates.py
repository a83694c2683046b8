"""Changes of keys as the command line reads them: from options, and from files of JSON lines or CSV.

A file has one key per line: `key` is its id or name, and the other fields are those of `PATCH /admin/keys/ID`. In CSV
and in options, `none` removes a limit, an empty cell changes nothing, and several models or tags are separated by
spaces.
"""

import csv
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from penstock.cli.limit_options import parse_budgets, parse_number
from penstock.errors import AdminError
from penstock.gateway.keys.changes import KeyChange
from penstock.gateway.keys.terms import KeyUpdate, ListedKeyUpdate, parse_tag

T = TypeVar("T")
MAX_CHANGES = 10_000
_NUMBERS = ("requests_per_minute", "tokens_per_minute", "concurrent")
_YES_OR_NO = ("strict", "blocked")
_NAMES = {"per": "period", "rpm": "requests_per_minute", "tpm": "tokens_per_minute"}


def parse_update(options: Mapping[str, Any]) -> KeyUpdate:
    """The change that options of the command line, or cells of a CSV file, describe."""
    return _convert({_NAMES.get(name, name): value for name, value in options.items()}, KeyUpdate)


def read_file(path: Path) -> list[KeyChange]:
    """The changes in a file. Raises `AdminError`, which names all lines that are invalid."""
    try:
        text = path.read_text("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise AdminError(f"{path} cannot be read: {error}") from None
    changes: list[KeyChange] = []
    problems: list[str] = []
    for place, line in _csv_lines(text) if path.suffix.lower() == ".csv" else _json_lines(text):
        try:
            given = _convert(line, ListedKeyUpdate) if isinstance(line, dict) else _decode(line)
            changes.append(KeyChange(given.key, given, place))
        except AdminError as error:
            problems.append(f"{place}: {error}")
        if len(changes) > MAX_CHANGES:
            raise AdminError(f"{path} has more than {MAX_CHANGES} changes: split it")
    if problems:
        raise AdminError(f"no key was changed: {'; '.join(problems)}")
    if not changes:
        raise AdminError(f"{path} has no changes")
    return changes


def _json_lines(text: str) -> Iterator[tuple[str, str]]:
    return ((f"line {number}", line) for number, line in enumerate(text.splitlines(), 1) if line.strip())


def _csv_lines(text: str) -> Iterator[tuple[str, dict[str, Any]]]:
    reader = csv.DictReader(text.splitlines())
    for row in reader:
        if None in row:
            raise AdminError(f"line {reader.line_num} has more cells than the header")
        yield f"line {reader.line_num}", {name.strip(): value.strip() for name, value in row.items() if value}


def _decode(line: str) -> ListedKeyUpdate:
    try:
        return msgspec.json.decode(line, type=ListedKeyUpdate)
    except msgspec.ValidationError as error:
        raise AdminError(f"it is not valid: {error}") from None
    except (msgspec.DecodeError, RecursionError):
        raise AdminError("it is not valid JSON") from None


def _convert(options: Mapping[str, Any], kind: type[T]) -> T:
    values = {name: _value(name, value) for name, value in options.items()}
    try:
        return msgspec.convert(values, kind, from_attributes=True)
    except msgspec.ValidationError as error:
        raise AdminError(f"it is not valid: {error}") from None


def _value(name: str, value: Any) -> object:
    """The value of a field, from its text."""
    if name in ("models", "tags"):
        parts: Sequence[str] = value.split() if isinstance(value, str) else value
        parts = () if tuple(parts) == ("none",) else parts
        return dict(map(parse_tag, parts)) if name == "tags" else tuple(parts)
    if name == "key" or not isinstance(value, str):
        return value
    if name == "budgets":
        return parse_budgets(value.split())
    if name in _NUMBERS:
        return parse_number(name, value)
    if value == "none" and name not in ("name", "period"):
        return None
    return {"true": True, "false": False}.get(value.lower(), value) if name in _YES_OR_NO else value
