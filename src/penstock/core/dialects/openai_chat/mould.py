"""Mould: the bytes that every event of a steady stream repeats, around the one text that changes.

Nearly all events of a healthy stream are the same but for a few words, and for the padding that some providers add
against eavesdroppers. Once it is proved of one event that everything around those stands for itself, an event with the
same bytes around other words says those words and nothing else: no framer and no decoder needs to look at it.
"""

from collections.abc import Callable
from functools import lru_cache, partial

from msgspec import UNSET

from penstock.core.dialects.openai_chat.plain import PLAIN_CHUNK
from penstock.core.events import Event, Extra, ReasoningDelta, TextDelta

# How many hexadecimal digits the size of a chunk has; nearly all have three.
_LIKELY_DIGITS = (3, 2, 4, 5, 6, 1, 7)


class Mould:
    """The bytes before the text, up to its opening quote, and behind it, from its closing quote on.

    If there is padding `behind` ends with its opening quote, and `tail` begins with its closing one; else `tail` is
    empty. `extras` are those of the stream so far, of which the padding is one.
    """

    __slots__ = (
        "_ahead",
        "_before",
        "_behind",
        "_closing",
        "_extras",
        "_last",
        "_rest",
        "_shut",
        "_size",
        "_tail",
        "frames",
        "keep",
        "said",
    )

    def __init__(
        self, before: bytes, behind: bytes, tail: bytes, said: Callable[[str], Event], extras: dict[str, object]
    ) -> None:
        self._before = before
        self._behind = behind
        self._tail = tail
        self._ahead = len(before)
        self._extras = extras
        self.said = said
        """What makes an event of a text."""
        self.keep: Callable[[str], int] = len
        """Given the text of each event that comes as a chunk; says how long it is."""
        self.frames = self._size = self._last = 0
        """Events that it has read and nobody else knows of yet, their bytes, and those of the last one."""
        # What stood behind the text of the last event; how it ended as a chunk, and where its text did. Not known at
        # first, nor when others have read events since.
        self._rest = b""
        self._closing: bytes | tuple[()] = ()
        self._shut = 0

    @property
    def shape(self) -> tuple[bytes, bytes, bytes]:
        """What stands before a text, behind it, and behind the padding."""
        return self._before, self._behind, self._tail

    def hand_over(self) -> tuple[int, int, int]:
        """Others will read now: how many events it has read, their bytes, and the bytes of the last one."""
        frames, size = self.frames, self._size
        self.frames = self._size = 0
        self._rest = b""
        self._closing = ()
        return frames, size, self._last

    def read_chunk(self, chunk: bytes) -> int:
        """How many characters an event says that comes as one HTTP chunk; 0 if it was not cast in this mould.

        It is called for nearly every event there is: hence its form. Most end as the last one did.
        """
        line, start, last = _opening(len(chunk))
        if not chunk.startswith(line) or not chunk.startswith(self._before, start):
            return 0
        start += self._ahead
        rest = b""
        if chunk.endswith(self._closing):
            data = chunk[start : self._shut]
        else:
            data, rest = self._parted(chunk, start)
        try:
            text = data.decode()
        except UnicodeDecodeError:
            return 0
        if not text or not text.isprintable() or "\\" in text or '"' in text:
            return 0
        if rest:
            self._heed(rest)
        self.frames += 1
        self._size += last
        self._last = last
        return self.keep(text)

    def _parted(self, chunk: bytes, start: int) -> tuple[bytes, bytes]:
        """The text of a chunk that does not end as the last one did, and what is behind it; nothing where it is odd."""
        behind, tail = self._behind, self._tail
        quote = chunk.find(b'"', start)
        if not chunk.startswith(behind, quote) or not chunk.endswith(tail + b"\r\n"):
            return b"", b""
        rest = chunk[quote : -len(b"\r\n")]
        padding = rest[len(behind) : len(rest) - len(tail)]
        if padding.isalnum() if tail else not padding:
            return chunk[start:quote], rest
        return b"", b""

    def _heed(self, rest: bytes) -> None:
        """This stands behind the text of an event. What it is padded with is the padding of the stream now."""
        if self._tail:
            self._extras["obfuscation"] = rest[len(self._behind) : -len(self._tail)].decode()
        self._rest = rest
        self._closing = closing = rest + b"\r\n"
        self._shut = -len(closing)

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
        opening = self._ahead
        closing = data.find(b'"', opening)
        if data[closing:] != self._rest:
            return ""
        text = _plain(data[opening:closing])
        if text:
            self.frames += 1
            self._size += len(data)
            self._last = len(data)
        return text

    def _read_all(self, data: bytes) -> list[Event]:
        """The same, of any number of events with any padding."""
        before, behind, tail = self._before, self._behind, self._tail
        padding = self._extras.get("obfuscation")
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
                self._heed(data[quote:])
                self.frames += frames
                self._size += end
                self._last = end - start
                return events
        return []


@lru_cache(maxsize=1_024)
def _opening(length: int) -> tuple[bytes | tuple[()], int, int]:
    """How an HTTP chunk of so many bytes begins: its first line, the bytes of that, and the bytes that the chunk has.

    There are lengths that no chunk has: nothing begins with the line of such a one.
    """
    for digits in _LIKELY_DIGITS:
        line = b"%x\r\n" % max(length - digits - len(b"\r\n\r\n"), 0)
        if len(line) == digits + len(b"\r\n"):
            return line, len(line), length - len(line) - len(b"\r\n")
    return (), 0, 0


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
