"""Typed getters: foreign JSON is `object` until one of these has looked at it."""


def text_of(value: object) -> str:
    """The value as text; empty for null."""
    return value if isinstance(value, str) else "" if value is None else str(value)


def integer_of(value: object) -> int | None:
    """The integer that the value is, or spells, or None: `7`, `7.0` and `"7"` are 7."""
    if type(value) is int:
        return value
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return int(value) if isinstance(value, str) and value.isdecimal() and len(value) < 20 else None
