"""The valid word that was probably meant."""

from collections.abc import Iterable
from difflib import get_close_matches


def choose(word: str, options: Iterable[str]) -> str:
    """The end of a message about a word that is not valid: the nearest one that is, or all of them."""
    known = list(options)
    near = get_close_matches(word.lower().replace("_", "-"), known, n=1)
    return f"; did you mean {near[0]!r}?" if near else f"; choose one of {', '.join(known)}"
