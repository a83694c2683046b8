"""Writes the dialect of Cohere: hub events → the events of a stream of `/v2/chat`.

1. Every event has its type as the name of the event, and in the JSON.
2. The numbers of calls and of content count separately. Blocks that are not written (media, server tools) take none.
3. Reasoning is content of the type `thinking`. What Cohere sent as the plan before its tool calls is a plan again.
4. `message-end` has the finish reason and the usage, and `[DONE]` follows.
5. A stream that is not completed ends with a `message-end` whose reason is `ERROR`, which has the message.
"""

import msgspec

from penstock.core.dialects.answer_parts import SummaryParts, call_name, note_hidden
from penstock.core.dialects.answer_writer import TEXT, AnswerFacts, AnswerWriter, TextWriter, text_template
from penstock.core.dialects.cohere.answer_parts import (
    Json,
    call_id,
    citation_body,
    finish_reason,
    with_extras,
    write_usage,
)
from penstock.core.dialects.cohere.reader import FAILURES, LOGPROBS, PLAN, SENTINEL
from penstock.core.hub.events import (
    Annotation,
    BlockEnd,
    BlockStart,
    ChoiceStart,
    Event,
    Extra,
    Finish,
    ReasoningDelta,
    RefusalDelta,
    Start,
    TextDelta,
    ToolCallDelta,
    ToolCallStart,
)
from penstock.core.hub.text import without_line_ends
from penstock.core.json.getters import text_of

_DONE = f"data: {SENTINEL}\n\n".encode()


class CohereWriter(AnswerWriter):
    """Writes the events of one answer."""

    _started = False
    _contents = 0
    _called = 0
    _plans = False  # whether the open reasoning is a plan

    def __init__(self, facts: AnswerFacts) -> None:
        super().__init__(facts)
        self._id = facts.id or facts.call_id
        self._summary = SummaryParts()
        self._extras: Json = {}  # of the next event
        self._numbers: dict[int | None, int] = {}  # of the contents and calls that are written, by their blocks
        self._free_inputs: set[int | None] = set()  # blocks of calls whose input is free text: one JSON string
        self._ends: dict[int, str] = {}  # the event that ends each open block

    def write(self, event: Event) -> None:
        """Write an event."""
        match event:
            case TextDelta(_, text, block) | RefusalDelta(_, text, block):
                self._emit("content-delta", self._numbers[block], content={"text": text})
            case ReasoningDelta(_, text, _, part) if self._plans:
                self._emit("tool-plan-delta", None, tool_plan=self._summary.join(part, text))
            case ReasoningDelta(_, text, _, part, block):
                self._emit("content-delta", self._numbers[block], content={"thinking": self._summary.join(part, text)})
            case ToolCallDelta(_, _, arguments, block):
                if block in self._numbers:
                    self._put_arguments(block, arguments)
            case BlockStart():
                self._start_block(event)
            case BlockEnd(_, block):
                self._end_block(block)
            case ToolCallStart(server=False, block=int(block)):
                self._start_call(block, event)
            case Annotation():
                self._put_citation(event)
            case Start(id):
                self._id = id or self._id
            case ChoiceStart():
                self._start()
            case Extra(place, fields) if self._own:
                self._take_extra(place, fields)
            case _:
                self.write_rest(event)

    def text_writer(self, delta: TextDelta | ReasoningDelta) -> TextWriter | None:
        """Writes further texts of an open block."""
        index = self._numbers.get(delta.block)
        if index is None or self._extras:
            return None
        content = {"text": TEXT} if isinstance(delta, TextDelta) else {"thinking": TEXT}
        data = {"type": "content-delta", "index": index, "delta": {"message": {"content": content}}}
        return text_template(_frame("content-delta", msgspec.json.encode(data)))

    # The message.

    def _start(self) -> None:
        if self._started:
            return
        self._started = True
        message: Json = {"role": "assistant", "content": [], PLAN: "", "tool_calls": [], "citations": []}
        self._put({"id": self._id, "type": "message-start", "delta": {"message": message}})

    def complete(self, finish: Finish) -> None:
        """Write the finish reason and the usage."""
        self._start()
        delta: Json = {"finish_reason": finish_reason(finish, self.losses, own=self._own)}
        if self._usage is not None:
            delta["usage"] = write_usage(self._usage, own=self._own)
        self._put({"type": "message-end", "delta": delta})
        self.out.append(_DONE)

    def write_error(self, message: str, code: str, provider: Json) -> None:  # noqa: ARG002
        """A last event whose reason is an error."""
        self._start()
        for block in list(self._ends):
            self._end_block(block)
        native = text_of(provider.get("finish_reason"))
        delta = {"finish_reason": native if native in FAILURES else "ERROR", "error": message}
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
            index = self._numbers[start.block] = self._contents
            self._contents += 1
            self._ends[start.block] = "content-end"
            self._emit("content-start", index, content={"type": type, name: ""})

    def _start_call(self, block: int, call: ToolCallStart) -> None:
        self._start()
        number = self._numbers[block] = self._called
        self._called += 1
        self._ends[block] = "tool-call-end"
        function = {"name": call_name(call), "arguments": ""}
        id = call.id or call_id(self._facts, number)
        self._emit("tool-call-start", number, tool_calls={"id": id, "type": "function", "function": function})
        if call.kind == "custom":
            self._free_inputs.add(block)
            self._emit_arguments(block, '{"input":"')

    def _put_citation(self, citation: Annotation) -> None:
        body = citation_body(citation, own=self._own)
        if body is None:
            note_hidden(citation, self.losses)
            return
        index = self._numbers.get(citation.block, 0)
        self._emit("citation-start", index, citations=body)
        self._put({"type": "citation-end", "index": index})

    def _put_arguments(self, block: int | None, arguments: str) -> None:
        if block in self._free_inputs:
            arguments = msgspec.json.encode(arguments).decode()[1:-1]
        self._emit_arguments(block, arguments)

    def _emit_arguments(self, block: int | None, arguments: str) -> None:
        self._emit("tool-call-delta", self._numbers[block], tool_calls={"function": {"arguments": arguments}})

    def _end_block(self, block: int) -> None:
        if block not in self._ends:
            return
        if block in self._free_inputs:
            self._emit_arguments(block, '"}')
        self._put({"type": self._ends.pop(block), "index": self._numbers[block]})

    def _emit(self, type: str, index: int | None, **message: object) -> None:
        number = {} if index is None else {"index": index}
        self._put({"type": type, **number, "delta": {"message": message}})

    def _take_extra(self, place: str, fields: Json) -> None:
        if place == "event":
            self._put(fields)
            return
        items = fields.get(LOGPROBS)
        if isinstance(items, list) and len(items) == 1:
            fields = {LOGPROBS: items[0]}
        self._extras = self._extras | fields

    def _put(self, event: Json) -> None:
        if self._extras:
            event, self._extras = with_extras(event, self._extras), {}
        self.out.append(_frame(str(event["type"]), without_line_ends(msgspec.json.encode(event))))


def _frame(type: str, data: bytes) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (type.encode(), data)
