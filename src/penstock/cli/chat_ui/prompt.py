"""Prompt: reads what the user types, with the terminal's own editing, history and completion where readline is there.

A line that ends in a backslash goes on; what stands between lines of three quotes is one message.
"""

import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from types import ModuleType

try:
    import readline as _readline
except ImportError:  # some systems have a Python without it
    _found: ModuleType | None = None
else:
    _found = _readline

FENCE = '"""'
_PROMPT, _MORE = "> ", ". "
_MAX_LINES = 1000


class Interrupted(Exception):
    """Ctrl-C at the prompt; `empty` if there was nothing to drop."""

    def __init__(self, *, empty: bool) -> None:
        super().__init__()
        self.empty = empty


class Prompt:
    """Where the user types. `history` is the file that keeps the lines, None for none."""

    def __init__(
        self, styled: Callable[[str], str], complete: Callable[[str], list[str]], history: Path | None
    ) -> None:
        self._styled = styled if _found is not None else lambda text: text
        self._complete = complete
        self._history = history
        self._matches: list[str] = []
        if _found is not None:
            self._set_up(_found)

    def read(self) -> str:
        """A message or a command. Raises `EOFError` at Ctrl-D, `Interrupted` at Ctrl-C."""
        lines: list[str] = []
        try:
            line = self._line(_PROMPT)
            if line.lstrip().startswith(FENCE):
                return self._fenced(line.lstrip().removeprefix(FENCE), lines)
            while line.endswith("\\"):
                lines.append(line[:-1])
                line = self._line(_MORE)
        except KeyboardInterrupt:
            typed = _found.get_line_buffer() if _found is not None else ""
            raise Interrupted(empty=not lines and not typed) from None
        return "\n".join([*lines, line]).rstrip()

    def _fenced(self, line: str, lines: list[str]) -> str:
        while not line.rstrip().endswith(FENCE):
            lines.append(line)
            line = self._line(_MORE)
        lines.append(line.rstrip().removesuffix(FENCE))
        return "\n".join(lines).strip("\n")

    def _line(self, prompt: str) -> str:
        line = input(self._styled(prompt))
        self._keep(line)
        return line

    # What readline does.

    def _set_up(self, readline: ModuleType) -> None:
        readline.set_completer_delims(" ")
        readline.set_completer(self._match)
        edit_line = "libedit" in (readline.__doc__ or "")
        readline.parse_and_bind("bind ^I rl_complete" if edit_line else "tab: complete")
        readline.set_history_length(_MAX_LINES)
        if self._history is not None:
            with suppress(OSError):
                readline.read_history_file(self._history)

    def _match(self, word: str, state: int) -> str | None:
        """The match of that number, as readline asks for them, one after the other."""
        if state == 0:
            before = _found.get_line_buffer()[: _found.get_begidx()] if _found is not None else ""
            options = self._complete(before)
            self._matches = [option for option in options if option.startswith(word)]
        return self._matches[state] if state < len(self._matches) else None

    def _keep(self, line: str) -> None:
        """Add a line to the file, which nobody else may read."""
        if _found is None or self._history is None or not line.strip():
            return
        try:
            _found.append_history_file(1, self._history)
            self._history.chmod(0o600)
        except (OSError, AttributeError):
            self._history = None  # it cannot be kept: the chat goes on without


def history_file(environment: Mapping[str, str]) -> Path | None:
    """The file of the history, in the user's state folder, made if it is not there; None if that cannot be."""
    home = environment.get("HOME", "")
    state = environment.get("XDG_STATE_HOME") or (os.path.join(home, ".local", "state") if home else "")
    if not os.path.isabs(state):
        return None
    file = Path(state) / "penstock" / "chat_history"
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.close(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))
        file.chmod(0o600)
    except OSError:
        return None
    return file
