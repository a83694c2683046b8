"""The `penstock` command itself: its help, what it imports, and its exit status when its input or output fails."""

import os
import signal
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import click
import pytest

from penstock.cli.main import COMMANDS, INTERRUPTED
from tests.cli.support import CUT, HEALTHY, OPENAI_2026, RESELLER, command, invoke, run

pytestmark = pytest.mark.slow

PROGRAM = """
import sys
from penstock.cli.main import main
sys.argv[1:] = {arguments!r}
try:
    main()
finally:
    print(*sys.modules, file=sys.stderr)
"""


def imported(*arguments: str, stdin: bytes = b"") -> set[str]:
    """The modules that a run of the command imports when its output is a pipe."""
    program = PROGRAM.format(arguments=list(arguments))
    finished = subprocess.run(
        [sys.executable, "-c", program], input=stdin, capture_output=True, check=False, timeout=60
    )
    return set(finished.stderr.decode().split())


def test_help_lists_every_command() -> None:
    result = invoke("--help")
    assert result.exit_code == 0
    for name, (_, short_help) in COMMANDS.items():
        assert f"{name} {short_help}" in " ".join(result.output.split())


@pytest.mark.parametrize("name", COMMANDS)
def test_the_table_says_what_the_command_says(name: str) -> None:
    module, short_help = COMMANDS[name]
    loaded = import_module(module).command
    assert isinstance(loaded, click.Command)
    assert loaded.name == "command"
    assert loaded.short_help == short_help


@pytest.mark.parametrize("name", COMMANDS)
def test_help_fits_on_a_screen(name: str) -> None:
    lines = invoke(name, "--help").output.splitlines()
    assert len(lines) < 24
    assert all(len(line) <= 80 for line in lines)


@pytest.mark.parametrize(
    ("arguments", "meant"),
    [
        (["srve"], "'serve'"),
        (["key"], "'keys'"),
        (["keys", "creat"], "'create'"),
        (["model", "pul"], "'pull'"),
        (["serve", "--prt", "1"], "'--port'"),
    ],
)
def test_a_mistyped_word_gets_a_suggestion(arguments: list[str], meant: str) -> None:
    result = invoke(*arguments)
    assert result.exit_code == 2
    assert f"Did you mean {meant}?" in result.stderr


def test_a_word_like_nothing_points_to_the_help() -> None:
    result = invoke("zzz")
    assert result.exit_code == 2
    assert "No such command 'zzz'.\n" in result.stderr
    assert "--help" in result.stderr


def test_help_imports_no_command() -> None:
    assert not imported("--help") & {"rich", "importlib.metadata", *(module for module, _ in COMMANDS.values())}


def test_inspect_in_a_pipe_imports_neither_rich_nor_lint() -> None:
    modules = imported("inspect", OPENAI_2026)
    assert "penstock.cli.inspect" in modules
    assert not modules & {"rich", "importlib.metadata", "penstock.cli.lint", "penstock.cli.inspection.pretty"}


def test_lint_imports_neither_rich_nor_inspect() -> None:
    modules = imported("lint", OPENAI_2026)
    assert "penstock.cli.lint" in modules
    assert not modules & {"rich", "importlib.metadata", "penstock.cli.inspect"}


def test_chat_helps_without_a_gateway_and_answers_a_pipe_without_rich() -> None:
    assert not imported("chat", "--help") & {"asyncio", "uvloop", "rich", "penstock.serve.composition"}
    modules = imported("chat", "-m", "nobody/x", "--url", "http://127.0.0.1:9/v1", stdin=b"Hi?")
    assert "penstock.cli.chat_ui.run" in modules
    assert not modules & {"rich", "readline", "penstock.cli.chat_ui.session"}


def test_version_is_one_line() -> None:
    finished = run("--version")
    assert finished.returncode == 0
    assert finished.stdout.startswith(b"penstock")
    assert finished.stdout.count(b"\n") == 1


def test_an_unknown_command_is_a_usage_error() -> None:
    result = invoke("inspekt")
    assert result.exit_code == 2
    assert "No such command 'inspekt'" in result.output


@pytest.mark.parametrize("arguments", [("inspect",), ("inspect", "--json"), ("lint", "--strict")])
def test_a_closed_pipe_ends_quietly(arguments: tuple[str, ...], tmp_path: Path) -> None:
    many = tmp_path / "many.sse"
    many.write_bytes(HEALTHY.replace(b"Hi.", b"Hi. " * 100_000).replace(b"\n\n", b"\n"))
    with subprocess.Popen(
        command(*arguments, *[str(many)] * 3), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert b"Traceback" not in process.stderr.read()


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs a device that is always full")
@pytest.mark.parametrize("name", ["inspect", "lint"])
def test_a_full_disk_is_one_line(name: str) -> None:
    with open("/dev/full", "wb") as full:
        finished = subprocess.run(command(name, RESELLER), stdout=full, stderr=subprocess.PIPE, check=False, timeout=60)
    assert finished.returncode == 2
    last = finished.stderr.decode().splitlines()[-1]
    assert last.startswith("penstock: could not write the output: ")
    assert b"Traceback" not in finished.stderr


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such signal")
def test_an_interrupt_ends_quietly() -> None:
    process = subprocess.Popen(
        command("inspect", "--json", RESELLER, "-"),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    with process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()  # the first file is read: now it waits for standard input
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=60) == INTERRUPTED
        assert process.stderr.read().strip() == b""


@pytest.mark.skipif(sys.platform != "linux", reason="other systems refuse such names")
@pytest.mark.parametrize("arguments", [("inspect",), ("inspect", "--json"), ("lint",), ("lint", "--format", "junit")])
def test_a_file_name_may_hold_any_byte(arguments: tuple[str, ...], tmp_path: Path) -> None:
    name = os.fsencode(tmp_path) + b"/b\xffad\x1b[31m.sse"
    with open(name, "wb") as file:
        file.write(CUT)
    for path in (name, name + b"-missing"):
        finished = run(*arguments, path, path)
        output = finished.stdout + finished.stderr
        assert b"Traceback" not in output
        assert b"\x1b" not in output
        assert "b\ufffdad".encode() in output


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp1252"])
def test_a_poor_encoding_of_the_terminal_is_survived(encoding: str) -> None:
    finished = run("inspect", "-", stdin=HEALTHY.replace(b"Hi.", "→ ".encode()), PYTHONIOENCODING=encoding)
    assert finished.returncode == 0
    assert finished.stderr == b""
