"""The judge of speed: a mock provider and a load generator in C, and the script that sets gateways against each other.

It does not belong to this repository. `PENSTOCK_BENCH` says where it is; without that, it is looked for beside the
repository.
"""

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
FOLDER = Path(os.environ.get("PENSTOCK_BENCH") or ROOT.parent / "shared" / "bench")
# Where the judge's mock provider and its nginx listen, and the model that its load generator asks for.
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
"""


class MissingError(Exception):
    """Something is not there that the bench needs."""


class Row(NamedTuple):
    """One run of one scenario through one gateway. A gateway that made mistakes has no figures."""

    gateway: str
    scenario: str
    mistakes: str
    cpu_us: float | None
    latency_p50_us: float | None
    latency_p99_us: float | None
    first_event_us: float | None
    memory_mb: float | None
    idle_mb: float | None
    cold_start_s: float | None


def check() -> None:
    """Raise a MissingError that says what to do, unless all is there."""
    if not (FOLDER / "bench.py").is_file():
        raise MissingError(
            f"the judge of speed is not in {FOLDER}; PENSTOCK_BENCH may name the folder that holds its bench.py, "
            "mock.c and loadgen.c"
        )
    if shutil.which("gcc") is None:
        raise MissingError("gcc is needed (on Debian or Ubuntu: sudo apt install gcc libssl-dev)")
    if shutil.which("nginx") is None:
        raise MissingError("nginx is needed to compare with (on Debian or Ubuntu: sudo apt install nginx-light)")
    for port in (MOCK_PORT, NGINX_PORT):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                raise MissingError(f"something listens on port {port} already, which the judge needs")


def configuration(folder: Path, *, log: bool) -> Path:
    """A configuration that sends everything to the mock."""
    path = folder / "penstock.toml"
    path.write_text(CONFIGURATION.format(log="json" if log else "off", port=MOCK_PORT, model=MODEL))
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


def compare(scenarios: list[str], rounds: int, peers: list[str], *, log: bool) -> list[Row]:
    """Run the judge on Penstock and its peers, in turns; its progress goes to stderr."""
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder:
        port = free_port()
        ours = " ".join(command(configuration(Path(folder), log=log), port))
        rows = Path(folder) / "rows.json"
        options = ["--scen", ",".join(scenarios), "--reps", str(rounds), "--json", str(rows)]
        judge = [sys.executable, str(FOLDER / "bench.py"), f"penstock={ours}@{port}", *peers, *options]
        subprocess.run(judge, check=True, stdout=subprocess.DEVNULL)
        return [_row(row) for row in json.loads(rows.read_text())]


def _row(row: dict[str, object]) -> Row:
    names = ("us", "p50", "p99", "ttft", "rss", "idle", "cold")
    figures = [float(value) if isinstance(value := row.get(name), int | float) else None for name in names]
    mistakes = str(row["bad"]) if row.get("bad") else ""
    return Row(str(row["gw"]), str(row["scen"]), mistakes, *figures)
