"""ChatTrailer: the usual ending of a chat stream, held until it is whole: one finish, perhaps the usage, then `[DONE]`.

Typed decoders recognise its chunks. Why that gives the same events as the grammar: `core/passthrough.py`.
"""

import re
from typing import Annotated, Literal, TypeAlias

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from penstock.core.dialects.openai_chat.fast_chunks import same_envelope
from penstock.core.dialects.openai_chat.usage import read_usage
from penstock.core.events import End, Event, Extra, Finish, UsageReport
from penstock.core.sink import Sink
from penstock.core.usage import ABSURD_TOKENS, Tokens
from penstock.core.wire.payload import is_too_deep

# One chunk that finishes the answer, perhaps one that reports the usage, and perhaps `[DONE]` by now; a line each.
_ENDING = re.compile(rb"data: (\{.+)\n\n(?:data: (\{.+)\n\n)?(data: \[DONE\]\n\n)?")
# To JSON it is a blank, and to who reads the stream a line end. As a number it is found faster.
_CR = ord("\r")


class TrailerDelta(Struct, forbid_unknown_fields=True, gc=False):
    """Nothing said."""

    content: Literal[""] | None = None
    role: None = None
    refusal: None = None
    tool_calls: None = None
    function_call: None = None
    reasoning_content: None = None
    reasoning: None = None


class TrailerChoice(Struct, forbid_unknown_fields=True, gc=False):
    """A choice that is finished."""

    index: int
    delta: TrailerDelta
    finish_reason: Literal["stop", "length", "content_filter"]
    logprobs: None = None


class TrailerChunk(Struct, forbid_unknown_fields=True, gc=False):
    """What every chunk of the ending has."""

    id: str
    object: Literal["chat.completion.chunk"]
    created: int
    model: str
    system_fingerprint: str | UnsetType | None = UNSET
    service_tier: str | UnsetType | None = UNSET
    obfuscation: str | UnsetType = UNSET


class FinishChunk(TrailerChunk, forbid_unknown_fields=True, gc=False, kw_only=True):
    """The chunk that finishes the only choice."""

    choices: tuple[TrailerChoice]
    usage: None = None


_Count: TypeAlias = Annotated[int, Meta(ge=0, lt=ABSURD_TOKENS)]


class TrailerInput(Struct, forbid_unknown_fields=True, gc=False):
    """Parts of the input."""

    cached_tokens: _Count = 0
    audio_tokens: _Count = 0


class TrailerOutput(Struct, forbid_unknown_fields=True, gc=False):
    """Parts of the output."""

    reasoning_tokens: _Count = 0
    audio_tokens: _Count = 0
    accepted_prediction_tokens: _Count = 0
    rejected_prediction_tokens: _Count = 0


_NO_INPUT = TrailerInput()
_NO_OUTPUT = TrailerOutput()


class TrailerUsage(Struct, forbid_unknown_fields=True, gc=False):
    """Usage in OpenAI's own words, as it nearly always comes."""

    prompt_tokens: _Count
    completion_tokens: Annotated[int, Meta(ge=1, lt=ABSURD_TOKENS)]
    total_tokens: _Count
    prompt_tokens_details: TrailerInput | None = None
    completion_tokens_details: TrailerOutput | None = None

    def tokens(self) -> Tokens | None:
        """What it comes to; None if its figures do not fit together."""
        input, output = self.prompt_tokens, self.completion_tokens
        if self.total_tokens != input + output:
            return None
        read, written = self.prompt_tokens_details or _NO_INPUT, self.completion_tokens_details or _NO_OUTPUT
        if read == _NO_INPUT and written == _NO_OUTPUT:  # most are so
            return Tokens(input=input, output=output)
        cached, audio_input = read.cached_tokens, read.audio_tokens
        reasoning, audio_output = written.reasoning_tokens, written.audio_tokens
        if max(cached, audio_input) > input or max(reasoning, audio_output) > output:
            return None
        return Tokens(
            input=input,
            output=output,
            cached=cached,
            reasoning=reasoning,
            audio_input=audio_input,
            audio_output=audio_output,
        )


class UsageChunk(TrailerChunk, forbid_unknown_fields=True, gc=False, kw_only=True):
    """The chunk that reports usage."""

    choices: tuple[()]
    usage: TrailerUsage


class AnyUsageChunk(TrailerChunk, forbid_unknown_fields=True, gc=False, kw_only=True):
    """The same, in anybody's words."""

    choices: tuple[()]
    usage: dict[str, object]


class PaddedChunk(Struct, gc=False):
    """Any chunk, as far as it is padded."""

    obfuscation: str | UnsetType = UNSET


_FINISH_CHUNK = msgspec.json.Decoder(FinishChunk)
_USAGE_CHUNK = msgspec.json.Decoder(UsageChunk)
_ANY_USAGE_CHUNK = msgspec.json.Decoder(AnyUsageChunk)
_PADDED_CHUNK = msgspec.json.Decoder(PaddedChunk)


class ChatTrailer:
    """The ending of one stream, as far as it is the usual one.

    `envelope` and `extras` are those of the stream so far, `choice` is its only one.
    """

    frames = 0
    """How many frames it holds."""
    raw = b""
    """Their bytes."""
    done = False
    """Whether `[DONE]` has come, and so all of it."""
    finish_reason = ""
    """Why the answer is finished."""
    tokens: Tokens | None = None
    """What the reported usage comes to, of which the output is some; None if there is none."""
    tier: str | None = None
    """The service tier that the reported usage names, if it names one."""
    # The chunks that finish the answer and that report its usage, as they came.
    _finish = b""
    _report = b""

    def __init__(self, envelope: tuple[object, ...], extras: dict[str, object], choice: int) -> None:
        self._envelope = envelope
        self._extras = extras
        self._choice = choice
        # What a chunk says of its stream if it says all that those before it have said.
        self._named = (*envelope, extras.get("system_fingerprint", UNSET), extras.get("service_tier", UNSET))

    def feed(self, data: bytes) -> bool:
        """Take in one read if it goes on with the usual ending. Otherwise return False, and take nothing any more."""
        if not data or _CR in data or not data.isascii():
            return False
        raw = self.raw + data
        ending = _ENDING.fullmatch(raw)
        if ending is None:
            return False
        finish, report, done = ending.groups()
        if not self._finish and not self._take_finish(finish):
            return False
        if report and not self._report and not self._take_usage(report):
            return False
        self.raw = raw
        self.frames = raw.count(b"\n\n")
        self.done = done is not None
        return True

    def events(self) -> list[Event]:
        """What it comes to, when it is done."""
        events: list[Event] = []
        padding = self._extras.get("obfuscation")
        for chunk in filter(None, (self._finish, self._report)):
            new = _PADDED_CHUNK.decode(chunk).obfuscation
            if new is not UNSET and new != padding:  # another one is told
                padding = new
                events.append(Extra("chunk", {"obfuscation": padding}))
        events.append(Finish(self._choice, self.finish_reason))
        if self._report:
            events.append(UsageReport(read_usage(_ANY_USAGE_CHUNK.decode(self._report).usage, Sink())))
        return [*events, End("completed")]

    def write(self, *, include_usage: bool) -> bytes:
        """The same ending for a client, as it came; empty where the client is promised more."""
        if self._report:
            return self.raw if include_usage else b"data: %b\n\ndata: [DONE]\n\n" % self._finish
        return b"" if include_usage else self.raw

    def _take_finish(self, data: bytes) -> bool:
        try:
            chunk = _FINISH_CHUNK.decode(data)
        except ValueError:
            return False
        (choice,) = chunk.choices
        if choice.index != self._choice or not self._fits(chunk):
            return False
        self.finish_reason = choice.finish_reason
        self._finish = data
        return True

    def _take_usage(self, data: bytes) -> bool:
        try:
            chunk = _USAGE_CHUNK.decode(data)
        except ValueError:
            return self._take_any_usage(data)
        tokens = chunk.usage.tokens()
        if tokens is None or not self._fits(chunk):
            return False
        self.tokens = tokens
        self._report = data
        return True

    def _take_any_usage(self, data: bytes) -> bool:
        """The same, in anybody's words."""
        if is_too_deep(data):
            return False
        try:
            chunk = _ANY_USAGE_CHUNK.decode(data)
        except ValueError:
            return False
        defects = Sink()
        raw, usage = chunk.usage, read_usage(chunk.usage, defects).with_total()
        if (raw.get("prompt_tokens"), raw.get("completion_tokens"), raw.get("total_tokens")) != usage.counts()[:3]:
            return False  # clients read these three
        tokens = Tokens.of_sound(usage)
        if tokens is None or not tokens.output or defects.events or not self._fits(chunk):
            return False
        self.tokens = tokens
        self.tier = usage.tier
        self._report = data
        return True

    def _fits(self, chunk: TrailerChunk) -> bool:
        """Whether a chunk belongs to the stream so far. Its padding may be another one."""
        named = (chunk.id, chunk.model, chunk.created, chunk.system_fingerprint, chunk.service_tier)
        return named == self._named or same_envelope(chunk, self._envelope, self._extras)
