"""Prompt: reads what the user types, with line editing, history and completion if readline is available.

A line that ends in a backslash continues on the next one. Lines between two lines of three quotes are one message.
"""

import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from types import ModuleType

try:
    import readline as _readline
except ImportError:  # some builds of Python lack it
    _readline_module: ModuleType | None = None
else:
    _readline_module = _readline

FENCE = '"""'
_PROMPT, _MORE = "> ", ". "
_MAX_LINES = 1000


class Interrupted(Exception):
    """Ctrl-C at the prompt. `empty` if no text had been typed."""

    def __init__(self, *, empty: bool) -> None:
        super().__init__()
        self.empty = empty


class Prompt:
    """Reads messages. `history` is the file for the history, or None."""

    def __init__(
        self, styled: Callable[[str], str], complete: Callable[[str], list[str]], history: Path | None
    ) -> None:
        self._styled = styled if _readline_module is not None else lambda text: text
        self._complete = complete
        self._history = history
        self._matches: list[str] = []
        if _readline_module is not None:
            self._set_up(_readline_module)

    def read(self) -> str:
        """Read a message or a command. Raises `EOFError` at Ctrl-D, `Interrupted` at Ctrl-C."""
        lines: list[str] = []
        try:
            line = self._line(_PROMPT)
            if line.lstrip().startswith(FENCE):
                return self._fenced(line.lstrip().removeprefix(FENCE), lines)
            while line.endswith("\\"):
                lines.append(line[:-1])
                line = self._line(_MORE)
        except KeyboardInterrupt:
            typed = _readline_module.get_line_buffer() if _readline_module is not None else ""
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
        self._save(line)
        return line

    # Readline.

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
        """The completion with that number. Readline calls this with 0, 1, … until it returns None."""
        if state == 0:
            before = (
                _readline_module.get_line_buffer()[: _readline_module.get_begidx()]
                if _readline_module is not None
                else ""
            )
            options = self._complete(before)
            self._matches = [option for option in options if option.startswith(word)]
        return self._matches[state] if state < len(self._matches) else None

    def _save(self, line: str) -> None:
        """Append a line to the history file, which only the user can read."""
        if _readline_module is None or self._history is None or not line.strip():
            return
        try:
            _readline_module.append_history_file(1, self._history)
            self._history.chmod(0o600)
        except (OSError, AttributeError):
            self._history = None  # the chat continues without a history


def history_file(environment: Mapping[str, str]) -> Path | None:
    """The history file in the user's state directory. Creates it if it is missing; None if that fails."""
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
