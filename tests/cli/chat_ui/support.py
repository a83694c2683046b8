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
import termios
import time
from pathlib import Path
from typing import Any, Self

from tests.cli.support import command
from tests.faults.upstream import Upstream

KEY = "canary-of-the-chat-51fe"
_ESCAPES = re.compile(r"\x1b\[[?\d;]*[A-Za-z]|[\x01\x02]")
_WAIT_S = 10.0


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


def chat(folder: Path, *arguments: str, stdin: str = "Hi?", **more: str) -> "subprocess.CompletedProcess[str]":
    """`penstock chat` in a pipe."""
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
