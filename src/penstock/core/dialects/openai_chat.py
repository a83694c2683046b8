"""The OpenAI chat-completions dialect, read: the JSON of a chunk → events.

The reader says what it saw, chunk by chunk; `core/grammar.py` puts that into order. Within one chunk events come in
this order: `Start`, extras of the chunk, then for each choice `ChoiceStart`, its extras, reasoning, text, refusal, tool
calls, `Finish`; and the usage last. Rules for the whole file:

1. Every known field is popped; what remains in the object is an `Extra`. Nulls below the chunk say nothing and are
   dropped.
2. Extras of the chunk are told when they change (most are the same in every chunk); those of choices, deltas and tool
   calls are told always, because they add up.
3. Behaviour comes from the shape of the JSON, never from a provider's name.
"""

from msgspec import UNSET

from penstock.core.dialects.getters import integer_of, shown, text_of
from penstock.core.dialects.openai_chat_plain import PLAIN_CHUNK
from penstock.core.dialects.openai_errors import error_of, read_error
from penstock.core.dialects.openai_usage import read_usage
from penstock.core.dialects.tool_calls import ToolCalls
from penstock.core.events import ChoiceStart, Extra, Finish, ReasoningDelta, RefusalDelta, Start, TextDelta, UsageReport
from penstock.core.sink import Sink
from penstock.core.text import SurrogateJoiner, whole_json

# The words of other APIs for the reasons that this dialect knows. `core/repairs.py`: finish-mapped.
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
    "STOP": "stop",
    "complete": "stop",
    "COMPLETE": "stop",
    "completed": "stop",
    "max_tokens": "length",
    "MAX_TOKENS": "length",
    "max_output_tokens": "length",
    "model_length": "length",
    "tool_use": "tool_calls",
    "tool_call": "tool_calls",
    "content_filtered": "content_filter",
    "SAFETY": "content_filter",
    "RECITATION": "content_filter",
    "BLOCKLIST": "content_filter",
    "PROHIBITED_CONTENT": "content_filter",
    "sensitive": "content_filter",
}
# Finish reasons by which a provider says that it failed.
FAILURES = frozenset(("error", "network_error", "insufficient_system_resource", "abort"))
# Where providers put the text of the model's thinking, in the order of preference.
REASONING_FIELDS = ("reasoning_content", "reasoning", "thinking")
TEXT_FIELDS = ("content", "refusal", *REASONING_FIELDS)
# What gives another API's events away: a key, and how its value begins.
FOREIGN_EVENTS: tuple[tuple[str, tuple[str, ...], str], ...] = (
    ("type", ("message_start", "content_block_", "message_delta", "message_stop"), "Anthropic Messages"),
    ("type", ("response.",), "OpenAI Responses"),
    ("type", ("message-start", "content-", "message-end", "tool-call-", "tool-plan-"), "Cohere"),
    ("candidates", (), "Gemini generateContent"),
    ("usageMetadata", (), "Gemini generateContent"),
    ("created_at", (), "Ollama"),
)
# Far above what any provider offers; they bound what one stream may hold in memory.
MAX_CHOICES = 1000
MAX_EXTRAS = 1000
_DONE = "[DONE]"


class OpenAIChatReader:
    """The frames' JSON of one stream → what it says."""

    def __init__(self, sink: Sink) -> None:
        self.done = False
        self._sink = sink
        self._joiner = SurrogateJoiner()
        self._surrogates = False
        self._envelope: tuple[object, ...] = ()
        self._extras: dict[str, object] = {}
        self._started: set[int] = set()
        self._spoken: set[int] = set()
        self._tool_calls: dict[int, ToolCalls] = {}
        self._finished: set[int] = set()

    def read(self, value: object, *, event: str = "", surrogates: bool = False) -> None:
        """Take in the JSON of one frame, and the name that the transport gave it."""
        if surrogates:
            value = self._without_halves(value)
        if type(value) is not dict:
            self._read_other(value, event)
            return
        chunk: dict[str, object] = value
        if self.done:
            self._sink.repair("data-after-done")
        special = "choices" not in chunk or "error" in chunk or "base_resp" in chunk or event == "error"
        if special and self._read_special(chunk, event):
            return
        envelope = (chunk.pop("id", None), chunk.pop("model", None), chunk.pop("created", None))
        kind = chunk.pop("object", None)
        choices = chunk.pop("choices", None)
        usage = chunk.pop("usage", None)
        if envelope != self._envelope:
            self._read_envelope(envelope)
        if chunk != self._extras:
            self._read_extras(chunk)
        if kind != "chat.completion.chunk" and not (kind == "chat.completion" and _has_message(choices)):
            self._sink.repair("object-missing", shown(kind))
        if type(choices) is not list:
            choices = self._listed(choices, usage)
        for place, choice in enumerate(choices):
            if type(choice) is dict:
                self._read_choice(choice, place)
            elif choice is not None:
                self._fail("bad-shape", f"a choice is not an object: {shown(choice)}")
        if usage is not None:
            self._read_usage(usage)

    @property
    def expects_text(self) -> bool:
        """Whether the stream is in a state in which `read_plain` may be tried."""
        return not self.done and not self._surrogates and bool(self._started)

    def read_plain(self, data: bytes) -> bool:
        """Take in the data of one frame if it is nothing but text; otherwise do nothing and return False."""
        try:
            chunk = PLAIN_CHUNK.decode(data)
        except ValueError:
            return False
        extras = self._extras
        if (
            len(chunk.choices) != 1
            or chunk.object != "chat.completion.chunk"
            or (chunk.id, chunk.model, chunk.created) != self._envelope
            or (
                chunk.system_fingerprint is not UNSET
                and chunk.system_fingerprint != extras.get("system_fingerprint", UNSET)
            )
            or (chunk.service_tier is not UNSET and chunk.service_tier != extras.get("service_tier", UNSET))
        ):
            return False
        choice = chunk.choices[0]
        index, text = choice.index, choice.delta.content
        if not text or index not in self._started:
            return False
        if chunk.obfuscation is not UNSET and chunk.obfuscation != extras.get("obfuscation"):
            extras["obfuscation"] = chunk.obfuscation
            self._sink.events.append(Extra("chunk", {"obfuscation": chunk.obfuscation}))
        self._spoken.add(index)
        self._sink.events.append(TextDelta(index, text))
        return True

    def read_undecodable(self, data: bytes, event: str) -> None:
        """Take in the data of a frame that is not JSON."""
        text = data.decode(errors="replace").strip()
        if text.upper() == _DONE:
            padded = data.strip(b"\r\n").removeprefix(b" ") != _DONE.encode()
            self._read_done(misspelled=padded)
        elif not text:
            self._sink.repair("empty-event")
        elif event == "error":
            self._fail("provider-error", text[:500])
        else:
            self._fail("bad-json", text[:500])

    def tell_held(self) -> None:
        """Tell the tool calls that were held: nothing more of them will come, or be heard."""
        for calls in self._tool_calls.values():
            calls.tell_held(self._sink)

    def close(self) -> None:
        """No more frames will come: tell what was held."""
        for choice, field in self._joiner.held:
            self._sink.repair("lone-surrogate")
            self._speak(choice, field, "\N{REPLACEMENT CHARACTER}")
        for choice, calls in self._tool_calls.items():
            calls.close(self._sink, finished=choice in self._finished)

    def _without_halves(self, value: object) -> object:
        """A frame's JSON without halves of characters, but for texts of which the next frame may bring the rest."""
        self._surrogates = True
        texts = [
            {name: delta.pop(name) for name in TEXT_FIELDS if isinstance(delta.get(name), str)}
            for delta in _deltas(value)
        ]
        clean = whole_json(value, self._sink)
        for delta, text in zip(_deltas(clean), texts, strict=True):
            delta.update(text)
        return clean

    def _read_other(self, value: object, event: str) -> None:
        """A frame whose JSON is no object."""
        if isinstance(value, str) and value.strip().upper() == _DONE:
            self._read_done(misspelled=True)
        elif event == "error" and value:
            self._fail("provider-error", f"{value!s:.500}")
        elif isinstance(value, list) and value and all(isinstance(item, dict) for item in value):
            for item in value:
                self.read(item, event=event)
        elif isinstance(value, list) and value:
            self._fail("bad-shape", f"an event is a list: {shown(value)}")
        else:
            self._sink.repair("empty-event", shown(value))

    def _read_done(self, *, misspelled: bool) -> None:
        if misspelled:
            self._sink.repair("done-misspelled")
        if self.done:
            self._sink.repair("done-repeated")
        self.done = True

    def _read_special(self, chunk: dict[str, object], event: str) -> bool:
        """An error, a heartbeat or another dialect's event; returns whether there is nothing more in it."""
        error = read_error(chunk, event)
        if error is not None:
            self._fail("provider-error", *error)
        chunk.pop("error", None)
        if "choices" in chunk:
            return False
        if error is None:
            for key, beginnings, dialect in FOREIGN_EVENTS:
                value = chunk.get(key)
                if value is not None and (not beginnings or (isinstance(value, str) and value.startswith(beginnings))):
                    self._fail("other-dialect", f"these are events of the {dialect} dialect")
                    return True
            if not chunk.keys() & {"usage", "x_groq", "id", "model"}:
                self._sink.repair("keepalive-event", event or ", ".join(chunk)[:80])
                return True
            return False
        if chunk.get("usage") is not None:
            self._read_usage(chunk["usage"])
        return True

    def _read_envelope(self, envelope: tuple[object, ...]) -> None:
        self._envelope = envelope
        id, model, created = envelope
        start = Start(text_of(id), text_of(model), integer_of(created) or None)
        mistyped = [
            name
            for name, value, type_ in (("id", id, str), ("model", model, str), ("created", created, int))
            if value is not None and type(value) is not type_
        ]
        if mistyped:
            self._sink.repair("envelope-mistyped", ", ".join(mistyped))
        self._sink.events.append(start)

    def _read_extras(self, chunk: dict[str, object]) -> None:
        """The fields of a chunk that have no meaning to us, and the usage that some providers keep there."""
        nested = chunk.get("x_groq")
        if isinstance(nested, dict):
            if nested.get("usage") is not None:
                self._read_usage(nested["usage"])
            if nested.get("error"):
                self._fail("provider-error", f"{nested['error']!s:.500}", nested)
        before = self._extras
        changed = {key: value for key, value in chunk.items() if key not in before or before[key] != value}
        self._extras = before | changed if len(before) < MAX_EXTRAS else changed
        if changed:
            self._sink.events.append(Extra("chunk", changed))

    def _listed(self, choices: object, usage: object) -> list[object]:
        """What stands in place of the list of choices, as a list."""
        if choices is None and usage is not None:
            return []
        self._sink.repair("choices-missing")
        if choices is None or choices == "":
            return []
        if not isinstance(choices, dict):
            self._fail("bad-shape", f"choices is no list: {shown(choices)}")
            return []
        return [choices]

    def _read_choice(self, choice: dict[str, object], place: int) -> None:
        """One choice of a chunk, and the usage that some providers keep there."""
        index = choice.pop("index", None)
        if type(index) is not int:
            index = self._index(index, place)
        delta = choice.pop("delta", None)
        finish = choice.pop("finish_reason", None)
        logprobs = choice.pop("logprobs", None)
        if type(delta) is dict and len(delta) == 1 and not choice and not finish and logprobs is None:
            text = delta.get("content")
            if type(text) is str and index in self._started and not self._surrogates:
                if text:  # the common case: a plain delta
                    self._spoken.add(index)
                    self._sink.events.append(TextDelta(index, text))
                return
        if logprobs is not None:
            choice["logprobs"] = logprobs
        usage = choice.pop("usage", None)
        if usage is not None:
            self._read_usage(usage)
        error = choice.pop("error", None)
        if error:
            self._fail("provider-error", *error_of(error, choice))
        message = choice.pop("message", None)
        if type(delta) is not dict:
            delta = self._substitute(choice, index, delta, message)
        elif message is not None:
            self._sink.repair("message-beside-delta")
        self._read_delta(choice, index, delta, finish)

    def _index(self, index: object, place: int) -> int:
        self._sink.repair("choice-index-missing", shown(index))
        number = integer_of(index)
        return place if number is None else number

    def _substitute(self, choice: dict[str, object], index: int, delta: object, message: object) -> dict[str, object]:
        """What a choice without a delta says: its message, if no delta said anything, or its text."""
        if delta is not None and delta != "":
            self._fail("bad-shape", f"a delta is not an object: {shown(delta)}")
        if isinstance(message, dict):
            if index in self._spoken:
                self._sink.repair("message-beside-delta")
                return {}
            calls = message.get("tool_calls")
            if isinstance(calls, list):
                message["tool_calls"] = [
                    {"index": number} | call if isinstance(call, dict) else call for number, call in enumerate(calls)
                ]
            return message
        text = choice.pop("text", None)
        if isinstance(text, str):
            self._sink.repair("text-without-delta")
            return {"content": text}
        self._sink.repair("delta-missing")
        return {}

    def _read_delta(self, choice: dict[str, object], index: int, delta: dict[str, object], finish: object) -> None:
        events = self._sink.events
        native = choice.pop("native_finish_reason", None)
        role = delta.pop("role", None)
        role = role if isinstance(role, str) else ""
        if role or (index not in self._started and (finish or any(delta.values()))):
            if len(self._started) == MAX_CHOICES and index not in self._started:
                self._fail("bad-shape", f"more than {MAX_CHOICES} choices")
            self._started.add(index)
            events.append(ChoiceStart(index, role))
        content = delta.pop("content", None)
        refusal = delta.pop("refusal", None)
        tool_calls = delta.pop("tool_calls", None)
        function_call = delta.pop("function_call", None)
        reasoning, native_field = self._take_reasoning(delta)
        self._add_extras("choice", choice, index)
        self._add_extras("delta", delta, index)
        if reasoning:
            self._say(index, native_field, reasoning)
        if content:
            self._read_content(index, content)
        if refusal:
            self._say(index, "refusal", refusal)
        if tool_calls or function_call:
            self._read_tool_calls(index, tool_calls, function_call)
        if finish:
            self._read_finish(index, finish, native)

    def _take_reasoning(self, delta: dict[str, object]) -> tuple[object, str]:
        """The text of the model's thinking and the field that it came in.

        A second field with the same text stays in the delta, and so among the extras: clients read either.
        """
        for name in REASONING_FIELDS:
            if isinstance(delta.get(name), str) and delta[name]:
                return delta.pop(name), name
        details = delta.get("reasoning_details")
        if isinstance(details, list):
            texts = [item.get("text") or item.get("summary") for item in details if isinstance(item, dict)]
            return "".join(text for text in texts if isinstance(text, str)), "reasoning_details"
        return None, ""

    def _add_extras(self, place: str, fields: dict[str, object], index: int) -> None:
        kept = {key: value for key, value in fields.items() if value is not None and value != ""}
        if kept:
            self._sink.events.append(Extra("choice" if place == "choice" else "delta", kept, index))

    def _say(self, index: int, field: str, text: object) -> None:
        """Text of any kind."""
        if not isinstance(text, str):
            self._fail("bad-shape", f"{field} is not text: {shown(text)}")
            return
        if self._surrogates:
            text = self._joiner.join((index, field), text, self._sink)
        if text:
            self._speak(index, field, text)

    def _speak(self, index: int, field: str, text: str) -> None:
        self._spoken.add(index)
        if field == "content":
            self._sink.events.append(TextDelta(index, text))
        elif field == "refusal":
            self._sink.events.append(RefusalDelta(index, text))
        else:
            self._sink.events.append(ReasoningDelta(index, text, field))

    def _read_content(self, index: int, content: object) -> None:
        if isinstance(content, dict):
            content = [content]
        if not isinstance(content, list):
            self._say(index, "content", content)
            return
        self._sink.repair("content-parts")
        for part in content:
            match part:
                case str():
                    self._say(index, "content", part)
                case {"type": "text", "text": str(text)} | {"type": "output_text", "text": str(text)}:
                    self._say(index, "content", text)
                case {"type": "thinking", "thinking": str(text)} | {"type": "reasoning", "text": str(text)}:
                    self._say(index, "reasoning_content", text)
                case {"type": "thinking", "thinking": [*thoughts]}:
                    texts = [thought.get("text") for thought in thoughts if isinstance(thought, dict)]
                    self._say(index, "reasoning_content", "".join(text for text in texts if isinstance(text, str)))
                case _:
                    self._add_extras("delta", {"content_parts": [part]}, index)

    def _read_tool_calls(self, index: int, pieces: object, function_call: object) -> None:
        calls = self._tool_calls.get(index)
        if calls is None:
            calls = self._tool_calls[index] = ToolCalls(index)
        if isinstance(pieces, dict):
            pieces = [pieces]
        if pieces and not isinstance(pieces, list):
            self._fail("bad-shape", f"tool_calls is no list: {shown(pieces)}")
            return
        if isinstance(pieces, list):
            for piece in pieces:
                if isinstance(piece, dict):
                    calls.read(piece, self._sink)
                elif piece is not None:
                    self._fail("bad-shape", f"a tool call is not an object: {shown(piece)}")
        if isinstance(function_call, dict):
            calls.read_legacy(function_call, self._sink)
        elif function_call:
            self._fail("bad-shape", f"function_call is not an object: {shown(function_call)}")
        self._spoken.add(index)

    def _read_finish(self, index: int, finish: object, native: object) -> None:
        if not isinstance(finish, str):
            self._fail("bad-shape", f"finish_reason is not text: {shown(finish)}")
            return
        if finish in FAILURES:
            self._fail("provider-error", f"finish_reason {finish}")
            return
        reason = FINISH_REASONS.get(finish)
        if reason is None:
            self._sink.repair("finish-unknown", finish)
            reason = finish
        elif reason != finish:
            self._sink.repair("finish-mapped", finish)
            native = native or finish
        if index in self._tool_calls:
            self._tool_calls[index].tell_held(self._sink)
        self._finished.add(index)
        self._sink.events.append(Finish(index, reason, native if isinstance(native, str) else None))

    def _fail(self, code: str, message: str, provider: dict[str, object] | None = None) -> None:
        """The stream has failed here; what came before still counts."""
        self.tell_held()
        self._sink.fault(code, message, provider)

    def _read_usage(self, usage: object) -> None:
        if isinstance(usage, dict):
            report = read_usage(usage, self._sink)
            self._sink.events.append(UsageReport(report))
        elif usage:
            self._sink.repair("usage-mistyped", shown(usage))


def _deltas(value: object) -> list[dict[str, object]]:
    choices = value.get("choices") if isinstance(value, dict) else None
    if not isinstance(choices, list):
        return []
    deltas = [choice.get("delta") for choice in choices if isinstance(choice, dict)]
    return [delta for delta in deltas if isinstance(delta, dict)]


def _has_message(choices: object) -> bool:
    return isinstance(choices, list) and all(isinstance(choice, dict) and "message" in choice for choice in choices)
