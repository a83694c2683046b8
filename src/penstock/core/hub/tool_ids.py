"""Ids of tool calls, and names of tools, that every API accepts.

Clients send ids and names back as they got them, so what one API allows may be too long, or have characters that are
refused, at another. Nothing is stored: the same id always becomes the same id, in a call and in its result.
"""

import hashlib
import re
from collections import Counter, deque
from collections.abc import Iterable

_OTHER = re.compile(r"[^A-Za-z0-9_-]")
_DIGEST = 12


def portable(id: str, limit: int) -> str:
    """The id itself if it is short and plain enough; otherwise its beginning and a digest, which keeps ids apart."""
    plain = _OTHER.sub("_", id)
    if plain == id and 0 < len(id) <= limit:
        return id
    digest = hashlib.sha256(id.encode(errors="surrogatepass")).hexdigest()[:_DIGEST]
    return f"{plain[: limit - _DIGEST - 1]}_{digest}"


class CallIds:
    """The calls of a conversation, and those that have no result yet.

    In Gemini's API and in OpenAI's legacy functions, calls and results have no ids: name and order link them. So calls
    without an id are numbered, except by ids that are `given`, and a result belongs to the first call of its name that
    has none yet.
    """

    def __init__(self, given: Iterable[str] = ()) -> None:
        self._given = frozenset(given)
        self._count = 0
        self._open: Counter[str] = Counter()  # by id
        # By name, and by whether the id was given: the ids in their order. Some of them may have a result by now.
        self._named: dict[tuple[str, bool], deque[str]] = {}

    def start(self, id: str, name: str) -> str:
        """The id of a call."""
        given = bool(id)
        while not id:
            self._count += 1
            numbered = f"call_{self._count}"
            id = "" if numbered in self._given else numbered
        self._open[id] += 1
        self._named.setdefault((name, given), deque()).append(id)
        return id

    def answered(self, id: str, name: str) -> str:
        """The id of the call that a result belongs to. One without an id belongs to a call without one, if possible."""
        for queue in () if id else (self._named.get((name, given)) for given in (False, True)):
            while queue and not id:
                first = queue.popleft()
                id = first if self._open[first] > 0 else ""
        self._open[id] -= 1
        return id or name
