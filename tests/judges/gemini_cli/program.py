"""GeminiCli: the program itself, asked one question at a time, without a terminal."""

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

from msgspec import Struct

from tests.faults.client import CLIENT_KEY

_TIMEOUT_S = 120.0
_SETTINGS = {
    "security": {"auth": {"selectedType": "gemini-api-key"}},
    "general": {"enableAutoUpdate": False, "maxAttempts": 1},
    "privacy": {"usageStatisticsEnabled": False},
    "telemetry": {"enabled": False},
}


class Outcome(Struct, frozen=True):
    """What it printed, as JSON: the answer, or what it says of a failure."""

    response: str
    error: str
    tools: dict[str, int]
    """How often each tool was executed with success."""
    tokens: dict[str, Any]
    """Its own count, by model."""


class GeminiCli:
    """The program in a home and a folder of its own, with nothing of this process's environment."""

    def __init__(self, program: Path, folder: Path, base_url: str, key: str = CLIENT_KEY) -> None:
        self.folder = folder / "work"
        self._program = program
        home = folder / "home"
        for made in (self.folder, home / ".gemini"):
            made.mkdir(parents=True)
        (home / ".gemini/settings.json").write_text(json.dumps(_SETTINGS))
        node = shutil.which("node")
        assert node is not None
        self._node = node
        self._environment = {
            "PATH": f"{Path(node).parent}:/usr/bin:/bin",
            "HOME": str(home),
            "TMPDIR": str(home),
            "HTTPS_PROXY": "http://127.0.0.1:9",  # no server listens there: it reaches no other host
            "NO_PROXY": "127.0.0.1",
            "GOOGLE_GEMINI_BASE_URL": base_url,
            "GEMINI_API_KEY": key,
            "GEMINI_CLI_TRUST_WORKSPACE": "true",
        }

    def ask(self, prompt: str, model: str = "") -> Outcome:
        """Ask a question; it may read files of its folder."""
        command = [self._node, str(self._program), "-p", prompt, "--output-format", "json"]
        if model:
            command += ["--model", model]
        done = subprocess.run(
            command,
            cwd=self.folder,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_TIMEOUT_S,
            check=False,
        )
        # A failure is printed to stderr, after warnings.
        printed = (done.stdout.decode() or done.stderr.decode()).strip()
        found: Any = json.loads(printed[printed.index('{\n  "session_id"') :])
        tools = found.get("stats", {}).get("tools", {}).get("byName", {})
        return Outcome(
            response=found.get("response", ""),
            error=found.get("error", {}).get("message", ""),
            tools={name: counts["success"] for name, counts in tools.items()},
            tokens={name: counts["tokens"] for name, counts in found.get("stats", {}).get("models", {}).items()},
        )
