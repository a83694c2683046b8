"""The scripts of most cases: those of a provider of chat completions. `dialects.py` has those of all dialects."""

import json

from tests.faults.dialects import CHAT, OVERLOADED, TEXT, stream
from tests.faults.upstream import JSON, Op, status
from tests.streams import Json

__all__ = ["ERROR", "ERROR_BODY", "HELLO", "REST", "SPARE_TEXT", "TEXT", "WORLD"]
__all__ += ["plain", "spare", "stream", "unstreamed", "whole"]

HELLO = CHAT.hello
WORLD = CHAT.world
REST = CHAT.rest
ERROR_BODY = CHAT.error(OVERLOADED)
ERROR: Json = json.loads(ERROR_BODY)
SPARE_TEXT = "from the spare"


def whole() -> list[Op]:
    """A whole answer."""
    return CHAT.whole()


def plain(text: str = TEXT, **fields: object) -> bytes:
    """The body of an unstreamed answer."""
    body = CHAT.body(text)
    return json.dumps(json.loads(body) | fields).encode() if fields else body


def unstreamed(text: str = TEXT) -> list[Op]:
    """A whole answer in one body."""
    return [status(200, JSON, plain(text))]


def spare() -> list[Op]:
    """What the second target of a pair answers."""
    return stream(CHAT.begin + CHAT.says(SPARE_TEXT), REST)
