"""Mould: the bytes that every event of a steady stream repeats, around the one text that changes.

Nearly all events of a healthy stream are the same but for a few words, and for the padding that some providers add
against eavesdroppers. Once it is proved of one event that everything around those stands for itself, an event with the
same bytes around other words says those words and nothing else: no framer and no decoder needs to look at it.
"""

from collections.abc import Callable
from functools import lru_cache, partial

from msgspec import UNSET

from penstock.core.dialects.openai_chat_plain import PLAIN_CHUNK
from penstock.core.events import Event, Extra, ReasoningDelta, TextDelta

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
        self._chunks: ChunkReader | None = None

    @property
    def shape(self) -> tuple[bytes, bytes, bytes]:
        """What stands before a text, behind it, and behind the padding."""
        return self._before, self._behind, self._tail

    @property
    def frames(self) -> int:
        """How many events it has read that nobody else knows of yet."""
        return self._frames + (self._chunks.frames if self._chunks is not None else 0)

    def hand_over(self) -> tuple[int, int, int]:
        """Others will read now: how many events it has read, their bytes, and the bytes of the last one."""
        self._absorb()
        frames, size = self._frames, self._size
        self._frames = self._size = 0
        self._rest = b""
        return frames, size, self._last

    def chunk_reader(self, keep: Callable[[str], int] = len) -> Callable[[bytes], int]:
        """Who reads events each of which comes as one HTTP chunk: how many characters it says; 0 if it is not so.

        `keep` is given the text of each, and says how long it is. Whoever had a reader before uses it no more.
        """
        self._absorb()
        self._chunks = ChunkReader(self, self._padded(), self._extras, keep)
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
        chunks = self._chunks
        if chunks is not None and chunks.frames:
            self._frames += chunks.frames
            self._size += chunks.size
            self._last = chunks.last
            chunks.frames = chunks.size = 0

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


class ChunkReader:
    """Reads events that were cast in one mould, each of which comes as one HTTP chunk.

    `read` is called for nearly every event there is: hence its form. Most end as the last one did.
    """

    __slots__ = (
        "_ahead",
        "_before",
        "_behind",
        "_closing",
        "_extras",
        "_keep",
        "_shut",
        "_tail",
        "frames",
        "last",
        "size",
    )

    def __init__(self, mould: Mould, rest: bytes, extras: dict[str, object], keep: Callable[[str], int]) -> None:
        """`rest` is what stood behind the last text, `extras` are those of the stream."""
        self._before, self._behind, self._tail = mould.shape
        self._ahead = len(self._before)
        self._extras = extras
        self._keep = keep
        self._expect(rest)
        self.frames = self.size = self.last = 0
        """Events that were read, their bytes, and those of the last one."""

    def read(self, chunk: bytes) -> int:
        """How many characters a chunk says; 0 if it was not cast in this mould."""
        line, start, last = _opening(len(chunk))
        if not chunk.startswith(line) or not chunk.startswith(self._before, start):
            return 0
        start += self._ahead
        padding = b""
        if chunk.endswith(self._closing):
            data = chunk[start : self._shut]
        else:
            data, padding = self._parted(chunk, start)
        try:
            text = data.decode()
        except UnicodeDecodeError:
            return 0
        if not text or not text.isprintable() or "\\" in text or '"' in text:
            return 0
        if padding:
            self._extras["obfuscation"] = padding.decode()
            self._expect(self._behind + padding + self._tail)
        self.frames += 1
        self.size += last
        self.last = last
        return self._keep(text)

    def _parted(self, chunk: bytes, start: int) -> tuple[bytes, bytes]:
        """The text and the padding of a chunk that does not end as the last one did; nothing if it is another one."""
        behind, tail = self._behind, self._tail + b"\r\n"
        quote = chunk.find(b'"', start)
        padding = chunk[quote + len(behind) : -len(tail)]
        if self._tail and chunk.startswith(behind, quote) and padding.isalnum() and chunk.endswith(tail):
            return chunk[start:quote], padding
        return b"", b""

    def _expect(self, rest: bytes) -> None:
        self._closing = rest + b"\r\n"
        self._shut = -len(self._closing)


@lru_cache(maxsize=1_024)
def _opening(length: int) -> tuple[bytes, int, int]:
    """How an HTTP chunk of so many bytes begins: its first line, the bytes of that, and the bytes that the chunk has.

    The line of a chunk that there cannot be is one that no chunk begins with.
    """
    for digits in _LIKELY_DIGITS:
        line = b"%x\r\n" % max(length - digits - len(b"\r\n\r\n"), 0)
        if len(line) == digits + len(b"\r\n"):
            return line, len(line), length - len(line) - len(b"\r\n")
    return b"\r\n", len(b"\r\n"), 0


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
