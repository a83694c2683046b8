"""What a short call costs, in microseconds of CPU of the gateway: `scripts/bench-calls`.

Penstock runs with its default log and its ledger; beside it run nginx, Go's reverse proxy, the least relay in Python
(`bench/gateway/relays/bare.py`), and with `--against COMMIT` Penstock as of that commit. All of them run on one core,
the provider and the clients on another. Each row of the table is measured on each gateway that can serve it, in turns
of half a second in random order, so that other work on the machine disturbs all of them alike. Printed are medians of
all rounds, and the range of the middle half.
"""

import argparse
import random
import shlex
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple, cast

import uvloop

from bench.gateway import fetch, judge
from bench.gateway.peers import PEERS
from bench.load.apis import APIS
from bench.load.clients import Load, run
from bench.load.exchanges import KINDS, Exchange, Kind, exchange
from bench.load.processes import MissingError, cpu_s, provider, running
from bench.turns import trees

LOAD = Load("8 clients, no pauses", "call", 8, 2, 0)
TURN_S = 0.5
ROUNDS = 9
API = {api.name: api for api in APIS}
# The client's API and the provider's. A peer that only forwards serves those in which both are the same.
PAIRS = (
    *((name, name) for name in API),
    ("messages", "chat"),
    ("responses", "chat"),
    ("responses", "messages"),
    ("chat", "messages"),
)
FORWARDERS = ("nginx", "go")
BARS = (("streamed", "bare", 3.5), ("unstreamed", "go", 3.0))
"""How many times the CPU of a peer a chat call of a kind may take."""


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

    gateway: judge.Gateway
    pid: int

    @property
    def name(self) -> str:
        return self.gateway.name

    def serves(self, row: Row) -> bool:
        """Whether it can serve this kind of call."""
        if self.name.startswith("penstock"):
            return True
        if self.name in FORWARDERS:
            return row.client == row.provider
        return row == ROWS[0] or (self.name != "bare" and row.client == row.provider == "chat")

    def exchange(self, row: Row) -> Exchange:
        """What a client sends. A peer does not know Penstock's names of models."""
        model = f"{row.provider}/bench" if self.name.startswith("penstock") else self.gateway.model
        return exchange(API[row.client], row.kind, model, self.gateway.path)


ROWS = [Row(kind, client, provider) for kind in KINDS for client, provider in PAIRS]


def main() -> int:
    options = _options()
    try:
        with ExitStack() as ended:
            folder = Path(ended.enter_context(tempfile.TemporaryDirectory(prefix="penstock-bench-")))
            subjects = _start(folder, options, ended)
            rows = [row for row in ROWS if options.only in str(row)]
            rounds = uvloop.run(_measure(subjects, rows, options.rounds))
    except MissingError as error:
        print(f"penstock: {error}", file=sys.stderr)
        return 2
    _print(rounds, subjects, rows)
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/bench-calls", description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="turns of each row (default: %(default)s)")
    parser.add_argument("--against", metavar="COMMIT", help="Penstock of this commit, too")
    parser.add_argument(
        "--python", action="append", default=[], metavar="PATH", help="this working tree run by another Python, too"
    )
    parser.add_argument("--peers", default="nginx,go,bare", help="gateways beside it (default: %(default)s)")
    parser.add_argument("--only", default="", metavar="TEXT", help="only rows with this text, such as 'chat, streamed'")
    return parser.parse_args()


def _start(folder: Path, options: argparse.Namespace, ended: ExitStack) -> list[Subject]:
    """Start the provider and all gateways that this machine has."""
    upstream = ended.enter_context(provider())
    LOAD.set_pace(upstream)
    trees_of = {"penstock": trees.copy_working_tree(folder / "new")}
    if options.against:
        trees_of["penstock before"] = trees.export_commit(options.against, folder / "old")
    subjects = [ended.enter_context(_penstock(name, source, upstream)) for name, source in trees_of.items()]
    for number, python in enumerate(options.python):
        source = trees.copy_working_tree(folder / f"python-{number}")
        subjects.append(ended.enter_context(_penstock(f"penstock {_version(python)}", source, upstream, python)))
    for name in filter(None, options.peers.split(",")):
        try:
            subjects.append(ended.enter_context(_peer(name, folder, upstream)))
        except (fetch.FetchError, MissingError, OSError) as error:
            print(f"penstock: {name} is left out: {error}", file=sys.stderr)
    return subjects


def _version(python: str) -> str:
    """The version of a Python that has the packages of Penstock, as the environments that `scripts/test` makes."""
    command = [python, "-c", "import sys, uvloop; print('%d.%d.%d' % sys.version_info[:3])"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


@contextmanager
def _penstock(name: str, source: Path, upstream: int, python: str = sys.executable) -> Iterator[Subject]:
    with judge.serving_all_apis(source.parent, upstream, trees.environment(source), python) as (pid, port):
        yield Subject(judge.Gateway(name, "", port), pid)


@contextmanager
def _peer(name: str, folder: Path, upstream: int) -> Iterator[Subject]:
    """A peer that has answered a call."""
    if name == "nginx":
        gateway = judge.nginx(folder, upstream)
    elif name not in PEERS:
        raise fetch.FetchError(f"no peer is called so; there are: nginx, {', '.join(PEERS)}")
    else:
        gateway = fetch.fetch(name, PEERS[name], fetch.FOLDER / name, upstream)
    with running(shlex.split(gateway.command), log=folder / f"{name}.log") as pid:
        judge.wait_for_answer(gateway, pid)
        yield Subject(gateway, pid)


async def _measure(subjects: list[Subject], rows: list[Row], rounds: int) -> dict[tuple[str, Row], list[float]]:
    """CPU microseconds for a call, of each round, by gateway and row."""
    figures: dict[tuple[str, Row], list[float]] = {}
    turns = []
    for subject, row in ((subject, row) for subject in subjects for row in rows if subject.serves(row)):
        try:
            await _turn(subject, row)  # warms up
            turns.append((subject, row))
        except MissingError as error:
            print(f"penstock: left out: {error}", file=sys.stderr)
    for _ in range(rounds):
        for subject, row in random.sample(turns, len(turns)):
            figures.setdefault((subject.name, row), []).append(await _turn(subject, row))
    return figures


async def _turn(subject: Subject, row: Row) -> float:
    used = cpu_s(subject.pid)
    report = await run(subject.gateway.port, subject.exchange(row), LOAD, TURN_S)
    if report.mistakes:
        raise MissingError(f"{subject.name}, {row}: {dict(report.mistakes)}")
    return (cpu_s(subject.pid) - used) / report.calls * 1e6


def _print(figures: dict[tuple[str, Row], list[float]], subjects: list[Subject], rows: list[Row]) -> None:
    names = [subject.name for subject in subjects]
    print(f"{LOAD.name}; microseconds of CPU for a call: median (middle half)")
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
