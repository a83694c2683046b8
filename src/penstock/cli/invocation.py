"""Invocation: the command with which the user can run Penstock again in the same shell."""

import os
import shlex
import shutil
import sys
from pathlib import Path

_NAME = "penstock"


def invocation(*arguments: str) -> str:
    """A command line that works as printed: by the name `penstock` if that is on the PATH, otherwise by its path."""
    return shlex.join([*_program(Path(sys.argv[0])), *arguments])


def _program(started: Path) -> list[str]:
    on_path = shutil.which(_NAME)
    own = started if started.name == _NAME else Path(sys.executable).with_name(_NAME)
    if on_path is not None and (not own.exists() or Path(on_path).samefile(own)):
        return [_NAME]
    if own.exists():
        return [_shortest_path(own)]
    return [_shortest_path(Path(sys.executable)), "-m", _NAME]


def _shortest_path(program: Path) -> str:
    """The path of a program relative to the working directory if it is below it, otherwise absolute."""
    directory = Path.cwd()
    path = Path(os.path.abspath(program))  # not resolved: a link of a virtual environment must stay
    return (
        f"{path.relative_to(directory)}" if path.is_relative_to(directory) and path.parent != directory else str(path)
    )
