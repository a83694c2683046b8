"""Streams in few words: builders of chunks and of their framing, and functions that read them.

completion(sse(says("Hello"), finishes("stop"), DONE)).text == "Hello"
"""

import json
import re
from collections.abc import Iterable

from penstock import Accumulator, Completion, Event, Repair, StreamReader

Json = dict[str, object]

DONE = "[DONE]"
# What every chunk of a healthy stream has beside its choices.
ENVELOPE: Json = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1_700_000_000, "model": "sluice-1"}


def chunk(*choices: Json, **fields: object) -> Json:
    """A chunk with these choices; a field of its own, or one of the envelope's, may be given."""
    return ENVELOPE | {"choices": list(choices)} | fields


def choice(delta: object, *, index: object = 0, finish: object = None, **fields: object) -> Json:
    """One entry of `choices`."""
    return {"index": index, "delta": delta, "finish_reason": finish} | fields


def delta(delta: object, *, index: int = 0, finish: object = None, **fields: object) -> Json:
    """A chunk with one choice that has this delta; the fields are the chunk's."""
    return chunk(choice(delta, index=index, finish=finish), **fields)


def begins(index: int = 0) -> Json:
    """The chunk that begins a choice."""
    return delta({"role": "assistant", "content": ""}, index=index)


def says(text: object, *, index: int = 0, **fields: object) -> Json:
    """A chunk of text."""
    return delta({"content": text}, index=index, **fields)


def finishes(reason: object = "stop", *, index: int = 0, **fields: object) -> Json:
    """The chunk that finishes a choice."""
    return delta({}, index=index, finish=reason, **fields)


def calls(*pieces: Json, index: int = 0) -> Json:
    """A chunk with pieces of tool calls."""
    return delta({"tool_calls": list(pieces)}, index=index)


def piece(index: object = None, id: object = None, name: object = None, arguments: object = None) -> Json:
    """A piece of a tool call, with the fields that are given."""
    function = {key: value for key, value in (("name", name), ("arguments", arguments)) if value is not None}
    fields: Json = {"index": index, "id": id, "function": function}
    return {key: value for key, value in fields.items() if value is not None}


def bill(**usage: object) -> Json:
    """The chunk of its own that healthy streams put the usage into."""
    return chunk(usage=usage)


def counts(input: int, output: int, **more: object) -> Json:
    """A usage object that adds up."""
    return {"prompt_tokens": input, "completion_tokens": output, "total_tokens": input + output} | more


def dumps(payload: Json) -> str:
    """The payload as compact JSON, its text not escaped."""
    return json.dumps(payload, ensure_ascii=False, separators=(",", ":"))


def sse(*payloads: Json | str, prefix: str = "data: ", end: str = "\n\n") -> bytes:
    """The payloads as events; a string is the data as it stands."""
    return "".join(f"{prefix}{_data(payload)}{end}" for payload in payloads).encode()


def _data(payload: Json | str) -> str:
    return payload if isinstance(payload, str) else dumps(payload)


def read(*data: bytes, max_event: int = 1_000_000, reader: StreamReader | None = None) -> list[Event]:
    """The events of a stream whose bytes arrive in these pieces."""
    reader = reader or StreamReader("openai_chat", max_event=max_event)
    return [event for piece in data for event in reader.feed(piece)] + reader.close()


def fold(events: Iterable[Event]) -> Completion:
    """The completion that the events make."""
    answer = Accumulator()
    answer.extend(events)
    return answer.completion


def completion(*data: bytes, max_event: int = 1_000_000) -> Completion:
    """The completion of a stream whose bytes arrive in these pieces."""
    return fold(read(*data, max_event=max_event))


def bytewise(wire: bytes) -> list[bytes]:
    """The wire, one byte at a time."""
    return [wire[i : i + 1] for i in range(len(wire))]


def by_event(wire: bytes) -> list[bytes]:
    """The reads of a socket on which every event came alone."""
    return re.split(rb"(?<=\n\n)|(?<=\r\n\r\n)", wire)


def repairs(events: Iterable[Event]) -> dict[str, int]:
    """How often each defect was tolerated."""
    found: dict[str, int] = {}
    for event in events:
        if isinstance(event, Repair):
            found[event.code] = found.get(event.code, 0) + 1
    return found


def tool_calls(answer: Completion, index: int = 0) -> list[tuple[str | None, str, str]]:
    """The id, name and arguments of each call of a choice."""
    return [(call.id, call.name, call.arguments) for call in answer.choices[index].tool_calls]
