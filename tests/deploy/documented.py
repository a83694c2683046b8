"""Documented: runs the commands of a section of docs/deploy.md, as a reader would."""

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

PAGE = (Path(__file__).parents[2] / "docs" / "deploy.md").read_text(encoding="utf-8")
_BLOCK = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(heading: str) -> list[list[str]]:
    """The commands of each block under a heading, in order."""
    _, found, rest = PAGE.partition(f"\n{heading}\n")
    assert found, f"docs/deploy.md has no {heading!r}"
    section = re.split(r"^#+ ", rest, maxsplit=1, flags=re.MULTILINE)[0]
    return [[line.removeprefix("$ ") for line in block.splitlines()] for block in _BLOCK.findall(section)]


def run(commands: list[str], folder: Path, environment: Mapping[str, str], *programs: Path) -> str:
    """Run commands in a folder; returns what they print. Each must succeed. `penstock` is the one under test."""
    path = os.pathsep.join([*map(str, programs), str(Path(sys.executable).parent), os.environ["PATH"]])
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", "\n".join(commands)],
        cwd=folder,
        env=os.environ | {"PATH": path} | dict(environment),
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, f"{commands}\n{done.stdout}{done.stderr}"
    return done.stdout
