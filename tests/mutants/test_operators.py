"""Mutants: which changes are made to a module, that each is one, and that a sample stays the same."""

import ast
from pathlib import Path

import pytest

from tests.mutants.operators import Mutant, mutants_of

# What a function says, and what is made of it.
CHANGES: dict[str, list[str]] = {
    "return a < b <= c": ["a <= b <= c", "a < b < c", "return None"],
    "return a is None or b not in c": ["a is not None", "b in c", "a is None and b not in c", "return None"],
    "return a + 1": ["a - 1", "2", "return None"],
    "return 'a %s' % b": ["return None"],
    "return True": ["False"],
    "return None": [],
    "return []": [],
    "return {}": [],
    "return f'{1 + 2}'": ["return None"],
    "if a: b()": ["not a", "pass"],
    "if not a: raise b": ["a", "pass"],
    "while a.b: continue": ["not a.b", "break"],
    "a.b = 1": ["pass", "2"],
    "a: Literal[1] = 2.5": ["3.5"],
    "a += b": ["a -= b", "pass"],
    "a = cast(Literal[1], b)": [],
    "'a docstring'": [],
}


def mutants(tmp_path: Path, source: str) -> list[Mutant]:
    (tmp_path / "module.py").write_text(source)
    return mutants_of(tmp_path / "module.py", tmp_path)


@pytest.mark.parametrize("statement", CHANGES)
def test_what_is_changed(tmp_path: Path, statement: str) -> None:
    source = f"@decorate(1)\nasync def f(a: int, *, b=c):\n    # größer\n    {statement}\n"
    made = mutants(tmp_path, source)
    assert sorted(each.after.removeprefix("(").removesuffix(")") for each in made) == sorted(CHANGES[statement])
    for each in made:
        changed = each.apply(source.encode()).decode()
        assert ast.dump(ast.parse(changed)) != ast.dump(ast.parse(source))
        assert (each.file, each.function, each.defined_at, each.line) == ("module.py", "f", 1, 4)


@pytest.mark.parametrize(
    "source",
    ["class A(Protocol):\n    def f(self):\n        return a", "if TYPE_CHECKING:\n    a = 1", "__slots__ = (1,)"],
)
def test_what_is_no_behaviour_is_left_alone(tmp_path: Path, source: str) -> None:
    assert mutants(tmp_path, source) == []


def test_constants_of_modules_and_classes_are_changed(tmp_path: Path) -> None:
    made = mutants(tmp_path, "A = 1\nclass B:\n    c: int = 2\n    def d(self, e=3): ...\n")
    assert [(each.function, each.defined_at, each.after) for each in made] == [
        ("", 0, "2"),
        ("", 0, "3"),
        ("B.d", 4, "4"),
    ]


def test_an_id_and_a_rank_last_while_other_lines_change(tmp_path: Path) -> None:
    one, two = (mutants(tmp_path, f"{more}def f():\n    return a + b, a + b\n") for more in ("", "import x\n\n"))
    assert [each.id for each in one] == [each.id for each in two]
    assert len({each.id for each in one}) == 3
    assert [each.rank(7) for each in one] == [each.rank(7) for each in two]
    assert one[0].rank(7) != one[0].rank(8)
