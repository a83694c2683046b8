"""Session: the dialogue on a terminal. A line that starts with a slash is a command, any other is a question.

Ctrl-C stops an answer; at the prompt it discards the typed text. A second Ctrl-C at the empty prompt ends the session,
and so does Ctrl-D.
"""

import signal
import sys
import termios
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from pathlib import Path

from penstock.cli.chat_ui.answer import ChatResult
from penstock.cli.chat_ui.caller import Caller
from penstock.cli.chat_ui.conversation import ChatTurn, Conversation
from penstock.cli.chat_ui.prompt import Interrupted, Prompt
from penstock.cli.chat_ui.screen import Screen
from penstock.cli.text import one_line, seconds
from penstock.http.upstream_connection import UpstreamError

# Name → argument and description.
COMMANDS: dict[str, tuple[str, str]] = {
    "/model": ("NAME", "switch to another model; without a name, list them"),
    "/system": ("TEXT", "set the system prompt; none removes it"),
    "/retry": ("", "ask the last question again"),
    "/save": ("FILE", "save the conversation, as .md or .json"),
    "/raw": ("", "show the events of the last answer as they arrived"),
    "/clear": ("", "forget the conversation"),
    "/help": ("", "show this"),
    "/quit": ("", "leave; so does Ctrl-D"),
}
_KEYS = 'A line that ends in \\ goes on; """ begins and ends a message of several lines. Ctrl-C stops an answer.'


class Session:
    """A user, a terminal and a gateway."""

    def __init__(self, caller: Caller, conversation: Conversation, screen: Screen, models: list[str]) -> None:
        self._caller = caller
        self._conversation = conversation
        self._screen = screen
        self._models = models
        self._question = ""
        self._result: ChatResult | None = None
        self._saved: set[Path] = set()
        self._interrupted = False
        self._actions: dict[str, Callable[[str], None]] = {
            "/model": self._model,
            "/system": self._system,
            "/retry": self._retry,
            "/save": self._save,
            "/raw": self._raw,
            "/clear": self._clear,
            "/help": self._help,
        }

    def run(self, history: Path | None) -> None:
        """Run the dialogue until the user ends it."""
        prompt = Prompt(self._screen.prompt, self._complete, history)
        self._screen.print(f"{self._conversation.model} · /help for help, Ctrl-D to leave")
        while True:
            try:
                typed = prompt.read()
            except EOFError:
                self._screen.print("")
                return
            except Interrupted as interrupted:
                self._screen.print("")
                if interrupted.empty and self._interrupted:
                    return
                if interrupted.empty:
                    self._screen.print("Ctrl-C again, or Ctrl-D, to leave")
                self._interrupted = True
                continue
            self._interrupted = False
            if typed.strip() in ("/quit", "/exit"):
                return
            self._handle(typed)

    def _handle(self, typed: str) -> None:
        if typed.startswith("/"):
            name, _, argument = typed.partition(" ")
            action = self._actions.get(name)
            if action is not None:
                action(argument.strip())
            else:
                self._unknown(name)
        elif typed.strip():
            self._ask(typed.strip())

    def _ask(self, question: str) -> None:
        self._question = question
        conversation, screen = self._conversation, self._screen
        with _without_echo():
            pending = self._caller.ask(conversation.model, conversation.messages(question))

            def stop(*_: object) -> None:
                self._interrupted = True
                pending.stop()

            before = signal.signal(signal.SIGINT, stop)
            try:
                for events in pending.answer:
                    screen.show(events)
                result = self._result = pending.answer.result
                screen.finish(result)
            finally:
                pending.stop()
                signal.signal(signal.SIGINT, before)
        conversation.turns.append(ChatTurn(question, result))

    # The commands.

    def _model(self, name: str) -> None:
        if not name:
            for model in self._models:
                self._screen.line(f"{'*' if model == self._conversation.model else ' '} {model}")
            if self._conversation.model not in self._models:
                self._screen.line(f"* {self._conversation.model}")
            return
        try:
            known = name in self._models or self._caller.knows(name)
        except (UpstreamError, TimeoutError):
            known = True  # the next question shows whether it exists
        if known:
            self._conversation.model = name
            self._screen.print(f"using {name}")
        else:
            self._screen.print(f"there is no model {name!r}{_meant(name, self._models)}", "warning")

    def _system(self, text: str) -> None:
        if text:
            self._conversation.system = "" if text == "none" else text
            self._screen.print(
                "the system prompt is set" if self._conversation.system else "the system prompt is removed"
            )
        else:
            self._screen.print(self._conversation.system or "there is no system prompt; /system TEXT sets one")

    def _retry(self, _: str) -> None:
        if not self._question:
            self._screen.print("there is nothing to retry yet", "warning")
            return
        turns = self._conversation.turns
        if turns and turns[-1].question == self._question:
            turns.pop()
        for number, line in enumerate(self._question.splitlines()):
            self._screen.line(f"  {line}" if number else f"> {line}")
        self._ask(self._question)

    def _save(self, name: str) -> None:
        file = Path(name).expanduser()
        problem = ""
        if not name:
            problem = "give a file name: /save talk.md, or talk.json"
        elif not self._conversation.turns:
            problem = "there is nothing to save yet"
        elif file.suffix not in (".md", ".json"):
            problem = "end the name in .md for Markdown, or in .json"
        elif file.exists() and file.resolve() not in self._saved:
            problem = f"{file} is there already; choose another name"
        if problem:
            self._screen.print(problem, "warning")
            return
        talk = self._conversation
        try:
            file.write_bytes(talk.as_json() + b"\n" if file.suffix == ".json" else talk.as_markdown().encode())
        except OSError as error:
            self._screen.print(f"{file} cannot be written: {error.strerror}; choose another name", "bad")
            return
        self._saved.add(file.resolve())
        self._screen.print(f"saved to {file}")

    def _raw(self, _: str) -> None:
        if self._result is None:
            self._screen.print("there is no answer to show yet", "warning")
            return
        for at_s, data in self._result.reads:
            when = seconds(at_s)
            for line in filter(None, data.decode(errors="replace").split("\n")):
                self._screen.print(f"{when:>8}  {one_line(line)}")
                when = ""

    def _clear(self, _: str) -> None:
        self._conversation.turns.clear()
        self._question, self._result = "", None
        kept = "; the system prompt stays" if self._conversation.system else ""
        self._screen.print(f"new conversation{kept}")

    def _help(self, _: str) -> None:
        for name, (takes, does) in COMMANDS.items():
            self._screen.print(f"{f'{name} {takes}':13} {does}")
        self._screen.print(_KEYS)

    def _unknown(self, name: str) -> None:
        meant = _meant(name, COMMANDS) or "; /help lists them"
        self._screen.print(f"there is no command {name}{meant} (a space before it sends it as text)", "warning")

    def _complete(self, before: str) -> list[str]:
        """Completions for the text before the cursor."""
        if not before:
            return [f"{name} " if takes else name for name, (takes, _) in COMMANDS.items()]
        return self._models if before.split() == ["/model"] else []


def _meant(word: str, options: "list[str] | dict[str, tuple[str, str]]") -> str:
    near = get_close_matches(word, options, n=1, cutoff=0.5)
    return f"; did you mean {near[0]}?" if near else ""


@contextmanager
def _without_echo() -> Iterator[None]:
    """Disable the echo of typed text while an answer streams. The text is read at the next prompt."""
    descriptor = sys.stdin.fileno()
    try:
        before = termios.tcgetattr(descriptor)
    except termios.error:
        yield
        return
    quiet = [*before]
    quiet[3] &= ~termios.ECHO
    termios.tcsetattr(descriptor, termios.TCSANOW, quiet)
    try:
        yield
    finally:
        termios.tcsetattr(descriptor, termios.TCSANOW, before)
