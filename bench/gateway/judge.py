"""The judge of speed: runs gateways in turns, one on one core, the provider and the clients on another."""

import json
import os
import shlex
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import uvloop

from bench.load.apis import APIS
from bench.load.clients import Load, Report, percentile, run
from bench.load.exchanges import exchange
from bench.load.processes import (
    MissingError,
    cpu_s,
    free_port,
    is_listening,
    provider,
    resident_mb,
    running,
    wait_for,
)

# The port of the provider, which peers of your own are configured for, and the model that clients ask for.
PROVIDER_PORT = 9000
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
# For one provider of each API, by the name of the API.
EACH_API = """\
[providers.{api.name}]
base_url = "http://127.0.0.1:{port}/v1"
dialect = "{api.dialect}"
api_key = "any"

[prices."{api.name}/*"]
input = 0.15
output = 0.6
"""
# For runs with a watcher on the Live page.
ADMIN = """
[admin]
listen = "127.0.0.1:{port}"
token = "{token}"
content = true
"""
NGINX = """\
worker_processes 1; daemon off; pid {folder}/pid; error_log {folder}/error.log warn;
events {{ worker_connections 4096; }}
http {{
  access_log off; keepalive_requests 1000000; client_body_temp_path {folder}/a; proxy_temp_path {folder}/b;
  fastcgi_temp_path {folder}/c; uwsgi_temp_path {folder}/d; scgi_temp_path {folder}/e;
  upstream provider {{ server 127.0.0.1:{upstream}; keepalive 512; keepalive_requests 1000000; }}
  server {{
    listen 127.0.0.1:{port};
    location / {{
      proxy_pass http://provider; proxy_http_version 1.1; proxy_set_header Connection ""; proxy_buffering off;
    }}
  }}
}}
"""
# Penstock a second time, to show the cost of its ledger.
WITHOUT_LEDGER = "without ledger"
ONE_CALL = Load("one call", "call", 1, 2, 0)
START_S = 90.0
TURN_S = 4.0
# A share of a core: if other work takes more, a run is repeated, at most so many times.
DISTURBED = 0.3
TRIES = 3


class Gateway(NamedTuple):
    """A gateway for the judge. Without a command, clients ask the provider itself."""

    name: str
    command: str
    port: int
    path: str = ""
    model: str = MODEL
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


def check() -> None:
    """Raise a MissingError that says what to do, unless all is there that the judge needs."""
    if shutil.which("nginx") is None:
        raise MissingError("nginx is needed to compare with (on Debian or Ubuntu: sudo apt install nginx-light)")
    if is_listening(PROVIDER_PORT):
        raise MissingError(f"something listens on port {PROVIDER_PORT} already, which the provider needs")


def configuration(folder: Path, upstream: int, *, log: str = "auto", ledger: bool = True) -> Path:
    """A configuration that sends everything to the provider. `log` is the setting; "auto" is the default."""
    path = folder / ("penstock.toml" if ledger else "without-ledger.toml")
    words = {"log": log, "ledger": json.dumps(ledger), "folder": folder / "state"}
    path.write_text(CONFIGURATION.format(port=upstream, model=MODEL, **words))
    return path


def command(configuration_file: Path, port: int, python: str = sys.executable) -> list[str]:
    """How Penstock is started."""
    return [python, "-m", "penstock", "serve", "--config", str(configuration_file), "--port", str(port)]


@contextmanager
def serving_all_apis(
    folder: Path,
    upstream: int,
    environment: Mapping[str, str] | None = None,
    python: str = sys.executable,
    *,
    realtime: bool = False,
) -> Iterator[tuple[int, int]]:
    """The process id and the port of a Penstock with a provider of each API."""
    file, port = folder / "penstock.toml", free_port()
    tables = [EACH_API.format(port=upstream, api=api) for api in APIS]
    file.write_text("\n".join([*tables, f'[ledger]\nfolder = "{folder}/state"\n']))
    started = command(file, port, python)
    with running(started, environment=environment, log=folder / "log", realtime=realtime) as pid:
        wait_for(f"http://127.0.0.1:{port}/readyz")
        yield pid, port


def nginx(folder: Path, upstream: int) -> Gateway:
    """Nginx as an unbuffered proxy. It may run as another user, who must be able to enter the folder."""
    folder.chmod(0o755)
    file, port = folder / "nginx.conf", free_port()
    file.write_text(NGINX.format(folder=folder, upstream=upstream, port=port))
    return Gateway("nginx", f"nginx -c {file}", port)


def load_of(gateway: Gateway, load: Load, seconds: float) -> Report:
    """What clients get who send a load of chat completions."""
    asked = exchange(APIS[0], "streamed", gateway.model, gateway.path)
    return uvloop.run(run(gateway.port, asked, load, seconds))


def compare(scenarios: dict[str, Load], rounds: int, peers: list[Gateway], *, log: str) -> list[Row]:
    """Run Penstock and its peers, in turns; progress goes to stderr."""
    rows = []
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as name, provider(PROVIDER_PORT) as upstream:
        folder = Path(name)
        gateways = [
            Gateway("direct", "", upstream),
            nginx(folder, upstream),
            _penstock("penstock", configuration(folder, upstream, log=log)),
            _penstock(WITHOUT_LEDGER, configuration(folder, upstream, log=log, ledger=False)),
            *peers,
        ]
        for _ in range(rounds):
            for gateway in gateways:
                for row in _turn(gateway, scenarios, upstream, folder):
                    print(row, file=sys.stderr, flush=True)
                    rows.append(row)
    return rows


def _penstock(name: str, configuration_file: Path) -> Gateway:
    port = free_port()
    return Gateway(name, shlex.join(command(configuration_file, port)), port)


def _turn(gateway: Gateway, scenarios: dict[str, Load], upstream: int, folder: Path) -> list[Row]:
    """Start a gateway, warm it up, and run all scenarios; none if it does not start."""
    if not gateway.command:
        return [
            _row(gateway, name, load, upstream, os.getpid())._replace(cpu_us=0.0) for name, load in scenarios.items()
        ]
    ONE_CALL.set_pace(upstream)
    with running(shlex.split(gateway.command), log=folder / f"{gateway.name}.log", realtime=True) as pid:
        try:
            cold_start_s, idle_mb = wait_for_answer(gateway, pid), resident_mb(pid)
        except MissingError:
            return []
        warm = Load("warm up", "call", 16, 20, 0)
        warm.set_pace(upstream)
        load_of(gateway, warm, 1.5)
        rows = [_row(gateway, name, load, upstream, pid) for name, load in scenarios.items()]
        return [row._replace(cold_start_s=cold_start_s, idle_mb=idle_mb, memory_mb=resident_mb(pid)) for row in rows]


def wait_for_answer(gateway: Gateway, pid: int) -> float:
    """The seconds until a gateway that was just started gives its first whole answer."""
    began, why = time.monotonic(), "it does not listen"
    while time.monotonic() - began < START_S and Path(f"/proc/{pid}/exe").exists():
        with suppress(OSError):
            report = load_of(gateway, ONE_CALL, 0.0)
            if report.calls:
                return time.monotonic() - began
            why = str(dict(report.mistakes))
        time.sleep(0.005)
    raise MissingError(f"{gateway.name} does not answer: {why}; it was started with: {gateway.command}")


def _row(gateway: Gateway, scenario: str, load: Load, upstream: int, pid: int) -> Row:
    """One run, again if it was disturbed."""
    load.set_pace(upstream)
    row = _run(gateway, scenario, load, pid)
    for _ in range(TRIES - 1):
        if row.other_work < DISTURBED:
            break
        row = _run(gateway, scenario, load, pid)
    return row


def _run(gateway: Gateway, scenario: str, load: Load, pid: int) -> Row:
    time.sleep(0.3)
    busy, ours, cpu, began = _busy_s(), cpu_s(os.getpid()), cpu_s(pid), time.monotonic()
    report = load_of(gateway, load, TURN_S)
    passed, cpu = time.monotonic() - began, cpu_s(pid) - cpu
    # This process has started the provider and the gateway.
    other_work = (_busy_s() - busy - (cpu_s(os.getpid()) - ours)) / passed
    mistakes = ", ".join(f"{why}: {count} streams" for why, count in report.mistakes.items())
    if mistakes or not report.latencies:
        return Row(gateway.name, scenario, mistakes or "no stream at all", other_work, *[None] * 8)
    return Row(
        gateway.name,
        scenario,
        "",
        other_work,
        cpu / report.events * 1e6,
        report.events / passed,
        percentile(report.latencies, 0.5),
        percentile(report.latencies, 0.99),
        percentile(report.firsts, 0.5),
        None,
        None,
        None,
    )


def _busy_s() -> float:
    """Seconds in which the cores of this machine were not idle."""
    values = [int(value) for value in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]]
    return (sum(values) - values[3] - values[4]) / os.sysconf("SC_CLK_TCK")
