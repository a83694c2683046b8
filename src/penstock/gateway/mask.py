"""Mask: removes secrets from texts of others, such as providers' errors, in every form in which they are quoted.

Providers quote keys in their errors, and clients decode those. So a secret is searched in the text as it is, and in the
text after unescaping it up to `_ROUNDS` times: `\\u002d` and `\\/` of JSON, `%2D` of URLs, `&#45;` and `&amp;` of HTML,
also nested. In base64 it is searched at each of the three possible alignments.

A text may have been truncated before. So a prefix of a secret at the end of a text is found, too.

To locate each escape takes some microseconds. So `Secrets.may_be_in` is a quick test that comes first: it unescapes
without positions, possibly too much, and searches for the first characters of secrets.
"""

import base64
import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from functools import lru_cache
from json.encoder import encode_basestring
from typing import NamedTuple
from urllib.parse import quote

MASK = "…"
# In characters. A prefix of a secret at the end of a text counts from this length on: all keys of a kind share less.
MIN_PREFIX = 4
# The names of headers and fields with keys, and the prefixes of keys. Other prefixes may be those of users' ids.
SECRET_NAME = re.compile(r"(?i)authori[sz]ation|api[-_]?key|secret|password|credential|(^|[-_])token$")
LOOKS_LIKE_KEY = re.compile(
    r"(?i:\b(?:bearer|basic)\s+\S{12,})|\b(?:sk|pk|rk|gsk|csk|xai|hf|fw|r8|pplx|nvapi)[-_][\w-]{16,}|\bAIza[\w-]{30,}"
)
# How often a text is unescaped: an error may quote an error that quotes an error.
_ROUNDS = 3
# In characters. A shorter base64 form could be a part of an ordinary word.
_MIN_BASE64 = 8
# The pattern starts with a set of characters, so that a text without any of them is skipped quickly.
_ESCAPED = re.compile(
    r"""[\\%&](?:
      (?<=\\)\\{0,3}u(?P<json>[0-9a-fA-F]{4})
    | (?<=\\)\\{0,3}x(?P<python>[0-9a-fA-F]{2})
    | (?<=\\)\\{0,3}(?P<bare>["'/\\])
    | (?<=%)(?P<url>[0-9a-fA-F]{2})
    | (?<=&)(?P<page>\#?\w{1,10};)
    | (?P<cut>(?:(?<=\\)\\{0,3}(?:u[0-9a-fA-F]{0,3}|x[0-9a-fA-F]?)?|(?<=%)[0-9a-fA-F]?|(?<=&)\#?\w{0,10})\Z)
    )""",
    re.VERBOSE,
)
# For the quick test, which first reduces several backslashes to one.
_BACKSLASHES = re.compile(r"\\{2,}")
_ESCAPE_CODE = re.compile(r"(\\u[0-9a-fA-F]{4}|\\x[0-9a-fA-F]{2}|%[0-9a-fA-F]{2}|&\#?\w{1,10};)")
# Secrets that the quick test cannot rule out: a part of a number, which JSON can write in several ways, and secrets
# with characters that JSON escapes.
_AMBIGUOUS = re.compile(r"-?[0-9]*\.?[0-9]*(?:[eE][+-]?[0-9]*)?|.*[\\\\\"'].*", re.DOTALL)


class Secrets:
    """Finds a set of secrets in texts."""

    def __init__(self, secrets: Iterable[str]) -> None:
        secrets = [secret for secret in secrets if secret]
        self._forms = tuple(dict.fromkeys(form for secret in secrets for form in _forms(secret)))
        self._letters = frozenset("".join(self._forms))
        self._prefixes = tuple(dict.fromkeys(form[:MIN_PREFIX] for form in self._forms))
        self._ambiguous = any(map(_AMBIGUOUS.fullmatch, secrets))
        self.longest = max(map(len, self._forms), default=0)
        """The length of the longest form of any secret, in characters."""

    def may_be_in(self, text: str) -> bool:
        """Whether a secret or a prefix of one may be in a text or in the JSON strings in it. False is certain.

        Takes at most 15 ms for 64 KB.
        """
        if self._ambiguous:
            return True
        for _ in range(_ROUNDS + 2):  # one more for JSON strings, and one for the text as it is
            if any(prefix in text for prefix in self._prefixes):
                return True
            before, text = text, _quick_unescape(text)
            if text == before:
                return False
        return False

    def spans(self, text: str) -> list[tuple[int, int]]:
        """The positions of secrets, in order. They do not overlap."""
        matches = [
            (view.original_position(start), view.original_position(start + len(form)))
            for view in self._views(text)
            for form in self._forms
            for start in _positions(view.text, form)
        ]
        merged: list[tuple[int, int]] = []
        for start, end in sorted(matches):
            if merged and start < merged[-1][1]:
                merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
            else:
                merged.append((start, end))
        return merged

    def partial_at(self, text: str, least: int = 0) -> int:
        """Where a secret may start that does not end in this text; the end of the text, if there is none.

        At least `least` characters of it must be in the text; with 0 a part of an escape is enough.
        """
        first = len(text)
        for view in self._views(text):
            if view.cut is not None and not least:
                first = min(first, view.cut)
            if view.text[-1:] in self._letters:
                size = max(_prefix_at_end(view.text, form) for form in self._forms)
                if size >= max(least, 1):
                    first = min(first, view.original_position(len(view.text) - size))
        return first

    def _views(self, text: str) -> "Iterator[_UnescapedText]":
        """The text as it is, and unescaped once, twice and so on, while it has escapes."""
        view: _UnescapedText | None = _UnescapedText(text, [0], [0]) if self._forms else None
        for _ in range(_ROUNDS):
            if view is None:
                return
            yield view
            view = view.unescape()
        if view is not None:
            yield view


class _UnescapedText(NamedTuple):
    """An unescaped text that knows the original position of each of its characters.

    It consists of pieces: `starts` are their positions in it and `original` those in the text before. Every second
    piece was an escape. `cut` is the position of an incomplete escape in the very first text.
    """

    text: str
    starts: list[int]
    original: list[int]
    before: "_UnescapedText | None" = None
    cut: int | None = None

    def original_position(self, at: int) -> int:
        """The position of that character, or of its escape, in the very first text."""
        piece = bisect_right(self.starts, at) - 1
        original = self.original[piece] + (0 if piece % 2 else at - self.starts[piece])
        return original if self.before is None else self.before.original_position(original)

    def unescape(self) -> "_UnescapedText | None":
        """The text, unescaped once more; None if it has no escapes."""
        pieces, starts, original = [], [0], [0]
        size = at = 0
        cut = None
        for escape in _ESCAPED.finditer(self.text):
            start, end = escape.span()
            character = _unescaped(escape)
            pieces += [self.text[at:start], character]
            size += start - at
            starts += [size, size + len(character)]
            original += [start, end]
            size, at = size + len(character), end
            cut = start if escape["cut"] is not None else None
        if not pieces:
            return None
        text = "".join([*pieces, self.text[at:]])
        return _UnescapedText(text, starts, original, self, None if cut is None else self.original_position(cut))


def masked(text: str, secrets: Iterable[str]) -> str:
    """The text with its secrets replaced by `MASK`."""
    return _masked(text, Secrets(secrets))


def _masked(text: str, finder: Secrets) -> str:
    spans, partial_at = finder.spans(text), finder.partial_at(text, MIN_PREFIX)
    if partial_at < len(text):
        spans = sorted([*spans, (partial_at, len(text))])
    pieces, at = [], 0
    for start, end in spans:
        if start >= at:
            pieces += [text[at:start], MASK]
        at = max(at, end)
    return "".join([*pieces, text[at:]])


def masked_json(value: object, secrets: tuple[str, ...]) -> object:
    """A decoded JSON value with its secrets masked; raises `RecursionError` if it is nested too deeply."""
    return _masked_json(value, Secrets(secrets), secrets)


def _masked_json(value: object, finder: Secrets, secrets: tuple[str, ...]) -> object:
    if isinstance(value, str):
        return _masked(value, finder)
    if isinstance(value, dict):
        return {_masked(str(name), finder): _masked_json(item, finder, secrets) for name, item in value.items()}
    if isinstance(value, list):
        return [_masked_json(item, finder, secrets) for item in value]
    if isinstance(value, int | float) and any(secret in str(value) for secret in secrets):
        return MASK
    return value


def _positions(text: str, form: str) -> Iterator[int]:
    at = text.find(form)
    while at >= 0:
        yield at
        at = text.find(form, at + len(form))


def _prefix_at_end(text: str, form: str) -> int:
    """How many characters at the end of the text are a proper prefix of the form."""
    at = text.find(form[0], max(len(text) - len(form) + 1, 0))
    while at >= 0 and not form.startswith(text[at:]):
        at = text.find(form[0], at + 1)
    return len(text) - at if at >= 0 else 0


def _unescaped(escape: re.Match[str]) -> str:
    code = escape["json"] or escape["python"] or escape["url"]
    if code:
        return chr(int(code, 16))
    return escape["bare"] or (_character(f"&{escape['page']}") if escape["page"] else "")


def _quick_unescape(text: str) -> str:
    """A text, unescaped once and without redundant backslashes."""
    if "\\" in text:
        text = _BACKSLASHES.sub(r"\\", text).replace('\\"', '"').replace("\\/", "/").replace("\\'", "'")
    pieces = _ESCAPE_CODE.split(text)
    pieces[1::2] = map(_decoded, pieces[1::2])  # no call of a Python function for an escape that is cached
    return "".join(pieces)


@lru_cache(maxsize=1_024)
def _decoded(escape: str) -> str:
    """The character of an escape code. Cached, because an error may consist of them, and unknown ones take long."""
    if escape[0] == "&":
        return _character(escape)
    return chr(int(escape[1 if escape[0] == "%" else 2 :], 16))


@lru_cache(maxsize=1_024)
def _character(reference: str) -> str:
    """The character of an HTML reference. Cached, because an unknown one takes long: all its prefixes are tried."""
    from html import unescape  # noqa: PLC0415 - a large table, which only pages need

    return unescape(reference)


def _forms(secret: str) -> Iterator[str]:
    """The secret as it is, in JSON, in a URL, in base64, and unescaped, if it contains something like an escape.

    In base64 the characters that also depend on neighbouring bytes are omitted.
    """
    data = secret.encode(errors="surrogateescape")
    yield from (secret, encode_basestring(secret)[1:-1], quote(data, safe=""))
    # Escapes of single bytes give Latin-1 characters; JSON escapes of surrogates give halves of characters.
    yield from (data.decode("latin-1"), "".join(map(_surrogates, secret)))
    unescape = _UnescapedText(secret, [0], [0]).unescape()
    if unescape is not None and unescape.text:
        yield unescape.text
    for before in range(3):
        text = base64.b64encode(b"\0" * before + data).decode()
        whole = (before + len(data)) * 8 // 6
        text = text[(before * 8 + 5) // 6 : whole]
        if len(text) >= _MIN_BASE64:
            yield from (text, text.replace("+", "-").replace("/", "_"))


def _surrogates(character: str) -> str:
    """A character as the surrogate pair with which JSON escapes it, if it needs one."""
    beyond = ord(character) - 0x10000
    return character if beyond < 0 else chr(0xD800 + (beyond >> 10)) + chr(0xDC00 + (beyond & 0x3FF))
