"""What the tests of OpenAI Responses share: the events of a stream, and how one is read."""

import json
from collections.abc import Iterable
from typing import Any

from penstock import Accumulator, Completion, Event, Extra, Repair, StreamReader
from penstock.core.stream import MAX_EVENT
from tests.streams import read

DIALECT = "openai_responses"
Json = dict[str, Any]
USAGE: Json = {
    "input_tokens": 7,
    "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
    "output_tokens": 4,
    "output_tokens_details": {"reasoning_tokens": 0},
    "total_tokens": 11,
}
TIDE = '{"port":"Brest"}'


def response(status: str = "in_progress", *output: Json, usage: Json | None = None, **fields: object) -> Json:
    """The response object."""
    known = {"id": "resp_w1", "object": "response", "created_at": 1_767_225_600, "status": status, "error": None}
    known |= {"incomplete_details": None, "model": "weir-3", "service_tier": "default"}
    return known | {"output": [*output], "usage": usage} | fields


def begins(**fields: object) -> list[Json]:
    """`response.created` and `response.in_progress`."""
    types = ("response.created", "response.in_progress")
    return [{"type": type, "response": response(**fields)} for type in types]  # type: ignore[arg-type]


def completes(*output: Json, usage: Json | None = None, **fields: object) -> Json:
    """`response.completed` with these items."""
    return {"type": "response.completed", "response": response("completed", *output, usage=usage or USAGE, **fields)}


def stops(reason: str | None, *output: Json, **fields: object) -> Json:
    """`response.incomplete`."""
    whole = response(
        "incomplete", *output, usage=USAGE, incomplete_details={"reason": reason} if reason else None, **fields
    )
    return {"type": "response.incomplete", "response": whole}


def fails(message: str = "The model ran dry", code: str = "server_error") -> Json:
    """`response.failed`."""
    return {"type": "response.failed", "response": response("failed", error={"code": code, "message": message})}


def added(index: int, item: Json) -> Json:
    """`response.output_item.added`."""
    return {"type": "response.output_item.added", "output_index": index, "item": item}


def done(index: int, item: Json) -> Json:
    """`response.output_item.done`."""
    return {"type": "response.output_item.done", "output_index": index, "item": item}


def of_item(type: str, index: int, id: str, **fields: object) -> Json:
    """An event of an item, or of one of its parts."""
    return {"type": f"response.{type}", "item_id": id, "output_index": index} | fields


def part(text: str = "", **fields: object) -> Json:
    """A part of a message."""
    return {"type": "output_text", "annotations": [], "logprobs": [], "text": text} | fields


def message(*parts: Json, id: str = "msg_1", status: str = "completed", **fields: object) -> Json:
    """A message item."""
    return {"id": id, "type": "message", "status": status, "role": "assistant", "content": [*parts]} | fields


def reasoning(*summary: str, id: str = "rs_1", seal: str | None = None, **fields: object) -> Json:
    """A reasoning item."""
    sealed = {"encrypted_content": seal} if seal is not None else {}
    parts = [{"type": "summary_text", "text": text} for text in summary]
    return {"id": id, "type": "reasoning", "summary": parts} | sealed | fields


def function(arguments: str = TIDE, *, id: str = "fc_1", call_id: str = "call_1", **fields: object) -> Json:
    """A function call."""
    known = {"id": id, "type": "function_call", "status": "completed", "call_id": call_id, "name": "get_tide"}
    return known | {"arguments": arguments} | fields


def custom(input: str = "", *, id: str = "ctc_1", **fields: object) -> Json:
    """A call of a custom tool."""
    known = {"id": id, "type": "custom_tool_call", "status": "completed", "call_id": "call_1", "name": "exec"}
    return known | {"input": input} | fields


def says(text: str, index: int = 0, id: str = "msg_1", **fields: object) -> Json:
    """A piece of text."""
    delta = {"content_index": 0, "delta": text, "logprobs": []} | fields
    return of_item("output_text.delta", index, id, **delta)


def passes(arguments: str, index: int = 0, id: str = "fc_1") -> Json:
    """A piece of a call's arguments."""
    return of_item("function_call_arguments.delta", index, id, delta=arguments)


def says_all(*texts: str, index: int = 0, id: str = "msg_1", **fields: Any) -> list[Json]:
    """A whole message."""
    whole = "".join(texts)
    place: Json = {"content_index": 0}
    return [
        added(index, message(id=id, status="in_progress", **fields)),
        of_item("content_part.added", index, id, **place, part=part()),
        *(says(text, index, id) for text in texts),
        of_item("output_text.done", index, id, **place, text=whole, logprobs=[]),
        of_item("content_part.done", index, id, **place, part=part(whole)),
        done(index, message(part(whole), id=id, **fields)),
    ]


def thinks_all(*parts: Iterable[str], index: int = 0, id: str = "rs_1", seal: str | None = None) -> list[Json]:
    """Whole reasoning: for each part of its summary, the pieces of its text."""
    events = [added(index, reasoning(id=id, seal="" if seal else None))]
    for number, pieces in enumerate(map(list, parts)):
        place: Json = {"summary_index": number}
        whole = "".join(pieces)
        summary = {"type": "summary_text", "text": whole}
        events += [
            of_item("reasoning_summary_part.added", index, id, **place, part={"type": "summary_text", "text": ""}),
            *(of_item("reasoning_summary_text.delta", index, id, **place, delta=piece) for piece in pieces),
            of_item("reasoning_summary_text.done", index, id, **place, text=whole),
            of_item("reasoning_summary_part.done", index, id, **place, part=summary),
        ]
    return [*events, done(index, reasoning(*map("".join, parts), id=id, seal=seal))]


def calls_all(arguments: str = TIDE, index: int = 0, id: str = "fc_1", **fields: Any) -> list[Json]:
    """A whole function call."""
    half = len(arguments) // 2
    return [
        added(index, function("", id=id, **fields) | {"status": "in_progress"}),
        passes(arguments[:half], index, id),
        passes(arguments[half:], index, id),
        of_item("function_call_arguments.done", index, id, arguments=arguments),
        done(index, function(arguments, id=id, **fields)),
    ]


def asks_all(input: str, index: int = 0, id: str = "ctc_1", **fields: Any) -> list[Json]:
    """A whole call of a custom tool."""
    return [
        added(index, custom(id=id, **fields) | {"status": "in_progress"}),
        of_item("custom_tool_call_input.delta", index, id, delta=input),
        of_item("custom_tool_call_input.done", index, id, input=input),
        done(index, custom(input, id=id, **fields)),
    ]


def error(message: str = "Overloaded", code: str = "server_is_overloaded") -> Json:
    """`error`."""
    return {"type": "error", "error": {"type": code, "code": code, "message": message, "param": None}}


def named(event: Json) -> bytes:
    """One event with its name."""
    return f"event: {event['type']}\ndata: {json.dumps(event, ensure_ascii=False, separators=(',', ':'))}\n\n".encode()


def numbered(events: Iterable[Json | str], start: int = 0) -> list[Json | str]:
    """The events with their numbers; a string counts as one."""
    return [
        event if isinstance(event, str) else {"sequence_number": number} | event
        for number, event in enumerate(events, start)
    ]


def wire(*events: Json | str) -> bytes:
    """The events with their names and numbers; a string stands as it is."""
    return b"".join(event.encode() if isinstance(event, str) else named(event) for event in numbered(events))


def items_of(events: Iterable[Json | str]) -> list[Json]:
    """The items that these events have completed."""
    return [event["item"] for event in events if isinstance(event, dict) and event["type"].endswith("output_item.done")]


def answer(*events: Json | str, begin: list[Json] | None = None, finish: Json | None = None) -> bytes:
    """A whole stream with these events in it."""
    return wire(*(begins() if begin is None else begin), *events, finish or completes(*items_of(events)))


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


def answer_events(events: Iterable[Event]) -> list[Event]:
    """The events without repairs, and without fields of the response: a writer completes those."""
    return [
        event
        for event in events
        if not isinstance(event, Repair) and not (isinstance(event, Extra) and event.place == "chunk")
    ]


WORDS = [f"word{number} " for number in range(9)]
CITATION = {
    "type": "url_citation",
    "start_index": 0,
    "end_index": 12,
    "url": "https://tides.example",
    "title": "Tides",
}
SEARCH: Json = {"id": "ws_1", "type": "web_search_call", "status": "completed", "action": {"type": "search"}}
SEARCHES = [
    added(0, SEARCH | {"status": "in_progress"}),
    of_item("web_search_call.in_progress", 0, "ws_1"),
    of_item("web_search_call.searching", 0, "ws_1"),
    of_item("web_search_call.completed", 0, "ws_1"),
    done(0, SEARCH),
]
IMAGE: Json = {"id": "ig_1", "type": "image_generation_call", "status": "completed", "output_format": "png"}
CITED = message(part("High at noon", annotations=[CITATION]), id="msg_2")
REFUSED = message({"type": "refusal", "refusal": "I cannot."})
THOUGHT = reasoning(content=[{"type": "reasoning_text", "text": "Hm, well"}])
HEALTHY: dict[str, bytes] = {
    "text": answer(*says_all(*WORDS)),
    "obfuscated text": answer(
        *(
            event | {"obfuscation": "x" * (place % 5 + 1)} if "delta" in event else event
            for place, event in enumerate(says_all(*WORDS))
        )
    ),
    "summary": answer(*thinks_all(WORDS[:4], WORDS[4:], seal="gAAAseal"), *says_all("At ", "noon.", index=1)),
    "reasoning": answer(
        added(0, reasoning()),
        of_item("reasoning_text.delta", 0, "rs_1", content_index=0, delta="Hm, "),
        of_item("reasoning_text.delta", 0, "rs_1", content_index=0, delta="well"),
        of_item("reasoning_text.done", 0, "rs_1", content_index=0, text="Hm, well"),
        done(0, THOUGHT),
        *says_all("So.", index=1),
    ),
    "sealed reasoning": answer(
        added(0, reasoning(seal="gAAAfirst")), done(0, reasoning(seal="gAAAseal")), *says_all("At noon.", index=1)
    ),
    "two calls": answer(
        *says_all("Let me see.", phase="commentary"),
        *calls_all(index=1),
        *calls_all("{}", index=2, id="fc_2", call_id="call_2", name="get_wind", namespace="weather"),
    ),
    "custom call": answer(*asks_all("ls -l\n")),
    "search": answer(
        *SEARCHES,
        added(1, message(id="msg_2", status="in_progress", phase="final_answer")),
        of_item("content_part.added", 1, "msg_2", content_index=0, part=part()),
        says("High at noon", 1, "msg_2"),
        of_item("output_text.annotation.added", 1, "msg_2", content_index=0, annotation_index=0, annotation=CITATION),
        of_item("output_text.done", 1, "msg_2", content_index=0, text="High at noon", logprobs=[]),
        of_item("content_part.done", 1, "msg_2", content_index=0, part=CITED["content"][0]),
        done(1, CITED | {"phase": "final_answer"}),
    ),
    "image": answer(
        added(0, IMAGE | {"status": "in_progress"}),
        of_item("image_generation_call.generating", 0, "ig_1"),
        of_item("image_generation_call.partial_image", 0, "ig_1", partial_image_index=0, partial_image_b64="aGFs"),
        done(0, IMAGE | {"result": "d2hvbGU="}),
        *says_all("Here.", index=1),
    ),
    "refusal": answer(
        added(0, message(status="in_progress")),
        of_item("content_part.added", 0, "msg_1", content_index=0, part={"type": "refusal", "refusal": ""}),
        of_item("refusal.delta", 0, "msg_1", content_index=0, delta="I "),
        of_item("refusal.delta", 0, "msg_1", content_index=0, delta="cannot."),
        of_item("refusal.done", 0, "msg_1", content_index=0, refusal="I cannot."),
        of_item("content_part.done", 0, "msg_1", content_index=0, part=REFUSED["content"][0]),
        done(0, REFUSED),
    ),
    "unknown item": answer(
        added(0, {"id": "tc_1", "type": "tide_chart", "levels": []}),
        of_item("tide_chart.drawing", 0, "tc_1", level=1),
        done(0, {"id": "tc_1", "type": "tide_chart", "levels": [1, 2]}),
        *says_all("See above.", index=1),
    ),
    "incomplete": answer(
        *says_all("Once ", "upon")[:-1],
        done(0, message(part("Once upon"), status="incomplete")),
        finish=stops("max_output_tokens", message(part("Once upon"), status="incomplete")),
    ),
    "failed": answer(*says_all("Half")[:3], finish=fails()),
}
"""Streams without a defect."""
