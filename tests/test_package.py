"""The public names are the contract, and a class name exists once in the package."""

import ast
import types
from collections import Counter
from pathlib import Path

import pytest

import penstock


def test_all_that_is_exported_is_in_all() -> None:
    exported = {
        name
        for name, value in vars(penstock).items()
        if not name.startswith("_") and not isinstance(value, types.ModuleType)
    }
    assert exported == set(penstock.__all__)


def test_the_names_are_in_order() -> None:
    assert penstock.__all__ == sorted(penstock.__all__)


@pytest.mark.slow
def test_class_names_are_unique_in_the_package() -> None:
    modules = Path(penstock.__file__).parent.rglob("*.py")
    trees = [ast.parse(module.read_text(encoding="utf-8")) for module in modules]
    classes = Counter(
        node.name.lstrip("_") for tree in trees for node in ast.walk(tree) if isinstance(node, ast.ClassDef)
    )
    assert [name for name, count in classes.items() if count > 1] == []
