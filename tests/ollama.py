"""Streams and whole answers of Ollama's own API, in few words."""

import json
from typing import Any

DIALECT = "ollama"
Json = dict[str, Any]


def message(content: object = "", **fields: object) -> Json:
    """A line with a piece of the answer; the fields are the message's."""
    return {
        "model": "weir-3",
        "created_at": "2026-11-17T08:00:00Z",
        "message": {"role": "assistant", "content": content, **fields},
        "done": False,
    }


def call(id: str, arguments: object, name: str = "get_tide", index: int = 0) -> Json:
    """A tool call, which is always whole."""
    return {"id": id, "function": {"index": index, "name": name, "arguments": arguments}}


def ends(reason: object = "stop", input: int = 7, output: int = 4, **fields: object) -> Json:
    """The members that the last line has besides a message."""
    counts = {"prompt_eval_count": input, "eval_count": output}
    return {"done": True, "done_reason": reason, "total_duration": 9, **counts, **fields}


def wire(*lines: Json) -> bytes:
    """The lines as a stream."""
    return b"".join(json.dumps(line, ensure_ascii=False).encode() + b"\n" for line in lines)


def answer(*lines: Json, reason: object = "stop", **fields: Any) -> bytes:
    """A whole stream with these lines in it."""
    return wire(*lines, message() | ends(reason, **fields))


def body(line: Json, reason: object = "stop", **fields: Any) -> bytes:
    """An unstreamed answer."""
    return json.dumps(line | ends(reason, **fields)).encode()
