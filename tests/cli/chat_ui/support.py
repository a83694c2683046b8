"""Shared by the tests of the chat: a configuration with a scripted upstream, a run in a pipe, and a real terminal."""

import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from contextlib import ExitStack, chdir
from io import StringIO
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, NamedTuple, Self, TextIO
from unittest.mock import patch

import pytest

from penstock.cli.main import commands
from tests.cli.support import command
from tests.faults.upstream import Upstream
from tests.serve.in_process import write_prices

KEY = "canary-of-the-chat-51fe"
_ESCAPES = re.compile(r"\x1b\[[?\d;]*[A-Za-z]|[\x01\x02]")
_WAIT_S = 10.0
_MOST_S = 30


def environment(folder: Path, **more: str) -> dict[str, str]:
    """The variables of a user who has no provider's key."""
    kept = {name: os.environ[name] for name in ("PATH", "LANG", "PYTHONPATH", "VIRTUAL_ENV") if name in os.environ}
    # Beside the folder, so that prices are compiled once for all tests of a run.
    own = {"HOME": str(folder), "PENSTOCK_CACHE": str(folder.parent / "cache"), "TERM": "xterm", "LC_ALL": "C.UTF-8"}
    return kept | own | more


def configure(folder: Path, upstream: Upstream, *models: str) -> Path:
    """A configuration with three providers: one has long timeouts and lists models, the others have a short one."""
    file = folder / "penstock.toml"
    file.write_text(
        f"""
[providers.main]
base_url = "{upstream.url}"
api_key = "{KEY}"
models = {json.dumps(models)}
[providers.hasty]
base_url = "{upstream.url}"
api_key = "{KEY}"
timeouts = {{ first_event_s = 0.25 }}
[providers.hasty-gap]
base_url = "{upstream.url}"
api_key = "{KEY}"
timeouts = {{ gap_s = 0.25 }}
"""
    )
    return file


class Finished(NamedTuple):
    """What a run of the command has written, and its exit status."""

    stdout: str
    stderr: str
    returncode: int


def chat(folder: Path, *arguments: str, stdin: str = "Hi?", **more: str) -> Finished:
    """`penstock chat` in a pipe, inside this process. The package's prices are not compiled."""
    with TemporaryFile("w+", encoding="utf-8") as given:
        given.write(stdin)
        given.seek(0)
        return _checked(_run(folder, given, TemporaryFile("w+", encoding="utf-8", newline=""), *arguments, **more))


def chat_process(folder: Path, *arguments: str, stdin: str = "Hi?", **more: str) -> Finished:
    """`penstock chat` in a pipe, as a shell runs it."""
    finished = subprocess.run(
        command("chat", *arguments),
        input=stdin,
        capture_output=True,
        text=True,
        cwd=folder,
        env=environment(folder, **more),
        check=False,
        timeout=60,
    )
    return _checked(Finished(finished.stdout, finished.stderr, finished.returncode))


def dialogue(
    folder: Path,
    *arguments: str,
    typed: str,
    shown: StringIO | None = None,
    variables: dict[str, str] | None = None,
) -> Finished:
    """`penstock chat` on a terminal, inside this process: every line is typed before it starts, without line editing.

    `shown` is what another thread may look at while it runs.
    """
    ours, theirs = pty.openpty()
    quiet = termios.tcgetattr(theirs)
    quiet[3] &= ~termios.ECHO
    termios.tcsetattr(theirs, termios.TCSANOW, quiet)
    with os.fdopen(theirs) as given:
        os.write(ours, typed.encode())
        finished = _run(folder, given, shown or Shown(), *arguments, **(variables or {}))
    os.close(ours)
    return _checked(finished)


class Shown(StringIO):
    """The output of a terminal."""

    def isatty(self) -> bool:
        return True


def _run(folder: Path, stdin: TextIO, stdout: TextIO, *arguments: str, **more: str) -> Finished:
    before = signal.getsignal(signal.SIGINT)
    alarm = signal.signal(signal.SIGALRM, _give_up)
    signal.alarm(_MOST_S)  # it may wait for a key for ever
    write_prices(folder / "cache")
    with ExitStack() as stack:
        stderr = stack.enter_context(TemporaryFile("w+", encoding="utf-8"))
        stack.enter_context(stdout)
        stack.enter_context(chdir(folder))
        stack.enter_context(
            patch.dict(os.environ, environment(folder, **{"PENSTOCK_CACHE": str(folder / "cache"), **more}), clear=True)
        )
        for name, stream in (("stdin", stdin), ("stdout", stdout), ("stderr", stderr)):
            stack.enter_context(patch.object(sys, name, stream))
        try:
            with pytest.raises(SystemExit) as exited:
                commands(["chat", *arguments])
        finally:
            signal.alarm(0)
            signal.signal(signal.SIGALRM, alarm)
            signal.signal(signal.SIGINT, before)
        assert isinstance(exited.value.code, int)
        for stream in (stdout, stderr):
            stream.seek(0)
        return Finished(stdout.read(), stderr.read(), exited.value.code)


def _give_up(*_: object) -> None:
    raise TimeoutError(f"the chat has not ended within {_MOST_S} s")


def _checked(finished: Finished) -> Finished:
    assert KEY not in finished.stdout + finished.stderr
    assert "Traceback" not in finished.stderr
    return finished


def asked(upstream: Upstream, model: str) -> list[Any]:
    """The messages of each request for a model."""
    return [json.loads(request.partition(b"\r\n\r\n")[2])["messages"] for request in upstream.requests(model)]


class Terminal:
    """`penstock chat` on a pseudo-terminal that is its controlling terminal, as in a window."""

    def __init__(
        self, folder: Path, *arguments: str, columns: int = 80, variables: dict[str, str] | None = None
    ) -> None:
        self._ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        # A session leader that opens a terminal gets it as its controlling terminal, so that Ctrl-C becomes a signal.
        opens = 'exec "$@" <"$TTY" >"$TTY" 2>"$TTY"'
        self._process = subprocess.Popen(
            ["sh", "-c", opens, "sh", *map(os.fsdecode, command("chat", *arguments))],
            stdin=theirs,
            cwd=folder,
            env=environment(folder, TTY=os.ttyname(theirs)) | (variables or {}),
            start_new_session=True,
        )
        os.close(theirs)
        self._received = b""
        self._mark = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGKILL)
        self._process.wait()
        os.close(self._ours)

    @property
    def raw(self) -> str:
        """All output so far, as it was received."""
        return self._received.decode(errors="replace").replace("\r\n", "\n")

    @property
    def text(self) -> str:
        """The same without styles."""
        return _ESCAPES.sub("", self.raw)

    def type(self, keys: str) -> None:
        """Press keys. `until` looks at the output from here on."""
        self._mark = len(self.text)
        os.write(self._ours, keys.encode())

    def interrupt(self) -> None:
        """Press Ctrl-C once the process waits for a key. Readline notices an earlier one only at the next key."""
        asleep = 0
        while asleep < 3:
            state = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(") ")[2]
            asleep = asleep + 1 if state.startswith("S") else 0
            time.sleep(0.005)  # there is no notification that a process sleeps
        self.type("\x03")

    def until(self, words: str) -> str:
        """Wait until these words appear after the last keys; returns all output since then."""
        deadline = time.monotonic() + _WAIT_S
        while words not in self.text[self._mark :]:
            left = deadline - time.monotonic()
            assert left > 0, f"{words!r} does not show in {self.text[self._mark :]!r}"
            if select.select([self._ours], [], [], left)[0]:
                self._received += os.read(self._ours, 65536)
        return self.text[self._mark :]

    def ask(self, line: str, words: str = "\n> ") -> str:
        """Type a line; returns the output until the next prompt."""
        self.type(f"{line}\r")
        return self.until(words)

    def wait(self) -> int:
        """Wait until the process has ended; returns its exit status."""
        deadline = time.monotonic() + _WAIT_S
        try:
            while True:
                left = deadline - time.monotonic()
                assert left > 0, f"it has not ended: {self.text[self._mark :]!r}"
                if select.select([self._ours], [], [], left)[0]:
                    self._received += os.read(self._ours, 65536)
        except OSError:  # how Linux says that the other end was closed
            pass
        return self._process.wait(_WAIT_S)
