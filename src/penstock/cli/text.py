r"""Escapes untrusted text for terminals.

A stream may contain anything: escape sequences that clear the screen, change the window's title or imitate our own
output. So all text for people is escaped here: a control character becomes visible, as in `\x1b[2J`.
"""

import os
import re

import msgspec

from penstock.core.hub.text import without_line_ends

# C0 except tab and newline, DEL, C1; bidirectional controls; characters that UTF-8 or XML cannot represent.
_UNSAFE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff]"
)
# DEL and C1 as UTF-8, which JSON does not require to be escaped.
_UNSAFE_IN_JSON = re.compile(rb"\x7f|\xc2[\x80-\x9f]")


def visible(text: str) -> str:
    """The text with every control character except tab and newline escaped."""
    return _UNSAFE.sub(lambda match: ascii(match[0])[1:-1], text.replace("\r\n", "\n"))


def one_line(text: str) -> str:
    """The text with every control character escaped, also tab and newline."""
    return visible(text).replace("\t", "\\t").replace("\n", "\\n")


def file_name(path: str) -> str:
    """A path as text; bytes that are not UTF-8 become U+FFFD."""
    return os.fsencode(path).decode(errors="replace")


def counted(count: int, noun: str) -> str:
    """A number of things: `1 file`, `2 files`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def seconds(time_s: float) -> str:
    """A duration for people: `213 ms`, `1.31 s`."""
    return f"{time_s * 1000:.3g} ms" if time_s < 1 else f"{time_s:.2f} s"


def to_json(value: object) -> bytes:
    """The value as JSON on one line, without control characters."""
    return _UNSAFE_IN_JSON.sub(_escaped_in_json, without_line_ends(msgspec.json.encode(value)))


def _escaped_in_json(match: re.Match[bytes]) -> bytes:
    return b"\\u%04x" % ord(match[0].decode())
