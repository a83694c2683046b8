"""ContentMask: what is replaced in content before it is kept: secrets, the name of the end user, and patterns.

Patterns are named ones (`PATTERNS`), or expressions of the operator. Time must be proportional to the length of a
text, whatever a client writes. So an expression consists of characters and classes only, each at most a fixed number
of times: it has no groups, no alternatives and no `*` or `+`. Its matches are at most `_LONGEST` characters long, and
there are at most `_MOST_WAYS` ways to choose its lengths. A text is searched in windows, which overlap by the longest
match, so that the thread that masks does not delay others: `re` keeps the GIL while it searches.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from penstock.gateway.mask import LOOKS_LIKE_KEY, Secrets, masked

MASKED = "[masked]"
_WINDOW = 2_048
_LONGEST = 1_000
_MOST_WAYS = 100
# A shorter name may be a part of other words.
_SHORTEST_NAME = 4
# A character, an escape, a class or a dot, and how often it occurs.
_ITEM = re.compile(
    r"(?:\[\^?\]?(?:[^\]\\]|\\.)*\]|\\(?P<edge>b)|\\[dDwWsS]|\\[^A-Za-z0-9]|[^\\\[\](){}|*+?^$])"
    r"(?P<times>\?|\{(?P<least>\d{1,3})(?:,(?P<most>\d{1,3}))?\})?"
)
_DIGITS = re.compile(r"\D")


class MaskPattern(NamedTuple):
    """What a pattern finds, the longest possible match, and a test that a match must pass."""

    expression: re.Pattern[str]
    longest: int
    replacement: str = MASKED
    accepts: Callable[[str], bool] = lambda _: True


def _is_card(text: str) -> bool:
    """Whether the digits of a card number have the right check digit (Luhn)."""
    digits = [int(digit) for digit in _DIGITS.sub("", text)]
    doubled = [digit * 2 - 9 if digit > 4 else digit * 2 for digit in digits[-2::-2]]
    return (sum(digits[-1::-2]) + sum(doubled)) % 10 == 0


def _is_iban(text: str) -> bool:
    """Whether an account number has the right check digits (ISO 7064, modulo 97)."""
    packed = text.replace(" ", "")
    return int("".join(str(int(character, 36)) for character in packed[4:] + packed[:4])) % 97 == 1


PATTERNS: Mapping[str, MaskPattern] = {
    "email": MaskPattern(re.compile(r"(?<![\w.+-])[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63}){1,4}"), 400, "[email]"),
    "card": MaskPattern(re.compile(r"(?<!\d)\d(?:[ -]?\d){12,18}(?!\d)"), 40, "[card]", _is_card),
    "iban": MaskPattern(
        re.compile(r"\b[A-Z]{2}\d{2}(?: ?[A-Z0-9]{4}){2,7}(?: ?[A-Z0-9]{1,3})?\b", re.ASCII), 60, "[iban]", _is_iban
    ),
    "phone": MaskPattern(re.compile(r"(?<![\w+])(?:\+|00)\d(?:[ ()./-]{0,2}\d){6,14}(?!\d)"), 60, "[phone]"),
    "ip": MaskPattern(re.compile(r"(?<![\w.])\d{1,3}(?:\.\d{1,3}){3}(?![\w.])", re.ASCII), 20, "[ip]"),
}
"""The named patterns."""
_KEY = MaskPattern(LOOKS_LIKE_KEY, 4_096, "[key]")


def parse_pattern(text: str) -> MaskPattern:
    """A named pattern, or an expression of the operator; raises `ValueError` with the reason."""
    return PATTERNS.get(text) or _expression(text)


def _expression(text: str) -> MaskPattern:
    at = longest = 0
    ways = 1
    while at < len(text):
        item = _ITEM.match(text, at)
        if item is None:
            raise ValueError(
                f"the expression cannot have {text[at]!r} at position {at + 1}: it consists of characters, classes "
                "such as [A-Z] and escapes such as \\d, each with ?, {n} or {m,n} if it is repeated"
            )
        times, least, most = item["times"], item["least"], item["most"]
        fewest = 1 if times is None else 0 if times == "?" else int(least)
        greatest = 1 if times in (None, "?") else int(most or least)
        longest += 0 if item["edge"] else greatest
        ways *= max(greatest - fewest + 1, 1)
        at = item.end()
    if longest > _LONGEST or ways > _MOST_WAYS:
        raise ValueError(
            f"the expression allows too much: matches are at most {_LONGEST} characters long, and their lengths can be "
            f"chosen in at most {_MOST_WAYS} ways"
        )
    try:
        expression = re.compile(text)
    except re.error as error:
        raise ValueError(f"the expression is not valid: {error}") from None
    if expression.match("") is not None or not longest:
        raise ValueError("the expression matches an empty text")
    return MaskPattern(expression, longest)


class ContentMask:
    """Masks texts and JSON values. `patterns` have been parsed; `secrets` are those of the configuration."""

    def __init__(self, patterns: Sequence[MaskPattern], secrets: tuple[str, ...]) -> None:
        self._patterns = (_KEY, *patterns)
        self._secrets = secrets
        self._finder = Secrets(secrets)

    def json(self, value: object, names: Mapping[str, str]) -> object:
        """A decoded JSON value, masked. `names` are replaced by their values: end users by their pseudonyms."""
        match value:
            case str():
                return self.text(value, names)
            case dict():
                return {self.text(str(name), names): self.json(item, names) for name, item in value.items()}
            case list() | tuple():
                return [self.json(item, names) for item in value]
            case bool() | None:
                return value
            case int() | float() if (text := self.text(str(value), names)) != str(value):
                return text
            case _:
                return value

    def text(self, text: str, names: Mapping[str, str]) -> str:
        """A text, masked."""
        if any(map(self._finder.may_be_in, _windows(text, self._finder.longest))):
            text = masked(text, self._secrets)
        for name, replacement in names.items():
            if len(name) >= _SHORTEST_NAME:
                text = text.replace(name, replacement)
        for pattern in self._patterns:
            text = _replaced(text, pattern)
        return text


def _windows(text: str, overlap: int) -> Iterator[str]:
    for start in range(0, max(len(text), 1), _WINDOW):
        yield text[start : start + _WINDOW + overlap]


def _replaced(text: str, pattern: MaskPattern) -> str:
    pieces: list[str] = []
    kept = start = 0  # the text before `kept` is in `pieces`; no match begins before `start`
    while start < len(text):
        limit = start + _WINDOW
        for match in pattern.expression.finditer(text, start, limit + pattern.longest + 1):
            if match.start() >= limit:
                break
            if pattern.accepts(match[0]):
                pieces += [text[kept : match.start()], pattern.replacement]
                kept = match.end()
        start = max(limit, kept)
    return "".join([*pieces, text[kept:]]) if pieces else text
