"""Wrap: no word is broken, however its pieces arrive, and no text is lost."""

import re

import pytest

from penstock.cli.chat_ui.wrap import Wrap

TAKEN_BACK = re.compile(r"\x1b\[(\d+)D\x1b\[K")


def shown(*pieces: str, columns: int = 12) -> list[str]:
    """The lines of a terminal that gets the pieces."""
    wrap = Wrap()
    lines = [""]
    for part in re.split(r"(\n|\x1b\[\d+D\x1b\[K)", "".join(wrap.feed(piece, columns) for piece in pieces)):
        if part == "\n":
            lines.append("")
        elif taken := TAKEN_BACK.fullmatch(part):
            lines[-1] = lines[-1][: -int(taken[1])]
        else:
            lines[-1] += part
    return lines


CASES: dict[str, tuple[str, list[str]]] = {
    "fits": ("one two", ["one two"]),
    "breaks at words": ("one two three four", ["one two ", "three four"]),
    "breaks often": ("aaaa bbbb cccc dddd eeee", ["aaaa bbbb ", "cccc dddd ", "eeee"]),
    "a space at the margin": ("aaaaaaaaaaa bb", ["aaaaaaaaaaa", "bb"]),
    "lines of its own": ("one\n\ntwo", ["one", "", "two"]),
    "a long word": ("see http://example.org/a/b now", ["see ", "http://example.org/a/b", "now"]),
    "wide characters": ("ab 日本語 日本語", ["ab 日本語 ", "日本語"]),
    "a fence": ("```\nfor x in range(9): pass\n```\none two three", ["```", "for x in range(9): pass", "```", "one two ", "three"]),  # noqa: E501
    "a tab": ("\ta", ["        a"]),
}  # fmt: skip


@pytest.mark.parametrize(("text", "lines"), CASES.values(), ids=CASES)
def test_wraps_the_same_however_it_comes(text: str, lines: list[str]) -> None:
    assert shown(text) == lines
    assert [line.rstrip() for line in shown(*text)] == [line.rstrip() for line in lines]
