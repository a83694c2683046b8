r"""Captures: files with the bytes that an upstream sent, read by read, with the times (`docs/captures.md`).

    penstock capture 1
    {
      "at": "2026-02-03T10:20:30.123456Z",
      …
    }

    --- 0.412345 s, 58 bytes
    data: {"choices":[{"index":0,"delta":{"content":"Hi"}}]}

    --- 0.430911 s, 3 bytes, 6 escaped
    é\xe2
    --- 0.498120 s, complete

1. The first line names the format and its version. A JSON object follows, then a blank line. Version 2 may name the
   dialect of the stream in that object; a capture without a dialect is written as version 1.
2. Each read is a line with its time and size, followed by its bytes. If the bytes do not end with a newline, one is
   added that does not count. A read without a known time has no time in its line.
3. Bytes that are not text (not UTF-8, or control characters) are written as `\xNN`, and so is a backslash before an
   `x`. The line then also has the number of bytes in the file. So a capture is always text, and always exact.
4. The last line is how the stream ended. A file without it was cut off; its complete reads count.
5. Anything else is an error that names its line. A file that does not begin as in rule 1 is a bare stream.
"""

import re
from typing import Annotated, Literal, TypeAlias, get_args

import msgspec
from msgspec import Meta, Struct

from penstock.core.dialects.detect import Detected, detect
from penstock.core.dialects.registry import providers_speak
from penstock.core.wire.payload import MAX_DEPTH, is_too_deep
from penstock.errors import CaptureError

VERSIONS = (1, 2)
_MAGIC = b"penstock capture "
_MARK = re.compile(
    rb"--- (?:(?P<at>\d{1,9}(?:\.\d{1,9})?) s, )?"
    rb"(?:(?P<size>\d{1,12}) bytes?(?:, (?P<stored>\d{1,12}) escaped)?|(?P<how>[a-z-]+))"
)
# Control characters, which a terminal might execute and an editor might lose. Line ends and tabs are not escaped.
_CONTROL = r"\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f"
_NOT_TEXT = re.compile(f"[{_CONTROL}]")
_TO_ESCAPE = re.compile(rf"[{_CONTROL}\udc80-\udcff]|\\(?=x)")  # the surrogates represent bytes that are not UTF-8
_ESCAPED = re.compile(rb"\\x([0-9a-f]{2})?")
_SHOWN = 60
# How deep the body of the request is in the header.
_REQUEST_DEPTH = 2

How: TypeAlias = Literal["complete", "closed", "reset", "timed-out", "cancelled", "abandoned", "invalid", "limit"]
"""How the body ended: it is complete by HTTP framing; the upstream closed, or reset, the connection before that; a
timeout; the client disconnected; Penstock stopped reading; it was not valid HTTP; the capture reached its limit."""

HOWS: tuple[How, ...] = get_args(How)


class CaptureRequest(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """The request, without headers. `omitted` is the reason if the body was left out."""

    method: str
    path: str
    body: object = None
    omitted: str = ""


class CaptureHeader(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """The metadata of a stream. `status` is None if no response head arrived."""

    at: str = ""
    call: str = ""
    attempt: Annotated[int, Meta(ge=1)] = 1
    provider: str = ""
    model: str = ""
    dialect: str = ""
    request: CaptureRequest | None = None
    status: Annotated[int, Meta(ge=200, le=999)] | None = None
    head_s: Annotated[float, Meta(ge=0)] | None = None
    headers: dict[str, str] = {}


class _HeaderVersion(Struct):
    """The field of a header that decides the version of the format."""

    dialect: str = ""


class Read(Struct, frozen=True, gc=False):
    """The bytes of one read, and its time in seconds after the request; None if the time is unknown."""

    at_s: float | None
    data: bytes


class CaptureEnd(Struct, frozen=True):
    """How the body ended, and when."""

    at_s: float | None
    how: How


class Capture(Struct, frozen=True):
    """A recorded stream. Without a `closing` the file was cut off; `cut_off` describes where."""

    header: CaptureHeader
    reads: tuple[Read, ...]
    closing: CaptureEnd | None = None
    cut_off: str = ""

    @property
    def data(self) -> bytes:
        """The whole body."""
        return b"".join(read.data for read in self.reads)

    @property
    def timed(self) -> bool:
        """Whether the times of its reads are known."""
        return bool(self.reads) and all(read.at_s is not None for read in self.reads)


class CaptureWriter:
    """Encodes a capture piece by piece, so that it can be written while it is recorded."""

    def begin(self, header: CaptureHeader | bytes) -> bytes:
        """The beginning of the file. A header given as bytes must be JSON; raises `msgspec.DecodeError` otherwise."""
        encoded = header if isinstance(header, bytes) else msgspec.json.encode(header)
        pretty = msgspec.json.format(encoded, indent=2).decode()
        version = 2 if msgspec.json.decode(encoded, type=_HeaderVersion).dialect else 1
        return b"%b%d\n%b\n\n" % (
            _MAGIC,
            version,
            _NOT_TEXT.sub(lambda match: f"\\u{ord(match[0]):04x}", pretty).encode(),
        )

    def read(self, read: Read) -> bytes:
        """One read."""
        stored = _escape(read.data)
        size = b"%d bytes" % len(read.data)
        if stored is None:
            stored = read.data
        else:
            size += b", %d escaped" % len(stored)
        return b"--- %b%b\n%b%b" % (_time(read.at_s), size, stored, b"" if stored.endswith(b"\n") else b"\n")

    def end(self, closing: CaptureEnd) -> bytes:
        """The last line."""
        return b"--- %b%b\n" % (_time(closing.at_s), closing.how.encode())


def dump(capture: Capture) -> bytes:
    """A capture as a file."""
    writer = CaptureWriter()
    parts = [writer.begin(capture.header), *map(writer.read, capture.reads)]
    if capture.closing is not None:
        parts.append(writer.end(capture.closing))
    return b"".join(parts)


def is_capture(data: bytes) -> bool:
    """Whether a file with this beginning is a capture, and not a bare stream."""
    return data.startswith(_MAGIC)


def parse(data: bytes) -> Capture:
    """The capture in a file. A bare stream becomes a single read without a time. Raises `CaptureError`."""
    return locate(data)[0]


def locate(data: bytes) -> tuple[Capture, list[int]]:
    """The capture in a file, and the line on which the bytes of each read begin. Raises `CaptureError`."""
    if is_capture(data):
        parser = _Parser(data)
        return parser.parse(), parser.lines
    reads = (Read(None, data),) if data else ()
    return Capture(CaptureHeader(status=200), reads, CaptureEnd(None, "complete")), [1] * len(reads)


def dialect_of(capture: Capture) -> Detected:
    """The dialect of a capture: the one that it names if that is registered, else the detected one."""
    header = capture.header
    if header.dialect in providers_speak():
        return Detected(header.dialect, "capture")
    path = header.request.path if header.request is not None else ""
    content_type = next((value for name, value in header.headers.items() if name.lower() == "content-type"), "")
    return detect((read.data for read in capture.reads), path, content_type)


class _Parser:
    """Parses a file that begins as a capture does."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0
        self._line = 1
        self._clock_s = 0.0
        self._reads: list[Read] = []
        self.lines: list[int] = []

    def parse(self) -> Capture:
        header = self._header()
        closing = None
        cut_off = ""
        while closing is None and not cut_off:
            number = self._line
            line = self._next_line()
            if line is None:
                rest = self._data[self._at :]
                cut_off = f"line {number} is not whole" if rest else f"after line {number - 1} there is no end"
                break
            mark = _MARK.fullmatch(line)
            if mark is None:
                raise CaptureError(number, f"expected `--- TIME s, SIZE bytes`, not {_shown(line)}; was it edited?")
            at_s = self._time(mark["at"], number)
            if mark["how"] is not None:
                closing = CaptureEnd(at_s, _how(mark["how"], number))
            elif not self._read(at_s, int(mark["size"]), mark["stored"], number):
                cut_off = f"the read in line {number} is not whole"
        if closing is not None and self._at < len(self._data):
            raise CaptureError(self._line, f"something follows the end: {_shown(self._data[self._at :])}")
        return Capture(header, tuple(self._reads), closing, cut_off)

    def _header(self) -> CaptureHeader:
        first = self._next_line() or self._data
        if first.endswith(b"\r"):
            raise CaptureError(1, "the lines end with CR LF: an editor, or git's autocrlf, has changed the bytes")
        version = first.removeprefix(_MAGIC)
        if version not in [b"%d" % known for known in VERSIONS]:
            known = " and ".join(map(str, VERSIONS))
            message = f"this is version {_shown(version)} of the format, and this Penstock reads versions {known}"
            raise CaptureError(1, f"{message}; a newer Penstock may read it")
        end = self._data.find(b"\n\n", self._at)
        if end < 0:
            raise CaptureError(2, "the header has no end (a blank line): the file was cut off too early to be of use")
        text = self._data[self._at : end]
        if is_too_deep(text, most=MAX_DEPTH + _REQUEST_DEPTH):
            raise CaptureError(2, "the header is nested too deep")
        try:
            header = msgspec.json.decode(text, type=CaptureHeader)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise CaptureError(2, f"the header is not as it should be: {error}") from None
        self._move(end + 2)
        return header

    def _read(self, at_s: float | None, size: int, escaped: bytes | None, number: int) -> bool:
        """Parse the bytes of a read; return False if the file ends before them."""
        length = size if escaped is None else int(escaped)
        stored = self._data[self._at : self._at + length]
        if len(stored) < length:
            return False
        begins = self._line
        self._move(self._at + length)
        if not stored.endswith(b"\n") and self._at < len(self._data):
            if self._data[self._at : self._at + 1] != b"\n":
                message = f"the bytes that line {number} announces do not end with this line; was it edited?"
                raise CaptureError(self._line, message)
            self._move(self._at + 1)
        data = stored if escaped is None else _unescape(stored, size, number)
        self._reads.append(Read(at_s, data))
        self.lines.append(begins)
        return True

    def _time(self, text: bytes | None, number: int) -> float | None:
        if text is None:
            return None
        at_s = float(text)
        if at_s < self._clock_s:
            raise CaptureError(number, f"{at_s:g} s is before the {self._clock_s:g} s of the line above it")
        self._clock_s = at_s
        return at_s

    def _next_line(self) -> bytes | None:
        """The next line, without its line end; None if it has none."""
        end = self._data.find(b"\n", self._at)
        if end < 0:
            return None
        line = self._data[self._at : end]
        self._move(end + 1)
        return line

    def _move(self, to: int) -> None:
        self._line += self._data.count(b"\n", self._at, to)
        self._at = to


def _how(word: bytes, number: int) -> How:
    for how in HOWS:
        if word == how.encode():
            return how
    raise CaptureError(number, f"a capture ends in one of {', '.join(HOWS)}, not {_shown(word)}")


def _time(at_s: float | None) -> bytes:
    return b"" if at_s is None else b"%.6f s, " % at_s


def _escape(data: bytes) -> bytes | None:
    """The bytes escaped by rule 3; None if they need no escapes."""
    try:
        if not _NOT_TEXT.search(data.decode()):
            return None
    except UnicodeDecodeError:
        pass
    text = data.decode(errors="surrogateescape")
    return _TO_ESCAPE.sub(_escape_bytes, text).encode()


def _escape_bytes(match: re.Match[str]) -> str:
    return "".join(f"\\x{byte:02x}" for byte in match[0].encode(errors="surrogateescape"))


def _unescape(stored: bytes, size: int, number: int) -> bytes:
    if any(escape[1] is None for escape in _ESCAPED.finditer(stored)):
        raise CaptureError(number, "an escape below this line is not `\\x` and two digits of 0-9a-f; was it edited?")
    data = _ESCAPED.sub(lambda escape: bytes.fromhex(escape[1].decode()), stored)
    if len(data) != size:
        raise CaptureError(number, f"the bytes below this line come to {len(data)}, not {size}; was it edited?")
    return data


def _shown(data: bytes) -> str:
    text = ascii(data[:_SHOWN].decode(errors="replace"))
    return f"{text}…" if len(data) > _SHOWN else text
