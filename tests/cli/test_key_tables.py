"""`penstock keys` on a terminal: only the key on stdout, the explanation on stderr, and tables that fit the window."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.support import command

if sys.platform == "win32":
    pytest.skip("needs a pseudo-terminal", allow_module_level=True)

import pty

pytestmark = pytest.mark.slow

STYLE = re.compile(r"\x1b\[[\d;]*m")


def run(folder: Path, *arguments: str, columns: int = 100, piped: bool = False) -> tuple[str, str]:
    """What stdout receives if it is a pipe, and what the terminal shows."""
    ours, theirs = pty.openpty()
    variables = os.environ | {"TERM": "xterm-256color", "COLUMNS": str(columns), "PENSTOCK_STATE": str(folder)}
    variables.pop("NO_COLOR", None)
    with subprocess.Popen(
        command("keys", *arguments),
        stdin=theirs,
        stdout=subprocess.PIPE if piped else theirs,
        stderr=theirs,
        env=variables,
        cwd=folder,
    ) as process:
        os.close(theirs)
        received = bytearray()
        try:
            while data := os.read(ours, 65536):
                received += data
        except OSError:  # how Linux says that the other end was closed
            pass
        out = process.stdout.read().decode() if process.stdout is not None else ""
        assert process.wait(timeout=60) == 0
    os.close(ours)
    return out, received.decode().replace("\r\n", "\n")


def test_the_key_is_in_the_pipe_and_the_words_are_on_the_terminal(tmp_path: Path) -> None:
    out, shown = run(tmp_path, "create", "--name", "ci", piped=True)
    assert re.fullmatch(r"sk-ps-[\w-]{43}\d{6}\n", out)
    assert "(ci)" in shown
    assert "shown only once" in shown
    assert out.strip() not in shown
    out, shown = run(tmp_path, "rotate", "ci", "--grace", "2h", piped=True)
    assert "old secret is valid until 20" in shown
    assert run(tmp_path, "rotate", "ci", piped=True)[1].count("Its old secret is no longer valid") == 1


def test_a_table_fits_the_window_and_is_in_nobodys_power(tmp_path: Path) -> None:
    assert "There are no keys" in run(tmp_path, "list")[1]
    run(tmp_path, "create", "--name", "[red]a[/red] name of some length", "--budget", "25", "--rpm", "60")
    run(tmp_path, "create", "--name", "other", "--model", "groq/*")
    lines: list[str] = []
    for columns in (80, 140):
        lines = STYLE.sub("", run(tmp_path, "list", columns=columns)[1]).splitlines()
        assert all(len(line) <= columns for line in lines)
        assert lines[0].split()[:3] == ["id", "name", "key"]
        assert "expires" not in lines[0]  # no key does
    assert "[red]a[/red] name of some length" in "\n".join(lines)
    assert "$25.00/month" in "\n".join(lines)
    plain, _ = run(tmp_path, "list", piped=True)
    assert "\x1b" not in plain
    assert [line.count("\t") for line in plain.splitlines()] == [9, 9, 9]
    assert plain.splitlines()[0].endswith("\tteam")
