"""Tags: what a client says of its own call, to find it by. Kept short, and without secrets.

Tags are kept as long as the book is. People put whole headers into them, so what is a key there is masked: any that the
gateway knows, and whatever looks like one.
"""

import re
from collections.abc import Iterable, Mapping
from itertools import islice

from penstock.core.request import MAX_TAGS

_MAX_LENGTH = 200
# So much of a text is looked through for secrets.
_LOOKED_THROUGH = 16_384
_MASK = "…"
# The names of what holds a key, and how keys begin. Not any prefix: people's ids look the same, and are to be kept.
SECRET_NAME = re.compile(r"(?i)authori[sz]ation|api[-_]?key|secret|password|credential|(^|[-_])token$")
_SECRET = re.compile(
    r"(?i:\b(?:bearer|basic)\s+\S{12,})|\b(?:sk|pk|rk|gsk|csk|xai|hf|fw|r8|pplx|nvapi)[-_][\w-]{16,}|\bAIza[\w-]{30,}"
)
# What is shorter is a word, and no key.
_SHORTEST_SECRET = 8


def kept_tags(given: Mapping[str, str], of_key: Mapping[str, str], secrets: Iterable[str]) -> Mapping[str, str]:
    """The client's own tags, over those of its key."""
    if not given:
        return of_key
    tags = {
        kept_text(name, secrets): _MASK if SECRET_NAME.search(name[:_LOOKED_THROUGH]) else kept_text(value, secrets)
        for name, value in islice(given.items(), MAX_TAGS)
    }
    return {**of_key, **tags}


def kept_text(text: str, secrets: Iterable[str]) -> str:
    """A text of a client's, as it is kept."""
    cut = len(text) > _LOOKED_THROUGH
    text = text[:_LOOKED_THROUGH]
    for secret in secrets:
        if len(secret) >= _SHORTEST_SECRET:
            text = text.replace(secret, _MASK)
    if cut:  # half a secret may stand at the end
        text = text[: max(len(text) - max(map(len, secrets), default=0), 0)]
    return _SECRET.sub(_MASK, text[: 4 * _MAX_LENGTH])[:_MAX_LENGTH]
