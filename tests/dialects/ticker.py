"""Ticker: a small dialect that exists in the tests only, to prove that a dialect is a package and one line.

It is a block dialect over SSE with named events. A request has a `brief` (the system prompt), `lines` and `tools`:

    {"model": "m", "brief": "…", "lines": [{"by": "user", "say": "Hi"}, {"by": "model", "call": {…}}], "live": true}

A stream:

    event: open     {"ref": "t1", "by": "m"}
    event: block    {"n": 0, "is": "text"}             or "thought", or "picture", or "call" with "tool" and "ref"
    event: more     {"n": 0, "s": "Hello"}             of a picture: PNG in base64; perhaps with "tick", a counter
    event: shut     {"n": 0}
    event: over     {"why": "done", "bill": {"read": 5, "wrote": 3}}      why: done, long, call
    event: broken   {"says": "out of paper"}

An unstreamed answer is one object with `ref`, `by`, `blocks`, `why` and `bill`. It has no stop sequences, no sampling
settings and one choice.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from penstock import (
    BlockEnd,
    BlockStart,
    ChoiceStart,
    Completion,
    End,
    Event,
    Finish,
    MediaDelta,
    MediaPart,
    ReasoningDelta,
    ReasoningPart,
    RefusalDelta,
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
from penstock.core.dialects.dialect import (
    HINT,
    PROOF,
    AnswerFacts,
    AnswerWriter,
    Destination,
    Dialect,
    OutgoingRequest,
    ProviderError,
    RequestError,
    RequestLimits,
    SurfaceDialect,
    UpstreamDialect,
)
from penstock.core.dialects.frame_reader import FrameReader
from penstock.core.fast.format import PassThroughFormat, TemplateSlot
from penstock.core.hub.blocks import Blocks
from penstock.core.hub.events import BlockKind
from penstock.core.hub.failure import Failure
from penstock.core.hub.losses import Loss
from penstock.core.hub.request import ClientRequest, Message, Request, Sampling, Tool
from penstock.core.hub.sink import Sink
from penstock.core.json.members import JsonMembers

NAME = "ticker"
WHY = {"done": "stop", "long": "length", "call": "tool_calls"}
KINDS: dict[str, BlockKind] = {"text": "text", "thought": "reasoning", "picture": "media"}
NATIVE = {reason: why for why, reason in WHY.items()}
EVENTS = {"open": {"ref", "by"}, "block": {"n", "is"}, "more": {"n", "s"}, "over": {"why"}}


# Answers, read.


class TickerReader(FrameReader):
    """The JSON of a ticker's frames → what they say."""

    title = "Ticker"
    marks_end = False
    finish_is_last = False
    envelope = ("id", "model", "created")

    def __init__(self, sink: Sink) -> None:
        super().__init__(sink)
        self._calls: dict[int, int] = {}
        self._kinds: dict[int, str] = {}

    def read(self, value: object, *, event: str = "", surrogates: bool = False) -> None:
        if surrogates or not isinstance(value, dict):
            self.read_odd(value, event, surrogates=surrogates)
            return
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
                self._finish(why, rest.get("bill"))
            case "broken", {"says": str(words)}:
                self._sink.fault("provider-error", words)
            case "", {"blocks": [*blocks], "ref": str(ref), "by": str(model), "why": str(why), **rest}:
                events += [Start(ref, model, 1), ChoiceStart(0, "assistant")]
                for n, block in enumerate(blocks):
                    self.read({**block, "n": n}, event="block")
                    self.read({"n": n, "s": block["s"]}, event="more")
                    self.read({"n": n}, event="shut")
                self._finish(why, rest.get("bill"))
            case _:
                self.read_unknown(value, event)

    def _finish(self, why: str, bill: Any) -> None:
        self._sink.events.append(Finish(0, WHY.get(why, why), why))
        match bill:
            case {"read": int(read), "wrote": int(wrote)}:
                self._sink.events.append(UsageReport(Usage(input=read, output=wrote)))
            case _:
                pass  # nothing is reported
        self.done = True


# Answers, written.


class TickerWriter(AnswerWriter):
    """Events → a ticker's stream."""

    def __init__(self, facts: AnswerFacts) -> None:
        self._facts = facts
        self.losses: list[Loss] = []
        self._blocks = Blocks(self.losses)
        self._usage: Usage | None = None
        self._why = ""
        self._open_block = 0
        self._call_blocks: dict[int, int] = {}

    def write(self, events: Iterable[Event]) -> bytes:
        return b"".join(self._frame(event) for event in self._blocks.order(events))

    def heartbeat(self) -> bytes:
        return b"event: wait\ndata: {}\n\n"

    def fail(self, failure: Failure) -> bytes:
        return _frame("broken", {"says": failure.message, "code": failure.code, "call": self._facts.call_id})

    def _frame(self, event: Event) -> bytes:
        match event:
            case Start(id, model):
                return _frame("open", {"ref": id or self._facts.call_id, "by": model or self._facts.model})
            case BlockStart(_, n, kind):
                self._open_block = n
                return _frame("block", {"n": n, "is": next((own for own in KINDS if KINDS[own] == kind), "text")})
            case MediaDelta(_, n, _, data):
                return _frame("more", {"n": n, "s": data})
            case ToolCallStart(_, call, id, name, block=int(block)):
                self._call_blocks[call] = block
                return _frame("block", {"n": block, "is": "call", "ref": id, "tool": name})
            case TextDelta(_, text) | ReasoningDelta(_, text) | RefusalDelta(_, text):
                return _frame("more", {"n": self._open_block, "s": text})
            case ToolCallDelta(_, call, arguments):
                return _frame("more", {"n": self._call_blocks[call], "s": arguments})
            case BlockEnd(_, n):
                return _frame("shut", {"n": n})
            case Finish(_, reason):
                self._why = NATIVE.get(reason, reason)
            case UsageReport(usage):
                self._usage = usage
            case End("completed"):
                bill = {"read": self._usage.input, "wrote": self._usage.output} if self._usage else None
                return _frame("over", {"why": self._why, "bill": bill})
            case _:
                pass
        return b""


def _frame(event: str, data: dict[str, object]) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (event.encode(), msgspec.json.encode(data))


# Requests.


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
    tools = [Tool(name=tool["tool"], schema=tool["takes"]) for tool in fields.get("tools", ())]
    known = {"model", "brief", "lines", "tools", "live", "most"}
    return Request(
        dialect=NAME,
        model=fields["model"],
        stream=fields.get("live", False),
        system=(TextPart(fields["brief"]),) if "brief" in fields else (),
        turns=tuple(turns),
        tools=tuple(tools),
        max_output=fields.get("most"),
        extras={name: value for name, value in fields.items() if name not in known},
    )


def write_fields(request: Request, losses: list[Loss]) -> dict[str, object]:
    lines: list[dict[str, object]] = []
    for turn in request.turns:
        who = "model" if turn.role == "assistant" else "user"
        for part in turn.parts:
            match part:
                case TextPart(text):
                    lines.append({"by": who, "say": text})
                case ToolCall(id, name, arguments):
                    lines.append({"by": "model", "call": {"ref": id, "tool": name, "with": arguments}})
                case ToolResult(call_id, parts):
                    sent_text = "".join(part.text for part in parts if isinstance(part, TextPart))
                    lines.append({"by": "tool", "ref": call_id, "say": sent_text})
                case ReasoningPart():
                    losses.append(Loss("reasoning-dropped"))
                case _:
                    losses.append(Loss("content-dropped", type(part).__name__))
    if request.choices > 1:
        message = "this provider gives one answer; ask without `n`"
        raise RequestError(Failure(code="invalid_request", message=message, param="n"))
    if request.stop:
        losses.append(Loss("stop-dropped", f"{len(request.stop)} of {len(request.stop)}"))
    losses.extend(
        Loss("sampling-dropped", name)
        for name in Sampling.__struct_fields__
        if getattr(request.sampling, name) is not None
    )
    losses.extend(Loss("field-dropped", name) for name in request.extras)
    fields: dict[str, object] = {"model": request.model, "lines": lines, "live": request.stream}
    if request.system:
        fields["brief"] = "\n".join(part.text for part in request.system if isinstance(part, TextPart))
    if request.tools:
        fields["tools"] = [{"tool": tool.name, "takes": tool.schema} for tool in request.tools]
    if request.max_output is not None:
        fields["most"] = request.max_output
    return fields


class TickerUpstream(UpstreamDialect):
    """Calls tickers."""

    path = "/ticker"
    reader = TickerReader

    def write_request(self, request: ClientRequest, destination: Destination) -> OutgoingRequest:
        if request.dialect == NAME:
            return OutgoingRequest(request.members.edited(destination.members))
        losses: list[Loss] = []
        fields = write_fields(request.read(), losses) | {"model": destination.model, **destination.overrides}
        return OutgoingRequest(msgspec.json.encode(fields), losses=tuple(losses))

    def limits(self, request: ClientRequest, destination: Destination) -> RequestLimits:  # noqa: ARG002
        return RequestLimits(request.read().max_output)

    def read_error(self, body: bytes) -> ProviderError:
        match msgspec.json.decode(body):
            case {"broken": {"says": str(words)}}:
                return ProviderError(words, body)
            case _:
                return ProviderError()


class TickerSurface(SurfaceDialect):
    """Offers a ticker."""

    name = "ticker"
    path = "/ticker"

    def read_request(self, body: bytes, headers: Mapping[str, str], path: str) -> ClientRequest:  # noqa: ARG002
        try:
            members = JsonMembers(body)
            fields = msgspec.json.decode(body)
        except ValueError as error:
            raise _refused(f"no JSON object: {error}") from None
        if not isinstance(fields.get("model"), str) or not isinstance(fields.get("lines"), list):
            raise _refused("`model` and `lines` are needed")
        return ClientRequest(
            dialect=NAME,
            model=fields["model"],
            stream=fields.get("live", False) is True,
            members=members,
            fields=fields,
            include_usage=True,
            read=lambda: read_fields(fields),
        )

    def writer(self, facts: AnswerFacts) -> TickerWriter:
        return TickerWriter(facts)

    def write_body(self, completion: Completion, facts: AnswerFacts, losses: list[Loss]) -> bytes:
        blocks: list[dict[str, object]] = []
        choice = completion.choices[0]
        for part in choice.parts:
            match part:
                case TextPart(text):
                    blocks.append({"is": "text", "s": text})
                case ReasoningPart(text):
                    blocks.append({"is": "thought", "s": text})
                case ToolCall(id, name, arguments):
                    blocks.append({"is": "call", "ref": id, "tool": name, "s": arguments})
                case MediaPart(data=data):
                    blocks.append({"is": "picture", "s": data})
                case _:
                    losses.append(Loss("server-activity-hidden", type(part).__name__))
        usage = completion.usage
        body: dict[str, object] = {
            "ref": completion.id or facts.call_id,
            "by": completion.model or facts.model,
            "blocks": blocks,
            "why": NATIVE.get(choice.finish_reason or "", choice.finish_reason),
            "bill": {"read": usage.input, "wrote": usage.output} if usage else None,
        }
        return msgspec.json.encode(body)

    def write_error(self, failure: Failure, request_id: str) -> bytes:
        return msgspec.json.encode({"broken": {"says": failure.message, "code": failure.code, "call": request_id}})


def _refused(message: str) -> RequestError:
    return RequestError(Failure(code="invalid_request", message=message, retryable=False))


class TickerDetector:
    """Tells a ticker by its bytes."""

    def in_frame(self, value: dict[str, object], event: str) -> int:
        return PROOF if EVENTS.get(event, {"blocks", "why"}) <= value.keys() else 0

    def in_exchange(self, path: str, content_type: str) -> int:  # noqa: ARG002
        return HINT if path.endswith("/ticker") else 0


# The fast path: where the text is, where its block is named, and what counts on.
PASS_THROUGH = PassThroughFormat(
    text_path=lambda _: ("s",),
    block_path=("n",),
    slots=(TemplateSlot("tick", ("tick",), "counter"),),
)

TICKER = Dialect(
    name=NAME,
    title="Ticker",
    upstream=TickerUpstream(),
    surface=TickerSurface(),
    detector=TickerDetector(),
    passthrough=PASS_THROUGH,
)
