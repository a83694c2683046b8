"""What an event costs with each pair of a client's API and a provider's: `scripts/bench-dialects`.

One gateway, with the default log and a ledger, runs on one core; the provider and the clients run on another. The pairs
have turns of a second, in random order, and CPU is that of the gateway's process. A round is one turn of each pair: its
figures are compared with those of the same round, so other work on the machine disturbs both sides of a ratio alike.
Exit status: 0 if the relay of each API costs at most 1.15 times that of chat completions, and a translation 1.3 times;
1 if not.
"""

import argparse
import random
import statistics
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

import uvloop

from bench.gateway import judge
from bench.load.apis import APIS, Api
from bench.load.clients import Load, run, streams
from bench.load.exchanges import exchange
from bench.load.processes import MissingError, cpu_s, provider
from bench.turns.pairs import median_range

EVENTS = 100
TURN_S = 1.0
STREAMS = 50
ROUNDS = 20
MOST_RELAYED, MOST_TRANSLATED = 1.15, 1.3
"""How much more an event may cost than one that is relayed from chat completions to chat completions."""
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


def main() -> int:
    options = _options()
    load = streams(options.streams, events=options.events)
    try:
        with tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder, provider() as upstream:
            load.set_pace(upstream)
            with judge.serving_all_apis(Path(folder), upstream, realtime=True) as (pid, port):
                rounds = uvloop.run(_measure(pid, port, load, options))
    except MissingError as error:
        print(f"penstock: {error}", file=sys.stderr)
        return 2
    return _print(rounds, load, options)


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


async def _measure(pid: int, port: int, load: Load, options: argparse.Namespace) -> list[dict[str, float]]:
    pairs = _pairs(options)
    for pair in pairs:
        await _turn(pid, port, pair, load)  # warms up
    rounds = []
    for _ in range(options.rounds):
        order = random.sample(pairs, len(pairs))
        rounds.append({str(pair): await _turn(pid, port, pair, load) for pair in order})
    return rounds


async def _turn(pid: int, port: int, pair: Pair, load: Load) -> float:
    """CPU microseconds of the gateway for each event of the calls that begin within a turn."""
    used = cpu_s(pid)
    asked = exchange(pair.client, "streamed", f"{pair.provider.name}/bench")
    report = (await run(port, asked, load, TURN_S)).checked()
    return (cpu_s(pid) - used) / report.events * 1e6


def _print(rounds: list[dict[str, float]], load: Load, options: argparse.Namespace) -> int:
    print(f"{load.name}, {load.events} in each; {len(rounds)} rounds; microseconds of CPU")
    print(COLUMNS.format("", "CPU/event", "× chat", "95 % range"))
    missed = []
    for pair in _pairs(options):
        ratios = [figures[str(pair)] / figures[str(BASE)] for figures in rounds]
        low, high = median_range(ratios)
        cpu, ratio = statistics.median(figures[str(pair)] for figures in rounds), statistics.median(ratios)
        print(COLUMNS.format(str(pair), f"{cpu:.1f}", f"{ratio:.2f}", f"{low:.2f} to {high:.2f}"))
        if ratio > (MOST_RELAYED if pair.client == pair.provider else MOST_TRANSLATED):
            missed.append(str(pair))
    print(f"The goal is {MOST_RELAYED} for what is relayed and {MOST_TRANSLATED} for what is translated: ", end="")
    print(f"missed by {'; '.join(missed)}" if missed else "met")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
