"""TOML with line numbers: every path that tomllib knows has its line, however the file is written."""

import tomllib
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.gateway.config.toml import Path, dotted, parse

STRINGS = r'''a = """
[b]
c = 1 \"""
\\"""
d = QQQ
[e]
QQQQQ
f = "[g] # \"" # h = 1
i = '\'
j = """"x"""""
k = 1
'''.replace("Q", "'")

CASES: dict[str, tuple[str, dict[Path, int]]] = {
    "nothing": ("\n# only [a] = comment\n\n", {}),
    "keys and tables": ("a = 1\n\n[b]\nc = 2\n", {("a",): 1, ("b",): 3, ("b", "c"): 4}),
    "dotted keys": (
        "a . b.c = 1\na.d = 2",
        {("a",): 1, ("a", "b"): 1, ("a", "b", "c"): 1, ("a", "d"): 2},
    ),
    "quoted keys": (
        '"a.b" = 1\n\'c d\'."\\u0065\\"]" = 2\n[ "[f]" ]\n',
        {("a.b",): 1, ("c d",): 2, ("c d", 'e"]'): 2, ("[f]",): 3},
    ),
    "a table after its own child": (
        "[a.b]\nc = 1\n[a]\nd = 2",
        {("a",): 3, ("a", "b"): 1, ("a", "b", "c"): 2, ("a", "d"): 4},
    ),
    "inline tables": (
        "a = { b = 1, c.d = { e = [1] } }\nf = {}",
        {
            **dict.fromkeys([("a",), ("a", "b"), ("a", "c"), ("a", "c", "d"), ("a", "c", "d", "e")], 1),
            ("a", "c", "d", "e", 0): 1,
            ("f",): 2,
        },
    ),
    "lists over many lines, with comments": (
        "a = [ # one\n  1, 2,\n  # ] not the end\n  [\n    '#', # ]\n  ],\n  {b = 1}\n]\nc = []",
        {
            ("a",): 1,
            ("a", 0): 2,
            ("a", 1): 2,
            ("a", 2): 4,
            ("a", 2, 0): 5,
            ("a", 3): 7,
            ("a", 3, "b"): 7,
            ("c",): 9,
        },
    ),
    "arrays of tables": (
        "[[a]]\nb = 1\n[[a.c]]\n[a.c.d]\ne = 1\n[[a]]\n[[a.c]]\n[[a.c]]\nf = 1",
        {
            ("a",): 1,
            ("a", 0): 1,
            ("a", 0, "b"): 2,
            ("a", 0, "c"): 3,
            ("a", 0, "c", 0): 3,
            ("a", 0, "c", 0, "d"): 4,
            ("a", 0, "c", 0, "d", "e"): 5,
            ("a", 1): 6,
            ("a", 1, "c"): 7,
            ("a", 1, "c", 0): 7,
            ("a", 1, "c", 1): 8,
            ("a", 1, "c", 1, "f"): 9,
        },
    ),
    "strings that look like TOML": (STRINGS, {("a",): 1, ("d",): 5, ("f",): 8, ("i",): 9, ("j",): 10, ("k",): 11}),
    "dates, numbers and words": (
        "a = 1979-05-27 07:32:00Z # x\nb = 1_000.5e+3\nc = [07:32:00, 1979-05-27 07:32:00, -inf]\nd = true",
        {("a",): 1, ("b",): 2, ("c",): 3, ("c", 0): 3, ("c", 1): 3, ("c", 2): 3, ("d",): 4},
    ),
    "Windows": (
        "\ufeffa = 1\r\n\r\n[b]\r\nc = '''\r\n'''\r\nd = 1\r\n",
        {("a",): 1, ("b",): 3, ("b", "c"): 4, ("b", "d"): 6},
    ),
}


@pytest.mark.parametrize(("text", "lines"), CASES.values(), ids=CASES)
def test_every_path_has_its_line(text: str, lines: dict[Path, int]) -> None:
    document = parse(text.encode(), "a.toml")
    assert document.lines == lines
    assert set(paths(document.data)) == set(lines)


def paths(value: object, path: Path = ()) -> Iterator[Path]:
    """Every path in a value."""
    if path:
        yield path
    if isinstance(value, dict):
        for name, item in value.items():
            yield from paths(item, (*path, name))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from paths(item, (*path, index))


KEYS = st.sampled_from(["a", "b-1", "c_2", '"d.e"', "'f g'", '"#"', "'[h]'", '"\\u0069\\""', "''"])
DOTTED = st.lists(KEYS, min_size=1, max_size=3).map(" . ".join)
BREAKS = st.sampled_from(["", " ", "\n", " # ] } = ,\n", "\n\n\t"])
SCALARS = st.sampled_from(
    [
        "1",
        "-2.5e3",
        "true",
        "nan",
        "1979-05-27 07:32:00",
        '""',
        '"]#\\""',
        "'}'",
        '"""\n[a]\n\\""" """""',
        "'''\n= '''''",
    ]
)


def lists(items: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    pieces = st.lists(st.tuples(BREAKS, items, BREAKS).map("".join), max_size=3)
    return st.tuples(pieces.map(",".join), BREAKS).map(lambda parts: f"[{parts[0]}{parts[1]}]")


def inline(items: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.lists(st.tuples(KEYS, items).map(" = ".join), max_size=3).map(
        lambda pairs: "{ " + ", ".join(pairs) + " }"
    )


VALUES = st.recursive(SCALARS, lambda items: lists(items) | inline(items), max_leaves=6)
STATEMENTS = st.one_of(
    st.tuples(DOTTED, VALUES).map(" = ".join),
    DOTTED.map("[{}]".format),
    DOTTED.map("[[ {} ]]".format),
    BREAKS,
)


@given(st.lists(STATEMENTS, max_size=12).map("\n".join))
def test_the_scanner_knows_the_paths_that_tomllib_knows(text: str) -> None:
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return  # the pieces do not fit together; mostly they do
    document = parse(text.encode(), "a.toml")
    assert set(paths(data)) == set(document.lines)
    assert all(1 <= line <= text.count("\n") + 1 for line in document.lines.values())


def test_what_is_not_there_has_the_line_of_what_is_around_it() -> None:
    document = parse(b"[a]\nb = [\n1]", "a.toml")
    assert [document.line(path) for path in (("a", "b", 0), ("a", "b", 7), ("a", "c"), ("d",), ())] == [
        3,
        2,
        1,
        None,
        None,
    ]


def test_a_path_is_shown_as_one_would_write_it() -> None:
    assert dotted(("routes", "a b", "targets", 1, 'x\n"')) == 'routes."a b".targets[1]."x\\n\\""'
