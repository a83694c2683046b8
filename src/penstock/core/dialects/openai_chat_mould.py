"""Mould: the bytes that every event of a steady stream repeats, around the one text that changes.

Nearly all events of a healthy stream are the same but for a few words, and for the padding that some providers add
against eavesdroppers. Once it is proved of one event that everything around those stands for itself, an event with the
same bytes around other words says those words and nothing else: no framer and no decoder needs to look at it.
"""

from collections.abc import Callable
from functools import lru_cache, partial
from sys import maxsize
from typing import NamedTuple, Protocol

from msgspec import UNSET

from penstock.core.dialects.openai_chat_plain import PLAIN_CHUNK
from penstock.core.events import Event, Extra, ReasoningDelta, TextDelta

# Lengths of chunks for which it is remembered how they begin; few streams have more than fifty.
_MOST_LENGTHS = 256
# How many hexadecimal digits the size of a chunk has; nearly all have three.
_LIKELY_DIGITS = (3, 2, 4, 5, 6, 1, 7)


class Mould:
    """The bytes before the text, up to its opening quote, and behind it, from its closing quote on.

    If there is padding `behind` ends with its opening quote, and `tail` begins with its closing one; else `tail` is
    empty. `extras` are those of the stream so far, of which the padding is one.
    """

    __slots__ = ("_before", "_behind", "_chunks", "_extras", "_frames", "_last", "_rest", "_size", "_tail", "said")

    def __init__(
        self, before: bytes, behind: bytes, tail: bytes, said: Callable[[str], Event], extras: dict[str, object]
    ) -> None:
        self._before = before
        self._behind = behind
        self._tail = tail
        self.said = said
        """What makes an event of a text."""
        self._extras = extras
        # What stood behind the text of the last event that it has read; empty when others have read events since.
        self._rest = b""
        self._frames = self._size = self._last = 0
        self._chunks: _Chunks | None = None

    @property
    def shape(self) -> tuple[bytes, bytes, bytes]:
        """What stands before a text, behind it, and behind the padding."""
        return self._before, self._behind, self._tail

    @property
    def frames(self) -> int:
        """How many events it has read that nobody else knows of yet."""
        return self._frames + (self._chunks.frames() if self._chunks else 0)

    def hand_over(self) -> tuple[int, int, int]:
        """Others will read now: how many events it has read, their bytes, and the bytes of the last one."""
        self._absorb()
        frames, size = self._frames, self._size
        self._frames = self._size = 0
        self._rest = b""
        return frames, size, self._last

    def chunk_reader(self, keep: Callable[[str], int] = len, longest: int = maxsize) -> Callable[[bytes], int]:
        """Who reads events each of which comes as one HTTP chunk: how many characters it says; 0 if it is not so.

        `keep` is given the text of each, and says how long it is. A chunk may have so many bytes. Whoever had a reader
        before uses it no more.
        """
        self._absorb()
        self._chunks = _read_chunks(self.shape, self._padded(), self._extras, keep, longest)
        return self._chunks.read

    def read(self, data: bytes) -> list[Event]:
        """What events say that were cast in this mould; nothing if there is anything else in the data.

        Texts with escapes, and with characters that somebody takes for a line end, are left to the decoder.
        """
        if not data.startswith(self._before):
            return []
        text = self._text(data)
        return [self.said(text)] if text else self._read_all(data)

    def _text(self, data: bytes) -> str:
        """The common case: what one event says that has the same padding as the last one."""
        opening = len(self._before)
        closing = data.find(b'"', opening)
        if data[closing:] != self._rest:
            return ""
        text = _plain(data[opening:closing])
        if text:
            self._frames += 1
            self._size += len(data)
            self._last = len(data)
        return text

    def _absorb(self) -> None:
        """Count what was read in chunks as its own."""
        frames, size, last = self._chunks.taken(reset=True) if self._chunks is not None else (0, 0, 0)
        if frames:
            self._frames += frames
            self._size += size
            self._last = last

    def _padded(self) -> bytes:
        """What stands behind a text, with the padding of the last event."""
        padding = str(self._extras["obfuscation"]).encode() if self._tail else b""
        return self._behind + padding + self._tail

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
            events.append(self.said(text))
            frames += 1
            if end == len(data):
                if padding is not told:
                    self._extras["obfuscation"] = padding
                self._frames += frames
                self._size += end
                self._last = end - start
                self._rest = data[quote:]
                return events
        return []


class _Taken(Protocol):
    """How many events were taken, their bytes, and those of the last one; from now on, if they are to be reset."""

    def __call__(self, *, reset: bool = False) -> tuple[int, int, int]: ...


class _Chunks(NamedTuple):
    """Reads events that are HTTP chunks, and tells what it has taken."""

    read: Callable[[bytes], int]
    frames: Callable[[], int]
    taken: _Taken


def _read_chunks(
    shape: tuple[bytes, bytes, bytes], rest: bytes, extras: dict[str, object], keep: Callable[[str], int], longest: int
) -> _Chunks:
    """The same as `Mould.read`, of events that are HTTP chunks. Called for nearly every event there is: hence its form.

    A chunk of some length that was cast in this mould can begin in one way only; and most end as the last one did.
    """
    # By its length: how a chunk begins, how many bytes that is, and how many are behind it.
    openings: dict[int, tuple[bytes, int, int]] = {}
    before, behind, tail = shape
    closing, tail = rest + b"\r\n", tail + b"\r\n"
    shut, padded = len(closing), len(tail) > len(b"\r\n")
    # Events, their bytes but for what they have in common, and those of the last one.
    frames = size = last = 0

    def read(chunk: bytes) -> int:
        nonlocal frames, size, last, closing, shut
        known = openings.get(len(chunk))
        if known is None:
            if len(chunk) > longest:
                return 0
            if len(openings) == _MOST_LENGTHS:
                openings.clear()
            opening = _opening(len(chunk)) + before
            known = openings[len(chunk)] = (opening, len(opening), len(chunk) - len(opening))
        opening, start, length = known
        if not chunk.startswith(opening):
            return 0
        padding = b""
        if chunk.endswith(closing):
            data = chunk[start:-shut]
        elif padded:
            quote = chunk.find(b'"', start)
            padding = chunk[quote + len(behind) : -len(tail)]
            if not (chunk.startswith(behind, quote) and padding.isalnum() and chunk.endswith(tail)):
                return 0
            data = chunk[start:quote]
        else:
            return 0
        try:
            text = data.decode()
        except UnicodeDecodeError:
            return 0
        if not text or not text.isprintable() or "\\" in text or '"' in text:
            return 0
        if padding:
            extras["obfuscation"] = padding.decode()
            closing = behind + padding + tail
            shut = len(closing)
        frames += 1
        size += length
        last = length
        return keep(text)

    def taken(*, reset: bool = False) -> tuple[int, int, int]:
        nonlocal frames, size
        common = len(before) - len(b"\r\n")
        told = frames, size + frames * common, last + common
        if reset:
            frames = size = 0
        return told

    return _Chunks(read, lambda: frames, taken)


@lru_cache(maxsize=1_024)
def _opening(length: int) -> bytes:
    """How an HTTP chunk of so many bytes begins, its line end included; what no chunk begins with, if there is none."""
    for digits in _LIKELY_DIGITS:
        line = b"%x\r\n" % max(length - digits - len(b"\r\n\r\n"), 0)
        if len(line) == digits + len(b"\r\n"):
            return line
    return b"\r\n"


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
