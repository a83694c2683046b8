"""Mistakes in a configuration are reported with line, key and advice, and without secrets."""

import re
from pathlib import Path

import pytest

from penstock.errors import ConfigError, UnreadableConfigError
from penstock.gateway.config import load

MISTAKES = Path(__file__).parent / "mistakes.txt"
CANARY = "CANARY-3b1f9d"
ENV = {
    "OPENAI_API_KEY": f"sk-openai-{CANARY}",
    "GROQ_API_KEY": f"gsk-groq-{CANARY}",
    "ACME_KEY": f"acme-{CANARY}",
    "HEADER": f"header-{CANARY}",
    "WORD": CANARY,
    "SPACED": f"two words {CANARY}",
    "EMPTY": "",
}


def corpus() -> dict[str, tuple[str, list[str]]]:
    """The input and its expected errors, from `mistakes.txt`."""
    cases = {}
    for case in re.split(r"^== ", MISTAKES.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]:
        name, *lines = case.splitlines()
        sent_text = [line.removeprefix("-- ") for line in lines if line.startswith("-- ")]
        cases[name] = ("\n".join(lines).partition("\n-- ")[0], sent_text)
    return cases


CASES = corpus()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "penstock.toml"


def problems(path: Path) -> list[str]:
    """The errors of a file, without its name."""
    with pytest.raises(ConfigError) as caught:
        load(path, ENV)
    reported = str(caught.value)
    assert reported == "\n".join(map(str, caught.value.problems))
    assert CANARY not in reported
    assert CANARY not in repr(caught.value.problems)
    lines = reported.split("\n")
    assert all(line.startswith(f"{path}:") for line in lines)
    return [line.removeprefix(f"{path}:") for line in lines]


def test_there_are_enough_mistakes() -> None:
    assert len(CASES) > 100
    assert all(sent_text for _, sent_text in CASES.values())


@pytest.mark.parametrize(("text", "expected"), CASES.values(), ids=CASES)
def test_is_reported(text: str, expected: list[str], path: Path) -> None:
    path.write_text(text, encoding="utf-8")
    assert problems(path) == expected


def test_all_mistakes_are_reported_at_once_in_the_order_of_the_file(path: Path) -> None:
    path.write_text("[routes.a]\ntargets = []\n[timeouts]\ngap_s = 0\n[server]\nworker = 1\nlisten = 'x'\n")
    assert [problem.split(":")[0] for problem in problems(path)] == ["2", "4", "6", "7"]


# The message of tomllib differs between versions of Python; the line number is ours.
NOT_TOML: dict[str, tuple[str, int]] = {
    "no closing quote": ('[server]\nlisten = "127.0.0.1:8080\nworkers = 1', 2),
    "no equals sign": ("[server]\n\nworkers 1", 3),
    "a key twice": ("[server]\nworkers = 1\nworkers = 2\n", 3),
    "a section twice": ("[routes.a]\ntargets = ['openai/a']\n[routes.a]\n", 3),
    "an end too early": ("[server]\nkeys = ['a-good-key',\n\n", 2),
    "YAML": ("server:\n  listen: 127.0.0.1:8080\n", 1),
}


@pytest.mark.parametrize(("text", "line"), NOT_TOML.values(), ids=NOT_TOML)
def test_what_is_not_toml_has_its_line(text: str, line: int, path: Path) -> None:
    path.write_text(text, encoding="utf-8")
    (problem,) = problems(path)
    assert problem.startswith(f"{line}: not valid TOML: ")
    assert "(at " not in problem


def test_bytes_that_are_no_text_have_a_line_too(path: Path) -> None:
    path.write_bytes(b"[server]\n# caf\xe9\n")
    assert problems(path) == ["2: byte 0xe9 is not UTF-8; save the file as UTF-8"]


def test_nesting_without_end_is_refused(path: Path) -> None:
    path.write_text("a = " + "[" * 5000, encoding="utf-8")
    assert problems(path) == ["1: lists or tables are nested too deep"]


UNREADABLE: dict[str, tuple[str, str]] = {
    "missing": ("missing.toml", "no such file; check the path"),
    "a directory": (".", "a directory, not a file; name the file in it"),
    "below a file": ("file/penstock.toml", "Not a directory"),
    "no path at all": ("a\0b", "embedded null byte"),
}


@pytest.mark.parametrize(("name", "message"), UNREADABLE.values(), ids=UNREADABLE)
def test_a_file_that_cannot_be_read_is_distinguished(name: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UnreadableConfigError) as caught:
        load(tmp_path / name, ENV)
    assert str(caught.value) == f"{tmp_path / name}: {message}"


def test_a_file_beyond_reason_is_not_read(path: Path) -> None:
    path.write_bytes(b"#" * 10_000_001)
    with pytest.raises(UnreadableConfigError, match="more than 10000000 bytes"):
        load(path, ENV)


NOT_A_PORT = "has a port that is not a number from 1 to 65535"
PASSWORD = "has a user name or password in it; use api_key or headers instead"
NOT_A_KEY = "has a space, or a character that no key has"
ENVIRONMENTS: dict[str, tuple[str, str, str]] = {
    "a key with a space": ("GROQ_API_KEY", f"a b {CANARY}", f"providers.groq.api_key: $ {NOT_A_KEY}"),
    "a key with a line break": ("GROQ_API_KEY", f"a\r\nb{CANARY}", f"providers.groq.api_key: $ {NOT_A_KEY}"),
    "a port that is none": ("OLLAMA_HOST", "box:port", f"providers.ollama.base_url: $ {NOT_A_PORT}"),
    "a password": ("VLLM_BASE_URL", f"http://me:{CANARY}@box:8000", f"providers.vllm.base_url: $ {PASSWORD}"),
}


@pytest.mark.parametrize(("variable", "value", "expected"), ENVIRONMENTS.values(), ids=ENVIRONMENTS)
def test_the_environment_may_be_wrong_too(variable: str, value: str, expected: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(None, {variable: value})
    assert str(caught.value) == f"environment: {expected.replace('$', f'the variable {variable}')}"


def test_a_host_given_beside_the_file_needs_a_key_too() -> None:
    with pytest.raises(ConfigError, match=r"environment: server\.listen: on \[::\]:8080 anybody could spend"):
        load(None, ENV, host="::")


@pytest.mark.parametrize("host", ["", "a b", "http://127.0.0.1"])
def test_a_host_given_beside_the_file_must_be_one(host: str) -> None:
    with pytest.raises(ConfigError, match=r"^environment: server\.listen: has "):
        load(None, ENV, host=host)
