"""Writes the dialect of Cohere: hub events → the events of a stream of `/v2/chat`.

1. Every event has its type as the name of the event, and in the JSON.
2. The numbers of calls and of content count separately. Blocks that are not written (media, server tools) take none.
3. Reasoning is content of the type `thinking`. What Cohere sent as the plan before its tool calls is a plan again.
4. `message-end` has the finish reason and the usage, and `[DONE]` follows.
5. A stream that is not completed ends with a `message-end` whose reason is `ERROR`, which has the message.
"""

from collections.abc import Iterable

import msgspec

from penstock.core.dialects.answer_parts import ENDING_WORDS, SummaryParts, call_name, note_hidden, of_first_choice
from penstock.core.dialects.cohere.answer_parts import Json, citation_body, finish_reason, write_usage
from penstock.core.dialects.cohere.reader import FAILURES, PLAN, SENTINEL
from penstock.core.dialects.dialect import AnswerFacts, AnswerWriter
from penstock.core.hub.blocks import Blocks
from penstock.core.hub.events import (
    Annotation,
    BlockEnd,
    BlockStart,
    ChoiceStart,
    End,
    Event,
    Extra,
    Fault,
    Finish,
    MediaDelta,
    ReasoningDelta,
    RefusalDelta,
    Repair,
    Seal,
    Start,
    TextDelta,
    ToolCallDelta,
    ToolCallStart,
    UsageReport,
)
from penstock.core.hub.failure import Failure
from penstock.core.hub.losses import Loss
from penstock.core.hub.text import without_line_ends
from penstock.core.hub.usage import Usage
from penstock.core.json.getters import text_of

_DONE = f"data: {SENTINEL}\n\n".encode()


class CohereWriter(AnswerWriter):
    """Writes the events of one answer."""

    _started = False
    _failed = False
    _contents = 0
    _plans = False  # whether the open reasoning is a plan
    _index = 0  # of the open content
    _finish: Finish | None = None
    _usage: Usage | None = None

    def __init__(self, facts: AnswerFacts) -> None:
        self.losses: list[Loss] = []
        self._own = facts.same_dialect
        self._id = facts.id or facts.call_id
        self._blocks = Blocks(self.losses)
        self._summary = SummaryParts()
        self._calls: dict[int, int] = {}  # the number of each call that is written
        self._free_inputs: set[int] = set()  # the numbers of calls whose input is free text: one JSON string
        self._ends: dict[int, tuple[str, int]] = {}  # the event that ends each open block
        self._out: list[bytes] = []

    def write(self, events: Iterable[Event]) -> bytes:
        """The bytes of these events."""
        for event in self._blocks.order(of_first_choice(events, self.losses)):
            self._write(event)
        return self._taken()

    def _taken(self) -> bytes:
        out, self._out = self._out, []
        return b"".join(out)

    def heartbeat(self) -> bytes:
        """A comment."""
        return b": keep-alive\n\n"

    def fail(self, failure: Failure) -> bytes:
        """The error as the last event."""
        self._fail({"finish_reason": "ERROR", "error": failure.message})
        return self._taken()

    def _write(self, event: Event) -> None:
        match event:
            case TextDelta(_, text) | RefusalDelta(_, text):
                self._emit("content-delta", self._index, content={"text": text})
            case ReasoningDelta(_, text, _, part) if self._plans:
                self._emit("tool-plan-delta", None, tool_plan=self._summary.join(part, text))
            case ReasoningDelta(_, text, _, part):
                self._emit("content-delta", self._index, content={"thinking": self._summary.join(part, text)})
            case ToolCallDelta(_, call, arguments):
                if call in self._calls:
                    self._put_arguments(self._calls[call], arguments)
            case BlockStart():
                self._start_block(event)
            case BlockEnd(_, block):
                self._end_block(block)
            case ToolCallStart(server=False):
                self._start_call(event)
            case ToolCallStart() | Seal():
                note_hidden(event, self.losses)
            case Annotation():
                self._emit("citation-start", self._index, citations=citation_body(event, own=self._own))
                self._put({"type": "citation-end", "index": self._index})
            case Start(id):
                self._id = id or self._id
            case ChoiceStart():
                self._start()
            case Finish():
                self._finish = event
            case UsageReport(usage):
                self._usage = usage
            case Fault(provider=provider):
                native = text_of((provider or {}).get("finish_reason"))
                self._fail({"finish_reason": native if native in FAILURES else "ERROR", "error": event.message})
            case End("completed"):
                self._end()
            case End(ending):
                self._fail({"finish_reason": "ERROR", "error": ENDING_WORDS[ending]})
            case Extra() | MediaDelta() | Repair():
                pass  # no field; its block is a loss already; counted, not shown

    # The message.

    def _start(self) -> None:
        if self._started:
            return
        self._started = True
        message: Json = {"role": "assistant", "content": [], PLAN: "", "tool_calls": [], "citations": []}
        self._put({"id": self._id, "type": "message-start", "delta": {"message": message}})

    def _end(self) -> None:
        self._start()
        delta: Json = {"finish_reason": finish_reason(self._finish or Finish(0, "stop"), self.losses, own=self._own)}
        if self._usage is not None:
            delta["usage"] = write_usage(self._usage, own=self._own)
        self._put({"type": "message-end", "delta": delta})
        self._out.append(_DONE)

    def _fail(self, delta: Json) -> None:
        if self._failed:
            return
        self._failed = True
        self._start()
        for block in list(self._ends):
            self._end_block(block)
        self._put({"type": "message-end", "delta": delta})

    # Blocks.

    def _start_block(self, start: BlockStart) -> None:
        self._summary.start()
        self._plans = self._own and start.type == PLAN
        if start.kind not in ("text", "refusal", "reasoning"):
            note_hidden(start, self.losses)
        elif not self._plans:
            self._start()
            name, type = ("thinking", "thinking") if start.kind == "reasoning" else ("text", "text")
            self._index = self._contents
            self._contents += 1
            self._ends[start.block] = ("content-end", self._index)
            self._emit("content-start", self._index, content={"type": type, name: ""})

    def _start_call(self, call: ToolCallStart) -> None:
        self._start()
        number = self._calls[call.call] = len(self._calls)
        function = {"name": call_name(call), "arguments": ""}
        self._emit("tool-call-start", number, tool_calls={"id": call.id, "type": "function", "function": function})
        if call.block is not None:
            self._ends[call.block] = ("tool-call-end", number)
        if call.kind == "custom":
            self._free_inputs.add(number)
            self._emit_arguments(number, '{"input":"')

    def _put_arguments(self, number: int, arguments: str) -> None:
        if number in self._free_inputs:
            arguments = msgspec.json.encode(arguments).decode()[1:-1]
        self._emit_arguments(number, arguments)

    def _emit_arguments(self, number: int, arguments: str) -> None:
        self._emit("tool-call-delta", number, tool_calls={"function": {"arguments": arguments}})

    def _end_block(self, block: int) -> None:
        if block not in self._ends:
            return
        type, index = self._ends.pop(block)
        if type == "tool-call-end" and index in self._free_inputs:
            self._emit_arguments(index, '"}')
        self._put({"type": type, "index": index})

    def _emit(self, type: str, index: int | None, **message: object) -> None:
        number = {} if index is None else {"index": index}
        self._put({"type": type, **number, "delta": {"message": message}})

    def _put(self, event: Json) -> None:
        data = without_line_ends(msgspec.json.encode(event))
        self._out.append(b"event: %b\ndata: %b\n\n" % (str(event["type"]).encode(), data))
