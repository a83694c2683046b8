"""Suggestions for error messages: the valid option that is nearest to a word that is not valid."""

from collections.abc import Iterable, Mapping


def suggest(word: str, options: Iterable[str], synonyms: Mapping[str, str] | None = None) -> str:
    """Return the end of an error message, `; did you mean 'option'?`, or an empty string if no option is near."""
    near = nearest(word, options, synonyms)
    return f"; did you mean {near!r}?" if near else ""


def suggest_or_list(word: str, options: Iterable[str]) -> str:
    """Return the end of an error message: the nearest option, or all options if none is near."""
    known = list(options)
    return suggest(word, known) or f"; choose one of {', '.join(known)}"


def nearest(word: str, options: Iterable[str], synonyms: Mapping[str, str] | None = None) -> str | None:
    """Return the option that was probably meant, or None if no option is near.

    Case, hyphens and underscores are ignored. `synonyms` maps lower-case words, with underscores, to options: names
    that other programs use for the same thing.
    """
    folded = {_fold(option): option for option in options}
    synonym = (synonyms or {}).get(word.lower().replace("-", "_"), "")
    if _fold(word) not in folded and synonym in folded.values():
        return synonym
    from difflib import get_close_matches  # noqa: PLC0415 - only mistakes need it

    close = get_close_matches(_fold(word), folded, n=1)
    return folded[close[0]] if close else None


def _fold(word: str) -> str:
    return word.lower().replace("_", "").replace("-", "")
