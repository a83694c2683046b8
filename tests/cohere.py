"""Streams and whole answers of Cohere's API, version 2, in few words."""

import json
from typing import Any

DIALECT = "cohere"
Json = dict[str, Any]
DONE = b"data: [DONE]\n\n"
BEGIN: Json = {"type": "message-start", "id": "co_1", "delta": {"message": {"role": "assistant", "content": []}}}


def usage(input: int = 7, output: int = 4, cached: int | None = None, **tokens: int) -> Json:
    """A usage report. What is billed differs from what the model reads and writes."""
    return {
        "billed_units": {"input_tokens": input - 2, "output_tokens": output},
        "tokens": {"input_tokens": input, "output_tokens": output, **tokens},
        **({} if cached is None else {"cached_tokens": cached}),
    }


def delta(type: str, index: int = 0, **message: object) -> Json:
    """An event with a part of the message."""
    return {"type": type, "index": index, "delta": {"message": message}}


def says(text: object, index: int = 0) -> Json:
    """An event with text."""
    return delta("content-delta", index, content={"text": text})


def closes(index: int = 0, kind: str = "content") -> Json:
    """The end of a block."""
    return {"type": f"{kind}-end", "index": index}


def says_all(*texts: str, index: int = 0, kind: str = "text") -> list[Json]:
    """A block of text, or of thinking."""
    start = delta("content-start", index, content={"type": kind, kind: ""})
    return [start, *(delta("content-delta", index, content={kind: text}) for text in texts), closes(index)]


def plans(text: str) -> Json:
    """An event with a part of the plan before tool calls."""
    return {"type": "tool-plan-delta", "delta": {"message": {"tool_plan": text}}}


def call(id: str, arguments: str = "", name: str = "get_tide") -> Json:
    """A tool call."""
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


def calls_all(id: str, *pieces: str, index: int = 0, name: str = "get_tide") -> list[Json]:
    """A tool call with its arguments in pieces."""
    return [
        delta("tool-call-start", index, tool_calls=call(id, name=name)),
        *(delta("tool-call-delta", index, tool_calls={"function": {"arguments": piece}}) for piece in pieces),
        closes(index, "tool-call"),
    ]


def citation(text: str, start: int = 0, **document: str) -> Json:
    """A citation of a document, at this place of the text."""
    source = {"type": "document", "document": {"title": "Tides", **document}}
    return {"start": start, "end": start + len(text), "text": text, "sources": [source]}


def cites(text: str, start: int = 0, **document: str) -> list[Json]:
    """The events of a citation."""
    return [delta("citation-start", citations=citation(text, start, **document)), closes(0, "citation")]


def ends(reason: object = "COMPLETE", counts: Json | None = None, **fields: object) -> Json:
    """The last event."""
    return {
        "type": "message-end",
        "delta": {"finish_reason": reason, "usage": usage() if counts is None else counts, **fields},
    }


def wire(*events: Json) -> bytes:
    """The events as a stream."""
    return b"".join(
        f"event: {each['type']}\ndata: {json.dumps(each, ensure_ascii=False)}\n\n".encode() for each in events
    )


def answer(*events: Json, finish: Json | None = None) -> bytes:
    """A whole stream with these events in it."""
    return wire(BEGIN, *events, finish or ends()) + DONE


def body(reason: object = "COMPLETE", counts: Json | None = None, **message: object) -> bytes:
    """An unstreamed answer whose message has these fields."""
    answer = {"id": "co_1", "finish_reason": reason, "message": {"role": "assistant", **message}}
    return json.dumps(answer | {"usage": usage() if counts is None else counts}).encode()


def text(text: str, kind: str = "text") -> Json:
    """A block of an unstreamed answer."""
    return {"type": kind, kind: text}
