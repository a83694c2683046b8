"""Reads the OpenAI chat-completions dialect: the JSON of a chunk → events.

The reader emits the events of each chunk as it reads them; `core/hub/grammar.py` puts them into legal order. The events
of one chunk have this order: `Start`, extras of the chunk, then for each choice `ChoiceStart`, its extras, reasoning,
text, refusal, tool calls, `Finish`; and the usage last. Rules for the whole file:

1. Every known field is popped; the fields that remain become an `Extra`. Nulls below the level of the chunk have no
   meaning and are dropped.
2. Extras of the chunk are emitted when they change, because most are the same in every chunk. Extras of choices, deltas
   and tool calls are always emitted, because they accumulate.
3. Behaviour depends on the shape of the JSON, never on a provider's name.
"""

from msgspec import UNSET

from penstock.core.dialects.frame_reader import FrameReader
from penstock.core.dialects.openai_chat.choice import TEXT_FIELDS, ChoiceReader
from penstock.core.dialects.openai_chat.fast_chunks import PLAIN_CHUNK, padding_of, same_envelope
from penstock.core.dialects.openai_chat.trailer import ChatTrailer
from penstock.core.dialects.openai_chat.usage import read_usage
from penstock.core.fast.format import TextEvent
from penstock.core.hub.events import Extra, Start, TextDelta, UsageReport
from penstock.core.hub.grammar import Grammar
from penstock.core.hub.sink import Sink
from penstock.core.json.getters import integer_of, shown, text_of
from penstock.core.provider_errors.error_shapes import is_heartbeat, read_error

# How to recognise the events of other APIs: fields that they have, and prefixes of their `type`.
FOREIGN_EVENTS: tuple[tuple[frozenset[str], tuple[str, ...], str], ...] = (
    (frozenset(("type",)), ("message_start", "content_block_", "message_delta", "message_stop"), "Anthropic Messages"),
    (frozenset(("type",)), ("response.",), "OpenAI Responses"),
    (frozenset(("type",)), ("message-start", "content-", "message-end", "tool-call-", "tool-plan-"), "Cohere"),
    (frozenset(("candidates",)), (), "Gemini generateContent"),
    (frozenset(("usageMetadata",)), (), "Gemini generateContent"),
    (frozenset(("created_at", "done")), (), "Ollama"),
    (frozenset(("object", "output")), (), "OpenAI Responses"),
)
# Fields that may hold text in an event without choices. Such an event is too far from the dialect to be read.
MISPLACED_CONTENT = frozenset(("delta", "content", "text"))
# Limits for the memory of one stream. The first is far above what any provider offers; the second is about what one
# provider uses.
MAX_CHOICES = 1000
MAX_EXTRAS = 16
_DELTA = ("choices", "*", "delta")
# The texts that the next chunk may continue.
_TEXTS = frozenset(((*_DELTA, "tool_calls", "*", "function", "arguments"), *((*_DELTA, name) for name in TEXT_FIELDS)))


class OpenAIChatReader(FrameReader):
    """Reads the frames of one stream."""

    title = "OpenAI chat"
    sentinel = "[DONE]"
    sentinel_bytes = sentinel.encode()
    finish_is_last = False  # the usage follows it, and at times text
    texts = _TEXTS
    envelope = ("id", "model", "created")
    _envelope: tuple[object, ...] = ()
    _envelope_changed = False  # after a choice began, or is incomplete: chunks must not be forwarded as they are

    def __init__(self, sink: Sink) -> None:
        super().__init__(sink)
        self._extras: dict[str, object] = {}
        self._choices: dict[int, ChoiceReader] = {}
        self._tool_callers: dict[int, ChoiceReader] = {}  # choices with tool calls that may be buffered

    def read(self, value: dict[str, object], event: str) -> None:
        """Read the JSON of one frame. `event` is the name of its SSE event."""
        chunk = value
        if self.done:
            self._sink.repair("data-after-done")
            if chunk.get("id") and self._envelope and chunk["id"] != self._envelope[0] and _has_content(chunk):
                self._fail("bad-shape", "a second answer follows the first one's [DONE]")
                return
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
            says_nothing = choices == [] and usage is None
            self._sink.repair("object-missing-no-choices" if says_nothing else "object-missing", shown(kind))
        if type(choices) is not list:
            choices = self._listed(choices, usage)
        for place, choice in enumerate(choices):
            if type(choice) is dict:
                self._read_choice(choice, place)
            elif choice is not None:
                self._fail("bad-shape", f"a choice is not an object: {shown(choice)}")
        if usage is not None:
            self._read_usage(usage)

    # The fast path (`core/fast/__init__.py`).

    def read_usual(self, data: bytes) -> bool:
        """Read the data of one frame if it is one delta of text, reasoning or arguments, and nothing else."""
        if self.done or self._surrogates or self._envelope_changed:
            return False
        try:
            chunk = PLAIN_CHUNK.decode(data)
        except ValueError:
            return False
        extras = self._extras
        if not same_envelope(chunk, self._envelope, extras):
            return False
        choice = chunk.choices[0]
        reader = self._choices.get(choice.index)
        events = self._sink.events
        before = len(events)
        if reader is None or not reader.expects_delta or not reader.read_plain(choice.delta):
            return False
        if chunk.obfuscation is not UNSET and chunk.obfuscation != extras.get("obfuscation"):
            extras["obfuscation"] = chunk.obfuscation
            events.insert(before, Extra("chunk", {"obfuscation": chunk.obfuscation}))
        return True

    def follow_text(self, delta: TextEvent, last: bytes) -> None:
        """Continue after text deltas that the fast path has read."""
        self._choices[delta.choice].delta_fields.add("content" if isinstance(delta, TextDelta) else "reasoning")
        padding = padding_of(last)
        if padding is not None:
            self._extras = self._extras | {"obfuscation": padding}

    def trailer(self, grammar: Grammar) -> ChatTrailer | None:
        """An empty trailer for a stream with one choice that has text only; None for any other stream."""
        if len(self._choices) != 1 or not grammar.expects_end:
            return None
        (choice,) = self._choices.values()
        return ChatTrailer(self._envelope, self._extras, choice.index) if choice.expects_end else None

    def read_undecodable(self, data: bytes, event: str) -> None:
        """Read the data of a frame that is not JSON."""
        if data.strip().upper() in (self.sentinel_bytes, b"DONE"):
            self._read_done(misspelled=data.strip(b"\r\n").removeprefix(b" ") != self.sentinel_bytes)
        else:
            super().read_undecodable(data, event)

    def flush(self) -> None:
        """Emit the tool calls that are buffered: nothing more of them will be read."""
        for choice in self._tool_callers.values():
            choice.emit_pending()
        self._tool_callers.clear()

    def close(self) -> None:
        """Emit everything that is buffered: no more frames will come."""
        for choice in self._choices.values():
            choice.close()

    def _read_other(self, value: object, event: str) -> None:
        if isinstance(value, bytes):
            self._read_done(misspelled=False)
        elif (isinstance(value, str) and value.strip().upper() == self.sentinel) or (
            value == ["DONE"] and event != "error"
        ):
            self._read_done(misspelled=True)
        else:
            super()._read_other(value, event)

    def _read_done(self, *, misspelled: bool) -> None:
        if misspelled:
            self._sink.repair("done-misspelled")
        if self.done:
            self._sink.repair("done-repeated")
        self.done = True

    def _read_special(self, chunk: dict[str, object], event: str) -> bool:
        """Read an error, a heartbeat or another dialect's event; return whether the frame is finished."""
        if not chunk and event != "error":
            self._sink.repair("keepalive-event", event)
            return True
        error = read_error(chunk, event)
        if error is not None:
            self._fail("provider-error", *error)
        chunk.pop("error", None)
        if "choices" in chunk:
            return False
        if error is None:
            kind = chunk.get("type")
            for fields, beginnings, dialect in FOREIGN_EVENTS:
                if fields <= chunk.keys() and (not beginnings or text_of(kind).startswith(beginnings)):
                    self._fail("other-dialect", f"these are events of the {dialect} dialect")
                    return True
            if any(chunk.get(name) for name in MISPLACED_CONTENT):
                self._fail("bad-shape", f"an event without choices says something: {shown(chunk)}")
                return True
            if is_heartbeat(event) or not chunk.keys() & {"usage", "x_groq", "id", "model"}:
                self._sink.repair("keepalive-event", event or ", ".join(chunk)[:80])
                if chunk and not self.unread and not is_heartbeat(event or text_of(kind)):
                    self.unread = shown(chunk)
                return True
            return False
        if chunk.get("usage") is not None:
            self._read_usage(chunk["usage"])
        return True

    def _read_envelope(self, envelope: tuple[object, ...]) -> None:
        self._envelope = envelope
        self._envelope_changed = bool(self._choices) or not all(envelope)
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
        """Read the fields of a chunk that have no meaning to us, and the usage that some providers put there."""
        nested = chunk.get("x_groq")
        if isinstance(nested, dict):
            if nested.get("usage") is not None:
                self._read_usage(nested["usage"])
            if nested.get("error"):
                self._fail("provider-error", f"{nested['error']!s:.500}", nested)
        before = self._extras
        changed = {key: value for key, value in chunk.items() if key not in before or before[key] != value}
        self._extras = before | changed if len(before) < MAX_EXTRAS else dict(chunk)
        if changed:
            self._sink.events.append(Extra("chunk", changed))

    def _listed(self, choices: object, usage: object) -> list[object]:
        """The value of `choices`, which is not a list, as a list."""
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
        """Read one choice of a chunk, and the usage that some providers put there."""
        index = choice.pop("index", None)
        if type(index) is not int:
            index = self._index(index, place)
        reader = self._choices.get(index)
        if reader is None:
            if len(self._choices) == MAX_CHOICES:
                self._fail("bad-shape", f"more than {MAX_CHOICES} choices")
                return
            reader = self._choices[index] = ChoiceReader(index, self._sink)
        usage = choice.pop("usage", None)
        if usage is not None:
            self._read_usage(usage)
        delta, finish = choice.pop("delta", None), choice.pop("finish_reason", None)
        reader.read(choice, delta, finish, surrogates=self._surrogates)
        if reader.calls_tools:
            self._tool_callers[index] = reader

    def _index(self, index: object, place: int) -> int:
        self._sink.repair("choice-index-missing", shown(index))
        number = integer_of(index)
        return place if number is None else number

    def _fail(self, code: str, message: str, provider: dict[str, object] | None = None) -> None:
        """Emit the buffered tool calls and a fault: the stream has failed here."""
        self.flush()
        self._sink.fault(code, message, provider)

    def _read_usage(self, usage: object) -> None:
        if isinstance(usage, dict):
            report = read_usage(usage, self._sink)
            self._sink.events.append(UsageReport(report))
        elif usage:
            self._sink.repair("usage-mistyped", shown(usage))


def _has_content(chunk: dict[str, object]) -> bool:
    """Whether a chunk has a delta that is not empty."""
    choices = chunk.get("choices")
    deltas = (
        [choice.get("delta") for choice in choices if isinstance(choice, dict)] if isinstance(choices, list) else []
    )
    return any(isinstance(delta, dict) and any(delta.values()) for delta in deltas)


def _has_message(choices: object) -> bool:
    return isinstance(choices, list) and all(isinstance(choice, dict) and "message" in choice for choice in choices)
