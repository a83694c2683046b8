"""The scripts of most cases."""

import json

from tests.faults.upstream import JSON, Op, chunk, head, last_chunk, status
from tests.streams import DONE, Json, begins, bill, counts, finishes, says, sse

HELLO = sse(begins(), says("Hello"))
WORLD = sse(says(", world"))
REST = sse(finishes(), bill(**counts(5, 3)), DONE)
TEXT = "Hello, world"

ERROR: Json = {
    "error": {"message": "the engine is overloaded", "type": "server_error", "param": None, "code": "overloaded"}
}
ERROR_BODY = json.dumps(ERROR).encode()


def stream(*data: bytes) -> list[Op]:
    """A healthy stream: these bytes, each in its own chunk."""
    return [head(), *map(chunk, data), last_chunk()]


def whole() -> list[Op]:
    """A whole answer."""
    return stream(HELLO, WORLD, REST)


def plain(text: str = TEXT, **fields: object) -> bytes:
    """The body of an unstreamed answer."""
    message = {"role": "assistant", "content": text}
    answer = {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1_700_000_000,
        "model": "sluice-1",
        "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
        "usage": counts(5, 3),
    }
    return json.dumps(answer | fields).encode()


def unstreamed(text: str = TEXT) -> list[Op]:
    """A whole answer in one body."""
    return [status(200, JSON, plain(text))]


def spare() -> list[Op]:
    """What the second target of a pair answers."""
    return stream(sse(begins(), says("from the spare")), REST)


SPARE_TEXT = "from the spare"
