"""Mask: takes secrets out of what somebody else wrote, in whatever form they are quoted there.

Providers quote keys in their errors, and whoever reads an error decodes it. So a secret is looked for in the text as it
is, and in what becomes of it when escapes are undone, some times over: `\\u002d` and `\\/` of JSON, `%2D` of URLs,
`&#45;` and `&amp;` of pages, one inside another. In base64 it is looked for at each of the three
places where it may begin.

A text may have been cut before it came here. So the beginning of a secret at the end of a text is taken out as well.
"""

import base64
import html
import re
from collections.abc import Iterable
from itertools import chain
from urllib.parse import quote

MASK = "…"
# How often escapes are undone: an error in an error in an error.
_ROUNDS = 3
# The beginning of a secret at the end of a text counts from this length on: less is how keys of that kind begin.
_TELLING = 4
# What is shorter in base64 is found in words.
_SHORTEST_IN_BASE64 = 8
_ESCAPED = re.compile(
    r"""\\{1,4}u(?P<json>[0-9a-fA-F]{4})
    | \\{1,4}x(?P<python>[0-9a-fA-F]{2})
    | \\{1,4}(?P<bare>["'/\\])
    | %(?P<url>[0-9a-fA-F]{2})
    | (?P<page>&\#?\w{1,10};)
    | (?P<cut>(?:\\{1,4}(?:u[0-9a-fA-F]{0,3}|x[0-9a-fA-F]?)?|%[0-9a-fA-F]?|&\#?\w{0,10})\Z)""",
    re.VERBOSE,
)
_ESCAPES = frozenset("\\%&")


def masked(text: str, secrets: Iterable[str]) -> str:
    """The text, with no secret in it."""
    spans = sorted(_spans(text, tuple(filter(None, secrets))))
    if not spans:
        return text
    pieces, at = [], 0
    for start, end in spans:
        if start >= at:
            pieces += [text[at:start], MASK]
        at = max(at, end)
    return "".join([*pieces, text[at:]])


def masked_json(value: object, secrets: tuple[str, ...]) -> object:
    """A decoded JSON value, with no secret in it; raises `RecursionError` where it is too deep to be looked through."""
    if isinstance(value, str):
        return masked(value, secrets)
    if isinstance(value, dict):
        return {masked(str(name), secrets): masked_json(item, secrets) for name, item in value.items()}
    if isinstance(value, list):
        return [masked_json(item, secrets) for item in value]
    if isinstance(value, int | float) and any(secret in str(value) for secret in secrets):
        return MASK
    return value


def _spans(text: str, secrets: tuple[str, ...]) -> list[tuple[int, int]]:
    """Where secrets stand in the text, in one form or another."""
    spans = []
    plain = text
    forms = [(secret, _forms(secret)) for secret in secrets]
    places: range | list[int] = range(len(text) + 1)
    for _ in range(_ROUNDS + 1):
        for secret, written in forms:
            spans += [(places[start], places[end]) for form in written for start, end in _found(plain, form)]
            begun = _begun(plain, secret)
            if begun:
                spans.append((places[len(plain) - begun], len(text)))
        if not secrets or _ESCAPES.isdisjoint(plain):
            break
        plain, places = _undone(plain, places)
    return spans


def _found(text: str, form: str) -> list[tuple[int, int]]:
    found = []
    at = text.find(form)
    while at >= 0:
        found.append((at, at + len(form)))
        at = text.find(form, at + len(form))
    return found


def _begun(text: str, secret: str) -> int:
    """How many characters at the end of the text are the beginning of the secret."""
    for size in range(min(len(secret) - 1, len(text)), _TELLING - 1, -1):
        if text.endswith(secret[:size]):
            return size
    return 0


def _undone(text: str, places: range | list[int]) -> tuple[str, list[int]]:
    """The text with its escapes undone once; and for each character of it, and for its end, where that stood."""
    pieces: list[str] = []
    stood: list[Iterable[int]] = []
    at = 0
    for escape in _ESCAPED.finditer(text):
        character = _meant(escape)
        pieces += [text[at : escape.start()], character]
        stood += [places[at : escape.start()], [places[escape.start()]] * len(character)]
        at = escape.end()
    pieces.append(text[at:])
    stood.append(places[at:])
    return "".join(pieces), list(chain.from_iterable(stood))


def _meant(escape: re.Match[str]) -> str:
    code = escape["json"] or escape["python"] or escape["url"]
    if code:
        return chr(int(code, 16))
    return escape["bare"] or (html.unescape(escape["page"]) if escape["page"] else "")


def _forms(secret: str) -> tuple[str, ...]:
    """The secret as it is, in a URL, in base64, and with what looks like escapes in it undone.

    What base64 makes of its neighbours as well is left out.
    """
    data = secret.encode(errors="surrogateescape")
    coded = set()
    for before in range(3):
        text = base64.b64encode(b"\0" * before + data).decode()
        whole = (before + len(data)) * 8 // 6
        text = text[(before * 8 + 5) // 6 : whole]
        if len(text) >= _SHORTEST_IN_BASE64:
            coded |= {text, text.replace("+", "-").replace("/", "_")}
    undone = _undone(secret, range(len(secret) + 1))[0]
    return tuple(dict.fromkeys(filter(None, (secret, quote(data, safe=""), undone, *sorted(coded)))))
