"""Paths: normalises the path of a request as it was received."""

import re
from urllib.parse import unquote_to_bytes

# Prefixes under which clients expect the same API.
_PREFIXES = (
    "/openai/v1", "/anthropic/v1", "/gemini/v1beta", "/v1", "/v1beta", "/v1alpha", "/openai", "/anthropic", "/gemini",
)  # fmt: skip
_IN_PATH = re.compile(r"/model/.+/(converse(?:-stream)?)")
# The paths of lists of models in different APIs.
_MODEL_LISTS = ("/models", "/foundation-models")
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
    """The path with a placeholder in place of the model, if it names one: `/models/{model}:countTokens`, or
    `/model/{model}/converse`.

    Some clients of the Gemini API leave `models/` out if the name of the model has a slash.
    """
    if (named := _IN_PATH.fullmatch(path)) is not None:
        return f"/model/{{model}}/{named[1]}"
    _, colon, method = path.rpartition(":")
    return f"/models/{{model}}:{method}" if colon and method.isalpha() else path


def listed_model(path: str) -> str | None:
    """The name in the path of a model in a list, as the client encoded it; empty for the list, None for other paths."""
    for models in _MODEL_LISTS:
        if path == models or path.startswith(f"{models}/"):
            return path[len(models) + 1 :]
    return None


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
