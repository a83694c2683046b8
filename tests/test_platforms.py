"""Platforms: the gateway without what only Linux has; the library, `inspect` and `lint` without POSIX.

Each test runs a Python in which modules and functions are absent, as they are on another system.
"""

import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.client import get
from tests.faults.gateway import Gateway, settings
from tests.faults.scripts import TEXT, unstreamed, whole
from tests.faults.upstream import Upstream
from tests.shims import without

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[1]
# What macOS does not have, or has with another meaning: SO_REUSEPORT there does not share the load.
ONLY_LINUX = (
    "os.posix_fallocate",
    "os.posix_fadvise",
    "os.sched_getaffinity",
    "os.sched_setaffinity",
    "os.sched_getscheduler",
    "os.SCHED_RESET_ON_FORK",
    "os.memfd_create",
    "os.eventfd",
    "os.pidfd_open",
    "select.epoll",
    "socket.SO_REUSEPORT",
    "socket.SOCK_CLOEXEC",
    "socket.SOCK_NONBLOCK",
)
POSIX = ("fcntl", "resource", "pwd", "grp", "termios", "tty", "pty", "readline", "syslog", "uvloop")
POSIX_FUNCTIONS = (
    *ONLY_LINUX,
    "os.fork",
    "os.getuid",
    "os.geteuid",
    "os.O_CLOEXEC",
    "os.O_NOFOLLOW",
    "os.O_NONBLOCK",
    "signal.SIGHUP",
    "signal.pthread_sigmask",
    "socket.AF_UNIX",
)
STREAM = ROOT / "tests" / "seeds" / "001_c359a6ca5f32f75d.txt"


def environment(shim: Path) -> dict[str, str]:
    paths = [str(shim), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {"PYTHONPATH": os.pathsep.join(map(os.path.abspath, paths))}


# The gateway


@pytest.fixture(params=[1, 2], ids=["one process", "two workers"])
def gateway(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Gateway]:
    """A gateway where there is neither uvloop nor what only Linux has."""
    without(tmp_path / "shim", "uvloop", functions=ONLY_LINUX)
    with Upstream() as upstream:
        configuration = settings(upstream.url, 0, server={"workers": request.param})
        with Gateway(tmp_path, upstream, configuration, environment=environment(tmp_path / "shim")) as gateway:
            yield gateway


def test_the_gateway_serves_without_uvloop_and_what_only_linux_has(gateway: Gateway) -> None:
    streamed, at_once = gateway.upstream.play(whole()), gateway.upstream.play(unstreamed())
    for _ in range(3):
        response = gateway.ask(f"main/{streamed}", stream=True)
        assert (response.status, response.text, response.done) == (200, TEXT, True)
        response = gateway.ask(f"main/{at_once}", stream=False)
        assert (response.status, response.text) == (200, TEXT)
    assert gateway.send(get("/readyz")).status == 200
    gateway.says("uvloop is not installed")
    assert gateway.stop() == 0
    assert len(gateway.book.entries()) == 6
    assert not gateway.book.journals()


@pytest.mark.parametrize("absent", [("uvloop",), ()], ids=["asyncio", "uvloop"])
def test_workers_without_a_shared_port_all_answer(tmp_path: Path, absent: tuple[str, ...]) -> None:
    """They accept from one socket; a worker that is killed loses no connection that waits to be accepted."""
    without(tmp_path / "shim", *absent, functions=ONLY_LINUX)
    with Upstream() as upstream:
        configuration = settings(upstream.url, 0, server={"workers": 3})
        with Gateway(tmp_path, upstream, configuration, environment=environment(tmp_path / "shim")) as gateway:
            workers = gateway.workers()
            assert len(workers) == 3
            for pid in workers[:2]:
                os.kill(pid, 9)
                for _ in range(10):
                    assert gateway.send(get("/livez")).status == 200
            gateway.until(lambda: sum("another one takes its place" in line for line in gateway.output) == 2)
            os.kill(workers[2], 9)
            assert gateway.send(get("/livez")).status == 200  # answered by one that took another's place


# The library and the commands that explain a stream


@pytest.fixture
def elsewhere(tmp_path: Path) -> dict[str, str]:
    """The environment of a Python without POSIX, as on Windows."""
    without(tmp_path / "shim", *POSIX, functions=POSIX_FUNCTIONS)
    return os.environ | environment(tmp_path / "shim")


def run(elsewhere: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments], env=elsewhere, capture_output=True, text=True, check=False, timeout=60
    )


@pytest.mark.parametrize("command", [["inspect"], ["inspect", "--json"], ["lint"], ["lint", "--format", "junit"]])
def test_inspect_and_lint_run_anywhere(elsewhere: dict[str, str], command: list[str]) -> None:
    there = run(elsewhere, "-m", "penstock", *command, str(STREAM))
    here = run(dict(os.environ), "-m", "penstock", *command, str(STREAM))
    assert there.stdout
    assert (there.returncode, there.stdout, there.stderr) == (here.returncode, here.stdout, here.stderr)


def test_the_library_runs_anywhere(elsewhere: dict[str, str]) -> None:
    page = (ROOT / "docs" / "library.md").read_text(encoding="utf-8")
    examples = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    assert len(examples) > 1
    for example in examples:
        found = run(elsewhere, "-c", example)
        assert (found.returncode, found.stderr) == (0, "")
        assert found.stdout


@pytest.mark.parametrize("command", ["serve", "chat", "keys", "check", "replay"])
def test_the_gateway_says_where_it_runs(elsewhere: dict[str, str], command: str) -> None:
    arguments = {"keys": ["list"], "replay": [str(STREAM)]}.get(command, [])
    found = run(elsewhere, "-m", "penstock", command, *arguments)
    assert found.returncode == 1
    assert (
        found.stderr
        == "penstock: this command runs on Linux and macOS, or in WSL; only `inspect` and `lint` run on Windows\n"
    )


def test_uvloop_is_not_installed_where_there_is_none() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    (uvloop,) = [each for each in project["dependencies"] if each.startswith("uvloop")]
    assert uvloop.partition(";")[2].strip() == "sys_platform != 'win32'"
    assert "Operating System :: OS Independent" not in project["classifiers"]
    locked = (ROOT / "requirements.txt").read_text(encoding="utf-8")
    assert re.search(r"^uvloop==\S+ ; sys_platform != 'win32'", locked, re.MULTILINE)
