"""Mask: takes secrets out of what somebody else wrote, in whatever form they are quoted there.

Providers quote keys in what they answer, and whoever reads that decodes it. So a secret is looked for in the text as it
is, and in what becomes of it when escapes are undone, some times over: `\\u002d` and `\\/` of JSON, `%2D` of URLs,
`&#45;` and `&amp;` of pages, one inside another. In base64 it is looked for at each of the three
places where it may begin.

A text may have been cut before it came here. So the beginning of a secret at the end of a text is found as well.

To find the place of each escape takes some microseconds. So `Secrets.may_be_in` is a quick test that comes first: it
undoes escapes without their places, perhaps more than there are, and looks for the first characters of secrets.
"""

import base64
import html
import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from functools import lru_cache
from json.encoder import encode_basestring
from typing import NamedTuple
from urllib.parse import quote

MASK = "…"
# The beginning of a secret at the end of a text counts from this length on: less is how keys of that kind begin.
TELLING = 4
# How often escapes are undone: an error in an error in an error.
_ROUNDS = 3
# What is shorter in base64 is found in words.
_SHORTEST_IN_BASE64 = 8
# It begins with a set of characters: so a text without any of them is passed over quickly.
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
# For the quick test, which makes one backslash of several first.
_BACKSLASHES = re.compile(r"\\{2,}")
_CODED = re.compile(r"(?:\\u([0-9a-fA-F]{4})|\\x([0-9a-fA-F]{2})|%([0-9a-fA-F]{2})|&(\#?\w{1,10};))")
# Secrets that it cannot rule out: a part of a number, which JSON may write in several ways; one with what JSON escapes.
_AMBIGUOUS = re.compile(r"-?[0-9]*\.?[0-9]*(?:[eE][+-]?[0-9]*)?|.*[\\\\\"'].*", re.DOTALL)


class Secrets:
    """What must not be told, and where it stands in texts."""

    def __init__(self, secrets: Iterable[str]) -> None:
        secrets = [secret for secret in secrets if secret]
        self._forms = tuple(dict.fromkeys(form for secret in secrets for form in _forms(secret)))
        self._letters = frozenset("".join(self._forms))
        self._beginnings = tuple(dict.fromkeys(form[:TELLING] for form in self._forms))
        self._ambiguous = any(map(_AMBIGUOUS.fullmatch, secrets))
        self.longest = max(map(len, self._forms), default=0)
        """How many characters the longest of them has, in its longest form."""

    def may_be_in(self, text: str) -> bool:
        """Whether one of them, or a telling beginning, may be in a text or in the JSON strings in it. A no is certain.

        Takes at most 15 ms for 64 KB.
        """
        if self._ambiguous:
            return True
        for _ in range(_ROUNDS + 2):  # one for the JSON, and one for the text as it is
            if any(beginning in text for beginning in self._beginnings):
                return True
            before, text = text, _simplified(text)
            if text == before:
                return False
        return False

    def spans(self, text: str) -> list[tuple[int, int]]:
        """Where they stand, from the first to the last. No two of these places overlap."""
        found = [
            (view.place(start), view.place(start + len(form)))
            for view in self._views(text)
            for form in self._forms
            for start in _found(view.text, form)
        ]
        apart: list[tuple[int, int]] = []
        for start, end in sorted(found):
            if apart and start < apart[-1][1]:
                apart[-1] = (apart[-1][0], max(end, apart[-1][1]))
            else:
                apart.append((start, end))
        return apart

    def begun(self, text: str, least: int = 0) -> int:
        """Where one of them may have begun that does not end in this text; the end of the text, if there is none.

        So many characters of it must be there; 0 where a part of an escape is enough.
        """
        first = len(text)
        for view in self._views(text):
            if view.cut is not None and not least:
                first = min(first, view.cut)
            if view.text[-1:] in self._letters:
                size = max(_begun(view.text, form) for form in self._forms)
                if size >= max(least, 1):
                    first = min(first, view.place(len(view.text) - size))
        return first

    def _views(self, text: str) -> "Iterator[_UnescapedText]":
        """The text as it is; and with its escapes undone, once, twice, as long as there are any."""
        view: _UnescapedText | None = _UnescapedText(text, [0], [0]) if self._forms else None
        for _ in range(_ROUNDS):
            if view is None:
                return
            yield view
            view = view.undone()
        if view is not None:
            yield view


class _UnescapedText(NamedTuple):
    """A text in which escapes were undone; it knows where each of its characters stood.

    It has pieces, of which `starts` are the places in it and `stood` those in the text before. Each second one was an
    escape. `cut` is where an escape stood, in the first text of all, that was not whole.
    """

    text: str
    starts: list[int]
    stood: list[int]
    before: "_UnescapedText | None" = None
    cut: int | None = None

    def place(self, at: int) -> int:
        """Where in the first text of all that character stood, or began."""
        piece = bisect_right(self.starts, at) - 1
        stood = self.stood[piece] + (0 if piece % 2 else at - self.starts[piece])
        return stood if self.before is None else self.before.place(stood)

    def undone(self) -> "_UnescapedText | None":
        """The text with its escapes undone once more; None if it has none."""
        pieces, starts, stood = [], [0], [0]
        size = at = 0
        cut = None
        for escape in _ESCAPED.finditer(self.text):
            start, end = escape.span()
            character = _meant(escape)
            pieces += [self.text[at:start], character]
            size += start - at
            starts += [size, size + len(character)]
            stood += [start, end]
            size, at = size + len(character), end
            cut = start if escape["cut"] is not None else None
        if not pieces:
            return None
        text = "".join([*pieces, self.text[at:]])
        return _UnescapedText(text, starts, stood, self, None if cut is None else self.place(cut))


def masked(text: str, secrets: Iterable[str]) -> str:
    """The text, with no secret in it."""
    return _masked(text, Secrets(secrets))


def _masked(text: str, hidden: Secrets) -> str:
    spans, begun = hidden.spans(text), hidden.begun(text, TELLING)
    if begun < len(text):
        spans = sorted([*spans, (begun, len(text))])
    pieces, at = [], 0
    for start, end in spans:
        if start >= at:
            pieces += [text[at:start], MASK]
        at = max(at, end)
    return "".join([*pieces, text[at:]])


def masked_json(value: object, secrets: tuple[str, ...]) -> object:
    """A decoded JSON value, with no secret in it; raises `RecursionError` where it is too deep to be looked through."""
    return _masked_json(value, Secrets(secrets), secrets)


def _masked_json(value: object, hidden: Secrets, secrets: tuple[str, ...]) -> object:
    if isinstance(value, str):
        return _masked(value, hidden)
    if isinstance(value, dict):
        return {_masked(str(name), hidden): _masked_json(item, hidden, secrets) for name, item in value.items()}
    if isinstance(value, list):
        return [_masked_json(item, hidden, secrets) for item in value]
    if isinstance(value, int | float) and any(secret in str(value) for secret in secrets):
        return MASK
    return value


def _found(text: str, form: str) -> Iterator[int]:
    at = text.find(form)
    while at >= 0:
        yield at
        at = text.find(form, at + len(form))


def _begun(text: str, form: str) -> int:
    """How many characters at the end of the text are the beginning of the form, but not all of it."""
    at = text.find(form[0], max(len(text) - len(form) + 1, 0))
    while at >= 0 and not form.startswith(text[at:]):
        at = text.find(form[0], at + 1)
    return len(text) - at if at >= 0 else 0


def _meant(escape: re.Match[str]) -> str:
    code = escape["json"] or escape["python"] or escape["url"]
    if code:
        return chr(int(code, 16))
    return escape["bare"] or (_character(f"&{escape['page']}") if escape["page"] else "")


def _simplified(text: str) -> str:
    """A text with its escapes undone once, and without backslashes that are none."""
    if "\\" in text:
        text = _BACKSLASHES.sub(r"\\", text).replace('\\"', '"').replace("\\/", "/").replace("\\'", "'")
    return _CODED.sub(_decoded, text)


def _decoded(coded: re.Match[str]) -> str:
    kind = coded.lastindex or 0
    return chr(int(coded[kind], 16)) if kind < 4 else _character(f"&{coded[kind]}")


@lru_cache(maxsize=1_024)
def _character(reference: str) -> str:
    """What a character reference of HTML stands for. An unknown one takes long: it is tried by its parts."""
    return html.unescape(reference)


def _forms(secret: str) -> Iterator[str]:
    """The secret as it is, in JSON, in a URL, in base64, and with what looks like escapes in it undone.

    What base64 makes of its neighbours as well is left out.
    """
    data = secret.encode(errors="surrogateescape")
    yield from (secret, encode_basestring(secret)[1:-1], quote(data, safe=""))
    # What escapes that stand for bytes, and for halves of characters, come to one by one.
    yield from (data.decode("latin-1"), "".join(map(_halves, secret)))
    undone = _UnescapedText(secret, [0], [0]).undone()
    if undone is not None and undone.text:
        yield undone.text
    for before in range(3):
        text = base64.b64encode(b"\0" * before + data).decode()
        whole = (before + len(data)) * 8 // 6
        text = text[(before * 8 + 5) // 6 : whole]
        if len(text) >= _SHORTEST_IN_BASE64:
            yield from (text, text.replace("+", "-").replace("/", "_"))


def _halves(character: str) -> str:
    """A character in the halves that JSON escapes it by, if it has any."""
    beyond = ord(character) - 0x10000
    return character if beyond < 0 else chr(0xD800 + (beyond >> 10)) + chr(0xDC00 + (beyond & 0x3FF))
