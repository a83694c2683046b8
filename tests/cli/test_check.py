"""`penstock check`: its output for a configuration, its mistakes, and its exit status."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from penstock.cli.check import command
from penstock.installation import install_command
from tests.shims import without

CANARY = "CANARY-3b1f9d"
TEXT = f"""\
[server]
keys = ["{CANARY}-client"]

[providers.acme]
base_url = "http://127.0.0.1:9000/v1"
api_key = "{CANARY}-literal"
headers = {{ x-team = "{CANARY}-header" }}

[providers.later]
base_url = "https://later.example/v1"
api_key = "${{LATER_KEY}}"

[routes.fast]
targets = ["groq/llama-3.3-70b-versatile", "acme/some-model"]

[routes.shared]
targets = [{{ target = "groq/a", weight = 3 }}, {{ target = "ollama/b", weight = 0.5 }}]
"""
ENV = {"GROQ_API_KEY": f"{CANARY}-environment", "OLLAMA_HOST": "box"}

REPORT = """\
penstock.toml:11: providers.later.api_key: the variable LATER_KEY is not set, or empty, so later is left out [warning]
penstock.toml: ok, 1 warning

provider  base URL                        key
acme      http://127.0.0.1:9000/v1        in penstock.toml
groq      https://api.groq.com/openai/v1  from GROQ_API_KEY
local     on this machine: smollm2        none
ollama    http://box:11434/v1             none

route   targets
fast    groq/llama-3.3-70b-versatile, then acme/some-model
shared  3 × groq/a, 0.5 × ollama/b
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current directory, and an environment without any provider."""
    monkeypatch.chdir(tmp_path)
    for name in list(os.environ):
        if re.search(r"_API_KEY$|_HOST$|_BASE_URL$|_ENDPOINT$", name):
            monkeypatch.delenv(name)
    return tmp_path


def check(*arguments: str, env: dict[str, str] | None = None) -> Result:
    result = CliRunner().invoke(command, arguments, env=ENV if env is None else env)
    assert CANARY not in result.output
    return result


def test_a_good_file_is_shown_without_its_secrets(folder: Path) -> None:
    (folder / "penstock.toml").write_text(TEXT)
    result = check()
    assert (result.stdout, result.stderr, result.exit_code) == (REPORT, "", 0)


def test_what_authorizes_requests_without_a_key_is_shown(folder: Path) -> None:
    (folder / "penstock.toml").write_text('[providers.azure]\nauth = "azure"\nbase_url = "https://a.example"\n')
    assert "https://a.example               access tokens of Entra ID\n" in check().stdout
    (azure, *_) = json.loads(check("--json").stdout)["providers"]
    assert (azure["name"], azure["auth"], azure["key"]) == ("azure", "azure", None)


def test_several_keys_are_shown_by_name_with_their_limits(folder: Path) -> None:
    keys = f'''[[providers.openai.keys]]
name = "one"
api_key = "{CANARY}-1"
rpm = 1000
tpm = 200000
[[providers.openai.keys]]
name = "two"
api_key = "${{SECOND_KEY}}"
account = "org-2"
'''
    (folder / "penstock.toml").write_text(keys)
    env = {"SECOND_KEY": f"{CANARY}-2"}
    assert "one in penstock.toml (1,000 rpm, 200,000 tpm); two from SECOND_KEY" in check(env=env).stdout
    (openai, _) = json.loads(check("--json", env=env).stdout)["providers"]
    assert openai["key"] is None
    assert openai["keys"] == [
        {"name": "one", "key": "penstock.toml", "account": None, "rpm": 1000, "tpm": 200000, "weight": None},
        {"name": "two", "key": "SECOND_KEY", "account": "org-2", "rpm": None, "tpm": None, "weight": None},
    ]


def test_a_file_may_be_named(folder: Path) -> None:
    (folder / "other.toml").write_text("[server]\n")
    assert check("--config", "other.toml").stdout.startswith("other.toml: ok\n")


def test_without_a_file_the_environment_is_shown() -> None:
    assert check().stdout.startswith("environment: ok\n\nprovider  base URL")
    reported = check(env={}).stdout
    assert "[providers.NAME] [warning]\nenvironment: ok, 1 warning\n" in reported
    assert reported.endswith("\nlocal     on this machine: smollm2  none\n")


def test_mistakes_have_a_line_each(folder: Path) -> None:
    (folder / "penstock.toml").write_text('[server]\nworker = 1\n[routes."a\\u001b[2J"]\ntargets = ["grok/a"]\n')
    result = check()
    assert result.stdout == (
        "penstock.toml:2: server.worker: unknown key; did you mean 'workers'?\n"
        'penstock.toml:3: routes."a\\x1b[2J": must be a name: not empty, no control characters, no spaces at its ends\n'
        "penstock.toml:4: routes.\"a\\x1b[2J\".targets[0]: there is no provider 'grok'; did you mean 'groq'?\n"
    )
    assert (result.stderr, result.exit_code) == ("penstock.toml: 3 errors\n", 1)


def test_a_file_that_cannot_be_read_is_distinguished(folder: Path) -> None:
    missing, directory = check("--config", "missing"), check("--config", ".")
    assert (missing.stdout, missing.exit_code, directory.exit_code) == ("", 2, 2)
    assert missing.stderr == "penstock: missing: no such file; check the path\n"
    assert directory.stderr == "penstock: .: a directory, not a file; name the file in it\n"
    (folder / "penstock.toml").mkdir()
    assert check().exit_code == 2


def test_json_says_the_same(folder: Path) -> None:
    (folder / "penstock.toml").write_text(TEXT)
    result = check("--json")
    assert result.exit_code == 0
    assert result.stdout.count("\n") == 1
    reported = json.loads(result.stdout)
    assert (reported["file"], reported["ok"], reported["errors"], reported["listen"]) == (
        "penstock.toml",
        True,
        [],
        "127.0.0.1:8080",
    )
    assert [(warning["line"], warning["key"]) for warning in reported["warnings"]] == [(11, "providers.later.api_key")]
    acme, groq, local, ollama = reported["providers"]
    assert acme == {
        "name": "acme",
        "base_url": "http://127.0.0.1:9000/v1",
        "model": None,
        "dialect": "openai_chat",
        "dialects": ["openai_chat"],
        "replay": None,
        "replay_as": None,
        "replay_faults": [],
        "auth": "key",
        "key": "penstock.toml",
        "keys": [],
    }
    assert (groq["key"], ollama["key"]) == ("GROQ_API_KEY", None)
    assert (local["base_url"], local["model"], local["key"]) == (None, "smollm2", None)
    assert reported["routes"][1] == {
        "name": "shared",
        "targets": [
            {"target": "groq/a", "weight": 3, "dialect": None},
            {"target": "ollama/b", "weight": 0.5, "dialect": None},
        ],
    }


@pytest.mark.parametrize(("text", "status"), [("[server]\nworker = 1", 1), (None, 2)])
def test_json_says_what_is_wrong(text: str | None, status: int, folder: Path) -> None:
    if text is not None:
        (folder / "a.toml").write_text(text)
    result = check("--json", "--config", "a.toml")
    reported = json.loads(result.stdout)
    assert (reported["ok"], reported["file"], result.exit_code) == (False, "a.toml", status)
    (error,) = reported["errors"]
    assert set(error) == {"file", "line", "key", "message"}


def test_help_fits_on_a_screen() -> None:
    lines = check("--help").output.splitlines()
    assert len(lines) < 24
    assert all(len(line) <= 80 for line in lines)


# Optional packages

NEEDY = """\
[ledger]
postgres = "postgresql://127.0.0.1/penstock"
redis = "redis://127.0.0.1"
[telemetry]
otlp = "http://127.0.0.1:4318"
[providers.local]
slots = 2
[providers.vertex]
base_url = "https://a.example"
[providers.azure]
auth = "azure"
base_url = "https://a.example"
"""
MISSING = [
    ("2: ledger.postgres", "asyncpg", "postgres"),
    ("3: ledger.redis", "redis", "redis"),
    ("8: providers.vertex.auth", "google-auth", "google"),
    ("11: providers.azure.auth", "azure-identity", "azure"),
    ("5: telemetry.otlp", "opentelemetry-sdk", "otel"),
    ("5: telemetry.otlp", "opentelemetry-exporter-otlp-proto-http", "otel"),
]


@pytest.fixture
def bare(folder: Path) -> dict[str, str]:
    """The environment of a Python that has none of the optional packages."""
    shim = folder / "shim"
    without(shim, "asyncpg", "azure", "google", "redis", "opentelemetry", "xllamacpp")
    return os.environ | {"PYTHONPATH": f"{shim}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"}


def penstock(environment: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "penstock", *arguments],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


@pytest.mark.slow
def test_packages_that_are_not_installed_are_reported(folder: Path, bare: dict[str, str]) -> None:
    (folder / "penstock.toml").write_text(NEEDY)
    missing = "".join(
        f"penstock.toml:{where}: needs the Python package {package}, which is not installed; try: "
        f"{install_command(extra)}\n"
        for where, package, extra in MISSING
    )
    found = penstock(bare, "check")
    assert (found.returncode, found.stdout) == (1, missing)
    served = penstock(bare, "serve", "--port", "0")
    assert (served.returncode, served.stderr) == (1, missing)


@pytest.mark.slow
def test_packages_that_nothing_needs_are_not_missed(folder: Path, bare: dict[str, str]) -> None:
    (folder / "penstock.toml").write_text("[ledger]\nenabled = false\n" + NEEDY.partition("\n")[2].partition("[tel")[0])
    assert penstock(bare, "check").returncode == 0


@pytest.mark.slow
def test_a_model_here_that_cannot_run_is_reported(folder: Path, bare: dict[str, str]) -> None:
    (folder / "penstock.toml").write_text("[providers.local]\nslots = 2\n")
    found = penstock(bare, "check")
    assert found.returncode == 0
    assert "penstock.toml: providers.local: cannot answer: its runtime is not installed" in found.stdout
    (folder / "penstock.toml").write_text("")
    assert "its runtime" not in penstock(bare, "check").stdout  # the configuration does not name it


@pytest.mark.slow
def test_packages_that_are_installed_are_enough(folder: Path) -> None:
    (folder / "penstock.toml").write_text(NEEDY.partition("[providers")[0])
    assert penstock(dict(os.environ), "check").returncode == 0
