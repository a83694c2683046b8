"""Loads of the judge's load generator, and what a gateway takes for one."""

import json
import os
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Literal, NamedTuple

from bench.gateway import judge
from bench.gateway.judge import MissingError
from bench.turns.pairs import Figures


class Load(NamedTuple):
    """So many connections, each with one call after another; a call has so many events, a gap apart."""

    name: str
    unit: Literal["event", "call"]
    """What CPU is divided by."""
    connections: int
    events: int
    gap_us: int

    @property
    def p99_of(self) -> str:
        """Of which latency the 99th percentile is reported: a short call has few events but its first."""
        return "99 % of events" if self.unit == "event" else "99 % of first events"

    def halved(self) -> "Load":
        """The same, for one of two gateways that share the load."""
        return self._replace(connections=max(1, self.connections // 2))

    def arguments(self, port: int, seconds: float) -> list[str]:
        """The arguments of the load generator. Connections begin over twenty gaps, not all at once."""
        asked = ["-p", str(port), "-u", "/v1/chat/completions", "-m", judge.MODEL]
        asked += ["-c", str(self.connections), "-n", str(self.events), "-s", "1000000000"]
        return [*asked, "-t", str(seconds), "-g", "20", "-r", str(20 * self.gap_us)]


def streams(count: int) -> Load:
    """Paced streams of 100 events: what an event costs dominates."""
    return Load(f"{count} streams, an event every 5 ms", "event", count, 100, 5_000)


def short_calls() -> Load:
    """Calls of three events: what a call costs dominates. Four at a time leave the gateway idle now and then."""
    return Load("short calls: 4 at a time, 3 events 1 ms apart", "call", 4, 3, 1_000)


class Mock(NamedTuple):
    """The mock provider, which is running, and the load generator."""

    port: int
    loadgen: Path

    def pace(self, load: Load) -> None:
        """Let calls that begin from now on have the events of this load."""
        judge.wait_for(f"http://127.0.0.1:{self.port}/_ctl?n={load.events}&delay_us={load.gap_us}")


class Running(NamedTuple):
    """A gateway that is running."""

    pid: int
    port: int


@contextmanager
def running(
    command: list[str], core: int, *, environment: Mapping[str, str] | None = None, log: Path | None = None
) -> Iterator[int]:
    """A process, by its id, until the block ends. Its standard error is appended to `log`, or dropped."""
    with (log or Path(os.devnull)).open("ab") as errors:
        process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=errors)
    os.sched_setaffinity(process.pid, {core})
    try:
        yield process.pid
    finally:
        process.terminate()
        process.wait(10)


@contextmanager
def mock(folder: Path) -> Iterator[Mock]:
    """Build and start the mock provider, and build the load generator."""
    port = judge.free_port()
    program, loadgen = judge.build_mock(folder), judge.build_loadgen(folder)
    with running([str(program), str(port)], judge.OTHER_CORE) as pid:
        judge.give_priority(pid, os.SCHED_FIFO, 2)
        yield Mock(port, loadgen)


def run(loadgen: Path, gateway: Running, load: Load, seconds: float) -> Figures:
    """Send a load through a gateway. Calls start for this many seconds; all of them are awaited."""

    def before() -> None:
        os.sched_setaffinity(0, {judge.OTHER_CORE})
        judge.give_priority(0, os.SCHED_FIFO, 2)

    used = cpu_s(gateway.pid)
    command = [str(loadgen), *load.arguments(gateway.port, seconds)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, preexec_fn=before)
    if done.returncode:
        raise MissingError(f"the load generator failed: {done.stderr.strip()}")
    report = json.loads(done.stdout)
    if any(report["err"].values()) or report["hung"] or not report["ok"]:
        failures = f"{report['err']}, {report['hung']} did not end"
        raise MissingError(f"calls were not complete: {failures}; {done.stderr.strip()}")
    count, latency = ("chunks", "lat_us") if load.unit == "event" else ("ok", "ttft_us")
    cpu = (cpu_s(gateway.pid) - used) / report[count] * 1e6
    return Figures(cpu, cpu, report["ttft_us"]["p50"], report[latency]["p99"])


def cpu_s(pid: int) -> float:
    """Seconds of CPU that a process has used so far, in all its threads."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9
