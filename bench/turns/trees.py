"""Source trees to compare: copies of this working tree and of a commit, both run by the Python of this `.venv`.

Both are copied before anything is measured, so that an edit during a run changes nothing. A gateway of a tree is
started with the tree's `src` in `PYTHONPATH`, which precedes the editable install of this working tree.
"""

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

from bench.load.processes import ROOT, MissingError


def copy_working_tree(target: Path) -> Path:
    """Copy the working tree's `src`, with changes that are not committed. Returns the copy."""
    source = target / "src"
    shutil.copytree(ROOT / "src", source, ignore=shutil.ignore_patterns("__pycache__"))
    return checked(source)


def export_commit(commit: str, target: Path) -> Path:
    """Write the `src` of a commit into a folder. Returns its path."""
    target.mkdir()
    archive = target / "src.zip"
    command = ["git", "-C", str(ROOT), "archive", "--format=zip", "--output", str(archive), commit, "src"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise MissingError(f"cannot export {commit}: {done.stderr.strip()}")
    with zipfile.ZipFile(archive) as packed:
        packed.extractall(target)
    return checked(target / "src")


def environment(source: Path) -> dict[str, str]:
    """The environment in which `python -m penstock` runs the code of a tree."""
    return {**os.environ, "PYTHONPATH": str(source)}


def describe(commit: str) -> str:
    """A commit's short hash and subject."""
    command = ["git", "-C", str(ROOT), "log", "-1", "--format=%h %s", commit, "--"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise MissingError(f"there is no commit {commit}: {done.stderr.strip()}")
    return done.stdout.strip()


def checked(source: Path) -> Path:
    """The tree itself. Raises `MissingError` unless Python imports Penstock from it."""
    code = "import penstock; print(penstock.__file__)"
    found = subprocess.run(
        [sys.executable, "-c", code], env=environment(source), cwd=source, capture_output=True, text=True, check=False
    )
    if Path(found.stdout.strip()) != source / "penstock" / "__init__.py":
        raise MissingError(f"Python does not import Penstock from {source}: {found.stdout}{found.stderr}".strip())
    return source
