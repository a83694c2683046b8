"""Searches for provider events, requests and error bodies that hold the event loop for long, and prints the worst.

See tests/cpu.py for how. The limits that Penstock promises: 20 ms of CPU time for an event of up to 1 MB, 15 ms for
each megabyte of a request. What costs most is measured again at several sizes, by the least of three runs, with the
garbage collector as the gateway uses it. Use an idle machine, and at most one process for each of its cores.
"""

import argparse
import asyncio
import gc
import os
import sys
import time
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from itertools import islice
from multiprocessing import get_context
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests.cpu import LIMITS_MS, Found, Search, sweep, worst_size  # noqa: E402

_MEASURED_AGAIN = 160
_STEP = 500


def search(part: int, processes: int, cases: int, seed: int, minutes: float) -> tuple[Mapping[str, Found], int]:
    """Search one part in a process of its own: what was found, and how many cases were tried."""
    gc.freeze()
    found = Search(seed * processes + part, islice(sweep(), part, None, processes))
    began = time.monotonic()
    while found.tried < cases and time.monotonic() - began < minutes * 60:
        asyncio.run(found.run(min(_STEP, cases - found.tried)))
        print(f"process {part}: {found.tried:,} cases, {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
    return found.worst, found.tried


async def report(found: Search, shown: int) -> int:
    """Measure the worst again and print them; how many are beyond the limits."""
    gc.freeze()
    gc.set_threshold(20_000, 10, 10)  # as the gateway does
    beyond = 0
    for kind, limit in LIMITS_MS.items():
        print(f"\n{kind}: the worst, in ms of CPU time{' for each MB' if kind == 'request' else ''} (limit {limit:g})")
        ranked = []
        for _, pattern, _ in found.ranking(kind)[:_MEASURED_AGAIN]:
            sized, cost = await worst_size(pattern)
            ranked.append((cost.ms, sized, cost.outcome))
        ranked.sort(key=lambda row: -row[0])
        beyond += sum(ms > limit for ms, _, _ in ranked)
        for ms, pattern, outcome in ranked[:shown]:
            print(f"{ms:8.1f}  {outcome:24} {pattern}")
    print(f"\n{found.tried:,} cases tried, {beyond} beyond the limits")
    return beyond


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/cpu-search", description=__doc__)
    parser.add_argument("--cases", type=int, default=200_000, help="how many to try (default: 200,000)")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1, help="how many (default: one per core)")
    parser.add_argument("--seed", type=int, default=0, help="where to start")
    parser.add_argument("--minutes", type=float, default=60, help="when to stop trying at the latest (default: 60)")
    parser.add_argument("--shown", type=int, default=10, help="how many of each kind to print (default: 10)")
    given = parser.parse_args()
    cases, all_found = -(-given.cases // given.processes), Search(given.seed)
    with ProcessPoolExecutor(given.processes, get_context("spawn")) as pool:
        parts = [
            pool.submit(search, part, given.processes, cases, given.seed, given.minutes)
            for part in range(given.processes)
        ]
        for part in parts:
            all_found.add(*part.result())
    return 1 if asyncio.run(report(all_found, given.shown)) else 0


if __name__ == "__main__":
    sys.exit(main())
