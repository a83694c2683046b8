"""Tags: the client's own labels of a call (`metadata`), shortened and without secrets.

Tags are stored in the book. Users put whole headers into them, so keys are masked: those that the gateway knows, and
strings that look like one.
"""

from collections.abc import Iterable, Mapping
from itertools import islice

from penstock.core.hub.request import MAX_TAGS
from penstock.gateway.mask import LOOKS_LIKE_KEY, SECRET_NAME

_MAX_LENGTH = 200
# In characters: this much of a text is searched for secrets.
_MAX_SEARCHED = 16_384
_MASK = "…"
# A shorter value is a word, not a key.
_SHORTEST_SECRET = 8


def clean_tags(
    client_tags: Mapping[str, str], key_tags: Mapping[str, str], secrets: Iterable[str]
) -> Mapping[str, str]:
    """The tags to store: the client's own, and those of its key, which the client cannot replace."""
    if not client_tags:
        return key_tags
    tags = {
        clean_text(name, secrets): _MASK if SECRET_NAME.search(name[:_MAX_SEARCHED]) else clean_text(value, secrets)
        for name, value in islice(client_tags.items(), MAX_TAGS)
    }
    return {**tags, **key_tags}


def clean_text(text: str, secrets: Iterable[str]) -> str:
    """A client's text, masked and shortened."""
    cut = len(text) > _MAX_SEARCHED
    text = text[:_MAX_SEARCHED]
    for secret in secrets:
        if len(secret) >= _SHORTEST_SECRET:
            text = text.replace(secret, _MASK)
    if cut:  # the end may be half a secret
        text = text[: max(len(text) - max(map(len, secrets), default=0), 0)]
    return LOOKS_LIKE_KEY.sub(_MASK, text[: 4 * _MAX_LENGTH])[:_MAX_LENGTH]
