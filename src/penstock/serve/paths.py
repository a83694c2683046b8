"""Paths: normalises the path of a request as it was received."""

import re
from urllib.parse import unquote_to_bytes

# Prefixes under which clients expect the same API.
_PREFIXES = (
    "/openai/v1", "/anthropic/v1", "/gemini/v1beta", "/v1", "/v1beta", "/v1alpha", "/openai", "/anthropic", "/gemini",
)  # fmt: skip
_BROKEN_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")


def plain_path(path: str) -> str:
    """The path without such a prefix."""
    for prefix in _PREFIXES:
        if path.startswith(f"{prefix}/"):
            return path.removeprefix(prefix)
    return path


def is_root(path: str) -> bool:
    """Whether a path has nothing after such a prefix."""
    return path.rstrip("/") in ("", *_PREFIXES)


def endpoint(path: str) -> str:
    """The path with a placeholder in place of the model, if it ends with a method: `/models/{model}:countTokens`.

    Some clients leave `models/` out if the name of the model has a slash.
    """
    _, colon, method = path.rpartition(":")
    return f"/models/{{model}}:{method}" if colon and method.isalpha() else path


def decoded(part: str) -> str | None:
    """A path segment without percent-encoding; None if the encoding is malformed or not UTF-8.

    Clients encode a model name as one segment, including its slashes and non-ASCII characters.
    """
    if _BROKEN_ESCAPE.search(part):
        return None
    try:
        return unquote_to_bytes(part.encode("latin-1")).decode()
    except UnicodeDecodeError:
        return None
