"""The test suite itself: what test modules share is in modules of its own, and fast tests start no process."""

import ast
import functools
import multiprocessing
import os
import subprocess
import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest

from tests.tiers import FOLDERS, ROWS, SECOND_BROWSER, TOGETHER, is_sampled, unit_of

ROOT = Path(__file__).parents[1]


@functools.cache
def imported(file: Path) -> frozenset[str]:
    """The modules that a file imports; of `from package import module`, both."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(file.read_bytes())):
        if isinstance(node, ast.Import):
            found.update(name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.update((node.module, *(f"{node.module}.{name.name}" for name in node.names)))
    return frozenset(found)


@pytest.mark.slow
@pytest.mark.parametrize("folder", ["tests", "bench", "scripts"])
def test_no_module_imports_a_test_module(folder: str) -> None:
    for file in (ROOT / folder).rglob("*.py"):
        for module in imported(file):
            assert not (module.startswith("tests.") and ".test_" in module), f"{file} imports {module}"


@pytest.mark.slow
def test_only_the_tests_of_the_benchmarks_import_them() -> None:
    for file in (ROOT / "tests").rglob("*.py"):
        if not file.is_relative_to(ROOT / "tests" / "bench"):
            assert not {module for module in imported(file) if module.split(".")[0] == "bench"}, file


STARTS: dict[str, Callable[[], object]] = {
    "a command": lambda: subprocess.run([sys.executable, "-c", ""], check=True),
    "a shell": lambda: os.system("true"),
    "a spawned worker": lambda: multiprocessing.get_context("spawn").Process(target=print).start(),
    "a forked worker": lambda: multiprocessing.get_context("fork").Process(target=print).start(),
}


@pytest.mark.parametrize("start", STARTS.values(), ids=STARTS)
def test_a_fast_test_cannot_start_a_process(start: Callable[[], object]) -> None:
    with pytest.raises(pytest.fail.Exception, match=r"starts a process .* mark it as slow"):
        start()


@pytest.mark.slow
def test_a_slow_test_can() -> None:
    STARTS["a command"]()


def test_the_tables_of_folders_name_folders() -> None:
    for folder in (*FOLDERS, *TOGETHER):
        assert list((ROOT / "tests" / folder).rglob("test_*.py")), folder


def test_modules_stay_whole_and_some_folders_too() -> None:
    assert unit_of("tests/core/test_scan.py::test_a[x::y]") == "tests/core/test_scan.py"
    assert unit_of("tests/test_words.py::test_a") == "tests/test_words.py"
    assert unit_of("tests/web/test_access.py::test_a") == unit_of("tests/web/test_past.py::test_a")
    assert unit_of("tests/web/test_live.py::test_a") == unit_of("tests/web/test_tools.py::test_a")
    assert len({unit_of(f"tests/web/{module}.py::test_a") for module in ("test_past", *SECOND_BROWSER)}) == 2
    assert all((Path(__file__).parent / "web" / f"{module}.py").exists() for module in SECOND_BROWSER)


@pytest.mark.parametrize("rows", [1, ROWS, ROWS + 1, 3 * ROWS - 1, 100])
def test_the_fast_tier_has_a_sample_of_a_large_table(rows: int) -> None:
    sampled = [number for number in range(rows) if is_sampled(number, rows)]
    assert len(sampled) == min(rows, ROWS)
    gaps = {after - before for before, after in pairwise(sampled)}
    assert max(gaps, default=1) - min(gaps, default=1) <= 1  # evenly spread


def test_every_test_is_in_one_tier(request: pytest.FixtureRequest) -> None:
    for item in request.session.items:
        tiers = [mark.name for mark in item.iter_markers() if mark.name in ("fast", "slow", "browser")]
        assert len(set(tiers)) == 1, item.nodeid
