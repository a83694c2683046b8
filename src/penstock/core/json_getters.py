"""Typed getters: foreign JSON is `object` until one of these has looked at it."""

import json

# Enough of a value to recognise it by.
_SHOWN_CHARACTERS = 80
_ENCODER = json.JSONEncoder(ensure_ascii=False, default=str)


def shown(value: object) -> str:
    """The value as JSON, shortened, for a person to read."""
    if not isinstance(value, dict | list):
        return _ENCODER.encode(value[:_SHOWN_CHARACTERS] if isinstance(value, str) else value)[:_SHOWN_CHARACTERS]
    text = ""
    for piece in _ENCODER.iterencode(value):  # not all of it: it may be a megabyte
        text += piece
        if len(text) >= _SHOWN_CHARACTERS:
            break
    return text[:_SHOWN_CHARACTERS]


def text_of(value: object) -> str:
    """The value as text; empty for null."""
    if isinstance(value, str):
        return value
    return "" if value is None else shown(value) if isinstance(value, dict | list) else str(value)


def integer_of(value: object) -> int | None:
    """The integer that the value is, or spells, or None: `7`, `7.0` and `"7"` are 7."""
    if type(value) is int:
        return value
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return int(value) if isinstance(value, str) and value.isdecimal() and len(value) < 20 else None
