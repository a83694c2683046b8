"""The suite itself: what test modules share is in modules of its own."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def imported(file: Path) -> Iterator[str]:
    """The modules that a file imports; of `from package import module`, both."""
    for node in ast.walk(ast.parse(file.read_bytes())):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{name.name}" for name in node.names)


@pytest.mark.parametrize("folder", ["tests", "bench", "scripts"])
def test_no_module_imports_a_test_module(folder: str) -> None:
    for file in (ROOT / folder).rglob("*.py"):
        for module in imported(file):
            assert not (module.startswith("tests.") and ".test_" in module), f"{file} imports {module}"


def test_only_the_tests_of_the_benchmarks_import_them() -> None:
    for file in (ROOT / "tests").rglob("*.py"):
        if not file.is_relative_to(ROOT / "tests" / "bench"):
            assert not {module for module in imported(file) if module.split(".")[0] == "bench"}, file
