"""Measures the cost of an open Live page for a gateway: `scripts/bench-watching`.

One gateway carries one load of fifty paced streams. The Live page is open for two seconds and closed for two seconds,
in random order, so that other work on the machine affects both. The figure is the median of the shares of the pairs,
with its 95 % confidence interval. The cost of observing an event without an open page is measured in this process
(`unwatched.py`), and added.
"""

import argparse
import random
import secrets
import statistics
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

from bench.gateway import judge
from bench.load.clients import streams
from bench.load.processes import MissingError, cpu_s, free_port, provider, running, wait_for
from bench.turns.pairs import median_range
from bench.watching import unwatched
from bench.watching.watcher import Watcher

GOAL = 0.05
STREAMS = 50
TURN_S = 2.0
# The time until a new watcher reads, and until nothing is left of one that has disconnected.
SETTLE_S = 0.5


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/bench-watching", description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--pairs", type=int, default=40, help="turns with and without a watcher (default: %(default)s)")
    options = parser.parse_args()
    try:
        pairs = _measure(options.pairs)
    except MissingError as error:
        print(f"penstock: {error}", file=sys.stderr)
        return 2
    load = streams(STREAMS)
    events_per_s = STREAMS * 1e6 / load.gap_us
    with_it, without = (statistics.median(column) / events_per_s * 1e6 for column in zip(*pairs, strict=True))
    idle_us = unwatched.idle_us()
    shares = [watched / alone - 1 for watched, alone in pairs]
    share = statistics.median(shares) + idle_us / without
    low, high = (bound + idle_us / without for bound in median_range(shares))
    print(f"{load.name}; {len(pairs)} pairs of turns of {TURN_S:g} s")
    print(f"CPU per event: {with_it:.1f} µs with a watcher, {without:.1f} µs without")
    print(f"to observe an event without a watcher, in this process: {idle_us:.2f} µs")
    print(f"live observation: {share:+.1%} in all, {low:+.1%} to {high:+.1%} with 95 % certainty; {GOAL:+.0%} allowed")
    return 0 if share <= GOAL else 1


def _measure(pairs: int) -> list[tuple[float, float]]:
    """CPU seconds for each second: of turns with a watcher, and of those without, side by side."""
    load = streams(STREAMS)
    port, admin_port, token = free_port(), free_port(), secrets.token_hex()
    with ExitStack() as ended, tempfile.TemporaryDirectory(prefix="penstock-bench-") as name:
        folder, upstream = Path(name), ended.enter_context(provider())
        configuration = judge.configuration(folder, upstream, log="off")
        with configuration.open("a") as file:
            file.write(judge.ADMIN.format(port=admin_port, token=token))
        gateway = judge.Gateway("penstock", "", port)
        pid = ended.enter_context(running(judge.command(configuration, port), realtime=True))
        wait_for(f"http://127.0.0.1:{port}/readyz")
        load.set_pace(upstream)
        seconds = pairs * 2 * (TURN_S + SETTLE_S) + 5
        report = ended.enter_context(ThreadPoolExecutor(1)).submit(judge.load_of, gateway, load, seconds)
        time.sleep(2)
        measured = [_pair(pid, admin_port, token, random.random() < 0.5) for _ in range(pairs)]
        report.result().checked()
        return measured


def _pair(pid: int, port: int, token: str, watched_first: bool) -> tuple[float, float]:
    def watched() -> float:
        with Watcher(port, token) as watcher:
            used = _turn(pid)
        if not all(watcher.seen):
            raise MissingError(f"the watcher received nothing: {watcher.seen}")
        return used

    if watched_first:
        first = watched()
        return first, _turn(pid)
    alone = _turn(pid)
    return watched(), alone


def _turn(pid: int) -> float:
    time.sleep(SETTLE_S)
    began, used = time.monotonic(), cpu_s(pid)
    time.sleep(TURN_S)
    return (cpu_s(pid) - used) / (time.monotonic() - began)


if __name__ == "__main__":
    sys.exit(main())
