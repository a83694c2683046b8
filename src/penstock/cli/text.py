r"""Text that somebody else wrote, made safe to show.

A stream may hold anything: escape sequences that clear the screen, retitle the window or fake our own words. So
whatever is shown to a person passes through here, and a control character becomes its escape, in sight: `\x1b[2J`.
"""

import os
import re

import msgspec

from penstock.core.text import without_line_ends

# C0 but tab and newline, DEL, C1; the marks that reorder a line from within; what UTF-8 or XML cannot carry.
_UNSAFE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff]"
)
# DEL and C1 as UTF-8, which JSON lets stand.
_UNSAFE_IN_JSON = re.compile(rb"\x7f|\xc2[\x80-\x9f]")


def visible(text: str) -> str:
    """The text with every control character but tab and newline escaped."""
    return _UNSAFE.sub(_escaped, text.replace("\r\n", "\n"))


def one_line(text: str) -> str:
    """The same, with tab and newline escaped too."""
    return visible(text).replace("\t", "\\t").replace("\n", "\\n")


def file_name(path: str) -> str:
    """A path as text: bytes in it that are no text are replaced by U+FFFD."""
    return os.fsencode(path).decode(errors="replace")


def counted(count: int, noun: str) -> str:
    """A number of things: `1 file`, `2 files`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def seconds(time_s: float) -> str:
    """A time, as precisely as anybody wants to know it: `213 ms`, `1.31 s`."""
    return f"{time_s * 1000:.3g} ms" if time_s < 1 else f"{time_s:.2f} s"


def dollars(nanodollars: int) -> str:
    """An amount, to the cent, and if it is less, to two figures: `$1.05`, `$0.012`, `$0.00042`."""
    digits = 9 - min(max(len(str(nanodollars)) - 2, 0), 7)
    unit: int = 10 ** (9 - digits)
    whole, rest = divmod((nanodollars + unit // 2) // unit, 10**digits)
    cents, finer = f"{rest:0{digits}}"[:2], f"{rest:0{digits}}"[2:].rstrip("0")
    return f"${whole}.{cents}{finer}"


def to_json(value: object) -> bytes:
    """The value as JSON, in one line, in which terminals find nothing to obey."""
    return _UNSAFE_IN_JSON.sub(_escaped_in_json, without_line_ends(msgspec.json.encode(value)))


def _escaped(found: re.Match[str]) -> str:
    return ascii(found[0])[1:-1]


def _escaped_in_json(found: re.Match[bytes]) -> bytes:
    return b"\\u%04x" % ord(found[0].decode())
