r"""Sniffer: detects the framing of a stream by its first bytes. The content type is ignored: it is too often wrong.

| first bytes, after a byte order mark and white space | framing |
|---|---|
| `[` and then `{`, `[` or `]` | one JSON array |
| NUL and lengths that fit together | an AWS event stream |
| `<` | an HTML or XML page: a fault that quotes its text |
| a magic number of binary files, or a control character | compressed or binary: a fault |
| anything else | server-sent events, JSON lines included |
"""

import re
from codecs import getincrementaldecoder

from penstock.core.hub.events import Fault, Repair
from penstock.core.wire.event_stream import PRELUDE, EventStreamReader, is_prelude
from penstock.core.wire.frame import Framed, Framer
from penstock.core.wire.json_array import JsonArrayReader
from penstock.core.wire.sse import BOM, SseReader

_GZIP_MAGIC = b"\x1f\x8b"
# gzip; zstd; UTF-16, which no provider sends on purpose. The first bytes of other binary formats are not text.
_MAGIC_NUMBERS = (_GZIP_MAGIC, b"\x28\xb5\x2f\xfd", b"\xff\xfe", b"\xfe\xff")
# Control characters that no text contains, and JSON only as escapes. (DEL is legal in a JSON string.)
_CONTROL = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f]")
# A line of server-sent events, which may have any bytes in its value.
_FIELD = re.compile(rb"(?:data|event|id|retry)?:")
# This many bytes, or the first line if it is shorter, are enough to distinguish text from anything else.
_TELLING_BYTES = 16
# The beginning of nearly all streams.
_USUAL = re.compile(rb"data: \{[ -~]{%d}" % (_TELLING_BYTES - len("data: {")))
_WHITE_SPACE = b" \t\r\n"
# The bytes at the beginning of an AWS event stream that say whether it can be one.
_LENGTHS = 8
# Enough for the title and the first sentences of an error page.
_PAGE_BYTES = 4096
_PAGE_WORDS = 300
# Leading blank lines are legal. A stream of nothing else is buffered up to this size before it counts as SSE.
_MAX_UNDECIDED = 4096


class Sniffer:
    """A framer that chooses the right framer by the first bytes, and delegates to it.

    `json_lines`: the dialect is framed as JSON lines, so that these are no defect.
    """

    def __init__(self, max_event: int, *, json_lines: bool = False) -> None:
        self._max_event = max_event
        self._json_lines = json_lines
        self._buffered = b""
        self._framer: Framer | None = None

    @property
    def name(self) -> str:
        """The name of the framing; empty while it is unknown."""
        return self._framer.name if self._framer else ""

    @property
    def idle(self) -> bool:
        """Whether it is between two events of a healthy event stream."""
        framer = self._framer
        return isinstance(framer, SseReader) and framer.idle

    @property
    def cut(self) -> bool:
        """Whether the bytes stopped in the middle of a message."""
        return self._framer is not None and self._framer.cut

    def skip(self, events: int, size: int, lines: int) -> tuple[int, int]:
        """Skip healthy events of `lines` lines each, which the fast path has read; return the position after them."""
        if self._framer is None:
            self._framer = SseReader(self._max_event)
        assert isinstance(self._framer, SseReader)  # no other is ever idle
        return self._framer.skip(events, size, lines)

    def feed(self, data: bytes) -> list[Framed]:
        """Read bytes; return the frames that they complete."""
        if self._framer is not None:
            return self._framer.feed(data)
        self._buffered += data
        return self._decide(final=False)

    def close(self) -> list[Framed]:
        """End the stream; return the frames that are still buffered."""
        items = self._decide(final=True) if self._framer is None else []
        return items + (self._framer.close() if self._framer else [])

    def _decide(self, *, final: bool) -> list[Framed]:
        """Choose the framer if the buffered bytes are enough, and feed them to it."""
        buffered = self._buffered
        if _USUAL.match(buffered):
            self._buffered = b""
            self._framer = SseReader(self._max_event)
            return self._framer.feed(buffered)
        if buffered[:1] == b"\0":
            if len(buffered) < PRELUDE and not final:
                return []
            if len(buffered) < _LENGTHS or is_prelude(buffered):
                self._buffered = b""
                self._framer = EventStreamReader(self._max_event)
                return self._framer.feed(buffered)
        if not final and buffered == BOM[: len(buffered)]:
            return []
        items: list[Framed] = []
        start = 0
        if buffered.startswith(BOM):
            items.append(Repair("bom", 0, 1))
            start = len(BOM)
        window = buffered[start:_MAX_UNDECIDED]
        body = window.lstrip(_WHITE_SPACE)
        telling = body[:_TELLING_BYTES].split(b"\n")[0]
        undecided = (len(telling) == len(body) < _TELLING_BYTES) or body.strip(_WHITE_SPACE) == b"["
        if not final and len(buffered) < _MAX_UNDECIDED and undecided:
            return []
        at = start + len(window) - len(body)
        line = 1 + buffered.count(b"\n", 0, at)
        if body[:1] == b"[" and body[1:].lstrip(_WHITE_SPACE)[:1] in (b"{", b"[", b"]"):
            items.append(Repair("json-array", at, line))
            self._framer = JsonArrayReader(self._max_event, offset=at + 1, line=line)
            start = at + 1
        elif body[:1] == b"<":
            self._framer = PageReader(offset=at, line=line)
            start = at
        elif body.startswith(_MAGIC_NUMBERS) or not (_FIELD.match(body) or _is_text(telling)):
            self._framer = BinaryReader(offset=at)
            start = at
        else:
            self._framer = SseReader(self._max_event, offset=start, json_lines=self._json_lines)
        self._buffered = b""
        return items + self._framer.feed(buffered[start:])


def _is_text(data: bytes) -> bool:
    """Whether the data can be the beginning of a text."""
    if _CONTROL.search(data):
        return False
    try:
        getincrementaldecoder("utf-8")().decode(data)  # a character may be cut at the end
    except UnicodeDecodeError:
        return False
    return True


class PageReader:
    """Reads an HTML or XML page in place of a stream: one fault that quotes the text of the page."""

    def __init__(self, *, offset: int, line: int) -> None:
        self.name = "page"
        self.cut = False
        self._at = (offset, line)
        self._page = bytearray()
        self._reported = False

    def feed(self, data: bytes) -> list[Framed]:
        """Read bytes; report the page as soon as there are enough of them to quote."""
        self._page += data[: _PAGE_BYTES - len(self._page)]
        return self._report() if len(self._page) == _PAGE_BYTES else []

    def close(self) -> list[Framed]:
        """End the stream: report the page if it was short."""
        return self._report()

    def _report(self) -> list[Framed]:
        if self._reported:
            return []
        from html import unescape  # noqa: PLC0415 - a large table, which only pages need

        self._reported = True
        page = self._page.decode(errors="replace")
        text = re.sub(r"<(script|style)\b.*?(</\1>|$)|<[^>]*(>|$)", " ", page, flags=re.DOTALL | re.IGNORECASE)
        words = " ".join(unescape(text).split())
        return [Fault("html-page", words[:_PAGE_WORDS] or "a page without words", *self._at)]


class BinaryReader:
    """Reads compressed or other binary bytes in place of a stream: one fault."""

    def __init__(self, *, offset: int) -> None:
        self.name = "binary"
        self.cut = False
        self._offset = offset
        self._reported = False

    def feed(self, data: bytes) -> list[Framed]:
        """Report the fault at the first bytes."""
        if self._reported:
            return []
        self._reported = True
        kind = "gzip-compressed; decompress them first" if data.startswith(_GZIP_MAGIC) else "binary, not text"
        return [Fault("binary", f"the bytes are {kind}", self._offset, 1)]

    def close(self) -> list[Framed]:
        """Return nothing: no bytes are buffered."""
        return []
