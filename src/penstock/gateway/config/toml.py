"""TOML with line numbers: the data of the file, and the line of each value.

`tomllib` parses and validates the file, but does not report lines. So a small scanner reads the same text again and
notes where each key, table and list item starts. It may assume valid TOML, because `tomllib` has accepted the file.
"""

import re
import tomllib
from bisect import bisect_left
from typing import NoReturn, TypeAlias

from msgspec import Struct

from penstock.errors import ConfigError, Problem

# The path of a value: keys, and indices of lists.
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
    """A TOML file: its data, and the line of each path."""

    file: str
    data: dict[str, object]
    lines: dict[Path, int]

    def line(self, path: Path) -> int | None:
        """The line of a path, or of its nearest parent that has one."""
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
    """A path as users write it: `routes.fast.targets[1]`. A key that is not bare is quoted and escaped."""
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
        self._newlines = [match.start() for match in re.finditer("\n", text)]
        self._lines: dict[Path, int] = {}
        # The index of the last table in each array of tables, which `[name.more]` and `[[name.more]]` continue.
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
        self._lines[path] = line  # the line of its own header, even if `[name.more]` came before it
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
            match = _KEY_PART.match(self._text, self._at)
            assert match is not None
            self._at = match.end()
            # tomllib decodes the escapes.
            parts.append(match[0] if match[0][0] not in "\"'" else next(iter(tomllib.loads(f"{match[0]}=0"))))
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
            match = _SCALAR.match(self._text, self._at)
            assert match is not None
            self._at = match.end()

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
        match = pattern.match(self._text, self._at)
        assert match is not None
        self._at = match.end()
        return self._at

    def _next(self, token: str) -> bool:
        if not self._text.startswith(token, self._at):
            return False
        self._at += len(token)
        return True

    def _take(self, token: str) -> None:
        self._skip(_SPACE)
        is_next = self._next(token)
        assert is_next

    def _line(self) -> int:
        return bisect_left(self._newlines, self._at) + 1
