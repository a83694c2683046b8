"""How Penstock was installed: the name of its distribution, and the command that adds an optional feature."""

import json
import re
import shlex
import subprocess
import sys
from importlib.metadata import Distribution, PathDistribution
from pathlib import Path

import pytest

from penstock.installation import DISTRIBUTION, install_command
from tests.cli.support import ROOT

_NAMED = re.compile(rb"(?<![\w/.-])penstock(?:\[\w+\]|==)")


def distribution(folder: Path, origin: object) -> Distribution:
    """An installed distribution with this origin (PEP 610)."""
    (folder / "METADATA").write_text(f"Name: {DISTRIBUTION}\n")
    if origin is not None:
        (folder / "direct_url.json").write_text(json.dumps(origin))
    return PathDistribution(folder)


def test_each_way_of_installing_has_its_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pip", json)  # any module: pip is there
    monkeypatch.chdir(tmp_path)
    checkout = distribution(tmp_path, {"url": tmp_path.as_uri(), "dir_info": {"editable": True}})
    python = ".venv/bin/python"
    assert install_command("aws", {}, checkout, python) == f"{python} -m pip install -e '.[aws]'"
    (tmp_path / "wheel").mkdir()
    wheel = distribution(tmp_path / "wheel", {"url": "file:///dist/x.whl", "archive_info": {}})
    command = install_command("aws", {}, wheel, "/opt/penstock/bin/python")
    assert command == "/opt/penstock/bin/python -m pip install 'penstock-gateway[aws]'"
    monkeypatch.chdir(tmp_path / "wheel")
    assert install_command("aws", {}, checkout, "/v/python").endswith(f"-e {shlex.quote(f'{tmp_path}[aws]')}")
    image = install_command("local", {"PENSTOCK_IMAGE": "1"}, wheel)
    assert "requirements-image.txt" in image
    assert "pip install" not in image


def test_no_text_names_the_package_of_another_project() -> None:
    folders = [ROOT / name for name in ("bench", "deploy", "docs", "scripts", "src")]
    files = [*ROOT.glob("*"), *(file for folder in folders for file in folder.rglob("*"))]
    texts = {file: file.read_bytes() for file in files if file.is_file() and "__pycache__" not in file.parts}
    assert [str(file) for file, text in texts.items() if _NAMED.search(text)] == []


# Hides every package that the given requirements do not pin, then runs the command line.
_ONLY = """
import importlib.metadata, re, sys
pinned = {re.sub(r"[-_.]+", "-", name).lower() for name in sys.argv[1].split(",")}
for module, owners in importlib.metadata.packages_distributions().items():
    if module != "penstock" and pinned.isdisjoint(re.sub(r"[-_.]+", "-", owner).lower() for owner in owners):
        sys.modules[module] = None
from penstock.cli.main import main
sys.argv = sys.argv[1:]
main()
"""


@pytest.mark.slow
@pytest.mark.parametrize("requirements", ["requirements.txt", "requirements-image.txt"])
def test_the_readme_imports_from_litellm_with_the_packages_that_are_pinned(requirements: str, tmp_path: Path) -> None:
    (command,) = re.findall(
        r"^    \.venv/bin/penstock (import litellm .*)$", (ROOT / "README.md").read_text(), re.MULTILINE
    )
    (tmp_path / "config.yaml").write_text("model_list: [{model_name: a, litellm_params: {model: openai/b}}]\n")
    pinned = ",".join(re.findall(r"^([\w.-]+)(?:\[.*\])?==", (ROOT / requirements).read_text(), re.MULTILINE))
    run = [sys.executable, "-c", _ONLY, pinned, *shlex.split(command)]
    done = subprocess.run(run, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    assert 'targets = ["openai/b"]' in (tmp_path / "penstock.toml").read_text()
