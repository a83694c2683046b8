"""Reads one choice of a chat completion: its deltas, or its whole message.

Content that a provider repeats is emitted once. Deltas take precedence over a whole message that comes with or after
them. A message is buffered until the choice is finished, and only its fields that no delta has sent are emitted. If two
interpretations would give different text, the choice fails.
"""

from collections.abc import Iterator
from typing import Literal

from penstock.core.dialects.openai_chat.fast_chunks import PlainDelta
from penstock.core.dialects.openai_chat.tool_calls import ToolCalls
from penstock.core.hub.events import (
    LAST_TEXT,
    Annotation,
    ChoiceStart,
    Extra,
    Finish,
    ReasoningDelta,
    RefusalDelta,
    TextDelta,
)
from penstock.core.hub.finish_reasons import FAILURES
from penstock.core.hub.sink import Sink
from penstock.core.hub.text import SurrogateJoiner, whole
from penstock.core.json.getters import integer_of, object_of, shown, text_of
from penstock.core.provider_errors.error_shapes import error_of

# Finish reasons of other APIs, in lower case, and the reason of this dialect (`finish-mapped` in
# `core/hub/repairs.py`).
FINISH_REASONS: dict[str, str] = {
    "stop": "stop",
    "length": "length",
    "tool_calls": "tool_calls",
    "content_filter": "content_filter",
    "function_call": "function_call",
    "eos": "stop",
    "eos_token": "stop",
    "end_turn": "stop",
    "stop_sequence": "stop",
    "complete": "stop",
    "completed": "stop",
    "max_tokens": "length",
    "max_output_tokens": "length",
    "max_length": "length",
    "model_length": "length",
    "tool_use": "tool_calls",
    "tool_call": "tool_calls",
    "content_filtered": "content_filter",
    "safety": "content_filter",
    "recitation": "content_filter",
    "blocklist": "content_filter",
    "prohibited_content": "content_filter",
    "sensitive": "content_filter",
}
# Finish reasons that mean "not finished yet", from providers that write null as text.
NOT_FINISHED = frozenset(("null", "none"))
_MAX_JOINED_CALLS = 100
# The fields in which providers send reasoning, in the order of preference.
REASONING_FIELDS = ("reasoning_content", "reasoning", "thinking")
TEXT_FIELDS = ("content", "refusal", *REASONING_FIELDS)


class ChoiceReader:
    """Reads one choice, from its first chunk to its last."""

    started = False
    whole_message = False
    """Whether content of a whole message was emitted for this choice."""
    _message: dict[str, object] | None = None
    _calls: ToolCalls | None = None
    _finished: tuple[int, int] | None = None

    def __init__(self, index: int, sink: Sink) -> None:
        self.index = index
        self.delta_fields: set[str] = set()
        """The kinds of content that deltas have sent, such as `content`, `reasoning`, `tool_calls`."""
        self._sink = sink
        self._joiner = SurrogateJoiner()

    @property
    def expects_delta(self) -> bool:
        """Whether a plain delta can be emitted as it is: the choice has started and no whole message is buffered."""
        return self.started and self._message is None and not self.whole_message

    @property
    def calls_tools(self) -> bool:
        """Whether a tool was called."""
        return self._calls is not None

    @property
    def expects_end(self) -> bool:
        """For a choice that expects a delta: whether only its finish remains to be emitted."""
        return self._calls is None and self._finished is None

    def read_plain(self, delta: PlainDelta) -> bool:
        """Read a delta with exactly one kind of content. For any other, do nothing and return False."""
        calls, content = delta.tool_calls, delta.content
        reasoning, native = delta.reasoning_content, "reasoning_content"
        if not reasoning:
            reasoning, native = delta.reasoning, "reasoning"
        elif delta.reasoning:
            return False
        if content and not reasoning and not calls:
            self.delta_fields.add("content")
            self._sink.events.append(TextDelta(self.index, content))
            return True
        if reasoning and not content and not calls:
            self.delta_fields.add("reasoning")
            self._sink.events.append(ReasoningDelta(self.index, reasoning, native))
            return True
        if not calls or len(calls) > 1 or content or reasoning or self._calls is None:
            return False
        return self._calls.read_more(calls[0].index, calls[0].function.arguments, self._sink)

    def read(self, choice: dict[str, object], delta: object, finish: object, *, surrogates: bool) -> None:
        """Read the choice of one chunk. Its delta and its finish reason are removed from it and passed separately."""
        error = choice.pop("error", None)
        if error:
            self.fail("provider-error", *error_of(error, choice))
        logprobs = choice.pop("logprobs", None)
        if isinstance(logprobs, dict):
            choice["logprobs"] = logprobs
        elif logprobs is not None:
            self._sink.repair("logprobs-mistyped", shown(logprobs))
        message = choice.pop("message", None)
        if type(delta) is dict:
            has_content = any(value for name, value in delta.items() if name != "role")
        else:
            delta, has_content = self._substitute(choice, delta, message), False
        for fields in (delta, choice):
            if not delta.get("content") and isinstance(fields.get("text"), str) and fields["text"]:
                self._sink.repair("text-without-delta")
                delta["content"] = fields.pop("text")
                has_content = True
        if has_content and self.whole_message:
            self.fail("bad-shape", "a delta after the whole message")
            return
        if has_content and (message or self._message):
            self._sink.repair("message-beside-delta")
            self._message = None
        elif isinstance(message, dict):
            self._message = message
        if finish and self._message is not None:
            delta |= self._take_message()
        self._read_delta(choice, delta, finish, surrogates=surrogates)

    def emit_text(self, field: str, text: str) -> None:
        """Emit the text of a field of a delta."""
        if field == "content":
            self._sink.events.append(TextDelta(self.index, text))
        elif field == "refusal":
            self._sink.events.append(RefusalDelta(self.index, text))
        else:
            self._sink.events.append(ReasoningDelta(self.index, text, field))

    def emit_pending(self) -> None:
        """Emit the tool calls that are buffered: nothing more of them will come, or be read."""
        if self._calls is not None:
            self._calls.emit_pending(self._sink)

    def close(self) -> None:
        """Emit everything that is buffered: no more chunks will come."""
        if self._message is not None:
            self._read_delta({}, self._take_message(), None, surrogates=False)
        self._emit_halves()
        if self._calls is not None:
            self._calls.close(self._sink, finished=self._finished)

    def fail(self, code: str, message: str, provider: dict[str, object] | None = None) -> None:
        """Emit the buffered tool calls and a fault: the stream has failed here."""
        self.emit_pending()
        self._sink.fault(code, message, provider)

    def _substitute(self, choice: dict[str, object], delta: object, message: object) -> dict[str, object]:
        """An empty delta for a choice that has none; emits the defect."""
        if delta is not None and delta != "":
            self.fail("bad-shape", f"a delta is not an object: {shown(delta)}")
        if isinstance(message, dict):
            before = self._message.get("content") if self._message is not None else None
            text = message.get("content")
            if isinstance(before, str) and not (isinstance(text, str) and text.startswith(before)):
                self.fail("bad-shape", "two whole messages that contradict each other")
        elif not isinstance(choice.get("text"), str):
            self._sink.repair("delta-missing")
        return {}

    def _take_message(self) -> dict[str, object]:
        """The fields of the buffered message whose kind of content no delta has sent."""
        message, self._message = self._message or {}, None
        fields_left = {name: value for name, value in message.items() if value and _kind(name) not in self.delta_fields}
        if self.started:
            fields_left.pop("role", None)
        if "text" in fields_left:
            fields_left.setdefault("content", fields_left.pop("text"))
        if self.delta_fields & set(map(_kind, message)):
            self._sink.repair("message-beside-delta")
        calls = fields_left.get("tool_calls")
        if isinstance(calls, list):
            fields_left["tool_calls"] = [
                {"index": number} | call if isinstance(call, dict) else call for number, call in enumerate(calls)
            ]
        self.whole_message = self.whole_message or bool(fields_left)
        return fields_left

    def _read_delta(
        self, choice: dict[str, object], delta: dict[str, object], finish: object, *, surrogates: bool
    ) -> None:
        native = choice.pop("native_finish_reason", None)
        role = delta.pop("role", None)
        if isinstance(role, str) and role:
            self.start(role)
        elif not self.started and (finish or any(value is not None for value in delta.values())):
            self.start("")
        content = delta.pop("content", None)
        if not isinstance(content, str):
            for fields in (choice, delta):
                if "text" in fields:  # `content` is not text: keep this as an extra, under another name
                    fields["other_text"] = fields.pop("text")
        refusal = delta.pop("refusal", None)
        tool_calls = delta.pop("tool_calls", None)
        function_call = delta.pop("function_call", None)
        if tool_calls and function_call:
            # The legacy form repeats the calls of the current form.
            delta["other_function_call"], function_call = function_call, None
        cited = self._take_citations(delta) if delta.get("annotations") else []
        reasoning, reasoning_field = self._take_reasoning(delta) if delta else (None, "")
        if choice:
            self._add_extras(choice, "choice")
        if delta:
            self._add_extras(delta, "delta")
        if reasoning:
            self.delta_fields.add("reasoning")
            self._read_text(reasoning_field, reasoning, surrogates=surrogates)
        if content is not None and content not in ("", []):
            self.delta_fields.add("content")
            for field, text in self._parts(content):
                self._read_text(field, text, surrogates=surrogates)
        self._sink.events += cited
        if refusal:
            self.delta_fields.add("refusal")
            self._read_text("refusal", refusal, surrogates=surrogates)
        if tool_calls or function_call:
            self.delta_fields.add("tool_calls")
            self._read_tool_calls(tool_calls, function_call, surrogates=surrogates)
        if finish:
            self._read_finish(finish, native)

    def start(self, role: str) -> None:
        """Emit the start of the choice."""
        self.started = True
        self._sink.events.append(ChoiceStart(self.index, role))

    def _take_reasoning(self, delta: dict[str, object]) -> tuple[object, str]:
        """The text of the reasoning, and the field that it came in.

        A second field with the same text stays in the delta and becomes an extra, because clients read either.
        """
        for name in REASONING_FIELDS:
            text = delta.get(name)
            if isinstance(text, str) and text:
                del delta[name]
                others = (delta.get(other) for other in REASONING_FIELDS)
                if any(isinstance(other, str) and other and other != text for other in others):
                    self._sink.repair("reasoning-differs")
                return text, name
        details = delta.get("reasoning_details")
        if isinstance(details, list):
            texts = [item.get("text") or item.get("summary") for item in details if isinstance(item, dict)]
            return "".join(text for text in texts if isinstance(text, str)), "reasoning_details"
        return None, ""

    def _take_citations(self, delta: dict[str, object]) -> list[Annotation]:
        """The citations of web pages in a delta. Annotations of other types stay in it, and become an extra."""
        given = delta.pop("annotations")
        annotations = given if isinstance(given, list) else [given]
        cited = [_citation(self.index, each) for each in annotations]
        others = [each for each, citation in zip(annotations, cited, strict=True) if citation is None]
        if others:
            delta["annotations"] = others
        return [citation for citation in cited if citation is not None]

    def _add_extras(self, fields: dict[str, object], place: Literal["choice", "delta"]) -> None:
        kept = {key: value for key, value in fields.items() if value is not None and value != ""}
        if kept:
            self._sink.events.append(Extra(place, kept, self.index))

    def _read_text(self, field: str, text: object, *, surrogates: bool) -> None:
        """Emit text of any kind, if the value is text."""
        if text is None:
            return
        if not isinstance(text, str):
            self.fail("bad-shape", f"{field} is not text: {shown(text)}")
            return
        if surrogates:
            text = self._joiner.join((0, field), text, self._sink)
        if text:
            self.emit_text(field, text)

    def _parts(self, content: object) -> Iterator[tuple[str, object]]:
        """The pieces of text in a content, each with the field that would normally hold it."""
        if not isinstance(content, dict | list):
            yield "content", content
            return
        self._sink.repair("content-parts")
        for part in content if isinstance(content, list) else [content]:
            match part:
                case str():
                    yield "content", part
                case {"type": "text" | "output_text", "text": text}:
                    yield "content", text
                case {"type": "thinking", "thinking": [*thoughts]}:
                    texts = [thought.get("text") for thought in thoughts if isinstance(thought, dict)]
                    yield "reasoning_content", "".join(text for text in texts if isinstance(text, str))
                case {"type": "thinking", "thinking": text} | {"type": "reasoning", "text": text}:
                    yield "reasoning_content", text
                case {"type": "reasoning", "reasoning": text}:
                    yield "reasoning_content", text
                case {"type": "refusal", "refusal": text}:
                    yield "refusal", text
                case {"text": str(text)}:
                    yield "content", text
                case _:
                    self._add_extras({"content_parts": [part]}, "delta")

    def _read_tool_calls(self, pieces: object, function_call: object, *, surrogates: bool) -> None:
        if self._calls is None:
            self._calls = ToolCalls(self.index)
        if isinstance(pieces, dict):
            pieces = [pieces]
        if pieces and not isinstance(pieces, list):
            self.fail("bad-shape", f"tool_calls is no list: {shown(pieces)}")
            return
        if isinstance(pieces, list):
            for piece in pieces:
                if isinstance(piece, dict):
                    if surrogates:
                        self._join_arguments(piece)
                    self._calls.read(piece, self._sink)
                elif piece is not None:
                    self.fail("bad-shape", f"a tool call is not an object: {shown(piece)}")
        if isinstance(function_call, dict):
            self._calls.read_legacy(function_call, self._sink)
        elif function_call:
            self.fail("bad-shape", f"function_call is not an object: {shown(function_call)}")

    def _join_arguments(self, piece: dict[str, object]) -> None:
        function = piece.get("function")
        arguments = function.get("arguments") if isinstance(function, dict) else None
        if isinstance(function, dict) and isinstance(arguments, str):
            number = integer_of(piece.get("index", -1)) or 0
            if -1 <= number < _MAX_JOINED_CALLS:
                function["arguments"] = self._joiner.join((number, "arguments"), arguments, self._sink)
            else:
                function["arguments"] = whole(arguments, self._sink)

    def _read_finish(self, finish: object, native: object) -> None:
        if not isinstance(finish, str):
            self.fail("bad-shape", f"finish_reason is not text: {shown(finish)}")
            return
        word = finish.strip().lower().removeprefix("finish_reason_")
        if word in FAILURES:
            self.fail("provider-error", f"finish_reason {finish}", {"finish_reason": word})
            return
        if word in NOT_FINISHED:
            self._sink.repair("finish-mapped", finish)
            return
        reason = FINISH_REASONS.get(word)
        if reason is None:
            self._sink.repair("finish-unknown", finish)
            reason = finish
        elif reason != finish:
            self._sink.repair("finish-mapped", finish)
            native = native or finish
        self._emit_halves()
        self.emit_pending()
        self._finished = (self._sink.offset, self._sink.line)
        self._sink.events.append(Finish(self.index, reason, native if isinstance(native, str) else None))

    def _emit_halves(self) -> None:
        """Emit a replacement character for each half of a surrogate pair whose other half never came."""
        for key in list(self._joiner.halves):
            text = self._joiner.join(key, "", self._sink, more=False)
            index, field = key
            if field in TEXT_FIELDS:
                self.emit_text(field, text)
            elif self._calls is not None:
                call = {"index": index} if index >= 0 else {}
                self._calls.read(call | {"function": {"arguments": text}}, self._sink)


def _citation(choice: int, annotation: object) -> Annotation | None:
    """A citation of a web page; None for any other annotation."""
    match annotation:
        case {"type": "url_citation", "url_citation": {"url": str(url)} as source}:
            title, quote = (text_of(source.get(name)) for name in ("title", "content"))
            start, end = (integer_of(source.get(name)) for name in ("start_index", "end_index"))
            return Annotation(choice, LAST_TEXT, url, title, quote, start, end, object_of(annotation))
        case _:
            return None


def _kind(field: str) -> str:
    """The kind of content of a field: all fields for reasoning are one kind, and so are those for text."""
    if field in REASONING_FIELDS or field == "reasoning_details":
        return "reasoning"
    return "content" if field == "text" else field
