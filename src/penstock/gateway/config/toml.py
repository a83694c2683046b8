"""TOML with line numbers: what the file says, and on which line it says it.

`tomllib` reads the file and judges it, but forgets the lines. So a small scanner goes over the same text once more and
notes where each key, table and list item begins. It may assume valid TOML: `tomllib` has had its say before.
"""

import re
import tomllib
from bisect import bisect_left
from typing import NoReturn, TypeAlias

from msgspec import Struct

from penstock.errors import ConfigError, Problem

# The way to a value: keys, and indices of lists.
Path: TypeAlias = tuple[str | int, ...]

_PLACE = re.compile(r" \(at (?:line (\d+), column \d+|end of document)\)$")
_BLANK = re.compile(r"(?:[ \t\r\n]+|#[^\n]*)*")
_SPACE = re.compile(r"[ \t]*")
_KEY_PART = re.compile(r""" [A-Za-z0-9_-]+ | "(?:\\.|[^"\\])*" | '[^']*' """, re.VERBOSE)
# Longer forms first. A multi-line string may end in as many as five quotes, two of them its own.
_SCALAR = re.compile(
    r''' """(?:\\.|[^\\])*?"{3,5}
       | \'\'\'.*?'{3,5}
       | "(?:\\.|[^"\\])*"
       | '[^']*'
       | \d{4}-\d\d-\d\d[ ]\d\d:[^\s,\]}#]+     # a date and a time with a space between them
       | [^\s,\]}#]+ ''',
    re.VERBOSE | re.DOTALL,
)
_BARE = re.compile(r"[A-Za-z0-9_-]+")


class Document(Struct, frozen=True):
    """A TOML file: its data, and the line of each path in them."""

    file: str
    data: dict[str, object]
    lines: dict[Path, int]

    def line(self, path: Path) -> int | None:
        """The line of a path, or of the nearest thing around it."""
        while path:
            if path in self.lines:
                return self.lines[path]
            path = path[:-1]
        return None


def parse(data: bytes, file: str) -> Document:
    """Read a TOML file; a file that is not TOML raises `ConfigError` with the line."""
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        _fail(file, line, f"byte 0x{data[error.start]:02x} is not UTF-8; save the file as UTF-8")
    try:
        parsed = tomllib.loads(text)
        return Document(file, parsed, _Scanner(text).scan())
    except tomllib.TOMLDecodeError as error:
        message = str(error)
        place = _PLACE.search(message)
        line = int(place[1]) if place and place[1] else text.count("\n", 0, len(text.rstrip())) + 1
        _fail(file, line, f"not valid TOML: {_PLACE.sub('', message)}")
    except RecursionError:
        _fail(file, 1, "lists or tables are nested too deep")


def dotted(path: Path) -> str:
    """A path as one would write it: `routes.fast.targets[1]`. Whatever is not a bare key is quoted and escaped."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            text += ("." if text else "") + (part if _BARE.fullmatch(part) else _quoted(part))
    return text


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + "".join(char if char.isprintable() else ascii(char)[1:-1] for char in escaped) + '"'


def _fail(file: str, line: int, message: str) -> NoReturn:
    raise ConfigError((Problem(file, line, "", message),)) from None


class _Scanner:
    """Walks over valid TOML and notes the line of every path."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._newlines = [found.start() for found in re.finditer("\n", text)]
        self._lines: dict[Path, int] = {}
        # The index of the last table in each array of tables: where `[name]` and `[[name.more]]` go on.
        self._last: dict[Path, int] = {}

    def scan(self) -> dict[Path, int]:
        table: Path = ()
        while self._skip(_BLANK) < len(self._text):
            if self._next("[["):
                table = self._table_of_array()
            elif self._next("["):
                table = self._table()
            else:
                self._pair(table)
        return self._lines

    def _table(self) -> Path:
        line = self._line()
        path: Path = ()
        for part in self._key():
            path = self._enter((*path, part), line)
        self._take("]")
        self._lines[path] = line  # its own header, though `[name.more]` may have stood before it
        return path

    def _table_of_array(self) -> Path:
        line = self._line()
        *parents, name = self._key()
        path: Path = ()
        for part in parents:
            path = self._enter((*path, part), line)
        path = (*path, name)
        self._take("]")
        self._take("]")
        self._lines.setdefault(path, line)
        self._last[path] = self._last.get(path, -1) + 1
        path = (*path, self._last[path])
        self._lines[path] = line
        return path

    def _enter(self, path: Path, line: int) -> Path:
        self._lines.setdefault(path, line)
        return (*path, self._last[path]) if path in self._last else path

    def _pair(self, table: Path) -> None:
        line = self._line()
        path = table
        for part in self._key():
            path = (*path, part)
            self._lines.setdefault(path, line)
        self._take("=")
        self._value(path)

    def _key(self) -> list[str]:
        parts = []
        while True:
            self._skip(_SPACE)
            found = _KEY_PART.match(self._text, self._at)
            assert found is not None
            self._at = found.end()
            # tomllib knows the escapes.
            parts.append(found[0] if found[0][0] not in "\"'" else next(iter(tomllib.loads(f"{found[0]}=0"))))
            self._skip(_SPACE)
            if not self._next("."):
                return parts

    def _value(self, path: Path) -> None:
        self._skip(_SPACE)
        if self._next("["):
            self._list(path)
        elif self._next("{"):
            while not self._ends("}"):
                self._pair(path)
        else:
            found = _SCALAR.match(self._text, self._at)
            assert found is not None
            self._at = found.end()

    def _list(self, path: Path) -> None:
        index = 0
        while not self._ends("]"):
            self._lines[*path, index] = self._line()
            self._value((*path, index))
            index += 1

    def _ends(self, bracket: str) -> bool:
        """Go to the next item, or past the bracket that closes the list or table."""
        self._skip(_BLANK)
        if self._next(","):
            self._skip(_BLANK)
        return self._next(bracket)

    def _skip(self, pattern: re.Pattern[str]) -> int:
        found = pattern.match(self._text, self._at)
        assert found is not None
        self._at = found.end()
        return self._at

    def _next(self, token: str) -> bool:
        if not self._text.startswith(token, self._at):
            return False
        self._at += len(token)
        return True

    def _take(self, token: str) -> None:
        self._skip(_SPACE)
        found = self._next(token)
        assert found

    def _line(self) -> int:
        return bisect_left(self._newlines, self._at) + 1
