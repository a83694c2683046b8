"""Tail: the usual ending of a healthy answer, held until it is whole: one finish, perhaps the usage, then `[DONE]`.

Nothing of that is told before the end of the bytes anyway (`core/grammar.py`, rules 3 and 4). So its frames need no
framer and no grammar: typed decoders recognise them, and when the bytes end all is told at once. If anything else
comes, what was held is read the long way, as if it had come with that. Both ways give the same events.
"""

from typing import Literal

import msgspec
from msgspec import UNSET, Struct, UnsetType

from penstock.core.dialects.openai_chat_plain import belongs
from penstock.core.dialects.openai_usage import read_usage
from penstock.core.events import End, Event, Extra, Finish, UsageReport
from penstock.core.sink import Sink
from penstock.core.usage import Usage
from penstock.core.wire.payload import is_too_deep

_DONE = b"data: [DONE]"
_DATA = b"data: {"
# To JSON it is a blank, and to who reads the stream a line end. As a number it is found faster.
_CR = ord("\r")


class TailDelta(Struct, forbid_unknown_fields=True, gc=False):
    """Nothing said."""

    content: Literal[""] | None = None
    role: None = None
    refusal: None = None
    tool_calls: None = None
    function_call: None = None
    reasoning_content: None = None
    reasoning: None = None


class TailChoice(Struct, forbid_unknown_fields=True, gc=False):
    """A choice that is finished."""

    index: int
    delta: TailDelta
    finish_reason: Literal["stop", "length", "content_filter"]
    logprobs: None = None


class TailChunk(Struct, forbid_unknown_fields=True, gc=False):
    """What every chunk of the ending has."""

    id: str
    object: Literal["chat.completion.chunk"]
    created: int
    model: str
    system_fingerprint: str | UnsetType | None = UNSET
    service_tier: str | UnsetType | None = UNSET
    obfuscation: str | UnsetType = UNSET


class FinishChunk(TailChunk, forbid_unknown_fields=True, gc=False, kw_only=True):
    """The chunk that finishes the only choice."""

    choices: tuple[TailChoice]
    usage: None = None


class UsageChunk(TailChunk, forbid_unknown_fields=True, gc=False, kw_only=True):
    """The chunk that reports usage."""

    choices: tuple[()]
    usage: dict[str, object]


_FINISH_CHUNK = msgspec.json.Decoder(FinishChunk)
_USAGE_CHUNK = msgspec.json.Decoder(UsageChunk)


class Tail:
    """The ending of one stream, as far as it is the usual one.

    `envelope` and `extras` are those of the stream so far, `choice` is its only one.
    """

    __slots__ = (
        "_choice",
        "_envelope",
        "_extras",
        "_finish",
        "_padding",
        "_reason",
        "_report",
        "_told",
        "_usage",
        "done",
        "frames",
        "held",
    )

    def __init__(self, envelope: tuple[object, ...], extras: dict[str, object], choice: int) -> None:
        self._envelope = envelope
        self._extras = extras
        self._choice = choice
        self._reason = ""
        self._usage: Usage | None = None
        self._told: list[Event] = []
        # The frames that finish the answer and that report its usage, as they came.
        self._finish = b""
        self._report = b""
        self._padding = extras.get("obfuscation")
        self.frames = 0
        """How many frames it holds."""
        self.held = b""
        """Their bytes."""
        self.done = False
        """Whether `[DONE]` has come, and so all of it."""

    def take(self, data: bytes) -> bool:
        """Take in one read if it goes on with the usual ending. Otherwise return False, and take nothing any more."""
        frames = data.split(b"\n\n")
        if frames.pop() or not frames or data.count(b"\n") != 2 * len(frames) or _CR in data or not data.isascii():
            return False
        for frame in frames:
            if self.done or not self._take(frame):
                return False
        self.frames += len(frames)
        self.held += data
        return True

    def events(self) -> list[Event]:
        """What it comes to, when it is done."""
        finish = Finish(self._choice, self._reason)
        usage = () if self._usage is None else (UsageReport(self._usage),)
        return [*self._told, finish, *usage, End("completed")]

    def write(self, *, include_usage: bool) -> bytes:
        """The same ending for a client, as it came; empty where the client is promised more."""
        if include_usage and not self._report:
            return b""
        return self._finish + (self._report if include_usage else b"") + _DONE + b"\n\n"

    def _take(self, frame: bytes) -> bool:
        if not self._finish:
            return frame.startswith(_DATA) and self._take_finish(frame)
        if frame == _DONE:
            self.done = True
            return True
        return not self._report and frame.startswith(_DATA) and self._take_usage(frame)

    def _take_finish(self, frame: bytes) -> bool:
        try:
            chunk = _FINISH_CHUNK.decode(frame[6:])
        except ValueError:
            return False
        choice = chunk.choices[0]
        if choice.index != self._choice or not self._fits(chunk):
            return False
        self._reason = choice.finish_reason
        self._finish = frame + b"\n\n"
        return True

    def _take_usage(self, frame: bytes) -> bool:
        if is_too_deep(frame):
            return False
        try:
            chunk = _USAGE_CHUNK.decode(frame[6:])
        except ValueError:
            return False
        defects = Sink()
        usage = read_usage(chunk.usage, defects)
        if not usage.sound or defects.events or not self._fits(chunk):
            return False
        raw, usage = chunk.usage, usage.with_total()
        if (raw.get("prompt_tokens"), raw.get("completion_tokens"), raw.get("total_tokens")) != usage.counts()[:3]:
            return False  # clients read these three
        self._usage = usage
        self._report = frame + b"\n\n"
        return True

    def _fits(self, chunk: TailChunk) -> bool:
        """Whether a chunk belongs to the stream so far. Its padding may be another one, which is told."""
        if not belongs(chunk, self._envelope, self._extras):
            return False
        if chunk.obfuscation is not UNSET and chunk.obfuscation != self._padding:
            self._padding = chunk.obfuscation
            self._told.append(Extra("chunk", {"obfuscation": chunk.obfuscation}))
        return True
