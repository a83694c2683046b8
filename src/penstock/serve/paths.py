"""Paths: what of the API a request asks for, by its path as it came on the wire."""

import re
from urllib.parse import unquote_to_bytes

# Prefixes under which people know the same API.
_PREFIXES = ("/openai/v1", "/v1", "/openai")
_BROKEN_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")


def plain_path(path: str) -> str:
    """The path without the prefix under which it was asked for."""
    for prefix in _PREFIXES:
        if path.startswith(f"{prefix}/"):
            return path.removeprefix(prefix)
    return path


def decoded(part: str) -> str | None:
    """A part of a path without its escapes; None where they are broken, or do not stand for UTF-8.

    Clients escape what stands for one name: its slashes too, and whatever is not ASCII.
    """
    if _BROKEN_ESCAPE.search(part):
        return None
    try:
        return unquote_to_bytes(part.encode("latin-1")).decode()
    except UnicodeDecodeError:
        return None
