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
import os
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

from bench.gateway import judge
from bench.gateway.goals import LEDGER_SHARE
from bench.gateway.judge import MissingError
from bench.turns import loads, trees
from bench.turns.loads import Load, Mock, Running
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


def main() -> int:
    options = _options()
    try:
        judge.check_tools()
        with ExitStack() as ended:
            folder = Path(ended.enter_context(tempfile.TemporaryDirectory(prefix="penstock-bench-")))
            compared = _trees(options.against, folder) if options.against else _with_and_without_ledger(folder)
            mock = ended.enter_context(loads.mock(folder))
            reached = [_compare(compared, load, mock, options) for load in _loads(options)]
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
    asked = [loads.streams(options.streams)] if options.streams else []
    asked += [loads.short_calls()] if options.calls else []
    everything = [*map(loads.streams, STREAMS), loads.short_calls()]
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


def _compare(compared: tuple[Side, Side], load: Load, mock: Mock, options: argparse.Namespace) -> bool:
    """Measure one load and print what was found. Returns whether the CPU ratio is precise, and allowed."""
    mock.pace(load)
    began = time.monotonic()
    pairs = measure(lambda: _pair(compared, load, mock), lambda: time.monotonic() - began < options.minutes * 60)
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


def _pair(compared: tuple[Side, Side], load: Load, mock: Mock) -> Pair:
    """Start both gateways; let a load go through both at the same time, then through each alone."""
    with ExitStack() as ended, ThreadPoolExecutor(2) as threads:
        gateways = {side: ended.enter_context(_gateway(side, mock.port)) for side in random.sample(compared, 2)}

        def together(seconds: float) -> dict[Side, Figures]:
            order = random.sample(compared, 2)
            half = load.halved()
            figures = threads.map(lambda side: loads.run(mock.loadgen, gateways[side], half, seconds), order)
            return dict(zip(order, figures, strict=True))

        together(TURN_S)  # warms both up
        shared = together(TOGETHER_S)
        alone = {side: loads.run(mock.loadgen, gateways[side], load, TURN_S) for side in random.sample(compared, 2)}
        return Pair(*(alone[side]._replace(cpu=shared[side].cpu) for side in compared))


@contextmanager
def _gateway(side: Side, mock_port: int) -> Iterator[Running]:
    """A gateway of this side, which writes its log into a file, until the block ends."""
    configuration = judge.configuration(side.folder, log="auto", ledger=side.ledger, mock_port=mock_port)
    port, log = judge.free_port(), side.folder / "log"
    environment = trees.environment(side.source)
    with loads.running(judge.command(configuration, port), judge.GATEWAY_CORE, environment=environment, log=log) as pid:
        judge.give_priority(pid, os.SCHED_RR, 1)
        judge.wait_for(f"http://127.0.0.1:{port}/readyz")
        yield Running(pid, port)
    if b"request_id" not in log.read_bytes():
        raise MissingError(f"the log of {side.name!r} has no line of a call")
    log.unlink()


if __name__ == "__main__":
    sys.exit(main())
