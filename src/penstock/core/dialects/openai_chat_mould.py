"""Mould: the bytes that every event of a steady stream repeats, around the one text that changes.

Nearly all events of a healthy stream are the same but for a few words, and for the padding that some providers add
against eavesdroppers. Once it is proved of one event that everything around those stands for itself, an event with the
same bytes around other words says those words and nothing else: no framer and no decoder needs to look at it.
"""

from collections.abc import Callable
from functools import partial

from msgspec import UNSET

from penstock.core.dialects.openai_chat_plain import PLAIN_CHUNK
from penstock.core.events import Event, Extra, ReasoningDelta, TextDelta


class Mould:
    """The bytes before the text, up to its opening quote, and behind it, from its closing quote on.

    If there is padding `behind` ends with its opening quote, and `tail` begins with its closing one; else `tail` is
    empty. `extras` are those of the stream so far, of which the padding is one.
    """

    __slots__ = ("_before", "_behind", "_extras", "_last", "_rest", "_said", "_size", "_tail", "frames")

    def __init__(
        self, before: bytes, behind: bytes, tail: bytes, said: Callable[[str], Event], extras: dict[str, object]
    ) -> None:
        self._before = before
        self._behind = behind
        self._tail = tail
        self._said = said
        self._extras = extras
        # What stood behind the text of the last event; empty when others have read events since.
        self._rest = b"%b%b%b" % (behind, str(extras["obfuscation"]).encode(), tail) if tail else behind
        self.frames = 0
        """How many events it has read that nobody else knows of yet."""
        self._size = self._last = 0

    def hand_over(self) -> tuple[int, int, int]:
        """Others will read now: how many events it has read, their bytes, and the bytes of the last one."""
        frames, size = self.frames, self._size
        self.frames = self._size = 0
        self._rest = b""
        return frames, size, self._last

    def read(self, data: bytes) -> list[Event]:
        """What events say that were cast in this mould; nothing if there is anything else in the data.

        Texts with escapes, and with characters that somebody takes for a line end, are left to the decoder.
        """
        text = self.text(data, 0, len(data))
        return [self._said(text)] if text else self._read_all(data)

    def text(self, data: bytes, start: int, end: int) -> str:
        """The common case: what one event says that stands in the data, and has the same padding as the last one."""
        if not data.startswith(self._before, start):
            return ""
        opening = start + len(self._before)
        closing = data.find(b'"', opening)
        if data[closing:end] != self._rest:
            return ""
        text = _plain(data[opening:closing])
        if text:
            self.frames += 1
            self._size += end - start
            self._last = end - start
        return text

    def _read_all(self, data: bytes) -> list[Event]:
        """The same, of any number of events with any padding."""
        before, behind, tail = self._before, self._behind, self._tail
        padding = told = self._extras.get("obfuscation")
        events: list[Event] = []
        frames = end = 0
        while data.startswith(before, end):
            start, opening = end, end + len(before)
            quote = data.find(b'"', opening)
            text = _plain(data[opening:quote])
            if not text or not data.startswith(behind, quote):
                break
            end = quote + len(behind)
            if tail:
                closing = data.find(b'"', end)
                new = data[end:closing]
                if not new.isalnum() or not data.startswith(tail, closing):
                    break
                if new.decode() != padding:
                    padding = new.decode()
                    events.append(Extra("chunk", {"obfuscation": padding}))
                end = closing + len(tail)
            events.append(self._said(text))
            frames += 1
            if end == len(data):
                if padding is not told:
                    self._extras["obfuscation"] = padding
                self.frames += frames
                self._size += end
                self._last = end - start
                self._rest = data[quote:]
                return events
        return []


def _plain(data: bytes) -> str:
    """The text of a JSON string without its quotes; empty if it has anything in it that must be looked at twice."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return ""
    return text if text.isprintable() and "\\" not in text else ""


def mould_of(event: bytes, said: Event, extras: dict[str, object]) -> Mould | None:
    """The mould that an event of one `data:` line was cast in, which the typed decoder has taken; if it can be proved.

    The proof: with another text and another padding in the same places, the chunk differs in those two and in nothing
    else. So the places are inside those strings, and whatever may stand in a JSON string may stand there.
    """
    if not isinstance(said, TextDelta | ReasoningDelta) or b"\r" in event or event.count(b"\n") != 2:
        return None
    chunk = PLAIN_CHUNK.decode(event.removeprefix(b"data:"))
    before, behind = _around(event, said.text)
    tail = b""
    if chunk.obfuscation is not UNSET:
        behind, tail = _around(behind, chunk.obfuscation)
        chunk.obfuscation = "padding"
    other = said.text + "."
    setattr(chunk.choices[0].delta, "content" if isinstance(said, TextDelta) else said.native, other)
    probe = before + other.encode() + behind + (b"padding" + tail if tail else b"")
    try:
        proved = (before + behind + tail).isascii() and PLAIN_CHUNK.decode(probe.removeprefix(b"data:")) == chunk
    except ValueError:
        return None
    if isinstance(said, TextDelta):
        make: Callable[[str], Event] = partial(TextDelta, said.choice)
    else:
        make = partial(ReasoningDelta, said.choice, native=said.native)
    return Mould(before, behind, tail, make, extras) if proved else None


def _around(data: bytes, text: str) -> tuple[bytes, bytes]:
    """What stands before and behind a JSON string, its quotes included."""
    before, _, behind = data.partition(b'"%b"' % text.encode())
    return before + b'"', b'"' + behind
