"""What all benchmarks need to run gateways: processes on a core of their own, their figures, and the provider."""

import os
import re
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

ROOT = Path(__file__).parents[2]
# The core of the gateway, and that of provider and clients.
GATEWAY_CORE = min(os.sched_getaffinity(0))
OTHER_CORE = max(os.sched_getaffinity(0))


class MissingError(Exception):
    """Something that the benchmark needs is missing, or does not answer as it should."""


@contextmanager
def running(
    command: list[str],
    core: int = GATEWAY_CORE,
    *,
    environment: Mapping[str, str] | None = None,
    log: Path | None = None,
    realtime: bool = False,
) -> Iterator[int]:
    """A process, by its id, until the block ends. Its standard error is appended to `log`, or dropped."""
    policy, priority = (os.SCHED_RR, 1) if realtime else (os.SCHED_OTHER, 0)
    with (log or Path(os.devnull)).open("ab") as errors, _scheduled(core, policy, priority):
        process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=errors)
    try:
        yield process.pid
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@contextmanager
def provider(port: int = 0) -> Iterator[int]:
    """The port of the provider (`provider.py`), until the block ends."""
    command = [sys.executable, "-m", "bench.load.provider", str(port)]
    with _scheduled(OTHER_CORE, os.SCHED_FIFO, 1):
        process = subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT)
    try:
        assert process.stdout is not None
        yield int(process.stdout.readline() or _missing(f"the provider did not start on port {port}"))
    finally:
        process.terminate()
        process.communicate()


@contextmanager
def ahead_of_others() -> Iterator[None]:
    """Run this thread on the other core, before all but real-time work; processes that it starts are not."""
    with _scheduled(OTHER_CORE, os.SCHED_FIFO | os.SCHED_RESET_ON_FORK, 2):
        yield


@contextmanager
def _scheduled(core: int, policy: int, priority: int) -> Iterator[None]:
    """Schedule this thread, and the processes that it starts, in this way until the block ends."""
    cores, parameter, before = os.sched_getaffinity(0), os.sched_getparam(0), os.sched_getscheduler(0)
    os.sched_setaffinity(0, {core})
    with suppress(OSError):  # only an administrator may choose the policy
        os.sched_setscheduler(0, policy, os.sched_param(priority))
    try:
        yield
    finally:
        os.sched_setaffinity(0, cores)
        with suppress(OSError):
            os.sched_setscheduler(0, before, parameter)


def _missing(why: str) -> str:
    raise MissingError(why)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
        assert isinstance(port, int)
        return port


def is_listening(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def wait_for(url: str) -> None:
    """Wait until a server answers at this URL."""
    for _ in range(200):
        try:
            with urllib.request.urlopen(url, timeout=5):
                return
        except OSError:
            time.sleep(0.05)
    raise MissingError(f"no server answers at {url}")


def process_tree(pid: int) -> Iterator[int]:
    """A process and its descendants."""
    yield pid
    for task in Path(f"/proc/{pid}/task").iterdir():
        with suppress(OSError):
            for child in (task / "children").read_text().split():
                yield from process_tree(int(child))


def cpu_s(pid: int) -> float:
    """Seconds of CPU that a process and its descendants have used so far, in all threads."""
    tasks = (task for each in process_tree(pid) for task in Path(f"/proc/{each}/task").iterdir())
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9


def resident_mb(pid: int) -> float:
    """The memory of a process and its descendants."""
    sizes = [re.search(r"Rss:\s+(\d+)", Path(f"/proc/{each}/smaps_rollup").read_text()) for each in process_tree(pid)]
    return sum(int(size[1]) for size in sizes if size) / 1024
