"""The processes of a gateway and their threads: what is logged about one that dies, and their priorities."""

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

BROKEN = """
import os, sys
from penstock.serve.run import _spawn

def work(alive):
    raise RuntimeError("the worker's last words")

alive, lifeline = os.pipe()
pid = _spawn(work, alive, lifeline, lambda words, level: sys.stderr.write(f"{level}: {words}"))
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""

FIRST = """
import os, sys

os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
if sys.argv[1:]:
    os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
"""

# As with the C library of some systems, which has the calls and refuses each of them.
WITHOUT_POLICIES = """
import errno, os
from penstock.cli.main import main

def refuse(*_):
    raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

os.sched_getscheduler = os.sched_setscheduler = os.sched_getparam = refuse
main()
"""


def may_be_first() -> bool:
    """Whether this machine lets a process go before others."""
    return subprocess.run([sys.executable, "-c", FIRST], capture_output=True, timeout=60, check=False).returncode == 0


def test_a_worker_that_dies_of_an_exception_says_which() -> None:
    ended = subprocess.run([sys.executable, "-c", BROKEN], capture_output=True, text=True, timeout=60, check=True)
    assert ended.stdout == "1\n"
    assert ended.stderr.startswith("error: a worker ends: RuntimeError at ")  # its words may quote a secret


@pytest.mark.skipif(not hasattr(os, "SCHED_RESET_ON_FORK"), reason="this system has no real-time policy")
@pytest.mark.parametrize("workers", [1, 2])
def test_of_a_real_time_process_only_the_loop_is_one(tmp_path: Path, workers: int) -> None:
    if not may_be_first():
        pytest.skip("only root may run a process under a real-time policy")
    config = tmp_path / "penstock.toml"
    config.write_text(f'[server]\nlisten = "127.0.0.1:0"\n[admin]\nenabled = false\n[ledger]\nfolder = "{tmp_path}"\n')
    command = ["-m", "penstock", "serve", "--config", str(config), "--workers", str(workers)]
    first = [sys.executable, "-c", FIRST, *command]
    with subprocess.Popen(first, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
        assert process.stdout is not None
        while b"listens" not in (line := process.stdout.readline()):
            assert line, "it has ended"
        deadline = time.monotonic() + 20  # the other worker may still start
        while not (policies := _policies(process.pid, workers)) and time.monotonic() < deadline:
            time.sleep(0.05)
        process.terminate()
    assert policies
    for loop, *others in policies:
        assert loop & ~os.SCHED_RESET_ON_FORK == os.SCHED_RR
        assert others
        assert set(others) == {os.SCHED_OTHER}


def _policies(pid: int, workers: int) -> list[list[int]]:
    """The policies of the threads of each serving process, that of the event loop first; none while one starts."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    policies = [
        [os.sched_getscheduler(int(thread.name)) for thread in sorted(Path(f"/proc/{process}/task").iterdir())]
        for process in (children if workers > 1 else [pid])
    ]
    started = len(policies) == workers and all(loop and others for loop, *others in policies)
    return policies if started else []


@pytest.mark.skipif(not hasattr(os, "SCHED_RESET_ON_FORK"), reason="this system has no real-time policy")
def test_a_system_that_knows_no_policies_runs_it_all_the_same(tmp_path: Path) -> None:
    config = tmp_path / "penstock.toml"
    config.write_text(f'[server]\nlisten = "127.0.0.1:0"\n[admin]\nenabled = false\n[ledger]\nfolder = "{tmp_path}"\n')
    command = [sys.executable, "-c", WITHOUT_POLICIES, "serve", "--config", str(config)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
        assert process.stdout is not None
        while b"listens" not in (line := process.stdout.readline()):
            assert line, "it has ended"
        process.terminate()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "SIGINT"])
@pytest.mark.parametrize("workers", [1, 2])
def test_a_signal_during_the_start_leaves_no_journal(tmp_path: Path, workers: int, number: int) -> None:
    """A process that starts waits for the journal of a dead one, which is a pipe. Its own journal is there by then."""
    config, pipe = tmp_path / "penstock.toml", tmp_path / "journal" / "0-a.journal"
    config.write_text(f'[server]\nlisten = "127.0.0.1:0"\n[admin]\nenabled = false\n[ledger]\nfolder = "{tmp_path}"\n')
    pipe.parent.mkdir()
    os.mkfifo(pipe)
    command = [sys.executable, "-m", "penstock", "serve", "--config", str(config), "--workers", str(workers)]
    silent = subprocess.DEVNULL
    with subprocess.Popen(command, stdout=silent, stderr=silent, process_group=0) as process:
        try:
            writer = open_when_read(pipe)
            assert len(list(pipe.parent.glob("*.journal"))) >= 3
            pipe.unlink()  # or the other worker waits for it later
            os.killpg(process.pid, number)
            os.close(writer)
            assert process.wait(30.0) == 0
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    assert not list(pipe.parent.iterdir())


def open_when_read(pipe: Path) -> int:
    """Open a named pipe for writing as soon as another process waits to read it."""
    deadline = time.monotonic() + 30.0
    while time.monotonic() < deadline:
        with suppress(OSError):  # there is no reader
            return os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)
        time.sleep(0.01)
    raise AssertionError("it does not read the journal")
