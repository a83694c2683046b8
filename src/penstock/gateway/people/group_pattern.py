"""Patterns of group names, such as `llm-(?<team>.+)-(admin|member)`: regular expressions whose matching is bounded.

A pattern matches a whole name. It has literals, classes (`[a-z]`, `\\d`, `.`), groups with and without a name,
alternatives and quantifiers. Python's `re` goes back and forth between the ways in which a name could match, and their
number can grow exponentially with the pattern. So a pattern is refused whose ways could be too many: each quantifier
without a small bound counts for the length of a name, each optional part for two, and each group for its alternatives.
Their product is limited, nothing that repeats contains a quantifier or alternatives, and there are neither lookarounds
nor references to groups. A name that is longer than `MAX_NAME` matches no pattern.
"""

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple

MAX_NAME = 120
_MAX_PATTERN = 500
# Three of `.+` and ten alternatives. Of the ways in which three of them share a name, there are a sixth of its cube.
_MAX_WAYS = 10 * MAX_NAME**3
_SMALL = 9
_KINDS = ("escape", "set", "open", "close", "or", "quantifier", "literal")
_TOKEN = re.compile(
    r"(?P<escape>\\.)"
    r"|(?P<set>\[\^?\]?(?:\\.|[^\]\\])*\])"
    r"|(?P<open>\((?:\?(?:P?<(?P<name>[A-Za-z_]\w*)>|:))?(?!\?))"
    r"|(?P<close>\))"
    r"|(?P<or>\|)"
    r"|(?P<quantifier>[*+?]\??|\{(?P<least>\d*)(?P<comma>,)?(?P<most>\d*)\}\??)"
    r"|(?P<literal>[^()\\])",
    re.ASCII,
)
_ESCAPES = re.compile(r"\\(?:[dDwWsS]|[^A-Za-z0-9])")
_WORDS = re.compile(r"[^()\[\]\\.*+?{}]*")


class GroupPattern(NamedTuple):
    """A compiled pattern, and what stands between the brackets of its groups."""

    compiled: re.Pattern[str]
    sources: tuple[str, ...]

    @property
    def names(self) -> frozenset[str]:
        """The names of its groups."""
        return frozenset(self.compiled.groupindex)

    def number(self, name: str) -> int:
        """The number of the group with that name; else, if there is one, of the only group without a name; else 0."""
        unnamed = set(range(1, self.compiled.groups + 1)) - set(self.compiled.groupindex.values())
        return self.compiled.groupindex.get(name, min(unnamed) if len(unnamed) == 1 else 0)

    def words(self, number: int) -> tuple[str, ...]:
        """The words that a group can be, if it is a list of alternatives without further syntax."""
        source = self.sources[number - 1]
        return tuple(source.split("|")) if _WORDS.fullmatch(source) else ()


class _OpenGroup(NamedTuple):
    """A group whose end has not been read. `number` is 0 if it captures nothing."""

    number: int
    start: int


@lru_cache(maxsize=256)
def compile_pattern(text: str) -> GroupPattern:
    """The pattern. Raises `ValueError`, which says what is wrong, if a text is none or its matching is not bounded."""
    if not text or len(text) > _MAX_PATTERN:
        raise ValueError(f"a pattern has 1 to {_MAX_PATTERN} characters")
    ways, place, number = 1, 0, 0
    open_groups: list[_OpenGroup] = []
    alternatives = [1]
    sources: dict[int, str] = {}
    # Whether a quantifier may follow, and whether what it would repeat has quantifiers or alternatives.
    repeatable, branching = False, False
    branched = [False]
    while place < len(text):
        token = _TOKEN.match(text, place)
        if token is None:
            raise ValueError(_unknown(text, place))
        place, kind = token.end(), next(each for each in _KINDS if token[each])
        if kind == "quantifier":
            if not repeatable:
                raise ValueError(f"there is nothing to repeat before `{token[0]}`")
            if branching and not token[0].startswith("?"):
                raise ValueError("what is repeated may have no quantifier and no alternatives, as `(a|b)+` has")
            ways *= _ways(token)
            repeatable, branching, branched[-1] = False, False, True
            continue
        repeatable, branching = kind in ("escape", "set", "literal", "close"), False
        if kind == "escape" and not _ESCAPES.fullmatch(token[0]):
            raise ValueError(f"`{token[0]}` is not supported; use \\d, \\w, \\s, or an escaped sign such as \\.")
        if kind == "open":
            captures = not token[0].endswith("?:")
            number += captures
            open_groups.append(_OpenGroup(number if captures else 0, place))
            alternatives.append(1)
            branched.append(False)
        elif kind == "or":
            alternatives[-1] += 1
            branched[-1] = True
        elif kind == "close":
            if not open_groups:
                raise ValueError("there is a `)` without a `(`")
            group = open_groups.pop()
            ways *= alternatives.pop()
            branching = branched.pop()
            branched[-1] = branched[-1] or branching
            if group.number:
                sources[group.number] = text[group.start : token.start()]
    if ways * alternatives[0] > _MAX_WAYS:
        raise ValueError("matching it could take too long: use at most three of `*` and `+`, and fewer alternatives")
    try:
        compiled = re.compile(re.sub(r"\(\?<(?![=!])", "(?P<", text))
    except (re.error, OverflowError) as error:
        raise ValueError(f"it is no regular expression: {error}") from None
    return GroupPattern(compiled, tuple(sources[each] for each in sorted(sources)))


@lru_cache(maxsize=4096)
def matched(pattern: str, name: str) -> Mapping[str | int, str] | None:
    """What the groups of a pattern are in a name, by number and by name; None if the name does not match."""
    compiled = compile_pattern(pattern).compiled
    found = compiled.fullmatch(name) if len(name) <= MAX_NAME else None
    if found is None:
        return None
    return {number: text or "" for number, text in enumerate(found.groups(), 1)} | {
        name: text or "" for name, text in found.groupdict().items()
    }


def _ways(quantifier: re.Match[str]) -> int:
    """How many ways a quantifier adds."""
    text = quantifier[0]
    if text.startswith("?"):
        return 2
    if text.startswith(("*", "+")):
        return MAX_NAME
    least, most = int(quantifier["least"] or 0), int(quantifier["most"] or MAX_NAME)
    if not quantifier["comma"]:
        return 1
    return max(1, most - least + 1) if most - least <= _SMALL else MAX_NAME


def _unknown(text: str, place: int) -> str:
    part = text[place : place + 4]
    if part.startswith("(?"):
        return f"`{part}` is not supported: there are groups (…), (?<name>…) and (?:…), and no lookarounds"
    return f"`{part}` has no end"
