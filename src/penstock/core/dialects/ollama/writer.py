"""Writes the dialect of Ollama: hub events → lines of `/api/chat`; a completion → the one line of an unstreamed body.

1. Every line has the model and the time of the answer, and a message with a piece of it: `content` or `thinking`.
2. A tool call is written when its arguments are complete, as one object.
3. The last line has `done: true`, the reason and the counts of tokens. Durations are written only if an Ollama server
   reported them.
4. A stream that is not completed ends with a line that has only `error`.
"""

from collections.abc import Iterable
from datetime import UTC, datetime

import msgspec

from penstock.core.dialects.answer_parts import (
    ENDING_WORDS,
    CallInputs,
    SummaryParts,
    call_name,
    first_choice,
    note_hidden,
    of_first_choice,
)
from penstock.core.dialects.dialect import AnswerFacts, AnswerWriter
from penstock.core.dialects.ollama.reader import FINISH_REASONS
from penstock.core.hub.blocks import Blocks
from penstock.core.hub.completion import Completion
from penstock.core.hub.content import (
    MediaPart,
    OpaquePart,
    ReasoningPart,
    RefusalPart,
    TextPart,
    ToolCall,
    ToolChange,
    ToolResult,
)
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
from penstock.core.hub.usage import Usage
from penstock.core.json.getters import object_of

_Json = dict[str, object]


class OllamaWriter(AnswerWriter):
    """Writes the events of one answer."""

    _failed = False
    _finish: Finish | None = None
    _usage: Usage | None = None

    def __init__(self, facts: AnswerFacts) -> None:
        self.losses: list[Loss] = []
        self._inputs = CallInputs(self.losses)
        self._own = facts.same_dialect
        self._envelope = _envelope(facts.model, facts.created)
        self._blocks = Blocks(self.losses)
        self._summary = SummaryParts()
        self._calls: dict[int, tuple[ToolCallStart, list[str]]] = {}  # whose arguments are incomplete
        self._written_calls = 0
        self._log_probabilities: object = None  # of the next text
        self._out: list[bytes] = []

    def write(self, events: Iterable[Event]) -> bytes:
        """The bytes of these events."""
        for event in self._blocks.order(of_first_choice(events, self.losses)):
            self._write(event)
        out, self._out = self._out, []
        return b"".join(out)

    def heartbeat(self) -> bytes:
        """A line without content."""
        return _line(self._envelope | {"message": _message(), "done": False})

    def fail(self, failure: Failure) -> bytes:
        """The error as the last line."""
        return _line({"error": failure.message})

    def _write(self, event: Event) -> None:
        match event:
            case TextDelta(_, text) | RefusalDelta(_, text):
                probabilities, self._log_probabilities = self._log_probabilities, None
                self._put(_message(text), {"logprobs": probabilities} if probabilities else {})
            case ReasoningDelta(_, text, _, part):
                self._put(_message(thinking=self._summary.join(part, text)))
            case ToolCallStart(_, call, server=False):
                self._calls[call] = (event, [])
            case ToolCallStart() | Annotation() | Seal():
                note_hidden(event, self.losses)
            case ToolCallDelta(_, call, arguments):
                if call in self._calls:
                    self._calls[call][1].append(arguments)
            case BlockStart():
                self._summary.start()
                note_hidden(event, self.losses)
            case BlockEnd(_, block):
                self._end_call(block)
            case Extra("choice", fields):
                self._log_probabilities = object_of(fields.get("logprobs")).get("content")
            case Start(_, model, created):
                if model:
                    self._envelope["model"] = model
                if created is not None:
                    self._envelope["created_at"] = _time(created)
            case Finish():
                self._finish = event
            case UsageReport(usage):
                self._usage = usage
            case Fault():
                self._fail(event.message)
            case End("completed"):
                last = _ending(self._finish or Finish(0, "stop"), self._usage, self.losses, own=self._own)
                self._out.append(_line(self._envelope | {"message": _message()} | last))
            case End(ending):
                self._fail(ENDING_WORDS[ending])
            case ChoiceStart() | Extra() | MediaDelta() | Repair():
                pass  # the message itself says it; no field; its block is a loss already; counted, not shown

    def _put(self, message: _Json, fields: _Json | None = None) -> None:
        self._out.append(_line(self._envelope | {"message": message, "done": False} | (fields or {})))

    def _end_call(self, block: int) -> None:
        number = next((number for number, (start, _) in self._calls.items() if start.block == block), None)
        if number is not None:
            start, pieces = self._calls.pop(number)
            call = _call(start, "".join(pieces), self._written_calls, self._inputs)
            self._put(_message(tool_calls=[call]))
            self._written_calls += 1

    def _fail(self, message: str) -> None:
        if not self._failed:
            self._failed = True
            self._out.append(_line({"error": message}))


def write_body(completion: Completion, facts: AnswerFacts, losses: list[Loss]) -> bytes:
    """The body of an unstreamed answer."""
    choice = first_choice(completion, losses)
    calls: list[_Json] = []
    inputs = CallInputs(losses)
    for part in choice.parts:
        match part:
            case ToolCall(server=False):
                calls.append(_call(part, part.arguments, len(calls), inputs))
            case ToolCall() | MediaPart() | OpaquePart() | ToolResult() | ToolChange():
                note_hidden(part, losses)
            case ReasoningPart(seals=seals):
                losses.extend(Loss("seal-dropped") for _ in seals)
            case TextPart(citations=citations):
                losses.extend(Loss("citation-dropped", citation.title) for citation in citations)
            case RefusalPart():
                pass  # a part of the text
    created = facts.created if completion.created is None else completion.created
    envelope = _envelope(completion.model or facts.model, created)
    message = _message(choice.text + choice.refusal)
    message |= {"thinking": choice.reasoning} if choice.reasoning else {}
    message |= {"tool_calls": calls} if calls else {}
    finish = Finish(0, choice.finish_reason or "stop", choice.native_finish_reason)
    last = _ending(finish, completion.usage, losses, own=facts.same_dialect)
    probabilities = object_of(choice.extras.get("logprobs")).get("content")
    last |= {"logprobs": probabilities} if probabilities else {}
    return msgspec.json.encode(envelope | {"message": message} | last)


def _line(value: _Json) -> bytes:
    return msgspec.json.encode(value) + b"\n"


def _envelope(model: str, created: int) -> _Json:
    return {"model": model, "created_at": _time(created)}


def _time(seconds: int) -> str:
    """A time in RFC 3339; the beginning of 1970 if it is none."""
    try:
        return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (ValueError, OverflowError, OSError):
        return "1970-01-01T00:00:00Z"


def _message(content: str = "", **fields: object) -> _Json:
    return {"role": "assistant", "content": content, **fields}


def _call(call: ToolCallStart | ToolCall, arguments: str, index: int, inputs: CallInputs) -> _Json:
    function = {"index": index, "name": call_name(call), "arguments": inputs.read(call, arguments)}
    return ({"id": call.id} if call.id else {}) | {"function": function}


def _ending(finish: Finish, usage: Usage | None, losses: list[Loss], *, own: bool) -> _Json:
    """The members of the last line."""
    reason = "length" if finish.reason == "length" else "stop"
    if own and finish.native and (finish.native in FINISH_REASONS or finish.native == finish.reason):
        reason = finish.native
    elif finish.reason not in ("stop", "length", "tool_calls", "function_call"):
        losses.append(Loss("field-dropped", f"finish reason {finish.reason}"))
    if usage is None:
        return {"done": True, "done_reason": reason}
    if own and usage.raw:
        return {"done": True, "done_reason": reason, **usage.raw}
    wholes = usage.wholes()
    counts = {"prompt_eval_count": wholes["input"], "eval_count": wholes["output"]}
    return {"done": True, "done_reason": reason} | {name: count for name, count in counts.items() if count is not None}
