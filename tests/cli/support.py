"""Shared by the tests of the commands: streams to read, and two ways to run a command on them."""

import os
import subprocess
import sys
from pathlib import Path

from click.testing import CliRunner, Result

from penstock.cli.main import commands
from tests.streams import DONE, Json, begins, finishes, says, sse

ROOT = Path(__file__).parents[2]
CAPTURES = sorted((ROOT / "tests" / "captures").rglob("*.sse"))
SEEDS = sorted((ROOT / "tests" / "seeds").glob("*.txt"))
GROQ, RESELLER, OPENAI_2025, OPENAI_2026 = map(str, SEEDS)

SENT_TEXT = sse(begins(), says("Hi."))
HEALTHY = SENT_TEXT + sse(finishes("stop"), DONE)
CUT = SENT_TEXT
ERROR: Json = {"message": "Overloaded,\ntry: later", "code": 529}
FAILED = SENT_TEXT + sse({"error": ERROR})
UNSEPARATED = HEALTHY.replace(b"\n\n", b"\n")
GZIPPED = b"\x1f\x8b\x08\x00\x00"


def invoke(*arguments: str, stdin: bytes = b"") -> Result:
    """Run a command inside this process."""
    return CliRunner().invoke(commands, arguments, input=stdin)


def run(*arguments: str | bytes, stdin: bytes = b"", **environment: str) -> subprocess.CompletedProcess[bytes]:
    """Run `python -m penstock` as a shell would."""
    return subprocess.run(
        command(*arguments), input=stdin, capture_output=True, env=os.environ | environment, check=False, timeout=60
    )


def command(*arguments: str | bytes) -> list[str | bytes]:
    return [sys.executable, "-m", "penstock", *arguments]


def on_terminal(*arguments: str, columns: int = 80, **environment: str) -> str:
    """Run a command on a terminal of that width; returns what the terminal receives."""
    ours, theirs = os.openpty()
    variables = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "FORCE_COLOR")}
    variables |= {"TERM": "xterm-256color", "COLUMNS": str(columns)} | environment
    with subprocess.Popen(command(*arguments), stdin=theirs, stdout=theirs, stderr=theirs, env=variables) as process:
        os.close(theirs)
        received = bytearray()
        try:
            while data := os.read(ours, 65536):
                received += data
        except OSError:  # how Linux says that the other end was closed
            pass
        process.wait(timeout=60)
    os.close(ours)
    return received.decode().replace("\r\n", "\n")
