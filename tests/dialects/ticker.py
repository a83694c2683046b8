"""Ticker: a small dialect that exists in the tests only, to prove that a dialect is a package and one line.

It is a block dialect over SSE with named events. A request has a `brief` (the system prompt), `lines` and `tools`:

    {"model": "m", "brief": "…", "lines": [{"by": "user", "say": "Hi"}, {"by": "model", "call": {…}}], "live": true}

A stream:

    event: open     {"ref": "t1", "by": "m"}
    event: block    {"n": 0, "is": "text"}             or "thought", or "picture", or "call" with "tool" and "ref"
    event: more     {"n": 0, "s": "Hello"}             of a picture: PNG in base64; perhaps with "tick", a counter
    event: shut     {"n": 0}
    event: over     {"why": "done", "bill": {"read": 5, "wrote": 3}}      why: done, long, call
    event: error    {"error": {"message": "out of paper"}}

An unstreamed answer is one object with `ref`, `by`, `blocks`, `why` and `bill`. It has no stop sequences, no sampling
settings and one choice.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from penstock import (
    BlockEnd,
    BlockStart,
    ChoiceStart,
    Completion,
    Event,
    Finish,
    MediaDelta,
    MediaPart,
    ReasoningDelta,
    ReasoningPart,
    RefusalDelta,
    RefusalPart,
    Start,
    TextDelta,
    TextPart,
    ToolCall,
    ToolCallDelta,
    ToolCallStart,
    ToolResult,
    Usage,
    UsageReport,
)
from penstock.core.dialects import dialect as ports
from penstock.core.dialects.answer_parts import first_choice, note_hidden
from penstock.core.dialects.bodies import read_client
from penstock.core.dialects.dialect import AnswerFacts, AnswerWriter, FrameReader, Json
from penstock.core.fast.format import TextFormat
from penstock.core.hub.events import BlockKind
from penstock.core.hub.losses import Loss
from penstock.core.hub.request import Message, Request, Tool
from penstock.core.hub.sink import Sink
from penstock.core.json.getters import integer_of, object_of, others

NAME = "ticker"
WHY = {"done": "stop", "long": "length", "call": "tool_calls"}
KINDS: dict[str, BlockKind] = {"text": "text", "thought": "reasoning", "picture": "media"}
NATIVE = {reason: why for why, reason in WHY.items()}
EVENTS = {"open": {"ref", "by"}, "block": {"n", "is"}, "more": {"n", "s"}, "over": {"why"}}


class TickerReader(FrameReader):
    """The JSON of a ticker's frames → what they say."""

    title = "Ticker"
    envelope = ("id", "model", "created")

    def __init__(self, sink: Sink) -> None:
        super().__init__(sink)
        self._calls: dict[int, int] = {}
        self._kinds: dict[int, str] = {}

    def read(self, value: Json, event: str) -> None:
        events = self._sink.events
        match event, value:
            case "open", {"ref": str(ref), "by": str(model)}:
                events += [Start(ref, model, 1), ChoiceStart(0, "assistant")]
            case "block", {"n": int(n), "is": "call", "ref": str(ref), "tool": str(tool)}:
                self._calls[n] = len(self._calls)
                events.append(ToolCallStart(0, self._calls[n], ref, tool, block=n))
            case "block", {"n": int(n), "is": str(kind)}:
                self._kinds[n] = kind
                events.append(BlockStart(0, n, KINDS.get(kind, "text"), type=kind))
            case "more", {"n": int(n), "s": str(text)} if n in self._calls:
                events.append(ToolCallDelta(0, self._calls[n], text))
            case "more", {"n": int(n), "s": str(data)} if self._kinds.get(n) == "picture":
                events.append(MediaDelta(0, n, "image/png", data))
            case "more", {"n": int(n), "s": str(text)}:
                events.append(ReasoningDelta(0, text) if self._kinds.get(n) == "thought" else TextDelta(0, text))
            case "shut", {"n": int(n)}:
                events.append(BlockEnd(0, n))
            case "over", {"why": str(why), **rest}:
                self._finish(why, object_of(rest.get("bill")))
            case "", {"blocks": list(blocks), "ref": str(ref), "by": str(model), "why": str(why), **rest}:
                events += [Start(ref, model, 1), ChoiceStart(0, "assistant")]
                for n, block in enumerate(blocks):
                    self.read({**block, "n": n}, "block")
                    self.read({"n": n, "s": block["s"]}, "more")
                    self.read({"n": n}, "shut")
                self._finish(why, object_of(rest.get("bill")))
            case _:
                self.read_unknown(value, event)

    def _finish(self, why: str, bill: Json) -> None:
        usage = Usage(input=integer_of(bill.get("read")), output=integer_of(bill.get("wrote")))
        self._sink.events += [Finish(0, WHY.get(why, why), why), *([UsageReport(usage)] if bill else [])]
        self.done = True


class TickerWriter(AnswerWriter):
    """Events → a ticker's stream."""

    def write(self, event: Event) -> None:
        match event:
            case Start(id, model):
                self._put("open", ref=id or self._facts.call_id, by=model or self._facts.model)
            case BlockStart(_, n, kind):
                self._put("block", n=n, **{"is": next((own for own in KINDS if KINDS[own] == kind), "text")})
            case ToolCallStart(_, _, id, name, block=n):
                self._put("block", n=n, ref=id, tool=name, **{"is": "call"})
            case TextDelta(_, data, n) | RefusalDelta(_, data, n) | MediaDelta(_, n, _, data):
                self._put("more", n=n, s=data)
            case ReasoningDelta(_, data, block=n) | ToolCallDelta(_, _, data, n):
                self._put("more", n=n, s=data)
            case BlockEnd(_, n):
                self._put("shut", n=n)
            case _:
                self.write_rest(event)

    def complete(self, finish: Finish) -> None:
        self._put("over", why=NATIVE.get(finish.reason, finish.reason), bill=_bill(self._usage))

    def write_error(self, message: str, code: str, provider: Json) -> None:
        self._put("error", error={"message": message, "code": code, "call": self._facts.call_id} | provider)

    def _put(self, event: str, **data: object) -> None:
        self.out.append(b"event: %b\ndata: %b\n\n" % (event.encode(), msgspec.json.encode(data)))


def _bill(usage: Usage | None) -> Json | None:
    return {"read": usage.input, "wrote": usage.output} if usage else None


def write_body(completion: Completion, facts: AnswerFacts, losses: list[Loss]) -> bytes:
    blocks: list[Json] = []
    choice = first_choice(completion, losses)
    for part in choice.parts:
        match part:
            case TextPart(text) | RefusalPart(text):
                blocks.append({"is": "text", "s": text})
            case ReasoningPart(text):
                blocks.append({"is": "thought", "s": text})
            case ToolCall(id, name, arguments):
                blocks.append({"is": "call", "ref": id, "tool": name, "s": arguments})
            case MediaPart(data=data):
                blocks.append({"is": "picture", "s": data})
            case _:
                note_hidden(part, losses)
    return msgspec.json.encode(
        {
            "ref": completion.id or facts.call_id,
            "by": completion.model or facts.model,
            "blocks": blocks,
            "why": NATIVE.get(choice.finish_reason or "", choice.finish_reason),
            "bill": _bill(completion.usage),
        }
    )


def read_fields(fields: Mapping[str, Any]) -> Request:
    turns = []
    for line in fields["lines"]:
        match line:
            case {"by": "tool", "ref": str(ref), "say": str(text)}:
                turns.append(Message("user", (ToolResult(ref, (TextPart(text),)),)))
            case {"by": "model", "call": {"ref": str(ref), "tool": str(tool), "with": str(arguments)}}:
                turns.append(Message("assistant", (ToolCall(ref, tool, arguments),)))
            case _:
                turns.append(Message("assistant" if line["by"] == "model" else "user", (TextPart(line["say"]),)))
    return Request(
        system=(TextPart(fields["brief"]),) if "brief" in fields else (),
        turns=tuple(turns),
        tools=tuple(Tool(name=tool["tool"], schema=tool["takes"]) for tool in fields.get("tools", ())),
        max_output=fields.get("most"),
        extras=others(fields, ("model", "brief", "lines", "tools", "live", "most")),
    )


class TickerRequestWriter(ports.RequestWriter):
    """Requests → the members of a body for tickers."""

    def write(self, request: Request) -> Json:
        lines = [line for turn in request.turns for line in self._lines(turn)]
        self.stops(request.stop, most=0)
        self.note_sampling(request.sampling, ())
        self.note_unknown(request)
        tools = [{"tool": tool.name, "takes": tool.schema} for tool in request.tools]
        optional = {"brief": self.texts(request.system), "tools": tools, "most": request.max_output}
        return {"lines": lines} | {name: value for name, value in optional.items() if value}

    def _lines(self, turn: Message) -> list[Json]:
        results, rest = self.results(turn.parts)
        lines: list[Json] = [{"by": "tool", "ref": result.call_id, "say": text} for result, text in results]
        for part in rest:
            if isinstance(part, ToolCall):
                lines.append({"by": "model", "call": {"ref": part.id, "tool": part.name, "with": part.arguments}})
            elif (text := self.text(part)) is not None:
                lines.append({"by": "model" if turn.role == "assistant" else "user", "say": text})
            else:
                self.note_dropped(part)
        return lines


class TickerUpstream(ports.UpstreamDialect):
    """Calls tickers."""

    path = "/ticker"
    reader = TickerReader
    request_writer = TickerRequestWriter
    stream_member = "live"
    output_member = "most"


class TickerTextFormat(TextFormat):
    """The fast path: where the text is, where its block is named, and what counts on."""

    path = ("s",)
    block_path = ("n",)
    counter = "tick"


TICKER = ports.Dialect(
    name=NAME,
    title="Ticker",
    upstream=TickerUpstream(),
    surface=ports.SurfaceDialect(
        path="/ticker",
        read_request=lambda body, *_: read_client(NAME, body, read_fields, stream="live", messages="lines"),
        writer=TickerWriter,
        write_body=write_body,
    ),
    detector=ports.Detector(
        in_frame=lambda value, event: ports.PROOF if EVENTS.get(event, {"blocks", "why"}) <= value.keys() else 0,
    ),
    text_format=TickerTextFormat(),
)
