"""Ids of tool calls, and names of tools, that every API accepts.

Clients send ids and names back as they got them, so what one API allows may be too long, or have characters that are
refused, at another. Nothing is stored: the same id always becomes the same id, in a call and in its result.
"""

import hashlib
import re

_OTHER = re.compile(r"[^A-Za-z0-9_-]")
_DIGEST = 12


def portable(id: str, limit: int) -> str:
    """The id itself if it is short and plain enough; otherwise its beginning and a digest, which keeps ids apart."""
    plain = _OTHER.sub("_", id)
    if plain == id and 0 < len(id) <= limit:
        return id
    digest = hashlib.sha256(id.encode(errors="surrogatepass")).hexdigest()[:_DIGEST]
    return f"{plain[: limit - _DIGEST - 1]}_{digest}"
