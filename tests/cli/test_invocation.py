"""The command that the banner prints works in the shell from which the gateway was started."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.faults.gateway import settings

pytestmark = pytest.mark.slow

SCRIPT = Path(sys.executable).with_name("penstock")
_SHOW = "from penstock.cli.invocation import invocation; print(invocation('open', '--config', 'a b.toml'))"


def shown(started: str, folder: Path, path: str) -> list[str]:
    """The command that is printed if Penstock was started in this way in a folder."""
    code = f"import sys; sys.argv[0] = {started!r}\n{_SHOW}"
    environment = os.environ | {"PATH": path, "PYTHONPATH": ":".join(sys.path)}
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=folder, env=environment, check=True
    )
    return shlex.split(run.stdout)


def test_by_its_name_where_the_shell_finds_it(tmp_path: Path) -> None:
    assert shown(str(SCRIPT), tmp_path, f"{SCRIPT.parent}:/usr/bin") == ["penstock", "open", "--config", "a b.toml"]


def test_by_its_path_where_the_shell_does_not(tmp_path: Path) -> None:
    assert shown(str(SCRIPT), tmp_path, "/usr/bin")[0] == str(SCRIPT)
    assert shown(str(SCRIPT), SCRIPT.parents[1], "/usr/bin")[0] == "bin/penstock"
    assert shown("bin/penstock", SCRIPT.parents[1], "/usr/bin")[0] == "bin/penstock"
    assert shown(str(SCRIPT), SCRIPT.parent, "/usr/bin")[0] == str(SCRIPT)  # by its bare name it would not be found


def test_by_its_path_where_the_shell_finds_another(tmp_path: Path) -> None:
    other = tmp_path / "penstock"
    other.write_text("#!/bin/sh\n")
    other.chmod(0o755)
    assert shown(str(SCRIPT), tmp_path, f"{tmp_path}:/usr/bin")[0] == str(SCRIPT)


def test_as_a_module_it_is_reported_by_the_script_beside_it(tmp_path: Path) -> None:
    module = Path(__file__).parents[2] / "src" / "penstock" / "__main__.py"
    assert shown(str(module), tmp_path, "/usr/bin")[0] == str(SCRIPT)


@pytest.mark.parametrize("by_name", [True, False])
def test_what_the_banner_says_opens_the_page(tmp_path: Path, by_name: bool) -> None:
    (tmp_path / "its own.toml").write_text(settings("http://127.0.0.1:9", 0, server={"log": "pretty"}))
    path = f"{SCRIPT.parent}:/usr/bin:/bin" if by_name else "/usr/bin:/bin"
    environment = {"PATH": path, "HOME": str(tmp_path), "PENSTOCK_STATE": str(tmp_path / "state"), "no_proxy": "*"}
    with subprocess.Popen(
        [SCRIPT, "serve", "--config", "its own.toml", "--port", "0"],
        cwd=tmp_path,
        env=environment,
        stderr=subprocess.PIPE,
        text=True,
    ) as gateway:
        try:
            assert gateway.stderr is not None
            reported = ""
            while "for another link: " not in reported and "for a link to it: " not in reported:
                reported = gateway.stderr.readline()
                assert reported, "it has ended"
            found = re.search(r"for (?:another link|a link to it): (.*?)\)?$", reported)
            assert found
            assert found[1].startswith("penstock open" if by_name else str(SCRIPT))
            typed = subprocess.run(
                f"{found[1]} --print",
                shell=True,
                cwd=tmp_path,
                env=environment,
                capture_output=True,
                text=True,
                check=False,
                timeout=60,
            )
            assert typed.returncode == 0, typed.stderr
            assert typed.stdout.startswith("http://127.0.0.1:")
        finally:
            gateway.terminate()
