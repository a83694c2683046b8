"""Where the judges that are not packages of our own environment are: pinned, and installed on first use.

They are in `.cache/`, or in the folder that PENSTOCK_JUDGES names, which several working trees can share. The name of a
package's folder depends on its content, so a changed pin makes a new one. Of several processes that need a package, one
installs it and the others wait. If something cannot be installed (no Node, no network), the tests that need it are
skipped.
"""

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from tests.judges.cases import ROOT

NODE = Path(__file__).parent / "node"
LANGCHAIN = Path(__file__).parent / "gateway/langchain"
AGENTS = Path(__file__).parent / "responses/agents"
GOOGLE = Path(__file__).parent / "gemini/python"
PROVIDERS = Path(__file__).parent / "providers/python"
CONNECT = Path(__file__).parent / "connect"
CLAUDE_CODE = Path(__file__).parent / "claude_code/package.json"
CODEX = Path(__file__).parent / "codex/package.json"
GEMINI_CLI = Path(__file__).parent / "gemini_cli/package.json"
GRAFANA = ROOT / "tests/deploy/grafana/package.json"
OPERATORS = ROOT / "tests/deploy/operators/package.json"
OIDC = ROOT / "tests/web/oidc/package.json"
CYCLONEDX = ROOT / "tests/deploy/cyclonedx/requirements.txt"
INTOTO = ROOT / "tests/deploy/intoto/requirements.txt"
ADMIN_API = Path(__file__).parent / "admin_api/requirements.txt"
LITELLM = ROOT / "tests/stores/litellm_requirements.txt"
CACHE = Path(os.environ.get("PENSTOCK_JUDGES") or ROOT / ".cache")
_NPM = ("npm", "install", "--no-save", "--no-package-lock", "--no-audit", "--no-fund", "--ignore-scripts")
_PIP = ("-I", "-m", "pip", "install", "--quiet", "--no-input", "--disable-pip-version-check", "--require-hashes")
# A judge imports a small part of its packages, and compiles that on first use.
_NOT_COMPILED = ("--no-compile",)
_UV = ("pip", "install", "--quiet", "--require-hashes")
# Without a network, the tests should not wait for it.
_NPM_SOON = ("--fetch-retries=0", "--fetch-timeout=20000", "--prefer-offline")
_PIP_SOON = ("--retries=0", "--timeout=20")
_TIMEOUT_S = 120


def node_home() -> Path:
    """The folder in which the clients for Node are installed."""
    return _node_folder("node-judge", NODE / "package.json")


def grafana_home() -> Path:
    """The folder in which Grafana's types and TypeScript are installed."""
    return _node_folder("grafana-judge", GRAFANA)


def operators_home() -> Path:
    """The folder in which the types of objects of operators of Kubernetes, and TypeScript, are installed."""
    return _node_folder("operators-judge", OPERATORS)


def oidc_home() -> Path:
    """The folder in which the OpenID Connect provider is installed."""
    return _node_folder("oidc-provider", OIDC)


def cyclonedx_python() -> Path:
    """The interpreter that has CycloneDX's own library."""
    return _environment("cyclonedx-judge", CYCLONEDX)


def intoto_python() -> Path:
    """The interpreter that has in-toto's own library."""
    return _environment("intoto-judge", INTOTO)


def admin_api_python() -> Path:
    """The interpreter that has a validator of OpenAPI, and a generator of clients."""
    return _environment("admin-api-judge", ADMIN_API)


def litellm_python() -> Path:
    """The interpreter that has LiteLLM and the schema of its database, without their dependencies."""
    return _environment("litellm-judge", LITELLM, "--no-deps")


def langchain_python() -> Path:
    """The interpreter that has LangChain."""
    return _environment("langchain-judge", LANGCHAIN / "requirements.txt")


def agents_python() -> Path:
    """The interpreter that has openai-agents and pydantic-ai."""
    return _environment("agents-judge", AGENTS / "requirements.txt")


def google_python() -> Path:
    """The interpreter that has google-genai, and LangChain's client of it."""
    return _environment("google-judge", GOOGLE / "requirements.txt")


def providers_python() -> Path:
    """The interpreter that has the packages of Ollama, Cohere and AWS."""
    return _environment("providers-judge", PROVIDERS / "requirements.txt")


def connect_python() -> Path:
    """The interpreter that has instructor and llm."""
    return _environment("connect-judge", CONNECT / "python/requirements.txt")


def connect_large_python() -> Path:
    """The interpreter that has LiteLLM and LlamaIndex: some 400 MB."""
    return _environment("connect-large-judge", CONNECT / "large/requirements.txt")


def connect_large_node() -> Path:
    """The folder in which opencode and qwen-code are installed: some 230 MB."""
    return _node_folder("connect-large-node-judge", CONNECT / "large/package.json")


def claude_code() -> Path:
    """The program of Claude Code."""
    return _program("claude-code", CLAUDE_CODE, "claude")


def codex() -> Path:
    """The program of Codex."""
    return _program("codex", CODEX, "vendor/x86_64-unknown-linux-musl/bin/codex")


def gemini_cli() -> Path:
    """The program of gemini-cli, which Node runs."""
    if not shutil.which("node"):
        pytest.skip("no node on PATH")
    return _program("gemini-cli", GEMINI_CLI, "bundle/gemini.js")


def _node_folder(name: str, package: Path) -> Path:
    """A folder that has the packages for Node of a package.json."""
    if not shutil.which("node") or not shutil.which("npm"):
        pytest.skip("no node, or no npm, on PATH")

    def install(folder: Path) -> None:
        shutil.copy(package, folder)
        _run([*_NPM, *_NPM_SOON], folder)

    return _made(name, package, install)


def _program(name: str, pins: Path, path: str) -> Path:
    """A program in a package for Node that is large: a script installs it, and no test."""
    ((package, version),) = json.loads(pins.read_text())["dependencies"].items()
    program = ROOT / ".cache" / name / version / "node_modules" / package / path
    if not program.exists():
        pytest.skip(f"{name} is not installed: scripts/{name} installs it")
    return Path(program)


def _environment(name: str, requirements: Path, *options: str) -> Path:
    """The interpreter of an environment that has these packages."""

    def install(folder: Path) -> None:
        if shutil.which("uv"):  # which is much quicker, as in scripts/lib.sh
            with suppress(subprocess.SubprocessError):
                _run(["uv", "venv", "--quiet", "--clear", "--python", sys.executable, str(folder)], folder)
                _run(
                    ["uv", *_UV, *options, "--python", str(_python(folder)), "--requirement", str(requirements)], folder
                )
                return
        _run([sys.executable, "-I", "-m", "venv", "--clear", str(folder)], folder)
        pip = [str(_python(folder)), *_PIP, *_PIP_SOON, *_NOT_COMPILED, *options]
        _run([*pip, "--requirement", str(requirements)], folder)

    return _python(_made(name, requirements, install))


def _python(folder: Path) -> Path:
    return folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")


def _made(name: str, pins: Path, install: Callable[[Path], None]) -> Path:
    """The folder for these pins; it appears under its name only when it is whole."""
    digest = hashlib.sha256(pins.read_bytes()).hexdigest()[:12]
    home = CACHE / name / f"{digest}-{sys.version_info.major}.{sys.version_info.minor}"
    if home.exists():
        return home
    home.parent.mkdir(parents=True, exist_ok=True)
    with (home.parent / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if home.exists():  # tests in another process have installed it meanwhile
            return home
        beginning = home.with_name("beginning")
        beginning.mkdir(exist_ok=True)
        try:
            install(beginning)
            beginning.rename(home)
        except (subprocess.SubprocessError, OSError) as error:
            pytest.skip(f"{name}: the packages could not be installed: {error}")
        finally:
            shutil.rmtree(beginning, ignore_errors=True)
    return home


def _run(command: list[str], folder: Path) -> None:
    subprocess.run(command, cwd=folder, check=True, capture_output=True, timeout=_TIMEOUT_S)
