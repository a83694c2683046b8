"""ClaudeCode: the program itself, asked one question at a time, without a terminal."""

import json
import subprocess
from collections.abc import Mapping
from copy import copy
from pathlib import Path
from typing import Any, Self

from msgspec import Struct

from tests.faults.client import CLIENT_KEY

_TIMEOUT_S = 60.0


class Outcome(Struct, frozen=True):
    """What it printed, as JSON: the answer, or what it says of a failure."""

    result: str
    failed: bool
    turns: int
    tokens: tuple[int, int, int]
    """Input without the cached part, output, and read from the cache, by its own count."""
    steps: list[Any]
    """Every line that it printed."""


class ClaudeCode:
    """The program in a home and a folder of its own, with nothing of this process's environment."""

    def __init__(self, program: Path, folder: Path, base_url: str) -> None:
        self.folder = folder / "work"
        self._program = program
        home = folder / "home"
        for made in (home, self.folder):
            made.mkdir()
        self._environment = {
            "PATH": "/usr/bin:/bin",
            "HOME": str(home),
            "TMPDIR": str(home),
            "HTTPS_PROXY": "http://127.0.0.1:9",  # no server listens there: it reaches no other host
            "NO_PROXY": "127.0.0.1",
            "ANTHROPIC_BASE_URL": base_url,
            "ANTHROPIC_AUTH_TOKEN": CLIENT_KEY,
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "CLAUDE_CODE_MAX_RETRIES": "2",
            "DISABLE_AUTOUPDATER": "1",
        }

    def at(self, base_url: str) -> Self:
        """The same program, with another gateway."""
        other = copy(self)
        other._environment = {**self._environment, "ANTHROPIC_BASE_URL": base_url}
        return other

    def ask(self, prompt: str, model: str = "", environment: Mapping[str, str] | None = None) -> Outcome:
        """Ask a question; it may read files."""
        command = [
            str(self._program),
            "-p",
            prompt,
            "--output-format",
            "stream-json",
            "--verbose",
            "--allowedTools",
            "Read",
        ]
        if model:
            command += ["--model", model]
        done = subprocess.run(
            command,
            cwd=self.folder,
            env={**self._environment, **(environment or {})},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_TIMEOUT_S,
            check=False,
        )
        steps = [json.loads(line) for line in done.stdout.splitlines() if line.startswith(b"{")]
        assert steps, done.stderr.decode()
        last = steps[-1]
        assert last["type"] == "result", last
        usage = last["usage"]
        return Outcome(
            result=last.get("result", ""),
            failed=last["is_error"],
            turns=last["num_turns"],
            tokens=(usage["input_tokens"], usage["output_tokens"], usage["cache_read_input_tokens"]),
            steps=steps,
        )
