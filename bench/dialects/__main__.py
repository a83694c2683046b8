"""What an event costs with each pair of a client's API and a provider's: `scripts/bench-dialects`.

One gateway, with the default log and a ledger, runs on one core; the provider and the clients run on another. The pairs
have turns of a second, in random order, and CPU is that of the gateway's process. A round is one turn of each pair: its
figures are compared with those of the same round, so other work on the machine disturbs both sides of a ratio alike.
Exit status: 0 if the relay of each API costs at most 1.15 times that of chat completions, 1 if not.
"""

import argparse
import asyncio
import os
import random
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, cast

import uvloop

from bench.dialects.apis import APIS, Api
from bench.gateway import judge
from bench.turns.loads import cpu_s, running
from bench.turns.pairs import median_range

EVENTS = 100
GAP_S = 0.005
TURN_S = 1.0
STREAMS = 50
ROUNDS = 20
MOST = 1.15
"""How much more an event of another API may cost than one of chat completions, where both sides speak it."""
COLUMNS = "{:36}{:>10}{:>9}   {}"
CONFIGURATION = """\
[providers.{name}]
base_url = "http://127.0.0.1:{port}/v1"
dialect = "{dialect}"
api_key = "any"

[prices."{name}/*"]
input = 0.15
output = 0.6
"""


class Pair(NamedTuple):
    """A client of one API and a provider of the same or another one."""

    client: Api
    provider: Api

    def __str__(self) -> str:
        if self.client == self.provider:
            return f"{self.client.name}, relayed"
        return f"{self.client.name} client, {self.provider.name} provider"


PAIRS = [Pair(client, provider) for client in APIS for provider in APIS]
BASE = PAIRS[0]


class Client(asyncio.Protocol):
    """One call after another on one connection, until it is stopped."""

    def __init__(self, pair: Pair, deltas: int) -> None:
        self._request = pair.client.request(f"{pair.provider.name}/bench")
        self._api = pair.client
        self._expected = deltas
        self._tail = b""
        self._deltas = 0
        self.stopping = False
        self.events = 0
        self.over: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        self._deltas += data.count(self._api.mark)
        self._tail = (self._tail + data)[-200:]
        if not self._tail.endswith(b"\r\n0\r\n\r\n"):
            return
        if self._deltas != self._expected or self._api.end not in self._tail:
            self._fail(f"an answer is not whole: {self._deltas} deltas, and {self._tail!r}")
            return
        self.events += self._deltas
        self._deltas, self._tail = 0, b""
        if self.stopping:
            self._transport.close()
            self.over.set_result(None)
        else:
            self._transport.write(self._request)

    def connection_lost(self, _error: Exception | None) -> None:
        self._fail("a connection was closed")

    def _fail(self, why: str) -> None:
        if not self.over.done():
            self.over.set_exception(judge.MissingError(why))


def main() -> int:
    options = _options()
    os.sched_setaffinity(0, {judge.OTHER_CORE})
    try:
        with (
            tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder,
            _gateway(Path(folder), options.events) as (pid, port),
        ):
            rounds = uvloop.run(_measure(pid, port, options))
    except judge.MissingError as error:
        print(f"penstock: {error}", file=sys.stderr)
        return 2
    return _print(rounds, options)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/bench-dialects", description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="turns of each pair (default: %(default)s)")
    parser.add_argument("--streams", type=int, default=STREAMS, help="streams at a time (default: %(default)s)")
    parser.add_argument("--events", type=int, default=EVENTS, help="events with text in each (default: %(default)s)")
    parser.add_argument("--relayed", action="store_true", help="only pairs in which both sides speak the same API")
    names = [api.name for api in APIS]
    parser.add_argument("--apis", nargs="+", choices=names, default=names, help="only these APIs, and chat completions")
    return parser.parse_args()


def _pairs(options: argparse.Namespace) -> list[Pair]:
    names = {BASE.client.name, *options.apis}
    pairs = [pair for pair in PAIRS if {pair.client.name, pair.provider.name} <= names]
    return [pair for pair in pairs if not options.relayed or pair.client == pair.provider]


@contextmanager
def _gateway(folder: Path, deltas: int) -> Iterator[tuple[int, int]]:
    """The process id and the port of a gateway whose providers are running."""
    command = [sys.executable, "-m", "bench.dialects.provider", str(deltas), str(GAP_S)]
    provider = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=judge.ROOT)
    try:
        assert provider.stdout is not None
        upstream = int(provider.stdout.readline())
        tables = [CONFIGURATION.format(name=api.name, port=upstream, dialect=api.dialect) for api in APIS]
        file, port = folder / "penstock.toml", judge.free_port()
        file.write_text("\n".join([*tables, f'[ledger]\nfolder = "{folder}/state"\n']))
        with running(judge.command(file, port), judge.GATEWAY_CORE, log=folder / "log") as pid:
            judge.wait_for(f"http://127.0.0.1:{port}/readyz")
            yield pid, port
    finally:
        provider.terminate()
        provider.communicate()


async def _measure(pid: int, port: int, options: argparse.Namespace) -> list[dict[str, float]]:
    pairs = _pairs(options)
    for pair in pairs:
        await _turn(pid, port, pair, options)  # warms up
    rounds = []
    for _ in range(options.rounds):
        order = random.sample(pairs, len(pairs))
        rounds.append({str(pair): await _turn(pid, port, pair, options) for pair in order})
    return rounds


async def _turn(pid: int, port: int, pair: Pair, options: argparse.Namespace) -> float:
    """CPU microseconds of the gateway for each event of the calls that begin within a turn."""
    loop = asyncio.get_running_loop()
    used = cpu_s(pid)
    clients = []
    for _ in range(options.streams):
        _, client = await loop.create_connection(lambda: Client(pair, options.events), "127.0.0.1", port)
        clients.append(client)
        await asyncio.sleep(GAP_S * 20 / options.streams)  # so that not all send at the same time
    await asyncio.sleep(TURN_S)
    for client in clients:
        client.stopping = True
    await asyncio.gather(*(client.over for client in clients))
    return (cpu_s(pid) - used) / sum(client.events for client in clients) * 1e6


def _print(rounds: list[dict[str, float]], options: argparse.Namespace) -> int:
    print(
        f"{options.streams} streams of {options.events} events, one every {GAP_S * 1000:g} ms; {len(rounds)} rounds; "
        "microseconds of CPU"
    )
    print(COLUMNS.format("", "CPU/event", "× chat", "95 % range"))
    met = True
    for pair in _pairs(options):
        ratios = [figures[str(pair)] / figures[str(BASE)] for figures in rounds]
        low, high = median_range(ratios)
        cpu, ratio = statistics.median(figures[str(pair)] for figures in rounds), statistics.median(ratios)
        print(COLUMNS.format(str(pair), f"{cpu:.1f}", f"{ratio:.2f}", f"{low:.2f} to {high:.2f}"))
        met = met and (pair.client != pair.provider or ratio <= MOST)
    print(f"The goal is {MOST} for what is relayed: {'met' if met else 'missed'}.")
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
