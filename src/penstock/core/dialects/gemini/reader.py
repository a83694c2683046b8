"""Reads the Gemini dialect: the JSON of a `GenerateContentResponse` → hub events.

Every message of a stream has the same form as an unstreamed answer: candidates, whose parts are increments, and a
cumulative usage report. There are neither event names nor a marker of the end: a candidate is complete when it has a
finish reason. Without `alt=sse` the messages are the elements of one JSON array.

Rules for the whole file:

1. Parts follow each other. Consecutive texts are one block, and so are consecutive thoughts (`thought: true`).
2. A signature of a thought belongs to its block. A signature of any other part is a reasoning block of its own, without
   text, before that part; the writers of this dialect put it back onto the part. A part that has only a signature is
   such a block.
3. A function call is whole, or begins with `willContinue` and goes on in parts without a name (`arguments.py`). Such a
   call ends with a part that does not continue; or, if that is missing, with the next part or with the answer.
4. Calls have no ids, nearly always. The writers make them up.
5. Code that the provider executes, its results, and parts of unknown types are kept whole.
6. A blocked prompt has no candidates. It is an empty answer with the finish reason `content_filter`.
7. Some finish reasons say that there is no usable answer (`FAILURES`). They are faults.
"""

from collections.abc import Mapping
from typing import Literal

import msgspec
from msgspec import Struct

from penstock.core.dialects.frame_reader import FrameReader
from penstock.core.dialects.gemini.arguments import PartialArguments
from penstock.core.dialects.gemini.citations import TextBlocks, read_citations
from penstock.core.dialects.gemini.members import either_names, member
from penstock.core.dialects.gemini.usage import merge, read_usage
from penstock.core.dialects.unread_members import member_tree, unread
from penstock.core.fast.format import TextEvent
from penstock.core.hub.events import (
    BlockEnd,
    BlockStart,
    ChoiceStart,
    Extra,
    Finish,
    MediaDelta,
    ReasoningDelta,
    Seal,
    Start,
    TextDelta,
    ToolCallDelta,
    ToolCallStart,
    UsageReport,
)
from penstock.core.hub.finish_reasons import read_reason
from penstock.core.hub.seals import GOOGLE
from penstock.core.hub.sink import Sink
from penstock.core.hub.text import SurrogateJoiner
from penstock.core.json.getters import integer_of, object_of, objects_of, shown, text_of
from penstock.core.provider_errors.error_shapes import read_error

NAME = "gemini"
SEAL_SCHEME = GOOGLE
SIGNATURE_BLOCK = "thoughtSignature"
"""The type of a reasoning block that has only the signature of the part after it."""
FINISH_REASONS: Mapping[str, str] = {
    "STOP": "stop",
    "MAX_TOKENS": "length",
    "SAFETY": "content_filter",
    "RECITATION": "content_filter",
    "LANGUAGE": "content_filter",
    "BLOCKLIST": "content_filter",
    "PROHIBITED_CONTENT": "content_filter",
    "SPII": "content_filter",
    "MODEL_ARMOR": "content_filter",
    "IMAGE_SAFETY": "content_filter",
    "IMAGE_PROHIBITED_CONTENT": "content_filter",
    "IMAGE_RECITATION": "content_filter",
    "NO_IMAGE": "content_filter",
}
FAILURES = frozenset(
    (
        "OTHER",
        "IMAGE_OTHER",
        "MALFORMED_FUNCTION_CALL",
        "MALFORMED_RESPONSE",
        "UNEXPECTED_TOOL_CALL",
        "TOO_MANY_TOOL_CALLS",
        "MISSING_THOUGHT_SIGNATURE",
    )
)
"""Finish reasons of answers that failed."""
# The finish reasons by their numbers, as some encoders of protocol buffers write them.
_NUMBERED = (
    "FINISH_REASON_UNSPECIFIED", "STOP", "MAX_TOKENS", "SAFETY", "RECITATION", "OTHER", "LANGUAGE", "BLOCKLIST",
    "PROHIBITED_CONTENT", "SPII", "MALFORMED_FUNCTION_CALL", "IMAGE_SAFETY", "UNEXPECTED_TOOL_CALL",
    "TOO_MANY_TOOL_CALLS",
)  # fmt: skip
_UNSPECIFIED = ("FINISH_REASON_UNSPECIFIED", "BLOCK_REASON_UNSPECIFIED", "BLOCKED_REASON_UNSPECIFIED")
# Far above what a real answer has; they limit the memory of one stream.
_MAX_BLOCKS = 10_000
_MAX_CANDIDATES = 128
_ANSWER = ("candidates", "promptFeedback", "usageMetadata", "modelVersion", "responseId")
_KNOWN = either_names(*_ANSWER)
_OF_CANDIDATE = either_names("index", "content", "finishReason", "finishMessage")
_OF_PART = either_names("text", "thought", "thoughtSignature", "functionCall", "inlineData")
_OF_CALL = either_names("id", "name", "args", "willContinue", "partialArgs")
_OF_MEDIA = either_names("mimeType", "data")
# The members of a value of streamed arguments that hold a complete value.
_VALUES = ("numberValue", "boolValue", "structValue", "listValue")
_CONTENT = member_tree("parts role")
_PART = ("candidates", "*", "content", "parts", "*")
# The texts that the next message may continue.
_TEXTS = frozenset(((*_PART, "text"), (*_PART, "functionCall", "partialArgs", "*", "stringValue")))
_Json = dict[str, object]


class _StreamedCall(Struct):
    """A function call whose arguments arrive value by value."""

    number: int
    call: int
    arguments: PartialArguments


class _Candidate:
    """The state of one candidate."""

    def __init__(self, index: int) -> None:
        self.index = index
        self.kind: Literal["text", "reasoning"] | None = None  # of the open block
        self.block = 0  # its number
        self.blocks = 0
        self.calls = 0
        self.call_ids: set[str] = set()
        self.open_call: _StreamedCall | None = None
        self.finished = False
        self.texts = TextBlocks()
        self.cited: set[tuple[object, ...]] = set()


class GeminiReader(FrameReader):
    """Reads the messages of one stream, or one unstreamed answer."""

    title = "Gemini"
    noun = "message"
    marks_end = False
    finish_is_last = False
    texts = _TEXTS
    foreign_types = ("response.", "message_", "content_")
    foreign_members = ("choices", "serverContent")
    keeps_unknown = False
    envelope = ("id", "model")

    def __init__(self, sink: Sink) -> None:
        super().__init__(sink)
        self._joiner = SurrogateJoiner()
        self._candidates: dict[int, _Candidate] = {}
        self._started = ("", "")  # the id and the model that were reported
        self._extras: _Json = {}
        self._usage: _Json = {}

    def read(self, value: dict[str, object], event: str) -> None:
        """Read the JSON of one message."""
        if (error := _error_of(value, event)) is not None:
            self._report(error)
            self._read_usage(member(value, "usageMetadata"))
        elif not _KNOWN & value.keys():
            self.read_unknown(value, event)
        else:
            self._read_message(value)

    def flush(self) -> None:
        """Emit halves of surrogate pairs that are buffered: the rest of the texts will not be read."""
        for candidate in self._candidates.values():
            self._emit_half(candidate)

    def close(self) -> None:
        """End the calls of candidates that have finished: nothing more of them will come."""
        self.flush()
        for candidate in self._candidates.values():
            if candidate.finished:
                self._end_call(candidate, missing=True)

    # The fast path (`core/fast/__init__.py`).

    def follow_text(self, delta: TextEvent, last: bytes) -> None:
        """Continue after messages with this text that the fast path has read. Only the usage of the last one counts."""
        message = object_of(msgspec.json.decode(last))
        index = integer_of(objects_of(message["candidates"])[0].get("index"))
        candidate = self._candidates[index or 0]
        candidate.texts.add(candidate.block, delta.text)
        self._read_usage(member(message, "usageMetadata"))

    # Messages.

    def _read_message(self, value: _Json) -> None:
        self._read_start(value)
        feedback = object_of(member(value, "promptFeedback"))
        if feedback:
            self._read_feedback(feedback)
        candidates = member(value, "candidates")
        if isinstance(candidates, list):
            for position, candidate in enumerate(candidates):
                self._read_candidate(candidate, position)
        elif candidates is not None:
            self._sink.fault("bad-shape", f"candidates are not a list: {shown(candidates)}")
        self._read_usage(member(value, "usageMetadata"))

    def _read_start(self, value: _Json) -> None:
        id, model = text_of(member(value, "responseId")), text_of(member(value, "modelVersion"))
        if (id, model) != self._started:
            self._started = (id, model)
            self._sink.events.append(Start(id, model, None))
        extras = {name: each for name, each in value.items() if name not in _KNOWN and each is not None}
        if extras and extras != self._extras:
            self._extras = extras
            self._sink.events.append(Extra("chunk", extras))

    def _read_feedback(self, feedback: _Json) -> None:
        """Read what the provider says about the prompt. If it is blocked, there is no candidate (rule 6)."""
        reason = text_of(member(feedback, "blockReason"))
        if not reason or reason in _UNSPECIFIED:
            self._sink.events.append(Extra("chunk", {"promptFeedback": feedback}))
            return
        self._sink.repair("prompt-blocked", shown(reason))
        candidate = self._candidate(0)
        if candidate is not None:
            candidate.finished = True
            self._sink.events += [
                Extra("chunk", {"promptFeedback": feedback}),
                Finish(0, "content_filter", reason),
            ]

    def _read_usage(self, report: object) -> None:
        if isinstance(report, dict) and report:
            self._usage = merge(self._usage, report)
            usage = read_usage(self._usage, self._sink)
            if not usage.blank or any(type(count) is int for count in report.values()):
                self._sink.events.append(UsageReport(usage))
        elif report is not None and report != {}:
            self._sink.repair("usage-mistyped", shown(report))

    # Candidates.

    def _candidate(self, index: int) -> _Candidate | None:
        candidate = self._candidates.get(index)
        if candidate is None:
            if len(self._candidates) >= _MAX_CANDIDATES:
                self._sink.fault("event-too-complex", f"the answer has more than {_MAX_CANDIDATES} candidates")
                return None
            candidate = self._candidates[index] = _Candidate(index)
            self._sink.events.append(ChoiceStart(index, "assistant"))
        return candidate

    def _read_candidate(self, value: object, position: int) -> None:
        if not isinstance(value, dict):
            self._sink.fault("bad-shape", f"a candidate is not an object: {shown(value)}")
            return
        index = integer_of(value.get("index"))  # 0 is the default value, which the API leaves out
        if (index is None and (position or value.get("index") is not None)) or (index is not None and index < 0):
            self._sink.repair("choice-index-missing")
            index = position
        candidate = self._candidate(index or 0)
        if candidate is None:
            return
        content = value.get("content")
        parts = content.get("parts") if isinstance(content, dict) else None
        if content is not None and not isinstance(content, dict):
            self._sink.fault("bad-shape", f"the content is not an object: {shown(content)}")
        elif isinstance(parts, list):
            for part in parts:
                self._read_part(candidate, part)
            if others := unread(content or {}, _CONTENT):
                self._sink.events.append(Extra("choice", others, candidate.index))
        elif parts is not None:
            self._sink.fault("bad-shape", f"the parts are not a list: {shown(parts)}")
        self._read_metadata(candidate, value)
        self._read_finish(candidate, value)

    def _read_metadata(self, candidate: _Candidate, value: _Json) -> None:
        """Read the members of a candidate beside its content: citations, and what only this dialect has."""
        extras = {name: each for name, each in value.items() if name not in _OF_CANDIDATE and each is not None}
        if extras:
            read_citations(extras, candidate.index, candidate.texts, candidate.cited, self._sink)
            self._sink.events.append(Extra("choice", extras, candidate.index))

    def _read_finish(self, candidate: _Candidate, value: _Json) -> None:
        given, message = member(value, "finishReason"), text_of(member(value, "finishMessage"))
        if type(given) is int and 0 <= given < len(_NUMBERED):
            if given:
                self._sink.repair("finish-mapped", str(given))
            given = _NUMBERED[given]
        native = text_of(given)
        if not native or native in _UNSPECIFIED:
            return
        reason = read_reason(native, FINISH_REASONS, FAILURES, self._sink, member="finishReason", message=message)
        if reason is None:
            return
        if reason == "stop" and candidate.calls:
            reason = "tool_calls"
        candidate.finished = True
        self._emit_half(candidate)
        if message:
            self._sink.events.append(Extra("choice", {"finishMessage": message}, candidate.index))
        self._sink.events.append(Finish(candidate.index, reason, native))

    # Parts.

    def _read_part(self, candidate: _Candidate, part: object) -> None:
        if not isinstance(part, dict):
            self._sink.fault("bad-shape", f"a part is not an object: {shown(part)}")
            return
        if candidate.blocks >= _MAX_BLOCKS:
            self._sink.fault("event-too-complex", f"the answer has more than {_MAX_BLOCKS} blocks")
            return
        call, media = member(part, "functionCall"), member(part, "inlineData")
        signature = text_of(member(part, "thoughtSignature"))
        others = _others(part, _OF_PART)
        if part.get("thought") is True and part.get("text") is None and (others or call or media):
            others["thought"] = True
        if call is None:
            self._end_call(candidate, missing=True)
        whole = call is None and media is None and part.get("text") is None
        if others and not whole:
            self._sink.events.append(Extra("delta", others, candidate.index))
        if call is not None:
            self._read_signature(candidate, signature)
            self._read_call(candidate, call)
        elif media is not None:
            self._read_signature(candidate, signature)
            self._read_media(candidate, media)
        elif part.get("text") is not None:
            self._read_text(candidate, part["text"], signature, thought=part.get("thought") is True)
        elif others:
            self._read_signature(candidate, signature)
            self._read_whole(candidate, others)
        else:
            self._read_signature(candidate, signature)

    def _read_text(self, candidate: _Candidate, text: object, signature: str, *, thought: bool) -> None:
        if not isinstance(text, str):
            self._sink.fault("bad-shape", f"text is not text: {shown(text)}")
            return
        kind: Literal["text", "reasoning"] = "reasoning" if thought else "text"
        if signature and kind == "text":
            self._read_signature(candidate, signature)
        if text or (signature and thought):
            self._open(candidate, kind)
        self._emit(candidate, kind, self._joined((candidate.index, kind), text))
        if signature and thought:
            self._sink.events.append(Seal(candidate.index, candidate.block, SEAL_SCHEME, signature))

    def _emit(self, candidate: _Candidate, kind: Literal["text", "reasoning"], text: str) -> None:
        if text and kind == "reasoning":
            self._sink.events.append(ReasoningDelta(candidate.index, text))
        elif text:
            candidate.texts.add(candidate.block, text)
            self._sink.events.append(TextDelta(candidate.index, text))

    def _emit_half(self, candidate: _Candidate) -> None:
        """Emit half of a surrogate pair at the end of the open text."""
        if candidate.kind is not None:
            half = self._joined((candidate.index, candidate.kind), "", more=False)
            self._emit(candidate, candidate.kind, half)

    def _read_signature(self, candidate: _Candidate, signature: str) -> None:
        """Read the signature of a part that is no thought (rule 2)."""
        if not signature:
            return
        self._end_block(candidate)
        number = self._number(candidate)
        self._sink.events += [
            BlockStart(candidate.index, number, "reasoning", type=SIGNATURE_BLOCK),
            Seal(candidate.index, number, SEAL_SCHEME, signature),
            BlockEnd(candidate.index, number),
        ]

    def _read_media(self, candidate: _Candidate, media: object) -> None:
        given = object_of(media)
        mime, data = (text_of(member(given, name)) for name in ("mimeType", "data"))
        self._end_block(candidate)
        number = self._number(candidate)
        self._sink.events += [
            BlockStart(candidate.index, number, "media", type="inlineData", data=_others(given, _OF_MEDIA) or None),
            MediaDelta(candidate.index, number, mime, data),
            BlockEnd(candidate.index, number),
        ]

    def _read_whole(self, candidate: _Candidate, part: _Json) -> None:
        """Read a part that only this dialect has (rule 5)."""
        type = next(iter(part))
        self._end_block(candidate)
        number = self._number(candidate)
        result = type in ("codeExecutionResult", "code_execution_result", "toolResponse", "tool_response")
        id = object_of(part[type]).get("id")
        self._sink.events += [
            BlockStart(
                candidate.index,
                number,
                "result" if result else "opaque",
                id if isinstance(id, str) else None,
                type,
                part,
            ),
            BlockEnd(candidate.index, number),
        ]

    def _open(self, candidate: _Candidate, kind: Literal["text", "reasoning"]) -> None:
        if candidate.kind != kind:
            self._end_block(candidate)
            candidate.kind, candidate.block = kind, self._number(candidate)
            self._sink.events.append(BlockStart(candidate.index, candidate.block, kind))

    def _end_block(self, candidate: _Candidate) -> None:
        if candidate.kind is not None:
            self._emit_half(candidate)
            candidate.kind = None
            self._sink.events.append(BlockEnd(candidate.index, candidate.block))

    def _number(self, candidate: _Candidate) -> int:
        candidate.blocks += 1
        return candidate.blocks - 1

    # Function calls.

    def _read_call(self, candidate: _Candidate, given: object) -> None:
        if not isinstance(given, dict):
            self._sink.fault("bad-shape", f"a function call is not an object: {shown(given)}")
            return
        name, more = text_of(given.get("name")), member(given, "willContinue") is True
        pieces = objects_of(member(given, "partialArgs"))
        if name:
            self._end_call(candidate, missing=True)
            call = self._start_call(candidate, given, name)
        elif candidate.open_call is not None:
            call = candidate.open_call
        elif given:
            self._sink.fault("tool-call-unnamed", f"a function call has no name: {shown(given)}")
            return
        else:
            self._sink.repair("block-stop-repeated", "functionCall")
            return
        if others := _others(given, _OF_CALL):
            self._sink.events.append(Extra("tool", others, candidate.index, call.call))
        arguments = given.get("args")
        if pieces or more or not name:
            candidate.open_call = call
            self._add_arguments(candidate, call, arguments, pieces)
            if not more:
                self._end_call(candidate)
        elif arguments is None or isinstance(arguments, dict):
            written = msgspec.json.encode(arguments).decode() if arguments else "{}"
            self._sink.events += [
                ToolCallDelta(candidate.index, call.call, written),
                BlockEnd(candidate.index, call.number),
            ]
        else:
            self._sink.fault("bad-shape", f"the arguments of a call are not an object: {shown(arguments)}")

    def _start_call(self, candidate: _Candidate, given: _Json, name: str) -> _StreamedCall:
        self._end_block(candidate)
        call = _StreamedCall(self._number(candidate), candidate.calls, PartialArguments())
        candidate.calls += 1
        id = text_of(given.get("id")) or None
        if id is not None and id in candidate.call_ids:
            self._sink.repair("tool-id-duplicate", id)
            id = None
        candidate.call_ids.add(id or "")
        self._sink.events.append(ToolCallStart(candidate.index, call.call, id, name, block=call.number))
        return call

    def _add_arguments(self, candidate: _Candidate, call: _StreamedCall, whole: object, pieces: list[_Json]) -> None:
        """Add values to the arguments of a call; `whole` are arguments beside them, which a call has not."""
        try:
            if whole:
                raise ValueError("whole arguments beside streamed ones")
            written = "".join(self._value(candidate, call, piece) for piece in pieces)
        except ValueError as error:
            self._sink.fault("bad-shape", f"the streamed arguments of a call cannot be read: {error}")
            return
        if written:
            self._sink.events.append(ToolCallDelta(candidate.index, call.call, written))

    def _value(self, candidate: _Candidate, call: _StreamedCall, piece: _Json) -> str:
        """The JSON text of one value of streamed arguments."""
        path, more = text_of(member(piece, "jsonPath")), member(piece, "willContinue") is True
        text = member(piece, "stringValue")
        for name in _VALUES:
            if (value := member(piece, name)) is not None:
                return call.arguments.value(path, value)
        if isinstance(text, str) or (text is None and more):
            text = self._joined((candidate.index, "call"), text or "", more=more)
            return call.arguments.text(path, text, more=more)
        if "nullValue" in piece or "null_value" in piece:
            return call.arguments.value(path, None)
        raise ValueError(f"no value at {path[:80]}")

    def _end_call(self, candidate: _Candidate, *, missing: bool = False) -> None:
        """End a call whose arguments are streamed. `missing`: no part said that it ends."""
        call, candidate.open_call = candidate.open_call, None
        if call is None:
            return
        if missing:
            self._sink.repair("block-unclosed", "functionCall")
        if call.arguments.open_text:
            half = self._joined((candidate.index, "call"), "", more=False)
            self._sink.events += [ToolCallDelta(candidate.index, call.call, half)] if half else []
            self._sink.repair("tool-arguments-broken")
        else:
            self._sink.events.append(ToolCallDelta(candidate.index, call.call, call.arguments.close()))
        self._sink.events.append(BlockEnd(candidate.index, call.number))

    def _joined(self, key: tuple[int, str], text: str, *, more: bool = True) -> str:
        """The text with surrogate pairs joined, also pairs that are split between two parts."""
        return self._joiner.join(key, text, self._sink, more=more) if self._surrogates else text


def _error_of(value: _Json, event: str) -> tuple[str, _Json] | None:
    """The error in a message, if there is one. A message with candidates is an answer, whatever else it has."""
    return None if value.get("candidates") and not value.get("error") else read_error(value, event)


def _others(fields: _Json, known: frozenset[str]) -> _Json:
    """The members that have a value, and of which no event is made."""
    return {name: each for name, each in fields.items() if name not in known and each is not None}
