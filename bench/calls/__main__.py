"""What a short call costs, in microseconds of CPU of the gateway: `scripts/bench-calls`.

Penstock runs with its default log and its ledger; beside it run nginx, Go's reverse proxy, the least relay in Python
(`bench/gateway/relays/bare.py`), and with `--against COMMIT` Penstock as of that commit. All of them run on one core,
the provider and the clients on another. Each row of the table is measured on each gateway that can serve it, in turns
of half a second in random order, so that other work on the machine disturbs all of them alike. Printed are medians of
all rounds, and the range of the middle half.
"""

import argparse
import asyncio
import os
import random
import re
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple, cast

import uvloop

from bench.calls.answers import CALLS, KINDS, Exchange, Kind
from bench.dialects.__main__ import CONFIGURATION
from bench.gateway import fetch, judge
from bench.gateway.peers import PEERS
from bench.turns import trees
from bench.turns.loads import cpu_s, running

CLIENTS = 8
TURN_S = 0.5
ROUNDS = 9
# The client's API and the provider's. A peer that only forwards serves those in which both are the same.
PAIRS = (
    *((name, name) for name in CALLS),
    ("messages", "chat"),
    ("responses", "chat"),
    ("responses", "messages"),
    ("chat", "messages"),
)
FORWARDERS = ("nginx", "go")
BARS = (("streamed", "bare", 3.5), ("unstreamed", "go", 3.0))
"""How many times the CPU of a peer a chat call of a kind may take."""
NGINX = """\
worker_processes 1; daemon off; pid {folder}/pid; error_log {folder}/error.log warn;
events {{ worker_connections 1024; }}
http {{
  access_log off; keepalive_requests 1000000; client_body_temp_path {folder}/a; proxy_temp_path {folder}/b;
  fastcgi_temp_path {folder}/c; uwsgi_temp_path {folder}/d; scgi_temp_path {folder}/e;
  upstream provider {{ server 127.0.0.1:{upstream}; keepalive 64; keepalive_requests 1000000; }}
  server {{
    listen 127.0.0.1:{port};
    location / {{
      proxy_pass http://provider; proxy_http_version 1.1; proxy_set_header Connection ""; proxy_buffering off;
    }}
  }}
}}
"""
_LENGTH = re.compile(rb"content-length: (\d+)", re.IGNORECASE)


class Row(NamedTuple):
    """One kind of call, of a client of one API to a provider of another."""

    kind: Kind
    client: str
    provider: str

    def __str__(self) -> str:
        pair = self.client if self.client == self.provider else f"{self.client} → {self.provider}"
        return f"{pair}, {self.kind}"


class Subject(NamedTuple):
    """A gateway that is measured."""

    name: str
    pid: int
    port: int

    def serves(self, row: Row) -> bool:
        """Whether it can serve this kind of call."""
        if self.name == "bare":
            return row == ROWS[0]
        return self.name not in FORWARDERS or row.client == row.provider

    def exchange(self, row: Row) -> Exchange:
        """What a client sends. A forwarder does not translate the name of the model."""
        model = f"{row.provider}/bench" if self.name.startswith("penstock") else "bench"
        return CALLS[row.client].exchange(row.kind, model)


ROWS = [Row(kind, client, provider) for kind in KINDS for client, provider in PAIRS]


class Client(asyncio.Protocol):
    """One call after another on one connection, until it is stopped."""

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange
        self._data = b""
        self.stopping = False
        self.calls = 0
        self.over: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._transport.write(self._exchange.request)

    def data_received(self, data: bytes) -> None:
        self._data += data
        head, _, body = self._data.partition(b"\r\n\r\n")
        length = _LENGTH.search(head)
        if not (len(body) == int(length[1]) if length else body.endswith(b"\r\n0\r\n\r\n") or body == b"0\r\n\r\n"):
            return
        if not head.startswith(b"HTTP/1.1 200") or self._exchange.end not in body:
            self._fail(f"an answer is not as expected: {self._data[:300]!r}")
            return
        self.calls += 1
        self._data = b""
        if self.stopping:
            self._transport.close()
            self.over.set_result(None)
        else:
            self._transport.write(self._exchange.request)

    def connection_lost(self, _error: Exception | None) -> None:
        self._fail("a connection was closed")

    def _fail(self, why: str) -> None:
        if not self.over.done():
            self.over.set_exception(judge.MissingError(why))


def main() -> int:
    options = _options()
    os.sched_setaffinity(0, {judge.OTHER_CORE})
    try:
        with ExitStack() as ended:
            folder = Path(ended.enter_context(tempfile.TemporaryDirectory(prefix="penstock-bench-")))
            folder.chmod(0o755)  # nginx may run as another user
            subjects = _start(folder, options, ended)
            rows = [row for row in ROWS if options.only in str(row)]
            rounds = uvloop.run(_measure(subjects, rows, options.rounds))
    except judge.MissingError as error:
        print(f"penstock: {error}", file=sys.stderr)
        return 2
    _print(rounds, subjects, rows)
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/bench-calls", description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="turns of each row (default: %(default)s)")
    parser.add_argument("--against", metavar="COMMIT", help="Penstock of this commit, too")
    parser.add_argument("--peers", default="nginx,go,bare", help="gateways beside it (default: %(default)s)")
    parser.add_argument("--only", default="", metavar="TEXT", help="only rows with this text, such as 'chat, streamed'")
    return parser.parse_args()


def _start(folder: Path, options: argparse.Namespace, ended: ExitStack) -> list[Subject]:
    """Start the provider and all gateways that this machine has."""
    upstream = ended.enter_context(_provider())
    trees_of = {"penstock": trees.copy_working_tree(folder / "new")}
    if options.against:
        trees_of["penstock before"] = trees.export_commit(options.against, folder / "old")
    subjects = [ended.enter_context(_penstock(name, source, upstream)) for name, source in trees_of.items()]
    for peer in filter(None, options.peers.split(",")):
        try:
            subjects.append(ended.enter_context(_nginx(folder, upstream) if peer == "nginx" else _peer(peer, upstream)))
        except (fetch.FetchError, OSError) as error:
            print(f"penstock: {peer} is left out: {error}", file=sys.stderr)
    return subjects


@contextmanager
def _provider() -> Iterator[int]:
    """The port of the provider, until the block ends."""
    command = [sys.executable, "-m", "bench.calls.provider"]
    provider = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=judge.ROOT)
    try:
        assert provider.stdout is not None
        yield int(provider.stdout.readline())
    finally:
        provider.terminate()
        provider.communicate()


@contextmanager
def _penstock(name: str, source: Path, upstream: int) -> Iterator[Subject]:
    folder = source.parent
    tables = [
        CONFIGURATION.format(name=name, port=upstream, dialect=calls.api.dialect) for name, calls in CALLS.items()
    ]
    file, port = folder / "penstock.toml", judge.free_port()
    file.write_text("\n".join([*tables, f'[ledger]\nfolder = "{folder}/state"\n']))
    environment = trees.environment(source)
    with running(judge.command(file, port), judge.GATEWAY_CORE, environment=environment, log=folder / "log") as pid:
        judge.wait_for(f"http://127.0.0.1:{port}/readyz")
        yield Subject(name, pid, port)


@contextmanager
def _peer(name: str, upstream: int) -> Iterator[Subject]:
    gateway = fetch.fetch(name, PEERS[name], fetch.FOLDER / name, upstream)
    with running(gateway.command.split(), judge.GATEWAY_CORE) as pid:
        judge.wait_for_port(gateway.port)
        yield Subject(name, pid, gateway.port)


@contextmanager
def _nginx(folder: Path, upstream: int) -> Iterator[Subject]:
    configuration, port = folder / "nginx.conf", judge.free_port()
    configuration.write_text(NGINX.format(folder=folder, upstream=upstream, port=port))
    with running(["nginx", "-c", str(configuration)], judge.GATEWAY_CORE) as pid:
        judge.wait_for_port(port)
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        os.sched_setaffinity(int(children[0]), {judge.GATEWAY_CORE})
        yield Subject("nginx", int(children[0]), port)


async def _measure(subjects: list[Subject], rows: list[Row], rounds: int) -> dict[tuple[str, Row], list[float]]:
    """CPU microseconds for a call, of each round, by gateway and row."""
    figures: dict[tuple[str, Row], list[float]] = {}
    turns = [(subject, row) for subject in subjects for row in rows if subject.serves(row)]
    for number in range(rounds + 1):
        for subject, row in random.sample(turns, len(turns)):
            cpu = await _turn(subject, row)
            if number:  # the first round warms up
                figures.setdefault((subject.name, row), []).append(cpu)
    return figures


async def _turn(subject: Subject, row: Row) -> float:
    loop = asyncio.get_running_loop()
    exchange = subject.exchange(row)
    connect = [loop.create_connection(lambda: Client(exchange), "127.0.0.1", subject.port) for _ in range(CLIENTS)]
    clients = [client for _, client in await asyncio.gather(*connect)]
    used, calls = cpu_s(subject.pid), sum(client.calls for client in clients)
    await asyncio.sleep(TURN_S)
    for client in clients:
        client.stopping = True
    await asyncio.gather(*(client.over for client in clients))
    return (cpu_s(subject.pid) - used) / (sum(client.calls for client in clients) - calls) * 1e6


def _print(figures: dict[tuple[str, Row], list[float]], subjects: list[Subject], rows: list[Row]) -> None:
    names = [subject.name for subject in subjects]
    print(f"{CLIENTS} clients, no pauses; microseconds of CPU for a call: median (middle half)")
    print(f"{'':32}" + "".join(f"{name:>20}" for name in names))
    for row in rows:
        cells = [_cell(figures.get((name, row))) for name in names]
        print(f"{row!s:32}" + "".join(f"{cell:>20}" for cell in cells))
    medians = {key: statistics.median(values) for key, values in figures.items()}
    if "penstock before" in names:
        ratios = [medians["penstock", row] / medians["penstock before", row] for row in rows]
        print(
            f"before: each row {', '.join(f'{ratio:.2f}' for ratio in ratios)}; median {statistics.median(ratios):.3f}"
        )
    for kind, peer, most in BARS:
        row = Row(cast("Kind", kind), "chat", "chat")
        if (peer, row) in medians:
            ratio = medians["penstock", row] / medians[peer, row]
            print(f"{row}: {ratio:.2f} × {peer} (at most {most}: {'met' if ratio <= most else 'missed'})")


def _cell(values: list[float] | None) -> str:
    if not values:
        return "–"
    low, middle, high = statistics.quantiles(values, n=4) if len(values) > 1 else [values[0]] * 3
    return f"{middle:.0f} ({low:.0f}–{high:.0f})"


if __name__ == "__main__":
    sys.exit(main())
