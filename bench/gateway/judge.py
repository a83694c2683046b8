"""The judge of speed: a mock provider and a load generator in C, and the script that compares gateways.

It is not part of this repository. `PENSTOCK_BENCH` is its folder; the default is a folder beside the repository.
"""

import json
import os
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[2]
FOLDER = Path(os.environ.get("PENSTOCK_BENCH") or ROOT.parent / "shared" / "bench")
# The ports of the judge's mock provider and of its nginx, and the model that its load generator requests.
MOCK_PORT = 9000
NGINX_PORT = 8101
MODEL = "gpt-4o-mini"
CONFIGURATION = """\
[server]
log = "{log}"

[providers.mock]
base_url = "http://127.0.0.1:{port}/v1"
api_key = "any"

[routes."{model}"]
targets = ["mock/{model}"]

[prices."mock/*"]
input = 0.15
output = 0.6

[ledger]
enabled = {ledger}
folder = "{folder}"
"""
# For runs with a watcher on the Live page.
ADMIN = """
[admin]
listen = "127.0.0.1:{port}"
token = "{token}"
content = true
"""
# Penstock a second time, to show the cost of its ledger.
WITHOUT_LEDGER = "without ledger"
# The cores on which the judge runs a gateway, and the load generator.
GATEWAY_CORE = 0
OTHER_CORE = max(os.sched_getaffinity(0))


class MissingError(Exception):
    """Something that the benchmark needs is missing."""


class Gateway(NamedTuple):
    """A gateway for the judge. The options change what the judge requests from it."""

    name: str
    command: str
    port: int
    options: tuple[str, ...] = ()
    made_of: str = ""


class Row(NamedTuple):
    """One run of one scenario through one gateway. A gateway that made mistakes has no figures."""

    gateway: str
    scenario: str
    mistakes: str
    other_work: float  # what the rest of the machine did meanwhile, in cores
    cpu_us: float | None
    events_per_s: float | None
    latency_p50_us: float | None
    latency_p99_us: float | None
    first_event_us: float | None
    memory_mb: float | None
    idle_mb: float | None
    cold_start_s: float | None


def check_tools() -> None:
    """Raise a MissingError that says what to do, unless mock and load generator can be built."""
    if not (FOLDER / "bench.py").is_file():
        raise MissingError(
            f"the judge of speed is not in {FOLDER}; PENSTOCK_BENCH may name the folder that holds its bench.py, "
            "mock.c and loadgen.c"
        )
    if shutil.which("gcc") is None:
        raise MissingError("gcc is needed (on Debian or Ubuntu: sudo apt install gcc libssl-dev)")


def check() -> None:
    """Raise a MissingError that says what to do, unless all is there that the judge needs."""
    check_tools()
    if shutil.which("nginx") is None:
        raise MissingError("nginx is needed to compare with (on Debian or Ubuntu: sudo apt install nginx-light)")
    for port in (MOCK_PORT, NGINX_PORT):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                raise MissingError(f"something listens on port {port} already, which the judge needs")


def configuration(folder: Path, *, log: str = "auto", ledger: bool = True, mock_port: int = MOCK_PORT) -> Path:
    """A configuration that sends everything to the mock. `log` is the setting of that name; "auto" is the default."""
    path = folder / ("penstock.toml" if ledger else "without-ledger.toml")
    words = {"log": log, "ledger": json.dumps(ledger), "folder": folder / "state"}
    path.write_text(CONFIGURATION.format(port=mock_port, model=MODEL, **words))
    return path


def command(configuration_file: Path, port: int) -> list[str]:
    """How Penstock is started."""
    return [sys.executable, "-m", "penstock", "serve", "--config", str(configuration_file), "--port", str(port)]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
        assert isinstance(port, int)
        return port


def build_mock(folder: Path) -> Path:
    """The mock provider, compiled."""
    program = folder / "mock"
    source = FOLDER / "mock.c"
    subprocess.run(["gcc", "-O2", "-w", "-o", program, source, "-lssl", "-lcrypto"], check=True)
    return program


def build_loadgen(folder: Path) -> Path:
    """The load generator, compiled."""
    program = folder / "loadgen"
    subprocess.run(["gcc", "-O2", "-w", "-o", program, FOLDER / "loadgen.c"], check=True)
    return program


def wait_for(url: str) -> None:
    """Wait until a server answers at this URL."""
    for _ in range(200):
        try:
            with urllib.request.urlopen(url, timeout=5):
                return
        except OSError:
            time.sleep(0.05)
    raise MissingError(f"no server answers at {url}")


def wait_for_port(port: int) -> None:
    """Wait until a server accepts connections on this port."""
    for _ in range(200):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    raise MissingError(f"no server listens on port {port}")


def give_priority(pid: int, policy: int, priority: int) -> None:
    """Give a process real-time priority, as the judge does, if that is allowed."""
    with suppress(OSError):
        os.sched_setscheduler(pid, policy, os.sched_param(priority))


def compare(scenarios: list[str], rounds: int, peers: list[Gateway], *, log: str) -> list[Row]:
    """Run the judge on Penstock and its peers, in turns; its progress goes to stderr."""
    check()
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder:
        gateways = [
            _penstock("penstock", configuration(Path(folder), log=log)),
            _penstock(WITHOUT_LEDGER, configuration(Path(folder), log=log, ledger=False)),
            *peers,
        ]
        rows = Path(folder) / "rows.json"
        judge = [sys.executable, str(FOLDER / "bench.py")]
        judge += [f"{gateway.name}={gateway.command}@{gateway.port}" for gateway in gateways]
        judge += [option for gateway in gateways for option in gateway.options]
        judge += ["--scen", ",".join(scenarios), "--reps", str(rounds), "--json", str(rows)]
        subprocess.run(judge, check=True, stdout=subprocess.DEVNULL)
        return [read_row(row) for row in json.loads(rows.read_text())]


def _penstock(name: str, configuration_file: Path) -> Gateway:
    port = free_port()
    return Gateway(name, shlex.join(command(configuration_file, port)), port)


def read_row(row: dict[str, Any]) -> Row:
    """A row as the judge writes it."""
    names = ("us", "rate", "p50", "p99", "ttft", "rss", "idle", "cold")
    figures = [row.get(name) for name in names]
    return Row(row["gw"], row["scen"], _mistakes(row["bad"]), row["noise"], *figures)


def _mistakes(bad: dict[str, int] | int | str | None) -> str:
    """The judge's report as text: streams by kind of mistake, how many did not end, or why there were none."""
    match bad:
        case dict():
            return ", ".join(f"{kind}: {count} streams" for kind, count in bad.items())
        case int():
            return f"unfinished: {bad} streams" if bad else ""
        case str() | None:
            return bad or ""
