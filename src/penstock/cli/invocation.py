"""Invocation: the command with which the user can run Penstock again in the same shell."""

import shlex
import shutil
import sys
from pathlib import Path

from penstock.installation import shortest_path

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
        return [shortest_path(own)]
    return [shortest_path(Path(sys.executable)), "-m", _NAME]
