"""docs/connect.md is true: the clients themselves run its snippets, with nothing changed but the gateway's address."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.faults.client import CLIENT_KEY
from tests.faults.gateway import Gateway, settings
from tests.faults.upstream import JSON, ByRequest, Script, Upstream, status
from tests.judges import packages
from tests.judges.answers import chat, streamed
from tests.judges.cases import ROOT
from tests.streams import says
from tests.tables import FULL

MODEL = "openai/gpt-oss-120b"
ANSWER = "Hello from the harbour"
PAGE = (ROOT / "docs/connect.md").read_text(encoding="utf-8")
# By heading: the code of its section, each block with its language.
SECTIONS = {
    heading: re.findall(r"^```(\w+)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    for heading, text in re.findall(r"^### (.+?)\n(.*?)(?=^##|\Z)", PAGE, re.MULTILINE | re.DOTALL)
}
WITHOUT_CODE = {"Editors and chat apps", "Any other client"}
# Where the file goes that a section shows, below the home of its user.
FILES = {
    "Codex": ".codex/config.toml",
    "gemini-cli": ".gemini/settings.json",
    "opencode": ".config/opencode/opencode.json",
    "llm": ".config/io.datasette.llm/extra-openai-models.yaml",
}
_TIMEOUT_S = 120.0


def large(name: str, find: Callable[[], Path]) -> Path:
    """What `find` installs and finds; it is large, so this takes `scripts/test --full`."""
    if not FULL:
        pytest.skip(f"{name} is large: scripts/test --full installs and runs it")
    return find()


def large_program(path: str) -> Path:
    """A program of the packages for Node that are large."""
    program = large(Path(path).name, packages.connect_large_node) / "node_modules" / path
    program.chmod(0o755)  # npm does so for what a package declares, and these are parts of others
    return program


# By heading: the interpreter of its snippet, or the program that it runs: its name there, and the command.
INTERPRETERS: dict[str, Callable[[], Path]] = {
    "openai for Python": lambda: Path(sys.executable),
    "anthropic for Python": lambda: Path(sys.executable),
    "google-genai for Python": lambda: Path(sys.executable),
    "cohere": packages.providers_python,
    "boto3": packages.providers_python,
    "LangChain": packages.langchain_python,
    "OpenAI Agents SDK": packages.agents_python,
    "Pydantic AI": packages.agents_python,
    "instructor": packages.connect_python,
    "LlamaIndex": lambda: large("LlamaIndex", packages.connect_large_python),
    "LiteLLM's SDK": lambda: large("LiteLLM", packages.connect_large_python),
}
PROGRAMS: dict[str, tuple[str, Callable[[], str]]] = {
    "Claude Code": ("claude", lambda: f"{packages.claude_code()}"),
    "Codex": ("codex", lambda: f"{packages.codex()}"),
    "gemini-cli": ("gemini", lambda: f"node {packages.gemini_cli()}"),
    "opencode": ("opencode", lambda: f"{large_program('opencode-linux-x64-baseline/bin/opencode')}"),
    "qwen-code": ("qwen", lambda: f"node {large_program('@qwen-code/qwen-code/cli.js')}"),
    "llm": ("llm", lambda: f"{packages.connect_python()} -m llm"),
    "curl": ("curl", lambda: f"{installed('curl')}"),
}
FOR_NODE = {"openai for Node", "anthropic for Node", "google-genai for Node", "AI SDK"}


def installed(name: str) -> Path:
    """A program of this machine."""
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"no {name} on PATH")
    return Path(found)


def answered(body: Any) -> Script:
    """The answer, in the way and in the form that the request asks for."""
    text = json.dumps({"text": ANSWER}) if "response_format" in body else ANSWER
    if body.get("stream"):
        return streamed(chat(says(text)))
    message = {"role": "assistant", "content": text}
    usage = {"prompt_tokens": 20, "completion_tokens": 5, "total_tokens": 25}
    whole = {"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": MODEL, "usage": usage}
    whole["choices"] = [{"index": 0, "message": message, "finish_reason": "stop"}]
    return [status(200, JSON, json.dumps(whole).encode())]


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    with Upstream() as upstream:
        upstream.play([ByRequest(answered)], MODEL)
        groq = {"base_url": upstream.url, "api_key": "canary-of-the-page"}
        configuration = settings(upstream.url, 0, **{"providers.groq": groq})
        with Gateway(tmp_path_factory.mktemp("connect"), upstream, configuration) as gateway:
            yield gateway


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "bin").mkdir()
    (tmp_path / "work").mkdir()
    return tmp_path


def run(home: Path, command: list[str | Path]) -> str:
    """What a command prints, in a home of its own, with nothing of this process's environment but the PATH."""
    environment = {
        "PATH": f"{home / 'bin'}:{os.environ['PATH']}",
        "HOME": str(home),
        "TMPDIR": str(home),
        "PENSTOCK_KEY": CLIENT_KEY,
        "HTTPS_PROXY": "http://127.0.0.1:9",  # no server listens there: it reaches no other host
        "NO_PROXY": "127.0.0.1",
    }
    done = subprocess.run(
        command,
        cwd=home / "work",
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=_TIMEOUT_S,
        check=False,
    )
    printed = done.stdout.decode()
    assert done.returncode == 0, f"{printed}\n{done.stderr.decode()}"
    return printed


def at(gateway: Gateway, code: str) -> str:
    """The code with the gateway's address instead of that of the page."""
    assert "127.0.0.1:8080" in code
    return code.replace("127.0.0.1:8080", f"127.0.0.1:{gateway.port}")


def program_for(heading: str, home: Path, gateway: Gateway) -> list[str | Path]:
    """The command that runs a section's snippet, after its files are where the section says."""
    blocks = SECTIONS[heading]
    *files, (language, code) = blocks
    if heading in INTERPRETERS:
        assert (files, language) == ([], "python")
        return [INTERPRETERS[heading](), "-c", at(gateway, code)]
    if heading in FOR_NODE:
        assert (files, language) == ([], "js")
        script = packages.node_home() / f"connect-{os.getpid()}-{abs(hash(heading))}.mjs"
        script.write_text(at(gateway, code))
        return ["node", script]
    name, find = PROGRAMS[heading]
    program = home / "bin" / name
    program.write_text(f'#!/bin/sh\nexec {find()} "$@"\n')
    program.chmod(0o755)
    for _, content in files:
        file = home / FILES[heading]
        file.parent.mkdir(parents=True)
        file.write_text(at(gateway, content) if "127.0.0.1" in content else content)
    return ["sh", "-euc", at(gateway, code) if "127.0.0.1" in code else code]


def test_every_section_has_a_client_that_judges_it() -> None:
    assert SECTIONS.keys() == {*INTERPRETERS, *PROGRAMS, *FOR_NODE, *WITHOUT_CODE}
    for heading in SECTIONS:
        anchor = re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        assert f"](#{anchor})" in PAGE, heading


@pytest.mark.parametrize("heading", [heading for heading in SECTIONS if heading not in WITHOUT_CODE])
def test_the_snippet_gets_an_answer(gateway: Gateway, home: Path, heading: str) -> None:
    before = len(gateway.upstream.requests(MODEL))
    command = program_for(heading, home, gateway)
    try:
        printed = run(home, command)
    finally:
        if heading in FOR_NODE:
            Path(command[1]).unlink()
    assert ANSWER in printed
    requests = gateway.upstream.requests(MODEL)[before:]
    assert requests
    assert all(b"canary-of-the-page" in request for request in requests)
    assert all(CLIENT_KEY.encode() not in request for request in requests)
