"""Short calls of each API: what a client asks, and what a provider answers, as bytes.

The answers are written by Penstock's own writers from one list of events, so that they say the same in every API.
"""

import re
from typing import Literal, NamedTuple, TypeAlias

from bench.load.apis import APIS, Api, request
from penstock import (
    Accumulator,
    ChoiceStart,
    End,
    Event,
    Finish,
    Start,
    StreamWriter,
    TextDelta,
    ToolCallDelta,
    ToolCallStart,
    Usage,
    UsageReport,
)

Kind: TypeAlias = Literal["streamed", "unstreamed", "tool call"]
KINDS: tuple[Kind, ...] = ("streamed", "unstreamed", "tool call")
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
_TOOL = "look_up"
_SCHEMA = {"type": "object", "properties": {"place": {"type": "string"}}, "required": ["place"]}
_FUNCTION = {"name": _TOOL, "description": "Look up the tide.", "parameters": _SCHEMA}
_TOOLS: dict[str, list[object]] = {
    "openai_chat": [{"type": "function", "function": _FUNCTION}],
    "anthropic_messages": [{"name": _TOOL, "description": "Look up the tide.", "input_schema": _SCHEMA}],
    "openai_responses": [{"type": "function", **_FUNCTION}],
    "gemini": [{"functionDeclarations": [_FUNCTION]}],
}
_OPENING: list[Event] = [Start("chatcmpl-bench", "bench", 1_700_000_000), ChoiceStart(0, "assistant")]
_USAGE = UsageReport(Usage(input=9, output=100))
_LONG_TEXT = "The tide comes in twice a day, and goes out as often. " * 10


class Exchange(NamedTuple):
    """One call: the request of a client, and how a whole answer is recognised."""

    request: bytes
    end: bytes
    """What is in a whole answer."""
    text: re.Pattern[bytes] | None = None
    """The text of each delta, where deltas are counted."""


def exchange(api: Api, kind: Kind, model: str, path: str = "") -> Exchange:
    """What a client of this API sends for a model, and what is in the answer that it gets."""
    fields = dict(api.fields)
    if kind == "tool call":
        fields["tools"] = _TOOLS[api.dialect]
    api = api._replace(fields=fields, path=path or api.path)
    if kind == "unstreamed":
        path = api.path.replace(":streamGenerateContent?alt=sse", ":generateContent").format(model=model)
        return Exchange(request(path, {"model": model, **fields}), b'"usage')
    end, text = (_TOOL.encode(), None) if kind == "tool call" else (api.end, api.text_pattern())
    return Exchange(api.request(model), end, text)


def _short_answer(api: Api, kind: Kind) -> list[bytes]:
    """What a provider of this API sends, in so many writes."""
    writer = StreamWriter(api.dialect, include_usage=True, model="bench")
    if kind == "unstreamed":
        whole = Accumulator()
        whole.extend([*_OPENING, TextDelta(0, _LONG_TEXT), Finish(0, "stop"), _USAGE, End("completed")])
        body = writer.write_body(whole.completion)
        return [
            b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body)
        ]
    call: list[Event] = [ToolCallStart(0, 0, "call_bench", _TOOL), ToolCallDelta(0, 0, '{"place":')]
    rest: list[Event] = [ToolCallDelta(0, 0, '"Brest"}'), Finish(0, "tool_calls"), _USAGE, End("completed")]
    events = [chunk(data) for part in (_OPENING, call, rest) if (data := writer.write(part))]
    return [HEAD + events[0], *events[1:-1], events[-1] + b"0\r\n\r\n"]


def chunk(data: bytes) -> bytes:
    """One HTTP chunk."""
    return b"%x\r\n%b\r\n" % (len(data), data)


SHORT_ANSWERS = {(api.name, kind): _short_answer(api, kind) for api in APIS for kind in KINDS if kind != "streamed"}
"""What providers answer at once, by the name of the API: the writes."""
