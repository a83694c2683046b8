"""What the tests of Anthropic Messages share: the events of a stream, and how one is read."""

import json
from collections.abc import Iterable
from typing import Any

from penstock import Accumulator, Completion, StreamReader
from penstock.core.hub.events import Event
from penstock.core.stream import MAX_EVENT
from tests.streams import read

DIALECT = "anthropic_messages"
Json = dict[str, Any]


def begins(id: str = "msg_w1", model: str = "weir-3", usage: Json | None = None, **fields: object) -> Json:
    """`message_start`."""
    message: Json = {
        "id": id,
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": [],
        "stop_reason": None,
    }
    counts = {"input_tokens": 7, "output_tokens": 1} if usage is None else usage
    return {"type": "message_start", "message": message | {"stop_sequence": None, "usage": counts} | fields}


def opens(index: int = 0, type: str = "text", **fields: object) -> Json:
    """`content_block_start`."""
    empty: dict[str, Json] = {"text": {"text": ""}, "thinking": {"thinking": "", "signature": ""}}
    return {
        "type": "content_block_start",
        "index": index,
        "content_block": {"type": type} | empty.get(type, {}) | fields,
    }


def calls(index: int = 0, id: str = "toolu_1", name: str = "get_tide", **fields: object) -> Json:
    """The start of a tool call."""
    return opens(index, "tool_use", id=id, name=name, **({"input": {}} | fields))


def delta(index: int, type: str, **fields: object) -> Json:
    """`content_block_delta`."""
    return {"type": "content_block_delta", "index": index, "delta": {"type": type} | fields}


def says(text: str, index: int = 0) -> Json:
    """A piece of text."""
    return delta(index, "text_delta", text=text)


def thinks(text: str, index: int = 0) -> Json:
    """A piece of thinking."""
    return delta(index, "thinking_delta", thinking=text)


def signs(signature: str, index: int = 0) -> Json:
    """The signature of a thinking block."""
    return delta(index, "signature_delta", signature=signature)


def passes(arguments: str, index: int = 0) -> Json:
    """A piece of a call's arguments."""
    return delta(index, "input_json_delta", partial_json=arguments)


def closes(index: int = 0) -> Json:
    """`content_block_stop`."""
    return {"type": "content_block_stop", "index": index}


def finishes(reason: str | None = "end_turn", usage: Json | None = None, **fields: object) -> Json:
    """`message_delta`."""
    reported = {"stop_reason": reason, "stop_sequence": None} | fields
    return {"type": "message_delta", "delta": reported, "usage": {"output_tokens": 4} if usage is None else usage}


STOPS: Json = {"type": "message_stop"}
PING: Json = {"type": "ping"}
TIDE = '{"port":"Brest"}'


def says_all(*texts: str, index: int = 0) -> list[Json]:
    """A whole block of text."""
    return [opens(index), *(says(text, index) for text in texts), closes(index)]


def calls_all(arguments: str = TIDE, index: int = 0, **fields: Any) -> list[Json]:
    """A whole tool call."""
    half = len(arguments) // 2
    return [calls(index, **fields), passes(arguments[:half], index), passes(arguments[half:], index), closes(index)]


def error(message: str = "Overloaded", type: str = "overloaded_error") -> Json:
    """`error`."""
    return {"type": "error", "error": {"type": type, "message": message}}


def wire(*events: Json | str) -> bytes:
    """The events with their names; a string stands as it is."""
    return b"".join(event.encode() if isinstance(event, str) else named(event) for event in events)


def named(event: Json) -> bytes:
    """One event with its name."""
    return f"event: {event['type']}\ndata: {json.dumps(event, ensure_ascii=False, separators=(',', ':'))}\n\n".encode()


def answer(*events: Json | str, begin: Json | None = None, finish: Json | None = None) -> bytes:
    """A whole stream with these events in it."""
    return wire(begin or begins(), *events, finish or finishes(), STOPS)


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


def padded(data: bytes) -> bytes:
    """The same stream with spaces before the last bracket of each event, as Anthropic adds them."""
    events = data.split(b"}\n\n")
    return b"".join(event + b" " * (7 * place % 15) + b"}\n\n" for place, event in enumerate(events[:-1]))


WORDS = [f"word{number} " for number in range(9)]
SEARCH: list[Json] = [
    opens(1, "server_tool_use", id="srvtoolu_1", name="web_search", input={}, caller={"type": "direct"}),
    passes('{"query":"tides"}', 1),
    closes(1),
    opens(2, "web_search_tool_result", tool_use_id="srvtoolu_1", content=[{"type": "web_search_result", "url": "u"}]),
    closes(2),
]
CITATION = {
    "type": "web_search_result_location",
    "url": "https://tides.example",
    "title": "Tides",
    "cited_text": "High",
}
HEALTHY: dict[str, bytes] = {
    "text": answer(PING, *says_all(*WORDS)),
    "padded text": padded(answer(opens(), PING, *map(says, WORDS), closes())),
    "thinking": padded(
        answer(
            opens(0, "thinking"), *map(thinks, WORDS), signs("c2VhbA=="), closes(), *says_all("At ", "noon.", index=1)
        )
    ),
    "redacted": answer(opens(0, "redacted_thinking", data="b3BhcXVl"), closes(), *says_all("At noon.", index=1)),
    "two calls": answer(
        *says_all("Let me see."),
        *calls_all(index=1),
        *calls_all("", index=2, id="toolu_2", name="get_wind"),
        finish=finishes("tool_use"),
    ),
    "search": answer(
        *says_all("Searching."),
        *SEARCH,
        opens(3, citations=[]),
        says("High at noon", 3),
        delta(3, "citations_delta", citation=CITATION),
        closes(3),
        finish=finishes(usage={"output_tokens": 9, "server_tool_use": {"web_search_requests": 1}}),
    ),
    "compaction": answer(
        opens(0, "compaction", content=None),
        delta(0, "compaction_delta", content="So far."),
        closes(),
        *says_all("Go ", "on.", index=1),
        finish=finishes(context_management={"applied_edits": []}, container={"id": "c1"}),
    ),
    "unknown block": answer(opens(0, "tide_chart", id="t1", levels=[1, 2]), closes(), *says_all("See above.", index=1)),
    "refusal": answer(finish=finishes("refusal", stop_details={"type": "refusal", "category": "x"})),
    "stop sequence": answer(*says_all("One, two"), finish=finishes("stop_sequence", stop_sequence=", three")),
}
"""Streams without a defect."""
