"""Streams and whole answers of Bedrock's Converse API, in few words."""

import json
from typing import Any

from tests.event_streams import event

DIALECT = "bedrock_converse"
Json = dict[str, Any]
USAGE: Json = {"inputTokens": 7, "outputTokens": 4, "totalTokens": 11}
BEGIN = event("messageStart", {"role": "assistant", "p": "abcdef"})


def block(type: str, index: int = 0, **fields: object) -> bytes:
    """An event of a block: its start, a delta or its stop."""
    return event(f"contentBlock{type}", {"contentBlockIndex": index, "p": "abc", **fields})


def delta(index: int = 0, **fields: object) -> bytes:
    """A delta of a block."""
    return block("Delta", index, delta=fields)


def says(text: object, index: int = 0) -> bytes:
    """A delta with text."""
    return delta(index, text=text)


def says_all(*texts: str, index: int = 0) -> bytes:
    """A block of text."""
    return b"".join(says(text, index) for text in texts) + block("Stop", index)


def thinks_all(*texts: str, seal: str = "", index: int = 0) -> bytes:
    """A block of reasoning."""
    parts: list[Json] = [{"text": text} for text in texts] + ([{"signature": seal}] if seal else [])
    return b"".join(delta(index, reasoningContent=part) for part in parts) + block("Stop", index)


def call(id: str, name: str = "get_tide", **fields: object) -> Json:
    """The start of a tool call."""
    return {"toolUse": {"toolUseId": id, "name": name, **fields}}


def passes(arguments: str, index: int = 0) -> bytes:
    """A delta with a part of a call's arguments."""
    return delta(index, toolUse={"input": arguments})


def calls_all(id: str, *pieces: str, index: int = 0, **fields: Any) -> bytes:
    """A tool call with its arguments in pieces."""
    arguments = b"".join(passes(piece, index) for piece in pieces)
    return block("Start", index, start=call(id, **fields)) + arguments + block("Stop", index)


def stops(reason: object = "end_turn", **fields: object) -> bytes:
    """The event with the finish reason."""
    return event("messageStop", {"stopReason": reason, "p": "abcd", **fields})


def bill(usage: Json = USAGE) -> bytes:
    """The last event, which has the usage."""
    return event("metadata", {"usage": usage, "metrics": {"latencyMs": 9}, "p": "ab"})


def answer(*events: bytes, reason: object = "end_turn", usage: Json = USAGE) -> bytes:
    """A whole stream with these events in it."""
    return b"".join((BEGIN, *events, stops(reason), bill(usage)))


def body(*content: Json, reason: object = "end_turn", usage: Json = USAGE) -> bytes:
    """An unstreamed answer with these blocks."""
    message = {"role": "assistant", "content": list(content)}
    metrics = {"latencyMs": 9}
    return json.dumps(
        {"output": {"message": message}, "stopReason": reason, "usage": usage, "metrics": metrics}
    ).encode()
