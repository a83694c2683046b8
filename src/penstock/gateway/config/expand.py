"""References in the strings of a configuration, which are replaced by what they name.

`${NAME}` is an environment variable. `${NAME:-default}` has a default, which may be empty and must not contain a
variable. `${file:PATH}` is the content of a file, and `${command:PROGRAM ARGUMENTS}` is what a program prints, both
without the line end. `$$` is a literal `$`; any other `$` is literal, too. A variable that is set but empty counts as
not set, because container tools pass unset variables as empty ones.
"""

import re
import shlex
import subprocess
from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct

_REFERENCE = re.compile(
    r"\$(?:\$|\{(?:(?:(file|command):([^}]+)|([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?)\})?)",
)
# A secret has some hundred bytes, a certificate a few thousand. A device must not be read without end.
_MAX_BYTES = 65_536
_COMMAND_S = 10.0


class Expansion(Struct, frozen=True):
    """A string with its references replaced: what they name, the variables that are missing, and what is wrong."""

    text: str
    references: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    malformed: bool = False
    problem: str = ""


class References:
    """Replaces references. `folder` is that of the configuration; `files` collects the files that were read."""

    def __init__(self, env: Mapping[str, str], folder: Path) -> None:
        self._env = env
        self._folder = folder
        self._printed: dict[str, str] = {}
        self.files: set[str] = set()

    def expand(self, text: str) -> Expansion:
        """Replace the references of a string."""
        references: list[str] = []
        missing: list[str] = []
        problems: list[str] = []
        malformed = False

        def fill(match: re.Match[str]) -> str:
            nonlocal malformed
            kind, argument, name, default = match.groups()
            if kind is not None:
                references.append(f"{kind} {argument if kind == 'file' else argument.split()[0]}")
                try:
                    return self._read(argument) if kind == "file" else self._run(argument)
                except ValueError as error:
                    problems.append(str(error))
                    return ""
            if name is None:
                malformed |= match[0] == "${"
                return "$"
            malformed |= default is not None and "${" in default  # the first } would end both
            references.append(name)
            value = self._env.get(name) or default
            if value is None:
                missing.append(name)
                return ""
            return value

        filled = _REFERENCE.sub(fill, text)
        return Expansion(filled, tuple(references), tuple(missing), malformed, "; ".join(problems))

    def _read(self, argument: str) -> str:
        path = self._folder / Path(argument).expanduser()
        self.files.add(str(path))
        try:
            with path.open("rb") as file:
                content = file.read(_MAX_BYTES + 1)
        except OSError as error:
            raise ValueError(f"cannot read {path}: {error.strerror}") from None
        return _text(content, str(path))

    def _run(self, command: str) -> str:
        """What a command prints. It is run once, however often it is named."""
        if command not in self._printed:
            try:
                arguments = shlex.split(command)
                done = subprocess.run(
                    arguments, stdin=subprocess.DEVNULL, capture_output=True, timeout=_COMMAND_S, check=False
                )
            except subprocess.TimeoutExpired:
                raise ValueError(f"the command {command.split()[0]} took longer than {_COMMAND_S:g} s") from None
            except (OSError, ValueError) as error:
                reason = error.strerror if isinstance(error, OSError) else error
                raise ValueError(f"the command {command.split()[0]} cannot be run: {reason}") from None
            if done.returncode:  # what it printed may contain a secret
                raise ValueError(f"the command {arguments[0]} failed with exit status {done.returncode}")
            self._printed[command] = _text(done.stdout, f"the output of {arguments[0]}")
        return self._printed[command]


def _text(content: bytes, what: str) -> str:
    try:
        text = content.decode().strip()
    except UnicodeDecodeError:
        raise ValueError(f"{what} is not text in UTF-8") from None
    if len(content) > _MAX_BYTES:
        raise ValueError(f"{what} has more than {_MAX_BYTES} bytes")
    if not text:
        raise ValueError(f"{what} is empty")
    return text
