"""What the tests of the Gemini dialect share: the messages of a stream, and how one is read."""

import json
from collections.abc import Iterable
from typing import Any

from penstock import Accumulator, Completion, StreamReader
from penstock.core.hub.events import BlockEnd, Event, Extra, ToolCallDelta, ToolCallStart
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


def thinks(text: str, usage: Json | None = None, **part: object) -> Json:
    """A message with a thought."""
    return message({"text": text, "thought": True, **part}, usage=usage)


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


WORDS = ["High", ' "tide"\n', " at", " noón", " \\\\o/", " and", " midnight."]


def report(candidates: int, prompt: int = 7, thoughts: int = 0, **members: object) -> Json:
    """The usage after so many tokens of text."""
    if thoughts:
        members["thoughtsTokenCount"] = thoughts
    return {
        "promptTokenCount": prompt,
        "candidatesTokenCount": candidates,
        "totalTokenCount": prompt + candidates + thoughts,
        "promptTokensDetails": [{"modality": "TEXT", "tokenCount": prompt}],
        **members,
    }


def reported(*texts: str, **fields: Any) -> list[Json]:
    """Messages with these texts, each with the usage so far."""
    return [says(text, usage=report(5 * place), **fields) for place, text in enumerate(texts, 1)]


LAST = says(" Sail then.", finish="STOP", usage=report(99))
"""A last message with text, as Google sends it."""
BEAT = {"usageMetadata": {}, **ENVELOPE}
IMAGE = {"inlineData": {"mimeType": "image/png", "data": "aW1hZ2U="}}
CODE = {"executableCode": {"language": "PYTHON", "code": "1+1"}}
RESULT = {"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "2"}}
GROUNDING = {
    "groundingMetadata": {
        "groundingChunks": [{"web": {"uri": "https://tides.example", "title": "Tides"}}],
        "groundingSupports": [{"segment": {"endIndex": 4, "text": "High"}, "groundingChunkIndices": [0]}],
    }
}
HEALTHY: dict[str, bytes] = {
    "text with usage": wire(*reported(*WORDS), LAST),
    "text with usage, lines end with LF": wire(*reported(*WORDS), LAST, end="\n\n"),
    "thoughts before text with usage": wire(
        thinks("Hm", usage=report(1, thoughts=5)),
        *(says(word, usage=report(5 * place, thoughts=5)) for place, word in enumerate(WORDS, 1)),
        says(" Sail then.", finish="STOP", usage=report(99, thoughts=5)),
    ),
    "usage with members that come and go": wire(
        *reported("One", " two", " three"),
        *(
            says(word, usage=report(20, candidatesTokensDetails=[{"modality": "TEXT", "tokenCount": 20}]))
            for word in WORDS
        ),
        says(" none"),
        says(" none again"),
        *(says(f" {word}", usage={"trafficType": "ON_DEMAND"}) for word in WORDS[:3]),
        LAST,
    ),
    "text with usage, then citations": wire(
        *reported(*WORDS), says(" Sail.", finish="STOP", usage=report(99), **GROUNDING)
    ),
    "text": answer(says("High "), says("tide "), says("at noon.")),
    "text as an array": array(says("High "), says("tide "), finishes()),
    "thoughts": answer(thinks("Hm"), thinks(", tides.", thoughtSignature="c2VhbA=="), says("At noon.")),
    "two calls": answer(
        says("Let me see."), message(calls(thoughtSignature="c2VhbA=="), calls(args={"port": "Cork", "days": [1, 2]}))
    ),
    "a streamed call": answer(
        passes({"jsonPath": "$.port", "stringValue": "Br", "willContinue": True}, name="get_tide", id="c1"),
        passes({"jsonPath": "$.port", "stringValue": "est"}),
        passes({"jsonPath": "$.days[0]", "numberValue": 2}),
        passes(more=False),
    ),
    "a signature at the end": answer(says("At noon."), message({"text": "", "thoughtSignature": "c2VhbA=="})),
    "media": answer(message({"text": "Here."}, IMAGE)),
    "code": answer(message(CODE), message(RESULT), says("It is 2.")),
    "search": answer(says("High at noon"), finish=finishes(**GROUNDING)),
    "two candidates": answer(says("One"), says("Two", index=1), finishes(index=1)),
    "a blocked prompt": wire(
        {"promptFeedback": {"blockReason": "SAFETY"}, "usageMetadata": {"promptTokenCount": 7}, **ENVELOPE}
    ),
    "the limit": answer(says("Once upon"), finish=finishes("MAX_TOKENS")),
    "reasoning tokens": answer(
        says("At noon."),
        finish=finishes(usage={**USAGE, "thoughtsTokenCount": 5, "cachedContentTokenCount": 3, "totalTokenCount": 16}),
    ),
}
"""Streams without a defect."""


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


def with_whole_calls(events: list[Event]) -> list[Event]:
    """The events as this dialect can write them: calls that ended, with objects as arguments."""
    ended = {(event.choice, event.block) for event in events if isinstance(event, BlockEnd)}
    calls = {(event.choice, event.call): event for event in events if isinstance(event, ToolCallStart)}
    whole = {key for key, call in calls.items() if (call.choice, call.block) in ended}
    written = dict.fromkeys(whole, "")
    for event in events:
        if isinstance(event, ToolCallDelta) and (key := (event.choice, event.call)) in whole:
            written[key] += event.arguments
    kept: list[Event] = []
    for event in events:
        if isinstance(event, ToolCallStart) and (event.choice, event.call) in whole:
            kept += [event, ToolCallDelta(event.choice, event.call, _as_object(written[event.choice, event.call]))]
        elif isinstance(event, Extra) and event.place == "tool" and (event.choice, event.call) not in whole:
            pass
        elif not isinstance(event, ToolCallStart | ToolCallDelta):
            kept.append(event)
    return kept


def _as_object(arguments: str) -> str:
    try:
        is_object = isinstance(json.loads(arguments), dict)
    except ValueError:
        is_object = False
    return arguments if is_object else json.dumps({"input": arguments}, ensure_ascii=False, separators=(",", ":"))
