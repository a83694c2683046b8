"""Invocation: what to type, in the shell that this program was started from, to start it again."""

import os
import shlex
import shutil
import sys
from pathlib import Path

_NAME = "penstock"


def invocation(*arguments: str) -> str:
    """A command of Penstock that works there as it stands: by its name, if that is on the PATH, else by its path."""
    return shlex.join([*_program(Path(sys.argv[0])), *arguments])


def _program(started: Path) -> list[str]:
    found = shutil.which(_NAME)
    own = started if started.name == _NAME else Path(sys.executable).with_name(_NAME)
    if found is not None and (not own.exists() or Path(found).samefile(own)):
        return [_NAME]
    if own.exists():
        return [_from_here(own)]
    return [_from_here(Path(sys.executable)), "-m", _NAME]


def _from_here(program: Path) -> str:
    """The path of a program from the working directory, if it lies below it, else from the root."""
    here = Path.cwd()
    path = Path(os.path.abspath(program))  # and not what a link of a virtual environment leads to
    return f"{path.relative_to(here)}" if path.is_relative_to(here) and path.parent != here else str(path)
