"""ChatTrailer: the usual ending of a chat stream, buffered until complete: one finish, perhaps usage, then `[DONE]`.

Typed decoders recognise its chunks. `core/fast/__init__.py` explains why this gives the same events as the grammar.
"""

import re
from typing import Annotated, Literal, TypeAlias

import msgspec
from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from penstock.core.dialects.openai_chat.fast_chunks import padding_of, same_envelope
from penstock.core.dialects.openai_chat.usage import read_usage, sound_tokens
from penstock.core.hub.events import End, Event, Extra, Finish, UsageReport
from penstock.core.hub.sink import Sink
from penstock.core.hub.usage import ABSURD_TOKENS, Tokens
from penstock.core.wire.payload import is_too_deep

# A chunk with the finish, perhaps one with the usage, and `[DONE]` if it has arrived; one line each.
_ENDING = re.compile(rb"data: (\{.+)\n\n(?:data: (\{.+)\n\n)?(data: \[DONE\]\n\n)?")
_DONE = b"data: [DONE]\n\n"
# White space in JSON, but a line end in SSE. As an integer, which `in` finds faster.
_CR = ord("\r")
_NULL = Raw(b"null")


class TrailerDelta(Struct, forbid_unknown_fields=True, gc=False):
    """A delta without content."""

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
    """The members of every chunk of the ending."""

    id: str
    object: Literal["chat.completion.chunk"]
    created: int
    model: str
    system_fingerprint: str | UnsetType | None = UNSET
    service_tier: str | UnsetType | None = UNSET
    obfuscation: str | UnsetType = UNSET


class FinishChunk(TrailerChunk, forbid_unknown_fields=True, gc=False, kw_only=True):
    """The chunk that finishes the only choice. Many providers report the usage in it."""

    choices: tuple[TrailerChoice]
    usage: Raw = _NULL


_Count: TypeAlias = Annotated[int, Meta(ge=0, lt=ABSURD_TOKENS)]


class TrailerInput(Struct, forbid_unknown_fields=True, gc=False):
    """Parts of the input."""

    cached_tokens: _Count = 0
    cache_write_tokens: _Count = 0
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
    """Usage in OpenAI's own format, which nearly all providers send."""

    prompt_tokens: _Count
    completion_tokens: Annotated[int, Meta(ge=1, lt=ABSURD_TOKENS)]
    total_tokens: _Count
    prompt_tokens_details: TrailerInput | None = None
    completion_tokens_details: TrailerOutput | None = None

    def tokens(self) -> Tokens | None:
        """The tokens to book; None if the counts are inconsistent."""
        input, output = self.prompt_tokens, self.completion_tokens
        if self.total_tokens != input + output:
            return None
        read, written = self.prompt_tokens_details or _NO_INPUT, self.completion_tokens_details or _NO_OUTPUT
        if read == _NO_INPUT and written == _NO_OUTPUT:  # most are so
            return Tokens(input=input, output=output)
        cached, cache_write, audio_input = read.cached_tokens, read.cache_write_tokens, read.audio_tokens
        reasoning, audio_output = written.reasoning_tokens, written.audio_tokens
        if max(cached + cache_write, audio_input) > input or max(reasoning, audio_output) > output:
            return None
        return Tokens(
            input=input,
            output=output,
            cached=cached,
            cache_write=cache_write,
            reasoning=reasoning,
            audio_input=audio_input,
            audio_output=audio_output,
        )


class UsageChunk(TrailerChunk, forbid_unknown_fields=True, gc=False, kw_only=True):
    """The chunk that reports usage."""

    choices: tuple[()]
    usage: Raw


_FINISH_CHUNK = msgspec.json.Decoder(FinishChunk)
_USAGE_CHUNK = msgspec.json.Decoder(UsageChunk)
_USUAL_USAGE = msgspec.json.Decoder(TrailerUsage)
_ANY_USAGE = msgspec.json.Decoder(dict[str, object])


class ChatTrailer:
    """The usual ending of one stream (`StreamTrailer`).

    `envelope` and `extras` are those of the stream so far; `choice` is its only one. `last` is the JSON of the last
    chunk before it, if its padding is not that of the extras.
    """

    frames = 0
    """The number of frames in the buffer."""
    raw = b""
    """Their bytes."""
    done = False
    """Whether `[DONE]` has arrived, so that the trailer is complete."""
    finish_reason = ""
    tokens: Tokens | None = None
    """The tokens of the reported usage, if one was reported and its output is not zero."""
    tier: str | None = None
    """The service tier of the reported usage, if it names one."""
    # The JSON of the chunks with the finish and, if it is another, with the usage; and that of the usage itself.
    _finish = b""
    _report = b""
    _usage = b""

    def __init__(self, envelope: tuple[object, ...], extras: dict[str, object], choice: int, last: bytes = b"") -> None:
        self._envelope = envelope
        self._extras = extras
        self._choice = choice
        self._last = last
        # The envelope of a chunk that has all members that the earlier ones have: the common case.
        self._named = (*envelope, extras.get("system_fingerprint", UNSET), extras.get("service_tier", UNSET))

    def feed(self, data: bytes) -> bool:
        """Add one read if it continues the trailer. Otherwise return False; the trailer must not be fed again."""
        if data == _DONE and self.raw and not self.done:
            self.raw += data
            self.frames += 1
            self.done = True
            return True
        if not data or _CR in data or not data.isascii():
            return False
        raw = self.raw + data
        ending = _ENDING.fullmatch(raw)
        if ending is None:
            return False
        finish, report, done = ending.groups()
        if not self._finish and not self._take_finish(finish):
            return False
        if report and not self._report and not self._take_report(report):
            return False
        self.raw = raw
        self.frames = raw.count(b"\n\n")
        self.done = done is not None
        return True

    def events(self) -> list[Event]:
        """The events of a complete trailer."""
        events: list[Event] = []
        padding = padding_of(self._last) or self._extras.get("obfuscation")
        for chunk in (self._finish, self._report):
            new = padding_of(chunk)
            if new is not None and new != padding:  # changed padding is emitted
                padding = new
                events.append(Extra("chunk", {"obfuscation": padding}))
        events.append(Finish(self._choice, self.finish_reason))
        if self._usage:
            events.append(UsageReport(read_usage(_ANY_USAGE.decode(self._usage), Sink())))
        return [*events, End("completed")]

    def write(self, *, include_usage: bool) -> bytes:
        """The provider's bytes, without the usage if the client did not request it; empty if it requested one that is
        missing."""
        if self._report:
            return self.raw if include_usage else b"data: %b\n\ndata: [DONE]\n\n" % self._finish
        if include_usage or not self._usage:
            return b"" if include_usage else self.raw  # a client that requests usage gets it in a chunk of its own
        # The bytes of this member cannot be in a string, where its quotes would be escaped.
        before, member, after = self.raw.partition(b',"usage":' + self._usage)
        return before + after if member and member not in after else b""

    def _take_finish(self, data: bytes) -> bool:
        try:
            chunk = _FINISH_CHUNK.decode(data)
        except ValueError:
            return False
        (choice,) = chunk.choices
        if choice.index != self._choice or not self._fits(chunk):
            return False
        if chunk.usage != _NULL and not self._take_usage(bytes(chunk.usage)):
            return False
        self.finish_reason = choice.finish_reason
        self._finish = data
        return True

    def _take_report(self, data: bytes) -> bool:
        try:
            chunk = _USAGE_CHUNK.decode(data)
        except ValueError:
            return False
        if self._usage or not self._fits(chunk) or not self._take_usage(bytes(chunk.usage)):
            return False
        self._report = data
        return True

    def _take_usage(self, data: bytes) -> bool:
        try:
            tokens = _USUAL_USAGE.decode(data).tokens()
        except ValueError:
            return self._take_any_usage(data)
        if tokens is None:
            return False
        self.tokens = tokens
        self._usage = data
        return True

    def _take_any_usage(self, data: bytes) -> bool:
        """Read usage in any provider's format."""
        if is_too_deep(data):
            return False
        try:
            raw = _ANY_USAGE.decode(data)
        except ValueError:
            return False
        reported = sound_tokens(raw)
        if reported is None:
            return False
        self.tokens, self.tier = reported
        self._usage = data
        return True

    def _fits(self, chunk: TrailerChunk) -> bool:
        """Whether a chunk has the envelope of the stream. Its padding may differ."""
        named = (chunk.id, chunk.model, chunk.created, chunk.system_fingerprint, chunk.service_tier)
        return named == self._named or same_envelope(chunk, self._envelope, self._extras)
