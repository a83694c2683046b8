"""Writes the dialect of Ollama: hub events → lines of `/api/chat`; a completion → the one line of an unstreamed body.

1. Every line has the model and the time of the answer, and a message with a piece of it: `content` or `thinking`.
2. A tool call is written when its arguments are complete, as one object.
3. The last line has `done: true`, the reason and the counts of tokens. Durations are written only if an Ollama server
   reported them.
4. A stream that is not completed ends with a line that has only `error`.
"""

from datetime import UTC, datetime

import msgspec

from penstock.core.dialects.answer_parts import (
    CallInputs,
    SummaryParts,
    call_name,
    first_choice,
    note_hidden,
)
from penstock.core.dialects.answer_writer import AnswerFacts, AnswerWriter
from penstock.core.dialects.ollama.reader import FINISH_REASONS
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
    BlockEnd,
    BlockStart,
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
from penstock.core.hub.failure import Failure
from penstock.core.hub.losses import Loss
from penstock.core.hub.usage import Usage
from penstock.core.json.getters import object_of

_Json = dict[str, object]


class OllamaWriter(AnswerWriter):
    """Writes the events of one answer."""

    def __init__(self, facts: AnswerFacts) -> None:
        super().__init__(facts)
        self._inputs = CallInputs(self.losses)
        self._envelope = _envelope(facts.model, facts.created)
        self._summary = SummaryParts()
        self._calls: dict[int | None, tuple[ToolCallStart, list[str]]] = {}  # by block: those that are incomplete
        self._written_calls = 0
        self._log_probabilities: object = None  # of the next text

    def heartbeat(self) -> bytes:
        """A line without content."""
        return _line(self._envelope | {"message": _message(), "done": False})

    def write(self, event: Event) -> None:
        """Write an event."""
        match event:
            case TextDelta(_, text) | RefusalDelta(_, text):
                probabilities, self._log_probabilities = self._log_probabilities, None
                self._put(_message(text), {"logprobs": probabilities} if probabilities else {})
            case ReasoningDelta(_, text, _, part):
                self._put(_message(thinking=self._summary.join(part, text)))
            case ToolCallStart(server=False):
                self._calls[event.block] = (event, [])
            case ToolCallDelta(_, _, arguments, block):
                if block in self._calls:
                    self._calls[block][1].append(arguments)
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
            case _:
                self.write_rest(event)

    def complete(self, finish: Finish) -> None:
        """Write the last line."""
        last = _ending(finish, self._usage, self.losses, own=self._own)
        self.out.append(_line(self._envelope | {"message": _message()} | last))

    def write_error(self, message: str, code: str, provider: _Json) -> None:  # noqa: ARG002
        """A line that has only the message."""
        self.out.append(_line({"error": message}))

    def _put(self, message: _Json, fields: _Json | None = None) -> None:
        self.out.append(_line(self._envelope | {"message": message, "done": False} | (fields or {})))

    def _end_call(self, block: int) -> None:
        if block in self._calls:
            start, pieces = self._calls.pop(block)
            call = _call(start, "".join(pieces), self._written_calls, self._inputs)
            self._put(_message(tool_calls=[call]))
            self._written_calls += 1


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
    last = _ending(choice.finish, completion.usage, losses, own=facts.same_dialect)
    probabilities = object_of(choice.extras.get("logprobs")).get("content")
    last |= {"logprobs": probabilities} if probabilities else {}
    return msgspec.json.encode(envelope | {"message": message} | last)


def write_error(failure: Failure, request_id: str) -> bytes:  # noqa: ARG001
    """The body of an error, which has only a message."""
    return msgspec.json.encode({"error": failure.message})


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
