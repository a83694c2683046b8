"""What the tests of the Gemini dialect share: the messages of a stream, and how one is read."""

import json
from collections.abc import Iterable
from typing import Any

from penstock import Accumulator, Completion, StreamReader
from penstock.core.events import Event
from penstock.core.stream import MAX_EVENT
from tests.streams import read

DIALECT = "gemini"
Json = dict[str, Any]
USAGE = {"promptTokenCount": 7, "candidatesTokenCount": 4, "totalTokenCount": 11}
TIDE = {"port": "Brest"}


def message(*parts: Json, finish: object = None, usage: Json | None = None, **candidate: object) -> Json:
    """A message with one candidate that has these parts."""
    content = {"content": {"parts": list(parts), "role": "model"}} if parts else {}
    finished = {"finishReason": finish} if finish is not None else {}
    counts = {"usageMetadata": usage} if usage is not None else {}
    return {"candidates": [content | finished | {"index": 0} | candidate], **counts, **ENVELOPE}


ENVELOPE = {"modelVersion": "weir-3", "responseId": "gem_w1"}


def says(*texts: str, **fields: Any) -> Json:
    """A message with text."""
    return message(*({"text": text} for text in texts), **fields)


def thinks(text: str, **part: object) -> Json:
    """A message with a thought."""
    return message({"text": text, "thought": True, **part})


def calls(name: str = "get_tide", args: object = TIDE, **part: object) -> Json:
    """A part with a whole function call."""
    return {"functionCall": {"name": name} | ({"args": args} if args is not None else {}), **part}


def passes(*values: Json, more: bool = True, **call: object) -> Json:
    """A message with a piece of a function call."""
    pieces: Json = {"partialArgs": list(values)} if values else {}
    return message({"functionCall": {**call, **pieces, **({"willContinue": True} if more else {})}})


def finishes(reason: object = "STOP", usage: Json | None = None, **fields: Any) -> Json:
    """The last message."""
    return message(finish=reason, usage=USAGE if usage is None else usage, **fields)


def wire(*messages: Json | str, end: str = "\r\n\r\n") -> bytes:
    """The messages as server-sent events; a string stands as it is."""
    return b"".join(
        each.encode() if isinstance(each, str) else f"data: {json.dumps(each, ensure_ascii=False)}{end}".encode()
        for each in messages
    )


def array(*messages: Json) -> bytes:
    """The messages as one array, as without `alt=sse`."""
    return ("[" + "\r\n,\r\n".join(json.dumps(each, indent=2) for each in messages) + "]").encode()


def answer(*messages: Json | str, finish: Json | None = None) -> bytes:
    """A whole stream with these messages in it."""
    return wire(*messages, finish or finishes())


def events_of(*data: bytes, max_event: int = MAX_EVENT) -> list[Event]:
    """The events of a stream whose bytes arrive in these pieces."""
    return read(*data, reader=StreamReader(DIALECT, max_event=max_event))


def fold(events: Iterable[Event]) -> Completion:
    """The completion that the events make."""
    folded = Accumulator(DIALECT)
    folded.extend(events)
    return folded.completion


def completion(*data: bytes) -> Completion:
    """The completion of a stream."""
    return fold(events_of(*data))
