"""Typed getters for JSON from outside, which has the type `object` until one of these has checked it."""

import json
from collections.abc import Collection, Iterable, Mapping
from itertools import islice
from typing import Any, TypeAlias

Known: TypeAlias = Mapping[str, "Known | None"]
"""The members that an object may have, and those of the objects in them; None for a member that is kept as a whole."""

# Enough of a value to recognise it by.
_SHOWN_CHARACTERS = 80
# Settings of requests that are whole numbers, and the limit for all: the integers of most programs have 64 bits.
_WHOLE = ("top_k", "seed")
_MAX_NUMBER = 2**63
_ENCODER = json.JSONEncoder(ensure_ascii=False, default=str)


def shown(value: object) -> str:
    """The value as JSON, shortened, for a person to read."""
    text = _ENCODER.encode(_beginning(value, [_SHOWN_CHARACTERS]))[:_SHOWN_CHARACTERS]
    return text if text.isascii() else text.encode(errors="replace").decode()  # without halves of surrogate pairs


def _beginning(value: object, room: list[int]) -> object:
    """The value without the parts that certainly come after its first characters, because it may be a megabyte.

    Each value takes at least one character of the room. (`JSONEncoder.iterencode` could stop as early, but each call of
    it leaves reference cycles behind.)
    """
    room[0] -= 1
    if isinstance(value, str):
        return value[:_SHOWN_CHARACTERS]
    if isinstance(value, list):
        return [_beginning(item, room) for item in islice(value, max(room[0], 0))]
    if isinstance(value, dict):
        members = islice(value.items(), max(room[0], 0))
        return {key[:_SHOWN_CHARACTERS]: _beginning(item, room) for key, item in members}
    return value


def text_of(value: object) -> str:
    """The value as text; empty for null."""
    if isinstance(value, str):
        return value
    return "" if value is None else shown(value) if isinstance(value, dict | list) else str(value)


def integer_of(value: object) -> int | None:
    """The value as an integer, or None: `7`, `7.0` and `"7"` are 7."""
    if type(value) is int:
        return value
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return int(value) if isinstance(value, str) and value.isdecimal() and len(value) < 20 else None


def take_numbers(fields: dict[str, object], names: Iterable[str]) -> dict[str, object]:
    """Remove the settings that are numbers from fields, and return them; whole numbers if they must be. Others stay."""
    taken: dict[str, object] = {}
    for name in names:
        value = fields.get(name)
        number = integer_of(value) if name in _WHOLE and not isinstance(value, str) else value
        if isinstance(number, int | float) and not isinstance(number, bool) and abs(number) < _MAX_NUMBER:
            taken[name] = number
            del fields[name]
    return taken


def list_of(value: object) -> list[object]:
    """The value if it is a list, else an empty one."""
    return value if isinstance(value, list) else []


def object_of(value: object) -> dict[str, object]:
    """The value if it is an object, else an empty one."""
    return value if isinstance(value, dict) else {}


def objects_of(value: object) -> list[dict[str, object]]:
    """The objects of a list; none if the value is not a list."""
    return [item for item in list_of(value) if isinstance(item, dict)]


def others(fields: Mapping[Any, object], known: Collection[str] = ()) -> dict[str, object]:
    """The members of an object that are not among the known ones, without those that are null."""
    return {name: value for name, value in fields.items() if value is not None and name not in known}


def unknown_members(value: object, known: Known, within: str = "") -> dict[str, object]:
    """The members of an object, or of the objects in a list, that are not known, by their paths; nulls are left out."""
    if isinstance(value, list):
        return {name: each for item in value for name, each in unknown_members(item, known, within).items()}
    found: dict[str, object] = {}
    for name, each in object_of(value).items():
        if name not in known:
            found |= {within + name: each} if each is not None else {}
        elif (inner := known[name]) is not None:
            found |= unknown_members(each, inner, f"{within}{name}.")
    return found
