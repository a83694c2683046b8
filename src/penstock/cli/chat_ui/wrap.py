"""Wrap: word wrap for streamed text.

A word may arrive in pieces, and each piece is shown at once. If the next piece does not fit, the start of the word is
erased from the line and written on the next one. Lines of a fenced code block, and words that are longer than a line,
are wrapped by the terminal.
"""

import re

from rich.cells import cell_len

_PARTS = re.compile(r"\n|[ \t]+|[^ \t\n]+")
_TAB = 8
_FENCE = "```"


class Wrap:
    """Turns pieces of text into the output for a terminal."""

    def __init__(self) -> None:
        self._column = 0
        self._word = ""
        self._start = 0  # the column in which the word starts
        self._line = ""
        self._fenced = False

    @property
    def at_margin(self) -> bool:
        """Whether the line is empty so far."""
        return self._column == 0

    def feed(self, text: str, columns: int) -> str:
        """The output for more text. Never uses the last column, in which terminals behave differently."""
        width = max(columns - 1, 1)
        return "".join(self._part(part, width) for part in _PARTS.findall(text))

    def _part(self, part: str, width: int) -> str:
        if part == "\n":
            if self._line.lstrip().startswith(_FENCE):
                self._fenced = not self._fenced
            self._column, self._word, self._line = 0, "", ""
            return "\n"
        self._line += part
        if part.isspace():
            return self._space(part, width)
        return self._piece(part, width)

    def _space(self, part: str, width: int) -> str:
        self._word = ""
        shown = ""
        for character in part:
            shown += " " * (_TAB - (self._column + len(shown)) % _TAB) if character == "\t" else " "
        if not self._fenced and self._column + len(shown) >= width:
            self._column = width  # the next word starts a new line, so the space before it is not needed
            return ""
        self._column += len(shown)
        return shown

    def _piece(self, piece: str, width: int) -> str:
        size, begun = cell_len(piece), cell_len(self._word)
        if not self._word:
            self._start = self._column
        self._word += piece
        if self._column + size <= width:
            self._column += size
            return piece
        if self._fenced or self._start == 0:
            self._column = (self._column + size) % (width + 1)
            return piece
        self._start = 0
        self._column = (begun + size) % (width + 1)
        erase = f"\x1b[{begun}D\x1b[K" if begun else ""
        return f"{erase}\n{self._word}"
