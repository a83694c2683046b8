"""Paths of endpoints, some of which contain the model: `/model/{model}/converse`."""

import re
from functools import cache
from urllib.parse import unquote

_MODEL = "{model}"


def model_at(path: str, template: str) -> str | None:
    """The model that the end of a path names; empty if the template has none, None if the path is another one."""
    match = _pattern(template).search(path.partition("?")[0])
    if match is None:
        return None
    return unquote(match[1]) if _MODEL in template else ""


@cache
def _pattern(template: str) -> re.Pattern[str]:
    before, model, after = template.partition(_MODEL)
    return re.compile(re.escape(before) + ("([^/]+)" if model else "") + re.escape(after) + r"\Z")
