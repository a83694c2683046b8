"""How much slower or faster Penstock is than at a commit, as ratios with a 95 % range: `scripts/bench-turns`.

Two gateways run on one core, with the default log on. CPU is measured while half the load goes through each at the same
time: the core runs them in turns of less than a millisecond, so that other work on the machine costs both the same.
Latencies are measured in turns of half a second, of the whole load through one gateway alone. That is a pair; for the
next one both are started anew. Measuring goes on until the CPU ratio is known to within 1.5 %, or the time is up.

With `--against COMMIT` this working tree is compared with a commit. Without it, a gateway of this tree with a ledger is
compared with one without. Exit status: 0 if every CPU ratio is known to within 1.5 % (and, of the ledger, is allowed),
1 if not, 2 if nothing could be measured.
"""

import argparse
import asyncio
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

import uvloop

from bench.gateway import judge
from bench.gateway.goals import LEDGER_SHARE
from bench.load.apis import APIS
from bench.load.clients import Load, percentile, run, short_calls, streams
from bench.load.exchanges import exchange
from bench.load.processes import MissingError, cpu_s, free_port, provider, running, wait_for
from bench.turns import trees
from bench.turns.pairs import PRECISION, Figures, Pair, estimate, is_precise, measure

# Calls begin for so many seconds: to warm up and for latencies (a stream takes half a second: one per connection), and
# for CPU.
TURN_S = 0.4
TOGETHER_S = 1.4
MINUTES = 5.0
STREAMS = (50, 200)
COLUMNS = "{:26}{:>14}{:>16}{:>10}   {}"


class Side(NamedTuple):
    """One of the two gateways that are compared, and its folder for configuration, ledger and log."""

    name: str
    source: Path
    folder: Path
    ledger: bool = True


class Running(NamedTuple):
    """A gateway that is running."""

    pid: int
    port: int


def main() -> int:
    options = _options()
    try:
        with ExitStack() as ended:
            folder = Path(ended.enter_context(tempfile.TemporaryDirectory(prefix="penstock-bench-")))
            compared = _trees(options.against, folder) if options.against else _with_and_without_ledger(folder)
            upstream = ended.enter_context(provider())
            reached = [_compare(compared, load, upstream, options) for load in _loads(options)]
    except MissingError as error:
        print(f"penstock: {error}", file=sys.stderr)
        return 2
    return 0 if all(reached) else 1


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/bench-turns", description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument(
        "--against", metavar="COMMIT", help="compare this working tree with that commit; without it: ledger on and off"
    )
    parser.add_argument(
        "--streams", type=int, metavar="N", help="only this many paced streams (default: 50 and 200, and short calls)"
    )
    parser.add_argument("--calls", action="store_true", help="only short calls (with --streams: those too)")
    parser.add_argument(
        "--minutes",
        type=float,
        default=MINUTES,
        help="the longest that one load is measured, if 1.5 %% is not reached earlier (default: %(default)g)",
    )
    return parser.parse_args()


def _loads(options: argparse.Namespace) -> list[Load]:
    """The loads that were asked for; otherwise all that there are, or of the ledger's cost the first."""
    asked = [streams(options.streams)] if options.streams else []
    asked += [short_calls()] if options.calls else []
    everything = [*map(streams, STREAMS), short_calls()]
    return asked or (everything if options.against else everything[:1])


def _trees(commit: str, folder: Path) -> tuple[Side, Side]:
    print(f"new: this working tree; old: {trees.describe(commit)}")
    new, old = folder / "new", folder / "old"
    return Side("new", trees.copy_working_tree(new), new), Side("old", trees.export_commit(commit, old), old)


def _with_and_without_ledger(folder: Path) -> tuple[Side, Side]:
    source = trees.copy_working_tree(folder)
    with_it, without = folder / "with", folder / "without"
    with_it.mkdir()
    without.mkdir()
    return Side("with ledger", source, with_it), Side("without", source, without, ledger=False)


def _compare(compared: tuple[Side, Side], load: Load, upstream: int, options: argparse.Namespace) -> bool:
    """Measure one load and print what was found. Returns whether the CPU ratio is precise, and allowed."""
    load.set_pace(upstream)
    began = time.monotonic()
    pairs = measure(lambda: _pair(compared, load, upstream), lambda: time.monotonic() - began < options.minutes * 60)
    print(f"\n{load.name}; default log on; {len(pairs)} pairs in {(time.monotonic() - began) / 60:.1f} minutes")
    print(COLUMNS.format("microseconds, medians", *(side.name for side in compared), "ratio", "95 % range"))
    rows = (
        ("cpu", f"CPU per {load.unit}"),
        ("cpu_alone", "the same, alone"),
        ("first", "first event"),
        ("p99", load.p99_of),
    )
    for figure, words in rows:
        values = ([getattr(figures, figure) for figures in side] for side in zip(*pairs, strict=True))
        found = estimate(pairs, figure)
        medians = [f"{statistics.median(side):.1f}" for side in values]
        print(COLUMNS.format(words, *medians, f"{found.ratio:.3f}", f"{found.low:.3f} to {found.high:.3f}"))
    cpu = estimate(pairs, "cpu")
    precise = is_precise(pairs)
    known = f"the CPU ratio is known to within {cpu.error:.1%}"
    print(known if precise else f"NOT PRECISE: {known}, not {PRECISION:.1%}; --minutes allows more time", flush=True)
    if options.against:
        return precise
    print(f"the ledger's CPU per event: {cpu.ratio - 1:+.1%}; {LEDGER_SHARE:+.0%} allowed")
    return precise and cpu.ratio - 1 <= LEDGER_SHARE


def _pair(compared: tuple[Side, Side], load: Load, upstream: int) -> Pair:
    """Start both gateways; let a load go through both at the same time, then through each alone."""
    with ExitStack() as ended:
        gateways = {side: ended.enter_context(_gateway(side, upstream)) for side in random.sample(compared, 2)}

        async def together(seconds: float) -> dict[Side, Figures]:
            order, half = random.sample(compared, 2), load.halved()
            figures = await asyncio.gather(*(_run(gateways[side], half, seconds) for side in order))
            return dict(zip(order, figures, strict=True))

        uvloop.run(together(TURN_S))  # warms both up
        shared = uvloop.run(together(TOGETHER_S))
        alone = {side: uvloop.run(_run(gateways[side], load, TURN_S)) for side in random.sample(compared, 2)}
        return Pair(*(alone[side]._replace(cpu=shared[side].cpu) for side in compared))


async def _run(gateway: Running, load: Load, seconds: float) -> Figures:
    """What a gateway takes for a load."""
    used = cpu_s(gateway.pid)
    report = (await run(gateway.port, exchange(APIS[0], "streamed", judge.MODEL), load, seconds)).checked()
    cpu = (cpu_s(gateway.pid) - used) / (report.events if load.unit == "event" else report.calls) * 1e6
    late = percentile(report.latencies if load.unit == "event" else report.firsts, 0.99)
    return Figures(cpu, cpu, percentile(report.firsts, 0.5), late)


@contextmanager
def _gateway(side: Side, upstream: int) -> Iterator[Running]:
    """A gateway of this side, which writes its log into a file, until the block ends."""
    configuration = judge.configuration(side.folder, upstream, ledger=side.ledger)
    port, log = free_port(), side.folder / "log"
    command, environment = judge.command(configuration, port), trees.environment(side.source)
    with running(command, environment=environment, log=log, realtime=True) as pid:
        wait_for(f"http://127.0.0.1:{port}/readyz")
        yield Running(pid, port)
    if b"request_id" not in log.read_bytes():
        raise MissingError(f"the log of {side.name!r} has no line of a call")
    log.unlink()


if __name__ == "__main__":
    sys.exit(main())
