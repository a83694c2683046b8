"""Codex: the program itself, asked one question at a time, without a terminal."""

import json
import subprocess
from pathlib import Path
from typing import Any

from msgspec import Struct

from tests.faults.client import CLIENT_KEY

_TIMEOUT_S = 60.0
_CONFIG = """
model_provider = "penstock"
[model_providers.penstock]
name = "Penstock"
base_url = "{base_url}"
env_key = "PENSTOCK_KEY"
wire_api = "responses"
request_max_retries = 2
stream_max_retries = 2
"""


class Outcome(Struct, frozen=True):
    """What it printed, as JSON lines."""

    steps: list[Any]
    """Every line."""

    @property
    def items(self) -> list[Any]:
        """What it has done and answers, in order."""
        return [step["item"] for step in self.steps if step["type"] == "item.completed"]

    @property
    def answers(self) -> list[str]:
        """The answers."""
        return [item["text"] for item in self.items if item["type"] == "agent_message"]

    @property
    def errors(self) -> list[str]:
        """What it says of failures, those that it has got over included; not that it does not know the model."""
        reported = [item["message"] for item in self.items if item["type"] == "error"]
        reported += [step["message"] for step in self.steps if step["type"] == "error"]
        return [message for message in reported if not message.startswith("Model metadata for")]

    @property
    def tokens(self) -> tuple[int, int, int] | None:
        """Input with its cached part, the cached part, and output; None if the turn has failed."""
        last = self.steps[-1]
        if last["type"] != "turn.completed":
            return None
        usage = last["usage"]
        return usage["input_tokens"], usage["cached_input_tokens"], usage["output_tokens"]


class Codex:
    """The program in a home and a folder of its own, with nothing of this process's environment."""

    def __init__(self, program: Path, folder: Path, base_url: str) -> None:
        self.folder = folder / "work"
        self._program = program
        home = folder / "home"
        for made in (self.folder, home / ".codex"):
            made.mkdir(parents=True)
        (home / ".codex/config.toml").write_text(_CONFIG.format(base_url=base_url))
        self._environment = {
            "PATH": "/usr/bin:/bin",
            "HOME": str(home),
            "TMPDIR": str(home),
            "HTTPS_PROXY": "http://127.0.0.1:9",  # where nothing listens: it reaches no other host
            "NO_PROXY": "127.0.0.1",
            "PENSTOCK_KEY": CLIENT_KEY,
        }

    def ask(self, prompt: str, model: str, *arguments: str, **settings: object) -> Outcome:
        """Ask a question; it may run commands and change files. The settings are those of its provider."""
        command = [str(self._program), "exec", "--json", "--skip-git-repo-check"]
        # The commands are those of the tests, and a sandbox cannot be had in every container.
        command += ["--dangerously-bypass-approvals-and-sandbox", "--model", model]
        for name, value in settings.items():
            command += ["--config", f"model_providers.penstock.{name}={json.dumps(value)}"]
        done = subprocess.run(
            [*command, prompt, *arguments],
            cwd=self.folder,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_TIMEOUT_S,
            check=False,
        )
        steps = [json.loads(line) for line in done.stdout.splitlines() if line.startswith(b"{")]
        assert steps, done.stderr.decode()
        assert steps[-1]["type"] in ("turn.completed", "turn.failed"), steps[-1]
        return Outcome(steps)
