"""The page of the library is true: its examples print what it shows, pass mypy, and name all that is public."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import penstock
from penstock.core.dialects.registry import DIALECTS

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "library.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"^```python\n(.*?)^```\n\n```\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def run(command: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=300)


@pytest.mark.slow
@pytest.mark.parametrize(("code", "shown"), EXAMPLES, ids=range(len(EXAMPLES)))
def test_an_example_prints_what_the_page_shows(code: str, shown: str) -> None:
    ran = run([sys.executable, "-c", code], ROOT)
    assert (ran.stdout, ran.stderr) == (shown, "")


@pytest.mark.slow
def test_the_examples_pass_the_strict_mode_of_mypy(tmp_path: Path) -> None:
    files = []
    for number, (code, _) in enumerate(EXAMPLES):
        files.append(tmp_path / f"example_{number}.py")
        files[-1].write_text(f"import penstock\n\n{code}\nversion: str = penstock.__version__\n")
    strict = [sys.executable, "-m", "mypy", "--strict", "--config-file=", "--cache-dir", str(tmp_path)]
    checked = run([*strict, *map(str, files)], tmp_path)
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_every_example_shows_its_output() -> None:
    assert len(EXAMPLES) == PAGE.count("```python") == 4


def test_the_page_has_every_public_name_and_no_other() -> None:
    _, _, table = PAGE.partition("## The public names")
    names = re.findall(r"`(\w+)`", "".join(re.findall(r"^\| (`.*?) \|", table, re.MULTILINE)))
    assert sorted(names) == penstock.__all__


def test_the_page_has_every_dialect() -> None:
    assert set(DIALECTS) <= set(re.findall(r"`(\w+)`", PAGE))


def test_the_version_is_that_of_the_project() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert penstock.__version__ == project["version"]
    assert "__version__" not in vars(penstock)


def test_another_name_is_an_error() -> None:
    with pytest.raises(AttributeError, match="module 'penstock' has no attribute 'vesion'"):
        penstock.vesion  # noqa: B018 - the access is the test


def test_the_package_is_typed() -> None:
    assert (Path(penstock.__file__).parent / "py.typed").is_file()
