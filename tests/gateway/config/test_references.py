"""Secrets from files and from commands."""

import asyncio
import sys
from pathlib import Path

import pytest

from penstock.errors import ConfigError
from penstock.gateway.config import load
from penstock.serve.file_watch import FileWatch


def configured(folder: Path, value: str) -> Path:
    file = folder / "penstock.toml"
    file.write_text(f"[providers.openai]\napi_key = {value!r}\n")
    return file


def key(folder: Path, value: str) -> str:
    api_key = load(configured(folder, value), {}).providers["openai"].api_key
    assert api_key is not None
    return api_key.reveal()


def problem(folder: Path, value: str) -> str:
    with pytest.raises(ConfigError) as caught:
        load(configured(folder, value), {})
    return str(caught.value)


def test_a_key_comes_from_a_file_beside_the_configuration(tmp_path: Path) -> None:
    (tmp_path / "openai.key").write_text("sk-from-a-file\n")
    assert key(tmp_path, "${file:openai.key}") == "sk-from-a-file"
    config = load(tmp_path / "penstock.toml", {})
    assert config.secret_files == (str(tmp_path / "openai.key"),)
    assert config.providers["openai"].api_key is not None
    assert config.providers["openai"].api_key.source == "file openai.key"


def test_a_file_is_a_part_of_a_string(tmp_path: Path) -> None:
    (tmp_path / "password").write_text("p4ss")
    file = tmp_path / "penstock.toml"
    file.write_text('[ledger]\npostgres = "postgresql://penstock:${file:password}@db/penstock"\n')
    postgres = load(file, {}).ledger.postgres
    assert postgres is not None
    assert postgres.reveal() == "postgresql://penstock:p4ss@db/penstock"


FILES = {
    "none": (None, "cannot read {file}: No such file or directory"),
    "empty": (b" \n", "{file} is empty"),
    "not text": (b"\xff\xfe", "{file} is not text in UTF-8"),
    "too long": (b"a" * 70_000, "{file} has more than 65536 bytes"),
}


@pytest.mark.parametrize(("content", "message"), FILES.values(), ids=FILES)
def test_a_file_that_cannot_be_used_is_an_error(tmp_path: Path, content: bytes | None, message: str) -> None:
    if content is not None:
        (tmp_path / "key").write_bytes(content)
    assert message.format(file=tmp_path / "key") in problem(tmp_path, "${file:key}")


@pytest.mark.slow
def test_a_key_comes_from_a_command_that_runs_once(tmp_path: Path) -> None:
    script = tmp_path / "print.py"
    script.write_text(f"open({str(tmp_path / 'runs')!r}, 'a').write('x'); print('sk-from-a-command')")
    command = "${command:" + f"{sys.executable} -I {script}" + "}"
    file = configured(tmp_path, command)
    file.write_text(file.read_text() + f"[providers.groq]\napi_key = {command!r}\n")
    config = load(file, {})
    assert [provider.api_key.reveal() for provider in config.providers.values() if provider.api_key is not None] == [
        "sk-from-a-command"
    ] * 2
    assert (tmp_path / "runs").read_text() == "x"


@pytest.mark.slow
def test_what_a_failed_command_printed_is_not_shown(tmp_path: Path) -> None:
    script = tmp_path / "fail.py"
    script.write_text("import sys; print('CANARY'); print('CANARY', file=sys.stderr); sys.exit(3)")
    message = problem(tmp_path, "${command:" + f"{sys.executable} -I {script}" + "}")
    assert "failed with exit status 3" in message
    assert "CANARY" not in message


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("no-such-program --key", "the command no-such-program cannot be run"),
        ("'", "cannot be run: No closing quotation"),
    ],
)
def test_a_command_that_cannot_be_run_is_an_error(tmp_path: Path, command: str, message: str) -> None:
    assert message in problem(tmp_path, "${command:" + command + "}")


async def notice_changes(tmp_path: Path) -> None:
    changes: list[str] = []
    gone: list[str] = []
    file = tmp_path / "key"
    file.write_text("old")
    watch = FileWatch(lambda: changes.append("changed"), gone.append)
    watch.use([str(file), str(tmp_path / "none")])
    watch.look()
    assert not changes
    file.unlink()
    watch.look()
    watch.look()
    assert not changes
    assert gone == [str(file)]
    (tmp_path / "new").write_text("newer")
    (tmp_path / "new").rename(file)
    watch.look()
    watch.look()
    assert changes == ["changed"]
    watch.close()


def test_a_changed_file_is_noticed_once(tmp_path: Path) -> None:
    asyncio.run(notice_changes(tmp_path))


async def notice_a_change_during_a_reload(tmp_path: Path) -> None:
    changes: list[str] = []
    first, second = tmp_path / "first", tmp_path / "second"
    for file in (first, second):
        file.write_text("old")
    watch = FileWatch(lambda: changes.append("changed"), print)
    watch.use([str(first), str(second)])
    first.write_text("rotated")
    watch.look()  # the reload begins, and reads both
    second.write_text("rotated")
    watch.use([str(first), str(second)])  # the reload has ended
    watch.look()
    watch.look()
    assert changes == ["changed", "changed"]
    watch.close()


def test_a_file_that_changes_during_a_reload_is_noticed(tmp_path: Path) -> None:
    """A secret manager writes one file after another."""
    asyncio.run(notice_a_change_during_a_reload(tmp_path))
