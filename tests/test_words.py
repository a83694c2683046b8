"""Names and texts use common terms: words that a reader would have to learn first are not used.

A word is banned as an identifier where it was once used for something that has a standard name (`mould` for a template)
or for several things at once (`held`, `told`). Ordinary English words are banned as attributes only, or not in prose.
"""

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
CODE = [path for folder in ("src", "tests", "bench", "scripts") for path in sorted((ROOT / folder).rglob("*.py"))]
OWN_CODE = sorted((ROOT / "src").rglob("*.py"))
PAGE = [path for ending in ("js", "html") for path in sorted((ROOT / "src/penstock/serve/web").rglob(f"*.{ending}"))]
DOCS = [path for path in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")] if path.name != "CHANGELOG.md"]

# As a whole identifier or as a word in one.
IDENTIFIERS = frozenset(
    re.findall(
        r"[a-z]+",
        """
    mould moulds habit habits wish wishes heard hear hears overhear overhears overhearing overheard glance passage
    passages sides door doors shelf shelves desk scribe scribes tally manner manners sabotage spoil spoils spoiled spots
    mimic mimicry tape tapes patience nobody sibling siblings till steady doubtful reseed participant participants
    rendition lanes lane told said held spoke heed mint carrier
        """,
    )
)
# As attributes, where the thing that was found or is near has a name of its own.
ATTRIBUTES = frozenset(("found", "here"))
PROSE = frozenset(
    re.findall(
        r"[a-z]+",
        """
    nobody somebody whoever everybody mould moulds scribe scribes sabotage mimicry mimic overhear overhears overhearing
    overheard siblings rendition tally manners told habit habits glance heed shelf shelves lane lanes patience spoil
    spoils spoiled wish wishes
        """,
    )
)


@pytest.mark.slow
def test_identifiers_are_common_terms() -> None:
    assert [
        f"{place(path, token.start[0])}: {token.string}"
        for path in having(CODE, IDENTIFIERS)
        for token in tokens(path)
        if token.type == tokenize.NAME and IDENTIFIERS.intersection(words_of(token.string))
    ] == []


def test_names_of_files_are_common_terms() -> None:
    assert [
        str(path.relative_to(ROOT)) for path in [*CODE, *PAGE, *DOCS] if IDENTIFIERS.intersection(words_of(path.stem))
    ] == []


def test_attributes_say_what_they_hold() -> None:
    assert [
        f"{place(path, node.lineno)}: {node.attr}"
        for path in OWN_CODE
        if re.search(rf"\.(?:{'|'.join(ATTRIBUTES)})\b", path.read_text(encoding="utf-8"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Attribute) and node.attr in ATTRIBUTES
    ] == []


@pytest.mark.slow
def test_texts_in_code_are_plain() -> None:
    texts = (tokenize.STRING, tokenize.COMMENT, getattr(tokenize, "FSTRING_MIDDLE", tokenize.STRING))
    assert [
        f"{place(path, token.start[0])}: {word}"
        for path in having(OWN_CODE, PROSE)
        for token in tokens(path)
        if token.type in texts
        for word in banned_words(token.string)
    ] == []


@pytest.mark.slow
def test_comments_and_docstrings_of_tests_are_plain() -> None:
    assert [
        f"{place(path, line)}: {word}"
        for path in having(CODE, PROSE)
        if path not in OWN_CODE and path != Path(__file__)
        for line, text in comments_and_docstrings(path)
        for word in banned_words(text)
    ] == []


def test_pages_are_plain() -> None:
    assert [
        f"{place(path, number)}: {word}"
        for path in [*PAGE, *DOCS]
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        for word in banned_words(line)
    ] == []


def test_a_file_that_a_text_names_exists() -> None:
    files = [f"/{path.relative_to(ROOT)}" for path in (*CODE, *PAGE, *(ROOT / "tests").rglob("*.py"))]
    assert [
        f"{place(path, 1)}: {name}"
        for path in [*OWN_CODE, *DOCS]
        for name in re.findall(r"`([\w./-]+\.(?:py|js|sh))`", path.read_text(encoding="utf-8"))
        if not any(file.endswith(f"/{name}") for file in files)
    ] == []


def having(paths: list[Path], words: frozenset[str]) -> list[Path]:
    """The files that may have one of the words, as a word or in an identifier: few, so that few have to be parsed."""
    lower, capitalised, upper = ("|".join(map(form, words)) for form in (str.lower, str.capitalize, str.upper))
    pattern = re.compile(
        rf"(?<![A-Za-z])(?:{lower})(?![a-z])|(?:{capitalised})(?![a-z])|(?<![A-Z])(?:{upper})(?![A-Za-z])"
    )
    return [path for path in paths if pattern.search(path.read_text(encoding="utf-8"))]


def place(path: Path, line: int) -> str:
    return f"{path.relative_to(ROOT)}:{line}"


def words_of(identifier: str) -> list[str]:
    return [word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", identifier)]


def tokens(path: Path) -> Iterator[tokenize.TokenInfo]:
    return tokenize.generate_tokens(io.StringIO(path.read_text(encoding="utf-8")).readline)


def comments_and_docstrings(path: Path) -> Iterator[tuple[int, str]]:
    """The prose of a module, with its lines. Other strings are data."""
    for token in tokens(path):
        if token.type == tokenize.COMMENT and "noqa" not in token.string:
            yield token.start[0], token.string
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node.lineno, node.value.value


def banned_words(text: str) -> list[str]:
    return [word for word in re.findall(r"[a-z]+", text.lower()) if word in PROSE]
