r"""Server-sent events, read the way providers really write them.

The standard is simple: lines end with LF, CRLF or CR; a line is a comment (`:`), a field (`name: value`) or blank; a
blank line dispatches the event. Followed to the letter it silently loses events that providers write wrongly, so this
reader deviates from it, by these rules:

1. Lines end at CR and LF bytes only. U+2028, U+2029 and U+0085 are text.
2. An event ends at a blank line, or where the next one begins: a `data:` line that follows *whole* JSON opens a new
   event (`missing-blank-line`). Wholeness is a matter of closed brackets and strings, never of lines.
3. A line without a field name continues the open event while its JSON is not whole (`json-on-next-line`,
   `unprefixed-continuation`), or is an event of its own if it opens with a bracket (`no-data-prefix`; a stream that
   starts so is called `json-lines`).
4. Once a stream has left out a blank line, its events are dispatched as soon as their JSON is whole. The client does
   not have to wait for the next line.
5. At the end of the bytes an open event counts if its JSON is whole. Otherwise the stream was cut, and `cut` is true.
6. A field that the standard does not have is skipped. So is `data` in capitals or indented without JSON behind it,
   unless the open event began so. A byte order mark before any line is skipped.
7. `data:` must have been seen for anything to be dispatched: `id:`, `retry:` or `event:` alone dispatch nothing.
8. No line and no event may exceed `max_event` bytes: past that the reader faults and reads nothing more.
"""

import re

from penstock.core.hub.events import Fault, Repair
from penstock.core.wire.complexity import SMALL
from penstock.core.wire.frame import Frame, Framed
from penstock.core.wire.payload import decode, is_json
from penstock.core.wire.scan import JsonScan

_BLANK_LINES = frozenset((b"\n", b"\r\n", b"\r"))
_FIELD_NAMES = (b"data", b"event", b"id", b"retry", b"error")
_FIELDS_OF_THE_STANDARD = _FIELD_NAMES[:4]
# An unknown field: in lower case, as all fields are, and without JSON in its value. Any other line is text.
_UNKNOWN_FIELD = re.compile(rb"[a-z][a-z0-9_-]*:[^{]*\Z")
_QUOTED_CHARACTERS = 500
BOM = b"\xef\xbb\xbf"
_CR = ord("\r")


class SseReader:
    """Splits an event stream into frames."""

    name = "sse"
    cut = False
    _dead = False
    # Whether the last line end was a CR that an LF may still follow.
    _after_cr = False
    # The open event: its lines, whether its first line was found to be whole JSON, how many of its bytes `_scan` has
    # seen, its name.
    _lines = 0
    _whole_line = False
    _scanned = 0
    _event = ""
    _next_event = ""
    _begun = False
    _bare = False
    _continued = False
    _blank_data = False
    _misspelled = False
    # What is known of the whole stream: its frames, and whether it leaves out blank lines.
    _frames = 0
    _eager = False
    _unseparated = False

    def __init__(self, max_event: int, *, offset: int = 0, line: int = 1, json_lines: bool = False) -> None:
        """`json_lines`: a stream of JSON lines is no defect."""
        self._max_event = max_event
        self._json_lines = json_lines
        self._tail = bytearray()  # the bytes after the last line end
        self._offset = offset
        self._line = line
        self._data = bytearray()  # the lines of the open event, each with LF at its end
        self._scan = JsonScan()
        self._at = (offset, line)  # where it began

    @property
    def idle(self) -> bool:
        """Whether it is between two events of a stream without framing defects."""
        return not (self._tail or self._begun or self._after_cr or self._eager or self._unseparated or self._dead)

    def skip(self, events: int, size: int, lines: int) -> tuple[int, int]:
        """Skip healthy events of `lines` lines each, which the fast path has read; return the position after them."""
        self._offset += size
        self._line += lines * events
        self._frames += events
        return self._offset, self._line

    def feed(self, data: bytes) -> list[Framed]:
        """Read bytes; return the frames that they complete."""
        if (
            data[:5] == b"data:"
            and data[-2:] == b"\n\n"
            and data.find(b"\n") == len(data) - 2
            and not (self._begun or self._tail or self._eager or self._unseparated or self._after_cr or self._dead)
            and len(data) < self._max_event
            and _CR not in data
        ):  # the common case: one healthy event
            frame = Frame(data[5:-1], self._offset, self._line)
            self._offset += len(data)
            self._line += 2
            self._frames += 1
            return [frame]
        items: list[Framed] = []
        if self._after_cr and data:
            self._after_cr = False
            if data[:1] == b"\n":
                self._offset += 1
                data = data[1:]
        end = data.rfind(b"\n") + 1
        if _CR in data:
            end = max(end, data.rfind(b"\r") + 1)
        if end:
            lines = data[:end].splitlines(keepends=True)
            if self._tail:
                lines[0] = bytes(self._tail) + lines[0]
                self._tail.clear()
            self._after_cr = end == len(data) and data[end - 1 :] == b"\r"
            for line in lines:
                if line in _BLANK_LINES:
                    if self._begun:
                        self._end_event(items)
                    self._unseparated = False
                elif len(line) > self._max_event and len(line.rstrip(b"\r\n")) > self._max_event:
                    self._die(items)
                elif line[:5] == b"data:":
                    self._add_data(line[5:], items)
                else:
                    self._read_line(line, items)
                if self._dead:
                    return items
                self._offset += len(line)
                self._line += 1
        if not self._dead:
            self._tail += data[end:]
            if len(self._tail) > self._max_event:
                self._die(items)
        return items

    def close(self) -> list[Framed]:
        """End the stream: return the last frame if it is whole, else set `cut`."""
        items: list[Framed] = []
        unterminated = bytes(self._tail)
        self._tail.clear()
        if unterminated.strip():
            frames_before = self._frames
            if self._is_fragment(unterminated):
                self.cut = True
            else:
                self._read_line(unterminated, items)
            if self._frames > frames_before and self.name == "sse":
                items.append(Repair("no-final-newline", *self._at))
        if not self._begun or self._dead:
            return items
        if not self._whole() or not (self._scan.closed or self._is_readable()):
            self.cut = True
            return items
        self._dispatch(items)
        if self.name == "sse":
            items.append(Repair("no-final-newline" if unterminated else "no-final-blank-line", *self._at))
        return items

    def _add_data(self, value: bytes, items: list[Framed], *, bare: bool = False) -> None:
        """Read a line of data. It opens an event, continues the open one, or ends the open one if its JSON is whole."""
        if self._lines:
            if self._whole():
                if not value.strip() and not bare:
                    self._blank_data = True  # an empty line of data, which is legal
                    return
                name, self._next_event = self._next_event, ""
                self._dispatch(items)
                self._event = name
                self._eager = self._unseparated = True
            elif not bare and (self._scan.in_string or self._eager) and value.lstrip()[:1] == b"{":
                # No JSON string runs on into another `data:` line, and where each event has one line none has two: the
                # open event is damaged, the next one begins.
                self._dispatch(items)
        if not self._lines:
            if self._unseparated and not (bare and self.name == "json-lines"):
                items.append(self._repair("missing-blank-line"))
            self._unseparated = False
            if not self._begun:
                self._at = (self._offset, self._line)
                self._begun = True
            self._bare = bare
        if _CR in value:
            value = value.rstrip(b"\r\n") + b"\n"
        self._data += value[1:] if self._lines and not bare and value[:1] == b" " else value
        self._lines += 1
        if len(self._data) > self._max_event:
            self._die(items)
        elif self._eager and self._whole():
            self._dispatch(items)
            self._unseparated = True

    def _read_line(self, line: bytes, items: list[Framed]) -> None:
        """Read any line other than a blank line and a healthy `data:` line."""
        while line.startswith(BOM):
            items.append(self._repair("bom"))
            line = line[len(BOM) :]
        content = line.strip()
        if not content:
            if self._begun or self._unseparated:
                items.append(self._repair("blank-line-with-spaces"))
                self._end_event(items)
                self._unseparated = False
            return
        name, colon, value = line.partition(b":")
        field = name.strip().lower()
        known = field in _FIELDS_OF_THE_STANDARD or (colon and field in _FIELD_NAMES)
        if content[:1] == b":" or (known and field != b"data"):
            if self._lines and not self._whole() and self._scan.in_string:
                # A comment, or text of a string with a raw newline: ambiguous, so the event counts as damaged.
                self._dispatch(items)
            if content[:1] == b":":
                return
        if known:
            if name.strip(b"\r\n") != field:
                if field == b"data" and not self._misspelled and value.lstrip()[:1] not in (b"{", b"["):
                    items.append(self._repair("unknown-field", name.decode(errors="replace")))
                    return
                items.append(self._repair("field-misspelled", name.strip().decode(errors="replace")))
                self._misspelled = field == b"data"
            self._read_field(field, value, items)
        elif self._lines and not self._whole() and (self._scan.in_string or not _UNKNOWN_FIELD.match(content)):
            self._continue_event(line, items)
        elif content[:1] in (b"{", b"["):
            self._read_bare(line, items)
        elif _UNKNOWN_FIELD.match(content):
            items.append(self._repair("unknown-field", name.decode(errors="replace")))
        else:
            message = content[:_QUOTED_CHARACTERS].decode(errors="replace")
            if content.startswith(b"HTTP/"):
                message += " (HTTP headers precede the stream: record only its body)"
            items.append(Fault("not-a-stream", message, self._offset, self._line))

    def _read_field(self, field: bytes, value: bytes, items: list[Framed]) -> None:
        if field == b"data":
            self._add_data(value or b"\n", items)
        elif field == b"error":
            self._end_event(items)
            items.append(self._repair("error-field"))
            self._event = "error"
            self._add_data(value, items)
        elif field != b"retry":
            if not self._begun:
                self._at = (self._offset, self._line)
                self._begun = True
            if field == b"event":
                name = value.strip().decode(errors="replace")
                if self._lines:
                    self._next_event = name  # of this event if a blank line follows, of the next one if data does
                else:
                    self._event = name

    def _continue_event(self, line: bytes, items: list[Framed]) -> None:
        if not self._bare and not self._continued:
            items.append(self._repair("unprefixed-continuation" if self._data.strip() else "json-on-next-line"))
            self._continued = True
        self._add_data(line, items, bare=True)

    def _read_bare(self, line: bytes, items: list[Framed]) -> None:
        """Read a line without a prefix that opens with a bracket: an event of its own."""
        if self._blank_data:
            # Its `data:` prefix is alone on the line before, which was taken for an empty line of the previous event.
            self._dispatch(items)
            items += (self._repair("missing-blank-line"), self._repair("json-on-next-line"))
            self._eager = True
            self._add_data(line, items, bare=True)
            return
        if not self._frames and not self._begun:
            self.name = "json-lines"
            self._eager = True
        elif self.name != "json-lines":
            items.append(self._repair("no-data-prefix"))
        elif self._frames == 1 and not self._lines and not self._json_lines:
            items.append(self._repair("json-lines"))
        self._add_data(line, items, bare=True)
        if self._lines and self._whole():
            self._dispatch(items)
            self._unseparated = True

    def _end_event(self, items: list[Framed]) -> None:
        """Read a blank line: dispatch the open event, unless it is bare JSON, where a blank line is white space."""
        if self._bare and self._lines and not self._whole() and not self._scan.in_string:
            return
        if self._event == "error" or self._next_event == "error":
            self._lines = self._lines or 1  # an error without data is still an error
        if self._lines:
            self._event = self._next_event or self._event
            self._next_event = ""
            self._dispatch(items)
        self._event = self._next_event = ""
        self._begun = False

    def _dispatch(self, items: list[Framed]) -> None:
        items.append(Frame(self._joined(), *self._at, self._event))
        self._frames += 1
        self._data.clear()
        self._lines = 0
        self._whole_line = False
        if self._scanned:
            self._scan = JsonScan()
            self._scanned = 0
        self._event = ""
        self._begun = self._bare = self._continued = self._blank_data = self._misspelled = False

    def _joined(self) -> bytes:
        data = bytes(self._data)
        return data if self._lines == 1 else data.removesuffix(b"\n")

    def _whole(self) -> bool:
        """Whether the open event's JSON is whole; each byte is parsed and scanned once at most."""
        if not self._scanned and self._lines == 1:
            self._whole_line = self._whole_line or is_json(self._data)
            if self._whole_line:
                return True
        if self._scanned < len(self._data):
            self._scan.feed(bytes(self._data[self._scanned :]))
            self._scanned = len(self._data)
        return self._scan.whole

    def _is_readable(self) -> bool:
        data = self._joined()
        return is_json(data) if len(data) > SMALL else decode(data) is not None

    def _is_fragment(self, line: bytes) -> bool:
        """Whether an unterminated line is the beginning of a field's name, and so of an event that never arrived."""
        return any(field.startswith(line.strip()) for field in _FIELDS_OF_THE_STANDARD)

    def _repair(self, code: str, detail: str = "") -> Repair:
        return Repair(code, self._offset, self._line, detail)

    def _die(self, items: list[Framed]) -> None:
        """Emit a fault for an event over the limit, drop the buffer, and read no more."""
        message = f"an event exceeds {self._max_event} bytes"
        items.append(Fault("event-too-large", message, self._offset, self._line))
        self._dead = True
        self._tail.clear()
        self._data.clear()
        self._lines = 0
        self._begun = False
