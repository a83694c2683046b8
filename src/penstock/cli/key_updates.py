"""Changes of keys in files of JSON lines or CSV.

A file has one key per line: `key` is its id or name, and the other fields are those of `PATCH /admin/keys/ID`. An empty
cell changes nothing.
"""

import csv
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from penstock.cli.field_options import read_fields
from penstock.errors import AdminError
from penstock.gateway.keys.changes import KeyChange
from penstock.gateway.keys.terms import ListedKeyUpdate

MAX_CHANGES = 10_000


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
            given = read_fields(line, ListedKeyUpdate) if isinstance(line, dict) else _decode(line)
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
