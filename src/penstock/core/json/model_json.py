"""ModelJson: reads JSON that a model has written wrong, if exactly one reading of it is accepted.

Weak models write arguments of tools, and answers that a schema demands, with these mistakes. Each has the code of a
repair (`core/hub/repairs.py`):

| code | the text has | and is read |
|---|---|---|
| `model-json-tokens` | special tokens of the model behind it | without them |
| `model-json-fenced` | a code fence around it | without the fence |
| `model-json-escaped` | the escapes of a string: a JSON string holds it, or its quotes have backslashes | unescaped |
| `model-json-python` | Python's `'text'`, `True`, `False`, `None` | as JSON |
| `model-json-commas` | commas before closing brackets | without them |
| `model-json-unclosed` | not all closing brackets, or no quote at its end | with them |

Text that is JSON is never changed, except for a string that holds an object. Of other text *all* readings are tried
that these edits allow. A missing bracket may be missing in several places, and the quote may be missing before or
behind the brackets at the end. A reading counts if it is an object or a list and the caller accepts it (its schema
does). If two readings with different values count, or one is undecided, the text stays as it is: choosing would invent
what the model meant. So does text that takes too long: its size, its structure, its depth and the number of readings
are limited, and all texts of one answer share a limit.
"""

import re
from collections.abc import Callable, Iterator
from itertools import combinations_with_replacement, islice
from typing import TypeAlias

from msgspec import Struct

from penstock.core.json.schema_check import Verdict, is_same
from penstock.core.wire.payload import MAX_DEPTH, TextDecoder, TooComplexError

Check: TypeAlias = Callable[[object], Verdict]
"""Whether a caller accepts a value; None if that is undecided."""

# In characters. Arguments with whole files are longer, and are passed on as they came.
_MAX_TEXT = 65_536
# Tokens of one text, at half a microsecond each.
_MAX_TOKENS = 10_000
# The readings of one text, and the characters in all of them, and in all readings of one answer: 50 ns each.
_MAX_READINGS = 64
_MAX_READ = 200_000
_MAX_READ_OF_ANSWER = 400_000
# Strings within strings within strings.
_MAX_WRAPPERS = 3
_TOKENS = re.compile(r"(?:\s*+(?:<[|\uff5c][\w\u2581 ]{1,32}[|\uff5c]>|</s>|</tool_call>|</function>))++\s*+\Z")
_LAST_TOKEN = re.compile(r"(?:[|\uff5c]|</s|</tool_call|</function)>\s*+\Z")
_FENCE = "```"
_STRING = re.compile(r""""[^"\\]*+(?:\\.[^"\\]*+)*+"|'[^'\\]*+(?:\\.[^'\\]*+)*+'""", re.DOTALL)
_TOKEN = re.compile(rf"""\s++|[{{}}\[\],:]|{_STRING.pattern}|["'].*+|[^\s{{}}\[\],:"']++""", re.DOTALL)
_CLOSING = {"{": "}", "[": "]"}
_PYTHON = {"True": "true", "False": "false", "None": "null"}
_ESCAPE = re.compile(r'\\(.)|"', re.DOTALL)
# What the end of a string may have that belongs behind its quote.
_BEHIND = re.compile(r"[}\]\s]*+\Z")
_MAX_BEHIND = 16


class Reading(Struct, frozen=True):
    """JSON text, its value, and the codes of the edits that made it; none if the text was JSON already."""

    text: str
    value: object
    codes: tuple[str, ...] = ()


class ModelJson:
    """Reads the texts of one answer."""

    def __init__(self) -> None:
        self._decoder = TextDecoder(events=2)
        self._left_of_answer = _MAX_READ_OF_ANSWER
        self._left = self._tries = 0

    def read(self, text: str, accepts: Check) -> Reading | None:
        """The only reading of the text that is accepted; None if there is none, or more than one."""
        if len(text) > _MAX_TEXT:
            return None
        found: Reading | None = None
        try:
            self._tries, self._left = 0, min(_MAX_READ, self._left_of_answer)
            for reading in self._readings(text, ()):
                verdict = accepts(reading.value)
                if verdict is None:
                    return None
                if verdict and found is not None and not is_same(reading.value, found.value):
                    return None
                found = found or (reading if verdict else None)
        except (TooComplexError, RecursionError):
            return None
        finally:
            self._left_of_answer -= min(_MAX_READ, self._left_of_answer) - self._left
        return found

    def _readings(self, text: str, codes: tuple[str, ...]) -> Iterator[Reading]:
        """All readings; raises `TooComplexError` if there are too many."""
        stripped = text.strip()
        decoded, value = self._decoded(stripped)
        if isinstance(value, dict | list):
            yield Reading(text if not codes else stripped, value, codes)
        elif isinstance(value, str) and len(codes) < _MAX_WRAPPERS:
            yield from self._readings(value, (*codes, "model-json-escaped"))
        if decoded or len(codes) >= _MAX_WRAPPERS:
            return
        if stripped.startswith('{\\"'):
            _, unescaped = self._decoded(f'"{stripped}"')
            if isinstance(unescaped, str):
                yield from self._readings(unescaped, (*codes, "model-json-escaped"))
        if (inner := _without_tokens(stripped)) is not None:
            yield from self._readings(inner, (*codes, "model-json-tokens"))
        if stripped.startswith(_FENCE):
            fenced = stripped[len(_FENCE) :]
            fenced = fenced[4:] if fenced[:4].lower() == "json" else fenced
            for inner in dict.fromkeys((fenced.removesuffix(_FENCE), fenced)):
                yield from self._readings(inner, (*codes, "model-json-fenced"))
        elif stripped[:1] in _CLOSING:
            for candidate, edits in _candidates(stripped):
                _, value = self._decoded(candidate)
                if isinstance(value, dict | list):
                    yield Reading(candidate, value, (*codes, *edits))

    def _decoded(self, text: str) -> tuple[bool, object]:
        """Whether the text is JSON, and its value."""
        self._left -= len(text)
        self._tries += 1
        if self._left < 0 or self._tries > _MAX_READINGS:
            raise TooComplexError
        try:
            return True, self._decoder.decode(text)
        except (ValueError, RecursionError):
            return False, None


def _without_tokens(text: str) -> str | None:
    """The text without the special tokens at its end; None if it has none there."""
    if _LAST_TOKEN.search(text, max(0, len(text) - 64)) is None:
        return None
    match = _TOKENS.search(text, max(0, len(text) - 512))
    return text[: match.start()] if match is not None else None


def _candidates(text: str) -> Iterator[tuple[str, tuple[str, ...]]]:
    """The texts that may be meant, each with the codes of its edits. Not all of them are JSON."""
    tokens = [match[0] for match in islice(_TOKEN.finditer(text), _MAX_TOKENS + 1)]
    if len(tokens) > _MAX_TOKENS:
        raise TooComplexError
    if _is_open(tokens[-1]):
        for end in _string_ends(tokens[-1]):
            quote, inside, behind = tokens[-1][0], tokens[-1][1:end], tokens[-1][end:]
            yield from _closed([*tokens[:-1], f"{quote}{inside}{quote}", *behind], ("model-json-unclosed",))
    else:
        yield from _closed(tokens, ())


def _is_open(token: str) -> bool:
    """Whether a token is a string without its closing quote."""
    return token[0] in "\"'" and _STRING.fullmatch(token) is None


def _string_ends(token: str) -> Iterator[int]:
    """Where an open string may end: behind it, or before any of the brackets at its end."""
    behind = _BEHIND.search(token, 1)
    assert behind is not None  # the pattern matches the empty string
    if len(token) - behind.start() > _MAX_BEHIND:
        raise TooComplexError
    yield len(token)
    for place in range(behind.start(), len(token)):
        if not token[place].isspace():
            yield place


def _closed(tokens: list[str], edits: tuple[str, ...]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """The texts of these tokens as JSON, with the missing brackets in each place where they may be missing."""
    written, places, used = _rewritten(tokens)
    missing = _missing(written)
    codes = tuple(dict.fromkeys((*used, *edits, *(("model-json-unclosed",) if missing else ()))))
    if not missing:
        yield "".join(written), codes
        return
    for chosen in combinations_with_replacement([len(written), *places], missing):
        yield _with_brackets(written, sorted(chosen)), codes


def _rewritten(tokens: list[str]) -> tuple[list[str], list[int], list[str]]:
    """The tokens as JSON without commas before closing brackets, the places inside of other brackets where a bracket
    may be missing, and the codes of what was changed."""
    written: list[str] = []
    places: list[int] = []
    used: dict[str, None] = {}
    depth, comma = 0, -1  # `comma`: the place of a comma that only white space has followed
    for token in tokens:
        if token in "{[":
            depth += 1
            if depth > MAX_DEPTH:
                raise TooComplexError
        elif token in "}]":
            if comma >= 0:
                used["model-json-commas"] = None
                written[comma] = ""
            if depth > 1:
                places.append(len(written))
            depth -= 1
        elif token == "," and depth > 1:
            places.append(len(written))
        if not token.isspace():
            comma = len(written) if token == "," else -1
        if token[0] == "'":
            used["model-json-python"] = None
            token = _json_string(token[1:-1])
        elif token in _PYTHON:
            used["model-json-python"] = None
            token = _PYTHON[token]
        written.append(token)
    return written, places, [*used]


def _json_string(inside: str) -> str:
    """A string of Python in JSON. Escape sequences that JSON lacks stay, and so it is no JSON."""
    return f'"{_ESCAPE.sub(_json_escape, inside)}"'


def _json_escape(match: re.Match[str]) -> str:
    """An escape sequence of a string of Python, or a quote that is none there, in JSON."""
    return '\\"' if match[0] == '"' else "'" if match[1] == "'" else match[0]


def _missing(tokens: list[str]) -> int:
    """How many closing brackets are missing: at the end, or before a bracket that closes another one."""
    open: list[str] = []
    missing = 0
    for token in tokens:
        if token in _CLOSING:
            open.append(_CLOSING[token])
        elif token and token in "}]":
            while open and open[-1] != token:
                open.pop()
                missing += 1
            if open:
                open.pop()
    return missing + len(open)


def _with_brackets(tokens: list[str], places: list[int]) -> str:
    """The text of the tokens with a closing bracket at each of these places."""
    open: list[str] = []
    out: list[str] = []
    waiting = iter([*places, -1])
    next_place = next(waiting)
    for place in range(len(tokens) + 1):
        while place == next_place:
            if open:
                out.append(open.pop())
            next_place = next(waiting)
        if place < len(tokens):
            token = tokens[place]
            if token in _CLOSING:
                open.append(_CLOSING[token])
            elif token and token in "}]" and open:
                open.pop()
            out.append(token)
    return "".join(out)
