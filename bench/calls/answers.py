"""Short calls of each API: what a client asks, and what a provider answers, as bytes.

The answers are written by Penstock's own writers from one list of events, so that they say the same in every API.
"""

import json
from typing import Literal, NamedTuple, TypeAlias

from bench.dialects.apis import APIS, Api
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
_HEAD = "HTTP/1.1 200 OK\r\ncontent-type: {}\r\n{}\r\n\r\n"
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


class ShortCalls(NamedTuple):
    """The calls of one API."""

    api: Api

    def exchange(self, kind: Kind, model: str) -> Exchange:
        """What a client of this API sends for a model, and what is in the answer that it gets."""
        fields = dict(self.api.fields)
        if kind == "tool call":
            fields["tools"] = _TOOLS[self.api.dialect]
        api = self.api._replace(fields=fields)
        if kind != "unstreamed":
            return Exchange(api.request(model), _TOOL.encode() if kind == "tool call" else self.api.mark)
        path = self.api.path.replace(":streamGenerateContent?alt=sse", ":generateContent").format(model=model)
        body = json.dumps({"model": model, **fields}).encode()
        lines = [f"POST {path} HTTP/1.1", "host: localhost", "content-type: application/json"]
        return Exchange("\r\n".join([*lines, f"content-length: {len(body)}", "", ""]).encode() + body, b"The tide")

    def answer(self, kind: Kind) -> list[bytes]:
        """What a provider of this API sends, in so many writes."""
        writer = StreamWriter(self.api.dialect, include_usage=True, model="bench")
        if kind == "unstreamed":
            whole = Accumulator()
            whole.extend([*_OPENING, TextDelta(0, _LONG_TEXT), Finish(0, "stop"), _USAGE, End("completed")])
            body = writer.write_body(whole.completion)
            return [_HEAD.format("application/json", f"content-length: {len(body)}").encode() + body]
        if kind == "streamed":
            deltas = [_chunk(self.api.delta(number)) for number in range(2 - self.api.ends_with_text)]
            events = [_chunk(self.api.opening) if self.api.opening else b"", *deltas, _chunk(self.api.closing(2))]
        else:
            call: list[Event] = [ToolCallStart(0, 0, "call_bench", _TOOL), ToolCallDelta(0, 0, '{"place":')]
            rest: list[Event] = [ToolCallDelta(0, 0, '"Brest"}'), Finish(0, "tool_calls"), _USAGE, End("completed")]
            events = [_chunk(data) for part in (_OPENING, call, rest) if (data := writer.write(part))]
        head = _HEAD.format("text/event-stream", "transfer-encoding: chunked").encode()
        return [head + events[0], *events[1:-1], events[-1] + b"0\r\n\r\n"]


CALLS = {api.name: ShortCalls(api) for api in APIS}


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)
