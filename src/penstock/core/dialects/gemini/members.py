"""Members of Gemini's JSON, by either of their names.

The API is defined by protocol buffers. Their JSON form has names in camelCase, and parsers must accept snake_case too:
Google's own examples of requests use both.
"""

import re
from collections.abc import Mapping
from functools import lru_cache

_UPPER = re.compile(r"[A-Z]")


@lru_cache(maxsize=256)
def snake_case(name: str) -> str:
    """The other name of a member."""
    return _UPPER.sub(lambda letter: f"_{letter[0].lower()}", name)


def member(holder: Mapping[str, object], name: str) -> object:
    """The value of a member, which may have either name; None if it is missing."""
    value = holder.get(name)
    return holder.get(snake_case(name)) if value is None else value


def either_names(*names: str) -> frozenset[str]:
    """Names of members, each in both forms."""
    return frozenset(form for name in names for form in (name, snake_case(name)))
